"""From KV events to "how many tokens of this prompt are resident here". Pure bookkeeping; keeps digests, not tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, Gap, KvEvent

Edge = tuple[int | bytes, bytes]


class BlockView:
    """What one replica's events say is resident, as a tree that can be walked with token ids.

    A block is an edge from its parent (or from a root named by adapter and salt) labelled with a digest of its tokens.
    The view only knows what it heard of: blocks that were stored before the subscription are missing, so an answer is a
    lower bound until `complete`.
    """

    def __init__(self) -> None:
        self.complete = False
        self.block_tokens: int | None = None
        self._child: dict[Edge, int] = {}
        self._edges: dict[int, set[Edge]] = {}

    def __len__(self) -> int:
        """Blocks known to be resident."""
        return len(self._edges)

    def apply(self, event: KvEvent) -> None:
        """Take one event over. A Gap empties the view and takes its completeness away; a clear makes it complete."""
        match event:
            case BlocksStored():
                if event.medium == "GPU":
                    self._store(event)
            case BlocksRemoved():
                if event.medium == "GPU":
                    for block_hash in event.hashes:
                        self._forget(block_hash)
            case BlocksCleared():
                self._clear()
                self.complete = True
            case Gap():
                self._clear()
                self.complete = False

    def resident_tokens(self, token_ids: Sequence[int], adapter: str | None = None, salt: str | None = None) -> int:
        """Leading tokens of a prompt in resident full blocks, walking from the root."""
        if self.block_tokens is None:
            return 0
        parent: int | bytes = _root(adapter, salt)
        resident = 0
        for start in range(0, len(token_ids) - self.block_tokens + 1, self.block_tokens):
            block = self._child.get((parent, _digest(token_ids[start : start + self.block_tokens])))
            if block is None:
                break
            parent = block
            resident += self.block_tokens
        return resident

    def _store(self, event: BlocksStored) -> None:
        self.block_tokens = event.block_tokens
        parent: int | bytes = _root(event.adapter, event.salt) if event.parent is None else event.parent
        for index, block_hash in enumerate(event.hashes):
            ids = event.token_ids[index * event.block_tokens : (index + 1) * event.block_tokens]
            edge = (parent, _digest(ids))
            self._child[edge] = block_hash
            self._edges.setdefault(block_hash, set()).add(edge)
            parent = block_hash

    def _forget(self, block_hash: int) -> None:
        for edge in self._edges.pop(block_hash, ()):
            if self._child.get(edge) == block_hash:
                del self._child[edge]

    def _clear(self) -> None:
        self._child.clear()
        self._edges.clear()


class ReplicaView:
    """What a whole replica's events say: one `BlockView` for each data-parallel rank, for each has its own cache.

    A prompt is as resident as on the rank that has most of it.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, BlockView] = {}

    def __len__(self) -> int:
        """Blocks known to be resident on any rank."""
        return sum(map(len, self._ranks.values()))

    def expect(self, ranks: Iterable[int]) -> None:
        """There are these ranks, whether something was heard of them or not."""
        for rank in ranks:
            self._ranks.setdefault(rank, BlockView())

    def apply(self, event: KvEvent) -> None:
        """Take one event over; it touches its own rank only."""
        self._ranks.setdefault(event.rank, BlockView()).apply(event)

    def restart(self) -> None:
        """The engine lives anew: nothing is resident on any rank, as far as is known."""
        for rank, view in self._ranks.items():
            view.apply(Gap(0, 0, rank))

    @property
    def complete(self) -> bool:
        """Whether the view of every rank is complete."""
        return bool(self._ranks) and all(view.complete for view in self._ranks.values())

    @property
    def block_tokens(self) -> int | None:
        """Tokens of a block; None before one was heard of."""
        return next((view.block_tokens for view in self._ranks.values() if view.block_tokens is not None), None)

    def resident_tokens(self, token_ids: Sequence[int], adapter: str | None = None, salt: str | None = None) -> int:
        """See `BlockView.resident_tokens`; the most that one rank has."""
        return max((view.resident_tokens(token_ids, adapter, salt) for view in self._ranks.values()), default=0)


def _root(adapter: str | None, salt: str | None) -> bytes:
    return _digest((), repr((adapter, salt)).encode())


def _digest(ids: Sequence[int], extra: bytes = b"") -> bytes:
    return blake2b(array("Q", ids).tobytes() + extra, digest_size=8).digest()
