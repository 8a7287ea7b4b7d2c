"""One shard of demand: dedupe, panes, second sight and chains, with state that survives a crash at any point.

An event costs one append to a log; the live object is a cache that the constructor rebuilds. At rest there are blobs of
closed panes, logs of what is in no blob yet (`analytics.shard_log`), small blobs of recent asks for embeddings, and
what else a shard knows, written at each slide. A slide (event-time timer, one pane long) publishes what changed, closes
panes, and marks the logs, so that a replay knows what was published.

Late is what comes for a pane that ended more than `lateness_ms` before event time; an identity is remembered for
`window_ms + lateness_ms` after its pane ended (D1).
"""

from __future__ import annotations

from collections.abc import Mapping

from analytics import shard_log
from analytics.asked import ROW, PendingAsked
from analytics.deltas import PendingChains
from analytics.demand_config import DemandConfig
from analytics.demand_state import (
    META_KEY,
    SIGHT_COUNTERS,
    STATE_VERSION,
    TERMS,
    asks_key,
    first_counters,
    first_meta,
    pack_meta,
    read_meta,
)
from analytics.envelopes import EmbedRequest, Tag, seal
from analytics.facts import HEAD, Flag, Kind, read_text
from analytics.known_names import KnownNames
from analytics.policy import PolicyBook
from analytics.publication import accounting, publish
from analytics.retained import FINISHED, STARTED, RetainedPanes
from analytics.reward_facts import answering, judging
from analytics.rewards import LAST_KEY, RewardJoin
from analytics.second_sight import EMBEDDED, Ask, SecondSight, Sight
from analytics.shard_log import Fate, ShardLog
from analytics.stores import LogStore

__all__ = ["STATE_VERSION", "Demand", "DemandConfig"]

_REQUEST, _DEAD = int(Kind.REQUEST), int(Kind.DEAD)
_DEMAND, _FINISHED, _ANSWER = Flag.DEMAND.value, Flag.FINISHED.value, Flag.ANSWER.value


class Demand:
    """One shard. Any call may be the last one before a crash: a new object over the same store goes on."""

    def __init__(self, config: DemandConfig, shard: int, store: LogStore) -> None:
        """Rebuilds itself from the store, which has `config.logs` logs.

        Raises:
            BrokenConfiguration: the state was written with another version, shard count or pane length.
        """
        self.config = config
        self.shard = shard
        self._times = config.times
        self._counters = first_counters()
        self._rewards = RewardJoin(config.rewards, config.pane_ms, store, config.reward_log, self._counters)
        self._waiting = self._rewards.waiting
        self._store = store
        self._log = ShardLog(store, config.slots)
        self._sights = SecondSight(config.second_sight)
        self._retained = RetainedPanes(config.times, config.caps, self._sights)
        self._blobs: set[int] = set()
        self._chains = PendingChains(config.max_delta_bytes)
        self._asked = PendingAsked(config.family_leads)
        self._names = KnownNames(self._sights, self._asked)
        self._known = self._names.known
        self._next_timer_ms: int | None = None
        self._clock_ms = 0
        self._published = 0
        self._meta = first_meta(config, self._counters)
        self._restore()

    @property
    def next_timer_ms(self) -> int | None:
        """When `on_timer` wants to be called, in event time; None while there is nothing to do."""
        return self._next_timer_ms

    @property
    def counters(self) -> Mapping[str, int]:
        """Since the state began: the terms of the accounting in records; `reward` facts; what came of second sights
        (`embed_asked`, `embed_over_rate`, `embed_withheld`, `embed_too_long`) and of first ones (`embed_sampled`);
        `chains_dropped` for want of room; `capped`, the totals that were published although a cap made them inexact;
        and `rewards.COUNTERS`.
        """
        return self._counters

    @property
    def read(self) -> int:
        """Records of llm.requests that this shard has seen."""
        return sum([self._counters[term] for term in TERMS])

    def on_fact(self, fact: bytes, watermark_ms: int, policy: PolicyBook) -> list[bytes]:
        """Takes one fact of this shard; returns an EMBED envelope when it is a second sight, or one of the sample.

        Rewards, and answers that were judged, give ANSWER and REWARDED envelopes at once.

        Args:
            watermark_ms: where event time stands; may be the smallest integer after a restore.
        """
        _, kind, flags, at_ms, identity, user, query, weight, names_bytes, segments, kept = HEAD.unpack_from(fact)
        clock = self._clock_ms
        pane = at_ms // self.config.pane_ms
        # In the steady state the next slide is one pane after the last, and no event can want an earlier one.
        if self._next_timer_ms != clock + self.config.pane_ms:
            self._wake(pane, watermark_ms)
        if kind != _REQUEST:
            return self._tally(Fate.DEAD) if kind == _DEAD else self._reward(fact, watermark_ms)
        if not flags & _DEMAND:
            return self._tally(Fate.NOT_DEMAND)
        phase = FINISHED if flags & _FINISHED else STARTED
        seen = self._retained.seen.get(identity)
        if seen is not None:
            if seen & phase:
                return self._tally(Fate.DUPLICATE)
            self._second_phase(max(pane, seen >> 2), identity)
            return self._rewards.on_answer(answering(fact, max(watermark_ms, clock))) if flags & _ANSWER else []
        now_ms = watermark_ms if watermark_ms > clock else clock
        if self._times.late(pane, now_ms):
            return self._tally(Fate.LATE)

        known = self._known.get(names := fact[HEAD.size : HEAD.size + names_bytes]) or self._names.learn(names)
        self._retained.count(
            pane, phase, identity, known.place, known.sight, query, known.template, known.adapter, weight, user
        )
        # What `Asking.add` does in the common case, without the call.
        asked = known.asked
        if segments >= asked.enough:
            asked.led.append(fact[ROW] + fact[asked.cut])
        else:
            asked.add(fact, segments)
        chain_kept = not segments or self._chains.add(known.place, fact[HEAD.size : kept], names_bytes, weight, at_ms)
        out: list[bytes] = []
        scope = known.place[0]
        if known.sight.window.get(query, 0) > 1:
            sight, tat_us = self._sights.decide(scope, query, flags, at_ms, now_ms, policy)
        else:
            sight, tat_us = self._sights.sample(scope, query, flags, now_ms, policy)
        if sight and sight in EMBEDDED:
            self._took(sight, (scope, query, at_ms), tat_us)
            request = EmbedRequest(scope, query.hex(), read_text(fact, flags, kept), at_ms, EMBEDDED[sight])
            out.append(seal(Tag.EMBED, scope, request))
        self._counters["counted"] += 1
        head = shard_log.PLAIN
        if sight or not chain_kept:
            self._tell(sight, chain_kept)
            head = shard_log.counted(sight, chain_kept, tat_us)
        self._log.append(pane, head + fact[:kept])
        if flags & _ANSWER or (scope, query) in self._waiting:
            out += self._rewards.on_answer(answering(fact, now_ms))
        return out

    def on_timer(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        """A slide: publishes what changed, closes and forgets panes. A timer that is no longer wanted does nothing.

        Returns:
            PARTIAL and INSIGHT (WindowStats) envelopes of changed panes, DELTA and ASKED envelopes, and the shard's
            Accounting.
        """
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        out, capped = publish(
            self._retained.changed_before(at_ms), self.config.pane_ms, self.shard, at_ms, self.config.top
        )
        self._counters["capped"] += capped
        out += [seal(Tag.DELTA, delta.scope, delta) for delta in self._chains.drain(self.shard, at_ms)]
        config = self.config
        asked = self._asked.drain(at_ms, config.pane_ms, config.max_asked, lambda scope: policy.focus(scope).tuned)
        out += [seal(Tag.ASKED, each.scope, each) for each in asked]
        if self.read != self._published:
            self._published = self.read
            out.append(accounting(self._counters, self.shard, at_ms))

        self._clock_ms = at_ms
        self._rewards.slide(self._times.pane_of(at_ms), at_ms)
        self._close_and_forget(at_ms)
        self._lay_asks(at_ms, policy)
        self._next_timer_ms = self._next_due(at_ms)
        self._write_meta(slide=True)
        self._log.mark_slide()
        return out

    # What a fact does

    def _tally(self, fate: Fate) -> list[bytes]:
        self._log.tally(fate)
        self._counters[fate.name.lower()] += 1
        return []

    def _reward(self, fact: bytes, watermark_ms: int) -> list[bytes]:
        self._log.tally(Fate.REWARD)
        self._counters["reward"] += 1
        reward = judging(fact, max(watermark_ms, self._clock_ms), self.config.rewards.wait_ms)
        sight = self._sights.scopes.get(reward.scope)
        return self._rewards.on_reward(reward, asked=sight is not None and reward.query in sight.window)

    def _second_phase(self, pane: int, identity: int) -> None:
        self._retained.recognise(pane, identity)
        self._log.append(pane, shard_log.second_phase(pane, identity))
        self._counters["second_phase"] += 1

    def _took(self, sight: Sight, ask: Ask, tat_us: int) -> None:
        """An embedding was asked for, now or before a crash."""
        if sight is Sight.SAMPLED:
            self._sights.sampled(ask[0], tat_us)
        else:
            self._sights.asked(ask, tat_us)

    def _tell(self, sight: Sight, chain_kept: bool) -> None:
        if sight:
            self._counters[SIGHT_COUNTERS[sight]] += 1
        if not chain_kept:
            self._counters["chains_dropped"] += 1

    def _wake(self, pane: int, watermark_ms: int) -> None:
        """Sets the timer to the first slide after pane, last slide and watermark, unless it is set to a sooner one."""
        after = max(pane, self._times.pane_of(self._clock_ms), self._times.pane_of(watermark_ms))
        due = self._times.end_ms(after)
        if self._next_timer_ms is None or due < self._next_timer_ms:
            self._next_timer_ms = due
            self._write_meta()

    # What a slide does

    def _close_and_forget(self, at_ms: int) -> None:
        close_after_ms = self.config.close_after_ms
        self._blobs.update(
            self._log.close(
                due=lambda pane: self._times.end_ms(pane) + close_after_ms <= at_ms,
                dump=lambda pane: self._retained.panes[pane].dump(),
            )
        )
        forgotten = self._retained.forget(at_ms)
        for pane in self._blobs.intersection(forgotten):
            self._store.remove(pane)
        self._blobs.difference_update(forgotten)
        if forgotten and self._sights.drop_empty(at_ms):
            self._names.forget()

    def _lay_asks(self, at_ms: int, policy: PolicyBook) -> None:
        slide = self._times.pane_of(at_ms)
        if self._sights.fresh:
            self._store.put(asks_key(slide), self._sights.rest())
            self._sights.laid(slide)
        for gone in self._sights.expire(at_ms, policy):
            self._store.remove(asks_key(gone))

    def _next_due(self, at_ms: int) -> int | None:
        """The next slide at which a pane has something to publish, to close or to forget."""
        kept_ms = self.config.lateness_ms + self.config.window_ms
        due = self._rewards.next_due_ms()
        for index, pane in self._retained.panes.items():
            wanted = self._times.end_ms(index)
            if not pane.changed:
                wanted += self.config.close_after_ms if self._log.holds(index) else kept_ms
            due = wanted if due is None else min(due, wanted)
        if due is None:
            return None
        return max(self._times.slide_at_or_after(due), self._times.end_ms(self._times.pane_of(at_ms)))

    # State

    def _write_meta(self, slide: bool = False) -> None:
        self._meta.next_timer_ms = self._next_timer_ms
        if slide:
            self._meta.clock_ms = self._clock_ms
            self._meta.published = self._published
            self._meta.counters = dict(self._counters)
            self._meta.buckets = self._sights.buckets(self._clock_ms)
        self._store.put(META_KEY, pack_meta(self._meta))

    def _restore(self) -> None:
        asks: list[tuple[int, bytes]] = []
        rewards: list[tuple[int, bytes]] = []
        for key, blob in self._store.items():
            if key == META_KEY:
                self._read_meta(blob)
            elif key < LAST_KEY:
                rewards.append((key, blob))
            elif key < META_KEY:
                asks.append((asks_key(key), blob))
            else:
                self._retained.load(key, blob)
                self._blobs.add(key)
        self._sights.restore(asks)
        for entry, fresh in self._log.replay():
            self._log.replayed(self._replay(entry, fresh))
        for fate in self._log.tallies():
            self._counters[fate.name.lower()] += 1
        self._rewards.restore(rewards, self._clock_ms)
        self._retained.mark_open(self._clock_ms)

    def _read_meta(self, blob: bytes) -> None:
        meta = read_meta(blob, self.config)
        self._meta = meta
        self._next_timer_ms = meta.next_timer_ms
        self._clock_ms = meta.clock_ms
        self._published = meta.published
        self._counters.update(meta.counters)
        for scope, tat_us in meta.buckets.items():
            self._sights.scope(scope).tat_us = tat_us

    def _replay(self, entry: bytes, fresh: bool) -> int:
        """Does again what an entry says was done, and returns its pane; before the last slide only panes kept it."""
        if entry[0] == Fate.SECOND_PHASE:
            pane, identity = shard_log.read_second_phase(entry)
            self._retained.recognise(pane, identity)
            self._counters["second_phase"] += fresh
            return pane
        sight, chain_kept, tat_us, fact = shard_log.read_counted(entry)
        _, _, flags, at_ms, identity, user, query, weight, names_bytes, segments, kept = HEAD.unpack_from(fact)
        pane = self._times.pane_of(at_ms)
        phase = FINISHED if flags & _FINISHED else STARTED
        known = self._known.get(names := fact[HEAD.size : HEAD.size + names_bytes]) or self._names.learn(names)
        self._retained.count(
            pane, phase, identity, known.place, known.sight, query, known.template, known.adapter, weight, user
        )
        if not fresh:
            self._retained.panes[pane].mark(changed=False)
            return pane
        self._counters["counted"] += 1
        self._tell(sight, chain_kept)
        known.asked.add(fact, segments)
        if segments and chain_kept:
            self._chains.add(known.place, fact[HEAD.size : kept], names_bytes, weight, at_ms)
        elif segments:
            self._chains.add_request(known.place, weight)
        if sight in EMBEDDED:
            self._took(sight, (known.place[0], query, at_ms), tat_us)
        return pane
