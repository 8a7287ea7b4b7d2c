"""One supervised process: its record on disk, start, readiness, stop, and what an earlier run left behind.

A record is trusted only while the kernel's start time of that pid is the recorded one, so a recycled pid is never
signalled. Every process carries its state folder in the environment (`STOKER_STACK`), its children inherit it: even one
whose record was never written, because its starter was killed, is found and ended by `sweep`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from schemas.errors import StackFault
from stoker.stack.paths import StateFolder

MARK = "STOKER_STACK"
"""Environment variable with the state folder; NAME_MARK holds the process's name."""
NAME_MARK = "STOKER_STACK_NAME"


class Record(msgspec.Struct, frozen=True):
    """What is kept of a started process. `start_ticks` and `boot_id` make the pid unambiguous."""

    pid: int
    start_ticks: int
    boot_id: str
    command: list[str]


def boot_id() -> str:
    """The kernel's id of this boot; start times are counted from it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None when it is gone, or a zombie whose last thread has ended.

    A killed process is a zombie while its other threads still end, and those hold its ports.
    """
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        gone = after_name[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) < 2
    except (OSError, IndexError):
        return None
    return None if gone else int(after_name[19])


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block ends, so that a start is either recorded or did not happen."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python hands signals to the main thread only
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {sign: signal.signal(sign, note) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        for number in came[:1]:
            signal.raise_signal(number)


class Process:
    """A named process of one stack. Objects are cheap views: two of the same name and folder see the same process.

    Args:
        name: unique in the folder; names record and log.
        state: the stack's folder.
    """

    def __init__(self, name: str, state: StateFolder) -> None:
        self.name = name
        self._state = state
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Where standard output and error go."""
        return self._state.logs / f"{self.name}.log"

    @property
    def _record_path(self) -> Path:
        return self._state.run / f"{self.name}.json"

    @property
    def pid(self) -> int | None:
        """The pid while it runs, else None."""
        if self._child is not None:
            self._child.poll()  # reaps, so that a dead child is no zombie
        try:
            record = msgspec.json.decode(self._record_path.read_bytes(), type=Record)
        except (OSError, msgspec.MsgspecError):
            return None
        alive = record.boot_id == boot_id() and start_ticks(record.pid) == record.start_ticks
        return record.pid if alive else None

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        """Start it in a session of its own; a running one is left alone.

        Args:
            command: program and arguments.
            env: added to this process's environment.
            cwd: working directory; the state folder by default.

        Raises:
            StackFault: when the program cannot be executed.
        """
        if self.pid is not None:
            return
        self.end_leftovers()
        full = {**os.environ, **(env or {}), MARK: str(self._state.root), NAME_MARK: self.name}
        with self.log.open("ab") as log, interrupts_held():
            try:
                self._child = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=full,
                    cwd=cwd or self._state.root,
                    start_new_session=True,
                )
            except OSError as error:
                raise StackFault(f"{self.name} cannot be started: {error}") from error
            ticks = start_ticks(self._child.pid) or 0
            record = Record(self._child.pid, ticks, boot_id(), list(command))
            partial = self._record_path.with_suffix(".new")
            partial.write_bytes(msgspec.json.encode(record))
            partial.rename(self._record_path)

    def exit_code(self, deadline_s: float = 60.0) -> int | None:
        """Wait for the end of the child that this object started.

        `pid` may be None a moment before the kernel hands the code over.

        Returns:
            its exit code, minus the signal where one ended it; None where it still runs or another object started it.
        """
        if self._child is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(deadline_s)
        return self._child.returncode

    def wait_ready(self, ready: Callable[[], bool], deadline_s: float) -> None:
        """Wait until `ready()`; it is asked again every 50 ms.

        Raises:
            StackFault: when the process ends first or the deadline passes; the message holds the end of its log.
        """
        deadline = time.monotonic() + deadline_s
        while not ready():
            if self.pid is None:
                raise StackFault(f"{self.name} ended while it started; the end of {self.log}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise StackFault(
                    f"{self.name} was not ready after {deadline_s:.0f} s; the end of {self.log}:\n{self.tail()}"
                )
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        """Send a signal to the process itself, not to its children (tests freeze and kill with it)."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """kill -9 of the process alone, and wait until it is gone. The record stays, as after a real crash."""
        self.signal(signal.SIGKILL)
        self._wait_gone(10.0)

    def stop(self, grace_s: float = 15.0) -> None:
        """TERM, then KILL after `grace_s`, for it and all that it started. Harmless when nothing runs."""
        self.signal(signal.SIGTERM)
        self._wait_gone(grace_s)
        self.signal(signal.SIGKILL)
        self._wait_gone(10.0)
        self.end_leftovers()
        self._record_path.unlink(missing_ok=True)

    def end_leftovers(self) -> None:
        """Kill children that outlived the process, and one whose record was never written. They may hold its ports."""
        _end(marked(self._state, self.name), signal.SIGKILL, 10.0)

    def _wait_gone(self, deadline_s: float) -> None:
        deadline = time.monotonic() + deadline_s
        while self.pid is not None and time.monotonic() < deadline:
            time.sleep(0.02)

    def tail(self, lines: int = 15) -> str:
        """The last lines of its log."""
        if not self.log.exists():
            return "(no log)"
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 20_000))
            return b"\n".join(file.read().splitlines()[-lines:]).decode(errors="replace")


def marked(state: StateFolder, name: str | None = None) -> list[int]:
    """Pids whose environment says that this stack (and this name) started them; never this process itself."""
    wanted = {f"{MARK}={state.root}".encode()}
    if name is not None:
        wanted.add(f"{NAME_MARK}={name}".encode())
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")) and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def sweep(state: StateFolder) -> int:
    """End every process that this stack ever started and forget the records. Returns how many were still there."""
    left = living(state)
    _end(left, signal.SIGTERM, 10.0)
    _end(living(state), signal.SIGKILL, 10.0)
    for record in state.run.glob("*.json"):
        record.unlink()
    return len(left)


def living(state: StateFolder) -> list[int]:
    """Everything marked and everything recorded: a program may overwrite its own environment to set its title."""
    recorded = (Process(path.stem, state).pid for path in state.run.glob("*.json"))
    return sorted({*marked(state), *(pid for pid in recorded if pid is not None)})


def _end(pids: Sequence[int], number: int, patience_s: float) -> None:
    """Signal processes and wait until they are gone, with their threads and what those hold."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    deadline = time.monotonic() + patience_s
    while any(start_ticks(pid) is not None for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
