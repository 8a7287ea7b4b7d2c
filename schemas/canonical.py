"""Canonical forms: every hash, key and id that two processes must derive alike (DESIGN §3.2).

All of them are pure functions of strings and integers, so that a recovery, another language and a test can reproduce
them. `docs/contracts.md` works an example of each; tests/schemas/test_canonical.py holds those examples.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal

HASH_HEX_DIGITS = 32
Arm = Literal["warm", "hold"]


def h128(*fields: str) -> str:
    """First 32 hex digits of SHA-256 over the fields, joined by a zero byte, in UTF-8."""
    return hashlib.sha256("\0".join(fields).encode()).hexdigest()[:HASH_HEX_DIGITS]


def h64(*fields: str) -> int:
    """The first eight bytes of the same digest as an unsigned integer, for sampling and for compact identities."""
    return int.from_bytes(hashlib.sha256("\0".join(fields).encode()).digest()[:8], "big")


def normal_query(text: str) -> str:
    """NFC, whitespace runs to one blank, stripped. What `query_sha256` hashes and what an embedding is made of."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def query_sha256(text: str) -> str:
    """Identity of a last user turn: h128 of its normal form."""
    return h128(normal_query(text))


def root_hash(model: str, adapter: str | None, template_sha: str, tools_sha: str) -> str:
    """Parent of every first segment: what must be equal for two prompts to share any KV block at all."""
    return h128(model, adapter or "", template_sha, tools_sha)


def segment_hash(parent: str, role: str, content: str) -> str:
    """Chained identity of one prompt segment: equal only where everything before it is equal too."""
    return h128(parent, role, content)


def token_block_content(token_ids: Iterable[int]) -> str:
    """Content of a segment that is a token block: the ids in decimal, joined by blanks."""
    return " ".join(map(str, token_ids))


def prefix_key(segment: str) -> str:
    """target_key of the prefix that ends in `segment`."""
    return f"prefix:{segment}"


def embedding_key(fingerprint: str, query: str) -> str:
    """target_key of one query's embedding by one encoder."""
    return f"embedding:{fingerprint}:{query}"


UNVERSIONED = "-"
"""The version of an adapter whose name tells none."""


def adapter_key(name: str, version: str) -> str:
    """target_key of one version of an adapter."""
    return f"adapter:{name}@{version}"


def adapter_name(name: str, version: str) -> str:
    """What an engine, a request and a Prefix call one version of an adapter: `name@version`.

    Each version has a name of its own because engines key KV blocks by it (vLLM #42125).
    """
    return name if version == UNVERSIONED else f"{name}@{version}"


def adapter_parts(name: str) -> tuple[str, str]:
    """Name and version out of what an engine or a request calls an adapter; the inverse of `adapter_name`."""
    base, _, version = name.rpartition("@")
    return (base, version) if base and version else (name, UNVERSIONED)


def response_key(cache: str, query: str) -> str:
    """target_key of the answer to one query in a semantic cache."""
    return f"response:{cache}:{query}"


def value_key(key: str) -> str:
    """target_key of a business value; a key that would not fit into an id is named by its h128."""
    return f"value:{key}" if len(key) <= 240 else f"value:{h128(key)}"


def model_key(replica: str) -> str:
    """target_key of the model on a replica."""
    return f"model:{replica}"


def cancel_key(command_ids: Sequence[str]) -> str:
    """target_key of a Cancel: the set of commands it takes back, in any order."""
    return f"cancel:{h128(*sorted(command_ids))}"


def bucket(event_time_ms: int, repeat_interval_ms: int) -> int:
    """Number of the repeat interval that an event time falls in: one target is commanded at most once in each."""
    return event_time_ms // repeat_interval_ms


def command_id(
    scope: str, pool: str, target_key: str, action: str, content_version: str, interval: int, attempt: int
) -> str:
    """Identity of a command: the same after a recovery, another one for the next interval, version or attempt."""
    return h128(scope, pool, target_key, action, content_version, str(interval), str(attempt))


def outcome_id(command: str, replica: str) -> str:
    """Identity of the one terminal outcome that a command has on a replica."""
    return h128(command, replica)


def arm(unit: str, salt: str, period: str, hold_share: float) -> Arm:
    """Arm of a unit in a period: `hold` with probability `hold_share` over salts, always the same for the same salt."""
    return "hold" if h64(unit, salt, period) / 2**64 < hold_share else "warm"


def dead_id(topic: str, payload: bytes, at_ms: int) -> str:
    """Identity of a dead letter: the same bytes at the same record time are the same letter."""
    return h128(topic, hashlib.sha256(payload).hexdigest(), str(at_ms))
