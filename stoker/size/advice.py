"""What a paged KV cache should be given, tried on the requests that were seen, and how TensorRT-LLM is told today."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

from analytics.memory_view import MAX_BATCH, MAX_SEQ_TOKENS
from analytics.paged_kv import PagedKv, Reserve
from stoker.size.lengths import Lengths


class Key(NamedTuple):
    """A setting as D15 names it.

    Attributes:
        accepted: whether today's TensorRT-LLM takes it under this name.
        today: what to write instead, or where it belongs; empty where nothing is needed.
    """

    name: str
    value: str
    accepted: bool
    today: str


@dataclass(frozen=True)
class Advice:
    """Sizes, and what became of the observed requests under them.

    Attributes:
        too_long: requests longer than the longest sequence: refused.
        refused: that found no block when they came; grown: how often the reserve grew.
        most_blocks: held at a time at most.
    """

    size: PagedKv
    too_long: int
    refused: int
    grown: int
    most_blocks: int


def advise(
    lengths: Lengths, block_tokens: int, max_seq_tokens: int | None = None, max_batch: int | None = None
) -> Advice:
    """Sizes for what was seen: whole blocks over the longest request and the most at once, within the bounds of D15.

    Args:
        max_seq_tokens, max_batch: instead of what was seen; then bounds do not hold.
    """
    longest = -(-lengths.longest_tokens // block_tokens) * block_tokens
    size = PagedKv(
        max_seq_tokens or min(longest, MAX_SEQ_TOKENS), max_batch or min(lengths.most_at_once, MAX_BATCH), block_tokens
    )
    reserve, too_long, most = Reserve(size), 0, 0
    ends: list[tuple[int, int]] = []
    for request in lengths.requests:
        while ends and ends[0][0] <= request.from_ms:
            reserve.give_back(heapq.heappop(ends)[1])
        if request.tokens > size.max_seq_tokens:
            too_long += 1
            continue
        blocks = size.blocks_of(request.tokens)
        if reserve.take(blocks):
            heapq.heappush(ends, (max(request.until_ms, request.from_ms + 1), blocks))
            most = max(most, reserve.held)
    return Advice(size, too_long, reserve.refused, reserve.grown, most)


def keys(size: PagedKv, kv_bytes_per_token: int | None = None) -> list[Key]:
    """The settings, with what today's TensorRT-LLM calls them.

    Args:
        kv_bytes_per_token: of all layers; without it sizes in bytes stay a formula.
    """
    tokens = size.host_max_num_blocks * size.block_tokens
    host = f"{tokens * kv_bytes_per_token}" if kv_bytes_per_token else f"{tokens} × KV bytes of a token"
    odd = "" if size.block_tokens.bit_count() == 1 else ", which has to be a power of two there"
    return [
        Key(
            "enable_paged_kv_cache", "true", False, "always on; KvCacheConfig(enable_block_reuse=True) shares prefixes"
        ),
        Key(
            "tokens_per_block",
            str(size.block_tokens),
            False,
            f"KvCacheConfig(tokens_per_block={size.block_tokens}){odd}",
        ),
        Key("max_seq_len", str(size.max_seq_tokens), True, ""),
        Key("max_batch_size", str(size.max_batch), True, ""),
        Key("max_num_tokens", str(size.max_num_tokens), True, ""),
        Key("host_num_blocks", str(size.host_num_blocks), False, "no first reserve: the pool is laid out at start"),
        Key(
            "host_max_num_blocks",
            str(size.host_max_num_blocks),
            False,
            f"KvCacheConfig(max_tokens={tokens}), or as host memory KvCacheConfig(host_cache_size={host})",
        ),
    ]


def server_options(size: PagedKv, kv_bytes_per_token: int | None = None) -> str:
    """The same as a file for `trtllm-serve --config` (older releases: `--extra_llm_api_options`).

    The host cache is given where its bytes are known. Of `max_tokens` and `free_gpu_memory_fraction` (0.9 by itself)
    TensorRT-LLM takes what is less.
    """
    tokens = size.host_max_num_blocks * size.block_tokens
    lines = [
        f"max_seq_len: {size.max_seq_tokens}",
        f"max_batch_size: {size.max_batch}",
        f"max_num_tokens: {size.max_num_tokens}",
        "kv_cache_config:",
        "  enable_block_reuse: true",
        f"  tokens_per_block: {size.block_tokens}",
        f"  max_tokens: {tokens}",
    ]
    if kv_bytes_per_token:
        lines.append(f"  host_cache_size: {tokens * kv_bytes_per_token}")
    return "\n".join(lines)
