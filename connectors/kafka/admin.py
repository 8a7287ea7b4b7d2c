"""Topics on a real broker: create what is missing, name what differs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from connectors.kafka.base import Difference
from connectors.kafka.faults import connecting, sorted_fault, sorted_faults
from connectors.kafka.security import client_options
from connectors.settings import KafkaSettings
from schemas.topics import TOPICS, Topic

UNFENCE_S = 30.0
"""How long a broker may be out of the cluster's sight, as after a start or a stall, before a topic is refused."""


class KafkaAdmin:
    """`Admin` on a real broker.

    Args:
        settings: where Kafka is.
        connect_timeout_ms: how long to look for a broker before `StackFault`.
    """

    def __init__(self, settings: KafkaSettings, *, connect_timeout_ms: int = 10_000) -> None:
        self._settings = settings
        with connecting(settings):
            self._client = KafkaAdminClient(
                **client_options(settings), client_id="stoker-admin", bootstrap_timeout_ms=connect_timeout_ms
            )

    def create(self, topics: Sequence[Topic] = TOPICS, *, local: bool = True, replication: int = 1) -> list[str]:
        """Create the topics that do not exist; see `Admin.create`."""
        wanted: dict[str, dict[str, Any]] = {
            self._settings.topic(topic): {
                "num_partitions": topic.partitions_local if local else topic.partitions,
                "replication_factor": replication,
                "configs": topic.config(),
            }
            for topic in topics
        }
        with sorted_faults("creating topics"):
            existing = self.names()
            missing = {name: spec for name, spec in wanted.items() if name not in existing}
            if not missing:
                return []
            created = self._create(dict(missing))
            self._client.wait_for_topics(list(missing))
        return [name for name in wanted if name in created]

    def _create(self, missing: dict[str, dict[str, Any]]) -> list[str]:
        """Takes out of `missing` what exists by now."""
        deadline = time.monotonic() + UNFENCE_S
        created: list[str] = []
        while missing:
            for topic in self._client.create_topics(missing, raise_errors=False)["topics"]:
                name, kind, text = topic["name"], errors.for_code(topic["error_code"]), topic.get("error_message") or ""
                if kind is errors.InvalidReplicationFactorError and "fenced" in text and time.monotonic() < deadline:
                    continue
                if kind not in (errors.NoError, errors.TopicAlreadyExistsError):
                    raise sorted_fault(kind(text), f"creating topic {name}")
                if kind is errors.NoError:
                    created.append(name)
                del missing[name]
            if missing:
                time.sleep(0.5)
        return created

    def check(self, topics: Sequence[Topic] = TOPICS, *, local: bool = True) -> list[Difference]:
        """Compare broker and plan; see `Admin.check`."""
        differences = []
        with sorted_faults("checking topics"):
            existing = self.names()
            present = [topic for topic in topics if self._settings.topic(topic) in existing]
            names = [self._settings.topic(topic) for topic in present]
            described = {t["name"]: t for t in self._client.describe_topics(names)} if names else {}
            resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
            configs = self._client.describe_configs(resources, config_filter="all")["topic"] if names else {}
        for topic in topics:
            name = self._settings.topic(topic)
            if name not in described:
                differences.append(Difference(name, "exists", "yes", "no"))
                continue
            expected = topic.partitions_local if local else topic.partitions
            found = len(described[name]["partitions"])
            if found != expected:
                differences.append(Difference(name, "partitions", str(expected), str(found)))
            for setting, value in topic.config().items():
                on_broker = str(configs[name].get(setting, {}).get("value"))
                if on_broker != value:
                    differences.append(Difference(name, setting, value, on_broker))
        return differences

    def names(self) -> frozenset[str]:
        """Full names of all topics; see `Admin.names`."""
        with sorted_faults("listing topics"):
            return frozenset(name for name in self._client.list_topics() if not name.startswith("__"))

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics; see `Admin.delete`."""
        with sorted_faults("deleting topics"):
            existing = self.names()
            doomed = [name for name in names if name in existing]
            if doomed:
                self._client.delete_topics(doomed)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()
