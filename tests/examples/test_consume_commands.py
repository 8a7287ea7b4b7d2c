"""The example consumer, run as a person would run it, against a real broker."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from connectors.kafka.producer import KafkaRecordProducer
from connectors.settings import KafkaSettings
from schemas import PlannerState, Prefix, Reason, Segment, WarmupCommand, encode
from schemas.canonical import h128, prefix_key
from schemas.topics import COMMANDS, INSIGHTS
from stoker.stack.paths import PROJECT

HASH = h128("example")
COMMAND = WarmupCommand(
    command_id=HASH,
    scope="shop",
    tenant="shop",
    pool="main",
    target=Prefix(model="tiny", segments=(Segment(HASH, 100),)),
    target_key=prefix_key(HASH),
    priority=1,
    lane="tick",
    issued_at_ms=1,
    not_before_ms=1,
    expires_at_ms=2,
    reason=Reason(trigger="hot"),
    unit=HASH,
    arm="hold",
)


@pytest.mark.service
def test_it_prints_commands_and_insights(kafka_bootstrap: str, tmp_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    with KafkaRecordProducer(KafkaSettings(bootstrap=kafka_bootstrap)) as producer:
        producer.send(COMMANDS.name, encode(COMMAND), key=b"main", timestamp_ms=now_ms)
        producer.flush()
        producer.send(
            INSIGHTS.name,
            encode(PlannerState(pool="main", at_ms=1, state="planning")),
            key=b"main",
            timestamp_ms=now_ms,
        )
        producer.flush()
    expected = (
        f"command warm prefix:{HASH} arm hold",
        "insight planner_state/1 main",
    )
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        example = subprocess.Popen(
            [sys.executable, "-u", str(PROJECT / "examples" / "consume_commands.py"), kafka_bootstrap], stdout=out
        )
        try:
            deadline = time.monotonic() + 180
            while time.monotonic() < deadline and example.poll() is None:
                if all(text in printed.read_text() for text in expected):
                    return
                time.sleep(0.1)
            raise AssertionError(f"printed: {printed.read_text()}")
        finally:
            example.terminate()
            example.wait(60)
