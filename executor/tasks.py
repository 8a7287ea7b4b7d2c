"""Ending tasks for sure: a cancellation that a client library swallows is repeated until it is heeded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

AGAIN_S = 0.25
ATTEMPTS = 40


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks and returns when all of them have ended, or after ten seconds of asking.

    A task that waits inside a pooled HTTP connection has been seen to come back from a cancellation as if nothing had
    been said, and to wait for its next piece of work.
    """
    open_tasks = {task for task in tasks if not task.done()}
    for _ in range(ATTEMPTS):
        if not open_tasks:
            return
        for task in open_tasks:
            task.cancel()
        _, open_tasks = await asyncio.wait(open_tasks, timeout=AGAIN_S)


async def side_by_side(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs works that have no end together; when one fails, or when cancelled, all of them end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await ended(tasks)


def failure_of(task: asyncio.Task[Any]) -> BaseException | None:
    """What ended a task, if an exception did."""
    return task.exception() if task.done() and not task.cancelled() else None


def because(what: str, failure: BaseException | None) -> str:
    """What has ended, and why as far as it is known; for a person."""
    return f"{what} ended" if failure is None else f"{what} ended: {type(failure).__name__}: {failure}"
