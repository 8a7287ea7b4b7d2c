"""`stoker size`: from events to sizes, and what TensorRT-LLM takes of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from analytics.paged_kv import PagedKv
from schemas import BrokenConfiguration, RequestEvent, encode
from stoker.cli import build
from stoker.size.advice import advise, keys, server_options
from stoker.size.lengths import Length, Lengths, read_lengths

RUN = CliRunner()
T0 = 1_790_000_000_000


def event(name: str, tokens: int, output: int = 0, start: int = 0, end: int = 1_000, **more: object) -> RequestEvent:
    finished = RequestEvent(
        event_id=name,
        request_id=name,
        phase="finished",
        occurred_at_ms=T0 + start,
        completed_at_ms=T0 + end,
        tenant="t",
        pool="p",
        model="m",
        api="chat",
        input_tokens=tokens,
        output_tokens=output,
    )
    return msgspec.structs.replace(finished, **more)


def written(events: list[RequestEvent], file: Path) -> Path:
    text = b"\n".join(map(encode, events)) + b"\nno event\n"
    file.write_bytes(gzip.compress(text) if file.suffix == ".gz" else text)
    return file


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_requests_are_read_once_and_only_those_of_users(name: str, tmp_path: Path) -> None:
    events = [
        event("a", 100, 20, 0, 900),
        event("a", 100, 0, 0, 0, event_id="a0", phase="started", completed_at_ms=None, output_tokens=None),
        event("b", 300, 10, 500, 1_500),
        event("c", 9_000, origin="warmup"),
        event("d", 9_000, status=500),
        event("e", 50, 0, 900, 1_000),
    ]
    found = read_lengths(written(events, tmp_path / name))
    assert found.requests == [
        Length(120, T0, T0 + 900),
        Length(310, T0 + 500, T0 + 1_500),
        Length(50, T0 + 900, T0 + 1_000),
    ]
    assert (found.longest_tokens, found.most_at_once, found.unreadable) == (310, 2, 1)
    assert (found.quantile_tokens(0.5), found.quantile_tokens(0.99)) == (120, 310)


def test_sizes_follow_from_what_was_seen_within_the_bounds() -> None:
    few = advise(Lengths([Length(100, 0, 10), Length(130, 5, 20)]), 64)
    assert few.size == PagedKv(192, 2, 64)
    assert (few.too_long, few.refused, few.grown, few.most_blocks) == (0, 0, 0, 5)
    many = advise(Lengths([Length(3_000, 0, 10)] + [Length(2_000, 5, 20)] * 40), 64)
    assert many.size == PagedKv(2_048, 32, 64)
    assert (many.too_long, many.grown, many.refused, many.most_blocks) == (1, 1, 0, 40 * 32)


def test_beyond_the_cap_requests_are_refused() -> None:
    crowd = advise(Lengths([Length(64, 0, 10)] * 9 + [Length(64, 10, 20)]), 64, max_seq_tokens=64, max_batch=4)
    assert (crowd.refused, crowd.most_blocks) == (1, 8)


def test_what_todays_engine_does_not_take_is_translated() -> None:
    told = {key.name: key for key in keys(PagedKv(), kv_bytes_per_token=10)}
    assert [name for name, key in told.items() if key.accepted] == ["max_seq_len", "max_batch_size", "max_num_tokens"]
    assert told["host_num_blocks"].value == "1024"
    assert "max_tokens=131072" in told["host_max_num_blocks"].today
    assert "host_cache_size=1310720" in told["host_max_num_blocks"].today
    assert all(key.today for key in told.values() if not key.accepted)


def test_the_same_comes_as_a_file_for_the_server() -> None:
    lines = server_options(PagedKv(), kv_bytes_per_token=10).splitlines()
    assert lines[:3] == ["max_seq_len: 2048", "max_batch_size: 32", "max_num_tokens: 8192"]
    assert lines[3:] == [
        "kv_cache_config:",
        "  enable_block_reuse: true",
        "  tokens_per_block: 64",
        "  max_tokens: 131072",
        "  host_cache_size: 1310720",
    ]
    assert "host_cache_size" not in server_options(PagedKv())


def test_a_block_that_the_engine_cannot_have_is_marked() -> None:
    for block_tokens, odd in ((48, True), (64, False)):
        told = {key.name: key.today for key in keys(PagedKv(block_tokens=block_tokens))}
        assert ("power of two" in told["tokens_per_block"]) is odd


def test_the_command_line_prints_and_writes_it(tmp_path: Path) -> None:
    file = written([event("a", 2_000, 48), event("b", 10)], tmp_path / "events.jsonl")
    out = tmp_path / "size.json"
    told = RUN.invoke(build(), ["size", "--events", str(file), "--max-batch", "32", "--json", str(out)])
    assert told.exit_code == 0, told.output
    [line] = [line for line in told.output.splitlines() if line.strip().startswith("host_num_blocks")]
    assert line.split()[:4] == ["host_num_blocks", "1024", "not", "accepted"]
    written_down = json.loads(out.read_text())
    assert {key["name"]: key["value"] for key in written_down["keys"]}["max_seq_len"] == "2048"
    assert "  tokens_per_block: 64" in told.output.splitlines()
    assert "  tokens_per_block: 64" in written_down["server_options"].splitlines()


def test_a_file_without_requests_is_a_sentence(tmp_path: Path) -> None:
    for file in (written([], tmp_path / "none.jsonl"), tmp_path / "absent.jsonl"):
        told = RUN.invoke(build(), ["size", "--events", str(file)])
        assert isinstance(told.exception, BrokenConfiguration)
