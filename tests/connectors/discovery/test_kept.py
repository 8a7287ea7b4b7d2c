"""How long the word of a source counts."""

from __future__ import annotations

import logging

import pytest

from connectors.discovery import Endpoint
from connectors.discovery.clock import Clock
from connectors.discovery.kept import NOBODY, Kept
from connectors.metrics import PrometheusMetrics

A = Endpoint("a", "http://a")


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.metrics = PrometheusMetrics()

    def kept(self) -> Kept:
        return Kept("vllm", 60, Clock(now_s=lambda: self.now_s), self.metrics)


@pytest.mark.parametrize("silent", [lambda kept: kept.failed("no answer"), lambda kept: kept.answered(())])
def test_the_last_list_counts_for_a_while_and_no_longer(silent) -> None:
    time = Time()
    kept = time.kept()
    assert kept.answered((A,))
    time.now_s = 30.0
    assert kept.answered((A,)) is False
    for time.now_s in (30.0, 60.0, 89.9):
        assert silent(kept) is False
        assert (kept.told, kept.doubted) == ((A,), True)
    time.now_s = 90.0
    assert silent(kept) is True
    assert kept.told == ()
    assert silent(kept) is False
    count = time.metrics.registry.get_sample_value("stoker_executor_discovery_faults_total", {"source": "vllm"})
    assert count is not None
    assert count >= 4


def test_a_quiet_source_is_young_when_it_says_that_nobody_is_left() -> None:
    time = Time()
    kept = time.kept()
    kept.answered((A,))
    time.now_s = 500.0  # a watch without an event
    assert kept.answered(()) is False
    time.now_s = 560.0
    assert kept.answered(()) is True


def test_nobody_is_believed_at_once_where_nobody_took_traffic() -> None:
    kept = Time().kept()
    assert kept.answered(()) is True
    assert kept.answered((Endpoint("a", "http://a", draining=True),)) is True
    assert kept.answered(()) is True
    assert kept.doubted is False


def test_a_fault_is_told_once_until_it_is_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kept = Time().kept()
    kept.answered((A,))
    for fault in ("no answer", "no answer", "refused", "refused"):
        kept.failed(fault)
    kept.answered(())
    kept.answered((A,))
    assert [record.getMessage().partition("; ")[0] for record in caplog.records] == [
        "vllm: no answer",
        "vllm: refused",
        f"vllm: {NOBODY}",
        "vllm is heard again",
    ]
    assert "kept for 60 s more" in caplog.text
