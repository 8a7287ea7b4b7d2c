"""Of backtest `absent`: requests for prefixes, generated or from a trace, as block hashes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stoker.replay.mooncake import Line

BLOCK_TOKENS = 64
SECONDS = 2_400
SWING_S = 600
PER_S = 4.0


class Asked(NamedTuple):
    """A request.

    Attributes:
        blocks: chained hashes of its full blocks.
        prefixes: how many blocks each prefix that may be warmed has.
    """

    at_ms: float
    blocks: Sequence[bytes]
    prefixes: Sequence[int]


@dataclass(frozen=True)
class Mix:
    """What prompts are made of, in blocks: what all share, one of some families, and words of their own.

    Attributes:
        exponent: of the families' Zipf law; 0 is all alike.
    """

    families: int
    exponent: float
    shared: int
    family: int
    own: int


MIXES = {
    "services": Mix(300, 0.9, 4, 8, 2),
    "documents": Mix(150, 0.0, 0, 8, 1),
    "chats": Mix(100, 0.6, 8, 4, 8),
    "many": Mix(300, 0.3, 1, 8, 2),
}
LOADS: dict[str, Callable[[float], float]] = {
    "steady": lambda _: PER_S,
    "swing": lambda at_s: PER_S * 2 ** (1.5 * math.sin(at_s / SWING_S * 2 * math.pi)),
    "step": lambda at_s: PER_S / 2 if at_s < SECONDS * 5 / 8 else 2 * PER_S,
}
"""Requests a second at a time: ever the same, eight times as many at the top as at the bottom, and four times as many
from a moment in the judged half on."""


def generated(mix: Mix, load: Callable[[float], float], seed: int) -> Iterator[Asked]:
    """Requests of a mix at a load, by chance alone."""
    source = random.Random(seed)
    weights = [1 / (family + 1) ** mix.exponent for family in range(mix.families)]
    shared = [b"shared%d" % place for place in range(mix.shared)]
    at_s, number = 0.0, 0
    while True:
        at_s += source.expovariate(load(at_s))
        if at_s >= SECONDS:
            return
        number += 1
        (family,) = source.choices(range(mix.families), weights)
        blocks = shared + [b"f%d.%d" % (family, place) for place in range(mix.family)]
        own = [b"q%d.%d" % (number, place) for place in range(mix.own)]
        yield Asked(at_s * 1000, blocks + own, (len(blocks),))


def traced(lines: Sequence[Line]) -> Iterator[Asked]:
    """The requests of a trace; each of its blocks ends a prefix."""
    for line in lines:
        blocks = [block.to_bytes(8, "big") for block in line.hash_ids]
        yield Asked(float(line.timestamp), blocks, range(1, len(blocks) + 1))
