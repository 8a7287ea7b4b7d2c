"""What a source said last, and how long that counts when it says nothing, or nothing that can be believed."""

from __future__ import annotations

import logging

from connectors.discovery.base import Endpoint
from connectors.discovery.clock import REAL, Clock
from connectors.metrics import SILENT, MetricSink

log = logging.getLogger(__name__)

NOBODY = "it names no replica any more"


class Kept:
    """The list of one source.

    A list that is empty all at once is treated as a fault: a selector that was changed by mistake, or a name server
    that lost its zone, looks just so, and dropping every replica would be the worst answer to it. It is believed at
    once where no replica was taking traffic before.

    Args:
        source: its name, for logs and metrics.
        keep_s: how long after its last answer what it said counts.

    Attributes:
        told: the list that counts now; None before there is one.
    """

    def __init__(self, source: str, keep_s: float, clock: Clock = REAL, metrics: MetricSink = SILENT) -> None:
        self.told: tuple[Endpoint, ...] | None = None
        self._source = source
        self._keep_s = keep_s
        self._clock = clock
        self._metrics = metrics
        self._heard_s = clock.now_s()
        self._fault: str | None = None

    @property
    def doubted(self) -> bool:
        """Whether what counts is kept although the source does not say it now."""
        return self._fault is not None

    def answered(self, found: tuple[Endpoint, ...]) -> bool:
        """The source has just said this; returns whether the list that counts is another now."""
        if not found and any(not endpoint.draining for endpoint in self.told or ()):
            if self._fault is None:
                self._heard_s = self._clock.now_s()
            return self.failed(NOBODY)
        self._heard_s = self._clock.now_s()
        if self._fault is not None:
            log.info("%s is heard again", self._source)
            self._fault = None
        changed, self.told = found != self.told, found
        return changed

    def failed(self, fault: str) -> bool:
        """The source could not be heard; returns whether the list that counts is another now: it is empty."""
        self._metrics.count("stoker_executor_discovery_faults_total", source=self._source)
        silent_s = self._clock.now_s() - self._heard_s
        over = silent_s >= self._keep_s
        if fault != self._fault:
            self._fault = fault
            kept = f"; what is known is kept for {self._keep_s - silent_s:.0f} s more" if self.told and not over else ""
            log.warning("%s: %s%s", self._source, fault, kept)
        if not over or self.told == ():
            return False
        if self.told:
            log.warning("%s: not heard for %.0f s: its %d replicas are let go", self._source, silent_s, len(self.told))
        self.told = ()
        return True
