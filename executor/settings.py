"""Settings of the executor: section `[executor]` of `stoker.toml`, beside `[kafka]`, `[redis]` and `[encoder]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from analytics.pools import is_redis
from connectors.discovery.settings import DiscoverySettings, FoundReplicas
from connectors.engines.base import EngineKind
from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings, SecretRef, Section, TimeScale
from connectors.tiers.settings import LmcacheSettings
from connectors.values.settings import HttpLoaderSettings, LoaderSettings, SqlLoaderSettings

LONGEST_NAME = 128


class EngineSettings(Section):
    """One replica of a serving engine."""

    name: str = Field(
        min_length=1,
        max_length=LONGEST_NAME,
        description="Name of the replica, as the gateway reports it in its events.",
    )
    url: str = Field(pattern=r"^https?://", description="Base URL of its HTTP API, without /v1.")
    pool: str = Field(min_length=1, max_length=128, description="Pool of equal replicas that it belongs to.")
    zone: str | None = Field(
        default=None,
        min_length=1,
        max_length=LONGEST_NAME,
        description="What fails together with it, as a rack or an availability zone: copies are spread over zones.",
    )
    kind: EngineKind = Field(
        default="vllm",
        description="Which engine it is, `vllm`, `sglang` or `tensorrt_llm`, the same in all of a pool; one that"
        " answers as another is refused.",
    )
    api_key: SecretRef | None = Field(default=None, description="Reference to the bearer token of its API.")
    events: bool = Field(
        default=True, description="Whether its KV events are followed, where it has them; else residency is not told."
    )
    lmcache: LmcacheSettings | None = Field(
        default=None,
        description="The node of LMCache below a vLLM replica: prefixes that it has whole are fetched into host memory"
        " and not sent to the engine.",
    )

    @model_validator(mode="after")
    def _tier_fits(self) -> Self:
        if self.lmcache is not None and self.kind != "vllm":
            raise ValueError(f"lmcache: only for kind 'vllm', and this replica is {self.kind!r}")
        return self


class ExecutorSettings(Section):
    """How one executor works."""

    engines: tuple[EngineSettings, ...] = Field(
        default=(), description="The replicas that it warms. Every executor of a pool lists all replicas of the pool."
    )
    discovery: DiscoverySettings = DiscoverySettings()
    engine_cafile: Path | None = Field(
        default=None,
        description="PEM file of the authorities that are trusted at engines with https://; certifi's when left out.",
    )
    salts: Mapping[str, Mapping[str, SecretRef]] = Field(
        default_factory=dict,
        description="Cache salts: by scope, then by the salt_ref that its commands name, a reference to each salt.",
    )
    redis_pools: bool = Field(default=True, description="Whether it also serves the caches in Redis (redis:<pool>).")
    shadow: bool = Field(default=False, description="Whether nothing is applied and every outcome is shadow.")
    concurrency: int = Field(
        default=2, ge=1, le=64, description="Warm-ups that run at once on one engine replica (1 to 64)."
    )
    redis_concurrency: int = Field(
        default=16, ge=1, le=256, description="Cache entries that are written at once to one Redis (1 to 256)."
    )
    queue_bound: int = Field(
        default=5_000, ge=1, le=1_000_000, description="Works that may wait in one pool; the lowest is turned away."
    )
    quota_slack: float = Field(
        default=2.0,
        ge=1,
        le=100,
        description="How far above the planner's own budget the executor begins to refuse, as a factor (1 to 100).",
    )
    attempts: int = Field(
        default=4, ge=1, le=20, description="Calls of one warm-up before it has failed, if faults pass (1 to 20)."
    )
    backoff_ms: int = Field(
        default=250,
        ge=1,
        le=60_000,
        description="Pause before the second call, then doubled, in ms (1 to 60,000).",
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=100,
        le=600_000,
        description="Longest wait for one warm-up, in ms (100 to 600,000); never beyond the command's expiry.",
    )
    embedding_life_ms: int = Field(
        default=3_600_000,
        ge=1_000,
        le=604_800_000,
        description="How long a warmed embedding lives, in unscaled ms (1,000 to 604,800,000).",
    )
    reward_floor: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Answers that earned less are never put into a response cache (0 to 1); policy's own floor is"
        " `score.reward_floor`.",
    )
    answer_tokens: int = Field(
        default=512,
        ge=1,
        le=65_536,
        description="Longest answer that is generated for a response cache, in tokens (1 to 65,536); one that is cut"
        " off is not stored.",
    )
    http_loaders: tuple[HttpLoaderSettings, ...] = Field(
        default=(), description="Services that business values are loaded from."
    )
    sql_loaders: tuple[SqlLoaderSettings, ...] = Field(
        default=(), description="Databases that business values are loaded from."
    )
    lease_ms: int = Field(
        default=10_000, ge=1_000, le=120_000, description="Life of a lease and of this executor's presence, in ms."
    )
    session_ms: int = Field(
        default=10_000,
        ge=6_000,
        le=300_000,
        description="Silence after which Kafka gives this executor's commands to another, in ms (6,000 to 300,000).",
    )
    telemetry_ms: int = Field(
        default=1_000, ge=100, le=60_000, description="Pause between two samples of a replica, in ms (100 to 60,000)."
    )
    residency_gap_ms: int = Field(
        default=100, ge=100, le=60_000, description="Shortest pause between two residency deltas of a replica, in ms."
    )
    readiness_probe: bool = Field(
        default=True, description="Whether a replica that becomes ready is asked for one token, before any user does."
    )
    cache_warm_share: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Share of its siblings' hot mass from which on a replica's cache counts as warm (0 to 1).",
    )
    cache_warm_patience_s: float = Field(
        default=120.0,
        ge=0,
        le=3_600,
        description="So long after it became ready it counts as warm whatever is missing, in s (0 to 3,600).",
    )
    watched_prefixes: int = Field(
        default=2_000, ge=1, le=100_000, description="Prefixes whose residency is followed on one replica; then LRU."
    )
    ledger_hours: float = Field(
        default=6.0, gt=0, le=168, description="How far back the ledger is rebuilt, and how long entries live, in h."
    )
    drain_s: float = Field(
        default=20.0, ge=0, le=3_600, description="How long a drain waits for what runs, in s (0 to 3,600)."
    )
    admin_host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address of /healthz, /readyz, /metrics and /replicas.",
    )
    admin_port: int = Field(
        default=9410, ge=0, le=65_535, description="Port of the same; 0 takes a free one and logs which."
    )
    admin_token: SecretRef | None = Field(
        default=None,
        description="Reference to a bearer token that /metrics and /replicas ask for; /healthz and /readyz never do.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [engine.name for engine in self.engines]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"engines: the name {doubled[0]!r} occurs twice; a replica has one name")
        loaders = [loader.name for loader in self.loaders]
        doubled = sorted({name for name in loaders if loaders.count(name) > 1})
        if doubled:
            raise ValueError(f"http_loaders, sql_loaders: the name {doubled[0]!r} occurs twice; a loader has one name")
        for engine in self.engines:
            if is_redis(engine.pool):
                raise ValueError(f"engines: pool {engine.pool!r} is a Redis pool; choose another name for the engines")
        for source in self.discovery.found:
            if is_redis(source.pool):
                raise ValueError(
                    f"discovery: pool {source.pool!r} is a Redis pool; choose another name for the engines"
                )
        for pool in self.engine_pools:
            kinds = sorted({each.kind for each in self._replicas if each.pool == pool})
            if len(kinds) > 1:
                raise ValueError(
                    f"engines: pool {pool!r} has engines of kinds {', '.join(kinds)}; give each its own pool"
                )
        return self

    @property
    def loaders(self) -> tuple[LoaderSettings, ...]:
        """Every source of business values."""
        return (*self.http_loaders, *self.sql_loaders)

    @property
    def engine_pools(self) -> tuple[str, ...]:
        """Names of the engine pools, each once: first those of listed engines, in their order, then of found ones."""
        return tuple(dict.fromkeys(each.pool for each in self._replicas))

    @property
    def _replicas(self) -> tuple[EngineSettings | FoundReplicas, ...]:
        return (*self.engines, *self.discovery.found)


class ExecutorTree(Section):
    """What one executor process reads of `stoker.toml`; the sections of other processes are left to them."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    time_scale: TimeScale = 1.0
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    encoder: EncoderSettings = EncoderSettings()
    executor: ExecutorSettings = ExecutorSettings()

    @property
    def pools(self) -> tuple[str, ...]:
        """Every pool that it serves: the engines' and its Redis."""
        return (*self.executor.engine_pools, *((self.redis.pool_key,) if self.executor.redis_pools else ()))
