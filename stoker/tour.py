"""What the notebooks look at: a few minutes of the whole loop in one process, for the tour also as Parquet files.

A generated workload, a service that is simulated, the job's own decisions, and an executor that applies them at once;
a third of the answers is judged. No clock is read: the same seed gives the same files.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from analytics.policy import ExperimentPolicy, PolicyBook, PolicyDefaults
from connectors.encoders.base import Encoder
from connectors.kafka.base import Record
from jobs.settings import JobSettings, ScopeSettings
from schemas import (
    BrokenConfiguration,
    Prefix,
    ReplicaSample,
    RequestEvent,
    RewardEvent,
    WarmupCommand,
    WarmupOutcome,
    encode,
)
from schemas.canonical import h64, outcome_id
from schemas.topics import COMMANDS, INSIGHTS, OUTCOMES, REQUESTS, REWARDS, TELEMETRY, Topic
from schemas.warmup_outcome import OutcomeReason, Status
from stoker.export.write import Span, write_parquet
from stoker.local_job import LocalJob
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.offline import OfflineConfig, OfflineService
from stoker.replay.turns import until

SAMPLE_MS = 1_000
JUDGED_SHARE = 1 / 3
EXPORTED = (REQUESTS, REWARDS, TELEMETRY, COMMANDS, OUTCOMES, INSIGHTS)


@dataclass(frozen=True)
class TourConfig:
    """The run.

    Attributes:
        minutes: of event time.
        capacity_tokens: KV cache of each replica: too little for all documents.
        hold_share: units that are never warmed.
        seed: of the workload and of what judges answers.
    """

    minutes: float = 6.0
    requests_per_s: float = 6.0
    replicas: int = 2
    capacity_tokens: int = 12_000
    hold_share: float = 0.3
    seed: int = 1


class Tour:
    """The loop.

    Args:
        config: the run.
        encoder: of queries; without one nothing is embedded.
        settings: of the job; by default every tenant is a scope.
        defaults: its policies; by default as they come, with the hold-out of the run.
    """

    def __init__(
        self,
        config: TourConfig,
        encoder: Encoder | None = None,
        settings: JobSettings | None = None,
        defaults: PolicyDefaults | None = None,
    ) -> None:
        self._config = config
        self._service = OfflineService(OfflineConfig(replicas=config.replicas, capacity_tokens=config.capacity_tokens))
        held = PolicyDefaults(experiment=ExperimentPolicy(hold_share=config.hold_share))
        own_scopes = JobSettings(scopes=ScopeSettings(unknown="own"))
        self._job = LocalJob(settings or own_scopes, PolicyBook(defaults or held), encoder)
        self._sampled_ms = self._service.config.start_ms
        self.records: dict[Topic, list[Record]] = defaultdict(list)

    def run(self) -> None:
        """Plays all minutes."""
        config = self._config
        workload = GeneratedConfig(requests_per_s=config.requests_per_s, seed=config.seed)
        for event in self._service.events(until(generated(workload), config.minutes * 60_000)):
            at_ms = event.event_time_ms
            self._sample_until(at_ms)
            self._tell(REQUESTS, encode(event), at_ms, event.session)
            self._judge(event, at_ms)
            self._apply(at_ms)
        self._job.advance(self._sampled_ms + 60_000)
        self._apply(self._sampled_ms)

    def _sample_until(self, at_ms: int) -> None:
        while self._sampled_ms <= at_ms:
            for replica in self._service.replicas:
                sample = ReplicaSample(
                    replica=replica,
                    pool=self._service.config.pool,
                    incarnation="1",
                    sampled_at_ms=self._sampled_ms,
                    state="ready",
                    block_tokens=self._service.config.block_tokens,
                )
                self._tell(TELEMETRY, encode(sample), self._sampled_ms, replica)
            self._apply(self._sampled_ms)
            self._sampled_ms += SAMPLE_MS

    def _judge(self, event: RequestEvent, at_ms: int) -> None:
        chance = h64("judged", event.request_id, str(self._config.seed)) / 2**64
        if event.phase != "finished" or event.query_sha256 is None or chance >= JUDGED_SHARE:
            return
        reward = RewardEvent(
            event_id=f"{event.request_id}-reward",
            occurred_at_ms=at_ms,
            tenant=event.tenant,
            query_sha256=event.query_sha256,
            request_id=event.request_id,
            reward=round(h64("reward", event.query_sha256) / 2**64, 2),
            source="judge",
            reward_model_version="tour",
        )
        self._tell(REWARDS, encode(reward), at_ms, reward.query_sha256)

    def _apply(self, at_ms: int) -> None:
        """Every command that is out, and what its outcomes bring about."""
        topics = self._job.topics
        while topics.commands:
            for value in [topics.commands.pop(0) for _ in range(len(topics.commands))]:
                command = msgspec.json.decode(value, type=WarmupCommand)
                self._keep(COMMANDS, value, command.issued_at_ms, f"{command.pool} {command.target_key}")
                for replica in command.replicas.names or self._service.replicas[:1]:
                    outcome = self._outcome(command, replica, at_ms)
                    self._tell(OUTCOMES, encode(outcome), at_ms, f"{command.pool} {command.target_key}")
        for value in topics.insights:
            self._keep(INSIGHTS, value, at_ms, None)
        topics.insights.clear()

    def _outcome(self, command: WarmupCommand, replica: str, at_ms: int) -> WarmupOutcome:
        status: Status
        cached = computed = 0
        if command.arm == "hold":
            status, reason = "held_out", OutcomeReason.HELD_OUT
        elif isinstance(command.target, Prefix):
            cached, computed = self._service.request(replica, command.target.segments)
            status, reason = (
                ("applied", OutcomeReason.DONE) if computed else ("resident", OutcomeReason.ALREADY_RESIDENT)
            )
        else:
            status, reason = "applied", OutcomeReason.DONE
        return WarmupOutcome(
            outcome_id=outcome_id(command.command_id, replica),
            command_id=command.command_id,
            target_key=command.target_key,
            scope=command.scope,
            pool=command.pool,
            replica=replica,
            unit=command.unit,
            arm=command.arm,
            status=status,
            reason=reason,
            finished_at_ms=at_ms,
            tokens_warmed=computed,
            tokens_already_resident=cached,
        )

    def _tell(self, topic: Topic, value: bytes, at_ms: int, key: str | None) -> None:
        self._keep(topic, value, at_ms, key)
        self._job.on_record(value, at_ms)

    def _keep(self, topic: Topic, value: bytes, at_ms: int, key: str | None) -> None:
        records = self.records[topic]
        records.append(Record(topic.name, 0, len(records), at_ms, None if key is None else key.encode(), value))


def make_tour(folder: Path, config: TourConfig | None = None, encoder: Encoder | None = None) -> dict[str, Path]:
    """Plays the tour and writes a Parquet file for each topic, without texts; returns the files by topic.

    Raises:
        BrokenConfiguration: the folder cannot be made.
    """
    tour = Tour(config or TourConfig(), encoder)
    tour.run()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise BrokenConfiguration(f"{folder} cannot be made ({fault.strerror})") from None
    files = {}
    for topic in EXPORTED:
        files[topic.name] = folder / f"{topic.name}.parquet"
        write_parquet(tour.records[topic], topic, files[topic.name], Span(), with_text=False)
    return files
