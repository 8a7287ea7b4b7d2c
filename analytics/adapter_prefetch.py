"""Which adapters to load before anybody asks for them, and how far a prediction is to be believed (D12).

Habits give shares; shares are not chances, least of all of adapters that are not resident: those are the ones that did
not follow their habit. So every prediction is judged, sent or not: it *came true* when the adapter was asked for within
the horizon. A signal's *reliability* is what came true over what its shares had promised, 1 at first. A
prediction's *confidence* is the part that came true of its group (one signal, shares of one tenth), with share times
reliability as four judged predictions before the first. Only what reaches the bar is sent. A prediction is open until
it came true or its time is over, and is not made again meanwhile: one mistake costs one load.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from analytics.adapter_habits import HOUR_MS, SIGNALS, AdapterHabits, HabitConfig, Hint, Signal
from analytics.records import Record, Section, pack, path, unpack
from analytics.stores import MapStore

GROUPS = 10
LEAST_GROUP = 2
"""Shares below 0.2 are not followed up: they would be most of the work and never reach a bar."""
TRUST = 4.0
"""As how many judged predictions a share counts, and as how many kept promises a signal's good name."""
AGED_AT = 256.0
"""Judged predictions of a group at which its counts are halved."""


@dataclass(frozen=True)
class PrefetchConfig:
    """When an adapter is loaded ahead.

    Attributes:
        bar: least confidence, 0 to 1.
        horizon_ms: in which a prediction must come true.
        max_open: predictions that wait to be judged; the oldest go first, unjudged.
    """

    bar: float = 0.5
    horizon_ms: int = HOUR_MS
    max_open: int = 1_024
    habits: HabitConfig = field(default_factory=HabitConfig)


class Prediction(NamedTuple):
    """An adapter that will be asked for, with the evidence.

    Attributes:
        share: what habit says. confidence: what came true of such shares. judged: of how many.
    """

    adapter: str
    signal: Signal
    share: float
    confidence: float
    judged: float


class OpenRecord(Record, frozen=True, array_like=True):
    """A prediction that waits to be judged."""

    adapter: str
    signal: Signal
    group: int
    until_ms: int
    share: float


class GroupRecord(Record, frozen=True, array_like=True):
    """Predictions of a group that were judged, those that came true, and the sum of their shares."""

    signal: Signal
    group: int
    judged: float
    true: float
    promised: float


class ClockRecord(Record, frozen=True, array_like=True):
    """The latest event time, and the hour whose habits were looked at last."""

    now_ms: int
    hour: int


Key = tuple[str, Signal, int]


class AdapterPrefetch:
    """Predictions for one pool, from its past requests only.

    Args:
        store: its records begin with a (habits), o (open), g (groups), c (clock).
    """

    def __init__(self, config: PrefetchConfig, store: MapStore | Section) -> None:
        self._config = config
        self._habits = AdapterHabits(config.habits, Section(store, "a"))
        self._store = Section(store, "")
        self._open: dict[Key, OpenRecord] = {}
        self._groups = {
            (signal, group): GroupRecord(1, signal, group, 0.0, 0.0, 0.0)
            for signal in SIGNALS
            for group in range(GROUPS)
        }
        self._clock = ClockRecord(1, 0, 0)

    def __len__(self) -> int:
        return len(self._open) + len(self._habits)

    def on_request(
        self, at_ms: int, tenant: str, model: str, adapters: tuple[str, ...], resident: Container[object]
    ) -> list[Prediction]:
        """Learns from a request, and says what to load now, the most certain first.

        Args:
            at_ms: event time; one before the last is taken as the last.
            model: the base model. adapters: that it asked for, none or several.
            resident: after this request; nothing of it is predicted.
        """
        now_ms = max(at_ms, self._clock.now_ms)
        self._judge(now_ms, adapters)
        self._habits.learn(now_ms, tenant, model, adapters)
        hints = list(self._habits.hints(now_ms, tenant, model, adapters))
        if now_ms // HOUR_MS != self._clock.hour:
            hints += self._habits.hour_hints(now_ms)
        self._clock = ClockRecord(1, now_ms, now_ms // HOUR_MS)
        self._store.put("c", pack(self._clock))
        best: dict[str, Prediction] = {}
        for hint in sorted(hints, key=lambda hint: (hint.adapter, hint.signal, hint.share)):
            if hint.adapter in resident:
                continue
            prediction = self._predict(hint, now_ms)
            if prediction is None or prediction.confidence < self._config.bar:
                continue
            if hint.adapter not in best or prediction.confidence > best[hint.adapter].confidence:
                best[hint.adapter] = prediction
        self._bound()
        return sorted(best.values(), key=lambda each: (-each.confidence, each.adapter))

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record."""
        if key[0] == "a":
            self._habits.restore(key[1:], blob)
        elif key[0] == "o":
            waits = unpack(blob, OpenRecord)
            self._open[waits.adapter, waits.signal, waits.group] = waits
        elif key[0] == "g":
            group = unpack(blob, GroupRecord)
            self._groups[group.signal, group.group] = group
        else:
            self._clock = unpack(blob, ClockRecord)

    def _predict(self, hint: Hint, now_ms: int) -> Prediction | None:
        """A prediction is made once: not where one of this signal with as great a share is open."""
        group = min(GROUPS - 1, int(hint.share * GROUPS))
        if group < LEAST_GROUP:
            return None
        if any((hint.adapter, hint.signal, higher) in self._open for higher in range(group, GROUPS)):
            return None
        waits = OpenRecord(1, hint.adapter, hint.signal, group, now_ms + self._config.horizon_ms, hint.share)
        self._open[hint.adapter, hint.signal, group] = waits
        self._store.put(_name(waits), pack(waits))
        known = self._groups[hint.signal, group]
        expected = hint.share * self._reliability(hint.signal)
        confidence = (known.true + TRUST * expected) / (known.judged + TRUST)
        return Prediction(hint.adapter, hint.signal, hint.share, confidence, known.judged)

    def _reliability(self, signal: Signal) -> float:
        groups = [self._groups[signal, group] for group in range(GROUPS)]
        true, promised = sum(group.true for group in groups), sum(group.promised for group in groups)
        return min(1.0, (true + TRUST) / (promised + TRUST))

    def _judge(self, now_ms: int, adapters: tuple[str, ...]) -> None:
        over = [waits for waits in self._open.values() if waits.adapter in adapters or waits.until_ms < now_ms]
        for waits in sorted(over, key=_order):
            known = self._groups[waits.signal, waits.group]
            came_true = waits.until_ms >= now_ms
            old = 0.5 if known.judged >= AGED_AT else 1.0
            self._groups[waits.signal, waits.group] = judged = GroupRecord(
                1,
                waits.signal,
                waits.group,
                known.judged * old + 1.0,
                known.true * old + came_true,
                known.promised * old + waits.share,
            )
            self._store.put(f"g{waits.signal}{waits.group}", pack(judged))
            self._drop(waits)

    def _bound(self) -> None:
        surplus = len(self._open) - self._config.max_open
        if surplus > 0:
            for waits in sorted(self._open.values(), key=_order)[:surplus]:
                self._drop(waits)

    def _drop(self, waits: OpenRecord) -> None:
        del self._open[waits.adapter, waits.signal, waits.group]
        self._store.remove(_name(waits))


def _order(waits: OpenRecord) -> tuple[int, str, str, int]:
    return waits.until_ms, waits.adapter, waits.signal, waits.group


def _name(waits: OpenRecord) -> str:
    return f"o{path(waits.adapter)}{waits.signal}{waits.group}"
