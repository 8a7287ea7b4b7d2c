"""Residency: which of the prefixes that were warmed are still there, as statements worth publishing. Pure.

The engine's raw block events stay here: they are reversible to text. What leaves is a target key and a token count.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, Gap, KvEvent
from connectors.engines.residency import ReplicaView
from schemas import Residency
from schemas.residency import ResidencySource


@dataclass
class Watched:
    """A prefix whose blocks are followed.

    Attributes:
        ids: its tokens, as the engine renders them.
        told_tokens: what was said last; None before anything was said.
        reported_tokens: what its warm-up left resident by the engine's own account. It stands in for the view as long
            as the view has not seen these blocks, because it began after they were stored.
        inherited: warmed before this book began, so somebody else may have said something about it.
    """

    scope: str
    target_key: str
    ids: array[int] = field(repr=False)
    adapter: str | None
    salt: str | None = field(repr=False)
    reported_tokens: int
    inherited: bool = False
    told_tokens: int | None = None


class ResidencyBook:
    """What one replica holds of the watched prefixes.

    Args:
        replica, pool: whose book it is.
        bound: prefixes watched; the one that was warmed longest ago is dropped first.
        seq_us: a clock in microseconds. Sequence numbers come from it, so that they also grow from one holder of the
            replica's lease to the next, who need not ask what the last one said.
    """

    def __init__(self, replica: str, pool: str, bound: int, seq_us: Callable[[], int]) -> None:
        self._replica = replica
        self._pool = pool
        self._bound = bound
        self._seq_us = seq_us
        self._seq = 0
        self._view = ReplicaView()
        self._watched: OrderedDict[tuple[str, str], Watched] = OrderedDict()
        self._hearing = False
        self._dirty = False
        self.blocks_stored = 0

    def __len__(self) -> int:
        return len(self._watched)

    @property
    def dirty(self) -> bool:
        """Whether something may have changed since the last statements."""
        return self._dirty

    def on_event(self, event: KvEvent) -> None:
        """Takes a block event over. After a Gap or a clear nothing that was known counts any more."""
        known = len(self._view)
        self._view.apply(event)
        self._hearing = True
        match event:
            case BlocksStored():
                self.blocks_stored += len(event.hashes)
            case BlocksRemoved():
                # A block that the view never saw may be one of a prefix that it takes on the engine's word: no longer.
                if known - len(self._view) < len(event.hashes):
                    self._forget_reports()
            case Gap() | BlocksCleared():
                self._forget_reports()
        self._dirty = True

    def on_restart(self) -> None:
        """The engine lives anew: nothing is resident."""
        self._view.restart()
        self._hearing = True
        self._forget_reports()
        self._dirty = True

    def expect(self, ranks: Iterable[int]) -> None:
        """The replica has these data-parallel ranks; before all are heard of, its events are no full account."""
        self._view.expect(ranks)

    def _forget_reports(self) -> None:
        for watched in self._watched.values():
            watched.reported_tokens = 0

    def watch(self, watched: Watched) -> None:
        """Follows a prefix that a warm-up has just made or found resident."""
        key = (watched.scope, watched.target_key)
        before = self._watched.pop(key, None)
        if before is not None:
            watched.told_tokens = before.told_tokens
        self._watched[key] = watched
        if len(self._watched) > self._bound:
            self._watched.popitem(last=False)
        self._dirty = True

    def resident_tokens(self, watched: Watched) -> int:
        """Leading tokens of it that are there, in full blocks."""
        seen = self._view.resident_tokens(watched.ids, watched.adapter, watched.salt)
        if seen or self._view.complete:
            # From the first block that the view has seen of it, the events speak for it alone.
            watched.reported_tokens = 0
            return seen
        return watched.reported_tokens

    def _full_tokens(self, watched: Watched) -> int | None:
        """What would be there if all of it were; None before a block's size was heard."""
        block = self._view.block_tokens
        return None if block is None else len(watched.ids) // block * block

    def _may_say_lost(self, watched: Watched) -> bool:
        """A loss is only told of what was said to be there, by this book or by the holder before it."""
        if watched.told_tokens is None:
            return watched.inherited and self._hearing
        return True

    def statements(self, incarnation: str, now_ms: int) -> Iterator[Residency]:
        """What has changed since the last call."""
        self._dirty = False
        for watched in self._watched.values():
            tokens = self.resident_tokens(watched)
            if tokens == watched.told_tokens or (tokens == 0 and not self._may_say_lost(watched)):
                continue
            source: ResidencySource = "applied" if watched.reported_tokens else "events"
            watched.told_tokens = tokens
            self._seq = max(self._seq + 1, self._seq_us())
            yield Residency(
                replica=self._replica,
                pool=self._pool,
                incarnation=incarnation,
                scope=watched.scope,
                target_key=watched.target_key,
                resident_tokens=tokens,
                full_tokens=self._full_tokens(watched),
                seq=self._seq,
                observed_at_ms=now_ms,
                source=source,
            )
