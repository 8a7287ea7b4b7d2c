"""`stoker explain` over what a planner really said: in words, as JSON, from lines, Parquet and Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import connectors.kafka
from connectors.kafka.base import Record
from connectors.kafka.fake import MemoryBroker, MemoryConsumer
from schemas import BrokenConfiguration, Focus, KeyRate, Reason, WarmupCommand, encode
from schemas.export import CONTENT
from schemas.topics import COMMANDS, INSIGHTS, OUTCOMES, Topic
from stoker.cli import build
from stoker.explain.findings import KINDS, find
from stoker.explain.records import messages
from stoker.explain.story import WHY, as_json, tell
from stoker.export.write import Span, write_parquet
from tests.analytics.test_planning import TICK, Drive, book, candidate, hot, name, outcome, ready
from tests.schemas.examples import EXAMPLES

RUN = CliRunner()


@pytest.fixture(scope="module")
def said() -> tuple[WarmupCommand, list[msgspec.Struct]]:
    """A tick in which a scope could pay one of its three hot prefixes, and what became of it."""
    drive = Drive(policy=book(budget={"prefill_share": 0.01, "burst_ms": 10_000}))
    ready(drive, "r1")
    wanted = (("a", 2_000, 0.9), ("b", 900, 0.5), ("c", 800, 0.4))
    drive.hear(hot(*(candidate(text, tokens=tokens, p_asked=p_asked) for text, tokens, p_asked in wanted)))
    drive.hear(hot(candidate("d"), scope="other"))
    [command] = [each for each in drive.run(TICK, ["r1"]) if each.scope == "s"]
    told = outcome(command, "r1", drive.now + 300)
    drive.control(told)
    return command, [command, told, *drive.insights, *EXAMPLES.values()]


def test_the_story_says_why_for_how_much_and_instead_of_what(said: tuple[WarmupCommand, list[msgspec.Struct]]) -> None:
    command, everything = said
    found = find(command.command_id[:12], lambda: everything)
    story = tell(found)
    assert f"{command.command_id}: warm {command.target_key} on r1 for s in p" in story
    assert "the prefix is hot: 0.005 requests/s" in story
    assert "1 of 1 ready replicas lacked it" in story
    assert f"{command.benefit.p_asked:.0%} asked for within the horizon" in story
    assert f"{command.benefit.p_absent:.0%} absent then (by expectation)" in story
    assert "2,000 tokens of prefill" in story
    assert "the budget of s: 100 a second, 50.0% of the pool's; 1,000 in debt after it" in story
    assert "applied on r1 (done)" in story
    lost = {each.target_key for each in found.left_out}
    assert lost == {f"prefix:{name(text)}" for text in "bc"}
    assert all(key in story for key in lost)
    document = json.loads(json.dumps(as_json(found)))
    assert document["command"]["command_id"] == command.command_id
    assert document["rank"] == 1
    assert [each["status"] for each in document["outcomes"]] == ["applied"]


def test_what_was_heard_twice_counts_once_and_applied_stays(said: tuple[WarmupCommand, list[msgspec.Struct]]) -> None:
    command, everything = said
    again = msgspec.structs.replace(outcome(command, "r1", command.issued_at_ms + 900), status="resident")
    found = find(command.command_id, lambda: [*everything, *everything, again])
    assert [each.command_id for each in found.tick].count(command.command_id) == 1
    assert found.outcomes["r1"].status == "applied"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason(trigger="lost_prefix", evidence={"stay_ms": 1.0}), "(its replica said so)"),
        (
            Reason(trigger="hot_prefix", evidence={"stay_ms": 1.0, "stay_shadow_ms": 1.0}),
            "(by capacity and traffic of the replicas)",
        ),
    ],
)
def test_the_story_says_where_the_chance_of_absence_comes_from(reason: Reason, words: str) -> None:
    command = msgspec.structs.replace(EXAMPLES["warmup_command.prefix"], reason=reason)
    assert f"absent then {words} ×" in tell(find(command.command_id, lambda: [command]))


@pytest.mark.parametrize("trigger", [*WHY, "of_tomorrow"])
def test_every_trigger_is_told_even_without_its_numbers(trigger: str) -> None:
    example = EXAMPLES["warmup_command.prefix"]
    command = msgspec.structs.replace(example, reason=Reason(trigger=trigger, evidence={"attempt": 2.0}))
    story = tell(find(command.command_id, lambda: [command]))
    assert f"why       {trigger}" in story
    assert "attempt 2" in story
    assert "none is published" in story


def test_a_crowd_is_told_with_its_entropy(said: tuple[WarmupCommand, list[msgspec.Struct]]) -> None:
    command = msgspec.structs.replace(said[0], reason=Reason(trigger="focus", evidence={"boost": 2.0, "score": 0.5}))
    focus = Focus(
        scope="s",
        dimension="prefix_family",
        rule="should_preheat",
        at_ms=command.issued_at_ms - 1,
        entropy_bits=1.5,
        baseline_bits=3.0,
        qps=7.0,
        keys=(KeyRate(command.unit, 7.0),),
        verdict="crowd",
    )
    later = msgspec.structs.replace(focus, at_ms=command.issued_at_ms + 1, entropy_bits=9.0)
    story = tell(find(command.command_id, lambda: [later, focus, command]))
    assert "entropy 1.5 bits against 3 bits" not in story
    assert "should_preheat saw it at" in story
    assert "entropy 1.5 bits against 3, 7 requests/s" in story


def test_a_crowd_of_the_tuned_rule_is_told_with_its_users(said: tuple[WarmupCommand, list[msgspec.Struct]]) -> None:
    numbers = {"users": 113.0, "span_panes": 3.0, "jump": 12.5, "share": 0.052, "gap_variation": 0.9}
    evidence = {f"focus_{name}": value for name, value in numbers.items()}
    command = msgspec.structs.replace(said[0], reason=Reason(trigger="focus", evidence=evidence))
    story = tell(find(command.command_id, lambda: [command]))
    assert "a crowd gathers on it: 113 users in 3 slides, 12.5 times as many requests as before, 5.2% of all" in story
    assert "-fold" not in story


def lines(everything: list[msgspec.Struct], file: Path) -> Path:
    file.write_bytes(b"\n".join(encode(each) for each in everything) + b"\nno message\n")
    return file


def exported(everything: list[msgspec.Struct], topic: Topic, folder: Path) -> Path:
    mine: Any = CONTENT[topic]
    values = [encode(each) for each in everything if isinstance(each, mine)]
    file = folder / f"{topic.name}.parquet"
    records = [Record(topic.name, 0, offset, 1_000, None, value) for offset, value in enumerate(values)]
    write_parquet(records, topic, file, Span(), with_text=False)
    return file


def _order(message: Any) -> tuple[str, int, str]:
    return type(message).__name__, message.event_time_ms, getattr(message, "command_id", "")


def test_an_export_holds_the_same_messages_as_lines(
    said: tuple[WarmupCommand, list[msgspec.Struct]], tmp_path: Path
) -> None:
    _, everything = said
    files = [exported(everything, topic, tmp_path) for topic in (COMMANDS, OUTCOMES, INSIGHTS)]
    expected = [each for each in everything if isinstance(each, KINDS)]
    found = list(messages(files, KINDS))
    assert sorted(found, key=_order) == sorted(expected, key=_order)
    assert list(messages([lines(everything, tmp_path / "all.jsonl")], KINDS)) == expected


def test_the_command_line_reads_files_and_writes_json(
    said: tuple[WarmupCommand, list[msgspec.Struct]], tmp_path: Path
) -> None:
    command, everything = said
    lines(everything, tmp_path / "all.jsonl")
    out = tmp_path / "why.json"
    told = RUN.invoke(build(), ["explain", command.command_id, "--file", str(tmp_path), "--json", str(out)])
    assert told.exit_code == 0, told.output
    assert "why       hot_prefix" in told.output
    assert json.loads(out.read_text())["story"][0].startswith(command.command_id)


def test_the_command_line_reads_kafka(
    said: tuple[WarmupCommand, list[msgspec.Struct]], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, everything = said
    broker = MemoryBroker()
    for topic in (COMMANDS, OUTCOMES, INSIGHTS):
        broker.add_topic(topic.name, 2)
        mine: Any = CONTENT[topic]
        for each in everything:
            if isinstance(each, mine):
                broker.append(topic.name, 0, None, encode(each), 1_000, ())
    monkeypatch.setattr(connectors.kafka, "KafkaRecordConsumer", lambda *_a, **_k: MemoryConsumer(broker))
    told = RUN.invoke(build(), ["explain", command.command_id])
    assert told.exit_code == 0, told.output
    assert "applied on r1" in told.output


@pytest.mark.parametrize("command_id", ["ab", "0123456789"])
def test_a_wrong_id_is_a_sentence(command_id: str, tmp_path: Path) -> None:
    file = lines([], tmp_path / "none.jsonl")
    told = RUN.invoke(build(), ["explain", command_id, "--file", str(file)])
    assert isinstance(told.exception, BrokenConfiguration)
    assert command_id in str(told.exception)


def test_ids_that_begin_alike_are_named() -> None:
    example = EXAMPLES["warmup_command.prefix"]
    both = [msgspec.structs.replace(example, command_id="abcdef" + digit * 26) for digit in "01"]
    with pytest.raises(BrokenConfiguration, match="2 commands begin with abcdef"):
        find("abcdef", lambda: both)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="absent"):
        list(messages([tmp_path / "absent"], KINDS))
