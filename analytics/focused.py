"""What the focus operator tells the planners of a crowd."""

from __future__ import annotations

from msgspec import Struct


class Focused(Struct, frozen=True, array_like=True):
    """focus → plan: a crowd has gathered; replaces what was told of this scope and dimension before.

    Attributes:
        until_ms: event time after which nobody stands for it any more.
        keys: what it asks for: queries in hex, or names.
        evidence: the numbers that made the rule say so.
    """

    scope: str
    dimension: str
    at_ms: int
    until_ms: int
    keys: tuple[str, ...]
    evidence: dict[str, float]
