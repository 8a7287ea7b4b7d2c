"""`after`: what waits for what, what comes of it, and that nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.needs import MET, UNHEARD_MS, Look, Needs, unmet
from executor.orders import Order, Work
from executor.waiting import WaitingLine
from schemas import Embedding, OutcomeReason, Prefix, Render, Response, Segment, WarmupCommand
from schemas.warmup_outcome import Status

STATUSES: tuple[Status, ...] = Status.__args__  # type: ignore[attr-defined]
PREFIX = Prefix(model="tiny", segments=(Segment("a" * 32, 16, "system"),), render=Render(template_sha="t"))
RESPONSE = Response(
    cache="answers", fingerprint="f" * 32, query_sha256="a" * 32, response_ref="b" * 32, model="tiny", until_ms=10**9
)


def name(number: int) -> str:
    return f"{number:032x}"


def command(number: int, after: tuple[int, ...] = (), **fields: Any) -> WarmupCommand:
    from test_rules import command as any_command

    values = {"pool": "gpu", "target": PREFIX, "target_key": f"k:{number}", "expires_at_ms": 60_000, **fields}
    return any_command(command_id=name(number), after=tuple(map(name, after)), **values)


class Pool:
    """Outcomes as they become known."""

    def __init__(self, bound: int = 100) -> None:
        self.ends: dict[tuple[str, str], Status] = {}
        self.needs = Needs(lambda command_id, replica: self.ends.get((command_id, replica)), bound)

    def end(self, number: int, status: Status, replica: str = "r0") -> None:
        self.ends[name(number), replica] = status
        self.needs.ended(name(number), replica)

    def look(self, asked: WarmupCommand, now_ms: int = 0, replica: str = "r0") -> Look:
        return self.needs.look(asked, replica, 0, now_ms)


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_it_waits_for_a_command_that_is_under_way_and_goes_once_that_is_applied(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r0",))
    assert pool.look(command(2, after=(1,)), now_ms=50_000) == Look("waits", name(1))
    pool.end(1, "applied")
    assert pool.look(command(2, after=(1,))) == Look("met")


@pytest.mark.parametrize("status", STATUSES)
def test_what_a_prefix_needs_must_be_there_and_an_answer_needs_only_its_turn(pool: Pool, status: Status) -> None:
    pool.end(1, status)
    prefix, answer = command(2, after=(1,)), command(3, after=(1,), target=RESPONSE)
    assert pool.look(answer) == Look("met")
    found = pool.look(prefix)
    if status in MET:
        assert found == Look("met")
        assert unmet(found, prefix, 0) is None
        return
    assert found == Look("unmet", name(1), status)
    ending = unmet(found, prefix, 0)
    assert ending is not None
    assert (ending.status, ending.reason) == ("skipped", OutcomeReason.NEEDED_MISSING)
    assert ending.error == f"needs {name(1)}, which is {status}"


def test_only_the_same_replica_counts(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r1",))
    assert pool.look(command(2, after=(1,)), replica="r0") == Look("met")
    assert pool.look(command(2, after=(1,)), replica="r1").state == "waits"
    pool.end(1, "failed", "r0")
    pool.end(1, "applied", "r1")
    assert pool.look(command(2, after=(1,)), replica="r1") == Look("met")


def test_one_need_that_cannot_be_met_decides_though_others_are_open(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r0",))
    pool.end(2, "rejected")
    assert pool.look(command(3, after=(1, 2))) == Look("unmet", name(2), "rejected")


def test_what_was_never_heard_of_is_waited_for_only_for_a_moment(pool: Pool) -> None:
    lone = command(2, after=(1,))
    assert pool.look(lone, now_ms=UNHEARD_MS - 1).state == "waits"
    assert pool.look(lone, now_ms=UNHEARD_MS) == Look("unheard", name(1))
    pool.needs.hear(command(3), ("r0",))
    assert pool.look(command(4, after=(1, 3)), now_ms=UNHEARD_MS) == Look("waits", name(3))
    assert pool.look(command(4, after=(3, 1)), now_ms=UNHEARD_MS) == Look("waits", name(3))
    pool.end(1, "applied")
    assert pool.look(lone) == Look("met")


def test_nothing_waits_for_itself_and_an_invalidation_for_nothing(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r0",))
    assert pool.look(command(1, after=(1,))) == Look("met")
    assert pool.look(command(2, after=(1,), target=RESPONSE, action="invalidate")) == Look("met")


def test_its_own_expiry_ends_the_waiting(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r0",))
    late = command(2, after=(1,), expires_at_ms=10_000)
    held = Work(Order(late, []), "r0", 0)
    assert not pool.needs.admits(held, 9_999)
    assert pool.needs.admits(held, 10_000)
    assert unmet(pool.look(late, 9_999), late, 9_999) is None
    ending = unmet(pool.look(late, 10_000), late, 10_000)
    assert ending is not None
    assert (ending.status, ending.reason) == ("expired", OutcomeReason.NEEDED_MISSING)


def test_what_somebody_began_is_not_held_back(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r0",))
    begun = Work(Order(command(2, after=(1,)), []), "r0", 0, begun=True)
    assert pool.needs.admits(begun, 0)


def test_the_end_of_a_command_is_told_once_where_somebody_waits_for_it(pool: Pool) -> None:
    pool.needs.hear(command(1), ("r0", "r1"))
    assert not pool.needs.ended(name(1), "r0")
    pool.look(command(2, after=(1,)))
    assert not pool.needs.ended(name(1), "r1")
    assert pool.needs.ended(name(1), "r0")
    assert not pool.needs.ended(name(1), "r0")


def test_what_was_forgotten_counts_as_never_heard_of() -> None:
    pool = Pool(bound=2)
    for number in range(5):
        pool.needs.hear(command(number), ("r0",))
    assert pool.look(command(9, after=(0,)), now_ms=UNHEARD_MS).state == "unheard"
    assert pool.look(command(9, after=(4,)), now_ms=UNHEARD_MS).state == "waits"


COMMANDS = 8
EXPIRES_MS = 20_000
STEP_MS = 500

commands = st.lists(
    st.tuples(
        st.lists(st.integers(0, COMMANDS + 2), max_size=3),  # after: cycles, itself, and two that nobody ever sends
        st.integers(0, 3),  # priority
        st.sampled_from((PREFIX, RESPONSE, Embedding(fingerprint="f" * 32, query_sha256="a" * 32))),
        st.booleans(),  # ours to apply, or another executor's
        st.integers(1, EXPIRES_MS // STEP_MS),  # expires after so many steps
        st.sampled_from(STATUSES),  # how it ends if it is applied
        st.integers(0, EXPIRES_MS // STEP_MS),  # arrives in this step
        st.integers(0, EXPIRES_MS // STEP_MS),  # if another executor's, it takes so many steps
    ),
    min_size=COMMANDS,
    max_size=COMMANDS,
)


@settings(max_examples=300, deadline=None)
@given(commands)
def test_in_any_order_of_arrivals_and_outcomes_each_command_ends_once_and_never_before_what_it_needs(
    drawn,
) -> None:
    now = [0]
    pool = Pool()
    line = WaitingLine(100, lambda: now[0], lambda work: pool.needs.admits(work, now[0]))
    sent = {
        number: command(number, tuple(after), priority=priority, target=target, expires_at_ms=steps * STEP_MS)
        for number, (after, priority, target, _, steps, *_) in enumerate(drawn)
    }
    ours = {number for number, entry in enumerate(drawn) if entry[3]}
    ended, heard_ms = {}, {}

    def end(number: int, status: Status) -> None:
        assert number not in ended
        ended[number] = (status, now[0])
        pool.end(number, status)

    def serve() -> None:
        """All that may be taken now, one after the other, as a worker would."""
        while (work := line.next_of("r0")) is not None:
            number, asked = int(work.command.command_id, 16), work.command
            better = [w for _, w in line._lines["r0"] if w.command.priority > asked.priority]
            assert not any(pool.needs.admits(w, now[0]) for w in better)
            found = pool.needs.look(asked, "r0", work.arrived_ms, now[0])
            ending = unmet(found, asked, now[0])
            if ending is not None or now[0] >= asked.expires_at_ms:
                end(number, ending.status if ending is not None else "expired")
                continue
            assert found.state in ("met", "unheard")
            for needed in {int(each, 16) for each in asked.after} - {number}:
                if needed in ended:
                    assert ended[needed][0] in MET or asked.target is RESPONSE
                else:
                    assert needed not in heard_ms
                    assert now[0] >= work.arrived_ms + UNHEARD_MS
            end(number, drawn[number][5])

    for step in range(2 * EXPIRES_MS // STEP_MS + 1):
        for number, (*_, outcome, arrives, takes) in enumerate(drawn):
            if step == arrives:
                heard_ms[number] = now[0]
                pool.needs.hear(sent[number], ("r0",))
                if number in ours:
                    line.put(Work(Order(sent[number], []), "r0", now[0]))
            if number not in ours and step == arrives + takes:
                end(number, outcome)
        serve()
        now[0] += STEP_MS
    assert len(line) == 0
    assert ended.keys() == set(range(COMMANDS))
    for number in ours:
        assert ended[number][1] <= max(sent[number].expires_at_ms, heard_ms[number])
