from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from schemas.errors import StackFault
from stoker.stack.paths import StateFolder
from stoker.stack.process import MARK, NAME_MARK, Process, Record, boot_id, interrupts_held, marked, start_ticks, sweep

SLEEP = ["sleep", "600"]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateFolder]:
    folder = StateFolder.at(tmp_path / "state")
    yield folder
    sweep(folder)


def test_a_started_process_is_seen_by_another_view_and_stopped_by_it(state: StateFolder) -> None:
    Process("one", state).start(SLEEP)
    other = Process("one", state)
    assert other.pid is not None
    assert os.getsid(other.pid) == other.pid, "Ctrl-C at the terminal must not reach it"
    other.stop()
    assert other.pid is None
    assert marked(state) == []


def test_starting_twice_keeps_the_first(state: StateFolder) -> None:
    process = Process("one", state)
    process.start(SLEEP)
    first = process.pid
    Process("one", state).start(SLEEP)
    assert process.pid == first
    # A process that has only just become its program shows no environment for a moment.
    process.wait_ready(lambda: bool(marked(state)), 60)
    assert marked(state) == [first]


def test_a_recycled_pid_is_never_signalled(state: StateFolder) -> None:
    bystander = subprocess.Popen(SLEEP)
    ticks = start_ticks(bystander.pid)
    assert ticks is not None
    for record in (
        Record(bystander.pid, ticks - 1, boot_id(), SLEEP),
        Record(bystander.pid, ticks, "another boot", SLEEP),
    ):
        (state.run / "one.json").write_bytes(msgspec.json.encode(record))
        process = Process("one", state)
        assert process.pid is None
        process.stop()
        assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_broken_record_counts_as_not_running(state: StateFolder) -> None:
    (state.run / "one.json").write_text("{")
    assert Process("one", state).pid is None


def test_one_that_ignores_term_is_killed_after_the_grace(state: StateFolder) -> None:
    process = Process("stubborn", state)
    ignoring = "import signal,time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    process.start([sys.executable, "-c", ignoring])
    process.wait_ready(lambda: "on" in process.tail(), 20)
    process.stop(grace_s=0.2)
    assert marked(state) == []


def test_the_exit_code_is_told_by_whoever_started_it(state: StateFolder) -> None:
    """Killed and asked at once: `pid` may be None before the code is there."""
    process = Process("one", state)
    process.start(SLEEP)
    assert process.exit_code(deadline_s=0.05) is None
    assert Process("one", state).exit_code() is None
    process.signal(signal.SIGKILL)
    assert process.exit_code() == -9


def test_children_that_outlive_their_parent_are_ended_too(state: StateFolder) -> None:
    process = Process("parent", state)
    process.start(["bash", "-c", "sleep 600 & echo on; wait"])
    process.wait_ready(lambda: "on" in process.tail(), 20)
    process.kill()
    assert len(marked(state)) == 1
    process.stop()
    assert marked(state) == []


def test_a_process_whose_record_was_never_written_is_found(state: StateFolder) -> None:
    """As when the starter is killed between fork and record."""
    orphan = subprocess.Popen(SLEEP, env={**os.environ, MARK: str(state.root), NAME_MARK: "one"})
    assert Process("one", state).pid is None
    Process("one", state).start(SLEEP)
    assert orphan.wait(10) == -signal.SIGKILL
    assert sweep(state) == 1
    assert marked(state) == []


def test_a_process_that_lost_its_environment_is_found_by_its_record(state: StateFolder) -> None:
    process = Process("cleared", state)
    process.start(["env", "-i", *SLEEP])
    process.wait_ready(lambda: marked(state) == [], 10)
    assert sweep(state) == 1
    assert process.pid is None


def test_one_that_ends_at_start_tells_the_end_of_its_log(state: StateFolder) -> None:
    process = Process("broken", state)
    process.start(["bash", "-c", "echo no such disk; exit 1"])
    with pytest.raises(StackFault, match="no such disk"):
        process.wait_ready(lambda: False, 20)


def test_one_that_is_never_ready_is_named_with_its_deadline(state: StateFolder) -> None:
    process = Process("slow", state)
    process.start(SLEEP)
    with pytest.raises(StackFault, match="slow was not ready after 0 s"):
        process.wait_ready(lambda: False, 0.2)


def test_a_program_that_does_not_exist_is_a_stack_fault(state: StateFolder) -> None:
    with pytest.raises(StackFault, match="absent cannot be started"):
        Process("absent", state).start([str(state.root / "absent")])


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
