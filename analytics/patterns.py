"""Request patterns (D10, spec): prompts of a session that resemble each other, and what a pattern is worth at once.

Words leave ingest only as hashes. A sketch is the k smallest hashes of a prompt's word set (bottom-k MinHash, Broder
1997): a set of at most k words is held whole, so that its Jaccard index is exact; a larger one is estimated from the k
smallest hashes of the union, with a standard error of √(J(1 − J)/k), 0.03 at the threshold.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from itertools import pairwise

SKETCH_WORDS = 128
"""Words of a set that is held whole."""
CONSECUTIVE = 3
"""So many prompts in a row make a pattern."""
SIMILARITY = 0.85
"""Adjacent prompts resemble each other above it."""
ADAPTER_USES_PER_MINUTE = 5
"""From so many requests in a minute on, an adapter is warmed."""
TOP_PRIORITY = 999
NEW_HOT = 201
KNOWN_METASTABLE = 202

_WORD_HASH_BYTES = 4
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


@dataclass(frozen=True)
class Sketch:
    """A set of words, as far as it is kept.

    Attributes:
        hashes: the smallest hashes, ascending, at most `SKETCH_WORDS`.
        distinct: how many words the set has; with no more than `SKETCH_WORDS` the hashes are the whole set.
    """

    hashes: tuple[int, ...]
    distinct: int

    @property
    def whole(self) -> bool:
        """Whether no word is left out."""
        return self.distinct == len(self.hashes)

    @classmethod
    def unpack(cls, packed: bytes, distinct: int) -> Sketch:
        """The sketch of `packed_sketch`."""
        return cls(_layout(len(packed) // _WORD_HASH_BYTES).unpack(packed), distinct)


@dataclass(frozen=True)
class Priority:
    """A priority by the spec's formula: `raw` as it came out, `command` as a command may carry it (0 to 999)."""

    raw: int
    command: int


@dataclass(frozen=True)
class PatternState:
    """What a pattern asks for.

    Attributes:
        state: 201 a new hot pattern, 202 a known metastable one.
        segments: indices of the prefix's segments to warm.
    """

    state: int
    segments: tuple[int, ...]


def packed_sketch(text: str, salt: bytes = b"") -> tuple[bytes, int]:
    """Hashes of a prompt's lower-cased words as a `Sketch` keeps them, four bytes each, and how many words there are.

    Args:
        salt: at most 16 bytes. Sketches compare under the same salt only: one a session keeps words of one session
            from being looked up among those of another.
    """
    salted = hashlib.blake2b(digest_size=_WORD_HASH_BYTES, salt=salt)
    hashes = set()
    for word in set(text.lower().split()):
        # A copy costs a quarter of a new one.
        one = salted.copy()
        one.update(word.encode())
        hashes.add(one.digest())
    smallest = nsmallest(SKETCH_WORDS, hashes) if len(hashes) > SKETCH_WORDS else sorted(hashes)
    return b"".join(smallest), len(hashes)


def sketch_of(text: str, salt: bytes = b"") -> Sketch:
    """The sketch of a prompt's lower-cased words, see `packed_sketch`."""
    return Sketch.unpack(*packed_sketch(text, salt))


def jaccard(a: Sketch, b: Sketch) -> float:
    """|A ∩ B| / |A ∪ B|, exact where both sets are whole; two empty sets have nothing in common."""
    left, right = set(a.hashes), set(b.hashes)
    union = left | right
    if not union:
        return 0.0
    if a.whole and b.whole:
        return len(left & right) / len(union)
    seen = nsmallest(SKETCH_WORDS, union)
    return sum(1 for word in seen if word in left and word in right) / len(seen)


def consecutive_prompts(prompts: Sequence[Sketch]) -> bool:
    """Whether the last three prompts of a session each resemble the one before: Jaccard index above 0.85, twice."""
    last = prompts[-CONSECUTIVE:]
    return len(last) == CONSECUTIVE and all(jaccard(a, b) > SIMILARITY for a, b in pairwise(last))


def adapter_rate(uses_in_minute: float) -> bool:
    """Whether an adapter was asked for often enough in a minute to be warmed: five times or more."""
    return uses_in_minute >= ADAPTER_USES_PER_MINUTE


def fnv1a32(data: bytes) -> int:
    """32-bit FNV-1a (RFC 9923), the hash that the spec's priority is defined by."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def prefill_priority(fingerprint: str, qps: float) -> Priority:
    """The spec's priority of a pattern: int((fnv1a32(fingerprint) mod 100) · qps / 2.5), at most 999 in a command.

    Args:
        fingerprint: identity of what is warmed: a prefix's last hash, an adapter's key.
        qps: rate of the pattern, in requests a second.
    """
    raw = int(fnv1a32(fingerprint.encode()) % 100 * qps / 2.5)
    return Priority(raw, min(TOP_PRIORITY, raw))


def pattern_state(known: bool, resident: Sequence[bool]) -> PatternState:
    """201 for a new hot pattern: its whole prefix; 202 for a known metastable one: the missing segments only.

    Args:
        known: whether the pattern was seen before.
        resident: of each segment of its prefix, oldest first.
    """
    if not known:
        return PatternState(NEW_HOT, tuple(range(len(resident))))
    return PatternState(KNOWN_METASTABLE, tuple(index for index, held in enumerate(resident) if not held))


@lru_cache(maxsize=SKETCH_WORDS + 1)
def _layout(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")
