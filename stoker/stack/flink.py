"""A Flink job on a cluster of its own: application mode, one single-slot TaskManager per parallel instance (DESIGN §6).

One process is one interpreter lock, so two slots in one process would not run Python side by side; and a TaskManager
keeps imported modules, so it must not outlive its job. Everything is a plain process that may be killed: a lost
TaskManager is replaced, a lost JobManager is started again from the newest retained checkpoint.

    app = start_application("warmup", PROJECT / "jobs/warmup.py", ["--bootstrap", ...], state=state, parallelism=2)
    app.taskmanager(0).kill(); app.restart_taskmanager(0); app.wait_running()
    app.kill_jobmanager(); app.restart_jobmanager()
    path = app.stop_with_savepoint()
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import msgspec

from schemas.errors import BrokenConfiguration, StackFault, TransientFault
from stoker.stack import ports
from stoker.stack.flink_config import FlinkConfig, FlinkFolder
from stoker.stack.flink_rest import FlinkRest, JobHealth
from stoker.stack.paths import StateFolder
from stoker.stack.process import Process

READY_S = 300.0
"""First start to every task running takes 15-25 s on a quiet machine, ten times that on one that is overloaded."""


class ApplicationRecord(msgspec.Struct, frozen=True):
    """What is kept on disk of an application, so that another process can stop it.

    Attributes:
        name: of the application; its processes are NAME-jobmanager and NAME-taskmanager-I.
        script: the job's Python file, absolute.
        args: its arguments.
        parallelism: of every operator.
        job_id: Flink's, chosen by us at each start of the JobManager.
        rest_port, rpc_port: of the JobManager.
        restored_from: checkpoint or savepoint of the latest start; empty for a fresh one.
        config: the cluster's settings.
    """

    name: str
    script: str
    args: list[str]
    parallelism: int
    job_id: str
    rest_port: int
    rpc_port: int
    restored_from: str
    config: FlinkConfig

    @property
    def taskmanagers(self) -> int:
        """How many there are, each with one slot."""
        return self.parallelism * self.config.subtask_slots


def start_application(
    name: str,
    job_script: Path | str,
    args: Sequence[str] = (),
    *,
    state: StateFolder,
    parallelism: int = 1,
    savepoint: Path | str | None = None,
    config: FlinkConfig | None = None,
    ready_s: float = READY_S,
) -> FlinkApplication:
    """Start a job and wait until every task runs.

    Args:
        name: of the application, unique in the state folder.
        job_script: the Python file whose `main` builds and executes the job.
        args: its arguments.
        state: the stack's folder; configuration, logs, checkpoints and savepoints go there.
        parallelism: Flink's default; `config.subtask_slots` times as many TaskManagers are started, with one slot each.
        savepoint: savepoint or retained checkpoint to start from; it may come from another parallelism.
        config: cluster settings.
        ready_s: how long to wait for all tasks.

    Raises:
        BrokenConfiguration: script or savepoint do not exist, or an application of that name runs already.
        StackFault: the cluster or the job did not come up; whatever was started is ended again.
    """
    script = Path(job_script).absolute()
    if not script.is_file():
        raise BrokenConfiguration(f"the job {script} does not exist")
    restored = _path_of(savepoint)
    if name in {app.name for app in applications(state) if app.running}:
        raise BrokenConfiguration(f"an application {name} runs already: stop it first")
    config = config or FlinkConfig()
    record = ApplicationRecord(
        name=name,
        script=str(script),
        args=list(args),
        parallelism=parallelism,
        job_id=uuid.uuid4().hex,
        rest_port=config.rest_port or ports.free_port(),
        rpc_port=config.rpc_port or ports.free_port(),
        restored_from=restored,
        config=config,
    )
    app = FlinkApplication(record, state)
    for port in (record.rest_port, record.rpc_port):
        ports.demand_free(port, f"Flink application {name}", "another port")
    shutil.rmtree(app.folder.checkpoints, ignore_errors=True)  # of an earlier life; savepoints stay
    try:
        app._start_all()
        app.wait_running(ready_s)
    except BaseException:  # Ctrl-C too: a half-started cluster must not stay
        app.stop()
        raise
    return app


def _path_of(savepoint: Path | str | None) -> str:
    if savepoint is None:
        return ""
    path = Path(str(savepoint).removeprefix("file:")).absolute()
    if not (path / "_metadata").is_file():
        raise BrokenConfiguration(f"{path} is no savepoint or checkpoint: it has no _metadata file")
    return str(path)


def applications(state: StateFolder) -> list[FlinkApplication]:
    """The applications that this state folder knows, running or not."""
    records = sorted((state.root / "data" / "flink").glob("*/application.json"))
    return [FlinkApplication(msgspec.json.decode(path.read_bytes(), type=ApplicationRecord), state) for path in records]


def load_application(name: str, state: StateFolder) -> FlinkApplication:
    """The application of that name.

    Raises:
        BrokenConfiguration: there is none; the message lists those that are.
    """
    known = {app.name: app for app in applications(state)}
    if name not in known:
        raise BrokenConfiguration(f"no application {name} in {state.root}; known: {', '.join(known) or 'none'}")
    return known[name]


class FlinkApplication:
    """One application: its processes, its REST client and its checkpoints. Made by `start_application` or loaded.

    Args:
        record: what is on disk about it.
        state: the stack's folder.
    """

    def __init__(self, record: ApplicationRecord, state: StateFolder) -> None:
        self.record = record
        self._state = state
        self.folder = FlinkFolder(state.data(f"flink/{record.name}"))
        self._processes: dict[str, Process] = {}

    @property
    def name(self) -> str:
        """Name of the application."""
        return self.record.name

    @property
    def job_id(self) -> str:
        """Flink's id of the job; a new one after `restart_jobmanager`."""
        return self.record.job_id

    @property
    def rest_url(self) -> str:
        """Where the JobManager's REST interface and web page are."""
        return f"http://{ports.LOOPBACK}:{self.record.rest_port}"

    @property
    def jobmanager(self) -> Process:
        """The JobManager's process."""
        return self._process(f"{self.name}-jobmanager")

    def taskmanager(self, index: int) -> Process:
        """The process of one TaskManager, counted from 0; `.kill()` is a kill -9."""
        return self._process(f"{self.name}-taskmanager-{index}")

    def _process(self, name: str) -> Process:
        return self._processes.setdefault(name, Process(name, self._state))

    @property
    def taskmanagers(self) -> list[Process]:
        """All TaskManagers' processes."""
        return [self.taskmanager(index) for index in range(self.record.taskmanagers)]

    @property
    def running(self) -> bool:
        """Whether its JobManager's process lives."""
        return self.jobmanager.pid is not None

    def rest(self) -> FlinkRest:
        """A new REST client; close it."""
        return FlinkRest(self.rest_url)

    def health(self) -> JobHealth:
        """The job's health now.

        Raises:
            TransientFault: the JobManager does not answer, or does not know the job yet.
        """
        rest = self.rest()
        try:
            return rest.health(self.job_id)
        finally:
            rest.close()

    def wait_running(self, deadline_s: float = READY_S) -> JobHealth:
        """Wait until every task runs.

        Raises:
            StackFault: the job failed for good, the JobManager died, or the deadline passed.
        """
        deadline = time.monotonic() + deadline_s
        last = "no answer yet"
        while time.monotonic() < deadline:
            try:
                health = self.health()
                if health.at_work:
                    return health
                if health.state in ("FAILED", "FINISHED", "CANCELED"):
                    raise StackFault(
                        f"job {self.name} is {health.state}: {health.newest_failure}; see {self.jobmanager.log}"
                    )
                last = f"{health.state}, {health.tasks_running} of {health.tasks_total} tasks; {health.newest_failure}"
            except TransientFault as fault:
                last = str(fault)
                self._check_script()
            if not self.running:
                raise StackFault(
                    f"the JobManager of {self.name} ended; {self.jobmanager.log}:\n{self.jobmanager.tail(25)}"
                )
            time.sleep(0.2)
        raise StackFault(f"job {self.name} does not run after {deadline_s:.0f} s ({last}); see {self.jobmanager.log}")

    def _check_script(self) -> None:
        """Tell a script that raised from a job that is only slow to appear."""
        rest = self.rest()
        try:
            failed = rest.script_failed()
        except TransientFault:
            return
        finally:
            rest.close()
        if failed:
            lines = [line for line in self.jobmanager.tail(400).splitlines() if not line.startswith("\tat ")]
            traces = [at for at, line in enumerate(lines) if line.startswith("Traceback")]
            shown = lines[traces[-1] : traces[-1] + 20] if traces else lines[-20:]
            raise StackFault(f"the script of {self.name} failed; {self.jobmanager.log}:\n" + "\n".join(shown))

    def wait_checkpoint(self, more: int = 1, deadline_s: float = 120.0) -> Path:
        """Wait until `more` further checkpoints are complete; returns the newest."""
        wanted = self.health().checkpoints_completed + more
        deadline = time.monotonic() + deadline_s
        while time.monotonic() < deadline:
            newest = self.newest_checkpoint()
            if newest is not None and self.health().checkpoints_completed >= wanted:
                return newest
            time.sleep(0.1)
        raise StackFault(f"no checkpoint of {self.name} within {deadline_s:.0f} s: {self.health()}")

    def newest_checkpoint(self) -> Path | None:
        """The newest complete checkpoint of this application, of whichever life of its JobManager."""
        return self.folder.newest_checkpoint()

    def kill_jobmanager(self) -> None:
        """kill -9 of the JobManager, as a crash would."""
        self.jobmanager.kill()

    def restart_jobmanager(self, ready_s: float = READY_S) -> JobHealth:
        """Start the JobManager again from the newest checkpoint, with fresh TaskManagers, and wait for all tasks.

        Without a checkpoint it starts from where it started before (a savepoint, or nothing).
        """
        for process in (self.jobmanager, *self.taskmanagers):
            process.stop(grace_s=0.0)
        newest = self.newest_checkpoint()
        restored = str(newest) if newest is not None else self.record.restored_from
        self.record = msgspec.structs.replace(self.record, job_id=uuid.uuid4().hex, restored_from=restored)
        self._start_all()
        return self.wait_running(ready_s)

    def kill_taskmanager(self, index: int = 0) -> None:
        """kill -9 of one TaskManager, as a crash would."""
        self.taskmanager(index).kill()

    def restart_taskmanager(self, index: int = 0) -> None:
        """Start one TaskManager afresh, ending what is left of the old. `wait_running` tells when the job is back."""
        self.taskmanager(index).stop(grace_s=0.0)
        self._start_taskmanager(index)

    def stop_with_savepoint(self, folder: Path | None = None, deadline_s: float = 120.0) -> Path:
        """Stop the job with a savepoint, end its processes, return the savepoint's path.

        Raises:
            StackFault: no savepoint was made; the job runs on.
        """
        rest = self.rest()
        try:
            made = rest.stop_with_savepoint(self.job_id, f"file://{folder or self.folder.savepoints}", deadline_s)
        finally:
            rest.close()
        self.stop()
        return Path(made.removeprefix("file:"))

    def stop(self) -> None:
        """End the job's processes without a savepoint; checkpoints stay on disk. Harmless when nothing runs."""
        for process in (*self.taskmanagers, self.jobmanager):
            process.signal(15)
        for process in (*self.taskmanagers, self.jobmanager):
            process.stop(grace_s=10.0)

    def _start_all(self) -> None:
        record = self.record
        self.folder.prepare(record.config, record.rest_port, record.rpc_port, record.parallelism)
        (self.folder.root / "application.json").write_bytes(msgspec.json.encode(record))
        command = self.folder.jobmanager_command(
            record.config, record.job_id, record.restored_from, record.script, record.args
        )
        self.jobmanager.start(command, self.folder.environment())
        for index in range(record.taskmanagers):
            self._start_taskmanager(index)

    def _start_taskmanager(self, index: int) -> None:
        self.taskmanager(index).start(self.folder.taskmanager_command(self.record.config), self.folder.environment())
