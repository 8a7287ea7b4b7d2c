from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import BrokenConfiguration, StackFault
from stoker.stack import ports
from stoker.stack.paths import PROJECT, StateFolder
from stoker.stack.process import marked, sweep
from stoker.stack.stack import Stack, StackConfig
from stoker.stack.topics import differences

pytestmark = pytest.mark.service

COMMAND = [sys.executable, "-c", "from stoker.commands.stack import group; group()"]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFolder]:
    folder = StateFolder.at(tmp_path / "stack")
    yield folder
    sweep(folder)


def test_up_twice_down_and_up_again(state: StateFolder) -> None:
    config = StackConfig.on_free_ports(engines=2)
    stack = Stack(state, config)
    stack.up()
    entries = stack.status()
    assert [entry.name for entry in entries] == ["kafka", "redis", "engine-r0", "engine-r1"]
    assert all(entry.ready for entry in entries)
    assert differences(stack.kafka.bootstrap) == []
    pids = [entry.pid for entry in entries]

    again = Stack(state)
    assert again.config == config, "the folder remembers what it holds"
    again.up()
    assert [entry.pid for entry in again.status()] == pids
    with pytest.raises(BrokenConfiguration, match="other settings"):
        Stack(state, StackConfig.on_free_ports()).up()

    settings = tomllib.loads(stack.settings_file.read_text())
    assert settings["kafka"]["bootstrap"] == stack.kafka.bootstrap
    assert [engine["url"] for engine in settings["executor"]["engines"]] == [e.config.url for e in stack.engines]

    again.engines[0].process.kill()
    again.redis.process.kill()
    assert [entry.ready for entry in again.status()] == [True, False, False, True]
    Stack(state).up()
    assert all(entry.ready for entry in again.status())

    again.down()
    assert marked(state) == []
    assert state.root.exists()
    again.down(data=True)
    assert not state.root.exists()


def test_an_earlier_run_that_crashed_is_recovered(state: StateFolder) -> None:
    stack = Stack(state, StackConfig.on_free_ports())
    stack.up()
    for record in state.run.glob("*.json"):
        record.unlink()  # as if the starter had been killed before it wrote them
    assert stack.status()[0].pid is None
    Stack(state).up()
    assert all(entry.ready for entry in stack.status())
    assert len(marked(state)) == 2
    stack.down(data=True)


def test_a_port_clash_names_the_holder_and_stops_what_was_started(state: StateFolder) -> None:
    config = StackConfig.on_free_ports()
    with socket.socket() as holder:
        holder.bind((ports.LOOPBACK, config.kafka.port))
        holder.listen()
        with pytest.raises(StackFault, match=rf"port {config.kafka.port} for Kafka is taken by process {os.getpid()}"):
            Stack(state, config).up()
    assert marked(state) == []


@pytest.mark.slow
def test_an_interrupt_at_any_moment_leaves_nothing(state: StateFolder) -> None:
    moments = random.Random(3)
    for _ in range(4):
        config = StackConfig.on_free_ports(engines=1)
        flags = ["--kafka-port", config.kafka.port, "--kafka-controller-port", config.kafka.controller_port]
        flags += ["--redis-port", config.redis.port, "--engines", 1, "--engine-port", config.engines[0].port]
        flags += ["--events-port", config.engines[0].events_port, "--state", state.root]
        starting = subprocess.Popen([*COMMAND, "up", *map(str, flags)], cwd=PROJECT, stderr=subprocess.PIPE)
        wait_s = moments.uniform(0.5, 4.0)
        time.sleep(wait_s)
        starting.send_signal(signal.SIGINT)
        _, told = starting.communicate(timeout=300)
        assert starting.returncode in (0, 130, -signal.SIGINT), told.decode()
        assert b"Traceback" not in told or starting.returncode == -signal.SIGINT, told.decode()
        if starting.returncode != 0:
            assert marked(state) == [], f"interrupted after {wait_s:.2f} s"
        Stack(state).down(data=True)
        state.run.mkdir(parents=True)


def test_commands_tell_what_is_missing(tmp_path: Path) -> None:
    absent = subprocess.run(
        [*COMMAND, "status", "--state", tmp_path / "none"], cwd=PROJECT, capture_output=True, text=True
    )
    assert absent.returncode != 0
    assert "stoker stack up" in absent.stderr
    down = subprocess.run([*COMMAND, "down", "--state", tmp_path / "none"], cwd=PROJECT, capture_output=True, text=True)
    assert down.returncode == 0
    assert "nothing to stop" in down.stdout
