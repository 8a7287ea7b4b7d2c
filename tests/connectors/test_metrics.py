"""Metrics: every name once, every name explained, every sink alike."""

from __future__ import annotations

from typing import get_args

import pytest

from connectors.metrics import METRICS, SILENT, MetricName, PrometheusMetrics

SUFFIXES = {"counter": ("_total",), "histogram": ("_seconds",), "gauge": ("",)}


def test_every_name_is_described_and_nothing_else() -> None:
    assert set(METRICS) == set(get_args(MetricName))


@pytest.mark.parametrize("name", get_args(MetricName))
def test_name_carries_its_unit_and_the_text_is_a_sentence(name: MetricName) -> None:
    metric = METRICS[name]
    assert name.startswith(("stoker_", "cache_warmup_"))  # the second are named by D20
    assert name.endswith(SUFFIXES[metric.kind])
    assert metric.unit
    assert metric.meaning.endswith(".")


def test_prometheus_page_shows_what_was_counted() -> None:
    metrics = PrometheusMetrics()
    metrics.count("stoker_kafka_records_sent_total", 3, topic="t")
    metrics.count("stoker_encoder_texts_total")
    metrics.observe("stoker_encoder_batch_seconds", 0.02)
    page = metrics.exposition().decode()
    assert 'stoker_kafka_records_sent_total{topic="t"} 3.0' in page
    assert "stoker_encoder_texts_total 1.0" in page
    assert "stoker_encoder_batch_seconds_count 1.0" in page


def test_what_is_gone_is_no_longer_on_the_page() -> None:
    metrics = PrometheusMetrics()
    for replica in ("r0", "r1"):
        metrics.level("stoker_executor_lease_held_count", 1, replica=replica)
        metrics.count("stoker_executor_probes_total", replica=replica, result="answered")
        metrics.observe("stoker_executor_probe_seconds", 0.1, replica=replica)
    metrics.forget("replica", "r0")
    metrics.forget("replica", "never seen")
    page = metrics.exposition().decode()
    assert 'replica="r0"' not in page
    assert page.count('replica="r1"') > 3
    SILENT.forget("replica", "r0")


def test_metric_without_labels_is_there_from_the_start() -> None:
    assert "stoker_encoder_texts_total 0.0" in PrometheusMetrics().exposition().decode()


def test_two_registries_do_not_clash() -> None:
    first, second = PrometheusMetrics(), PrometheusMetrics()
    first.count("stoker_encoder_texts_total", 5)
    assert "stoker_encoder_texts_total 0.0" in second.exposition().decode()


def test_wrong_labels_are_a_programming_error() -> None:
    with pytest.raises(ValueError, match="label"):
        PrometheusMetrics().count("stoker_kafka_records_sent_total", tpic="t")


def test_silent_sink_takes_everything() -> None:
    SILENT.count("stoker_encoder_texts_total", 1)
    SILENT.observe("stoker_encoder_batch_seconds", 1)
