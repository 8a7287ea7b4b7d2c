"""The metrics of Stoker's own processes: every name once, with unit and meaning, and the registry that counts them.

A name that is not in `MetricName` does not type-check; a name without an entry in `METRICS` fails a test, and so does
one that no page of `docs/` explains. Flink jobs report through Flink's own reporter and do not use this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

MetricName = Literal[
    "stoker_kafka_records_sent_total",
    "stoker_kafka_records_refused_total",
    "stoker_kafka_timestamps_clamped_total",
    "stoker_kafka_records_read_total",
    "stoker_kafka_commits_lost_total",
    "stoker_encoder_texts_total",
    "stoker_encoder_batch_seconds",
    "stoker_executor_commands_total",
    "stoker_executor_duplicates_total",
    "stoker_executor_dead_letters_total",
    "stoker_executor_outcomes_total",
    "stoker_executor_waiting_works",
    "stoker_executor_needs_unheard_total",
    "stoker_executor_apply_seconds",
    "stoker_executor_publish_seconds",
    "stoker_executor_lease_held_count",
    "stoker_executor_replicas_known_count",
    "stoker_executor_discovery_faults_total",
    "stoker_executor_replica_ready_count",
    "stoker_executor_probes_total",
    "stoker_executor_probe_seconds",
    "stoker_executor_salts_state_count",
    "stoker_executor_tier_fetches_total",
    "stoker_executor_breaker_state_count",
    "stoker_executor_breaker_share_ratio",
    "stoker_executor_breaker_trips_total",
    "stoker_executor_watched_prefixes",
    "stoker_executor_residency_total",
    "stoker_executor_swept_answers_total",
    "cache_warmup_duration_seconds",
    "cache_warmup_key_errors_total",
]
"""Every metric name. The suffix tells the unit: `_total` counts, `_seconds`, `_bytes`, `_ratio`."""

MetricKind = Literal["counter", "gauge", "histogram"]
SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of every histogram in seconds, from one Redis answer to a cold prefill."""


@dataclass(frozen=True)
class Metric:
    """What one metric is.

    Attributes:
        kind: counter (only grows), gauge (moves both ways) or histogram (of durations in seconds).
        unit: what one step of its value is.
        meaning: one sentence for the person on call.
        labels: names of its labels, all of small and bounded cardinality: never a query, a user or an id.
    """

    kind: MetricKind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[MetricName, Metric] = MappingProxyType(
    {
        "stoker_kafka_records_sent_total": Metric("counter", "records", "Records handed to the producer.", ("topic",)),
        "stoker_kafka_records_refused_total": Metric(
            "counter", "records", "Records that the broker or the size limit refused for good.", ("topic",)
        ),
        "stoker_kafka_timestamps_clamped_total": Metric(
            "counter", "records", "Records whose time was too far ahead and was set back to the bound.", ("topic",)
        ),
        "stoker_kafka_records_read_total": Metric("counter", "records", "Records that poll returned.", ("topic",)),
        "stoker_kafka_commits_lost_total": Metric(
            "counter", "commits", "Final commits that a group balance came before; their records are read again."
        ),
        "stoker_encoder_texts_total": Metric("counter", "texts", "Texts turned into vectors."),
        "stoker_encoder_batch_seconds": Metric("histogram", "seconds", "Duration of one model call."),
        "stoker_executor_commands_total": Metric(
            "counter", "commands", "Commands of a pool that were read.", ("pool",)
        ),
        "stoker_executor_duplicates_total": Metric(
            "counter", "works", "Commands that came again although their outcome on a replica was out.", ("pool",)
        ),
        "stoker_executor_dead_letters_total": Metric(
            "counter", "records", "Records of warmup.commands that could not be read.", ("reason",)
        ),
        "stoker_executor_outcomes_total": Metric(
            "counter", "outcomes", "Outcomes that were published.", ("pool", "status", "reason")
        ),
        "stoker_executor_waiting_works": Metric(
            "gauge", "works", "Commands that are admitted and wait for their turn, once a replica.", ("pool",)
        ),
        "stoker_executor_needs_unheard_total": Metric(
            "counter", "works", "Works that went though a command that they need was never heard of.", ("pool",)
        ),
        "stoker_executor_apply_seconds": Metric(
            "histogram", "seconds", "From taking a command out of the line until it ended.", ("pool",)
        ),
        "stoker_executor_publish_seconds": Metric(
            "histogram", "seconds", "From handing a batch of outcomes to the producer until all were stored."
        ),
        "stoker_executor_lease_held_count": Metric(
            "gauge", "leases", "1 while this executor speaks for a replica, else 0.", ("replica",)
        ),
        "stoker_executor_replicas_known_count": Metric(
            "gauge", "replicas", "Replicas of a pool that this executor knows and that take warm-ups.", ("pool",)
        ),
        "stoker_executor_discovery_faults_total": Metric(
            "counter",
            "faults",
            "Times that DNS or the API server of Kubernetes did not say what is there.",
            ("source",),
        ),
        "stoker_executor_replica_ready_count": Metric(
            "gauge", "replicas", "1 while a replica that this executor speaks for is ready, else 0.", ("replica",)
        ),
        "stoker_executor_probes_total": Metric(
            "counter", "probes", "Replicas that became ready and were asked for one token.", ("replica", "result")
        ),
        "stoker_executor_probe_seconds": Metric(
            "histogram", "seconds", "From seeing that a replica became ready until it gave that token.", ("replica",)
        ),
        "stoker_executor_salts_state_count": Metric(
            "gauge",
            "replicas",
            "1 in the column of what trying salts on a replica found; no salted prompt is warmed where that is crosses,"
            " lost or refused.",
            ("replica", "state"),
        ),
        "stoker_executor_tier_fetches_total": Metric(
            "counter",
            "fetches",
            "Prefixes asked of the KV tier below a replica: whole ones leave the engine alone; all others (missing,"
            " too_short, refused, unanswered) are warmed there as ever.",
            ("replica", "result"),
        ),
        "stoker_executor_breaker_state_count": Metric(
            "gauge",
            "breakers",
            "1 for the state that the breaker of a replica is in (closed, half_open, open), else 0.",
            ("replica", "state"),
        ),
        "stoker_executor_breaker_share_ratio": Metric(
            "gauge",
            "share",
            "Share of the usual concurrency that a replica's breaker leaves to warm-ups.",
            ("replica",),
        ),
        "stoker_executor_breaker_trips_total": Metric(
            "counter", "trips", "Times that a replica's breaker opened, once for each cause.", ("replica", "cause")
        ),
        "stoker_executor_watched_prefixes": Metric(
            "gauge", "prefixes", "Warmed prefixes whose residency is followed.", ("replica",)
        ),
        "stoker_executor_residency_total": Metric(
            "counter", "statements", "Residency statements that were published.", ("replica",)
        ),
        "stoker_executor_swept_answers_total": Metric(
            "counter", "entries", "Answers taken out because their absolute end had come.", ("pool",)
        ),
        "cache_warmup_duration_seconds": Metric(
            "histogram", "seconds", "From taking a command until it ended, by the kind of its target.", ("kind",)
        ),
        "cache_warmup_key_errors_total": Metric(
            "counter", "keys", "Business keys that a loader gave no value for, once a try.", ("source", "reason")
        ),
    }
)


class MetricSink(Protocol):
    """Where measurements go. Never blocks, never raises for a value; a wrong label set is a programming error."""

    def count(self, name: MetricName, amount: float = 1.0, /, **labels: str) -> None:
        """Add `amount` ≥ 0 to a counter."""

    def level(self, name: MetricName, value: float, /, **labels: str) -> None:
        """Set a gauge."""

    def observe(self, name: MetricName, seconds: float, /, **labels: str) -> None:
        """Add one duration to a histogram."""

    def forget(self, label: str, value: str) -> None:
        """Take away whatever carries this label: what it stood for is gone, and must not be read as standing still."""


class SilentMetrics:
    """A sink for processes that nobody scrapes."""

    def count(self, name: MetricName, amount: float = 1.0, /, **labels: str) -> None:
        """Forget it."""

    def level(self, name: MetricName, value: float, /, **labels: str) -> None:
        """Forget it."""

    def observe(self, name: MetricName, seconds: float, /, **labels: str) -> None:
        """Forget it."""

    def forget(self, label: str, value: str) -> None:
        """There is nothing."""


SILENT: MetricSink = SilentMetrics()


class PrometheusMetrics:
    """A sink that Prometheus can scrape. Metrics without labels appear at once with 0, so that absence means 'down'.

    Args:
        registry: where to register; a fresh one by default, so that two executors in one test do not clash.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry if registry is not None else CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for name, metric in METRICS.items():
            text = f"{metric.meaning} Unit: {metric.unit}."
            if metric.kind == "counter":
                self._counters[name] = Counter(name, text, metric.labels, registry=self.registry)
            elif metric.kind == "gauge":
                self._gauges[name] = Gauge(name, text, metric.labels, registry=self.registry)
            else:
                self._histograms[name] = Histogram(
                    name, text, metric.labels, registry=self.registry, buckets=SECONDS_BUCKETS
                )

    def count(self, name: MetricName, amount: float = 1.0, /, **labels: str) -> None:
        """Add `amount` ≥ 0 to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def level(self, name: MetricName, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def observe(self, name: MetricName, seconds: float, /, **labels: str) -> None:
        """Add one duration to a histogram."""
        histogram = self._histograms[name]
        (histogram.labels(**labels) if labels else histogram).observe(seconds)

    def forget(self, label: str, value: str) -> None:
        """See `MetricSink.forget`."""
        for name, metric in METRICS.items():
            if label not in metric.labels:
                continue
            held = self._counters.get(name) or self._gauges.get(name) or self._histograms[name]
            held.remove_by_labels({label: value})

    def exposition(self) -> bytes:
        """The page that Prometheus reads (text format)."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
