"""The waiting line: order, bound, time."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from executor.orders import Order, Work
from executor.waiting import WaitingLine
from schemas import Cancel, Reason, WarmupCommand
from schemas.warmup_command import QOS_RANK

QOS = ("guaranteed", "burstable", "best_effort")


def work(qos: str = "burstable", priority: int = 500, issued_ms: int = 0, not_before_ms: int = 0, replica="r0") -> Work:
    command = WarmupCommand(
        command_id="a" * 32,
        scope="s",
        tenant="s",
        pool="p",
        target=Cancel(command_ids=("b" * 32,)),
        target_key="k",
        priority=priority,
        qos=qos,
        lane="tick",
        issued_at_ms=issued_ms,
        not_before_ms=not_before_ms,
        expires_at_ms=10**9,
        reason=Reason(trigger="t"),
        unit="u",
    )
    return Work(Order(command, []), replica, 0)


def drained(line: WaitingLine, replica: str = "r0") -> list[Work]:
    found = []
    while (next_work := line.next_of(replica)) is not None:
        found.append(next_work)
    return found


works = st.builds(
    work, st.sampled_from(QOS), st.integers(0, 999), st.integers(0, 5), replica=st.sampled_from(("r0", "r1"))
)


@given(st.lists(works, max_size=30), st.integers(1, 30))
def test_what_is_served_is_the_best_in_order_and_what_is_turned_away_the_lowest(given_works, bound) -> None:
    line = WaitingLine(bound, lambda: 0)
    turned_away = [lowest for item in given_works if (lowest := line.put(item)) is not None]
    assert len(line) == min(bound, len(given_works))
    served = drained(line, "r0") + drained(line, "r1")

    def rank(item: Work) -> tuple[int, int, int]:
        return QOS_RANK[item.command.qos], -item.command.priority, item.command.issued_at_ms

    for replica in ("r0", "r1"):
        ranks = [rank(item) for item in served if item.replica == replica]
        assert ranks == sorted(ranks)
    assert len(served) + len(turned_away) == len(given_works)
    if served and turned_away:
        assert max(map(rank, served)) <= min(map(rank, turned_away))


def test_a_work_whose_time_has_not_come_is_passed_over() -> None:
    now = [0]
    line = WaitingLine(10, lambda: now[0])
    early, later = work(priority=1), work(priority=999, not_before_ms=100)
    line.put(later)
    line.put(early)
    assert line.next_of("r0") is early
    assert line.next_of("r0") is None
    now[0] = 100
    assert line.next_of("r0") is later


def test_a_work_that_is_put_back_is_never_turned_away() -> None:
    line = WaitingLine(1, lambda: 0)
    line.put(work())
    line.put_back(work(), 50)
    assert len(line) == 2


async def test_take_waits_for_what_comes() -> None:
    line = WaitingLine(10, lambda: 0)
    taking = asyncio.create_task(line.take("r0"))
    await asyncio.sleep(0)
    elsewhere, here = work(replica="r1"), work()
    line.put(elsewhere)
    line.put(here)
    assert await asyncio.wait_for(taking, 5) is here
    assert line.remove(elsewhere)
    assert not line.remove(elsewhere)
