"""The folder of one Flink cluster: `config.yaml`, log4j files, commands of its processes and their environment.

Thread mode, one slot a TaskManager, aligned exactly-once checkpoints, quick heartbeats (DESIGN §6).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.settings import WarmupSettings
from stoker.stack import flink_java, ports
from stoker.stack.flink_java import MANAGED_MB, NETWORK_MB, class_path, distribution
from stoker.stack.java import java_home
from stoker.stack.paths import PROJECT, python_bin

LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-40c{1} - %m%n%xEx
logger.kafka.name = org.apache.kafka
logger.kafka.level = WARN
logger.pekko.name = org.apache.pekko
logger.pekko.level = WARN
logger.netty.name = org.jboss.netty.channel.DefaultChannelPipeline
logger.netty.level = OFF
"""

LATER_C2 = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400"
    " -XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)
"""A TaskManager compiles for good what has run four times as often as Java's defaults ask for: PyFlink's code is large,
and on a small machine that compiler would take a sixth of the job's time in its first minutes, and gain it little."""
NO_C2 = "-XX:TieredStopAtLevel=1"
"""A JobManager computes next to nothing, and with records in bundles so does the Java of a TaskManager."""


@dataclass(frozen=True)
class FlinkConfig:
    """What may differ between clusters.

    Attributes:
        rest_port: of the JobManager's REST interface and web page; 0 takes a free one.
        rpc_port: of the JobManager; 0 takes a free one.
        metrics_ports: range from which each process takes one for Prometheus.
        checkpoint_interval_ms: aligned exactly-once checkpoints; more than one second costs no latency.
        taskmanager_mb: process size of one TaskManager, which has one slot.
        subtask_slots: slots that one subtask of every operator of the job takes, and so its TaskManagers.
        jobmanager_mb: process size of the JobManager.
        heartbeat_interval_ms, heartbeat_timeout_ms: how soon a dead TaskManager is noticed.
        restart_attempts, restart_delay_ms: fixed-delay restarts of the job.
        state_backend: hashmap or rocksdb.
        jobmanager_host: by which TaskManagers reach the JobManager.
        bind_host: address that everything listens on; 0.0.0.0 in containers.
        compiler: options of the TaskManagers' Java about what it compiles, and when.
    """

    rest_port: int = 0
    rpc_port: int = 0
    metrics_ports: str = "20249-20449"
    checkpoint_interval_ms: int = 5_000
    taskmanager_mb: int = 1_600
    subtask_slots: int = 1
    jobmanager_mb: int = 1_024
    heartbeat_interval_ms: int = 1_000
    heartbeat_timeout_ms: int = 5_000
    restart_attempts: int = 100
    restart_delay_ms: int = 1_000
    state_backend: str = "hashmap"
    jobmanager_host: str = ports.LOOPBACK
    bind_host: str = ports.LOOPBACK
    compiler: str = NO_C2

    @classmethod
    def of_job(cls, warmup: WarmupSettings) -> FlinkConfig:
        """What the job's own settings ask of its cluster."""
        return cls(
            checkpoint_interval_ms=warmup.checkpoint_ms,
            subtask_slots=warmup.subtask_slots,
            compiler=NO_C2 if warmup.bundled else LATER_C2,
        )


@dataclass(frozen=True)
class FlinkFolder:
    """Files of one cluster: configuration, jars, checkpoints, savepoints.

    Attributes:
        root: for what JobManager and TaskManagers share; in the state folder.
        local: for what each process has of its own, if that is another folder (containers).
    """

    root: Path
    local: Path | None = None

    @property
    def own(self) -> Path:
        """Configuration, jars, logs and temporary files."""
        return self.local or self.root

    @property
    def conf(self) -> Path:
        """FLINK_CONF_DIR."""
        return self.own / "conf"

    @property
    def lib(self) -> Path:
        """FLINK_LIB_DIR, of clients such as `flink run`: links to Flink's jars and ours."""
        return self.own / "lib"

    @property
    def checkpoints(self) -> Path:
        """Retained checkpoints, a folder per job id."""
        return self.root / "checkpoints"

    @property
    def savepoints(self) -> Path:
        """Savepoints, unless another folder is asked for."""
        return self.root / "savepoints"

    def newest_checkpoint(self) -> Path | None:
        """The newest complete checkpoint, of whichever life of the JobManager."""
        done = [path.parent for path in self.checkpoints.glob("*/chk-*/_metadata")]
        return max(done, key=lambda path: (path / "_metadata").stat().st_mtime_ns, default=None)

    def prepare(self, config: FlinkConfig, rest_port: int, rpc_port: int, parallelism: int) -> None:
        """Write configuration and the lib folder. Done at every start: a changed setting takes effect then."""
        for path in (self.conf, self.checkpoints, self.savepoints, self.own / "tmp", self.lib):
            path.mkdir(parents=True, exist_ok=True)
        (self.conf / "config.yaml").write_text(self._yaml(config, rest_port, rpc_port, parallelism))
        for name in ("log4j-console.properties", "log4j-cli.properties"):
            (self.conf / name).write_text(LOG4J)
        self._link_jars()

    def jobmanager_command(
        self, config: FlinkConfig, job_id: str, restored_from: str, script: str, args: Sequence[str]
    ) -> list[str]:
        """What starts a JobManager in application mode. `job_id` is a new UUID in hex; `restored_from` may be empty."""
        python = str(python_bin() / "python")
        arguments = ["--job-classname", flink_java.PYTHON_DRIVER, "--job-id", job_id]
        arguments += ["--fromSavepoint", restored_from] if restored_from else []
        arguments += ["-pyclientexec", python, "-pyexec", python, "-py", script, *args]
        return flink_java.jobmanager(flink_java.APPLICATION, self.conf, config.jobmanager_mb, NO_C2, arguments)

    def session_command(self, config: FlinkConfig) -> list[str]:
        """What starts a JobManager that waits for jobs."""
        return flink_java.jobmanager(flink_java.SESSION, self.conf, config.jobmanager_mb, NO_C2)

    def taskmanager_command(self, config: FlinkConfig) -> list[str]:
        """What starts a TaskManager."""
        return flink_java.taskmanager(self.conf, config.taskmanager_mb, config.compiler)

    def _link_jars(self) -> None:
        for old in self.lib.glob("*.jar"):
            old.unlink()
        for jar in class_path():
            (self.lib / jar.name).symlink_to(jar)

    def environment(self) -> dict[str, str]:
        """What processes and clients of this cluster need: this Python first on PATH, Java, configuration, jars."""
        return {
            "PATH": f"{python_bin()}:{distribution() / 'bin'}:{os.environ.get('PATH', '')}",
            "JAVA_HOME": str(java_home()),
            "FLINK_CONF_DIR": str(self.conf),
            "FLINK_LIB_DIR": str(self.lib),
            "FLINK_LOG_DIR": str(self.own / "log"),
            "FLINK_OPT_DIR": str(distribution() / "opt"),
            "FLINK_PLUGINS_DIR": str(distribution() / "plugins"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH", "")])),
            # Spinning threads of numeric libraries starve the JVM on small machines (install.md, 6).
            "OMP_WAIT_POLICY": "passive",
            "OMP_NUM_THREADS": "1",
        }

    def _yaml(self, config: FlinkConfig, rest_port: int, rpc_port: int, parallelism: int) -> str:
        python = python_bin() / "python"
        host, bind = config.jobmanager_host, config.bind_host
        # Alone on a machine a TaskManager is on the loopback; in a container it tells its own name.
        own = f"host: {bind}" if bind == ports.LOOPBACK else "rpc: {port: 6122}"
        return f"""\
env:
  java:
    opts:
      all: {flink_java.shipped_options()}
jobmanager:
  bind-host: {bind}
  rpc: {{address: {host}, port: {rpc_port}}}
  memory: {{process: {{size: {config.jobmanager_mb}m}}}}
taskmanager:
  bind-host: {bind}
  {own}
  numberOfTaskSlots: 1
  memory:
    process: {{size: {config.taskmanager_mb}m}}
    managed: {{size: {MANAGED_MB}m}}
    network: {{min: {NETWORK_MB[0]}m, max: {NETWORK_MB[1]}m}}
parallelism: {{default: {parallelism}}}
rest: {{port: {rest_port}, address: {host}, bind-address: {bind}}}
io: {{tmp: {{dirs: {self.own / "tmp"}}}}}
python:
  execution-mode: thread
  executable: {python}
  client: {{executable: {python}}}
execution:
  # A stopped application keeps its REST interface, so that the savepoint's path can be asked for.
  shutdown-on-application-finish: false
  buffer-timeout: {{interval: 10 ms}}
  checkpointing:
    interval: {config.checkpoint_interval_ms} ms
    mode: EXACTLY_ONCE
    timeout: 60 s
    externalized-checkpoint-retention: RETAIN_ON_CANCELLATION
    dir: file://{self.checkpoints}
    savepoint-dir: file://{self.savepoints}
    tolerable-failed-checkpoints: 10
state:
  backend: {{type: {config.state_backend}, incremental: {"true" if config.state_backend == "rocksdb" else "false"}}}
heartbeat: {{interval: {config.heartbeat_interval_ms}, timeout: {config.heartbeat_timeout_ms}}}
restart-strategy:
  type: fixed-delay
  fixed-delay: {{attempts: {config.restart_attempts}, delay: {config.restart_delay_ms} ms}}
metrics:
  reporters: prom
  reporter:
    prom:
      factory: {{class: org.apache.flink.metrics.prometheus.PrometheusReporterFactory}}
      port: {config.metrics_ports}
"""
