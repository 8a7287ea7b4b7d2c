"""The time of a source: how it waits, and how long what it knew last may be relied on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Waiting and monotonic seconds, which a test replaces."""

    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    now_s: Callable[[], float] = time.monotonic


REAL = Clock()


class Kept:
    """Since when a source has not been heard.

    Args:
        keep_s: how long after its last answer what it said counts.
    """

    def __init__(self, keep_s: float, clock: Clock) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._heard_s = clock.now_s()

    def heard(self) -> None:
        """The source has just answered."""
        self._heard_s = self._clock.now_s()

    @property
    def over(self) -> bool:
        """Whether what it said has become too old."""
        return self._clock.now_s() - self._heard_s >= self._keep_s
