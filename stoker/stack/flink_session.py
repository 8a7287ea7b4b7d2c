"""A Flink session cluster, which plain `flink run -py jobs/warmup.py` targets.

TaskManagers keep imported Python modules: after a change of code the cluster must be started anew (stack.md, trap 3).
`start_application` has no such trap and is what `stoker submit` uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stoker.stack import ports
from stoker.stack.flink_config import FlinkConfig, FlinkFolder
from stoker.stack.flink_rest import FlinkRest
from stoker.stack.paths import StateFolder
from stoker.stack.process import Process

READY_S = 120.0
NAME = "flink-session"


@dataclass(frozen=True)
class SessionConfig:
    """Size and settings.

    Attributes:
        slots: TaskManagers, each with one slot: the sum of the parallelism of all jobs it can hold.
        flink: cluster settings; its ports should be fixed ones for people.
    """

    slots: int = 2
    flink: FlinkConfig = field(default_factory=lambda: FlinkConfig(rest_port=8081, rpc_port=6123))


class FlinkSession:
    """JobManager and TaskManagers.

    Args:
        config: size and settings; ports must not be 0.
        state: the stack's folder.
    """

    def __init__(self, config: SessionConfig, state: StateFolder) -> None:
        self.config = config
        self.folder = FlinkFolder(state.data(f"flink/{NAME}"))
        self.jobmanager = Process(f"{NAME}-jobmanager", state)
        self.taskmanagers = [Process(f"{NAME}-taskmanager-{index}", state) for index in range(config.slots)]

    @property
    def rest_url(self) -> str:
        """REST interface and web page."""
        return f"http://{ports.LOOPBACK}:{self.config.flink.rest_port}"

    def start(self, ready_s: float = READY_S) -> None:
        """Start what does not run and wait until every slot is registered.

        Raises:
            StackFault: port taken, or the cluster did not come up.
        """
        flink = self.config.flink
        if self.jobmanager.pid is None:
            self.jobmanager.end_leftovers()
            ports.demand_free(flink.rest_port, "Flink's REST interface", "--flink-port")
            ports.demand_free(flink.rpc_port, "Flink's JobManager", "--flink-rpc-port")
            self.folder.prepare(flink, flink.rest_port, flink.rpc_port, parallelism=1)
            self.jobmanager.start(self.folder.session_command(flink), self.environment)
        for taskmanager in self.taskmanagers:
            taskmanager.start(self.folder.taskmanager_command(flink), self.environment)
        self.jobmanager.wait_ready(self.ready, ready_s)

    def ready(self) -> bool:
        """Whether the JobManager answers and all TaskManagers are registered."""
        rest = FlinkRest(self.rest_url, timeout_s=2.0)
        try:
            return rest.answers() and int(rest.get("/overview")["taskmanagers"]) >= self.config.slots
        finally:
            rest.close()

    def stop(self) -> None:
        """End it and all jobs; harmless when it does not run."""
        for process in (*self.taskmanagers, self.jobmanager):
            process.stop(grace_s=10.0)

    @property
    def environment(self) -> dict[str, str]:
        """What a client such as `flink run` needs in its environment to reach this cluster."""
        return self.folder.environment()
