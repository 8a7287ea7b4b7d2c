"""Bench `score`: 100,000 candidates of 1,000 tenants; one more arrival, and a tick that sorts every queue again (D6).

A tenth of the queries has been judged. A tick finds each tenant's 99th percentile and drops what scores too low. Nine
of ten queries are asked for steadily; every tenth one was asked for once and falls out at the next tick, and as many
come new, so that each tick judges the same number. The reference rule and the tuned one take turns. The baseline of a
tick is the naive one: every candidate's score, and a full sort. Time is CPU time.
"""

from __future__ import annotations

import math
import random
import statistics
import time

from analytics.demand_queue import DemandQueue
from analytics.envelopes import Rewarded
from analytics.facts import MICRO
from analytics.policy_sections import ScorePolicy
from analytics.records import Section
from analytics.reward_book import RewardBook
from analytics.reward_posterior import QUARTERS
from analytics.scoring import SPEC, percentile_99, score_of
from analytics.stores import MemoryMapStore
from stoker.bench.figures import Figure, Report, at_most

TENANTS = 1_000
ROUNDS = 5
"""Of each rule."""

TUNED = ScorePolicy(rule="tuned")
JUDGED_SHARE = 0.1
START_MS = 1_790_000_000_000


def run(events: int = 100_000) -> Report:
    """Figures touch_us and tick_ms, the latter by both rules.

    Args:
        events: candidates, a thousandth of them of each tenant; as many arrivals are timed.
    """
    source = random.Random(0)
    tenants = [f"tenant-{number}" for number in range(min(TENANTS, events))]
    queries = [f"{source.getrandbits(128):032x}" for _ in range(events // len(tenants))]
    store = MemoryMapStore()
    book = RewardBook(events, Section(store, "r"))
    queue = DemandQueue(Section(store, "q"), Section(store, "u"), book)
    for tenant in tenants:
        for query in queries:
            if source.random() < JUDGED_SHARE:
                micro = round(source.random() * MICRO)
                weighed = (micro * QUARTERS, QUARTERS)
                counted = (micro, 1, micro, 1, 0, 0)
                book.take(Rewarded(tenant, query, "", "", START_MS, *counted, *weighed, *weighed))
    touch_us: list[float] = []
    tick_ms: dict[str, list[float]] = {"spec": [], "tuned": []}
    naive_ms: dict[str, list[float]] = {"spec": [], "tuned": []}
    for number in range(2 * ROUNDS):
        at_ms, policy = START_MS + number * SPEC.sort_ms, TUNED if number % 2 else SPEC
        for tenant in tenants:
            for place, query in enumerate(queries):
                steady = place % 10
                if steady or not queue.holds(tenant, query):
                    queue.add(tenant, {query: source.uniform(6, 9) if steady else 1.0}, at_ms, SPEC.decay_ms)
        often = [query for place, query in enumerate(queries) if place % 10]
        arrivals = [(source.choice(tenants), source.choice(often)) for _ in range(events)]
        began = time.process_time()
        for tenant, query in arrivals:
            queue.add(tenant, {query: 1.0}, at_ms, SPEC.decay_ms)
        touch_us.append((time.process_time() - began) / events * 1e6)
        began = time.process_time()
        naive = [_naive(queue, book, tenant, at_ms, policy) for tenant in tenants]
        naive_ms[policy.rule].append((time.process_time() - began) * 1000)
        began = time.process_time()
        for tenant in tenants:
            queue.sort(at_ms, SPEC.sort_ms, tenant, SPEC.queue, SPEC.drop_below, policy)
        tick_ms[policy.rule].append((time.process_time() - began) * 1000)
        assert [set(queue.queries(tenant)) for tenant in tenants] == [set(kept) for kept in naive]
    report = Report("score")
    report.add(Figure("touch_us", statistics.median(touch_us), "us", goal=at_most(5)))
    for rule, name in (("spec", "tick_ms"), ("tuned", "tick_ms.tuned")):
        baseline = statistics.median(naive_ms[rule])
        report.add(Figure(name, statistics.median(tick_ms[rule]), "ms", baseline, at_most(50)))
    return report


def _naive(queue: DemandQueue, book: RewardBook, tenant: str, at_ms: int, policy: ScorePolicy) -> list[str]:
    """The queries that stay, the best first."""
    demands = {query: queue.demand(tenant, query, at_ms) for query in queue.queries(tenant)}
    p99 = percentile_99(list(demands.values()))
    earned = book.of(tenant)
    worth = {query: book.posterior(tenant, query).mean for query in earned} if policy.rule == "tuned" else {}
    scores = {
        query: score_of(min(1.0, demand / p99), earned.get(query), policy, worth.get(query))
        for query, demand in demands.items()
    }
    ranked = sorted(scores, key=lambda query: (-scores[query], -demands[query], query))
    return [query for query in ranked if scores[query] >= SPEC.drop_below - math.ulp(1.0)][: SPEC.queue]
