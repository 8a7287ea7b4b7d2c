"""Gaps between requests, by replica."""

from __future__ import annotations

import pytest

from stoker.demo.effect import Touch
from stoker.demo.idle import Idle, idle


def touch(at_ms: int, latency_ms: float, replica: str = "r0") -> Touch:
    return Touch(at_ms, "s", replica, ("a",), (1,), 1.0, 0, 1, latency_ms=latency_ms)


def test_requests_that_overlap_leave_one_gap_and_the_ends_of_the_run_count_for_all() -> None:
    requests = [touch(0, 100), touch(50, 20), touch(90, 110), touch(300, 100), touch(500, 500), touch(400, 50, "r1")]
    one, other = idle(requests)
    # r0: 200 to 300 and 400 to 500 of 1,000 ms; r1: before 400 and after 450.
    assert one == Idle("r0", pytest.approx(0.2), 100.0)  # type: ignore[arg-type]
    assert other == Idle("r1", pytest.approx(0.95), 475.0)  # type: ignore[arg-type]


def test_a_replica_without_a_pause_has_no_gap_and_a_run_without_requests_no_replica() -> None:
    assert idle([touch(0, 100), touch(100, 50)]) == (Idle("r0", 0.0, None),)
    assert idle([]) == ()
