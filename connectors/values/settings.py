"""Settings of loaders: `[[executor.http_loaders]]` and `[[executor.sql_loaders]]` of `stoker.toml`."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from connectors.settings import SecretRef, Section

EVERY_SCOPE = "*"


class LoaderSettings(Section):
    """What every loader has."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="Name by which commands ask for it.")
    scopes: tuple[str, ...] = Field(
        min_length=1, description="Scopes that it may load for; `*` for all, where the values are nobody's secret."
    )
    timeout_ms: int = Field(
        default=2_000, ge=10, le=60_000, description="Longest wait for one call, in ms (10 to 60,000)."
    )
    batch: int = Field(default=64, ge=1, le=1_000, description="Most keys in one call (1 to 1,000).")
    gather_ms: int = Field(
        default=10,
        ge=0,
        le=1_000,
        description="How long a key waits for others to share its call, in ms (0 to 1,000).",
    )

    def serves(self, scope: str) -> bool:
        """Whether it may load for a scope."""
        return scope in self.scopes or EVERY_SCOPE in self.scopes


class HttpLoaderSettings(LoaderSettings):
    """A service that gives values over HTTP."""

    url: str = Field(
        pattern=r"^https?://",
        description="With `{key}` in it, each key is a GET; without, keys go as JSON in one POST. `{scope}` is put in.",
    )
    authorization: SecretRef | None = Field(
        default=None, description="Reference to the whole value of the Authorization header."
    )


class SqlLoaderSettings(LoaderSettings):
    """A database that gives values by a query."""

    driver: str = Field(
        default="sqlite3",
        pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$",
        description="Python module with the DB-API 2.0; one other than sqlite3 must be installed beside Stoker.",
    )
    dsn: str = Field(
        min_length=1, description="What its connect() is given, without a password; of sqlite3 a path or a file: URI."
    )
    password: SecretRef | None = Field(
        default=None, description="Reference to the password, given to connect() by that name."
    )
    query: str = Field(
        min_length=1,
        description="SELECT of key and value with `{keys}` where the list of keys stands; `{scope}` is put in.",
    )

    @model_validator(mode="after")
    def _asks_for_keys(self) -> Self:
        if self.query.count("{keys}") != 1:
            raise ValueError("query needs {keys} once, as in: SELECT sku, price FROM prices WHERE sku IN ({keys})")
        return self
