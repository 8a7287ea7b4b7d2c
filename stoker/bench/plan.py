"""Bench `plan`: a tick of a pool's planner over 100,000 hot prefixes of 1,000 tenants, against a naive sort (D15).

Every slide the prefix trees send their candidates anew, so that the next tick has all of them to choose from; that tick
is timed, and those in between. The candidates' rates follow a Pareto law, four replicas are ready and hold what was
commanded. With the default budget a thousand tenants are in debt most of the time; with the rich one every tick issues
as many commands as a tick may. The baseline computes the worth of every candidate in the same process, sorts
them and takes from the top as far as each tenant's share goes. Time is CPU time, with the garbage collector set as in a
job. Taking candidates in is not part of a tick: it comes message by message, and is printed beside it.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from analytics.envelopes import Candidate, Candidates, Root, Tag, body_of, seal, tag_of
from analytics.plan_config import PlanConfig
from analytics.planners import planner_of
from analytics.policy import BudgetPolicy, PlanPolicy, PolicyBook, PolicyDefaults
from analytics.stores import MemoryMapStore
from analytics.worth import Worth, p_absent_prior
from jobs.interpreter import GC_THRESHOLDS
from schemas import OutcomeReason, ReplicaSample, WarmupCommand, WarmupOutcome, decode, encode
from schemas.canonical import h128, outcome_id
from stoker.bench import memory_model
from stoker.bench.figures import Figure, Report, at_most

POOL = "gpu"
ROOT = Root("m", "", "t", "", "")
REPLICAS = tuple(f"r{number}" for number in range(4))
CANDIDATES_EACH = 100
"""Hot prefixes of a tenant."""
SLIDES, TICKS = 5, 10
GOAL_MS = 50.0
BUDGETS = {"": BudgetPolicy(), ".rich": BudgetPolicy(prefill_share=1.0, burst_ms=3_600_000)}
START_MS = 1_790_000_040_000
HORIZON_S = 120.0


def run(events: int = 100_000) -> Report:
    """Figures tick_ms, tick_ms.between, tick_ms.worst, commands and take_in_us, with the default budget and with a rich
    one, and fragmentation and failed_allocations of the memory view.

    Args:
        events: candidates over all tenants.
    """
    report = Report("plan")
    tenants = max(1, events // CANDIDATES_EACH)
    hot = {f"t{number}": _candidates(number, events // tenants) for number in range(tenants)}
    for name, budget in BUDGETS.items():
        pool = _Pool(hot, budget)
        first, between, naive = [], [], []
        with _collecting_as_in_a_job():
            for _ in range(SLIDES):
                pool.take_in()
                first.append(pool.tick_ms())
                naive.append(_naive_ms(hot, budget))
                between += [pool.tick_ms() for _ in range(TICKS - 1)]
        median = statistics.median
        report.add(Figure(f"tick_ms{name}", median(first), "ms", baseline=median(naive), goal=at_most(GOAL_MS)))
        report.add(Figure(f"tick_ms{name}.between", median(between), "ms"))
        report.add(Figure(f"tick_ms{name}.worst", max(first + between), "ms"))
        report.add(Figure(f"commands{name}", pool.commands, "commands"))
        report.add(Figure(f"take_in_us{name}", median(pool.took_us), "us"))
    _add_memory(report)
    return report


@contextmanager
def _collecting_as_in_a_job() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _add_memory(report: Report) -> None:
    """What one view of weights and KV changes, each beside the same hours without it."""
    seeds = range(SLIDES)
    ours = [memory_model.play(memory_model.with_view, seed) for seed in seeds]
    apart = [memory_model.play(memory_model.without_view, seed) for seed in seeds]
    median = statistics.median
    report.add(
        Figure("fragmentation", median(each for _, each in ours), "", baseline=median(each for _, each in apart))
    )
    for name in ("kv", "growth", "weights", "total"):
        counts = [[getattr(failed, name) for failed, _ in runs] for runs in (ours, apart)]
        report.add(Figure(f"failed_allocations.{name}", median(counts[0]), "", baseline=float(median(counts[1]))))


class _Pool:
    """A planner, its replicas, and executors that apply at once whatever they are told."""

    def __init__(self, hot: dict[str, tuple[Candidate, ...]], budget: BudgetPolicy) -> None:
        self._planner = planner_of(PlanConfig(), POOL, MemoryMapStore())
        self._policy = PolicyBook(PolicyDefaults(budget=budget))
        self._envelopes = [
            seal(Tag.CANDIDATES, POOL, Candidates(scope, POOL, START_MS, (ROOT,), candidates))
            for scope, candidates in hot.items()
        ]
        self._candidates = sum(map(len, hot.values()))
        self._now_ms = START_MS
        self.took_us: list[float] = []
        self.commands = 0

    def take_in(self) -> None:
        """A slide ends: every tenant's candidates come."""
        began = time.process_time()
        for envelope in self._envelopes:
            self._hear(envelope)
        self.took_us.append((time.process_time() - began) / self._candidates * 1e6)

    def tick_ms(self) -> float:
        """CPU time of the next tick."""
        self._now_ms = self._planner.next_timer_ms or self._now_ms
        for replica in REPLICAS:
            sample = ReplicaSample(
                replica=replica,
                pool=POOL,
                incarnation="1",
                sampled_at_ms=self._now_ms,
                state="ready",
                block_tokens=16,
            )
            self._hear(seal(Tag.CONTROL, POOL, encode(sample)))
        began = time.process_time()
        out = self._planner.on_timer(self._now_ms, self._now_ms, self._policy)
        spent_ms = (time.process_time() - began) * 1000
        for envelope in out:
            if tag_of(envelope) == Tag.COMMAND:
                self.commands += 1
                self._apply(decode(body_of(envelope), WarmupCommand))
        return spent_ms

    def _apply(self, command: WarmupCommand) -> None:
        for replica in command.replicas.names or ():
            outcome = WarmupOutcome(
                outcome_id=outcome_id(command.command_id, replica),
                command_id=command.command_id,
                target_key=command.target_key,
                scope=command.scope,
                pool=POOL,
                replica=replica,
                unit=command.unit,
                arm=command.arm,
                status="held_out" if command.arm == "hold" else "applied",
                reason=OutcomeReason.HELD_OUT if command.arm == "hold" else OutcomeReason.DONE,
                finished_at_ms=self._now_ms,
                tokens_warmed=0 if command.arm == "hold" else command.cost.tokens,
            )
            self._hear(seal(Tag.CONTROL, POOL, encode(outcome)))

    def _hear(self, envelope: bytes) -> None:
        self._planner.on_envelope(envelope, self._now_ms, self._now_ms, self._policy)


def _candidates(tenant: int, count: int) -> tuple[Candidate, ...]:
    """Hot prefixes of 400 to 4,000 tokens; half of them are asked for more rarely than every ten minutes."""
    source = random.Random(tenant)
    found = []
    for number in range(count):
        digest = h128(f"{tenant} {number}")
        rate_per_s = 0.001 * source.paretovariate(1.1)
        p_asked = 1 - 2.718281828459045 ** (-rate_per_s * HORIZON_S)
        tokens = source.randrange(400, 4_000)
        found.append(Candidate(0, bytes.fromhex(digest), (tokens,), b"\0", digest, rate_per_s, p_asked, 3.0, START_MS))
    return tuple(found)


def _naive_ms(hot: dict[str, tuple[Candidate, ...]], budget: BudgetPolicy) -> float:
    """CPU time of what a planner without any care would do."""
    plan = PlanPolicy()
    began = time.process_time()
    ranked = []
    for scope, candidates in hot.items():
        for candidate in candidates:
            tokens = sum(candidate.tokens)
            worth = Worth(
                p_asked=candidate.p_asked,
                p_absent=p_absent_prior(candidate.rate_per_s, len(REPLICAS), plan.prefix_resident_ms),
                saved_ms=tokens / budget.prefill_tokens_per_s * 1000,
                cost=float(tokens * len(REPLICAS)),
            )
            ranked.append((-worth.density, scope, candidate.unit, worth.cost))
    ranked.sort()
    _take(ranked, budget, len(hot))
    return (time.process_time() - began) * 1000


def _take(ranked: Sequence[tuple[float, str, str, float]], budget: BudgetPolicy, tenants: int) -> list[str]:
    share = budget.prefill_share * budget.prefill_tokens_per_s * len(REPLICAS) / tenants * budget.burst_ms / 1000
    left: dict[str, float] = {}
    taken: list[str] = []
    for _, scope, unit, cost in ranked:
        held = left.setdefault(scope, share)
        if held >= min(cost, share) and len(taken) < PlanConfig().max_commands:
            left[scope] = held - cost
            taken.append(unit)
    return taken
