"""Who asked what in the last minutes, pane by pane: the counts from which the tuned focus rule reads a crowd (D1, D2).

Two ways of counting, both blind to how often one user repeats himself. *Askers* are the distinct users of a key in a
pane: they add up over panes of equal length, so the share of a key in a few panes compares with its share before. The
*entropy* counts each user once per key and window. An event without a user stands for a user of its own: who asks
cannot be told then, and `anonymous_share` says for how many.

A pane enters as a whole and leaves as a whole; one that late events change leaves and enters again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytics.asked_panes import ODD, Column
from analytics.crowd_span import Counted, Span
from analytics.key_numbers import KeyNumbers
from analytics.pair_counts import PairCounts
from analytics.running_entropy import CountSums, EntropyColumn, Integers, distinct, grown

Key = bytes


def _none() -> Integers:
    return np.zeros(0, dtype=np.int64)


@dataclass
class _Pane:
    """A pane in numbers.

    Attributes:
        keys, users, at_ms: of each event.
        asked, askers, events: distinct keys, and how many users and events each has.
        pairs, pair_keys: the distinct (key, user), each as one word, in rising order; and their keys.
    """

    version: int
    keys: Integers
    users: Integers
    at_ms: Integers
    anonymous: int
    asked: Integers
    askers: Integers
    events: Integers
    pairs: Integers
    pair_keys: Integers


class CrowdWindow:
    """The sliding window of one scope and dimension. Keeps nothing that its panes do not say.

    Args:
        panes: its length.
    """

    def __init__(self, panes: int) -> None:
        self._length = panes
        self._panes: dict[int, _Pane] = {}
        self._first = self._last = -1
        self._keys = KeyNumbers[Key]()
        self._pairs = PairCounts()
        self._key_panes: Integers = np.zeros(64, dtype=np.int64)
        self._askers, self._events = self._key_panes.copy(), self._key_panes.copy()
        self._entropy = EntropyColumn()

    @property
    def sums(self) -> CountSums:
        """Of the keys' distinct users in the window: an entropy without repetitions."""
        return self._entropy.sums

    @property
    def last_pane(self) -> int:
        """The pane that the window ends with, -1 before the first slide."""
        return self._last

    @property
    def anonymous_share(self) -> float:
        """Part of the window's events that name no user; 0 of none."""
        events = sum(len(pane.keys) for pane in self._panes.values())
        return sum(pane.anonymous for pane in self._panes.values()) / events if events else 0.0

    def version(self, number: int) -> int:
        """The version with which a pane entered; 0 of one that is not inside."""
        pane = self._panes.get(number)
        return pane.version if pane is not None else 0

    def slide(self, first: int, last: int) -> None:
        """Ends the window with a pane; those that are too old leave.

        Args:
            first: the pane from which on there is a past to compare with.
        """
        self._first, self._last = first, last
        for number in [number for number in self._panes if number <= last - self._length]:
            self.leave(number)

    def enter(self, number: int, version: int, column: Column) -> None:
        """Takes a pane in, that must not be inside."""
        numbers = self._keys.of(column.keys)
        keys = numbers[column.which] if len(numbers) else _none()
        pane = self._panes[number] = _Pane(
            version, keys, column.users, column.at_ms, column.anonymous, _none(), _none(), _none(), _none(), _none()
        )
        if not len(keys):
            return
        self._key_panes = grown(self._key_panes, self._keys.capacity)
        self._askers = grown(self._askers, self._keys.capacity)
        self._events = grown(self._events, self._keys.capacity)
        pane.pairs, first = np.unique(column.users ^ keys * ODD, return_index=True)
        pane.pair_keys = keys[first]
        pane.asked, pane.events = distinct(keys)
        _, pane.askers = distinct(pane.pair_keys)

        self._entropy.add(pane.pair_keys[self._pairs.add(pane.pairs)])
        self._key_panes[pane.asked] += 1
        self._askers[pane.asked] += pane.askers
        self._events[pane.asked] += pane.events

    def leave(self, number: int) -> None:
        """Takes a pane out again."""
        pane = self._panes.pop(number)
        if not len(pane.keys):
            return
        self._askers[pane.asked] -= pane.askers
        self._events[pane.asked] -= pane.events
        self._entropy.remove(pane.pair_keys[self._pairs.remove(pane.pairs)])
        self._key_panes[pane.asked] -= 1
        self._keys.release(pane.asked[self._key_panes[pane.asked] == 0].tolist())

    def events_in(self, panes: int) -> int:
        """Events of the last panes."""
        return sum(len(held.keys) for number, held in self._panes.items() if number > self._last - panes)

    def span(self, panes: int) -> Span:
        """The last panes against those of the window before them."""
        after = self._last - panes
        oldest = max(self._first, self._last - self._length + 1)
        inside = [held for number, held in self._panes.items() if number > after]
        if not any(len(held.asked) for held in inside):
            nothing = Counted(_none(), _none(), 0, int(self._askers.sum()))
            return Span(panes, max(0, after - oldest + 1), _none(), nothing, nothing)
        keys = np.concatenate([held.asked for held in inside])
        askers = np.bincount(keys, np.concatenate([held.askers for held in inside])).astype(np.int64)
        events = np.bincount(keys, np.concatenate([held.events for held in inside])).astype(np.int64)
        asked = np.flatnonzero(askers)
        return Span(
            panes=panes,
            before_panes=max(0, after - oldest + 1),
            keys=asked,
            askers=_counted(asked, askers, self._askers),
            events=_counted(asked, events, self._events),
        )

    def events_of(self, keys: Integers, panes: int) -> tuple[Integers, Integers, Integers]:
        """Columns key, user and time of the events that asked for any of these keys in the last panes."""
        wanted = np.zeros(self._keys.capacity, dtype=bool)
        wanted[keys] = True
        columns: list[tuple[Integers, Integers, Integers]] = []
        for number in sorted(self._panes):
            if number > self._last - panes:
                held = self._panes[number]
                chosen = wanted[held.keys]
                columns.append((held.keys[chosen], held.users[chosen], held.at_ms[chosen]))
        if not columns:
            return _none(), _none(), _none()
        asked, users, at_ms = zip(*columns, strict=True)
        return np.concatenate(asked), np.concatenate(users), np.concatenate(at_ms)

    def events_since(self, at_ms: int, panes: int) -> int:
        """Events of the last panes that came at a time or after it."""
        inside = [held for number, held in self._panes.items() if number > self._last - panes]
        return sum(int((held.at_ms >= at_ms).sum()) for held in inside)

    def askers_by_pane(self, keys: Integers, panes: int) -> Integers:
        """Askers of these keys and of all, a row for each of the last panes, the oldest first."""
        wanted = np.zeros(self._keys.capacity, dtype=bool)
        wanted[keys] = True
        found = np.zeros((panes, 2), dtype=np.int64)
        for row, number in enumerate(range(self._last - panes + 1, self._last + 1)):
            held = self._panes.get(number)
            if held is not None:
                found[row] = held.askers[wanted[held.asked]].sum(), len(held.pairs)
        return found

    def distinct_keys(self) -> int:
        """Keys in the window."""
        return len(self._keys)

    def key(self, number: int) -> Key:
        """The key behind a number; numbers hold until the next slide."""
        return self._keys.key(number)


def _counted(asked: Integers, now: Integers, window: Integers) -> Counted:
    total = int(now.sum())
    return Counted(now[asked], window[asked] - now[asked], total, int(window.sum()) - total)
