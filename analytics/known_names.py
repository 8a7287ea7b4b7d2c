"""The names of facts, decoded once: a shard sees the same ones again and again."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.asked import Asking, PendingAsked
from analytics.facts import HEAD, unpack_names
from analytics.panes import Place
from analytics.second_sight import ScopeSight, SecondSight

MAX_BYTES = 4 << 20
"""Of names that are kept decoded: 6,000 as they commonly are, 1,600 of a hostile producer's, 2 kB each."""
BYTES_BESIDES = 512
"""What one costs besides its own bytes."""


@dataclass(frozen=True)
class Known:
    """A fact's names, and where requests with them are counted."""

    place: Place
    template: bytes
    adapter: bytes
    sight: ScopeSight
    asked: Asking


class KnownNames:
    """A cache, and no state: what is forgotten is decoded again.

    Attributes:
        known: by the bytes of the names. One object for ever, for a caller that looks into it at each event.
    """

    def __init__(self, sights: SecondSight, asked: PendingAsked) -> None:
        self.known: dict[bytes, Known] = {}
        self._bytes = 0
        self._sights = sights
        self._asked = asked

    def learn(self, names: bytes) -> Known:
        """Decodes names that are not known; where there is no room, all others are forgotten first."""
        if self._bytes >= MAX_BYTES:
            self.forget()
        told = unpack_names(names)
        sight = self._sights.scope(told.scope)
        asked = self._asked.asking((told.scope, told.pool, told.template, told.adapter), HEAD.size + len(names))
        known = Known((told.scope, told.pool), told.template.encode(), told.adapter.encode(), sight, asked)
        self.known[names] = known
        self._bytes += BYTES_BESIDES + len(names)
        return known

    def forget(self) -> None:
        """Forgets all names, since some of their scopes may be gone."""
        self.known.clear()
        self._bytes = 0
        self._asked.forget()
