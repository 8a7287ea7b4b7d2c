"""Executors as processes on a real broker, a real Redis and simulated engines."""

from __future__ import annotations

import signal

import pytest
from town import PATIENCE_S, Town, until

from schemas import ReplicaSample, Residency, WarmupCommand, decode, topics

pytestmark = pytest.mark.service


@pytest.fixture
def executors(town: Town):
    yield town
    for process in town.executors:
        process.stop()


def test_two_executors_share_a_pool(executors: Town) -> None:
    town = executors
    processes = [town.executor(wait=False) for _ in range(2)]
    for process in processes:
        process.wait_ready(lambda process=process: town.readyz(process), PATIENCE_S)
    commands = [town.warm() for _ in range(40)] + [town.embed() for _ in range(20)]
    town.send(*commands)
    outcomes = town.settled(commands)
    assert {outcome.status for found in outcomes.values() for outcome in found} == {"applied"}
    assert all(len(found) == 1 for found in outcomes.values())
    until(lambda: town.uncommitted() == 0)
    for command in commands[:40]:
        told = {
            found[0].replica: found[0].tokens_warmed
            for found in outcomes.values()
            if found[0].command_id == command.command_id
        }
        assert town.created(command) == told
    shares = [town.get(process, "/metrics").text for process in processes]
    assert all('stoker_executor_outcomes_total{pool="gpu"' in share for share in shares), "one did all the work"
    warmed = {(command.target_key, name) for command in commands[:40] for name in town.engines}

    def resident() -> set[tuple[str, str]]:
        states = [decode(value, Residency) for value in town.records(topics.RESIDENCY)]
        return {(state.target_key, state.replica) for state in states if state.resident_tokens}

    until(lambda: warmed <= resident())
    samples = [decode(value, ReplicaSample) for value in town.records(topics.TELEMETRY)]
    assert {sample.replica for sample in samples if sample.state == "ready"} == set(town.engines)


def test_sigterm_drains_and_leaves_the_rest_to_the_next(executors: Town) -> None:
    town = executors
    first = town.executor(concurrency=1)
    commands = [town.warm() for _ in range(30)]
    town.send(*commands)
    until(lambda: any(o.command_id == commands[0].command_id for o in town.outcomes()))
    first.signal(signal.SIGTERM)
    until(lambda: first.pid is None)
    town.executor()
    outcomes = town.settled(commands)
    assert all(len(found) == 1 for found in outcomes.values())
    assert {found[0].status for found in outcomes.values()} == {"applied"}
    until(lambda: town.uncommitted() == 0)


def test_a_freeze_is_enforced_and_taken_back(executors: Town) -> None:
    """That it takes less than a second is seen where no machine is slow: test_service."""
    town = executors
    town.executor()

    def ends(command: WarmupCommand) -> set[tuple[str, str]]:
        town.send(command)
        return {(found[0].status, found[0].reason) for found in town.settled([command]).values()}

    assert ends(town.warm()) == {("applied", "done")}
    town.policy("freeze", 1, frozen=True, reason="test")
    until(lambda: ends(town.warm()) == {("rejected", "frozen")})
    frozen = town.warm()
    assert ends(frozen) == {("rejected", "frozen")}
    assert set(town.created(frozen).values()) == {0}
    town.policy("freeze", 2, frozen=False)
    until(lambda: ends(town.warm()) == {("applied", "done")})


def test_a_reset_of_the_engine_is_told_as_lost(executors: Town) -> None:
    import httpx

    town = executors
    town.executor()
    command = town.warm()
    town.send(command)
    town.settled([command])
    name = next(iter(town.engines))

    def told() -> list[int | None]:
        states = [decode(value, Residency) for value in town.records(topics.RESIDENCY)]
        mine = [s for s in states if s.target_key == command.target_key and s.replica == name]
        return [state.resident_tokens for state in sorted(mine, key=lambda state: state.seq)]

    until(lambda: told() and told()[-1])
    httpx.post(f"{town.engines[name].config.url}/reset_prefix_cache", timeout=60, trust_env=False)
    # As with vLLM, the event goes out with the next block that is stored.
    town.send(town.warm())
    until(lambda: told()[-1] == 0)


def test_ctrl_c_drains_too(executors: Town) -> None:
    town = executors
    process = town.executor()
    process.signal(signal.SIGINT)
    assert process.exit_code() == 130
