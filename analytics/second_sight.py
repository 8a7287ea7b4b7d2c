"""Second sight: the second request for a query asks for its embedding, at once and from the event at hand.

Once per embedding repeat interval and under a token bucket of the shard's part of the scope's rate; overflow is dropped
and counted, never back-pressured. A refused or withheld query is not remembered: its next request asks again.

Most queries are never seen again, so that clusters of second sights alone miss them. Where policy wants it, a sample of
first sights gets a vector too, out of the same bucket while at least half of it is left: second sights go before.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from analytics.facts import Flag
from analytics.policy import PolicyBook
from analytics.timescale import scaled
from analytics.token_bucket import take

TRIGGER = "second_sight"
FIRST_SIGHT = "first_sight"
"""Trigger of a vector that only clusters asked for."""
_HASHES = 1 << 32
_SHOWN = Flag.TEXT.value
_TOO_LONG = Flag.TEXT_TOO_LONG.value


class Sight(enum.IntEnum):
    """What came of a request, as the log keeps it."""

    NONE = 0
    """First sight, asked before, switched off, or frozen."""
    ASKED = 1
    OVER_RATE = 2
    WITHHELD = 3
    TOO_LONG = 4
    SAMPLED = 5
    """A first sight whose vector clusters want."""


_NOTHING, _OVER_RATE = (Sight.NONE, 0), (Sight.OVER_RATE, 0)
"""What most requests get: to name an enum's member costs 0.1 µs."""

EMBEDDED = {Sight.ASKED: TRIGGER, Sight.SAMPLED: FIRST_SIGHT}
"""Sights that ask for an embedding, and the trigger that they name."""


@dataclass(frozen=True)
class SightRule:
    """What policy says of a scope's embeddings, worked out once for each revision of a book.

    Attributes:
        open: whether second sights are wanted and the scope may act.
        repeat_ms: how long an ask holds.
        sampled: hashes below it are in the sample of first sights; 0 where there is none.
        rate_per_s, burst: this shard's part of the scope's embeds, a second and at once.
    """

    book: PolicyBook
    revision: int
    open: bool
    repeat_ms: int
    sampled: float
    rate_per_s: float
    burst: float


@dataclass
class ScopeSight:
    """One scope in one shard.

    Attributes:
        window: how often each query was counted in the retained panes.
        asked: when each query was asked for last, in event time.
        tat_us: the token bucket.
        rule: the last one that was asked for.
    """

    window: dict[bytes, int] = field(default_factory=dict)
    asked: dict[bytes, int] = field(default_factory=dict)
    tat_us: int = 0
    rule: SightRule | None = None


Ask = tuple[str, bytes, int]
"""Scope, query, event time."""

_decoder = msgspec.msgpack.Decoder(list[Ask])


@dataclass(frozen=True)
class SecondSightConfig:
    """Bounds of the memory of asked queries.

    Attributes:
        shards: the scope's rate is divided by them.
        small: scopes that live in one shard, which has their whole rate.
        time_scale: the repeat interval is divided by it.
        max_asked: asks remembered in a shard; the oldest go first, and may then be asked for again.
    """

    shards: int = 8
    small: frozenset[str] = frozenset()
    time_scale: float = 1.0
    max_asked: int = 50_000


class SecondSight:
    """Memory of what was seen and asked for; asks at rest lie in one small blob per slide, written once."""

    def __init__(self, config: SecondSightConfig) -> None:
        self.config = config
        self.scopes: dict[str, ScopeSight] = {}
        self.fresh: list[Ask] = []
        self._slides: deque[tuple[int, list[Ask]]] = deque()
        self._held = 0

    def scope(self, name: str) -> ScopeSight:
        """The state of a scope."""
        found = self.scopes.get(name)
        if found is None:
            found = self.scopes[name] = ScopeSight()
        return found

    def decide(
        self, scope: str, query: bytes, flags: int, at_ms: int, now_ms: int, policy: PolicyBook
    ) -> tuple[Sight, int]:
        """What a request that is not its query's first asks for; with ASKED comes the bucket's new state.

        Args:
            at_ms: event time of the request.
            now_ms: where event time stands; the bucket goes by it, so that no event from the future empties it.
        """
        state = self.scope(scope)
        rule = self._rule(scope, state, policy)
        asked = state.asked.get(query)
        if not rule.open or (asked is not None and at_ms < asked + rule.repeat_ms):
            return _NOTHING
        if not flags & _SHOWN:
            return (Sight.TOO_LONG if flags & _TOO_LONG else Sight.WITHHELD), 0
        tat_us = take(state.tat_us, now_ms, rule.rate_per_s, rule.burst)
        if tat_us is None:
            return _OVER_RATE
        return Sight.ASKED, tat_us

    def sample(self, scope: str, query: bytes, flags: int, now_ms: int, policy: PolicyBook) -> tuple[Sight, int]:
        """Whether a query's first sight is embedded for clusters; with SAMPLED comes the bucket's new state.

        A query is in the sample or not, by its hash: what is asked for again after a window is not drawn anew.
        """
        state = self.scope(scope)
        rule = self._rule(scope, state, policy)
        if not rule.sampled or int.from_bytes(query[:4], "big") >= rule.sampled or not flags & _SHOWN:
            return _NOTHING
        tat_us = take(state.tat_us, now_ms, rule.rate_per_s, rule.burst / 2)
        return _NOTHING if tat_us is None else (Sight.SAMPLED, tat_us)

    def sampled(self, scope: str, tat_us: int) -> None:
        """Remembers what a sample took, live or from the log, but not that it was asked: a second sight asks again."""
        state = self.scope(scope)
        state.tat_us = max(state.tat_us, tat_us)

    def asked(self, ask: Ask, tat_us: int) -> None:
        """Remembers an ask, live or from the log; the order does not matter."""
        scope, query, at_ms = ask
        state = self.scope(scope)
        state.tat_us = max(state.tat_us, tat_us)
        state.asked[query] = max(state.asked.get(query, 0), at_ms)
        self.fresh.append(ask)

    def rest(self) -> bytes:
        """The blob of the asks since the last slide."""
        return msgspec.msgpack.encode(sorted(self.fresh))

    def laid(self, slide: int) -> None:
        """Says that `rest()` was written for this slide."""
        asks = sorted(self.fresh)
        self.fresh = []
        self._slides.append((slide, asks))
        self._held += len(asks)

    def restore(self, blobs: Iterable[tuple[int, bytes]]) -> None:
        """Reads the blobs of slides back."""
        for slide, blob in sorted(blobs):
            asks = _decoder.decode(blob)
            self._slides.append((slide, asks))
            self._held += len(asks)
            for scope, query, at_ms in asks:
                state = self.scope(scope)
                state.asked[query] = max(state.asked.get(query, 0), at_ms)

    def expire(self, now_ms: int, policy: PolicyBook) -> list[int]:
        """Forgets the oldest slides when all that was asked in them may be asked again; returns which."""
        gone = []
        while self._slides:
            slide, asks = self._slides[0]
            over = self._held > self.config.max_asked
            if not over and any(now_ms < at_ms + self._repeat_ms(scope, policy) for scope, _, at_ms in asks):
                break
            self._slides.popleft()
            self._held -= len(asks)
            gone.append(slide)
            for scope, query, at_ms in asks:
                state = self.scope(scope)
                if state.asked.get(query) == at_ms:
                    del state.asked[query]
        return gone

    def buckets(self, now_ms: int) -> dict[str, int]:
        """States of the buckets that are not full again."""
        return {scope: state.tat_us for scope, state in sorted(self.scopes.items()) if state.tat_us > now_ms * 1000}

    def drop_empty(self, now_ms: int) -> bool:
        """Forgets scopes of which nothing is known any more; says whether there were any."""
        empty = [
            name
            for name, state in self.scopes.items()
            if not state.window and not state.asked and state.tat_us <= now_ms * 1000
        ]
        for name in empty:
            del self.scopes[name]
        return bool(empty)

    def _rule(self, scope: str, state: ScopeSight, policy: PolicyBook) -> SightRule:
        held = state.rule
        if held is not None and held.revision == policy.revision and held.book is policy:
            return held
        plan, budget, frozen = policy.plan(scope), policy.budget(scope), bool(policy.frozen(scope))
        parts = 1 if scope in self.config.small else self.config.shards
        state.rule = SightRule(
            book=policy,
            revision=policy.revision,
            open=plan.second_sight and not frozen,
            repeat_ms=self._repeat_ms(scope, policy),
            sampled=0.0 if frozen else plan.first_sight_share * _HASHES,
            rate_per_s=budget.embeds_per_s / parts,
            burst=budget.embeds_burst / parts,
        )
        return state.rule

    def _repeat_ms(self, scope: str, policy: PolicyBook) -> int:
        return scaled(policy.plan(scope).embedding_repeat_ms, self.config.time_scale)
