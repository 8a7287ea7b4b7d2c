"""Topics on a broker: made as `schemas.topics` says, and compared with it.

`python -m stoker.stack.topics BOOTSTRAP [PREFIX]` makes them from anywhere, as docker-compose.yml does.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.errors import StackFault
from schemas.topics import TOPICS, Topic, topic_name
from stoker.stack import ports

logging.getLogger("kafka").setLevel(logging.CRITICAL)
"""kafka-python logs every refused connection while a broker starts; we report once, as an exception."""


@contextlib.contextmanager
def _admin(bootstrap: str, timeout_ms: int = 10_000) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        client = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=timeout_ms, client_id="stoker-stack")
    except (KafkaError, OSError, ValueError) as error:
        raise StackFault(f"Kafka at {bootstrap} does not answer: {error}") from error
    try:
        yield client
    finally:
        client.close()


def broker_ready(bootstrap: str) -> bool:
    """Whether the broker answers a metadata request and has a controller."""
    if not ports.answers(int(bootstrap.rsplit(":", 1)[1])):
        return False
    try:
        with _admin(bootstrap, timeout_ms=2_000) as admin:
            return bool(admin.describe_cluster().get("brokers"))
    except Exception:  # whatever a half-started broker provokes in the client means "not yet"
        return False


def create_topics(bootstrap: str, prefix: str = "", topics: Sequence[Topic] = TOPICS, local: bool = True) -> list[str]:
    """Make the topics that are missing. Existing ones keep their settings: `differences` tells about those.

    Args:
        bootstrap: brokers.
        prefix: put before every name.
        topics: which.
        local: partitions of the embedded stack and no replicas, else production's and the broker's default.

    Returns:
        The names that were created.
    """
    from kafka.admin import NewTopic
    from kafka.errors import TopicAlreadyExistsError

    with _admin(bootstrap) as admin:
        have = set(admin.list_topics())
        new = [
            NewTopic(
                topic_name(topic, prefix),
                num_partitions=topic.partitions_local if local else topic.partitions,
                replication_factor=1 if local else -1,
                topic_configs=topic.config(),
            )
            for topic in topics
            if topic_name(topic, prefix) not in have
        ]
        with contextlib.suppress(TopicAlreadyExistsError):  # somebody else was quicker
            if new:
                admin.create_topics(new, timeout_ms=30_000, wait_for_metadata=True)
    return [topic.name for topic in new]


def differences(bootstrap: str, prefix: str = "", topics: Sequence[Topic] = TOPICS) -> list[str]:
    """One sentence for every topic that is missing or differs from `schemas.topics`; empty when all is well."""
    from kafka.admin import ConfigResource, ConfigResourceType

    found: list[str] = []
    with _admin(bootstrap) as admin:
        have = set(admin.list_topics())
        for topic in topics:
            name = topic_name(topic, prefix)
            if name not in have:
                found.append(f"topic {name} is missing")
                continue
            described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])["topic"][name]
            settings = {key: entry["value"] for key, entry in described.items()}
            wrong = {key: wanted for key, wanted in topic.config().items() if settings.get(key) != wanted}
            found += [f"topic {name} has {key}={settings.get(key)}, wanted {wrong[key]}" for key in wrong]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m stoker.stack.topics", description="Make the topics of Stoker.")
    parser.add_argument("bootstrap", help="brokers, host:port")
    parser.add_argument("prefix", nargs="?", default="", help="put before every name")
    given = parser.parse_args()
    made = create_topics(given.bootstrap, given.prefix)
    print(f"{len(made)} topics created: {', '.join(made) or 'all were there'}")
