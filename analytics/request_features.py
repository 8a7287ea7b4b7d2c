"""Sliding features of a session's requests (D10): how long they are, who wrote them, for which model, how slow.

A request is a point: a step of a quarter is twice (or half) the tokens, twice the latency, or a quarter of the tokens
written by somebody else. Model versions are not near each other, whatever else is alike. A latency that nobody told
yet stands aside: distances are then taken over the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from analytics.facts import ROLE_INDEX, unpack_chain, unpack_names
from analytics.turns import Turn

AUTHORS = ("instructions", "user", "assistant", "tool")
"""Who writes a prompt's tokens, in the order of `Features.shares`. Blocks of a trace are nobody's."""

DOUBLINGS = 4
"""So many doublings of a length or a latency are a distance of 1."""

_AUTHOR_OF = {
    ROLE_INDEX["system"]: 0,
    ROLE_INDEX["developer"]: 0,
    ROLE_INDEX["user"]: 1,
    ROLE_INDEX["assistant"]: 2,
    ROLE_INDEX["tool"]: 3,
}


class Features(Struct, frozen=True, array_like=True):
    """What one or several requests are like.

    Attributes:
        version: the adapter's name and version, else the model.
        tokens: of the prompt, at least 1; the geometric mean of several.
        shares: of its tokens by author, each 0 to 1.
        latency_ms: from arrival to the end of the answer, the geometric mean; None where nobody told one.
    """

    version: str
    tokens: float
    shares: tuple[float, float, float, float]
    latency_ms: float | None

    @property
    def point(self) -> tuple[float, ...]:
        """Where it lies, latency apart."""
        return (_doublings(self.tokens), *self.shares)

    @property
    def slowness(self) -> float | None:
        """Its latency as a coordinate."""
        return None if self.latency_ms is None else _doublings(self.latency_ms)


class SessionFeatures(Struct, frozen=True, array_like=True):
    """What a session tells the planner of its pool with each prompt: what its last ones were like."""

    scope: str
    at_ms: int
    features: Features


def distance(a: Sequence[float], slow_a: float | None, b: Sequence[float], slow_b: float | None) -> float:
    """Euclidean distance of two points of the same model version, with or without their latencies."""
    apart = math.dist(a, b)
    return apart if slow_a is None or slow_b is None else math.hypot(apart, slow_a - slow_b)


def tokens_at(coordinate: float) -> float:
    """The length, or the latency in ms, that a coordinate stands for."""
    return float(2 ** (coordinate * DOUBLINGS))


def sliding_features(turns: Sequence[Turn]) -> Features:
    """Features of a session's last prompts, the oldest first; those for another model than the last are left out.

    Raises:
        ValueError: there are none.
    """
    if not turns:
        raise ValueError("features are of at least one prompt")
    version = _version(turns[-1])
    alike = [turn for turn in turns if _version(turn) == version]
    lengths, writers = zip(*(_length(turn) for turn in alike), strict=True)
    latencies = [turn.latency_ms for turn in alike if turn.latency_ms > 0]
    count = len(alike)
    instructions, user, assistant, tool = (sum(column) / count for column in zip(*writers, strict=True))
    return Features(
        version,
        _geometric_mean(lengths),
        (instructions, user, assistant, tool),
        _geometric_mean(latencies) if latencies else None,
    )


def _length(turn: Turn) -> tuple[int, tuple[float, ...]]:
    """Tokens of a prompt, and the share of each author in those that its segments tell of."""
    _, tokens, roles = unpack_chain(turn.chain)
    written = [0] * len(AUTHORS)
    for count, role in zip(tokens, roles, strict=True):
        if role in _AUTHOR_OF:
            written[_AUTHOR_OF[role]] += count
    told = sum(tokens)
    return max(1, turn.tokens, told), tuple(count / max(1, told) for count in written)


def _version(turn: Turn) -> str:
    names = unpack_names(turn.names)
    return names.adapter or names.model


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _doublings(value: float) -> float:
    return math.log2(max(1.0, value)) / DOUBLINGS
