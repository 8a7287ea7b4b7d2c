"""What the /metrics pages of all dialects are: families that are worked out when somebody asks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from stoker.simulator.engine import SimulatedEngine

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Page(Collector):
    """Renders one replica's state when it is asked."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """The whole page."""
        return generate_latest(self._registry)

    @abstractmethod
    def collect(self) -> Iterator[Family]:
        """Called by the registry for each page."""
