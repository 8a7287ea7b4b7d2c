"""Settings of the jobs: sections of `stoker.toml`, the environment (`STOKER_SECTION__KEY`), and what they become.

Every duration of event time is given at scale 1; `time_scale` divides all of them in `Timing` and in the configs that
`JobSettings` builds, and nowhere else. The JSON of the settings is what operators get through their constructors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from analytics.scopes import ScopeMap
from connectors.configuration import load
from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings, Section, TimeScale

if TYPE_CHECKING:  # imported by the builders: the command line reads settings without loading the decisions
    from analytics.cluster_config import ClusterConfig
    from analytics.demand import DemandConfig
    from analytics.ingest import IngestConfig
    from analytics.plan_config import PlanConfig
    from analytics.policy import PolicyDefaults
    from analytics.prefixes import PrefixConfig
    from analytics.prompt_usage import PromptUsageConfig
    from analytics.scope_focus import FocusConfig
    from analytics.sessions import SessionConfig
    from jobs.embedding import EmbedConfig

Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
SLIDE_SPREAD = 0.08
"""Part of a pane. All shards at once would hold back what is asked for in the meantime by a third of a second; the
spread is a little less than a tick, so that the next tick of the planner knows the whole slide."""
MAX_PARALLELISM = 720
"""Key groups of every operator, fixed for ever: another number makes every savepoint unreadable."""


class ScopeSettings(Section):
    """Which scope a tenant belongs to (DESIGN §4)."""

    version: str = Field(default="1", description="Version of this mapping, for people.")
    tenants: dict[str, str] = Field(default={}, description="Tenant to scope; tenants with the same scope share.")
    unknown: Literal["default", "own", "reject"] = Field(
        default="default",
        description="A tenant that is not listed joins scope 'default', gets a scope of its own, or is rejected.",
    )
    small: frozenset[str] = Field(
        default=frozenset(), description="Scopes with little demand: one shard holds each of them."
    )

    def build(self) -> ScopeMap:
        """The mapping that analytics uses."""
        return ScopeMap(self.version, dict(self.tenants), self.unknown, self.small)


class WarmupSettings(Section):
    """The job `warmup`. Durations are event time at scale 1, unless said otherwise."""

    shards: int = Field(
        default=8,
        ge=1,
        le=4_096,
        description="Demand shards: at least the parallelism that will ever be wanted; each costs a few messages a "
        "slide and scope. Fixed for the life of a state (1 to 4,096).",
    )
    embed_shards: int = Field(
        default=4, ge=1, le=64, description="Buffers that queries wait in for a model call (1 to 64)."
    )
    embed_batch: int = Field(default=8, ge=1, le=64, description="Queries in one model call, at most (1 to 64).")
    embed_wait_ms: int = Field(
        default=10, ge=1, le=1_000, description="How long a fresh query waits for others, wall time in ms (1 to 1,000)."
    )
    embed_stale_ms: int = Field(
        default=15_000,
        ge=1_000,
        le=86_400_000,
        description="A query older than this is not embedded any more, wall time in ms (1,000 to 86,400,000).",
    )
    vector_life_ms: int = Field(
        default=21_600_000,
        ge=600_000,
        le=604_800_000,
        description="How long the job's own texts and vectors stay in Redis, in ms (600,000 to 604,800,000).",
    )
    max_skew_ms: int = Field(
        default=30_000,
        ge=1_000,
        le=3_600_000,
        description="Largest difference of event time and record time, wall time in ms (1,000 to 3,600,000).",
    )
    pane_ms: int = Field(default=10_000, ge=1_000, le=60_000, description="Length of a pane in ms (1,000 to 60,000).")
    window_ms: int = Field(
        default=300_000,
        ge=10_000,
        le=3_600_000,
        description="How long panes and request identities are kept, in ms (10,000 to 3,600,000).",
    )
    lateness_ms: int = Field(
        default=30_000,
        ge=0,
        le=3_600_000,
        description="How long after its end a pane still takes events, in ms (0 to 3,600,000).",
    )
    reward_wait_ms: int = Field(
        default=120_000,
        ge=1_000,
        le=3_600_000,
        description="How long a reward waits for the request that it judges, in ms (1,000 to 3,600,000).",
    )
    reward_memory_ms: int = Field(
        default=3_600_000,
        ge=60_000,
        le=86_400_000,
        description="How long answers and their rewards are remembered, in ms (60,000 to 86,400,000).",
    )
    max_rewards: int = Field(
        default=20_000,
        ge=100,
        le=1_000_000,
        description="Answers and rewards that a shard remembers; the oldest go first (100 to 1,000,000).",
    )
    out_of_orderness_ms: int = Field(
        default=5_000, ge=0, le=60_000, description="How far the watermark stays behind, in ms (0 to 60,000)."
    )
    idle_ms: int = Field(
        default=1_000,
        ge=200,
        le=300_000,
        description="A partition quiet for so long holds event time back no more, wall time in ms (200 to 300,000);"
        " those of llm.requests apart.",
    )
    requests_idle_ms: int = Field(
        default=5_000,
        ge=200,
        le=300_000,
        description="The same for partitions of llm.requests: longer, so that none that is slow to fetch at a start"
        " counts as quiet, and its backlog as late (200 to 300,000).",
    )
    min_p_asked: float = Field(
        default=0.3,
        ge=0.001,
        le=0.999,
        description="A prefix less likely to be asked for within two minutes is left; what leads to it may stay.",
    )
    prefix_rule: Literal["spec", "tuned"] = Field(
        default="spec",
        description="The half-life of hotness: fixed (`spec`), or 2 to 3 median reuse gaps of the traffic (`tuned`).",
    )
    prefix_asked_rule: Literal["spec", "tuned"] = Field(
        default="spec",
        description="How likely a prefix is asked for: as its hotness promises (`spec`), or as often as those that were"
        " as hot came back (`tuned`).",
    )
    prefix_absent_rule: Literal["spec", "tuned"] = Field(
        default="tuned",
        description="How long replicas keep what nobody asks for: as policy says (`spec`), or by their capacity and"
        " traffic where they tell them, and by what warm-ups found (`tuned`).",
    )
    prefix_renew_rule: Literal["spec", "tuned"] = Field(
        default="spec",
        description="Whether touching a prefix that is resident has a value: none (`spec`), or as far as it is kept by"
        " that for a request and what it displaces is asked for less often (`tuned`).",
    )
    adapter_rule: Literal["spec", "lru", "tuned"] = Field(
        default="tuned",
        description="Which adapter leaves a full replica first: by the specification (`spec`), the longest unused"
        " (`lru`), or by whichever rule would have saved most lately (`tuned`).",
    )
    half_life_floor_ms: int = Field(
        default=30_000,
        ge=1_000,
        le=86_400_000,
        description="A tuned half-life is never shorter, in ms (1,000 to 86,400,000).",
    )
    half_life_ceiling_ms: int = Field(
        default=7_200_000,
        ge=1_000,
        le=86_400_000,
        description="A tuned half-life is never longer, in ms (1,000 to 86,400,000).",
    )
    cluster_stride_ms: int = Field(
        default=30_000, ge=1_000, le=3_600_000, description="How often clusters are found, in ms (1,000 to 3,600,000)."
    )
    cluster_rule: Literal["spec", "tuned"] = Field(
        default="tuned",
        description="Which rule finds clusters: the specification's over distinct queries, or the one by requests.",
    )
    cluster_window: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="The last distinct queries that are clustered (up to 10,000); 0: 500 by spec, 10,000 by tuned.",
    )
    cluster_eps: dict[Fingerprint, Annotated[float, Field(gt=0, le=2)]] = Field(
        default={},
        description="Radius of a cluster in cosine distance by encoder fingerprint; for one that is not named the "
        "calibrated one of the rule, 0.32 where the encoder is not known.",
    )
    family_leads: int = Field(
        default=4,
        ge=0,
        le=8,
        description="Of how many leading segments of a prompt the focus rule hears (0 to 8), for crowds on what first"
        " differs behind what most prompts of a scope share; 0: none on prefixes are looked for.",
    )
    pattern_scopes: frozenset[str] = Field(
        default=frozenset(),
        description="Scopes whose sessions are looked at for like prompts (words kept as hashes), and whose requests"
        " are grouped by what they are like; '*' means all.",
    )
    prompt_scopes: frozenset[str] = Field(
        default=frozenset(), description="Scopes whose managed prompts have a hotness; '*' means all."
    )
    own_policy: str | None = Field(
        default=None,
        pattern=r"^[^:]+:[A-Za-z_]\w*$",
        description="Own class that ranks warm-ups: file.py:Class, or module:Class (docs/policies.md).",
    )
    start: Literal["earliest", "latest", "committed"] = Field(
        default="earliest", description="Where a job without savepoint begins; committed: the group's offsets."
    )
    checkpoint_ms: int = Field(
        default=5_000,
        ge=500,
        le=600_000,
        description="Checkpoint interval where the cluster sets none, in ms (500 to 600,000).",
    )
    keep_payload: bool = Field(
        default=False, description="Dead letters carry the record itself, which may hold prompts."
    )
    share_core: bool = Field(
        default=True,
        description="The operators of a subtask, which share one interpreter lock, share one core as well.",
    )
    ingest_apart: bool = Field(
        default=False,
        description="Reading and ingest have slots and an interpreter of their own: twice as many TaskManagers.",
    )
    connector_jars: tuple[Path, ...] = Field(
        default=(), description="Jars of the Kafka connector, where the cluster has none in its lib folder."
    )

    @property
    def subtask_slots(self) -> int:
        """How many slots one subtask of every operator takes, in as many TaskManagers."""
        return 2 if self.ingest_apart else 1


@dataclass(frozen=True)
class Timing:
    """Event time as the sources make it, scaled. All in ms.

    Attributes:
        out_of_orderness_ms: how far the watermark stays behind the newest record of a partition.
        idle_ms: wall time after which a quiet partition is left out; not scaled, because fetching takes its time, and
            short, because topics with a record now and then (outcomes, rewards) hold event time back by as much.
        requests_idle_ms: the same for partitions of llm.requests, which seldom are quiet, but may have a backlog.
        drift_ms: how far a partition may run ahead of the slowest one.
    """

    out_of_orderness_ms: int
    idle_ms: int
    requests_idle_ms: int
    drift_ms: int


class JobSettings(BaseModel):
    """What a job reads of `stoker.toml`. Sections of other parts are left to them."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    time_scale: TimeScale = 1.0
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    encoder: EncoderSettings = EncoderSettings()
    scopes: ScopeSettings = ScopeSettings()
    warmup: WarmupSettings = WarmupSettings()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings that `to_json` wrote; neither environment nor file is read."""
        return cls.model_validate_json(text)

    def to_json(self) -> str:
        """What an operator's constructor gets. Holds references to secrets, never a secret."""
        return self.model_dump_json()

    def scaled(self, duration_ms: int) -> int:
        """A duration of event time at this time scale, at least one millisecond."""
        return max(1, round(duration_ms / self.time_scale))

    def ingest(self) -> IngestConfig:
        """How records are read."""
        from analytics.ingest import IngestConfig
        from analytics.watching import WatchConfig

        return IngestConfig(
            shards=self.warmup.shards,
            scopes=self.scopes.build(),
            max_skew_ms=self.warmup.max_skew_ms,
            keep_payload=self.warmup.keep_payload,
            topic_prefix=self.kafka.topic_prefix,
            redis_pool=self.redis.pool_key,
            watch=WatchConfig(self.warmup.pattern_scopes, self.warmup.prompt_scopes),
        )

    def sessions(self) -> SessionConfig:
        """How consecutive prompts are looked at."""
        from analytics.sessions import SessionConfig

        return SessionConfig(time_scale=self.time_scale)

    def prompts(self) -> PromptUsageConfig:
        """How uses of managed prompts are counted."""
        from analytics.prompt_usage import PromptUsageConfig

        return PromptUsageConfig(slide_ms=self.warmup.pane_ms, time_scale=self.time_scale)

    def demand(self) -> DemandConfig:
        """How demand is counted."""
        from analytics.demand import DemandConfig
        from analytics.rewards import RewardConfig
        from analytics.second_sight import SecondSightConfig

        return DemandConfig(
            shards=self.warmup.shards,
            pane_ms=self.scaled(self.warmup.pane_ms),
            window_ms=self.scaled(self.warmup.window_ms),
            lateness_ms=self.scaled(self.warmup.lateness_ms),
            close_after_ms=self.scaled(self.warmup.pane_ms),
            family_leads=self.warmup.family_leads,
            second_sight=SecondSightConfig(
                shards=self.warmup.shards, small=self.scopes.small, time_scale=self.time_scale
            ),
            rewards=RewardConfig(
                wait_ms=self.scaled(self.warmup.reward_wait_ms),
                memory_ms=self.scaled(self.warmup.reward_memory_ms),
                max_entries=self.warmup.max_rewards,
            ),
        )

    def prefixes(self) -> PrefixConfig:
        """How hot prefixes are found."""
        from analytics.prefixes import PrefixConfig

        return PrefixConfig(
            slide_ms=self.warmup.pane_ms,
            rule=self.warmup.prefix_rule,
            asked_rule=self.warmup.prefix_asked_rule,
            half_life_floor_ms=self.warmup.half_life_floor_ms,
            half_life_ceiling_ms=self.warmup.half_life_ceiling_ms,
            min_p_asked=self.warmup.min_p_asked,
            time_scale=self.time_scale,
        )

    def focus(self) -> FocusConfig:
        """How crowds are found. Windows and panes are those of demand."""
        from analytics.crowd_config import CrowdConfig
        from analytics.scope_focus import FocusConfig

        pane_ms = self.scaled(self.warmup.pane_ms)
        panes = max(1, self.scaled(self.warmup.window_ms) // pane_ms)
        return FocusConfig(CrowdConfig(pane_ms=pane_ms, panes=panes), self.redis.pool_key)

    def clusters(self) -> ClusterConfig:
        """How like queries are grouped."""
        from analytics.cluster_config import ClusterConfig

        return ClusterConfig(
            rule=self.warmup.cluster_rule,
            stride_ms=self.warmup.cluster_stride_ms,
            window=self.warmup.cluster_window,
            eps=self.warmup.cluster_eps,
            mass_ms=self.warmup.window_ms,
            redis_pool=self.redis.pool_key,
            time_scale=self.time_scale,
        )

    def planning(self) -> PlanConfig:
        """How warm-ups are chosen. One Redis pool sees the queries of all GPU pools.

        Raises:
            BrokenConfiguration: the own policy cannot be loaded.
        """
        from analytics.plan_config import PlanConfig
        from jobs.own_policy import load_own_policy

        own = self.warmup.own_policy
        return PlanConfig(
            pane_ms=self.warmup.pane_ms,
            redis_pool=self.redis.pool_key,
            reward_life_ms=self.warmup.reward_memory_ms,
            settle_ms=round(self.warmup.pane_ms * SLIDE_SPREAD),
            absent_rule=self.warmup.prefix_absent_rule,
            renew_rule=self.warmup.prefix_renew_rule,
            adapter_rule=self.warmup.adapter_rule,
            time_scale=self.time_scale,
            own=None if own is None else load_own_policy(own),
        )

    @property
    def slide_spread_ms(self) -> int:
        """Over how much event time the shards' work at the end of a slide is spread, scaled."""
        return self.scaled(round(self.warmup.pane_ms * SLIDE_SPREAD))

    def policy_defaults(self) -> PolicyDefaults:
        """What holds where no policy says otherwise."""
        from analytics.policy import PolicyDefaults

        return PolicyDefaults()

    def embedding(self) -> EmbedConfig:
        """How queries are embedded."""
        from jobs.embedding import EmbedConfig

        return EmbedConfig(
            batch=self.warmup.embed_batch,
            wait_ms=self.warmup.embed_wait_ms,
            life_ms=max(60_000, self.scaled(self.warmup.vector_life_ms)),
            stale_ms=self.warmup.embed_stale_ms,
        )

    @property
    def timing(self) -> Timing:
        """Event time in the sources."""
        return Timing(
            out_of_orderness_ms=round(self.warmup.out_of_orderness_ms / self.time_scale),
            idle_ms=self.warmup.idle_ms,
            requests_idle_ms=self.warmup.requests_idle_ms,
            drift_ms=2 * self.warmup.max_skew_ms,
        )


def load_settings(path: Path | None) -> JobSettings:
    """Reads a `stoker.toml` (or none) and the environment, which goes before it.

    A file that ends in `.json` is what `to_json` wrote for a submission: it is taken as it is, without the environment.

    Raises:
        BrokenConfiguration: the file is missing or no TOML, a key is unknown, a value is not allowed, or the own policy
            cannot be loaded.
    """
    if path is not None and path.suffix == ".json":
        return JobSettings.from_json(path.read_text(encoding="utf-8"))
    settings = load(JobSettings, path)
    # A TaskManager runs in another folder.
    encoder = settings.encoder.model_copy(update={"model": settings.encoder.model.absolute()})
    settings = settings.model_copy(update={"encoder": encoder})
    if (own := settings.warmup.own_policy) is None:
        return settings
    from jobs.own_policy import load_own_policy, located

    load_own_policy(own)
    return settings.model_copy(update={"warmup": settings.warmup.model_copy(update={"own_policy": located(own)})})
