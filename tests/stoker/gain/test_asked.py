"""Which requests a file holds, and what is wrong with one that holds none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from schemas import BrokenConfiguration, CacheReport, RequestEvent, Segment, encode
from schemas.canonical import h128
from stoker.gain.asked import ANY_REPLICA, read_traffic


def event(request: str, at_ms: int, **changes: object) -> RequestEvent:
    fields: dict[str, object] = {
        "event_id": f"{request}-{at_ms}",
        "request_id": request,
        "phase": "started",
        "occurred_at_ms": at_ms,
        "tenant": "acme",
        "pool": "gpu",
        "model": "m",
        "segments": (Segment(h128("system"), 100), Segment(h128(request), 30)),
    }
    return RequestEvent(**{**fields, **changes})  # type: ignore[arg-type]


def written(path: Path, *events: RequestEvent) -> Path:
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return path


def test_two_phases_are_one_request_with_what_was_measured(tmp_path: Path) -> None:
    end = event(
        "one",
        1000,
        phase="finished",
        completed_at_ms=1500,
        replica="r7",
        input_tokens=140,
        cache=CacheReport(kv_cached_tokens=96),
    )
    traffic = read_traffic(written(tmp_path / "e.jsonl", event("one", 1000), end, event("two", 900)))
    two, one = traffic.requests
    assert (one.arrived_ms, one.replica, one.prompt_tokens, one.cached_tokens) == (1000, "r7", 140, 96)
    assert (two.replica, two.prompt_tokens, two.cached_tokens) == (ANY_REPLICA, 130, None)
    assert traffic.measured == (96, 140)
    assert traffic.prompt_tokens == 270


def test_what_was_stokers_own_or_failed_is_left_out(tmp_path: Path) -> None:
    events = (
        event("kept", 1),
        event("warm", 2, origin="warmup"),
        event("bad", 3),
        event("bad", 3, phase="finished", completed_at_ms=4, status=503),
    )
    traffic = read_traffic(written(tmp_path / "e.jsonl", *events))
    assert [request.event.request_id for request in traffic.requests] == ["kept"]
    assert traffic.left_out == 2


def test_salts_do_not_share_blocks(tmp_path: Path) -> None:
    from schemas import Render

    salted = event("two", 2, render=Render(salt_ref="acme"))
    plain, other = read_traffic(written(tmp_path / "e.jsonl", event("one", 1), salted)).requests
    assert plain.runs(16)[0].key != other.runs(16)[0].key
    assert plain.runs(16)[0].blocks == other.runs(16)[0].blocks == 6


def test_lines_that_cannot_be_read_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_bytes(encode(event("one", 1)) + b'\n{"schema":"request_event/1"}\nrubbish\n')
    traffic = read_traffic(file)
    assert len(traffic.requests) == 1
    assert traffic.unreadable == 2
    assert traffic.first_fault.startswith("line 2 is unreadable (missing_field at $.")


def test_a_trace_is_recognised_zipped_too(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl.gz"
    line = b'{"timestamp": %d, "input_length": 700, "output_length": 5, "hash_ids": [0, %d]}\n'
    file.write_bytes(gzip.compress(line % (27, 1) + line % (99, 2)))
    traffic = read_traffic(file)
    assert traffic.trace
    assert [request.arrived_ms for request in traffic.requests] == [27, 99]
    assert traffic.prompt_tokens == 2 * 2 * 512
    one, two = traffic.requests
    assert one.runs(512)[0] == two.runs(512)[0]
    assert one.runs(512)[1] != two.runs(512)[1]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"rubbish\n", "no request in it; line 1 is unreadable"),
        (encode(event("one", 1, segments=(), input_tokens=5)), "no request names its segments"),
    ],
)
def test_a_file_of_no_use_is_told_so(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "e.jsonl"
    file.write_bytes(content)
    with pytest.raises(BrokenConfiguration, match=sentence):
        read_traffic(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match=r"absent\.jsonl cannot be read"):
        read_traffic(tmp_path / "absent.jsonl")
