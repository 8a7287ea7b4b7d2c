"""What Stoker would have done with this traffic: the job's decisions, and an LRU cache for every replica they act on.

The replicas are known to the planner from samples; commands are applied when they are issued, evictions
of what was warmed are reported as an engine with KV events would; nobody is held out. A warm-up computes what of its
prefix is missing there and costs so many tokens of prefill, or, with a host tier, moves them from there and computes
nothing. Where nothing is missing it computes the last block of an engine. What is not simulated: prefill takes no time,
and a request's routing is what it was.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from analytics.cache_models import LruCache, Run, size
from analytics.policy import BudgetPolicy, ExperimentPolicy, PlanPolicy, PolicyBook, PolicyDefaults
from executor.outcomes import Ending, outcome_of
from jobs.settings import JobSettings
from schemas import OutcomeReason, Prefix, ReplicaSample, Residency, WarmupCommand, encode
from stoker.gain.asked import ANY_REPLICA, Asked, Traffic, runs_of
from stoker.local_job import LocalJob

STEP_MS = 1_000
"""How often event time goes on and losses are reported; the planner's own tick."""
SAMPLE_MS = 5_000
"""How often replicas are sampled: often enough for the planner to take them as ready."""
START_MS = 600_000
"""Traces begin at 0; event time needs a past."""
INCARNATION = "simulated"
LAST_TOKENS = 16
"""What an engine computes of a prompt that it holds: at most its last block, however long those of a trace are."""


@dataclass(frozen=True)
class Simulated:
    """What came of it.

    Attributes:
        found_blocks: by requests.
        commands: prefixes that were warmed, on one replica each. renewals: of them those that were resident.
        spent_tokens: prefill of all warm-ups, or what they moved out of the host tier.
    """

    found_blocks: int
    commands: int
    renewals: int
    spent_tokens: int


@dataclass
class _Replica:
    """A cache, what it counts, and what was warmed in it: scope and runs by target key, until it is lost."""

    cache: LruCache
    queried_blocks: int = 0
    found_blocks: int = 0
    warmed: dict[str, tuple[str, tuple[Run, ...]]] = field(default_factory=dict)
    seq: int = 0

    def request(self, runs: tuple[Run, ...]) -> int:
        """What a request or a warm-up finds."""
        found = self.cache.request(runs)
        self.queried_blocks += size(runs)
        self.found_blocks += found
        return found


class Simulation:
    """One run over the traffic.

    Args:
        capacity_blocks: of every replica.
        block_tokens: of the engines.
        share: part of a replica's prefill that warm-ups may use.
        prefill_tokens_per_s: what a replica prefills.
    """

    def __init__(
        self,
        traffic: Traffic,
        settings: JobSettings,
        capacity_blocks: int,
        block_tokens: int,
        share: float,
        prefill_tokens_per_s: float,
    ) -> None:
        self._traffic = traffic
        self._capacity_blocks = capacity_blocks
        self._block_tokens = block_tokens
        defaults = PolicyDefaults(
            plan=PlanPolicy(embeddings=False, second_sight=False),
            budget=BudgetPolicy(prefill_share=share, prefill_tokens_per_s=prefill_tokens_per_s),
            experiment=ExperimentPolicy(hold_share=0.0),
        )
        self._job = LocalJob(settings, PolicyBook(defaults))
        self._replicas: dict[tuple[str, str], _Replica] = defaultdict(lambda: _Replica(LruCache(capacity_blocks)))
        self._shift_ms = max(0, START_MS - traffic.requests[0].arrived_ms)
        self._now_ms = self._traffic.requests[0].arrived_ms + self._shift_ms
        self._sample_ms = self._now_ms
        self._found_blocks = self._commands = self._renewals = self._spent_tokens = 0
        for request in traffic.requests:
            self._replicas[request.cache]

    def run(self) -> Simulated:
        """Plays all of it."""
        for request in self._traffic.requests:
            while self._now_ms + STEP_MS <= request.arrived_ms + self._shift_ms:
                self._now_ms += STEP_MS
                self._step()
            self._found_blocks += self._replicas[request.cache].request(request.runs(self._block_tokens))
            self._tell(request)
        return Simulated(self._found_blocks, self._commands, self._renewals, self._spent_tokens)

    def _step(self) -> None:
        self._job.advance(self._now_ms)
        for (pool, name), replica in self._replicas.items():
            if self._now_ms >= self._sample_ms:
                self._sample(pool, name, replica)
            self._report_lost(pool, name, replica)
        if self._now_ms >= self._sample_ms:
            self._sample_ms = self._now_ms + SAMPLE_MS
        self._apply()
        self._job.topics.insights.clear()

    def _sample(self, pool: str, name: str, replica: _Replica) -> None:
        sample = ReplicaSample(
            replica=name,
            pool=pool,
            incarnation=INCARNATION,
            sampled_at_ms=self._now_ms,
            state="ready",
            blocks_total=self._capacity_blocks,
            block_tokens=self._block_tokens,
            prefix_query_tokens=replica.queried_blocks * self._block_tokens,
            prefix_hit_tokens=replica.found_blocks * self._block_tokens,
        )
        self._job.on_record(encode(sample), self._now_ms)

    def _tell(self, request: Asked) -> None:
        """The event as it would have come: the second phase adds nothing here."""
        at_ms = max(self._now_ms, request.arrived_ms + self._shift_ms)
        event = msgspec.structs.replace(
            request.event, phase="started", occurred_at_ms=at_ms, completed_at_ms=None, query=None
        )
        self._job.on_record(encode(event), at_ms)
        self._apply()

    def _apply(self) -> None:
        """Commands, and what comes of their outcomes, until nothing more is said."""
        commands = self._job.topics.commands
        while commands:
            for record in [commands.pop(0) for _ in range(len(commands))]:
                command = msgspec.json.decode(record, type=WarmupCommand)
                if isinstance(command.target, Prefix):
                    for name in command.replicas.names or (ANY_REPLICA,):
                        self._warm(command, command.target, name)

    def _warm(self, command: WarmupCommand, target: Prefix, name: str) -> None:
        replica = self._replicas[command.pool, name]
        runs = runs_of(target.segments, target.render.salt_ref, self._block_tokens)
        missing = size(runs) - replica.request(runs)
        replica.warmed[command.target_key] = (command.scope, runs)
        tokens = missing * self._block_tokens or min(LAST_TOKENS, self._block_tokens)
        self._spent_tokens += tokens
        self._commands += 1
        self._renewals += not missing
        found = size(runs) - missing
        ending = Ending(
            "applied" if missing else "resident",
            OutcomeReason.DONE if missing else OutcomeReason.ALREADY_RESIDENT,
            tokens_warmed=tokens,
            tokens_already_resident=found * self._block_tokens,
        )
        outcome = outcome_of(command, name, ending, self._now_ms)
        self._job.on_record(encode(outcome), self._now_ms)

    def _report_lost(self, pool: str, name: str, replica: _Replica) -> None:
        """A prefix loses its tail first: its last run says whether all of it is there."""
        for key, (scope, runs) in list(replica.warmed.items()):
            if not runs or replica.cache.held(runs[-1].key) >= runs[-1].blocks:
                continue
            replica.seq += 1
            lost = Residency(
                replica=name,
                pool=pool,
                incarnation=INCARNATION,
                scope=scope,
                target_key=key,
                resident_tokens=replica.cache.found(runs) * self._block_tokens,
                full_tokens=size(runs) * self._block_tokens,
                seq=replica.seq,
                observed_at_ms=self._now_ms,
                source="events",
            )
            del replica.warmed[key]
            self._job.on_record(encode(lost), self._now_ms)
