"""The life of a decision object, whatever it decides: events, timers as an operator fires them, crashes, its size.

`tests/analytics/subjects.py` says how each object is made and what it may hear, `test_laws.py` what must hold for all.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

import analytics
from analytics.stores import MemoryLogStore, MemoryMapStore

PORTS = ("MapStore", "LogStore", "Section")


class Event(NamedTuple):
    """Something that an object hears.

    Attributes:
        at_ms: event time that it is about; the watermark follows the latest one.
        hear: tells it the object of a life; returns what that says.
    """

    at_ms: int
    hear: Callable[[Life], Sequence[Any] | None]


Events = Callable[[random.Random, int], Iterator[Event]]
"""Endless valid events from a time on, in about the order of their times; the same for the same seed."""


@dataclass(frozen=True)
class Subject:
    """How one kind of object lives.

    Attributes:
        kind: its class.
        born: makes one over what an earlier one left; None for the first. Also returns what it keeps its state in.
        left: what it leaves, were its process to die now.
        events: what it hears, about few things.
        strangers: the same about things that never come again.
        loose: of all that it says (first argument) and of what it leaves (second one), what must not depend on the
            order of events that an operator may give it in any order. Where the order is its input, a sentence.
        fire: its timer; None where it has none.
        unordered: events for `loose`, where they are not `events`.
    """

    kind: type[Any]
    born: Callable[[Any], tuple[Any, Any]]
    left: Callable[[Any, Any], Any]
    events: Events
    strangers: Events
    loose: Callable[[Sequence[Any], Any], Any] | str
    fire: Callable[[Any, int], Sequence[Any] | None] | None = None
    unordered: Events | None = None


@dataclass
class Life:
    """One object over its store.

    Attributes:
        late_ms: how far the watermark stays behind the latest event.
        said: everything that it said, in order. known: of that, what had been said when time passed last.
        fired: times of its timers.
    """

    subject: Subject
    late_ms: int = 0
    said: list[Any] = field(default_factory=list)
    known: list[Any] = field(default_factory=list)
    fired: list[int] = field(default_factory=list)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.object, self._kept = self.subject.born(None)

    def hear(self, event: Event) -> None:
        """One event, after the timers that are due before it."""
        self.pass_to(event.at_ms - self.late_ms)
        self.tell(event)

    def tell(self, event: Event) -> None:
        """One event, while time stands."""
        self.said += event.hear(self) or ()

    def pass_to(self, at_ms: int) -> None:
        """Lets event time pass; it never goes back."""
        self.now_ms = max(self.now_ms, at_ms)
        fire = self.subject.fire
        while fire is not None and (due := self.object.next_timer_ms) is not None and due <= self.now_ms:
            self.fired.append(due)
            self.said += fire(self.object, due) or ()
        self.known = list(self.said)

    def die(self, chance: random.Random) -> None:
        """The process ends; another one goes on from what is left, which it reads in any order."""
        left = self.left()
        for store in left if isinstance(left, tuple) else [left]:
            if isinstance(store, MemoryMapStore):
                items = list(store.records.items())
                chance.shuffle(items)
                store.records = dict(items)
        self.object, self._kept = self.subject.born(left)

    def left(self) -> Any:
        """What it leaves, were its process to die now."""
        return self.subject.left(self.object, self._kept)


def contents(left: Any) -> Any:
    """A store's contents in an order of their own; bytes as they are."""
    if isinstance(left, MemoryMapStore):
        return dict(sorted(left.records.items()))
    if isinstance(left, MemoryLogStore):
        return [list(log) for log in left.logs], dict(sorted(left.blobs.items()))
    return tuple(map(contents, left)) if isinstance(left, tuple) else left


def size_of(left: Any) -> int:
    """Bytes of a store or of a snapshot."""
    if isinstance(left, bytes):
        return len(left)
    if isinstance(left, str):
        return len(left)
    if isinstance(left, Mapping):
        return sum(size_of(key) + size_of(value) for key, value in left.items())
    if isinstance(left, Sequence):
        return sum(map(size_of, left))
    return 1


def reached(root: Any) -> tuple[int, set[type[Any]]]:
    """How many things an object holds, itself or through others, and of which of our classes."""
    seen: set[int] = set()
    kinds: set[type[Any]] = set()
    count, todo = 0, [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | MemoryMapStore | MemoryLogStore):
            continue
        seen.add(id(thing))
        count += 1
        if isinstance(thing, np.ndarray):
            count += thing.size
        elif isinstance(thing, Mapping):
            todo += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set | frozenset) or type(thing).__name__ == "deque":
            todo += thing
        elif isinstance(thing, msgspec.Struct):
            todo += [getattr(thing, name) for name in thing.__struct_fields__]
        elif type(thing).__module__.startswith(("analytics.", "tests.")):
            kinds.add(type(thing))
            todo += [getattr(thing, name) for name in _attributes(thing)]
        elif inspect.ismethod(thing):
            todo.append(thing.__self__)
    return count, kinds


def _attributes(thing: Any) -> list[str]:
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    return [name for name in (*getattr(thing, "__dict__", {}), *slots) if hasattr(thing, name)]


def stateful() -> dict[str, type[Any]]:
    """Every class of `analytics` whose state outlives its process: it is given a store, or takes back a snapshot."""
    found = {}
    for module in pkgutil.iter_modules(analytics.__path__, "analytics."):
        for name, kind in vars(importlib.import_module(module.name)).items():
            if not inspect.isclass(kind) or kind.__module__ != module.name or getattr(kind, "_is_protocol", False):
                continue
            given = inspect.signature(kind.__init__).parameters.values()
            if any(str(each.annotation) in PORTS for each in given) or "restore" in vars(kind):
                found[name] = kind
    return found
