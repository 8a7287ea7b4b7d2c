"""The executor is killed at each of its numbered steps, and what comes after it finds everything right."""

from __future__ import annotations

import pytest
from town import Town, until

from executor.failpoints import FAIL_POINTS, FailPoint, armed
from schemas import BrokenConfiguration


def test_only_known_steps_can_be_armed() -> None:
    with pytest.raises(BrokenConfiguration, match="command_taken"):
        armed("nonsense", lambda: None)
    with pytest.raises(BrokenConfiguration):
        armed("command_taken:soon", lambda: None)


def test_a_step_ends_the_process_at_the_passage_asked_for() -> None:
    ends: list[str] = []
    reach = armed("command_taken:2", lambda: ends.append("end"))
    reach("command_taken")
    reach("apply_started")
    assert ends == []
    reach("command_taken")
    assert ends == ["end"]


@pytest.mark.service
@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("step", FAIL_POINTS)
def test_killed_at_each_step_it_comes_back_right(town: Town, step: FailPoint) -> None:
    """One terminal outcome for each command and replica, and no token created twice at the engine."""
    commands = [town.warm() for _ in range(3)] + [town.embed()]
    victim = town.executor(failpoint=step, wait=False)
    town.send(*commands)
    assert victim.exit_code() == -9, victim.tail()
    survivor = town.executor(wait=False)
    try:
        outcomes = town.settled(commands)
        until(lambda: town.uncommitted() == 0)
        outcomes = town.settled(commands)
        for found in outcomes.values():
            assert {outcome.status for outcome in found} == {"applied"}, found
            assert len(found) == 1, "the outcome was out and came again"
        for command in commands[:3]:
            created = town.created(command)
            assert all(tokens == 112 for tokens in created.values()), created
    finally:
        survivor.stop()
