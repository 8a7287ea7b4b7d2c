"""kill -9 at random moments: of an executor, of Redis (also without its data), of an engine."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from town import PATIENCE_S, Town, fault_rounds, until

from connectors.redis import sync_client
from connectors.settings import RedisSettings
from schemas import Residency, WarmupCommand, decode, topics
from stoker.stack import ports
from stoker.stack.paths import StateFolder
from stoker.stack.redis import Redis, RedisConfig

pytestmark = [pytest.mark.service, pytest.mark.faults, pytest.mark.slow]

TOKENS = 112


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Redis, Path]]:
    folder = tmp_path_factory.mktemp("redis")
    redis = Redis(RedisConfig(ports.free_port()), StateFolder.at(folder))
    redis.start(PATIENCE_S)
    yield redis, folder
    redis.stop()


@pytest.fixture(scope="module")
def city(kafka_bootstrap: str, own_redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    town = Town(kafka_bootstrap, own_redis[0].url, tmp_path_factory.mktemp("city"), ["--prefill-ms-per-token", "0.3"])
    yield town
    town.close()


@pytest.fixture(autouse=True)
def no_executor_of_another_test(city: Town) -> Iterator[None]:
    """A test that failed leaves no executor behind that takes, with other settings, the next one's commands."""
    yield
    for process in city.executors:
        process.stop()


@pytest.fixture
def chance() -> random.Random:
    return random.Random(20261130)


def trickle(town: Town, chance: random.Random, count: int = 20) -> list[WarmupCommand]:
    """Commands with content of their own, a tenth of them sent twice."""
    commands = [town.warm() for _ in range(count)] + [town.embed() for _ in range(count // 4)]
    chance.shuffle(commands)
    for command in commands:
        town.send(*([command, command] if chance.random() < 0.1 else [command]))
    return commands


def check(town: Town, commands: list[WarmupCommand], created: bool = True) -> None:
    """One terminal outcome for each command and replica, everything committed, no token created twice."""
    town.settled(commands)
    until(lambda: town.uncommitted() == 0)
    outcomes = town.settled(commands)
    for found in outcomes.values():
        assert len({outcome.status for outcome in found}) == 1, found
        assert found[0].status == "applied", found
    if created:
        for command in commands:
            assert all(tokens == TOKENS for tokens in town.created(command).values()), town.created(command)


def test_executors_killed_at_random(city: Town, chance: random.Random) -> None:
    commands: list[WarmupCommand] = []
    running = [city.executor(wait=False) for _ in range(2)]
    until(lambda: all(city.readyz(process) for process in running))
    for _ in range(fault_rounds()):
        commands += trickle(city, chance)
        time.sleep(chance.uniform(0.0, 1.0))
        victim = running.pop(chance.randrange(len(running)))
        victim.kill()
        running.append(city.executor(wait=False))
    check(city, commands)
    for process in running:
        process.stop()


@pytest.mark.parametrize("with_data", [True, False], ids=["with its data", "without its data"])
def test_redis_killed_at_random(city: Town, own_redis, chance: random.Random, with_data: bool) -> None:
    redis, folder = own_redis
    # Patient for as long as Redis may take to start on a loaded machine: with few attempts `failed` would be right.
    process = city.executor(attempts=20, backoff_ms=200)
    for _ in range(fault_rounds()):
        commands = trickle(city, chance)
        time.sleep(chance.uniform(0.0, 1.0))
        if not with_data:
            # Content is the gateway's to keep, so a Redis that lost everything is only asked to know what was done.
            check(city, commands)
        redis.process.kill()
        if not with_data:
            shutil.rmtree(folder / "data" / "redis", ignore_errors=True)
            (folder / "data" / "redis").mkdir(parents=True, exist_ok=True)
        redis.start(PATIENCE_S)
        until(lambda: city.readyz(process))
        city.send(*commands[:5])
        check(city, commands)
        assert all(len(found) == 1 for found in city.settled(commands).values())
    process.stop()


def test_a_redis_that_refuses_the_login_ends_the_process_with_a_sentence(city: Town, own_redis) -> None:
    redis, _ = own_redis
    process = city.executor()
    client = sync_client(RedisSettings(url=redis.url))
    try:
        client.config_set("requirepass", "changed")
        client.execute_command("AUTH", "changed")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        until(lambda: process.pid is None)
    finally:
        client.config_set("requirepass", "")
        client.close()
    assert "executor: the executor cannot go on" in process.tail(30)
    city.executor().stop()


def test_an_engine_killed_is_lost_and_comes_back(city: Town) -> None:
    process = city.executor(attempts=20, backoff_ms=200)
    name, engine = next(iter(city.engines.items()))
    for _ in range(fault_rounds()):
        command = city.warm(replicas=[name])
        city.send(command)
        city.settled([command])

        def told(command: WarmupCommand = command) -> list[int | None]:
            states = [decode(value, Residency) for value in city.records(topics.RESIDENCY)]
            mine = [s for s in states if (s.target_key, s.replica) == (command.target_key, name)]
            return [state.resident_tokens for state in sorted(mine, key=lambda state: state.seq)]

        until(lambda told=told: told() and told()[-1])
        engine.process.kill()
        during = city.warm(replicas=[name])
        city.send(during)
        time.sleep(0.5)
        engine.start(PATIENCE_S)
        (found,) = city.settled([during]).values()
        assert found[-1].status == "applied"
        until(lambda told=told: told()[-1] == 0)
        assert city.created(during) == {name: TOKENS}
    process.stop()
