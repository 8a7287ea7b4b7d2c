from __future__ import annotations

import subprocess
import sys
import time

import pytest

from schemas.topics import REQUESTS, TOPICS
from stoker.stack.kafka import Kafka
from stoker.stack.topics import create_topics, differences

pytestmark = pytest.mark.service


def test_topics_are_as_the_schemas_say(kafka_bootstrap: str) -> None:
    assert differences(kafka_bootstrap) == []


def test_creating_topics_again_creates_none(kafka_bootstrap: str) -> None:
    assert create_topics(kafka_bootstrap) == []


def test_a_prefix_gives_own_topics(kafka_bootstrap: str) -> None:
    assert create_topics(kafka_bootstrap, "prefixed.") == [f"prefixed.{topic.name}" for topic in TOPICS]
    assert differences(kafka_bootstrap, "prefixed.") == []
    assert differences(kafka_bootstrap, "absent.")[0] == "topic absent.llm.requests: exists is no, expected yes"


def test_the_module_makes_topics_for_containers(kafka_bootstrap: str) -> None:
    command = [sys.executable, "-m", "stoker.stack.topics", kafka_bootstrap, "container."]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first.startswith(f"{len(TOPICS)} topics created")
    assert second == "0 topics created: all were there\n"


def test_a_record_from_the_future_is_refused(kafka_bootstrap: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = KafkaProducer(bootstrap_servers=kafka_bootstrap)
    ahead_ms = int(time.time() * 1000) + 120_000
    with pytest.raises(KafkaError):
        producer.send(REQUESTS.name, b"{}", timestamp_ms=ahead_ms).get(timeout=120)
    producer.close()


def test_records_survive_a_killed_broker(kafka_server: Kafka) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    create_topics(kafka_server.bootstrap, "killed.")
    producer = KafkaProducer(bootstrap_servers=kafka_server.bootstrap)
    producer.send("killed.llm.rewards", b"one").get(timeout=120)
    producer.close()
    kafka_server.process.kill()
    assert kafka_server.process.pid is None
    kafka_server.start()
    consumer = KafkaConsumer(
        "killed.llm.rewards",
        bootstrap_servers=kafka_server.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=120_000,
    )
    assert next(consumer).value == b"one"
    consumer.close()
