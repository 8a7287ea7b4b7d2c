"""One demand shard against a recount of everything that it was given."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings

from analytics.accounting import Ledger
from analytics.demand import Demand, DemandConfig
from analytics.entropy import EntropySums, merged
from analytics.envelopes import EmbedRequest, Partial, PrefixDelta, Tag, body_of, key_of, open_as, tag_of
from analytics.facts import HEAD, Flag, Kind, unpack_names
from analytics.panes import OTHER_POOL, PaneCaps
from analytics.policy import PolicyBook
from analytics.second_sight import SecondSightConfig
from analytics.stores import MemoryLogStore
from schemas import Accounting, Policy, WindowStats, decode
from tests.analytics.shard_script import CHAINS, ONE, START_MS, Life, Step, live, query, request, steps

WIDE = DemandConfig(
    shards=1,
    pane_ms=1_000,
    window_ms=10_000_000,
    lateness_ms=2_000,
    close_after_ms=1_000,
    second_sight=SecondSightConfig(shards=1),
)
"""Forgets nothing, so that a recount needs no window."""


def insights(life: Life) -> list[Accounting | WindowStats]:
    return [decode(body_of(each), Accounting, WindowStats) for each in life.envelopes if tag_of(each) == Tag.INSIGHT]


def last_stats(life: Life) -> dict[tuple[str, str, int], WindowStats]:
    found: dict[tuple[str, str, int], WindowStats] = {}
    for each in insights(life):
        if isinstance(each, WindowStats):
            key = (each.scope, each.dimension, each.pane_start_ms)
            if key not in found or each.revision >= found[key].revision:
                found[key] = each
    return found


class Recount:
    """The same rules in the plainest words: lists, and a look at all of them for every fact."""

    def __init__(self, config: DemandConfig, script: list[Step]) -> None:
        self.terms: Counter[str] = Counter()
        self.counts: dict[tuple[str, str, int], dict[str, list[tuple[int, int]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.chains: Counter[tuple[str, str, bytes]] = Counter()
        phases: dict[int, set[bool]] = {}
        for step in script:
            _, kind, flags, at_ms, identity, user, asked, weight, names_bytes, _, kept = HEAD.unpack_from(step.fact)
            finished = bool(flags & Flag.FINISHED)
            if kind == Kind.REWARD:
                continue
            if kind == Kind.DEAD:
                self.terms["dead"] += 1
            elif not flags & Flag.DEMAND:
                self.terms["not_demand"] += 1
            elif identity in phases:
                self.terms["duplicate" if finished in phases[identity] else "second_phase"] += 1
                phases[identity].add(finished)
            elif (at_ms // config.pane_ms + 1) * config.pane_ms + config.lateness_ms <= step.watermark_ms:
                self.terms["late"] += 1
            else:
                self.terms["counted"] += 1
                phases[identity] = {finished}
                names = unpack_names(step.fact[HEAD.size : HEAD.size + names_bytes])
                start_ms = at_ms // config.pane_ms * config.pane_ms
                for dimension, key in (
                    ("query", asked.hex()),
                    ("template", names.template),
                    ("adapter", names.adapter),
                ):
                    if key:
                        self.counts[names.scope, dimension, start_ms][key].append((weight, user))
                chain = step.fact[HEAD.size + names_bytes : kept]
                if chain:
                    self.chains[names.scope, names.pool, chain[: len(chain) // 21 * 16]] += weight


@settings(max_examples=60, deadline=None)
@given(steps(backwards=False))
def test_every_record_lies_in_one_drawer_and_every_pane_is_the_recount(script: list[Step]) -> None:
    life, recount = live(WIDE, script), Recount(WIDE, script)

    ledger = Ledger()
    for each in insights(life):
        ledger.take(each)
    assert {term: getattr(ledger.balance, term) for term in recount.terms} == dict(recount.terms)
    assert ledger.balance.read == sum(recount.terms.values()) == life.demand.read
    assert ledger.balance.in_panes == recount.terms["counted"]

    stats = last_stats(life)
    assert stats.keys() == recount.counts.keys()
    for key, rows in recount.counts.items():
        found = stats[key]
        weights = {name: sum(weight for weight, _ in asked) / ONE for name, asked in rows.items()}
        users = {name: len({user for _, user in asked if user}) for name, asked in rows.items()}
        assert found.events == found.revision == sum(len(asked) for asked in rows.values())
        assert found.weight == pytest.approx(sum(weights.values()))
        clogc = sum(w * math.log(w) for w in weights.values())
        assert found.sum_clogc == pytest.approx(clogc, abs=1e-9)
        assert found.distinct == len(rows)
        if key[1] == "query":
            assert found.users == sum(users.values())
        best = sorted(weights, key=lambda name: (-weights[name], name))[: WIDE.top]
        assert [top.key for top in found.top] == best

    sent: Counter[tuple[str, str, bytes]] = Counter()
    for envelope in life.envelopes:
        if tag_of(envelope) == Tag.DELTA:
            delta = open_as(envelope, PrefixDelta)
            assert key_of(envelope) == delta.scope
            for chain in delta.chains:
                sent[delta.scope, delta.pool, chain.hashes] += round(chain.count * ONE)
    assert sent == recount.chains


def test_shards_add_up_to_the_entropy_of_the_whole() -> None:
    asked = [f"q{number * number % 37}" for number in range(600)]
    parts = []
    for shard in range(4):
        own = [name for name in asked if query(name)[0] % 4 == shard]
        life = live(WIDE, [Step(request(START_MS, i + 1, name), START_MS) for i, name in enumerate(own)])
        for envelope in life.envelopes:
            if tag_of(envelope) == Tag.PARTIAL:
                partial = open_as(envelope, Partial)
                if partial.dimension == "query":
                    parts.append(EntropySums(partial.weight, partial.sum_clogc, partial.distinct))
    counts = Counter(asked)
    expected = -sum(c / len(asked) * math.log2(c / len(asked)) for c in counts.values())
    assert merged(parts).entropy_bits == pytest.approx(expected, abs=1e-12)
    assert merged(parts).distinct == len(counts)


def test_a_late_event_within_the_lateness_raises_the_revision_of_its_pane() -> None:
    script = [
        Step(request(START_MS, 1), START_MS - 5_000),
        Step(request(START_MS + 1_500, 2), START_MS + 1_200),
        Step(request(START_MS + 100, 3), START_MS + 2_900),
        Step(request(START_MS + 200, 4), START_MS + 3_000),
    ]
    life = live(WIDE, script)
    revisions = [
        each.revision
        for each in insights(life)
        if isinstance(each, WindowStats) and each.dimension == "query" and each.pane_start_ms == START_MS
    ]
    assert revisions == [1, 2]
    assert life.demand.counters["late"] == 1


def test_pools_of_a_scope_have_partials_of_their_own_and_one_insight() -> None:
    script = [
        Step(request(START_MS, 1, user=1, pool="p"), START_MS),
        Step(request(START_MS, 2, user=2, pool="r"), START_MS),
        Step(request(START_MS, 3, user=2, pool="r"), START_MS),
    ]
    life = live(WIDE, script)
    partials = [open_as(each, Partial) for each in life.envelopes if tag_of(each) == Tag.PARTIAL]
    assert [(each.pool, each.weight, each.users) for each in partials] == [("p", 1.0, 1), ("r", 2.0, 1)]
    (stats,) = last_stats(life).values()
    assert (stats.events, stats.distinct, stats.users) == (3, 1, 2)
    assert stats.sum_clogc == pytest.approx(3 * math.log(3))


def embeds(life: Life) -> list[EmbedRequest]:
    return [open_as(each, EmbedRequest) for each in life.envelopes if tag_of(each) == Tag.EMBED]


def test_the_second_sight_asks_with_its_own_text_and_only_once() -> None:
    script = [Step(request(START_MS + i, i + 1, text=f"words {i}"), START_MS) for i in range(5)]
    assert embeds(live(WIDE, script)) == [EmbedRequest("a", query("q").hex(), "words 1", START_MS + 1, "second_sight")]


def test_a_repetition_of_one_request_is_no_second_sight() -> None:
    script = [
        Step(request(START_MS, 1), START_MS),
        Step(request(START_MS, 1), START_MS),
        Step(request(START_MS + 9, 1, finished=True), START_MS),
        Step(request(START_MS, 2, scope="b"), START_MS),
    ]
    assert embeds(live(WIDE, script)) == []


def test_after_the_repeat_interval_a_query_is_asked_for_again() -> None:
    config = DemandConfig(
        shards=1,
        pane_ms=1_000,
        window_ms=100_000,
        lateness_ms=2_000,
        second_sight=SecondSightConfig(shards=1, time_scale=3_600),
    )
    script = [Step(request(START_MS + 250 * i, i + 1), START_MS + 250 * i) for i in range(12)]
    assert [each.at_ms - START_MS for each in embeds(live(config, script))] == [250, 1_250, 2_250]


def test_withheld_and_long_texts_are_counted_and_asked_for_when_the_text_comes() -> None:
    texts: list[str | None] = ["one", "", None, "four", "five"]
    script = [Step(request(START_MS + i, i + 1, text=text), START_MS) for i, text in enumerate(texts)]
    life = live(WIDE, script)
    assert [each.text for each in embeds(life)] == ["four"]
    assert life.demand.counters["embed_withheld"] == 1
    assert life.demand.counters["embed_too_long"] == 1


def test_a_sampled_first_sight_is_embedded_once_and_its_second_sight_all_the_same_over_a_crash() -> None:
    book = PolicyBook()
    body = {"first_sight_share": 1.0}
    book.apply(Policy(scope="a", section="plan", writer="w", version=1, at_ms=0, body=body))
    store = MemoryLogStore(WIDE.logs)
    demand = Demand(WIDE, 0, store)
    told = []
    for number, text in enumerate(("one", "two", "three")):
        for envelope in demand.on_fact(request(START_MS + number, number + 1, text=text), START_MS, book):
            told.append(open_as(envelope, EmbedRequest))
        demand = Demand(WIDE, 0, store := store.copy())
    assert [(each.text, each.trigger) for each in told] == [("one", "first_sight"), ("two", "second_sight")]
    assert (demand.counters["embed_sampled"], demand.counters["embed_asked"]) == (1, 1)
    spent = 0
    while demand.on_fact(request(START_MS + 9, 100 + spent, f"q{spent}", text="x"), START_MS, book):
        spent += 1
    assert spent == 48  # a sample and a second sight are paid: the rest of half of the bucket


def test_a_frozen_scope_and_a_switch_ask_for_nothing() -> None:
    for policy in (
        Policy(scope="a", section="freeze", writer="w", version=1, at_ms=0, body={"frozen": True}),
        Policy(scope="a", section="plan", writer="w", version=1, at_ms=0, body={"second_sight": False}),
    ):
        book = PolicyBook()
        book.apply(policy)
        demand = Demand(WIDE, 0, MemoryLogStore(WIDE.logs))
        assert not any(demand.on_fact(request(START_MS, i + 1), START_MS, book) for i in range(5))


def test_the_rate_holds_however_far_ahead_an_event_claims_to_be() -> None:
    book = PolicyBook()
    body: dict[str, str | int | float | bool | None] = {"embeds_per_s": 1.0, "embeds_burst": 3.0}
    book.apply(Policy(scope="a", section="budget", writer="w", version=1, at_ms=0, body=body))
    demand = Demand(WIDE, 0, MemoryLogStore(WIDE.logs))
    asked = 0
    for number in range(20):
        for repeat in range(2):
            at_ms = START_MS + 30_000 * repeat
            asked += len(demand.on_fact(request(at_ms, 2 * number + repeat + 1, f"q{number}"), START_MS, book))
    assert asked == 3
    assert demand.counters["embed_over_rate"] == 17
    for number in range(20):
        asked += len(demand.on_fact(request(START_MS, 100 + number, f"q{number}"), START_MS + 2_000, book))
    assert asked == 5


def test_a_request_is_forgotten_when_the_window_has_passed() -> None:
    config = dataclasses.replace(WIDE, window_ms=3_000, lateness_ms=1_000)
    script = [
        Step(request(START_MS, 1), START_MS),
        Step(request(START_MS + 4_500, 1), START_MS + 4_900),
        Step(request(START_MS + 5_000, 1), START_MS + 5_000),
    ]
    counters = live(config, script).demand.counters
    assert (counters["counted"], counters["duplicate"]) == (2, 1)


def test_caps_keep_the_totals_and_raise_the_entropy_at_most() -> None:
    config = DemandConfig(
        shards=1, caps=PaneCaps(keys=3, users_per_key=2), second_sight=WIDE.second_sight, max_delta_bytes=0
    )
    script = [Step(request(START_MS, i + 1, f"q{i % 5}", user=i + 1, segments=CHAINS[1]), START_MS) for i in range(20)]
    life = live(config, script)
    (stats,) = last_stats(life).values()
    assert (stats.events, stats.weight, stats.distinct, stats.users) == (20, 20.0, 3 + 8, 6)
    assert stats.sum_clogc == pytest.approx(3 * 4 * math.log(4))
    assert life.demand.counters["capped"] == 1
    assert life.demand.counters["chains_dropped"] == 20
    (delta,) = (open_as(each, PrefixDelta) for each in life.envelopes if tag_of(each) == Tag.DELTA)
    assert (delta.requests, delta.chains) == (20.0, ())


def test_pools_beyond_the_bound_are_counted_together_and_the_scope_s_totals_stay_exact() -> None:
    config = dataclasses.replace(WIDE, caps=PaneCaps(places=2))
    script = [Step(request(START_MS, i + 1, "q", pool=f"pool {i}"), START_MS) for i in range(20)]
    life = live(config, script)
    partials = [open_as(each, Partial) for each in life.envelopes if tag_of(each) == Tag.PARTIAL]
    pools = {each.pool: each.weight for each in partials if each.dimension == "query"}
    assert pools == {"pool 0": 1.0, "pool 1": 1.0, OTHER_POOL: 18.0}
    assert life.demand.counters["counted"] == 20
    assert sum(stats.events for stats in last_stats(life).values()) == 20


def test_an_old_timer_does_nothing() -> None:
    demand = Demand(WIDE, 0, MemoryLogStore(WIDE.logs))
    demand.on_fact(request(START_MS, 1), START_MS, PolicyBook())
    due = demand.next_timer_ms
    assert due == START_MS + 1_000
    assert demand.on_timer(due - 1, PolicyBook()) == []
    assert demand.on_timer(due, PolicyBook()) != []
    assert demand.on_timer(due, PolicyBook()) == []


def test_an_event_from_ahead_does_not_hold_the_others_timer_back() -> None:
    demand = Demand(WIDE, 0, MemoryLogStore(WIDE.logs))
    demand.on_fact(request(START_MS + 30_000, 1), START_MS, PolicyBook())
    assert demand.next_timer_ms == START_MS + 31_000
    demand.on_fact(request(START_MS, 2), START_MS, PolicyBook())
    assert demand.next_timer_ms == START_MS + 1_000
