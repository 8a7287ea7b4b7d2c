"""The port of a loader: where business values come from. tests/contracts/test_loaders.py holds every loader to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

KeyFault = Literal["not_found", "refused", "unanswered", "too_large", "unusable"]
"""Why one key gave no value: the source has none; said no; did not answer for this one; the value is longer than 1 MiB;
it is of a kind that cannot be stored."""


@dataclass(frozen=True)
class Loaded:
    """What one call gave: each key that was asked for is in one of the two.

    Attributes:
        values: as they are to lie in the cache. Text is UTF-8; what is neither text nor bytes is compact JSON.
    """

    values: Mapping[str, bytes] = field(default_factory=dict)
    faults: Mapping[str, KeyFault] = field(default_factory=dict)


class Loader(Protocol):
    """A source of business values. Loading has no side effects, so a call may be repeated."""

    async def load(self, scope: str, keys: Sequence[str]) -> Loaded:
        """The values of these keys for this scope, in one call as far as the source can. Calls may overlap.

        A key that fails does not keep the others from coming. Never longer than the loader's own timeout.

        Raises:
            TransientFault: the source as a whole does not answer.
            RefusedCommand: it refuses us, or answers in another form than agreed; the reason is `loader_failed`.
        """

    async def close(self) -> None:
        """Let connections go. Nothing may be loaded afterwards."""
