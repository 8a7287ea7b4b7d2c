"""A withdrawal whose command came to nothing is sent again, ever later, until the answer is gone or it is given up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from analytics.envelopes import Tag, seal
from analytics.withdrawals import FIRST_PAUSE_MS, TRIES
from schemas import OutcomeReason, Policy, WarmupCommand, encode
from schemas.canonical import query_sha256
from tests.analytics.test_answer_planning import Drive
from tests.analytics.test_planning import REDIS, TICK, book, outcome

LIFE_MS = 20_000
LONG_MS = 86_400_000


def drive_of(resident_ms: int = LONG_MS) -> Drive:
    """A planner that has an answer in the cache and has just heard that it is bad."""
    plan = {"response_life_ms": LIFE_MS, "response_resident_ms": resident_ms}
    drive = Drive(book(plan=plan, budget={"embeddings_per_s": 100.0}))
    drive.hot()
    drive.ended()
    assert [command.action for command in drive.reward(0.0, 2)] == ["invalidate"]
    return drive


def next_of(drive: Drive, within_ms: int = LONG_MS) -> WarmupCommand | None:
    """The next command about an answer; None where none comes within so long."""
    for _ in range(0, within_ms, TICK):
        for command in drive.responses(drive.run(TICK)):
            return command
    return None


def told(drive: Drive, name: str) -> list[float]:
    return [state.evidence[f"withdrawals_{name}"] for state in drive.states]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("failed", OutcomeReason.STORE_UNAVAILABLE),
        ("expired", OutcomeReason.EXPIRED_QUEUED),
        ("rejected", OutcomeReason.QUEUE_FULL),
    ],
)
def test_what_came_to_nothing_is_sent_again_under_another_id_after_a_pause(status, reason):
    drive = drive_of()
    (first,) = drive.issued[-1:]
    drive.now += 5_000
    drive.ended(status, reason)
    ended_ms = drive.now
    again = next_of(drive)
    assert again is not None
    assert again.issued_at_ms == pytest.approx(ended_ms + FIRST_PAUSE_MS, abs=TICK)
    assert (again.action, again.lane, again.priority, again.arm) == ("invalidate", "fast", 999, "warm")
    assert again.target.response_ref == first.target.response_ref
    assert (again.content_version, again.reason.trigger) == (first.content_version, "bad_reward")
    assert again.command_id != first.command_id
    assert again.reason.evidence["tries"] == 2
    drive.ended()
    assert next_of(drive, 700_000) is None
    assert sum(told(drive, "repeated")) == 1
    assert told(drive, "given_up")[-1] == told(drive, "open")[-1] == 0


def test_a_command_that_nobody_answered_is_sent_again_after_its_life():
    drive = drive_of()
    (first,) = drive.issued[-1:]
    again = next_of(drive)
    assert again is not None
    assert again.issued_at_ms == pytest.approx(first.expires_at_ms + FIRST_PAUSE_MS, abs=TICK)


def test_the_distance_doubles_until_it_is_given_up_and_the_report_tells():
    drive = drive_of()
    issued = [drive.issued[-1].issued_at_ms]
    while True:
        drive.ended("failed", OutcomeReason.STORE_UNAVAILABLE)
        again = next_of(drive, FIRST_PAUSE_MS << TRIES)
        if again is None:
            break
        issued.append(again.issued_at_ms)
    assert len(issued) == TRIES
    for number, (one, other) in enumerate(pairwise(issued)):
        assert other - one == pytest.approx(FIRST_PAUSE_MS << number, abs=2 * TICK)
    assert sum(told(drive, "repeated")) == TRIES - 1
    assert sum(told(drive, "given_up")) == 1
    assert told(drive, "open")[-1] == 0
    assert not [key for key in drive.store.records if key[0] == "o"]


def test_what_nobody_takes_out_ends_with_its_entry_and_is_not_given_up():
    drive = drive_of(resident_ms=100_000)
    (warm,) = [command for command in drive.responses(drive.issued) if command.action == "warm"]
    while (again := next_of(drive, 300_000)) is not None:
        assert again.issued_at_ms < warm.target.until_ms
        drive.ended("failed", OutcomeReason.STORE_UNAVAILABLE)
    assert sum(told(drive, "repeated")) > 1
    assert sum(told(drive, "given_up")) == told(drive, "open")[-1] == 0


def test_an_outcome_of_an_earlier_try_neither_ends_the_matter_nor_hurries_it():
    drive = drive_of()
    (first,) = drive.issued[-1:]
    drive.ended("failed", OutcomeReason.STORE_UNAVAILABLE)
    assert next_of(drive) is not None
    for status in ("failed", "applied"):
        drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(first, "redis", drive.now, status))))
    third = next_of(drive)
    assert third is not None
    assert third.reason.evidence["tries"] == 3


@pytest.mark.parametrize(
    ("status", "reason"),
    [("applied", OutcomeReason.DONE), ("skipped", OutcomeReason.ALREADY_ABSENT), ("shadow", OutcomeReason.SHADOW)],
)
def test_what_is_gone_or_would_be_ends_the_matter_however_often_and_in_which_order_it_is_told(status, reason):
    for told_first in ((), ("failed",)):
        drive = drive_of()
        for early in told_first:
            drive.ended(early, OutcomeReason.STORE_UNAVAILABLE)
        drive.ended(status, reason)
        drive.ended("failed", OutcomeReason.STORE_UNAVAILABLE)
        assert next_of(drive, 700_000) is None


def test_a_better_answer_waits_until_the_bad_one_is_out():
    drive = drive_of()
    drive.answer("y")
    drive.reward(0.9, name="y")
    drive.ended("failed", OutcomeReason.STORE_UNAVAILABLE)
    again = next_of(drive)
    assert again is not None
    assert again.action == "invalidate"
    drive.ended()
    better = next_of(drive)
    assert better is not None
    assert (better.action, better.target.response_ref) == ("warm", query_sha256("y"))
    assert int(better.content_version) > int(again.content_version)


def test_a_freeze_and_a_dead_planner_keep_nothing_back():
    whole, broken = drive_of(), drive_of()
    for drive in (whole, broken):
        frozen = Policy(scope="s", section="freeze", writer="w", version=1, at_ms=1, body={"frozen": True})
        drive.policy.apply(frozen)
        drive.ended("failed", OutcomeReason.STORE_UNAVAILABLE)
        for _ in range(200):
            drive.run(TICK)
            if drive is broken:
                drive.rebuild()
    assert whole.said == broken.said
    assert [command.action for command in whole.issued[-3:]] == ["invalidate"] * 3
    assert len({command.command_id for command in whole.issued}) == len(whole.issued)
