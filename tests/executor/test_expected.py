"""Works for replicas that have not been heard of yet: how long and how many are kept."""

from __future__ import annotations

from executor.expected import Expected
from executor.orders import Order, Work
from schemas import Prefix, Reason, Segment, WarmupCommand


def work(replica: str, arrived_ms: int = 0, expires_ms: int = 60_000) -> Work:
    command = WarmupCommand(
        command_id="a" * 32,
        scope="acme",
        tenant="acme",
        pool="gpu",
        target=Prefix(model="m", segments=(Segment("b" * 32, 64),)),
        target_key="prefix:b",
        priority=1,
        lane="tick",
        issued_at_ms=0,
        not_before_ms=0,
        expires_at_ms=expires_ms,
        reason=Reason(trigger="t"),
        unit="u",
    )
    return Work(Order(command, []), replica, arrived_ms)


def test_a_work_is_kept_until_its_replica_is_there() -> None:
    expected, first, other, second = Expected(10_000), work("b"), work("c"), work("b", 5)
    assert all(expected.keep(each, 10) for each in (first, other, second))
    assert expected.release(("a",), 9_999) == []
    assert expected.release(("a", "b"), 9_999) == [first, second]
    assert (expected.release(("a", "b"), 9_999), len(expected)) == ([], 1)


def test_it_is_kept_for_its_time_alone_and_never_beyond_its_expiry() -> None:
    expected, patient, brief = Expected(10_000), work("b", 1_000), work("b", 1_000, expires_ms=3_000)
    assert expected.keep(patient, 1_000)
    assert expected.keep(brief, 1_000)
    assert expected.release((), 2_999) == []
    assert expected.release((), 3_000) == [brief]
    assert expected.keep(brief, 3_000) is False
    assert expected.release((), 10_999) == []
    assert expected.release((), 11_000) == [patient]
    assert expected.keep(patient, 11_000) is False, "its time counts from when it was read"


def test_no_more_are_kept_than_the_bound_and_none_where_nothing_is_waited_for() -> None:
    expected = Expected(10_000, bound=2)
    assert [expected.keep(work("b"), 0) for _ in range(3)] == [True, True, False]
    expected.release(("b",), 0)
    assert expected.keep(work("b"), 0)
    assert Expected(0).keep(work("b"), 0) is False
