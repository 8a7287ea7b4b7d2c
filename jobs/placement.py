"""Which number stands for a shard, so that Flink spreads the shards evenly over its subtasks.

Flink hashes a key into one of its key groups, and gives each subtask a range of groups. A few numbers in a row fall
where they like: of 8 shards one of two subtasks gets 6, of 32 one of eight gets 7. So each shard goes by the first
number that falls into the middle of the shard's own part of the groups. (MathUtils.murmurHash, KeyGroupRangeAssignment
and Row.hashCode of Flink 2.)
"""

from __future__ import annotations

from functools import cache
from itertools import count

from jobs.settings import MAX_PARALLELISM

_WORD = 0xFFFFFFFF
_ROW_OF_ZERO = 62
"""Java's hash of a row of one field that is the number 0; that of another number is as much more."""


def key_group(key: int, groups: int = MAX_PARALLELISM) -> int:
    """The key group of a number that a stream is keyed by, see `jobs.streams.by_address`.

    Args:
        key: from 0 on.
        groups: Flink's maximal parallelism.
    """
    code = (_ROW_OF_ZERO + key) * 0xCC9E2D51 & _WORD
    code = _rotated(code, 15) * 0x1B873593 & _WORD
    code = (_rotated(code, 13) * 5 + 0xE6546B64 & _WORD) ^ 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _WORD
    code = (code ^ code >> 13) * 0xC2B2AE35 & _WORD
    code ^= code >> 16
    return (code if code < 1 << 31 else (1 << 32) - code) % groups


@cache
def shard_keys(shards: int) -> tuple[int, ...]:
    """The key of each shard; all differ."""
    free: dict[int, list[int]] = {}
    for shard in reversed(range(shards)):
        free.setdefault((2 * shard + 1) * MAX_PARALLELISM // (2 * shards), []).append(shard)
    keys = [0] * shards
    for key in count():
        group = key_group(key)
        waiting = free.get(group)
        if waiting:
            keys[waiting.pop()] = key
            if not waiting:
                del free[group]
            if not free:
                break
    return tuple(keys)


def _rotated(code: int, bits: int) -> int:
    return (code << bits | code >> 32 - bits) & _WORD
