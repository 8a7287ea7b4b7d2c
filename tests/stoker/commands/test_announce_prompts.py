"""`stoker announce prompts`: a file of managed prompts, all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from connectors.kafka.fake import MemoryBroker
from connectors.redis.fake import MemoryBlobs, MemoryStore
from schemas import BrokenConfiguration, canonical
from tests.stoker.commands.test_announce_command import NINE, broker, run, written

__all__ = ["broker"]  # the fixture

WHERE = ("--scope", "acme", "--pool", "gpu", "--model", "m", "--at", NINE)


@pytest.fixture
def blobs(monkeypatch: pytest.MonkeyPatch) -> MemoryBlobs:
    made = MemoryBlobs(MemoryStore())
    monkeypatch.setattr("connectors.redis.sync_client", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("connectors.redis.RedisBlobs", lambda _: made)
    return made


def test_every_prompt_of_a_file_is_announced_with_its_text_and_tags(
    broker: MemoryBroker,
    blobs: MemoryBlobs,
    tmp_path: Path,
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": "faq@3", "content": "Be brief.", "tags": ["help"], "replaces": "2"}\n'
        '{"id": "desk@1", "content": [{"role": "system", "content": "You help."}]}\n'
    )
    run("prompts", str(file), *WHERE)
    by_name = {message.name: message for message in written(broker)}
    assert set(by_name) == {"faq", "desk"}
    faq = by_name["faq"]
    assert (faq.kind, faq.version, faq.replaces, faq.tags) == ("prompt", "3", "2", ("help",))
    system = canonical.segment_hash(canonical.root_hash("m", None, "", ""), "system", "Be brief.")
    assert [segment.hash for segment in faq.segments] == [system]
    assert blobs.get("acme", [system]) == {system: b"Be brief."}
    run("prompts", str(file), *WHERE)
    assert len(written(broker)) == 2  # told twice is told once


def test_a_file_with_a_wrong_line_announces_nothing(
    broker: MemoryBroker,
    blobs: MemoryBlobs,
    tmp_path: Path,
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"id": "faq@3", "content": "Be brief."}\n{"id": "desk"}\n')
    with pytest.raises(BrokenConfiguration, match="line 2"):
        run("prompts", str(file), *WHERE)
    assert written(broker) == []
    assert blobs.get("acme", []) == {}
