"""Events without an engine: in order, in pairs, and with the cached tokens of an LRU cache."""

from __future__ import annotations

from schemas import decode, encode
from schemas.request_event import RequestEvent
from stoker.replay.offline import OfflineConfig, offline
from stoker.replay.turns import Piece, Turn


def turn(at_ms: int, *texts: str, session: str = "s") -> Turn:
    pieces = tuple(Piece("user", text) for text in texts)
    return Turn(at_ms, "acme", "ann", session, pieces, texts[-1], output_tokens=2)


LONG = "word " * 400


def test_a_repeated_prompt_is_found_cached_and_answers_sooner() -> None:
    events = list(offline([turn(0, LONG, "why"), turn(10_000, LONG, "how")], OfflineConfig()))
    assert [event.phase for event in events] == ["started", "finished", "started", "finished"]
    first, second = events[1], events[3]
    assert first.cache is not None
    assert second.cache is not None
    assert first.cache.kv_cached_tokens == 0
    assert second.cache.kv_cached_tokens == 2000 // 4 // 16 * 16
    assert first.ttft_ms is not None
    assert second.ttft_ms is not None
    assert second.ttft_ms < first.ttft_ms


def test_times_never_go_back_and_every_event_is_valid() -> None:
    turns = [turn(n * 5, LONG, f"question {n}", session=f"s{n % 7}") for n in range(60)]
    events = list(offline(turns, OfflineConfig(replicas=2)))
    times = [event.event_time_ms for event in events]
    assert times == sorted(times)
    assert {event.replica for event in events} == {"r0", "r1"}
    assert all(decode(encode(event), RequestEvent) == event for event in events)


def test_a_small_cache_forgets() -> None:
    others = [turn(1000 + n * 1000, f"{n} " + LONG, "why") for n in range(5)]
    turns = [turn(0, LONG, "why"), *others, turn(60_000, LONG, "why")]
    last = list(offline(turns, OfflineConfig(capacity_tokens=1000)))[-1]
    assert last.cache is not None
    assert last.cache.kv_cached_tokens == 0
