"""Hot prefixes of one scope: which paths of the prefix tree will probably be asked for again (D11, simple form).

Deltas are kept as they came until the next slide, when the nodes that they changed are written once and the deltas
dropped: a crash between slides replays them onto the nodes. Candidates are the deepest nodes that clear the bar. With
a prefill cost linear in tokens a node's worth per token is its chance of being asked for, so that is the bar.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import msgspec

from analytics.decay import EMPTY, Decay
from analytics.envelopes import Candidate, Candidates, PrefixDelta, Root, Tag, seal
from analytics.knobs import knob
from analytics.prefix_nodes import Node, NodeTable, root_id
from analytics.records import Record, Section, pack, path, unpack
from analytics.stores import MapStore
from analytics.timescale import scaled
from analytics.trunk import family_of, path_of, trunk_level

FADED_REQUESTS = 0.01
"""A pool with less than a hundredth of a request left has nothing to say, seven half-lives after its last one."""


@dataclass(frozen=True)
class PrefixConfig:
    """Settings of a prefix tree. Durations are unscaled; `time_scale` shortens them together."""

    slide_ms: int = knob(10_000, "How often candidates are published.", unit="ms", low=100, high=600_000)
    half_life_ms: int = knob(300_000, "Time after which a request counts half.", unit="ms", low=1000, high=86_400_000)
    horizon_ms: int = knob(
        120_000, "How far ahead the chance of being asked for looks.", unit="ms", low=1000, high=3_600_000
    )
    max_nodes: int = knob(20_000, "Segments that a scope and pool may hold.", unit="segments", low=10, high=10_000_000)
    max_ghosts: int = knob(80_000, "Left segments that are remembered.", unit="segments", low=0, high=10_000_000)
    max_pools: int = knob(
        256, "Pools of a scope that have a tree; the least asked for are forgotten.", unit="pools", low=1, high=10_000
    )
    max_candidates: int = knob(256, "Candidates that a slide may publish.", unit="candidates", low=1, high=100_000)
    max_path_segments: int = knob(
        32_768, "Segments of all candidates of a slide together.", unit="segments", low=1024, high=1_000_000
    )
    min_tokens: int = knob(16, "A shorter prefix fills no block of any replica.", unit="tokens", low=1, high=1_048_576)
    min_p_asked: float = knob(
        0.3, "A prefix less likely to be asked for within the horizon is no candidate.", low=0.001, high=0.999
    )
    trunk_share: float = knob(0.5, "Share of requests from which on a segment is trunk.", low=0.01, high=1)
    time_scale: float = knob(1.0, "How much faster than the calendar event time runs.", low=0.01, high=10_000)


class TreeRecord(Record, frozen=True, array_like=True):
    """Where the tree stands."""

    scope: str
    last_timer_ms: int
    next_timer_ms: int | None
    next_delta: int


class PoolRecord(Record, frozen=True, array_like=True):
    """Totals of a pool's tree."""

    pool: str
    level: float
    published: bool
    roots: tuple[Root, ...]


class _Pool:
    """One pool's tree and totals."""

    def __init__(self, name: str, nodes: NodeTable) -> None:
        self.name = name
        self.nodes = nodes
        self.level = EMPTY
        self.published = False
        self.roots: dict[bytes, Root] = {}


class PrefixTree:
    """The prefix trees of one scope, one a pool.

    Args:
        config: settings.
        store: where nodes and open deltas survive. Whatever it holds is restored here.
    """

    def __init__(self, config: PrefixConfig, store: MapStore) -> None:
        self._config = config
        self._store = store
        self._decay = Decay.half_life(scaled(config.half_life_ms, config.time_scale))
        self._slide_ms = scaled(config.slide_ms, config.time_scale)
        self._horizon_ms = scaled(config.horizon_ms, config.time_scale)
        self._scope = ""
        self._pools: dict[str, _Pool] = {}
        self._open: list[str] = []
        self._last_timer_ms = 0
        self._next_timer_ms: int | None = None
        self._next_delta = 0
        self._restore()

    @property
    def next_timer_ms(self) -> int | None:
        """Event time of the slide to publish at; None while there is nothing to say."""
        return self._next_timer_ms

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
            one Candidates envelope a pool, keyed by pool; a pool without candidates says so once.
        """
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        published = []
        self._drop_pools(at_ms)
        for _, pool in sorted(self._pools.items()):
            pool.nodes.shrink()
            pool.nodes.write()
            found = self._candidates(pool, at_ms)
            if found.candidates or pool.published:
                published.append(seal(Tag.CANDIDATES, pool.name, found))
            pool.published = bool(found.candidates)
            self._write_pool(pool)
        for key in self._open:
            self._store.remove(key)
        self._open.clear()
        self._last_timer_ms = at_ms
        again = any(pool.published for pool in self._pools.values())
        self._next_timer_ms = (at_ms // self._slide_ms + 1) * self._slide_ms if again else None
        record = TreeRecord(1, self._scope, self._last_timer_ms, self._next_timer_ms, self._next_delta)
        self._store.put("t", pack(record))
        return published

    def _add(self, delta: PrefixDelta) -> None:
        self._scope = delta.scope
        pool = self._pools.get(delta.pool)
        if pool is None:
            pool = self._pools[delta.pool] = self._new_pool(delta.pool)
        roots = [root_id(root) for root in delta.roots]
        rest = delta.requests
        for chain in delta.chains:
            root = roots[chain.root]
            pool.roots.setdefault(root, delta.roots[chain.root])
            pool.nodes.add(root, chain)
            pool.level = self._decay.added(pool.level, chain.count, chain.last_ms)
            rest -= chain.count
        if rest > 1e-6:
            pool.level = self._decay.added(pool.level, rest, delta.at_ms)
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
        gone: list[_Pool] = []
        kept: list[_Pool] = []
        for pool in self._pools.values():
            faded = not pool.published and self._decay.amount(pool.level, at_ms) < FADED_REQUESTS
            (gone if faded else kept).append(pool)
        surplus = len(kept) - self._config.max_pools
        if surplus > 0:
            gone += heapq.nsmallest(surplus, kept, key=lambda pool: (pool.level, pool.name))
        for pool in gone:
            pool.nodes.clear()
            pool.nodes.write()
            self._store.remove("p" + path(pool.name))
            del self._pools[pool.name]

    def _candidates(self, pool: _Pool, at_ms: int) -> Candidates:
        horizon_s = self._horizon_ms / 1000
        least = -math.log1p(-self._config.min_p_asked) / horizon_s / self._decay.rate_per_s(1.0)
        bar = self._decay.level_of(least, at_ms)
        hot = [node for node in pool.nodes if node.level >= bar]
        inner = {node.parent.key for node in hot if node.parent is not None}
        deepest = [node for node in hot if node.key not in inner]
        deepest.sort(key=lambda node: (-node.level, node.key))
        trunk = trunk_level(pool.level, self._config.trunk_share)
        roots: dict[bytes, int] = {}
        chosen: list[Candidate] = []
        room = self._config.max_path_segments
        for node in deepest:
            nodes = path_of(node)
            if sum(step.tokens for step in nodes) < self._config.min_tokens or len(nodes) > room:
                continue
            room -= len(nodes)
            chosen.append(self._candidate(node, nodes, roots, trunk, at_ms))
            if len(chosen) == self._config.max_candidates:
                break
        return Candidates(self._scope, pool.name, at_ms, tuple(pool.roots[root] for root in roots), tuple(chosen))

    def _candidate(self, node: Node, nodes: list[Node], roots: dict[bytes, int], trunk: float, at_ms: int) -> Candidate:
        requests = self._decay.amount(node.level, at_ms)
        rate_per_s = self._decay.rate_per_s(requests)
        return Candidate(
            root=roots.setdefault(node.root, len(roots)),
            hashes=b"".join(step.hash for step in nodes),
            tokens=tuple(step.tokens for step in nodes),
            roles=bytes(step.role for step in nodes),
            unit=family_of(nodes, trunk),
            rate_per_s=rate_per_s,
            p_asked=-math.expm1(-rate_per_s * self._horizon_ms / 1000),
            requests=requests,
            last_ms=node.last_ms,
        )

    def _new_pool(self, name: str) -> _Pool:
        nodes = Section(self._store, "n" + path(name))
        ghosts = Section(self._store, "g" + path(name))
        config = self._config
        return _Pool(name, NodeTable(self._decay, config.max_nodes, config.max_ghosts, nodes, ghosts))

    def _write_pool(self, pool: _Pool) -> None:
        used = {node.root for node in pool.nodes}
        pool.roots = {root: kept for root, kept in sorted(pool.roots.items()) if root in used}
        roots = tuple(pool.roots.values())
        record = PoolRecord(1, pool.name, pool.level, pool.published, roots)
        self._store.put("p" + path(pool.name), pack(record))

    def _restore(self) -> None:
        parts: dict[str, list[tuple[str, bytes]]] = {}
        for key, blob in self._store.items():
            parts.setdefault(key[0], []).append((key, blob))
        for _, blob in parts.get("p", []):
            record = unpack(blob, PoolRecord)
            pool = self._pools[record.pool] = self._new_pool(record.pool)
            pool.level, pool.published = record.level, record.published
            pool.roots = {root_id(root): root for root in record.roots}
            own = path(record.pool)
            nodes = [(key[1 + len(own) :], value) for key, value in parts.get("n", []) if key.startswith("n" + own)]
            ghosts = [value for key, value in parts.get("g", []) if key.startswith("g" + own)]
            pool.nodes.restore(nodes, ghosts)
        for _, blob in parts.get("t", []):
            tree = unpack(blob, TreeRecord)
            self._scope = tree.scope
            self._last_timer_ms, self._next_timer_ms = tree.last_timer_ms, tree.next_timer_ms
            self._next_delta = tree.next_delta
        for key, blob in sorted(parts.get("d", [])):
            self._next_delta = int(key[1:]) + 1
            self._open.append(key)
            self._add(msgspec.msgpack.decode(blob, type=PrefixDelta))
