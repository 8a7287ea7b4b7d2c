"""Bench latency without a stack: what counts as a sample, and when the job counts as warm."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from jobs.settings import JobSettings
from schemas import Embedding
from stoker.bench import latency
from stoker.bench.latency import CALM_MS, CALM_PROBES, WARM_UP_LIMIT_S, WARM_UP_S, Measured, percentile
from stoker.bench.load import PREFIX_SEGMENTS, _prompt

SETTINGS = JobSettings()
SLIDE_MS = 10_000
OUT_OF_ORDER_MS = SETTINGS.timing.out_of_orderness_ms


def command(lane: str, issued_at_ms: int, query: str = "q" * 32) -> Any:
    target = Embedding(fingerprint="f" * 32, query_sha256=query)
    return SimpleNamespace(lane=lane, target=target, issued_at_ms=issued_at_ms, pool="redis:main")


def take(measured: Measured, asked: dict[str, int], told: Any, read_ms: int) -> None:
    latency._take(measured, SETTINGS, SimpleNamespace(asked_ms=asked), told, read_ms)  # type: ignore[arg-type]


def test_a_probe_counts_once_and_only_if_it_was_asked_when_the_job_was_warm() -> None:
    measured, asked = Measured(begin_ms=1_000), {"early": 900, "late": 1_100}
    take(measured, asked, command("fast", 0, "early"), 1_200)
    for read_ms in (1_150, 9_999):
        take(measured, asked, command("fast", 0, "late"), read_ms)
    assert measured.fast == [50]
    assert list(measured.recent) == [300, 50]
    assert asked == {}


def test_a_slide_counts_from_the_moment_when_event_time_may_say_that_it_is_over() -> None:
    measured = Measured(begin_ms=50_000)
    over_ms = 60_000 + OUT_OF_ORDER_MS
    take(measured, {}, command("tick", 61_000), over_ms + 1_300)
    take(measured, {}, command("tick", 62_000), over_ms + 2_300)
    assert measured.slides == {("redis:main", 60_000): 1_300}
    # Planned in the middle of a slide, or in one that ended before the job was warm: no sample.
    take(measured, {}, command("tick", 75_000), 80_000)
    take(measured, {}, command("tick", 40_000), 80_000)
    assert len(measured.slides) == 1


def test_warm_means_that_two_seconds_of_probes_were_quick() -> None:
    calm, slow = Measured(), Measured()
    calm.recent.extend([CALM_MS - 1] * CALM_PROBES)
    slow.recent.extend([CALM_MS + 1] + [1] * (CALM_PROBES - 1))
    assert latency._warm(calm, WARM_UP_S)
    assert not latency._warm(calm, WARM_UP_S - 1)
    assert not latency._warm(slow, WARM_UP_S)
    assert not latency._warm(Measured(), WARM_UP_LIMIT_S - 1)
    assert latency._warm(slow, WARM_UP_LIMIT_S)


def test_percentiles_of_nothing_keep_no_goal() -> None:
    assert math.isnan(percentile([], 99))
    assert percentile([5.0], 50) == 5.0
    assert percentile([float(n) for n in range(101)], 99) == 99.0


def test_each_slide_has_a_prefix_of_its_own() -> None:
    first, again, second = (_prompt(slide, number, 1_800_000_000_000) for slide, number in ((1, 1), (1, 2), (2, 3)))
    assert first.segments == again.segments
    assert len(first.segments) == PREFIX_SEGMENTS
    assert {s.hash for s in first.segments}.isdisjoint(s.hash for s in second.segments)
    assert first.request_id != again.request_id
