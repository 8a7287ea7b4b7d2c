"""Settings of discovery: section `[executor.discovery]` of `stoker.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from connectors.engines.base import EngineKind
from connectors.settings import SecretRef, Section

LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class FoundReplicas(Section):
    """What the replicas of one source have in common."""

    pool: str = Field(min_length=1, max_length=128, description="Pool of equal replicas that they belong to.")
    kind: EngineKind = Field(default="vllm", description="Which engine they are, the same in all of a pool.")
    scheme: Literal["http", "https"] = Field(
        default="http", description="Of their API; with https the certificate of each names its address."
    )
    api_key: SecretRef | None = Field(default=None, description="Reference to the bearer token of their APIs.")
    events: bool = Field(default=True, description="Whether their KV events are followed, where they have them.")


class DnsSettings(FoundReplicas):
    """Replicas whose addresses are those of a name, as of a headless service."""

    host: str = Field(
        min_length=1,
        max_length=253,
        description="Name whose A records, or without any AAAA records, are all of the replicas; each is called"
        " ADDRESS:PORT, which the gateway has to report in its events.",
    )
    port: int = Field(ge=1, le=65_535, description="Port of their API.")
    zone: str | None = Field(
        default=None, min_length=1, max_length=128, description="What they all fail together with, if they do."
    )
    every_s: float = Field(default=3.0, ge=0.5, le=300, description="Pause between two look-ups, in s (0.5 to 300).")


class KubernetesSettings(FoundReplicas):
    """Replicas that are the pods behind a service of Kubernetes, from its EndpointSlices."""

    service: str = Field(pattern=LABEL, description="Name of the service; the name of each pod is that of its replica.")
    namespace: str | None = Field(
        default=None, pattern=LABEL, description="Where the service is; the executor's own if left out."
    )
    port: int | str | None = Field(
        default=None,
        description="Port of their API: its name in the service, or its number; the first one listed if left out.",
    )
    api_url: str = Field(default="https://kubernetes.default.svc", pattern=r"^https?://", description="The API server.")
    token_file: Path | None = Field(
        default=None,
        description="File with the token for it, read anew for each call; with https the service account's if left"
        " out.",
    )
    ca_file: Path | None = Field(
        default=None,
        description="PEM file of the authorities that it is trusted by; the service account's if left out.",
    )

    @model_validator(mode="after")
    def _no_token_in_the_clear(self) -> Self:
        parts = urlsplit(self.api_url)
        if self.token_file is not None and parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise ValueError("token_file would be sent in the clear: api_url must be https://, or of this machine")
        return self


class DiscoverySettings(Section):
    """Replicas that come and go by themselves, beside those that are listed."""

    keep_s: float = Field(
        default=120.0,
        ge=1,
        le=86_400,
        description="How long what is known stays known while DNS or Kubernetes does not answer, in s (1 to 86,400).",
    )
    await_s: float = Field(
        default=10.0,
        ge=0,
        le=60,
        description="How long a command is kept that names a replica which no source has told of yet, in s (0 to 60).",
    )
    dns: tuple[DnsSettings, ...] = Field(default=(), description="Pools whose replicas are the addresses of a name.")
    kubernetes: tuple[KubernetesSettings, ...] = Field(
        default=(), description="Pools whose replicas are the pods behind a service."
    )

    @property
    def found(self) -> tuple[FoundReplicas, ...]:
        """Every source."""
        return (*self.dns, *self.kubernetes)
