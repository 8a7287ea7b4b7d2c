"""Slots of a replica for adapters, under floors of classes and any rule for who goes first (D12).

Every class owns a part of the slots and may borrow what others leave free. Two promises hold under every rule:

* A class that holds no more than it owns loses none of it to another class.
* An adapter in one of its class's own slots stays for the class's residency time after its last use.

So that both always can hold, no more adapters of a class are protected at a time than it owns: a use protects where
the class has an own slot left to do it with. Where all that a newcomer could displace is protected it isn't kept: the
engine serves it in passing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analytics.adapter_classes import FLOORS, AdapterClass, ClassFloor, own_slots
from analytics.records import Record, Section, pack, unpack

Worth = Callable[[str, int], tuple[float, ...]]
"""What keeping an adapter is worth to a rule: name, when its slot was touched last (ms). The least goes first."""


class HeldRecord(Record, frozen=True, array_like=True):
    """One adapter in a slot.

    Attributes:
        touched_ms: when it was used or loaded last.
        stays_ms: event time until which its class's residency protects it; 0 where it is not protected.
        expected: loaded before it was asked for, and not used yet.
    """

    adapter: str
    adapter_class: AdapterClass
    touched_ms: int
    stays_ms: int
    expected: bool


@dataclass(frozen=True)
class Kept:
    """What came of a use or a load.

    Attributes:
        hit: it was there. expected: it was there because it had been loaded before it was asked for.
        kept: it is there now. evicted: who went for it.
    """

    hit: bool
    expected: bool
    kept: bool
    evicted: str | None


class AdapterSlots:
    """The adapters on one replica, real or simulated."""

    def __init__(
        self, slots: int, store: Section | None = None, floors: Mapping[AdapterClass, ClassFloor] = FLOORS
    ) -> None:
        self._slots = slots
        self._floors = floors
        self.own = own_slots(slots, floors)
        self._store = store
        self._held: dict[str, HeldRecord] = {}

    def __contains__(self, adapter: object) -> bool:
        return adapter in self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> Mapping[str, HeldRecord]:
        """What is there, by name."""
        return self._held

    def count(self, adapter_class: AdapterClass) -> int:
        """Slots that a class has at present."""
        return sum(1 for each in self._held.values() if each.adapter_class == adapter_class)

    def use(self, adapter: str, adapter_class: AdapterClass, at_ms: int, worth: Worth) -> Kept:
        """A request for an adapter: found, or loaded where room can be made."""
        before = self._held.get(adapter)
        if before is not None:
            # A class may change; then the promise of the new one is what counts.
            self._put(adapter, adapter_class, max(before.touched_ms, at_ms), self._stays(adapter, adapter_class, at_ms))
            return Kept(True, before.expected, True, None)
        room, evicted = self._room(adapter_class, at_ms, worth, False)
        if room:
            self._put(adapter, adapter_class, at_ms, self._stays(adapter, adapter_class, at_ms))
        return Kept(False, False, room, evicted)

    def expect(self, adapter: str, adapter_class: AdapterClass, at_ms: int, worth: Worth) -> Kept:
        """A load before anybody asked; it protects nothing and never displaces another one that is waited for."""
        if adapter in self._held:
            return Kept(True, False, True, None)
        room, evicted = self._room(adapter_class, at_ms, worth, True)
        if room:
            self._put(adapter, adapter_class, at_ms, 0, expected=True)
        return Kept(False, False, room, evicted)

    def resize(self, slots: int, worth: Worth) -> None:
        """From now on there are so many slots; where they are fewer, the least worth go, whatever protected them."""
        self._slots, self.own = slots, own_slots(slots, self._floors)
        if (surplus := len(self._held) - slots) > 0:
            for _, gone in sorted((worth(name, each.touched_ms), name) for name, each in self._held.items())[:surplus]:
                self._drop(gone)

    def restore(self, blob: bytes) -> None:
        """Takes back one slot."""
        held = unpack(blob, HeldRecord)
        self._held[held.adapter] = held

    def _stays(self, adapter: str, adapter_class: AdapterClass, at_ms: int) -> int:
        """Until when a use at this time protects; a protection that was given is only ever prolonged."""
        until_ms = at_ms + self._floors[adapter_class].residency_ms
        before = self._held.get(adapter)
        if before is not None and before.adapter_class == adapter_class and before.stays_ms > at_ms:
            return max(before.stays_ms, until_ms)
        others = sum(
            1
            for name, each in self._held.items()
            if name != adapter and each.adapter_class == adapter_class and each.stays_ms > at_ms
        )
        return until_ms if until_ms > at_ms and others < self.own[adapter_class] else 0

    def _room(self, adapter_class: AdapterClass, at_ms: int, worth: Worth, expected: bool) -> tuple[bool, str | None]:
        """Whether there is a free slot now, and who had to go for it."""
        if len(self._held) < self._slots:
            return True, None
        counts = dict.fromkeys(self.own, 0)
        for each in self._held.values():
            counts[each.adapter_class] += 1
        may_go = [
            (worth(name, each.touched_ms), name)
            for name, each in self._held.items()
            if each.stays_ms <= at_ms
            and (each.adapter_class == adapter_class or counts[each.adapter_class] > self.own[each.adapter_class])
            and not (expected and each.expected)
        ]
        if not may_go:
            return False, None
        _, gone = min(may_go)
        self._drop(gone)
        return True, gone

    def _drop(self, adapter: str) -> None:
        del self._held[adapter]
        if self._store is not None:
            self._store.remove(adapter)

    def _put(
        self, adapter: str, adapter_class: AdapterClass, touched_ms: int, stays_ms: int, expected: bool = False
    ) -> None:
        record = HeldRecord(1, adapter, adapter_class, touched_ms, stays_ms, expected)
        self._held[adapter] = record
        if self._store is not None:
            self._store.put(adapter, pack(record))
