"""Settings of the tiers below a replica: `lmcache` of an entry of `executor.engines`."""

from __future__ import annotations

from pydantic import Field

from connectors.settings import Section


class LmcacheSettings(Section):
    """The node of LMCache that a vLLM replica is connected to."""

    url: str = Field(
        pattern=r"^https?://", description="Base URL of the node's HTTP API, not of the coordinator; 8080 is its port."
    )
    world_size: int = Field(
        default=1,
        ge=1,
        le=1_024,
        description="Ranks that the replica's KV is cut into, as LMCache counts (1 to 1,024).",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="Name that LMCache knows the model by; if left out what vLLM tells as its root.",
    )
