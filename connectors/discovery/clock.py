"""The time of a source: how it waits, and what it calls now."""

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
