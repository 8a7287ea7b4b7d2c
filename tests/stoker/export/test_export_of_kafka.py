"""`stoker export` against a real broker: everything that a topic holds, once, with a prefix and bounds of time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from connectors.kafka import KafkaRecordProducer
from connectors.settings import KafkaSettings
from schemas import encode
from schemas.topics import REQUESTS
from stoker.cli import build
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.offline import OfflineConfig, offline
from stoker.replay.turns import until
from stoker.stack.topics import create_topics

PREFIX = "export-test."


@pytest.mark.service
def test_what_a_topic_holds_is_exported_once(kafka_bootstrap: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    start_ms = time.time_ns() // 1_000_000 - 60_000  # within the topic's retention
    create_topics(kafka_bootstrap, PREFIX)
    kafka = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=PREFIX)
    turns = until(generated(GeneratedConfig(requests_per_s=10)), 10_000)
    events = list(offline(turns, OfflineConfig(start_ms=start_ms)))
    with KafkaRecordProducer(kafka) as producer:
        sent = [
            producer.send(
                kafka.topic(REQUESTS),
                encode(event),
                key=(event.session or "").encode(),
                timestamp_ms=event.event_time_ms,
            )
            for event in events
        ]
        for delivery in sent:
            delivery.wait(120_000)

    config = tmp_path / "stoker.toml"
    config.write_text(f'[kafka]\nbootstrap = "{kafka_bootstrap}"\ntopic_prefix = "{PREFIX}"\n')
    out, some = tmp_path / "all.parquet", tmp_path / "some.parquet"
    base = ["export", "--topic", REQUESTS.name, "--config", str(config)]
    told = CliRunner().invoke(build(), [*base, "--out", str(out)])
    assert told.exit_code == 0, told.output
    table = pq.read_table(out)
    assert sorted(table["event_id"].to_pylist()) == sorted(event.event_id for event in events)
    bound = ["--from", str(start_ms + 5_000), "--until", str(start_ms + 8_000)]
    CliRunner().invoke(build(), [*base, "--out", str(some), *bound])
    expected = [e.event_id for e in events if start_ms + 5_000 <= e.event_time_ms < start_ms + 8_000]
    assert sorted(pq.read_table(some)["event_id"].to_pylist()) == sorted(expected)
