"""What an attempt leaves behind: nothing where it only looked, perhaps the work where it was sent."""

from __future__ import annotations

import asyncio

import pytest

from executor.apply.patience import Patience, before_sending
from executor.outcomes import Ending
from schemas import OutcomeReason, TransientFault

PATIENCE = Patience(attempts=2, backoff_ms=1, call_ms=50)
FOUND = Ending("resident", OutcomeReason.ALREADY_RESIDENT, tokens_already_resident=64)


async def hangs() -> None:
    await asyncio.sleep(60)


async def fails() -> None:
    raise TransientFault("no answer")


@pytest.mark.parametrize("ends", [hangs, fails])
@pytest.mark.parametrize(("looks", "status"), [(True, "resident"), (False, "applied")])
async def test_what_a_second_attempt_finds_is_ours_only_if_the_first_was_sent(ends, looks: bool, status: str) -> None:
    attempts = 0

    async def call(_: float) -> Ending:
        nonlocal attempts
        attempts += 1
        with before_sending():
            if attempts == 1 and looks:
                await ends()
        if attempts == 1:
            await ends()
        return FOUND

    ending = await PATIENCE.spend(call, expires_at_ms=10_000, now_ms=lambda: 0)
    assert (ending.status, attempts) == (status, 2)


async def test_a_look_after_one_that_was_sent_does_not_undo_it() -> None:
    attempts = 0

    async def call(_: float) -> Ending:
        nonlocal attempts
        attempts += 1
        with before_sending():
            if attempts == 2:
                await hangs()
        if attempts == 1:
            await hangs()
        return FOUND

    ending = await Patience(attempts=3, backoff_ms=1, call_ms=50).spend(call, 10_000, lambda: 0)
    assert (ending.status, attempts) == ("applied", 3)
