"""Settings of the jobs: `stoker.toml`, the environment (`STOKER_SECTION__KEY`), and what its sections become.

Every duration of event time is given at scale 1; `time_scale` divides all of them in `Timing` and in the configs that
`JobSettings` builds, and nowhere else. The JSON of the settings is what operators get through their constructors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict

from connectors.configuration import load
from connectors.settings import EncoderSettings, KafkaSettings, RedisSettings, TimeScale
from jobs.sections import ScopeSettings, WarmupSettings

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

__all__ = ["MAX_PARALLELISM", "JobSettings", "ScopeSettings", "Timing", "WarmupSettings", "load_settings"]

SLIDE_SPREAD = 0.08
"""Part of a pane. All shards at once would hold back what is asked for in the meantime by a third of a second; the
spread is a little less than a tick, so that the next tick of the planner knows the whole slide."""
MAX_PARALLELISM = 720
"""Key groups of every operator, fixed for ever: another number makes every savepoint unreadable."""


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
