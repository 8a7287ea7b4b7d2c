"""One shard of demand: dedupe, panes, second sight and chains, with state that survives a crash at any point.

An event costs one append to a log; the live object is a cache that the constructor rebuilds. At rest there are three
things: blobs of closed panes, logs of what is not in a blob yet (slot = pane mod slots, one further slot for what only
counts), and a `_Meta` blob written at each slide. A slide (event-time timer, one pane long) publishes what changed,
closes panes, and marks the logs, so that a replay knows what was published.

Late is what comes for a pane that ended more than `lateness_ms` before event time; an identity is remembered for
`window_ms + lateness_ms` after its pane ended (D1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from analytics import shard_log
from analytics.deltas import PendingChains
from analytics.envelopes import EmbedRequest, Tag, seal
from analytics.facts import HEAD, Flag, Kind, unpack_names
from analytics.panes import Pane, PaneCaps, Place
from analytics.policy import PolicyBook
from analytics.publication import accounting, publish
from analytics.second_sight import TRIGGER, ScopeSight, SecondSight, SecondSightConfig, Sight
from analytics.shard_log import ACCOUNTED, Fate
from analytics.stores import LogStore
from schemas import BrokenConfiguration

STATE_VERSION = 1
_META_KEY = -1
_REQUEST, _DEAD = int(Kind.REQUEST), int(Kind.DEAD)
_DEMAND, _FINISHED = Flag.DEMAND.value, Flag.FINISHED.value
_MAX_NAMES = 8192


@dataclass(frozen=True)
class DemandConfig:
    """How a shard counts. All durations are already divided by the time scale; 0 < pane_ms.

    Attributes:
        shards: of the whole job; part of the state's identity, like `pane_ms`.
        pane_ms: length of a pane and of a slide.
        window_ms: how long panes are kept after they ended, besides the lateness.
        lateness_ms: how long after its end a pane still takes events.
        close_after_ms: how long after its end a pane moves from its log to a blob; at most window + lateness.
        slots: logs for panes.
        top: heaviest keys that are published.
        max_delta_bytes: distinct chains kept between two slides, in bytes.
    """

    shards: int = 32
    pane_ms: int = 10_000
    window_ms: int = 300_000
    lateness_ms: int = 30_000
    close_after_ms: int = 10_000
    slots: int = 8
    top: int = 50
    max_delta_bytes: int = 4 << 20
    caps: PaneCaps = field(default_factory=PaneCaps)
    second_sight: SecondSightConfig = field(default_factory=SecondSightConfig)

    def __post_init__(self) -> None:
        if self.pane_ms < 1 or self.slots < 1:
            raise BrokenConfiguration("demand: pane_ms and slots must be at least 1")
        if not 0 <= self.close_after_ms <= self.window_ms + self.lateness_ms:
            raise BrokenConfiguration("demand: close_after_ms must lie between 0 and window_ms + lateness_ms")

    @property
    def logs(self) -> int:
        """How many logs the store of a shard needs."""
        return self.slots + 1


class _Meta(Struct, array_like=True):
    """What a shard knows besides its panes, as of its last slide (only the timer may be newer)."""

    version: int
    shards: int
    pane_ms: int
    next_timer_ms: int | None
    clock_ms: int
    published: int
    counters: dict[str, int]
    buckets: dict[str, int]


_meta_decoder = msgspec.msgpack.Decoder(_Meta)


@dataclass(frozen=True)
class _Known:
    """A fact's names, decoded once."""

    place: Place
    template: bytes
    adapter: bytes
    sight: ScopeSight


class Demand:
    """One shard. Any call may be the last one before a crash: a new object over the same store goes on."""

    def __init__(self, config: DemandConfig, shard: int, store: LogStore) -> None:
        """Rebuilds itself from the store.

        Raises:
            BrokenConfiguration: the state was written with another version, shard count or pane length.
        """
        self.config = config
        self.shard = shard
        self.counters: dict[str, int] = {fate.name.lower(): 0 for fate in (*ACCOUNTED, Fate.REWARD)}
        self.counters.update({f"embed_{sight.name.lower()}": 0 for sight in Sight if sight})
        self.counters.update(chains_dropped=0, capped=0)
        self._store = store
        self._panes: dict[int, Pane] = {}
        self._seen: dict[int, int] = {}
        self._sights = SecondSight(config.second_sight)
        self._chains = PendingChains(config.max_delta_bytes)
        self._known: dict[bytes, _Known] = {}
        self._logged: list[set[int]] = [set() for _ in range(config.slots)]
        self._unmarked = [False] * config.slots
        self._in_blobs: set[int] = set()
        self._next_timer_ms: int | None = None
        self._clock_ms = 0
        self._published = 0
        self._meta = _Meta(STATE_VERSION, config.shards, config.pane_ms, None, 0, 0, dict(self.counters), {})
        self._restore()

    @property
    def next_timer_ms(self) -> int | None:
        """When `on_timer` wants to be called, in event time; None while there is nothing to do."""
        return self._next_timer_ms

    @property
    def read(self) -> int:
        """Records of llm.requests that this shard has seen."""
        return sum(self.counters[fate.name.lower()] for fate in ACCOUNTED)

    def on_fact(self, fact: bytes, watermark_ms: int, policy: PolicyBook) -> list[bytes]:
        """Takes one fact of this shard; returns an EMBED envelope when it is a second sight.

        Args:
            watermark_ms: where event time stands; may be the smallest integer after a restore.
        """
        _, kind, flags, at_ms, identity, user, query, weight, names_bytes, segments, kept = HEAD.unpack_from(fact)
        config = self.config
        clock = self._clock_ms
        now_ms = watermark_ms if watermark_ms > clock else clock
        pane_index = at_ms // config.pane_ms
        if self._next_timer_ms != clock + config.pane_ms:
            self._wake(pane_index, watermark_ms)
        if kind != _REQUEST:
            return self._only_count(Fate.DEAD if kind == _DEAD else Fate.REWARD)
        if not flags & _DEMAND:
            return self._only_count(Fate.NOT_DEMAND)
        phase = 2 if flags & _FINISHED else 1
        seen = self._seen.get(identity)
        if seen is not None:
            if seen & phase:
                return self._only_count(Fate.DUPLICATE)
            return self._second_phase(max(pane_index, seen >> 2), identity)
        if (pane_index + 1) * config.pane_ms + config.lateness_ms <= now_ms:
            return self._only_count(Fate.LATE)

        known = self._known.get(names := fact[HEAD.size : HEAD.size + names_bytes])
        if known is None:
            known = self._learn(names)
        self._count(pane_index, phase, identity, known, query, weight, user)
        self._seen[identity] = pane_index << 2 | phase
        head = shard_log.PLAIN
        out: list[bytes] = []
        chain_kept = not segments or self._chains.add(known.place, fact[HEAD.size : kept], names_bytes, weight, at_ms)
        sight, tat_us = Sight.NONE, 0
        if known.sight.window.get(query, 0) > 1:
            scope = known.place[0]
            sight, tat_us = self._sights.decide(scope, query, flags, at_ms, now_ms, policy)
            if sight is Sight.ASKED:
                self._sights.asked((scope, query, at_ms), tat_us)
                request = EmbedRequest(scope, query.hex(), fact[kept:].decode(), at_ms, TRIGGER)
                out.append(seal(Tag.EMBED, scope, request))
        if sight or not chain_kept:
            head = shard_log.counted(sight, chain_kept, tat_us)
            self._tell(sight, chain_kept)
        slot = pane_index % config.slots
        self._store.append(slot, head + fact[:kept])
        self._logged[slot].add(pane_index)
        self._unmarked[slot] = True
        self.counters["counted"] += 1
        return out

    def on_timer(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        """A slide: publishes what changed, closes and forgets panes. A timer that is no longer wanted does nothing."""
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        out = self._publish(at_ms)
        self._clock_ms = at_ms
        self._close(at_ms)
        self._forget(at_ms)
        self._rest_asks(at_ms, policy)
        for slot, unmarked in enumerate(self._unmarked):
            if unmarked:
                self._store.append(slot, shard_log.MARK)
                self._unmarked[slot] = False
        self._next_timer_ms = self._next_due(at_ms)
        self._write_meta(self._sights.buckets(at_ms))
        self._store.clear(self.config.slots)
        return out

    # What an event does

    def _count(
        self, pane_index: int, phases: int, identity: int, known: _Known, query: bytes, weight: int, user: int
    ) -> None:
        pane = self._panes.get(pane_index)
        if pane is None:
            pane = self._panes[pane_index] = Pane(pane_index)
        if pane.count(known.place, query, known.template, known.adapter, weight, user, self.config.caps):
            window = known.sight.window
            window[query] = window.get(query, 0) + 1
        pane.ids[phases - 1].append(identity)

    def _second_phase(self, pane_index: int, identity: int) -> list[bytes]:
        self._recognise(pane_index, identity)
        slot = pane_index % self.config.slots
        self._store.append(slot, shard_log.second_phase(pane_index, identity))
        self._logged[slot].add(pane_index)
        self._unmarked[slot] = True
        self.counters["second_phase"] += 1
        return []

    def _recognise(self, pane_index: int, identity: int) -> None:
        pane = self._panes.get(pane_index)
        if pane is None:
            pane = self._panes[pane_index] = Pane(pane_index)
        pane.ids[2].append(identity)
        self._seen[identity] = max(self._seen.get(identity, 0), pane_index << 2 | 3)

    def _only_count(self, fate: Fate) -> list[bytes]:
        self._store.append(self.config.slots, shard_log.BARE[fate])
        self.counters[fate.name.lower()] += 1
        return []

    def _tell(self, sight: Sight, chain_kept: bool) -> None:
        if sight:
            self.counters[f"embed_{sight.name.lower()}"] += 1
        if not chain_kept:
            self.counters["chains_dropped"] += 1

    def _learn(self, names: bytes) -> _Known:
        if len(self._known) >= _MAX_NAMES:
            self._known.clear()
        told = unpack_names(names)
        known = self._known[names] = _Known(
            (told.scope, told.pool), told.template.encode(), told.adapter.encode(), self._sights.scope(told.scope)
        )
        return known

    def _wake(self, pane_index: int, watermark_ms: int) -> None:
        """Sets the timer to the first slide after this pane, the last slide and the watermark, unless one is sooner."""
        pane_ms = self.config.pane_ms
        due = max(pane_index + 1, self._clock_ms // pane_ms + 1, watermark_ms // pane_ms + 1) * pane_ms
        if self._next_timer_ms is None or due < self._next_timer_ms:
            self._next_timer_ms = due
            self._write_meta()

    # What a slide does

    def _publish(self, at_ms: int) -> list[bytes]:
        config = self.config
        changed = [
            self._panes[index]
            for index in sorted(self._panes)
            if index * config.pane_ms < at_ms and self._panes[index].changed
        ]
        out, capped = publish(changed, config.pane_ms, self.shard, at_ms, config.top)
        self.counters["capped"] += capped
        out += [seal(Tag.DELTA, delta.scope, delta) for delta in self._chains.drain(self.shard, at_ms)]
        if self.read != self._published:
            self._published = self.read
            out.append(accounting(self.counters, self.shard, at_ms))
        return out

    def _close(self, at_ms: int) -> None:
        """Moves panes that are over from their log to blobs. A slot has several panes only when times are far apart."""
        for slot, logged in enumerate(self._logged):
            if any((index + 1) * self.config.pane_ms + self.config.close_after_ms <= at_ms for index in logged):
                for index in logged:
                    self._store.put(index, self._panes[index].dump())
                    self._in_blobs.add(index)
                logged.clear()
                self._store.clear(slot)
                self._unmarked[slot] = False

    def _forget(self, at_ms: int) -> None:
        """Drops panes that left the window, with the identities that no later pane holds."""
        kept_ms = self.config.window_ms + self.config.lateness_ms
        old = [index for index in self._panes if (index + 1) * self.config.pane_ms + kept_ms <= at_ms]
        for index in sorted(old):
            pane = self._panes.pop(index)
            for identity, _ in pane.identities():
                if self._seen.get(identity, -1) >> 2 == index:
                    del self._seen[identity]
            for (scope, _), counts in pane.places.items():
                window = self._sights.scope(scope).window
                for query, row in counts[0].rows.items():
                    left = window[query] - row.events
                    if left:
                        window[query] = left
                    else:
                        del window[query]
            if index in self._in_blobs:
                self._in_blobs.discard(index)
                self._store.remove(index)
        if old and self._sights.drop_empty(at_ms):
            self._known.clear()

    def _rest_asks(self, at_ms: int, policy: PolicyBook) -> None:
        slide = at_ms // self.config.pane_ms
        if self._sights.fresh:
            self._store.put(_asks_key(slide), self._sights.rest())
            self._sights.laid(slide)
        for gone in self._sights.expire(at_ms, policy):
            self._store.remove(_asks_key(gone))

    def _next_due(self, at_ms: int) -> int | None:
        config = self.config
        kept_ms = config.window_ms + config.lateness_ms
        due: int | None = None
        for index, pane in self._panes.items():
            end_ms = (index + 1) * config.pane_ms
            if not pane.changed:
                end_ms += config.close_after_ms if index in self._logged[index % config.slots] else kept_ms
            due = end_ms if due is None else min(due, end_ms)
        if due is None:
            return None
        slide = max(-(-due // config.pane_ms), at_ms // config.pane_ms + 1)
        return slide * config.pane_ms

    # State

    def _write_meta(self, buckets: dict[str, int] | None = None) -> None:
        if buckets is None:
            meta = self._meta
            meta.next_timer_ms = self._next_timer_ms
        else:
            meta = self._meta = _Meta(
                STATE_VERSION,
                self.config.shards,
                self.config.pane_ms,
                self._next_timer_ms,
                self._clock_ms,
                self._published,
                dict(self.counters),
                buckets,
            )
        self._store.put(_META_KEY, msgspec.msgpack.encode(meta))

    def _restore(self) -> None:
        config = self.config
        asks: list[tuple[int, bytes]] = []
        for key, blob in self._store.items():
            if key == _META_KEY:
                self._read_meta(blob)
            elif key < _META_KEY:
                asks.append((_slide_of(key), blob))
            else:
                self._panes[key] = Pane.load(key, blob)
                self._in_blobs.add(key)
        self._sights.restore(asks)
        for pane in self._panes.values():
            for identity, phases in pane.identities():
                self._seen[identity] = max(self._seen.get(identity, 0), pane.index << 2 | phases)
            for (scope, _), counts in pane.places.items():
                window = self._sights.scope(scope).window
                for query, row in counts[0].rows.items():
                    window[query] = window.get(query, 0) + row.events
        for slot in range(config.slots):
            self._replay(slot)
        for entry in self._store.read(config.slots):
            self.counters[Fate(entry[0]).name.lower()] += 1
        for pane in self._panes.values():
            if pane.index * config.pane_ms >= self._clock_ms:
                pane.mark(changed=True)

    def _read_meta(self, blob: bytes) -> None:
        meta = self._meta = _meta_decoder.decode(blob)
        for what, found, wanted in (
            ("state version", meta.version, STATE_VERSION),
            ("shards", meta.shards, self.config.shards),
            ("pane_ms", meta.pane_ms, self.config.pane_ms),
        ):
            if found != wanted:
                raise BrokenConfiguration(
                    f"the state of demand was written with {what} = {found}, this job has {wanted}; "
                    "start it without the savepoint, or with the old setting"
                )
        self._next_timer_ms = meta.next_timer_ms
        self._clock_ms = meta.clock_ms
        self._published = meta.published
        self.counters.update(meta.counters)
        for scope, tat_us in meta.buckets.items():
            self._sights.scope(scope).tat_us = tat_us

    def _replay(self, slot: int) -> None:
        entries = list(self._store.read(slot))
        marks = [position for position, entry in enumerate(entries) if entry[0] == Fate.SLIDE]
        published = marks[-1] if marks else -1
        for position, entry in enumerate(entries):
            fresh = position > published
            if position == published:
                for index in self._logged[slot]:
                    self._panes[index].mark(changed=False)
            if entry[0] == Fate.COUNTED:
                self._recount(entry, fresh)
            elif entry[0] == Fate.SECOND_PHASE:
                index, identity = shard_log.read_second_phase(entry)
                self._recognise(index, identity)
                self._logged[slot].add(index)
                self.counters["second_phase"] += fresh
        self._unmarked[slot] = published < len(entries) - 1

    def _recount(self, entry: bytes, fresh: bool) -> None:
        sight, chain_kept, tat_us = shard_log.read_counted(entry)
        fact = entry[shard_log.COUNTED_BYTES :]
        _, _, flags, at_ms, identity, user, query, weight, names_bytes, segments, kept = HEAD.unpack_from(fact)
        index = at_ms // self.config.pane_ms
        phase = 2 if flags & _FINISHED else 1
        names = fact[HEAD.size : HEAD.size + names_bytes]
        known = self._known.get(names) or self._learn(names)
        self._count(index, phase, identity, known, query, weight, user)
        self._seen[identity] = max(self._seen.get(identity, 0), index << 2 | phase)
        self._logged[index % self.config.slots].add(index)
        if not fresh:
            return
        self.counters["counted"] += 1
        self._tell(sight, chain_kept)
        if segments:
            if chain_kept:
                self._chains.add(known.place, fact[HEAD.size : kept], names_bytes, weight, at_ms, force=True)
            else:
                self._chains.add_request(known.place, weight)
        if sight is Sight.ASKED:
            self._sights.asked((known.place[0], query, at_ms), tat_us)


def _asks_key(slide: int) -> int:
    return _META_KEY - 1 - slide


def _slide_of(key: int) -> int:
    return _META_KEY - 1 - key
