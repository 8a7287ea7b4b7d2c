"""Counters of decision objects as Flink metrics, which the Prometheus reporter shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Tallies:
    """What the decisions of one subtask have counted since it started.

    A decision counts since its state began, a metric since its process started: the difference is taken per key.

    Args:
        group: Flink's metric group.
        prefix: of the metrics' names.
    """

    def __init__(self, group: Any, prefix: str) -> None:
        self._group = group
        self._prefix = prefix
        self._counters: dict[str, Any] = {}
        self._told: dict[tuple[Any, str], int] = {}

    def begin(self, key: Any, counts: Mapping[str, int]) -> None:
        """A decision was restored with these counts: they are history."""
        for name, count in counts.items():
            self._told[key, name] = count

    def tell(self, key: Any, counts: Mapping[str, int]) -> None:
        """Adds what a decision has counted since the last call."""
        for name, count in counts.items():
            grown = count - self._told.get((key, name), 0)
            if grown:
                self._told[key, name] = count
                counter = self._counters.get(name)
                if counter is None:
                    counter = self._counters[name] = self._group.counter(f"{self._prefix}_{name}")
                counter.inc(grown)
