"""`stoker announce` on a broker in memory: idempotent, movable, and plain about mistakes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

import connectors.kafka
from connectors.kafka.fake import MemoryBroker, MemoryConsumer, MemoryProducer
from connectors.redis.fake import MemoryBlobs, MemoryStore
from schemas import Announcement, BrokenConfiguration, canonical, decode
from schemas.topics import ANNOUNCEMENTS
from stoker.announcing import time_of
from stoker.commands import announce
from stoker.config import Settings

NINE = "2026-12-01T09:00:00Z"
TEN = "2026-12-01T10:00:00Z"
MODEL = ("model", "llama-4", "--scope", "acme", "--pool", "gpu", "--replaces", "llama-3")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    made = MemoryBroker()
    made.add_topic(ANNOUNCEMENTS.name, 4)
    monkeypatch.setattr(connectors.kafka, "KafkaRecordConsumer", lambda *_, **__: MemoryConsumer(made))
    monkeypatch.setattr(connectors.kafka, "KafkaRecordProducer", lambda *_, **__: MemoryProducer(made))
    monkeypatch.setattr(announce, "_tree", lambda *_: Settings())
    return made


def run(*words: str) -> str:
    app = typer.Typer()
    announce.register(app)
    app.callback()(lambda: None)
    result = CliRunner().invoke(app, ["announce", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def written(broker: MemoryBroker) -> list[Announcement]:
    records = [record for place in broker.partitions(ANNOUNCEMENTS.name) for record in broker.logs[place]]
    assert all(record.key == b"acme" for record in records)
    return [decode(record.value or b"", Announcement) for record in records]


def test_telling_twice_writes_once(broker: MemoryBroker) -> None:
    assert "announced for 2026-12-01T09:00:00+00:00" in run(*MODEL, "--at", NINE)
    assert "announced already" in run(*MODEL, "--at", NINE)
    (message,) = written(broker)
    assert (message.kind, message.name, message.replaces, message.model) == ("model", "llama-4", "llama-3", "llama-4")
    assert message.at_ms == round(datetime(2026, 12, 1, 9, tzinfo=UTC).timestamp() * 1000)


def test_a_tokenizer_and_a_template_name_the_model_that_they_belong_to(broker: MemoryBroker) -> None:
    to = ("--scope", "acme", "--pool", "gpu", "--at", NINE)
    run("model", "tok-2", *to, "--kind", "tokenizer", "--model", "llama-3", "--strategy", "full_model")
    run("model", "chat-2", *to, "--kind", "template", "--replaces", "chat-1")
    run("model", "chat-3", *to, "--kind", "template", "--replaces", "chat-1", "--model", "llama-3")
    run("model", "llama-3", *to, "--replaces", "llama-3")
    told = sorted((message.kind, message.name, message.model, message.replaces) for message in written(broker))
    assert [message.kind for message in written(broker) if message.strategy == "full_model"] == ["tokenizer"]
    assert told == [
        ("model", "llama-3", "llama-3", "llama-3"),
        ("template", "chat-2", None, "chat-1"),
        ("template", "chat-3", "llama-3", "chat-1"),
        ("tokenizer", "tok-2", "llama-3", None),
    ]


def test_another_time_moves_it_and_withdrawing_takes_it_back(broker: MemoryBroker) -> None:
    run(*MODEL, "--at", NINE)
    assert "moved" in run(*MODEL, "--at", TEN)
    assert "taken back" in run(*MODEL, "--withdraw")
    assert "was not announced" in run(*MODEL, "--withdraw")
    nine, nine_over, ten, ten_over = written(broker)
    assert [nine.deleted, nine_over.deleted, ten.deleted, ten_over.deleted] == [False, True, False, True]
    assert nine.announcement_id == nine_over.announcement_id != ten.announcement_id == ten_over.announcement_id


def test_a_prompts_text_lies_in_redis_under_the_hashes_that_requests_will_have(
    broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = MemoryBlobs(MemoryStore())
    monkeypatch.setattr("connectors.redis.sync_client", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("connectors.redis.RedisBlobs", lambda _: blobs)
    file = tmp_path / "messages.json"
    file.write_text(json.dumps([{"role": "system", "content": "You help."}, {"role": "user", "content": "Hi"}]))
    run("prompt", "desk", "--scope", "acme", "--pool", "gpu", "--model", "m", "--messages", str(file), "--at", "+5m")
    (message,) = written(broker)
    system = canonical.segment_hash(canonical.root_hash("m", None, "", ""), "system", "You help.")
    assert [segment.hash for segment in message.segments] == [system, canonical.segment_hash(system, "user", "Hi")]
    assert blobs.get("acme", [system]) == {system: b"You help."}
    assert 290_000 < message.at_ms - message.announced_at_ms <= 300_000


ADAPTER = ("adapter", "german", "--scope", "acme", "--pool", "gpu", "--version", "7", "--source", "/adapters/german-7")


def test_an_adapters_structure_is_told_and_what_cannot_be_one_is_refused(broker: MemoryBroker) -> None:
    modules = ("--target-modules", "v_proj, q_proj")
    run(*ADAPTER, "--rank", "16", "--alpha", "32", "--dropout", "0.05", *modules, "--at", NINE)
    (message,) = written(broker)
    assert (message.rank, message.alpha, message.dropout) == (16, 32.0, 0.05)
    assert message.target_modules == ("v_proj", "q_proj")
    for wrong in (("--alpha", "0"), ("--dropout", "1"), ("--target-modules", ",".join(f"m{i}" for i in range(257)))):
        with pytest.raises(BrokenConfiguration, match="cannot be announced"):
            run(*ADAPTER, *wrong)


def test_an_event_names_its_keys_in_order(broker: MemoryBroker, tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("sku:2\n\nsku:1\n")
    run("event", "sale", "--scope", "acme", "--keys", str(file), "--loader", "prices", "--at", NINE, "--ttl-s", "60")
    (message,) = written(broker)
    assert (message.keys, message.loader, message.ttl_ms, message.pool) == (
        ("sku:2", "sku:1"),
        "prices",
        60_000,
        Settings().redis.pool_key,
    )


@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*MODEL, "--at", "tomorrow"), "--at tomorrow: write now"),
        ((*MODEL, "--kind", "colour"), "--kind colour: it is one of"),
        ((*MODEL, "--kind", "tokenizer"), "name the model that it belongs to with --model"),
        ((*MODEL, "--model", "llama-5"), "--model llama-5: the new model is called llama-4"),
        ((*MODEL, "--strategy", "hot_top_n"), "--strategy hot_top_n: of a model or tokenizer it is full_model"),
        (("model", "x" * 300, "--scope", "acme", "--pool", "gpu"), r"\$.name"),
        (("event", "s", "--scope", "a", "--loader", "l", "--keys", "nowhere.txt"), "nowhere.txt: cannot be read"),
        (
            ("prompt", "p", "--scope", "a", "--pool", "g", "--model", "m", "--messages", "README.md"),
            "write a JSON list of messages",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(BrokenConfiguration, match=said):
        run(*words)


def test_times_are_relative_or_iso() -> None:
    assert time_of("now", 7) == 7
    assert time_of("+1.5m", 0) == 90_000
    assert time_of("1970-01-01T00:00:02", 0) == 2_000
