"""How an answer lies in Redis: the layout of RedisVL's `SemanticCache` (reference: redisvl 0.26).

HASH `{name}:{sha256(prompt + sorted "key+value" of the filters, joined by blanks)}` with entry_id, prompt, response,
prompt_vector (float32 bytes), inserted_at, updated_at (unix seconds), metadata (JSON) and each filter as its own field;
a FLAT cosine index `{name}` over that prefix. The fingerprint ends the name: it has one length, so that no cache's
prefix is the beginning of another's, and vectors of two encoders never meet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from connectors.redis.keys import semantic_cache_name
from connectors.redis.semantic import Answer, CacheName, HeldAnswer
from connectors.redis.vectors import vector_bytes

TAGS = (
    "scope",
    "fingerprint",
    "model",
    "template_version",
    "params_hash",
    "semantic_version",
    "query_sha256",
    "source",
)
END = "expires_at_ms"
DECIDED = "issued_at_ms"
SEPARATOR = "\x1f"
"""Between tags of one field: no name contains it, so a comma in a model's name splits nothing."""
BLOCK_VECTORS = 64
"""Room is reserved for so many vectors at a time: with Redis's own 1,024 the index of a single answer by MiniLM takes
1.9 MiB, with 64 it takes 0.2, and there is one for each scope. RedisVL does not compare it."""
READ_FIELDS = ("prompt", "response", "metadata", *TAGS, END, DECIDED)


def filterable_fields() -> list[dict[str, Any]]:
    """What a gateway gives RedisVL's `SemanticCache(filterable_fields=...)`; RedisVL refuses an index with others."""
    tags = [{"name": n, "type": "tag", "attrs": {"case_sensitive": True, "separator": SEPARATOR}} for n in TAGS]
    return [*tags, {"name": END, "type": "numeric"}]


def index_arguments(name: str, dimension: int) -> list[str | int]:
    """Arguments of FT.CREATE, as RedisVL gives them for the same cache, but for the room reserved."""
    schema: list[str | int] = ["prompt", "TEXT", "WEIGHT", 1, "response", "TEXT", "WEIGHT", 1]
    schema += ["inserted_at", "NUMERIC", "updated_at", "NUMERIC", "prompt_vector", "VECTOR", "FLAT", 8]
    schema += ["TYPE", "FLOAT32", "DIM", dimension, "DISTANCE_METRIC", "COSINE", "BLOCK_SIZE", BLOCK_VECTORS]
    for tag in TAGS:
        schema += [tag, "TAG", "SEPARATOR", SEPARATOR, "CASESENSITIVE"]
    return [name, "ON", "HASH", "PREFIX", 1, name, "SCORE", "1.0", "SCHEMA", *schema, END, "NUMERIC"]


class Entry(NamedTuple):
    """One entry: its key and its fields, ready for HSET."""

    key: str
    fields: dict[str, str | bytes]


def filters_of(name: CacheName, answer: Answer) -> dict[str, str]:
    """The filter fields of an entry of ours, as RedisVL's `store(filters=...)` would be given them."""
    filters = {
        "scope": name.scope,
        "fingerprint": name.fingerprint,
        "model": answer.model,
        "template_version": answer.template_version,
        "params_hash": answer.params_hash,
        "semantic_version": answer.semantic_version,
        "query_sha256": answer.query_sha256,
        "source": "warmup",
    }
    return {key: value for key, value in filters.items() if value}


def entry_of(name: CacheName, answer: Answer, now_ms: int) -> Entry:
    """The entry of an answer.

    The end is a filterable field too, but takes no part in the key: the same answer has one key whenever it ends.

    Raises:
        PoisonMessage: the vector cannot be stored.
    """
    filters = filters_of(name, answer)
    parts = " ".join(key + value for key, value in sorted(filters.items()))
    entry_id = hashlib.sha256((answer.prompt + parts).encode()).hexdigest()
    key = f"{semantic_cache_name(name.scope, name.cache, name.fingerprint)}:{entry_id}"
    fields: dict[str, str | bytes] = {
        "entry_id": entry_id,
        "prompt": answer.prompt,
        "response": answer.response,
        "prompt_vector": vector_bytes(answer.vector, key),
        "inserted_at": repr(now_ms / 1000),
        "updated_at": repr(now_ms / 1000),
        "metadata": json.dumps({**answer.labels, "command_id": answer.command_id}),
        **filters,
        END: str(answer.until_ms),
        DECIDED: str(answer.issued_at_ms),
    }
    return Entry(key, fields)


def held_of(key: str, fields: Mapping[str, Any]) -> HeldAnswer:
    """An entry as it was read, also one that a gateway wrote with other fields."""
    texts = {name: _text(value) for name, value in fields.items() if value is not None}
    try:
        metadata = json.loads(texts.get("metadata") or "{}")
    except ValueError:
        metadata = {}
    return HeldAnswer(
        key=key,
        prompt=texts.get("prompt", ""),
        response=texts.get("response", ""),
        until_ms=_whole(texts.get(END)),
        issued_at_ms=_whole(texts.get(DECIDED)) or 0,
        fields={name: texts[name] for name in TAGS if name in texts},
        metadata={str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {},
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
