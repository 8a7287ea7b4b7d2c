"""Patience: how often an apply is called again when something outside may pass, and until when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from executor.apply.content import StoreFault
from executor.outcomes import Ending, first_try
from schemas import OutcomeReason, RefusedCommand, TransientFault

log = logging.getLogger(__name__)

LONGEST_PAUSE_MS = 5_000
SHORTEST_CALL_MS = 20
"""With less time than this left before expiry, no call is begun."""


_looking: ContextVar[bool] = ContextVar("looking", default=False)
"""Whether this attempt has come no further than `before_sending`."""


class NotSent(TransientFault):
    """The engine did not answer before anything was sent to it that makes a target resident."""


@contextmanager
def before_sending() -> Iterator[None]:
    """What fails or is cut off in here left no work behind: what a later call finds resident is somebody else's."""
    _looking.set(True)
    try:
        yield
    except TransientFault as fault:
        raise NotSent(str(fault)) from fault
    _looking.set(False)


@dataclass(frozen=True)
class Patience:
    """When to call again.

    Attributes:
        attempts: calls in all.
        backoff_ms: pause before the second call; doubled each time.
        call_ms: longest wait for one call.
    """

    attempts: int
    backoff_ms: int
    call_ms: int

    async def spend(
        self, call: Callable[[float], Awaitable[Ending]], expires_at_ms: int, now_ms: Callable[[], int]
    ) -> Ending:
        """Calls until there is an ending, attempts are used up, or the command expires.

        Args:
            call: one attempt, given how many seconds it may take.
        """
        fault: BaseException = TransientFault("it expired before it could be asked")
        asked = False
        for attempt in range(self.attempts):
            left_ms = min(self.call_ms, expires_at_ms - now_ms())
            if left_ms < SHORTEST_CALL_MS:
                break
            _looking.set(False)
            try:
                async with asyncio.timeout(left_ms / 1000):
                    ending = await call(left_ms / 1000)
                # An answer that got lost may have left the work done: what the next call finds is ours.
                return first_try(ending) if asked else ending
            except RefusedCommand as refusal:
                return Ending("failed", OutcomeReason(refusal.reason), error=str(refusal))
            except (StoreFault, NotSent) as error:
                fault = error
            except (TransientFault, TimeoutError) as error:
                fault, asked = error, asked or not _looking.get()
            pause_ms = min(self.backoff_ms * 2**attempt, LONGEST_PAUSE_MS)
            if attempt + 1 < self.attempts and now_ms() + pause_ms < expires_at_ms:
                await asyncio.sleep(pause_ms / 1000)
        if isinstance(fault, StoreFault):
            return Ending("failed", fault.reason, error=str(fault))
        return Ending("failed", OutcomeReason.ENGINE_UNAVAILABLE, error=str(fault) or type(fault).__name__)
