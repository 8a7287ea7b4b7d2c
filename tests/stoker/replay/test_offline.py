"""Events without an engine: in order, in pairs, and with the cached tokens of an LRU cache."""

from __future__ import annotations

from schemas import decode, encode
from schemas.request_event import RequestEvent
from stoker.replay.offline import OfflineConfig, OfflineService, Restart, offline
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


def test_a_restarted_replica_gets_no_requests_meanwhile_and_comes_back_empty() -> None:
    start_ms = OfflineConfig.start_ms
    restart = Restart("r0", start_ms + 10_000, start_ms + 15_000, start_ms + 30_000)
    service = OfflineService(OfflineConfig(replicas=2, restarts=(restart,)))
    mine = next(name for name in map(str, range(100)) if service.routed(name, start_ms) == "r0")
    asked = [turn(at_ms, LONG, str(at_ms), session=mine) for at_ms in (0, 5_000, 12_000, 29_999, 30_000, 31_000)]
    ended = [event for event in service.events(asked) if event.phase == "finished"]
    found = [(event.replica, event.cache is not None and bool(event.cache.kv_cached_tokens)) for event in ended]
    assert found == [("r0", False), ("r0", True), ("r1", False), ("r1", True), ("r0", False), ("r0", True)]
    lives = [service.life_of("r0", start_ms + at_ms) for at_ms in (9_999, 10_000, 15_000, 30_000)]
    assert lives == [("1", "ready"), ("1", "draining"), ("1", "lost"), ("2", "ready")]
    assert service.life_of("r1", start_ms + 15_000) == ("1", "ready")
    service.kept_out.add("r0")
    assert service.routed(mine, start_ms + 60_000) == "r1"
