"""One pool's part of a scope's prefix tree: nodes, how fast their hotness fades, and which of them are candidates."""

from __future__ import annotations

import math

from analytics.cache_models import Run
from analytics.decay import EMPTY, Decay
from analytics.envelopes import Candidate, Candidates, Chain, Fading, Root
from analytics.half_life import HalfLife
from analytics.prefix_config import GAPS_SAMPLED, PrefixConfig
from analytics.prefix_nodes import HASH_BYTES, Node, NodeTable, root_id
from analytics.records import Record, Section, pack, path, unpack
from analytics.return_rates import LOG_2, ReturnRates
from analytics.stores import MapStore
from analytics.trunk import family_of, path_of, trunk_level

SAMPLED_MARK = 0
"""The last byte of the hash of a segment that the shadows play: one of `SAMPLED` (SHARDS, FAST 2015). Each is played
alone, so that a family of any size adds its share."""
KEY_BYTES = 8
"""Of a hash, as the number that a shadow keeps."""


class PoolRecord(Record, frozen=True, array_like=True):
    """Totals of a pool's tree, and how its levels fade."""

    pool: str
    level: float
    published: bool
    roots: tuple[Root, ...]
    per_ms: float
    offset: float


class PrefixPool:
    """One pool's tree and totals.

    Its records begin with n (nodes), g (ghosts), p (totals), h (what its half-life was learned from), r (how often what
    is hot comes back), and its name.
    """

    def __init__(self, config: PrefixConfig, name: str, store: MapStore) -> None:
        self.name = name
        self.published = False
        self._config = config
        self._store = store
        self._path = path(name)
        nodes, ghosts = Section(store, "n" + self._path), Section(store, "g" + self._path)
        self.nodes = NodeTable(config.max_nodes, config.max_ghosts, nodes, ghosts)
        self._level = EMPTY
        self._roots: dict[bytes, Root] = {}
        self._decay = Decay.half_life(config.scaled(config.half_life_ms))
        self._half_life = HalfLife(config.half_life(), config.pool_tokens) if config.rule == "tuned" else None
        self._horizon_s = config.scaled(config.horizon_ms) / 1000
        self._returns: ReturnRates | None = None
        if config.asked_rule == "tuned":
            self._returns = ReturnRates(config.scaled(config.horizon_ms), Section(store, "r" + self._path))
        self._played: set[bytes] = set()
        self._learned = False

    def requests_at(self, at_ms: int) -> float:
        """The decayed number of requests."""
        return self._decay.amount(self._level, at_ms)

    def faded_ms(self, requests: float) -> float:
        """When so many requests are left, if no more come."""
        return self._decay.reached_ms(self._level, requests)

    def rate_at(self, at_ms: int) -> float:
        """Requests a second, by which pools are compared: each fades at its own pace."""
        return self._decay.rate_per_s(self.requests_at(at_ms))

    def promised_rate_per_s(self, node: Node, at_ms: int) -> float:
        """At which requests for a prefix come by its hotness."""
        return self._decay.rate_per_s(self._decay.amount(node.level, at_ms))

    def asked_rate_per_s(self, node: Node, at_ms: int) -> float:
        """At which they are expected, as far as it was learned what hotness is worth."""
        rate_per_s = self.promised_rate_per_s(node, at_ms)
        if self._returns is None:
            return rate_per_s
        return rate_per_s * self._returns.factor(node, at_ms, self._decay)

    def p_asked(self, rate_per_s: float) -> float:
        """Chance of at least one request within the horizon."""
        return -math.expm1(-rate_per_s * self._horizon_s)

    def add(self, key: bytes, root: Root, chain: Chain) -> None:
        """Adds the requests of a chain; `key` is its root's identity."""
        self._roots.setdefault(key, root)
        before_ms = self.nodes.add(key, chain, self._decay.mark(chain.count, chain.last_ms))
        self._level = self._decay.added(self._level, chain.count, chain.last_ms)
        if self._half_life is not None:
            self._learn(self._half_life, chain, before_ms)

    def add_requests(self, requests: float, at_ms: int) -> None:
        """Adds requests whose chains are not known."""
        self._level = self._decay.added(self._level, requests, at_ms)

    def end_slide(self, scope: str, at_ms: int) -> tuple[Candidates, Fading | None]:
        """Writes what changed since the last slide, and finds what is hot; tells of another half-life."""
        self.nodes.shrink()
        self.nodes.write()
        wanted_ms: float = self._config.scaled(self._config.half_life_ms)
        if self._half_life is not None:
            if self._learned:
                self._half_life.look(at_ms)
                self._store.put("h" + self._path, self._half_life.snapshot())
                self._learned = False
                self._played.clear()
            wanted_ms = self._half_life.ms
        fading = None
        if not math.isclose(self._decay.half_life_ms, wanted_ms):
            self._decay = self._decay.with_half_life(wanted_ms, at_ms)
            fading = self._fading(scope, at_ms)
        if self._returns is not None:
            self._returns.judge(at_ms, self.nodes.last_asked_ms)
            if self._returns.due(at_ms):
                self._returns.note(at_ms, self.nodes, self._decay)
        return self._candidates(scope, at_ms), fading

    def write(self) -> None:
        """Puts the totals into the store."""
        used = {node.root for node in self.nodes}
        self._roots = {root: kept for root, kept in sorted(self._roots.items()) if root in used}
        record = PoolRecord(
            1,
            self.name,
            self._level,
            self.published,
            tuple(self._roots.values()),
            self._decay.per_ms,
            self._decay.offset,
        )
        self._store.put("p" + self._path, pack(record))

    def remove(self) -> None:
        """Forgets everything and leaves nothing behind."""
        self.nodes.clear()
        self.nodes.write()
        self._store.remove("p" + self._path)
        self._store.remove("h" + self._path)
        if self._returns is not None:
            self._returns.clear()

    def restore(
        self,
        record: PoolRecord,
        nodes: list[tuple[str, bytes]],
        ghosts: list[bytes],
        learned: bytes,
        returns: list[tuple[str, bytes]],
    ) -> None:
        """Takes back what was written. Under another rule the next slide changes the pace."""
        self._level, self.published = record.level, record.published
        self._roots = {root_id(root): root for root in record.roots}
        self._decay = Decay(record.per_ms, record.offset)
        self.nodes.restore(nodes, ghosts)
        if self._half_life is not None and learned:
            self._half_life.restore(learned)
        for key, blob in returns:
            if self._returns is not None:
                self._returns.restore(key, blob)
            else:
                self._store.remove("r" + self._path + key)

    def _learn(self, half_life: HalfLife, chain: Chain, before_ms: int | None) -> None:
        """The gap of a request is that of the deepest segment that it shares with an earlier one.

        Of several requests since then each has an equal part. Shards tell in any order, so a gap may seem to be
        negative. The shadows play some segments, in tokens.
        """
        if before_ms is not None and chain.hashes[-1] % GAPS_SAMPLED == 0:
            half_life.gaps.add(abs(chain.last_ms - before_ms) / max(1.0, chain.count), chain.count)
            self._learned = True
        marks = chain.hashes[HASH_BYTES - 1 :: HASH_BYTES]
        place = marks.find(SAMPLED_MARK)
        while place >= 0:
            # Once a slide: what is in every prompt stays under any half-life.
            part = chain.hashes[HASH_BYTES * place : HASH_BYTES * place + KEY_BYTES]
            if part not in self._played:
                self._played.add(part)
                self._learned = True
                if chain.tokens[place]:
                    half_life.play([Run(int.from_bytes(part, "big"), chain.tokens[place])], chain.last_ms)
            place = marks.find(SAMPLED_MARK, place + 1)

    def _candidates(self, scope: str, at_ms: int) -> Candidates:
        config = self._config
        least = -math.log1p(-config.min_p_asked)
        if self._returns is None:
            bar = self._decay.level_of(least / self._horizon_s / self._decay.rate_per_s(1.0), at_ms)
        else:
            bar = self._returns.one(at_ms, self._decay) + self._returns.least_octave(least) * LOG_2
        hot = [node for node in self.nodes if node.level >= bar]
        rates = {node.key: self.asked_rate_per_s(node, at_ms) for node in hot}
        if self._returns is not None:
            hot = [node for node in hot if self.p_asked(rates[node.key]) >= config.min_p_asked]
        inner = {node.parent.key for node in hot if node.parent is not None}
        deepest = [node for node in hot if node.key not in inner]
        deepest.sort(key=lambda node: (-rates[node.key], -node.level, node.key))
        trunk = trunk_level(self._level, config.trunk_share)
        roots: dict[bytes, int] = {}
        chosen: list[Candidate] = []
        room = config.max_path_segments
        for node in deepest:
            nodes = path_of(node)
            if sum(step.tokens for step in nodes) < config.min_tokens or len(nodes) > room:
                continue
            room -= len(nodes)
            chosen.append(self._candidate(node, nodes, roots, trunk, at_ms, rates[node.key]))
            if len(chosen) == config.max_candidates:
                break
        return Candidates(scope, self.name, at_ms, tuple(self._roots[root] for root in roots), tuple(chosen))

    def _candidate(
        self, node: Node, nodes: list[Node], roots: dict[bytes, int], trunk: float, at_ms: int, rate_per_s: float
    ) -> Candidate:
        return Candidate(
            root=roots.setdefault(node.root, len(roots)),
            hashes=b"".join(step.hash for step in nodes),
            tokens=tuple(step.tokens for step in nodes),
            roles=bytes(step.role for step in nodes),
            unit=family_of(nodes, trunk),
            rate_per_s=rate_per_s,
            p_asked=self.p_asked(rate_per_s),
            requests=self._decay.amount(node.level, at_ms),
            last_ms=node.last_ms,
        )

    def _fading(self, scope: str, at_ms: int) -> Fading:
        learned, half_life_ms, nodes = self._half_life, self._decay.half_life_ms, self.nodes
        median_ms = factor = None
        gaps = 0.0
        if learned is not None:
            median_ms, factor, gaps = learned.gaps.median_ms(), learned.factor, learned.gaps.total
        rule = self._config.rule
        return Fading(scope, self.name, at_ms, rule, half_life_ms, median_ms, factor, gaps, len(nodes), nodes.ghosts)


def restored(config: PrefixConfig, store: MapStore, parts: dict[str, list[tuple[str, bytes]]]) -> list[PrefixPool]:
    """The pools whose records a store holds.

    Args:
        parts: all records by the first letter of their keys.
    """
    pools = []
    for _, blob in parts.get("p", []):
        record = unpack(blob, PoolRecord)
        own = path(record.pool)
        nodes = [(key[1 + len(own) :], value) for key, value in parts.get("n", []) if key.startswith("n" + own)]
        ghosts = [value for key, value in parts.get("g", []) if key.startswith("g" + own)]
        learned = next((value for key, value in parts.get("h", []) if key == "h" + own), b"")
        pool = PrefixPool(config, record.pool, store)
        returns = [(key[1 + len(own) :], value) for key, value in parts.get("r", []) if key.startswith("r" + own)]
        pool.restore(record, nodes, ghosts, learned, returns)
        pools.append(pool)
    return pools
