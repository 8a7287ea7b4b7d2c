"""What operators with one decision a key have in common: a live object over keyed state, its timer, and its end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from analytics.envelopes import Tag, body_of, key_of, tag_of
from analytics.stores import MapStore
from jobs.interpreter import share_core
from jobs.live import Live
from jobs.operators.tags import INSIGHTS
from jobs.rows import addressed, keyed
from jobs.settings import JobSettings
from jobs.timers import Alarms


class Decision(Protocol):
    """What is woken by event time."""

    @property
    def next_timer_ms(self) -> int | None:
        """When it wants to be woken; None while nothing is to come."""

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept."""

    def on_timer(self, at_ms: int) -> list[bytes]:
        """Envelopes. A timer that is no longer wanted does nothing."""


D = TypeVar("D", bound=Decision)


class DecisionOperator(KeyedProcessFunction, Generic[D]):  # type: ignore[misc]  # untyped base
    """Envelopes of a key in; what its decision tells out, insights by the side.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live decisions are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        self._later_ms = self.later_ms(settings)
        self._alarms = Alarms()
        self._live: Live[D] = Live(runtime_context, settings.warmup.shards, self.maker(settings))

    @abstractmethod
    def maker(self, settings: JobSettings) -> Callable[[str, MapStore], D]:
        """How the decision of a key is built over its store."""

    @abstractmethod
    def take(self, decision: D, envelope: bytes, timers: Any) -> Sequence[bytes]:
        """Tells the decision of its key what came; returns the envelopes that it answers at once."""

    def later_ms(self, settings: JobSettings) -> int:
        """How much event time after it is due a timer fires; see `Alarms.arm`."""
        del settings
        return 0

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """One envelope."""
        key = key_of(value)
        decision = self._live[key]
        timers = ctx.timer_service()
        out = self.take(decision, value, timers)
        self._settle(key, decision, timers)
        return map(_leaving, out)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """The decision of the current key wanted to be woken."""
        key = str(ctx.get_current_key())
        decision = self._live[key]
        out = decision.on_timer(timestamp - self._later_ms)
        self._settle(key, decision, ctx.timer_service())
        return map(_leaving, out)

    def _settle(self, key: str, decision: D, timers: Any) -> None:
        self._alarms.arm(key, decision.next_timer_ms, timers, self._later_ms)
        if decision.blank:
            self._live.end(key)


def _leaving(envelope: bytes) -> Any:
    if tag_of(envelope) == Tag.INSIGHT:
        return INSIGHTS, keyed(key_of(envelope), body_of(envelope))
    return addressed(envelope)
