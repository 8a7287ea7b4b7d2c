"""Who asked what in the last minutes, pane by pane: the counts from which the tuned focus rule reads a crowd (D1, D2).

Two ways of counting, both blind to how often one user repeats himself. *Askers* are the distinct users of a key in a
pane: they add up over panes of equal length, so the share of a key in a few panes compares with its share before. The
*entropy* counts each user once per key and window. An event without a user stands for a user of its own: who asks
cannot be told then, and `anonymous_share` says for how many.

Events are taken in any order; `slide` takes in what has come for panes that have ended, so that neither the order
within a pane nor how the events were batched shows. Each batch is one record of the store, written once and removed
when its pane leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analytics.key_numbers import KeyNumbers
from analytics.records import Record, Section, pack, path, unpack
from analytics.running_entropy import CountSums, EntropyColumn, Integers, distinct, grown

Key = bytes

_SLID = "s"
_USER_BITS = 31
_NOBODY = 1 << 64
"""From here on are the users that stand for events without one; hashes of users have 64 bits."""


def _none() -> Integers:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class CrowdWindowConfig:
    """What a window holds.

    Attributes:
        panes: length of the window, in panes.
        max_pane_events: events that one pane takes; further ones are only counted, as `dropped`.
    """

    panes: int = 30
    max_pane_events: int = 200_000


class BatchRecord(Record, frozen=True, array_like=True):
    """Some events of one pane: three columns of equal length."""

    pane: int
    serial: int
    keys: tuple[Key, ...]
    users: tuple[int, ...]
    at_ms: tuple[int, ...]
    dropped: int = 0


class SlideRecord(Record, frozen=True, array_like=True):
    """The first pane that had an event, and the last one that was slid to."""

    first: int
    last: int


@dataclass(frozen=True)
class Counted:
    """How some keys were asked for in a span and, in the same window, before it; by askers or by events.

    Attributes:
        now, before: of each key.
        all_now, all_before: of all keys.
    """

    now: Integers
    before: Integers
    all_now: int
    all_before: int


@dataclass(frozen=True)
class Span:
    """The last panes of a window against those before them.

    Attributes:
        panes, before_panes: how many there are; quiet ones are there too.
        keys: numbers of the keys that were asked for in the span.
        askers, events: their counts.
    """

    panes: int
    before_panes: int
    keys: Integers
    askers: Counted
    events: Counted


@dataclass
class _Events:
    """What came of one pane: three columns in any order, and the batches that brought them."""

    keys: list[Key] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    at_ms: list[int] = field(default_factory=list)
    serials: list[int] = field(default_factory=list)
    dropped: int = 0

    def take(self, batch: BatchRecord) -> None:
        """Adds a batch; whoever has no name becomes a user of his own."""
        nobody = _NOBODY + (batch.serial << 32)
        self.keys += batch.keys
        self.users += [user or nobody + place for place, user in enumerate(batch.users)]
        self.at_ms += batch.at_ms
        self.serials.append(batch.serial)
        self.dropped += batch.dropped


@dataclass
class _Pane:
    """What was taken in of one pane, in numbers."""

    keys: Integers
    users: Integers
    at_ms: Integers
    serials: list[int]
    dropped: int
    anonymous: int
    pairs: Integers = field(default_factory=_none)
    asked: Integers = field(default_factory=_none)
    askers: Integers = field(default_factory=_none)
    events: Integers = field(default_factory=_none)


class CrowdWindow:
    """The sliding window of one scope and dimension.

    Args:
        store: where batches and slides are kept.
    """

    def __init__(self, config: CrowdWindowConfig, store: Section) -> None:
        self.config = config
        self.late = 0
        self._store = store
        self._waiting: dict[int, _Events] = {}
        self._taken: dict[int, int] = {}
        self._panes: dict[int, _Pane] = {}
        self._slid = SlideRecord(1, -1, -1)
        self._keys = KeyNumbers[Key]()
        self._users = KeyNumbers[int]()
        self._pairs = KeyNumbers[int]()
        self._key_panes: Integers = np.zeros(64, dtype=np.int64)
        self._user_panes, self._pair_panes = self._key_panes.copy(), self._key_panes.copy()
        self._askers, self._events = self._key_panes.copy(), self._key_panes.copy()
        self._entropy = EntropyColumn()
        self._serial = 0

    @property
    def sums(self) -> CountSums:
        """Of the keys' distinct users in the window, as of the last slide: an entropy without repetitions."""
        return self._entropy.sums

    @property
    def last_pane(self) -> int:
        """The pane that was slid to, -1 before the first one."""
        return self._slid.last

    @property
    def anonymous_share(self) -> float:
        """Part of the window's events that name no user; 0 of none."""
        events = sum(len(pane.keys) for pane in self._panes.values())
        return sum(pane.anonymous for pane in self._panes.values()) / events if events else 0.0

    @property
    def dropped(self) -> int:
        """Events of the window for which their pane had no room."""
        return sum(pane.dropped for pane in self._panes.values())

    def add(self, pane: int, keys: Sequence[Key], users: Sequence[int], at_ms: Sequence[int]) -> int:
        """Takes events of one pane; they count from the next slide on.

        Args:
            pane: event time div the pane's length; a pane that has left the window takes nothing more.
            keys: what was asked for: 16 bytes of a query, or a name in UTF-8.
            users: 64-bit hashes; 0 where nobody is named.
            at_ms: event times.

        Returns:
            how many were taken: the others came too late, or the pane is full.
        """
        count = len(keys)
        if pane <= self._slid.last - self.config.panes:
            self.late += count
            return 0
        room = self.config.max_pane_events - self._taken.get(pane, 0)
        took = max(0, min(count, room))
        if not count:
            return 0
        self._serial += 1
        batch = BatchRecord(
            1,
            pane,
            self._serial,
            tuple(keys[:took]),
            tuple(users[:took]),
            tuple(at_ms[:took]),
            count - took,
        )
        self._hold(batch)
        self._store.put(_batch_key(pane, batch.serial), pack(batch))
        return took

    def slide(self, pane: int) -> bool:
        """Moves the window's end to the end of this pane; False, and nothing, where it has been there."""
        if pane <= self._slid.last:
            return False
        for number in [number for number in self._panes if number <= pane - self.config.panes]:
            pane_out = self._panes.pop(number)
            self._subtract(pane_out)
            self._forget(number, pane_out.serials)
        for number in sorted(number for number in self._waiting if number <= pane):
            if number > pane - self.config.panes:
                self._enter(number, self._waiting.pop(number))
            else:
                self._forget(number, self._waiting.pop(number).serials)
        first = min(self._panes, default=-1) if self._slid.first < 0 else self._slid.first
        self._slid = SlideRecord(1, first, pane)
        self._store.put(_SLID, pack(self._slid))
        return True

    def span(self, panes: int) -> Span:
        """The last panes, up to the one that was slid to, against those of the window before them."""
        after = self._slid.last - panes
        oldest = max(self._slid.first, self._slid.last - self.config.panes + 1)
        inside = [held for number, held in self._panes.items() if number > after]
        if not inside:
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
            if number > self._slid.last - panes:
                held = self._panes[number]
                chosen = wanted[held.keys]
                columns.append((held.keys[chosen], held.users[chosen], held.at_ms[chosen]))
        if not columns:
            return _none(), _none(), _none()
        asked, users, at_ms = zip(*columns, strict=True)
        return np.concatenate(asked), np.concatenate(users), np.concatenate(at_ms)

    def events_since(self, at_ms: int, panes: int) -> int:
        """Events of the last panes that came at a time or after it."""
        inside = [held for number, held in self._panes.items() if number > self._slid.last - panes]
        return sum(int((held.at_ms >= at_ms).sum()) for held in inside)

    def askers_by_pane(self, keys: Integers, panes: int) -> Integers:
        """Askers of these keys and of all, a row for each of the last panes, the oldest first."""
        wanted = np.zeros(self._keys.capacity, dtype=bool)
        wanted[keys] = True
        found = np.zeros((panes, 2), dtype=np.int64)
        for row, number in enumerate(range(self._slid.last - panes + 1, self._slid.last + 1)):
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

    def restore(self, name: str, blob: bytes) -> None:
        """Takes back one record of the store under its key; `restored` ends it."""
        if name == _SLID:
            self._slid = unpack(blob, SlideRecord)
        else:
            batch = unpack(blob, BatchRecord)
            self._serial = max(self._serial, batch.serial)
            self._hold(batch)

    def restored(self) -> None:
        """All records are back: what was slid over is taken in."""
        for number in sorted(number for number in self._waiting if number <= self._slid.last):
            self._enter(number, self._waiting.pop(number))

    def _hold(self, batch: BatchRecord) -> None:
        self._waiting.setdefault(batch.pane, _Events()).take(batch)
        self._taken[batch.pane] = self._taken.get(batch.pane, 0) + len(batch.keys)

    def _enter(self, number: int, events: _Events) -> None:
        if number in self._panes:
            events = self._out(self._panes.pop(number), events)
        keys, users = self._keys.of(events.keys), self._users.of(events.users)
        anonymous = sum(user >= _NOBODY for user in events.users)
        at_ms = np.array(events.at_ms, dtype=np.int64)
        pane = self._panes[number] = _Pane(keys, users, at_ms, events.serials, events.dropped, anonymous)
        if not len(keys):
            return
        self._fit()
        pairs, _ = distinct(keys << _USER_BITS | users)
        pane.pairs = self._pairs.of(pairs.tolist())
        self._pair_panes = grown(self._pair_panes, self._pairs.capacity)
        pane.asked, pane.events = distinct(keys)
        _, pane.askers = distinct(pairs >> _USER_BITS)

        self._entropy.add((pairs >> _USER_BITS)[self._pair_panes[pane.pairs] == 0])
        self._pair_panes[pane.pairs] += 1
        self._key_panes[pane.asked] += 1
        self._user_panes[distinct(users)[0]] += 1
        self._askers[pane.asked] += pane.askers
        self._events[pane.asked] += pane.events

    def _out(self, pane: _Pane, more: _Events) -> _Events:
        """The events of a pane that has to be taken in again with others that came late."""
        keys = [self._keys.key(number) for number in pane.keys.tolist()]
        users = [self._users.key(number) for number in pane.users.tolist()]
        self._subtract(pane)
        return _Events(
            keys + more.keys,
            users + more.users,
            pane.at_ms.tolist() + more.at_ms,
            pane.serials + more.serials,
            pane.dropped + more.dropped,
        )

    def _subtract(self, pane: _Pane) -> None:
        if not len(pane.keys):
            return
        self._askers[pane.asked] -= pane.askers
        self._events[pane.asked] -= pane.events
        self._pair_panes[pane.pairs] -= 1
        gone = pane.pairs[self._pair_panes[pane.pairs] == 0].tolist()
        self._entropy.remove(np.array([self._pairs.key(pair) >> _USER_BITS for pair in gone], dtype=np.int64))
        self._pairs.release(gone)
        for panes, numbers, names in (
            (self._key_panes, pane.asked, self._keys),
            (self._user_panes, distinct(pane.users)[0], self._users),
        ):
            panes[numbers] -= 1
            names.release(numbers[panes[numbers] == 0].tolist())

    def _forget(self, number: int, serials: list[int]) -> None:
        self._taken.pop(number, None)
        for serial in serials:
            self._store.remove(_batch_key(number, serial))

    def _fit(self) -> None:
        self._key_panes = grown(self._key_panes, self._keys.capacity)
        self._user_panes = grown(self._user_panes, self._users.capacity)
        self._askers = grown(self._askers, self._keys.capacity)
        self._events = grown(self._events, self._keys.capacity)


def _counted(asked: Integers, now: Integers, window: Integers) -> Counted:
    total = int(now.sum())
    return Counted(now[asked], window[asked] - now[asked], total, int(window.sum()) - total)


def _batch_key(pane: int, serial: int) -> str:
    return path(str(pane), str(serial))
