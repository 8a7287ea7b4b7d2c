"""The prefix families of a scope's requests, and whether requests for any of them rise (D2).

The trunk is every leading segment that at least half of the scope's requests go through; a family is the first segment
below it, as in `trunk`, where hotness says the same of the prefix tree. Here it is found among the requests of the
window, and kept: a segment stays in the trunk until clearly less than half go through it, because each change of the
trunk gives other families to all that is in the window.

Who asked is counted only while something can have risen. Families are as many as prompts go apart, most scopes have no
crowd on one, and a window of askers costs more than all else; so requests are first counted in a few hashed bins a pane
(as in a sketch), and only a bin that rises beyond chance opens the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analytics.asked import LEAD_BYTES
from analytics.asked_panes import ODD, AskedPanes, Column, column_of, marks_of
from analytics.crowd_config import CrowdConfig
from analytics.crowd_span import Counted, Span, deviations
from analytics.records import Record, Section, pack, unpack
from analytics.running_entropy import Integers

BINS = 512
_SHIFT = np.uint64(64 - 9)
_TRUNK = ""
"""Key of its one record."""


class TrunkRecord(Record, frozen=True, array_like=True):
    """The trunk's hashes, `LEAD_BYTES` each, the first segment first."""

    hashes: bytes = b""


@dataclass
class _Pane:
    """What a pane says of a trunk, as far as it was asked.

    Attributes:
        through: requests that go through each segment of the trunk.
        bins: requests by the bin of their family.
        most: what half of its requests or more have behind the trunk; `counts` how many have something there.
    """

    version: int
    requests: int
    through: Sequence[int]
    bins: Integers
    most: list[bytes]
    counts: dict[bytes, int] = field(default_factory=dict)


class AskedFamilies:
    """The families of one scope.

    Args:
        panes: where the requests are.
    """

    def __init__(self, config: CrowdConfig, panes: AskedPanes, store: Section) -> None:
        self._config = config
        self._asked = panes
        self._store = store
        self._trunk: list[bytes] = []
        self._panes: dict[int, _Pane] = {}
        self._clear()

    @property
    def trunk(self) -> tuple[bytes, ...]:
        """Hashes of the trunk's segments."""
        return tuple(self._trunk)

    def slide(self, inside: Sequence[int]) -> bool:
        """Looks at the panes of the window.

        Returns:
            whether any of their requests tells its segments.
        """
        for gone in self._panes.keys() - set(inside):
            self._drop(gone)
        self._look(inside)
        if not self._requests:
            return False
        while self._changed():
            self._clear()
            self._look(inside)
        return True

    def rise(self, first: int, last: int) -> bool:
        """Whether requests for any family can have risen, in any of the spans that the rule looks at.

        Args:
            first: the pane from which on there is a past.
            last: the pane that the window ends with.
        """
        config = self._config
        oldest = max(first, last - config.panes + 1)
        for panes in config.spans:
            inside = [pane for number, pane in self._panes.items() if number > last - panes]
            before_panes = max(0, last - panes - oldest + 1)
            all_now = sum(pane.requests for pane in inside)
            all_before = self._requests - all_now
            enough = all_now >= config.min_users and all_before >= config.min_before_askers
            if not enough or before_panes < config.min_before_panes:
                continue
            now: Integers = np.sum([pane.bins for pane in inside], axis=0)
            ahead = self._ahead(now, max(all_now / self._requests, panes / (panes + before_panes)))
            if not len(ahead):
                continue
            counted = Counted(now[ahead], (self._bins - now)[ahead], all_now, all_before)
            risen = deviations(counted, Span(panes, before_panes, ahead, counted, counted)) > config.family_z
            if int(counted.now[risen].sum()) >= config.min_users:
                return True
        return False

    def column(self, pane: int) -> Column:
        """A pane's requests that tell their segments, by family."""
        led = self._asked.led(pane)
        marks = led.marks
        places = self._places(marks)
        every = np.arange(len(places))
        _, firsts, which = np.unique(marks[every, places], return_index=True, return_inverse=True)
        keys: list[bytes] = led.hashes[firsts, places[firsts]].tolist()
        return column_of(led.rows, keys, which)

    def forget(self) -> None:
        """Nothing was asked for lately."""
        self._clear()
        if self._trunk:
            self._trunk = []
            self._store.remove(_TRUNK)

    def restore(self, blob: bytes) -> None:
        """Takes its record back."""
        hashes = unpack(blob, TrunkRecord).hashes
        self._trunk = [hashes[at : at + LEAD_BYTES] for at in range(0, len(hashes), LEAD_BYTES)]

    def _ahead(self, now: Integers, share: float) -> Integers:
        """The bins that can have risen: twice chi square is never below the binomial deviance.

        Args:
            now: requests of a span by bin; `share` its part of all requests, or of the time where that is more.
        """
        usual = self._bins * share
        gained = now - usual
        bar = max(0.0, self._config.family_z) ** 2 * (1 - share)
        found: Integers = np.flatnonzero((gained > 0) & (2 * gained * gained > bar * usual))
        return found

    def _look(self, inside: Sequence[int]) -> None:
        for number in inside:
            version = self._asked.version(number)
            known = self._panes.get(number)
            if known is None or known.version != version:
                if known is not None:
                    self._drop(number)
                pane = self._panes[number] = self._seen(number, version)
                self._requests += pane.requests
                self._bins += pane.bins

    def _drop(self, number: int) -> None:
        pane = self._panes.pop(number)
        self._requests -= pane.requests
        self._bins -= pane.bins

    def _clear(self) -> None:
        self._panes.clear()
        self._requests = 0
        self._bins = np.zeros(BINS, dtype=np.int64)

    def _seen(self, number: int, version: int) -> _Pane:
        led = self._asked.led(number)
        marks = led.marks
        if not len(marks):
            return _Pane(version, 0, [0] * len(self._trunk), np.zeros(BINS, dtype=np.int64), [])
        passed, through = np.ones(len(marks), dtype=bool), []
        for depth, mark in enumerate(marks_of(self._trunk)[: marks.shape[1]]):
            passed &= marks[:, depth] == mark
            through.append(int(passed.sum()))
        through += [0] * (len(self._trunk) - len(through))
        places = self._places(marks)
        families = marks[np.arange(len(places)), places]
        with np.errstate(over="ignore"):
            bins = ((families * ODD).view(np.uint64) >> _SHIFT).astype(np.int64)
        most: list[bytes] = []
        depth = len(self._trunk)
        if depth < marks.shape[1] - 1:
            # What half of them have stands in the middle of all.
            column = marks[passed, depth]
            half = len(marks) / 2
            if len(column) >= half:
                middle = (len(column) - 1) // 2, len(column) // 2
                for mark in sorted(set(np.partition(column, middle)[list(middle)].tolist())):
                    own = np.flatnonzero(passed & (marks[:, depth] == mark))
                    if mark and len(own) >= half:
                        most.append(bytes(led.hashes[own[0], depth]))
        return _Pane(version, len(marks), through, np.bincount(bins, minlength=BINS), most)

    def _places(self, marks: Integers) -> Integers:
        """Of each request the place of its family among its leads: the last one where all lie in the trunk."""
        places = np.zeros(len(marks), dtype=np.int64)
        passed = np.ones(len(marks), dtype=bool)
        for depth, mark in enumerate(marks_of(self._trunk)[: max(0, marks.shape[1] - 1)]):
            passed &= (marks[:, depth] == mark) & (marks[:, depth + 1] != 0)
            places[passed] = depth + 1
        return places

    def _changed(self) -> bool:
        """Shortens or lengthens the trunk by what the window says; whether it did."""
        panes, requests = self._panes.values(), self._requests
        for depth in range(len(self._trunk)):
            if sum(pane.through[depth] for pane in panes) < self._config.trunk_kept * requests:
                return self._grown(self._trunk[:depth])
        for hashes in sorted({name for pane in panes for name in pane.most}):
            if sum(self._behind(number, hashes) for number in self._panes) >= self._config.trunk_share * requests:
                return self._grown([*self._trunk, hashes])
        return False

    def _behind(self, number: int, name: bytes) -> int:
        """Requests of a pane that have a segment behind the trunk."""
        pane = self._panes[number]
        if name not in pane.counts:
            marks = self._asked.led(number).marks
            depth = len(self._trunk)
            wanted = marks_of([*self._trunk, name])
            fits = len(marks) > 0 and depth < marks.shape[1]
            pane.counts[name] = int((marks[:, : depth + 1] == wanted).all(axis=1).sum()) if fits else 0
        return pane.counts[name]

    def _grown(self, trunk: list[bytes]) -> bool:
        self._trunk = trunk
        if trunk:
            self._store.put(_TRUNK, pack(TrunkRecord(1, b"".join(trunk))))
        else:
            self._store.remove(_TRUNK)
        return True
