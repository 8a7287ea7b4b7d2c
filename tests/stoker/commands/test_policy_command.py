"""`stoker policy` on a broker in memory: what others wrote does not keep a freeze from getting through."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

import connectors.kafka
from connectors.kafka.fake import MemoryBroker, MemoryConsumer, MemoryProducer
from connectors.settings import KafkaSettings
from schemas import Policy, decode
from schemas.topics import POLICY
from stoker.commands import policy


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    """Where the command line reads and writes."""
    made = MemoryBroker()
    made.add_topic(POLICY.name, 1)
    monkeypatch.setattr(connectors.kafka, "KafkaRecordConsumer", lambda *_, **__: MemoryConsumer(made))
    monkeypatch.setattr(connectors.kafka, "KafkaRecordProducer", lambda *_, **__: MemoryProducer(made))
    monkeypatch.setattr(policy, "_kafka", lambda *_: KafkaSettings())
    return made


def run(*words: str) -> tuple[str, str]:
    """What the command said to stdout and stderr."""
    app = typer.Typer()
    policy.register(app)
    app.callback()(lambda: None)
    result = CliRunner().invoke(app, ["policy", *words])
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def test_records_that_cannot_be_read_are_told_and_passed_over(broker: MemoryBroker) -> None:
    for value in (b"not json", b'{"schema":"policy/1","scope":"*","section":"future"}', None):
        broker.append(POLICY.name, 0, b"k", value, 0, ())
    run("set", "plan", "copies=2")
    _, warned = run("freeze", "an engine burns", "--scope", "acme")
    assert "warmup.policy, partition 0, offset 0" in warned
    assert "offset 1" in warned
    assert "offset 2" not in warned
    written = decode(broker.logs[broker.partitions(POLICY.name)[0]][-1].value or b"", Policy)
    assert (written.scope, written.section, written.body["frozen"]) == ("acme", "freeze", True)
    shown, _ = run("get")
    assert [json.loads(line)["section"] for line in shown.splitlines()] == ["plan", "freeze"]


@pytest.mark.usefixtures("broker")
def test_a_further_change_keeps_the_other_keys_and_raises_the_version() -> None:
    run("set", "plan", "copies=2")
    run("set", "plan", "shadow=true")
    shown, _ = run("get")
    assert json.loads(shown)["body"] == {"copies": 2, "shadow": True}
    assert json.loads(shown)["version"] == 2
