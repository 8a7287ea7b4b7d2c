"""Hot prefixes of one scope: which paths of the prefix tree will probably be asked for again (D11).

Deltas are kept as they came until the next slide, when the nodes that they changed are written once and the deltas
dropped: a crash between slides replays them onto the nodes. Candidates are the deepest nodes that clear the bar. With
a prefill cost linear in tokens a node's worth per token is its chance of being asked for, so that is the bar; the
planner knows replicas, what they hold and the size of their blocks.
"""

from __future__ import annotations

import heapq

import msgspec

from analytics.envelopes import PrefixDelta, Tag, seal
from analytics.prefix_config import PrefixConfig as PrefixConfig
from analytics.prefix_nodes import root_id
from analytics.prefix_pool import PrefixPool, restored
from analytics.records import Record, pack, unpack
from analytics.stores import MapStore

FADED_REQUESTS = 0.01
"""A pool with less than a hundredth of a request left has nothing to say, seven half-lives after its last one."""


class TreeRecord(Record, frozen=True, array_like=True):
    """Where the tree stands."""

    scope: str
    last_timer_ms: int
    next_timer_ms: int | None
    next_delta: int
    newest_ms: int = 0


class PrefixTree:
    """The prefix trees of one scope, one a pool.

    Args:
        config: settings.
        store: where nodes and open deltas survive. Whatever it holds is restored here.
    """

    def __init__(self, config: PrefixConfig, store: MapStore) -> None:
        self._config = config
        self._store = store
        self._slide_ms = config.scaled(config.slide_ms)
        self._scope = ""
        self._pools: dict[str, PrefixPool] = {}
        self._open: list[str] = []
        self._last_timer_ms = 0
        self._next_timer_ms: int | None = None
        self._next_delta = 0
        self._newest_ms = 0
        self._restore()

    @property
    def next_timer_ms(self) -> int | None:
        """Event time of the slide to publish at, or by which a pool has faded; None while nothing is held."""
        return self._next_timer_ms

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept."""
        return self._next_timer_ms is None

    @property
    def nodes(self) -> int:
        """Segments held over all pools."""
        return sum(len(pool.nodes) for pool in self._pools.values())

    def on_delta(self, delta: PrefixDelta) -> None:
        """Adds what one shard saw in one slide."""
        key = f"d{self._next_delta:016d}"
        self._next_delta += 1
        self._open.append(key)
        self._store.put(key, msgspec.msgpack.encode(delta))
        self._add(delta)

    def on_timer(self, at_ms: int) -> list[bytes]:
        """Ends a slide: writes what changed and publishes each pool's candidates.

        Returns:
            one Candidates envelope a pool, keyed by pool; a pool without candidates says so once. Before it one that
            tells how fast hotness fades, where that has changed.
        """
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        published = []
        self._drop_pools(at_ms)
        for _, pool in sorted(self._pools.items()):
            found, fading = pool.end_slide(self._scope, at_ms)
            if fading is not None:
                published.append(seal(Tag.FADING, pool.name, fading))
            if found.candidates or pool.published:
                published.append(seal(Tag.CANDIDATES, pool.name, found))
            pool.published = bool(found.candidates)
            pool.write()
        for key in self._open:
            self._store.remove(key)
        self._open.clear()
        self._last_timer_ms = at_ms
        self._next_timer_ms = self._next_due_ms(at_ms)
        if self._next_timer_ms is None:
            self._last_timer_ms = self._next_delta = self._newest_ms = 0
            self._store.remove("t")
        else:
            told = self._last_timer_ms, self._next_timer_ms, self._next_delta, self._newest_ms
            self._store.put("t", pack(TreeRecord(1, self._scope, *told)))
        return published

    def _next_due_ms(self, at_ms: int) -> int | None:
        """The next slide while candidates are out; else the slide by which the first pool has faded."""
        if not self._pools:
            return None
        # Where a straggler woke the tree in the past, the slides from there to the newest one are not gone through.
        after_ms = max(at_ms, self._newest_ms - 1)
        if not any(pool.published for pool in self._pools.values()):
            after_ms = max(after_ms, int(min(pool.faded_ms(FADED_REQUESTS) for pool in self._pools.values())))
        return (after_ms // self._slide_ms + 1) * self._slide_ms

    def _add(self, delta: PrefixDelta) -> None:
        self._scope = delta.scope
        self._newest_ms = max(self._newest_ms, delta.at_ms)
        pool = self._pools.get(delta.pool)
        if pool is None:
            pool = self._pools[delta.pool] = PrefixPool(self._config, delta.pool, self._store)
        keys = [root_id(root) for root in delta.roots]
        rest = delta.requests
        for chain in delta.chains:
            pool.add(keys[chain.root], delta.roots[chain.root], chain)
            rest -= chain.count
        if rest > 1e-6:
            pool.add_requests(rest, delta.at_ms)
        pool.nodes.shrink()
        # A delta carries the slide's end as its time, and this slide's timer has not fired yet.
        due = -(-delta.at_ms // self._slide_ms) * self._slide_ms
        due = max(due, self._last_timer_ms + 1)
        if self._next_timer_ms is None or due < self._next_timer_ms:
            self._next_timer_ms = due

    def _drop_pools(self, at_ms: int) -> None:
        """Forgets pools of which nothing is asked any more, and the coldest beyond the bound.

        Producers name pools, so their number is theirs. A planner lets go of candidates that nobody confirms.
        """
        gone: list[PrefixPool] = []
        kept: list[PrefixPool] = []
        for pool in self._pools.values():
            faded = not pool.published and pool.requests_at(at_ms) < FADED_REQUESTS
            (gone if faded else kept).append(pool)
        surplus = len(kept) - self._config.max_pools
        if surplus > 0:
            gone += heapq.nsmallest(surplus, kept, key=lambda pool: (pool.rate_at(at_ms), pool.name))
        for pool in gone:
            pool.remove()
            del self._pools[pool.name]

    def _restore(self) -> None:
        parts: dict[str, list[tuple[str, bytes]]] = {}
        for key, blob in self._store.items():
            parts.setdefault(key[0], []).append((key, blob))
        self._pools = {pool.name: pool for pool in restored(self._config, self._store, parts)}
        for _, blob in parts.get("t", []):
            tree = unpack(blob, TreeRecord)
            self._scope = tree.scope
            self._last_timer_ms, self._next_timer_ms = tree.last_timer_ms, tree.next_timer_ms
            self._next_delta, self._newest_ms = tree.next_delta, tree.newest_ms
        for key, blob in sorted(parts.get("d", [])):
            self._next_delta = int(key[1:]) + 1
            self._open.append(key)
            self._add(msgspec.msgpack.decode(blob, type=PrefixDelta))
