"""Mooncake traces: block structure kept, tokens derived, wrong files explained."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from schemas import BrokenConfiguration
from stoker.replay.mooncake import Line, MooncakeConfig, block_ids, mooncake, read_trace

LINES = [
    Line(0, 1300, 40, (0, 1, 2)),
    Line(10, 2000, 40, (0, 1, 2, 3)),
    Line(20, 1030, 40, (0, 9, 10)),
    *(Line(30 + k, 700, 10, (0, 100 + k)) for k in range(200)),
]


def test_block_ids_follow_from_the_id_and_differ_early() -> None:
    assert block_ids(7, 512) == block_ids(7, 512)
    assert block_ids(7, 512)[:16] == block_ids(7, 16)
    assert len({block_ids(block, 4) for block in range(5_000)}) == 5_000


def test_prompts_keep_the_trace_s_lengths_and_shared_blocks() -> None:
    turns = list(mooncake(LINES, MooncakeConfig()))
    lengths = [sum(piece.text.count(" ") + 1 for piece in turn.pieces) for turn in turns]
    assert lengths[:3] == [1300, 2000, 1030]
    assert turns[0].pieces[:2] == turns[1].pieces[:2]
    assert turns[0].pieces[2] != turns[1].pieces[2], "a short last block is another block than the full one"
    assert all(turn.is_blocks for turn in turns)


def test_a_smaller_block_shrinks_all_prompts_alike() -> None:
    turns = list(mooncake(LINES, MooncakeConfig(block_tokens=16)))
    assert sum(piece.text.count(" ") + 1 for piece in turns[0].pieces) == round(1300 / 32)


def test_sessions_begin_below_the_block_that_all_share() -> None:
    turns = list(mooncake(LINES, MooncakeConfig()))
    assert turns[0].session == turns[1].session != turns[2].session
    tenants = defaultdict(set)
    for turn in turns:
        tenants[turn.session].add(turn.tenant)
    assert all(len(names) == 1 for names in tenants.values())


def test_the_same_seed_gives_the_same_turns() -> None:
    assert list(mooncake(LINES, MooncakeConfig(seed=2))) == list(mooncake(LINES, MooncakeConfig(seed=2)))
    assert list(mooncake(LINES, MooncakeConfig(seed=2))) != list(mooncake(LINES, MooncakeConfig(seed=3)))


def test_a_trace_is_read_plain_and_gzipped(tmp_path: Path) -> None:
    line = json.dumps({"timestamp": 5, "input_length": 9, "output_length": 1, "hash_ids": [4]}) + "\n"
    (tmp_path / "a.jsonl").write_text(line)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(line.encode()))
    assert read_trace(tmp_path / "a.jsonl") == read_trace(tmp_path / "a.jsonl.gz") == [Line(5, 9, 1, (4,))]


@pytest.mark.parametrize(("text", "told"), [("{}\n", "line 1"), ("", "empty"), ('{"timestamp": "x"}', "line 1")])
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(BrokenConfiguration, match=told):
        read_trace(path)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="cannot be read"):
        read_trace(tmp_path / "none.jsonl.gz")


def test_the_real_trace_shares_what_it_is_known_to_share(data_dir: Path) -> None:
    lines = read_trace(data_dir / "traces" / "mooncake_conversation_trace.jsonl.gz")
    assert len(lines) == 12_031
    seen: set[str] = set()
    hits = blocks = 0
    for turn in mooncake(lines[:2_000], MooncakeConfig(block_tokens=4)):
        for piece in turn.pieces:
            hits += piece.text in seen
            blocks += 1
            seen.add(piece.text)
    known: set[int] = set()
    truth = 0
    for line in lines[:2_000]:
        truth += sum(block in known for block in line.hash_ids)
        known.update(line.hash_ids)
    assert hits / blocks == pytest.approx(truth / sum(len(line.hash_ids) for line in lines[:2_000]), abs=0.03)
