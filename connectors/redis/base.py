"""The Redis ports. Their docstrings are the contract; tests/contracts/test_redis.py holds real and fake to it.

Common to all: `TransientFault` when Redis does not answer, is loading or is full; `BrokenConfiguration` when it refuses
the login; a scope is any string that is not empty; times to live are in ms and at least 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.warmup_outcome import Status

Vector = NDArray[np.float32]


class Blobs(Protocol):
    """Texts by the hash of what they are, one store per scope. Blocking, for jobs and replay."""

    def put(self, scope: str, blobs: Mapping[str, bytes], ttl_ms: int) -> None:
        """Store texts under their hashes, all in one round trip.

        A hash that is present keeps its content (it can only be the same) and lives at least `ttl_ms` from now: a life
        is prolonged, never shortened. An empty mapping does nothing.

        Raises:
            PoisonMessage: a text is longer than 1 MiB; nothing is stored.
        """

    def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The texts that are present; absent ones are left out. Does not prolong.

        Raises:
            PoisonMessage: what is stored there is not a text of ours; the message names the key.
        """


class AsyncBlobs(Protocol):
    """The executor's side of `Blobs`."""

    async def get(self, scope: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """As `Blobs.get`."""

    async def renew(self, scope: str, hashes: Sequence[str], ttl_ms: int) -> frozenset[str]:
        """Make these live at least `ttl_ms` from now, never less than before; return those that are present."""


class Vectors(Protocol):
    """Query vectors by encoder fingerprint and query hash, one store per scope. Blocking, for jobs."""

    def put(self, scope: str, fingerprint: str, vectors: Mapping[str, Vector], ttl_ms: int) -> None:
        """Store vectors, all in one round trip; a vector that is present is replaced and its life begins anew.

        Raises:
            PoisonMessage: a vector is not a non-empty row of finite float32 numbers; nothing is stored.
        """

    def get(self, scope: str, fingerprint: str, queries: Sequence[str]) -> dict[str, Vector]:
        """The vectors that are present, exactly as stored; absent ones are left out. Does not prolong."""


class AsyncVectors(Protocol):
    """The executor's side of `Vectors`."""

    async def get(self, scope: str, fingerprint: str, queries: Sequence[str]) -> dict[str, Vector]:
        """As `Vectors.get`."""


LedgerState = Literal["started"] | Status
"""Two phases: `started` while a holder works on it, then the terminal status of the outcome."""


@dataclass(frozen=True)
class Started:
    """The caller may apply the command now.

    Attributes:
        taken_over: an earlier holder had started it and is gone, so some of the work may be done already: look first.
    """

    taken_over: bool = False


@dataclass(frozen=True)
class Already:
    """The caller must not apply the command: it is done, or somebody is at it.

    Attributes:
        holder: who wrote the entry; empty where it was restored from outcomes.
    """

    state: LedgerState
    holder: str = ""


class Ledger(Protocol):
    """Which command has been begun and finished on which replica. Redis is its cache, outcomes are its truth."""

    async def begin(self, command_id: str, replica: str, holder: str) -> Started | Already:
        """Claim a command on a replica, atomically.

        A terminal entry gives `Already`, and so does one started by a holder that lives: that has the replica's lease,
        or a lease under its own name. So does the caller's own started entry, since a redelivery must not run it twice
        (a caller whose `begin` ended in `TransientFault` and which finds itself as holder owns it). An entry started by
        anybody else is taken over.

        Args:
            command_id: h128 of the command, 32 hex digits.
            holder: names one life of one process; after a restart it must be another.
        """

    async def finish(self, command_id: str, replica: str, holder: str, status: Status) -> LedgerState:
        """Write the terminal status and return what the ledger holds afterwards.

        A repetition overwrites, except that `applied` is never replaced by `resident`. When another holder has taken
        the command over and is at it, nothing is written and `started` is returned: its outcome will count.
        """

    async def restore(self, entries: Iterable[tuple[str, str, Status]]) -> int:
        """Enter (command_id, replica, status) of known outcomes, with the rule of `finish`, and return how many.

        Overwrites started entries too: an outcome is proof that the work ended.
        """

    async def read(self, command_id: str, replica: str) -> LedgerState | None:
        """What the ledger holds; None if nothing."""


@dataclass(frozen=True)
class Lease:
    """The right to speak for one replica.

    Attributes:
        token: fencing token: grows with every change of holder, also across a Redis that lost its data.
    """

    replica: str
    holder: str
    token: int


class Leases(Protocol):
    """One holder a replica at a time. The life of a lease is fixed when the port is built (10 s by default)."""

    async def acquire(self, replica: str, holder: str) -> Lease | None:
        """Take the lease if it is free or already the caller's (which renews it and keeps its token), else None."""

    async def renew(self, lease: Lease) -> bool:
        """Begin its life anew. False if it is no longer the caller's: stop speaking for the replica at once."""

    async def release(self, lease: Lease) -> bool:
        """Give it back. False, and nothing happens, if it is no longer the caller's."""

    async def holder(self, replica: str) -> str | None:
        """Who has it."""


class Brakes(Protocol):
    """What holds a replica's warm-ups back: told by the holder of its lease, heard by every other executor."""

    async def tell(self, brakes: Mapping[str, bytes], life_ms: int) -> None:
        """Store what holds by replica, all in one round trip; what was told before is replaced, and it ends by itself
        after `life_ms`, so that a teller who died holds nobody for longer. An empty mapping does nothing."""

    async def told(self, replicas: Sequence[str]) -> dict[str, bytes]:
        """What was told and has not ended, exactly as stored; replicas without any are left out."""


@dataclass(frozen=True)
class EmbeddingEntry:
    """One text with its vector, to be put where a gateway will look for it.

    Attributes:
        vector: float32, finite.
        command_id: of the warm-up, so that a first hit can be credited to it.
        labels: further facts stored beside it, such as arm and unit.
    """

    text: str
    vector: Vector
    command_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class EmbeddingCache(Protocol):
    """The embedding cache that gateways read through RedisVL's `EmbeddingsCache`, in exactly its layout.

    One cache per scope and encoder fingerprint, named by `keys.embedding_cache_name`; entries are found by text and
    model name. No entry is ever visible without a time to live.
    """

    async def put(
        self, scope: str, fingerprint: str, entries: Sequence[EmbeddingEntry], ttl_ms: int
    ) -> list[Literal["applied", "resident"]]:
        """Write entries in one round trip; for each whether it was put there or was there before.

        An entry of ours that is present is prolonged, never shortened, and keeps its vector; one that a gateway wrote
        is left exactly as it is. Its metadata says `source: warmup`, `expires_at_ms`, `fingerprint`, `command_id` and
        the labels.

        Raises:
            PoisonMessage: a vector is not a row of finite float32 numbers; nothing is written.
        """

    async def get(self, scope: str, fingerprint: str, text: str) -> Vector | None:
        """The vector under this text. Unlike RedisVL's own read it never prolongs."""

    async def metadata(self, scope: str, fingerprint: str, text: str) -> dict[str, str] | None:
        """What stands beside the vector, as strings; None if the entry is absent, empty if it has none."""

    async def remaining_ms(self, scope: str, fingerprint: str, text: str) -> int | None:
        """Life left of an entry; None if it is absent or has no end."""

    async def remove(self, scope: str, fingerprint: str, texts: Sequence[str]) -> int:
        """Take entries of ours out and return how many; a gateway's own entries stay."""


class Values(Protocol):
    """Business values by their key, one store per scope: what applications read instead of asking the source."""

    async def put(self, scope: str, values: Mapping[str, bytes], ttl_ms: int) -> None:
        """Store values as they are, all in one round trip; one that is present is replaced and its life begins anew."""

    async def get(self, scope: str, keys: Sequence[str]) -> dict[str, bytes]:
        """The values that are present; absent ones are left out. Does not prolong."""

    async def remaining_ms(self, scope: str, key: str) -> int | None:
        """Life left of a value; None if it is absent or has no end."""
