"""The sections `scopes` and `warmup` of `stoker.toml`: every key, its default, its bounds and its meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from analytics.scopes import ScopeMap
from connectors.settings import Section

Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


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
    bundle_records: int = Field(
        default=256,
        ge=1,
        le=4_096,
        description="Records that ingest is given at once (1 to 4,096); 1 needs no stoker-flink.jar.",
    )
    bundle_wait_ms: int = Field(
        default=5, ge=1, le=1_000, description="How long a record waits for others of its bundle, in ms (1 to 1,000)."
    )
    connector_jars: tuple[Path, ...] = Field(
        default=(),
        description="Jars of the Kafka connector and stoker-flink.jar, where the cluster has none in its lib folder.",
    )

    @property
    def bundled(self) -> bool:
        """Whether records come to ingest in bundles."""
        return self.bundle_records > 1

    @property
    def subtask_slots(self) -> int:
        """How many slots one subtask of every operator takes, in as many TaskManagers."""
        return 2 if self.ingest_apart else 1
