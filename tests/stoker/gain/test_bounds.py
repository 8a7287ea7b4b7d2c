"""The waterfall of made traffic: where warming helps, where it cannot, and what a real trace says."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.settings import JobSettings
from schemas import CacheReport, RequestEvent, Segment
from schemas.canonical import h128
from stoker.gain.asked import Asked, Traffic, read_traffic
from stoker.gain.bounds import Question, waterfall

BLOCK = 16
DOCUMENT = 1600


def asked(number: int, at_ms: int, *names: str, cached: int | None = None) -> Asked:
    """A request for a chain of documents and a question of its own."""
    segments = [Segment(h128(*names[: depth + 1]), DOCUMENT) for depth in range(len(names))]
    segments.append(Segment(h128("question", str(number)), 8))
    tokens = sum(segment.tokens for segment in segments)
    event = RequestEvent(
        event_id=f"e{number}",
        request_id=f"e{number}",
        phase="started",
        occurred_at_ms=at_ms,
        tenant="acme",
        pool="gpu",
        model="m",
        segments=tuple(segments),
        input_tokens=tokens,
        cache=None if cached is None else CacheReport(kv_cached_tokens=cached),
    )
    return Asked(event, at_ms, "r0", tokens, cached)


def periodic(favourites: int, gap_ms: int, scan: int, minutes: int) -> Traffic:
    """Favourites that come back at a steady gap, and between them one-off documents that push them out."""
    found, number = [], 0
    for start in range(0, minutes * 60_000, gap_ms):
        for favourite in range(favourites):
            found.append(asked(number, start + favourite, f"favourite-{favourite}"))
            number += 1
        for step in range(scan):
            found.append(asked(number, start + 1000 + step * (gap_ms - 2000) // scan, f"once-{number}"))
            number += 1
    return Traffic(found)


def fall(traffic: Traffic, capacity_tokens: int | None, budget_share: float = 0.2, host_tier: bool = False):
    question = Question(capacity_tokens, BLOCK, budget_share, host_tier)
    return waterfall(traffic, question, JobSettings(), lambda _: None)


def test_the_steps_come_in_their_order_and_warming_gains_where_favourites_are_pushed_out() -> None:
    traffic = periodic(favourites=3, gap_ms=30_000, scan=10, minutes=10)
    found = fall(traffic, 6 * DOCUMENT)
    assert found.lru_share == 0.0
    assert found.lru_share < found.stoker_share <= found.belady_share + 1e-9
    assert found.belady_share <= found.endless_share
    assert found.adopt
    assert found.simulated.commands > 0
    assert found.simulated.spent_tokens > 0


def test_without_a_budget_nothing_is_warmed_and_nothing_changes() -> None:
    found = fall(periodic(favourites=3, gap_ms=30_000, scan=10, minutes=5), 6 * DOCUMENT, budget_share=0.0)
    assert found.simulated.commands == 0
    assert found.stoker_share == found.lru_share
    assert not found.adopt


def test_a_cache_that_holds_everything_leaves_nothing_to_gain() -> None:
    found = fall(periodic(favourites=3, gap_ms=30_000, scan=2, minutes=5), 10_000_000)
    assert found.lru_share == found.belady_share == found.endless_share
    assert abs(found.gain_points) < 0.01
    assert not found.adopt


def test_the_capacity_is_found_from_what_the_engine_measured() -> None:
    plain = periodic(favourites=3, gap_ms=30_000, scan=4, minutes=5)
    truth = fall(plain, 9 * DOCUMENT, budget_share=0.0)
    share = truth.lru_share
    told = [
        asked(n, r.arrived_ms, f"favourite-{n}", cached=round(share * r.prompt_tokens))
        for n, r in enumerate(plain.requests)
    ]
    for request, measured in zip(plain.requests, told, strict=True):
        request.cached_tokens = measured.cached_tokens
    found = fall(plain, None, budget_share=0.0)
    assert found.calibrated
    assert found.measured_share == pytest.approx(share, abs=0.01)
    assert found.lru_share == pytest.approx(share, abs=0.02)


def test_every_replica_is_a_cache_of_its_own() -> None:
    traffic = Traffic([asked(n, n * 1000, "document") for n in range(4)])
    for request in traffic.requests[2:]:
        request.replica = "r1"
    found = fall(traffic, 100_000)
    assert found.replicas == 2
    # One of two finds the document on each: the other two are first on their replica.
    assert found.endless_share == pytest.approx(2 * DOCUMENT / traffic.prompt_tokens)


def test_killers_tell_after_how_long_what_was_lost_came_back() -> None:
    found = fall(periodic(favourites=3, gap_ms=30_000, scan=10, minutes=5), 6 * DOCUMENT, budget_share=0.0)
    assert found.killers.lost_gap_s == pytest.approx(30, abs=0.1)


@pytest.mark.slow
def test_a_real_trace_gives_the_known_figures_and_the_advice_to_leave_it(data_dir: Path) -> None:
    """D11: LRU 0.136, Belady 0.350, infinite 0.366 of the prompt tokens at 3M; today's decisions gain no 3 points."""
    traffic = read_traffic(data_dir / "traces" / "mooncake_conversation_trace.jsonl.gz")
    found = waterfall(traffic, Question(3_000_000, 512, 0.01, False), JobSettings(), lambda _: None)
    assert found.requests == 12_031
    assert found.lru_share == pytest.approx(0.136, abs=0.001)
    assert found.belady_share == pytest.approx(0.350, abs=0.005)
    assert found.endless_share == pytest.approx(0.366, abs=0.001)
    assert found.lru_share <= found.stoker_share < found.belady_share
    assert not found.adopt
    assert found.simulated.spent_tokens <= 0.01 * found.prompt_tokens * 1.05
