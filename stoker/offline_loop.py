"""The whole loop in one process, in event time: a simulated service, the job's decisions, an executor at once.

What the service tells of a workload goes into the job in the order of time, with a sample of each replica a second;
commands are applied when they are issued, and their outcomes go back. Prefill takes no time here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from executor.outcomes import Ending, outcome_of
from schemas import OutcomeReason, Prefix, ReplicaSample, RequestEvent, WarmupCommand, encode
from schemas.topics import COMMANDS, INSIGHTS, OUTCOMES, REQUESTS, TELEMETRY, Topic
from stoker.local_job import LocalJob
from stoker.replay.offline import OfflineService
from stoker.replay.turns import Turn

SAMPLE_MS = 1_000


class OfflineLoop:
    """One run.

    Args:
        service: replicas, and what a gateway before them tells.
        job: the decisions.
        warms: whether its commands are applied; else they are lost, and the service is as if nobody warmed.
    """

    def __init__(self, service: OfflineService, job: LocalJob, warms: bool = True) -> None:
        self.service = service
        self.job = job
        self._warms = warms
        self.sampled_ms = service.config.start_ms

    def play(self, turns: Iterable[Turn]) -> None:
        """All of these turns."""
        for event in self.service.events(turns):
            at_ms = event.event_time_ms
            self._sample_until(at_ms)
            self.tell(REQUESTS, encode(event), at_ms, event.session)
            self.asked(event, at_ms)
            self._apply(at_ms)
        self.job.advance(self.sampled_ms + 60_000)
        self._apply(self.sampled_ms)

    def asked(self, event: RequestEvent, at_ms: int) -> None:
        """An event of a request was told."""

    def tell(self, topic: Topic, value: bytes, at_ms: int, key: str | None) -> None:
        """A record of a topic that the job reads."""
        self.keep(topic, value, at_ms, key)
        self.job.on_record(value, at_ms)

    def keep(self, topic: Topic, value: bytes, at_ms: int, key: str | None) -> None:
        """A record of any topic was written."""

    def _sample_until(self, at_ms: int) -> None:
        while self.sampled_ms <= at_ms:
            for replica in self.service.replicas:
                incarnation, state = self.service.life_of(replica, self.sampled_ms)
                sample = ReplicaSample(
                    replica=replica,
                    pool=self.service.config.pool,
                    incarnation=incarnation,
                    sampled_at_ms=self.sampled_ms,
                    state=state,
                    block_tokens=self.service.config.block_tokens,
                )
                self.tell(TELEMETRY, encode(sample), self.sampled_ms, replica)
            self._apply(self.sampled_ms)
            self.sampled_ms += SAMPLE_MS

    def _apply(self, at_ms: int) -> None:
        """Every command that is out, and what its outcomes bring about."""
        topics = self.job.topics
        while self._warms and topics.commands:
            for value in [topics.commands.pop(0) for _ in range(len(topics.commands))]:
                command = msgspec.json.decode(value, type=WarmupCommand)
                key = f"{command.pool} {command.target_key}"
                self.keep(COMMANDS, value, command.issued_at_ms, key)
                for replica in command.replicas.names or self.service.replicas[:1]:
                    outcome = outcome_of(command, replica, self._ending(command, replica, at_ms), at_ms)
                    self.tell(OUTCOMES, encode(outcome), at_ms, key)
        for value in topics.insights:
            self.keep(INSIGHTS, value, at_ms, None)
        topics.commands.clear()
        topics.insights.clear()

    def _ending(self, command: WarmupCommand, replica: str, at_ms: int) -> Ending:
        if command.arm == "hold":
            return Ending("held_out", OutcomeReason.HELD_OUT)
        if self.service.life_of(replica, at_ms)[1] != "ready":
            return Ending("rejected", OutcomeReason.NO_REPLICA)
        if not isinstance(command.target, Prefix):
            return Ending("applied", OutcomeReason.DONE)
        cached, computed = self.service.request(replica, command.target.segments, at_ms)
        if not computed:
            return Ending("resident", OutcomeReason.ALREADY_RESIDENT, tokens_already_resident=cached)
        return Ending("applied", OutcomeReason.DONE, tokens_warmed=computed, tokens_already_resident=cached)
