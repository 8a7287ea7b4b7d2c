"""Rules about a replica's memory: the buddy pool, and the KV slots of a batch in it (D15)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from analytics.buddy import PIECE_BYTES, BuddyPool
from analytics.memory_view import MAX_BATCH, MAX_SEQ_TOKENS, MemoryView
from stoker.rules.registry import Input, rule

Size = Annotated[int, Meta(ge=1)]
MIB = 1 << 20


class KvInput(Input, frozen=True, kw_only=True):
    """Sequences by their tokens, weight chunks by their bytes, and the pool that both are laid into."""

    sequences: dict[str, Annotated[int, Meta(ge=0)]]
    weights: dict[str, Size] = msgspec.field(default_factory=dict)
    total_bytes: Annotated[int, Meta(ge=PIECE_BYTES)]
    kv_bytes_per_token: Size
    max_seq: Annotated[int, Meta(ge=1, le=MAX_SEQ_TOKENS)] = MAX_SEQ_TOKENS
    max_batch: Size = MAX_BATCH


@rule(
    "allocate_kv_cache",
    "D15",
    {
        "sequences": {"a": 1300, "b": 40, "c": 4000},
        "weights": {"layer0.attn.q_proj": 8 * MIB},
        "total_bytes": 64 * MIB,
        "kv_bytes_per_token": 16_384,
    },
)
def allocate_kv_cache(asked: KvInput) -> object:
    """One prefill: KV shards of 512 tokens get contiguous room first, then the weights that waited are placed."""
    memory = MemoryView(asked.total_bytes, asked.kv_bytes_per_token, asked.max_seq, asked.max_batch)
    for name, size_bytes in asked.weights.items():
        memory.load(name, size_bytes)
    refused = {name: memory.open(name, tokens) for name, tokens in asked.sequences.items()}
    memory.enter("decode")
    return {
        "shards": {
            name: [{"base_offset": shard.base_offset, "valid_len": shard.valid_len} for shard in memory.shards(name)]
            for name, why in refused.items()
            if why is None
        },
        "refused": {name: why for name, why in refused.items() if why is not None},
        "weights": memory.weights,
        "weights_refused": [name for name in asked.weights if name not in memory.weights],
        "free_bytes": memory.pool.free_bytes,
        "fragmentation": memory.pool.fragmentation,
    }


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory by name: so many bytes; 0 gives back what the name has."""

    name: str
    bytes: Annotated[int, Meta(ge=0)]


class BuddyInput(Input, frozen=True, kw_only=True):
    """A pool and what is claimed from it, in order."""

    total_bytes: Annotated[int, Meta(ge=PIECE_BYTES)]
    claims: list[Claim]


@rule(
    "buddy",
    "D15",
    {
        "total_bytes": 16 * MIB,
        "claims": [
            {"name": "a", "bytes": 3 * MIB},
            {"name": "b", "bytes": 2 * MIB},
            {"name": "a", "bytes": 0},
            {"name": "c", "bytes": 16 * MIB},
        ],
    },
)
def buddy(asked: BuddyInput) -> object:
    """Offsets that a buddy pool of 2 MB pieces gives out, what it had to refuse, and how scattered the rest is."""
    pool = BuddyPool(asked.total_bytes)
    held: dict[str, int] = {}
    refused = []
    for claim in asked.claims:
        if claim.bytes == 0:
            if claim.name not in held:
                raise ValueError(f"{claim.name} has nothing to give back")
            pool.give_back(held.pop(claim.name))
            continue
        if claim.name in held:
            raise ValueError(f"{claim.name} has memory already: give it back first")
        offset = pool.allocate(claim.bytes)
        if offset is None:
            refused.append(claim.name)
        else:
            held[claim.name] = offset
    return {
        "offsets": held,
        "refused": refused,
        "free_bytes": pool.free_bytes,
        "largest_free_bytes": pool.largest_free_bytes,
        "fragmentation": pool.fragmentation,
    }
