"""Kafka of the embedded stack: one KRaft node, plaintext on the loopback, started from the jars.

Formats its folder on first use; after a crash it recovers from the same folder.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import StackFault
from stoker.stack import ports
from stoker.stack.java import java_home
from stoker.stack.paths import StateFolder, jars
from stoker.stack.process import Process
from stoker.stack.topics import broker_ready

CLUSTER_ID = "c3Rva2VyLWxvY2FsLTAwMQ"
"""Any 16 bytes in base64: the embedded cluster is alone."""
READY_S = 90.0
"""Ready after 2-4 s, 12 s after a kill under load (stack.md); the rest is for busy machines."""


@dataclass(frozen=True)
class KafkaConfig:
    """Ports and size of the broker.

    Attributes:
        port: for clients.
        controller_port: for the broker's own controller.
        heap_mb: Java heap; 360 MB resident at 512.
        partitions: default of a topic that is made without saying how many.
        properties: further server properties by their names in Kafka; they replace those of this module. The listener
            PLAINTEXT on `port` has to stay: it is how the stack sees that the broker is ready.
    """

    port: int = 9092
    controller_port: int = 9093
    heap_mb: int = 512
    partitions: int = 4
    properties: Mapping[str, str] = field(default_factory=dict)


class Kafka:
    """The broker process.

    Args:
        config: ports and size.
        state: the stack's folder.
        name: of the process; a second broker in one folder needs another.
    """

    def __init__(self, config: KafkaConfig, state: StateFolder, name: str = "kafka") -> None:
        self.config = config
        self.process = Process(name, state)
        self._data = state.data(name)

    @property
    def bootstrap(self) -> str:
        """What clients connect to."""
        return f"{ports.LOOPBACK}:{self.config.port}"

    def start(self, ready_s: float = READY_S) -> None:
        """Start and wait until it answers; harmless when it runs.

        Raises:
            StackFault: jars or Java missing, port taken, or it did not come up.
        """
        if self.process.pid is None:
            self.process.end_leftovers()
            ports.demand_free(self.config.port, "Kafka", "--kafka-port")
            ports.demand_free(self.config.controller_port, "Kafka's controller", "--kafka-controller-port")
            properties = self._data / "server.properties"
            properties.write_text(self._properties())
            self._format(properties)
            self.process.start([*self._java(), "kafka.Kafka", str(properties)], cwd=self._data)
        self.process.wait_ready(lambda: broker_ready(self.bootstrap), ready_s)

    def stop(self) -> None:
        """End it gently; harmless when it does not run."""
        self.process.stop(grace_s=30.0)

    def _java(self) -> list[str]:
        class_path = jars("kafka")[0].parent / "*"
        return [
            str(java_home() / "bin" / "java"),
            f"-Xmx{self.config.heap_mb}m",
            f"-Xms{self.config.heap_mb // 2}m",
            "-XX:+UseSerialGC",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            str(class_path),
        ]

    def _format(self, properties: Path) -> None:
        logs = self._data / "logs"
        if (logs / "meta.properties").exists():
            return
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), "-g"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._data)
        if done.returncode != 0:
            raise StackFault(f"Kafka's folder {logs} could not be formatted: {done.stdout}{done.stderr}")

    def _properties(self) -> str:
        client, controller = self.config.port, self.config.controller_port
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{ports.LOOPBACK}:{controller}",
            "listeners": f"PLAINTEXT://{ports.LOOPBACK}:{client},CONTROLLER://{ports.LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{ports.LOOPBACK}:{client}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._data / "logs"),
            "num.partitions": str(self.config.partitions),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": str(self.config.partitions),
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": str(self.config.partitions),
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker may register again only when its old session is over: 9 s by default.
            "broker.session.timeout.ms": "5000",
            "broker.heartbeat.interval.ms": "1000",
            "auto.create.topics.enable": "false",
            "message.max.bytes": "2097152",
            "num.network.threads": "2",
            "num.io.threads": "4",
            **self.config.properties,
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())
