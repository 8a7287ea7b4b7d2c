"""The names of Stoker's keys (DESIGN §3.3), built so that no scope string can reach another scope's keys.

Every part is percent-encoded: a part holds no colon, brace, blank or glob character, so parts cannot run into each
other. The few names that stand where a scope could stand are spelled differently when they are a scope's name.
"""

from __future__ import annotations

import re
from urllib.parse import quote

ROOT = "stoker"
_RESERVED = frozenset({"ledger", "lease", "fence", "bloom", "brake"})
_RESPONSES = "responses"
_COMMAND_ID = re.compile(r"[0-9a-f]{32}")


def part(text: str) -> str:
    """One part of a key: percent-encoded UTF-8, reversible, so different texts give different parts.

    Raises:
        ValueError: the text is empty.
    """
    if not text:
        raise ValueError("a part of a Redis key must not be empty")
    return quote(text, safe="", errors="surrogatepass")


def scope_part(scope: str) -> str:
    """A scope as a part of a key; a scope called like one of our own branches gets its first letter encoded."""
    encoded = part(scope)
    return f"%{ord(encoded[0]):02X}{encoded[1:]}" if encoded in _RESERVED else encoded


def blob_key(scope: str, content_hash: str) -> str:
    """A segment's or query's text."""
    return f"{ROOT}:{scope_part(scope)}:blob:{part(content_hash)}"


def vector_key(scope: str, fingerprint: str, query: str) -> str:
    """A query's vector by one encoder."""
    return f"{ROOT}:{scope_part(scope)}:vec:{part(fingerprint)}:{part(query)}"


def embedding_cache_name(scope: str, fingerprint: str) -> str:
    """The `name` that a gateway gives RedisVL's EmbeddingsCache to read what Stoker warmed for this scope."""
    return f"{ROOT}:{scope_part(scope)}:embeddings:{part(fingerprint)}"


def ledger_key(command_id: str, replica: str) -> str:
    """The state of one command on one replica.

    Raises:
        ValueError: the command id is not 32 hex digits.
    """
    if not _COMMAND_ID.fullmatch(command_id):
        raise ValueError(f"not a command id: {command_id[:40]!r}")
    return f"{ROOT}:ledger:{command_id}:{part(replica)}"


def lease_key(replica: str) -> str:
    """Who speaks for one replica."""
    return f"{ROOT}:lease:{part(replica)}"


def fence_key(replica: str) -> str:
    """The last fencing token given out for one replica."""
    return f"{ROOT}:fence:{part(replica)}"


def brake_key(replica: str) -> str:
    """What holds one replica's warm-ups back."""
    return f"{ROOT}:brake:{part(replica)}"


def semantic_cache_name(scope: str, cache: str, fingerprint: str) -> str:
    """The `name` that a gateway gives RedisVL's SemanticCache to read what Stoker warmed for this scope."""
    return f"{ROOT}:{scope_part(scope)}:{_RESPONSES}:{part(cache)}:{part(fingerprint)}"


def is_semantic_cache(index: str) -> bool:
    """Whether an index is one of a semantic cache of ours."""
    parts = index.split(":")
    return len(parts) == 5 and parts[0] == ROOT and parts[2] == _RESPONSES


def revoked_key(scope: str, cache: str, fingerprint: str, query: str, response_sha256: str | None) -> str:
    """The mark that an answer, or with None all answers to a query, must not come back."""
    which = "" if response_sha256 is None else part(response_sha256)
    return f"{ROOT}:{scope_part(scope)}:revoked:{part(cache)}:{part(fingerprint)}:{part(query)}:{which}"


def cached_value_key(scope: str, key: str) -> str:
    """A business value."""
    return f"{ROOT}:{scope_part(scope)}:value:{part(key)}"
