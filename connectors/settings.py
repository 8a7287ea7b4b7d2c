"""Settings of the outside world: Kafka, Redis, the encoder. Sections of `stoker.toml`.

Nothing here reads the environment while it is imported or built: a secret is a reference, resolved when a client is
made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.errors import BrokenConfiguration
from schemas.topics import Topic, topic_name

TimeScale = Annotated[
    float,
    Field(
        ge=1.0,
        le=1_000.0,
        description="How much faster than the calendar everything runs, in job, executor and replay alike: divides "
        "windows, panes, lives and intervals, multiplies budgets a second (1 to 1,000).",
    ),
]


class Section(BaseModel):
    """A section: frozen, and an unknown key is an error. Errors do not show the input: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SecretRef(Section):
    """Where a secret lies, never the secret itself: an environment variable or a file.

    In TOML `{ env = "NAME" }` or `{ file = "/run/secrets/name" }`; where only a string fits, `env:NAME` or `file:PATH`.
    """

    env: str | None = Field(default=None, min_length=1, description="Name of the environment variable with the secret.")
    file: Path | None = Field(default=None, description="File with the secret; a trailing newline is dropped.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        kind, colon, name = value.partition(":")
        if not colon or kind not in ("env", "file"):
            raise ValueError("a secret is given by reference: env:NAME or file:PATH")
        return {kind: name}

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("a secret has exactly one place: env or file")
        return self

    def reveal(self, environ: Mapping[str, str] | None = None) -> str:
        """The secret itself. `environ` replaces the process environment in tests.

        Raises:
            BrokenConfiguration: the variable is not set, the file cannot be read, or the secret is empty.
        """
        if self.env is not None:
            secret = (os.environ if environ is None else environ).get(self.env, "")
            if not secret:
                raise BrokenConfiguration(f"secret: environment variable {self.env} is not set; export it")
            return secret
        assert self.file is not None
        try:
            secret = self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as fault:
            raise BrokenConfiguration(f"secret: file {self.file} cannot be read ({type(fault).__name__})") from None
        if not secret:
            raise BrokenConfiguration(f"secret: file {self.file} is empty")
        return secret


class KafkaSettings(Section):
    """How to reach Kafka, and how topics and groups are named there."""

    bootstrap: str = Field(
        default="127.0.0.1:9092", min_length=1, description="Brokers to start from: host:port, comma-separated."
    )
    topic_prefix: str = Field(
        default="",
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="Put before every topic name as it is, e.g. 'staging.' (letters, digits, '.', '_', '-').",
    )
    group_prefix: str = Field(
        default="stoker",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Consumer groups are named <prefix>-<job> (letters, digits, '.', '_', '-').",
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="Transport: with or without TLS, with or without a login."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        default=None, description="Login mechanism; needed with a SASL_ protocol, refused without."
    )
    sasl_username: str | None = Field(default=None, min_length=1, description="Login name for SASL.")
    sasl_password: SecretRef | None = Field(default=None, description="Reference to the SASL password.")
    ssl_cafile: Path | None = Field(
        default=None, description="PEM file of trusted authorities; the system's own when left out."
    )
    ssl_certfile: Path | None = Field(default=None, description="PEM file with the client certificate and its chain.")
    ssl_keyfile: Path | None = Field(
        default=None, description="PEM file with the client key (PKCS#8, which Flink's Java client requires)."
    )
    ssl_key_password: SecretRef | None = Field(
        default=None,
        description="Reference to the password of ssl_keyfile, which Java 17 reads only if encrypted by PBES1.",
    )
    ssl_check_hostname: bool = Field(
        default=True, description="Whether the broker's certificate must name the host we asked for."
    )
    linger_ms: int = Field(
        default=5, ge=0, le=1_000, description="How long a producer waits to fill a batch, in ms (0 to 1,000)."
    )
    delivery_timeout_ms: int = Field(
        default=120_000,
        ge=1_000,
        le=3_600_000,
        description="How long a producer repeats one record before it gives up, in ms (1,000 to 3,600,000).",
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=1_000,
        le=300_000,
        description="How long one request to a broker may take, in ms (1,000 to 300,000); at most delivery_timeout_ms.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        login = (self.sasl_mechanism, self.sasl_username, self.sasl_password)
        if self.uses_sasl and None in login:
            raise ValueError(f"{self.security_protocol} needs sasl_mechanism, sasl_username and sasl_password together")
        if not self.uses_sasl and any(part is not None for part in login):
            raise ValueError(f"sasl_* settings have no effect with {self.security_protocol}; use SASL_SSL")
        files = (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile, self.ssl_key_password)
        if not self.uses_tls and any(part is not None for part in files):
            raise ValueError(f"ssl_* settings have no effect with {self.security_protocol}; use SSL or SASL_SSL")
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise ValueError("ssl_certfile and ssl_keyfile belong together")
        if self.request_timeout_ms > self.delivery_timeout_ms:
            raise ValueError("request_timeout_ms must not exceed delivery_timeout_ms")
        return self

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client logs in by name and password."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def topic(self, topic: Topic) -> str:
        """Name of `topic` on this broker."""
        return topic_name(topic, self.topic_prefix)

    def group(self, job: str) -> str:
        """Consumer group of a job or of the executor."""
        return f"{self.group_prefix}-{job}"


class RedisSettings(Section):
    """How to reach one Redis: blobs, ledger, leases and the caches that Stoker warms."""

    pool: str = Field(
        default="main",
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="Name of this Redis as a pool: commands address it as redis:<pool>.",
    )
    url: str = Field(
        default="redis://127.0.0.1:6379/0",
        description="redis://HOST:PORT/DB, or rediss:// with TLS, or unix:///PATH. Without a password: see password.",
    )
    username: str | None = Field(default=None, min_length=1, description="ACL user; Redis's default user if left out.")
    password: SecretRef | None = Field(default=None, description="Reference to the password.")
    tls_cafile: Path | None = Field(
        default=None, description="PEM file of trusted authorities for rediss://; the system's own when left out."
    )
    tls_certfile: Path | None = Field(default=None, description="PEM file with the client certificate and its chain.")
    tls_keyfile: Path | None = Field(default=None, description="PEM file with the client key, not encrypted.")
    tls_check_hostname: bool = Field(
        default=True, description="Whether the server's certificate must name the host of url."
    )
    timeout_ms: int = Field(
        default=2_000, ge=50, le=60_000, description="Limit of one connect or one answer, in ms (50 to 60,000)."
    )
    max_connections: int = Field(
        default=16, ge=1, le=1_000, description="Largest number of connections of one process (1 to 1,000)."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError("url must begin with redis://, rediss:// or unix://")
        if parts.username or parts.password:
            raise ValueError("url must not hold a login; use username and password (by reference)")
        files = (self.tls_cafile, self.tls_certfile, self.tls_keyfile)
        if not self.uses_tls and any(part is not None for part in files):
            raise ValueError("tls_* settings have no effect without rediss://")
        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            raise ValueError("tls_certfile and tls_keyfile belong together")
        if self.username is not None and self.password is None:
            raise ValueError("username needs a password")
        return self

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "rediss"

    @property
    def pool_key(self) -> str:
        """How commands, quotas and outcomes name this Redis."""
        return f"redis:{self.pool}"


Precision = Literal["fp32", "int8"]
"""Of the products with an encoder's weights."""


class EncoderSettings(Section):
    """Which sentence encoder turns a query into a vector, and how much of the machine it may use."""

    model: Path = Field(
        default=Path(".cache/models/minilm-l6-v2"),
        description=(
            "Folder of the exported ONNX model, with one folder for each precision; made by "
            "`python -m connectors.encoders.export`."
        ),
    )
    precision: Precision = Field(
        default="int8",
        description=(
            "Of the backend onnx; the reference is fp32. int8 is twice as fast, at a mean cosine of 0.996 to fp32. The "
            "vectors of the two are never mixed: whoever changes this embeds anew."
        ),
    )
    backend: Literal["onnx", "reference"] = Field(
        default="onnx", description="onnx: ONNX Runtime, for jobs. reference: sentence-transformers, to compare with."
    )
    model_name: str = Field(
        default="sentence-transformers/all-MiniLM-L6-v2",
        min_length=1,
        max_length=256,
        description="The name under which readers of the embedding cache ask for this encoder.",
    )
    max_tokens: int = Field(
        default=256,
        ge=8,
        le=512,
        description="Longer texts are cut to this many tokens, the two special ones included (8 to 512).",
    )
    threads: int = Field(
        default=1, ge=1, le=64, description="Threads of one encoder (1 to 64); 1 inside a Flink operator."
    )
    batch: int = Field(default=16, ge=1, le=64, description="Largest number of texts in one model call (1 to 64).")
