"""What the notebooks look at: a few minutes of the whole loop in one process, for the tour also as Parquet files.

A generated workload, a service that is simulated, the job's own decisions, and an executor that applies them at once;
a third of the answers is judged. No clock is read: the same seed gives the same files.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from analytics.policy import ExperimentPolicy, PolicyBook, PolicyDefaults
from connectors.encoders.base import Encoder
from connectors.kafka.base import Record
from jobs.settings import JobSettings, ScopeSettings
from schemas import BrokenConfiguration, RequestEvent, RewardEvent, encode
from schemas.canonical import h64
from schemas.topics import COMMANDS, INSIGHTS, OUTCOMES, REQUESTS, REWARDS, TELEMETRY, Topic
from stoker.export.write import Span, write_parquet
from stoker.local_job import LocalJob
from stoker.offline_loop import OfflineLoop
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.offline import OfflineConfig, OfflineService
from stoker.replay.turns import until

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


class Tour(OfflineLoop):
    """The loop, with judged answers and every record kept.

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
        held = PolicyDefaults(experiment=ExperimentPolicy(hold_share=config.hold_share))
        own_scopes = JobSettings(scopes=ScopeSettings(unknown="own"))
        super().__init__(
            OfflineService(OfflineConfig(replicas=config.replicas, capacity_tokens=config.capacity_tokens)),
            LocalJob(settings or own_scopes, PolicyBook(defaults or held), encoder),
        )
        self.records: dict[Topic, list[Record]] = defaultdict(list)

    def run(self) -> None:
        """Plays all minutes."""
        config = self._config
        workload = GeneratedConfig(requests_per_s=config.requests_per_s, seed=config.seed)
        self.play(until(generated(workload), config.minutes * 60_000))

    def asked(self, event: RequestEvent, at_ms: int) -> None:
        """Judges a share of the answers."""
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
        self.tell(REWARDS, encode(reward), at_ms, reward.query_sha256)

    def keep(self, topic: Topic, value: bytes, at_ms: int, key: str | None) -> None:
        """Keeps it, to be written."""
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
