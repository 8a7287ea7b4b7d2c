"""The tour's loop closes: what is commanded is applied, told, and found by later requests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.topics import COMMANDS, OUTCOMES, REQUESTS, REWARDS, Topic
from stoker.tour import EXPORTED, Tour, TourConfig, make_tour

CONFIG = TourConfig(minutes=1.5)


@pytest.fixture(scope="module")
def tour() -> Tour:
    made = Tour(CONFIG)
    made.run()
    return made


def read(tour: Tour, topic: Topic) -> list[dict[str, Any]]:
    return [msgspec.json.decode(record.value or b"") for record in tour.records[topic]]


def test_every_command_has_an_outcome_and_arms_are_kept(tour: Tour) -> None:
    commands = {command["command_id"]: command for command in read(tour, COMMANDS)}
    outcomes = read(tour, OUTCOMES)
    assert {command["target"]["kind"] for command in commands.values()} == {"prefix"}
    assert {outcome["command_id"] for outcome in outcomes} == set(commands)
    held = {name for name, command in commands.items() if command.get("arm") == "hold"}
    assert held
    for outcome in outcomes:
        assert (outcome["status"] == "held_out") == (outcome["command_id"] in held)
    assert sum(outcome.get("tokens_warmed", 0) for outcome in outcomes) > 0


def test_every_record_is_in_the_order_of_its_time_and_some_answers_are_judged(tour: Tour) -> None:
    times = [record.timestamp_ms for record in tour.records[REQUESTS]]
    assert times == sorted(times)
    phases = Counter(event["phase"] for event in read(tour, REQUESTS))
    assert phases["started"] == phases["finished"]
    assert 0 < len(tour.records[REWARDS]) < phases["finished"] / 2


def test_the_files_hold_every_record_and_no_text(tour: Tour, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    files = make_tour(tmp_path / "tour", CONFIG)
    assert set(files) == {topic.name for topic in EXPORTED}
    for topic in EXPORTED:
        table = pq.read_table(files[topic.name])
        assert table.num_rows == len(tour.records[topic])
        assert "query" not in table.column_names
