"""What a planner makes of a crowd on a family of prefixes: what goes through it is raised while it lasts."""

from __future__ import annotations

from schemas import OutcomeReason
from tests.analytics.test_planning import Drive, book, candidate, focused, hot, name, outcome

FAMILY = name("a")
POLICY = {"prefix_repeat_ms": 10_000, "min_saved_ms": 4.0}
"""A candidate of 200 tokens earns 2.7 ms on a lone replica, and more than this only twice."""


def test_a_crowd_on_a_family_warms_what_goes_through_it_while_it_lasts():
    drive = Drive(policy=book(plan=POLICY))
    drive.run(samples=["r1"])
    drive.hear(hot(candidate("a", "b"), candidate("c", "d")))
    assert drive.run(2_000, samples=["r1"]) == []
    drive.hear(focused("prefix_family", FAMILY, drive.now, drive.now + 20_000))
    drive.rebuild()
    (command,) = drive.run(2_000, samples=["r1"])
    assert [segment.hash for segment in command.target.segments] == [FAMILY, name("a/b")]
    assert command.reason.trigger == "focus"
    assert (command.reason.evidence["focus_users"], command.reason.evidence["boost"]) == (120.0, 2.0)
    assert command.benefit.p_asked == 1.0
    drive.control(outcome(command, "r1", drive.now, "failed", OutcomeReason.STORE_UNAVAILABLE))
    drive.rebuild()
    later = drive.run(40_000, samples=["r1"])
    assert {each.reason.trigger for each in later} <= {"focus"}
    assert all(each.issued_at_ms < command.issued_at_ms + 20_000 for each in later)


def test_how_much_it_is_raised_is_policy():
    drive = Drive(policy=book(plan=POLICY, focus={"boost": 1.2}))
    drive.run(samples=["r1"])
    drive.hear(focused("prefix_family", FAMILY, drive.now, drive.now + 20_000))
    drive.hear(hot(candidate("a", "b")))
    assert drive.run(10_000, samples=["r1"]) == []
