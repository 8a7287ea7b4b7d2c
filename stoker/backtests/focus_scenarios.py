"""Traffic in which a crowd gathers, or something happens that only looks like one: what `backtest focus` is judged on.

When requests come is real: the arrivals of the Azure conversation trace, each standing for `COPIES` requests that
arrive within 30 s around it, which makes a busy service out of a small one and keeps its rises and falls. What is
asked, and by whom, is drawn: queries and users by a Zipf law of each tenant. Every scenario adds one disturbance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stoker.replay.azure import Arrival

COPIES = 40
"""Requests for each arrival of the trace: 220 a second. A burst of 5 % has its 100 users after some 9 s then."""

SPREAD_MS = 30_000
QUERIES = 2_000
USERS = 5_000
LENGTH_MS = 1_200_000
"""Twenty minutes of the trace, which each seed takes from another part of it."""

BEGINS_MS = 600_000
LASTS_MS = 180_000
PROMOTED = QUERIES
"""The query that a crowd or machine asks for, one that nobody asked for before; the next ones are free."""

ONE_TEXT = QUERIES + 100
SHARE = 0.05

FAMILY, SYSTEM = 1 << 32, 1 << 48
"""Numbers of queries: what is above the first says which document a request is about, what is above the other which
system prompt it has. Where both are 0 nothing is known of them."""

Column = NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Requests in the order of their event times."""

    at_ms: Column
    tenants: Column
    queries: Column
    users: Column

    def __add__(self, other: Events) -> Events:
        return ordered(*(np.concatenate(both) for both in zip(self.columns, other.columns, strict=True)))

    @property
    def columns(self) -> tuple[Column, Column, Column, Column]:
        """Times, tenants, queries, users."""
        return self.at_ms, self.tenants, self.queries, self.users


@dataclass(frozen=True)
class Crowd:
    """The truth about a crowd.

    Attributes:
        tenant: whose users gathered.
        queries: what they ask for.
        begins_ms, ends_ms: its first and last request.
        hundredth_ms: when its hundredth user was heard of.
    """

    tenant: int
    queries: frozenset[int]
    begins_ms: int
    ends_ms: int
    hundredth_ms: int


@dataclass(frozen=True)
class Scenario:
    """A run, and what there is to find in it.

    Attributes:
        crowd: None where every trigger is a false one.
    """

    name: str
    events: Events
    crowd: Crowd | None = None


@dataclass
class World:
    """Where a scenario takes its arrivals and its chance from."""

    arrivals: Sequence[Arrival]
    chance: np.random.Generator

    def times(self, copies: float = COPIES) -> Column:
        """Event times of a stretch of the trace, from 0 to `LENGTH_MS`."""
        at_ms = np.array([arrival.at_ms for arrival in self.arrivals], dtype=np.int64)
        start = self.chance.integers(0, max(1, int(at_ms[-1]) - LENGTH_MS - SPREAD_MS))
        near = at_ms[(at_ms >= start - SPREAD_MS) & (at_ms < start + LENGTH_MS + SPREAD_MS)] - start
        many = np.repeat(near, self.chance.poisson(copies, len(near)))
        many = many + self.chance.integers(-SPREAD_MS // 2, SPREAD_MS // 2, len(many))
        return np.sort(many[(many >= 0) & (many < LENGTH_MS)])

    def zipf(self, items: int, exponent: float, count: int) -> Column:
        """Draws of a Zipf law over a number of items."""
        weights = np.arange(1, items + 1) ** -exponent
        return np.searchsorted(np.cumsum(weights) / weights.sum(), self.chance.random(count)).astype(np.int64)

    def base(self, copies: float = COPIES) -> Events:
        """One tenant's usual traffic."""
        return self.usual(self.times(copies))

    def usual(self, at_ms: Column, tenant: int = 0) -> Events:
        """Usual requests at these times."""
        count = len(at_ms)
        tenants = np.full(count, tenant, dtype=np.int64)
        return Events(at_ms, tenants, self.zipf(QUERIES, 1.1, count), self.zipf(USERS, 0.6, count))

    def begins(self) -> int:
        """When a disturbance begins, at any point of a pane."""
        return BEGINS_MS + int(self.chance.integers(0, 10_000))

    def poisson(self, per_s: float, begins_ms: int, lasts_ms: int) -> Column:
        """Independent arrivals at a rate."""
        count = self.chance.poisson(per_s * lasts_ms / 1000)
        return np.sort(self.chance.integers(begins_ms, begins_ms + lasts_ms, count))

    def gathering(self, per_s: float, tenant: int = 0, queries: Sequence[int] = (PROMOTED,)) -> tuple[Events, Crowd]:
        """A crowd of a tenant's users."""
        begins = self.begins()
        at_ms = self.poisson(per_s, begins, LASTS_MS)
        asked = np.array(queries)[self.zipf(len(queries), 1.0, len(at_ms))]
        # Whom it draws is not who asks most: anybody of the tenant's, and as many strangers.
        users = self.chance.integers(0, 2 * USERS, len(at_ms))
        events = Events(at_ms, np.full(len(at_ms), tenant, dtype=np.int64), asked, users)
        return events, truth(events, tenant, queries)


def ordered(at_ms: Column, tenants: Column, queries: Column, users: Column) -> Events:
    """Events in the order of time."""
    order = np.argsort(at_ms, kind="stable")
    return Events(at_ms[order], tenants[order], queries[order], users[order])


def truth(events: Events, tenant: int, queries: Sequence[int]) -> Crowd:
    """What is to be known of a crowd, given its events."""
    _, first = np.unique(events.users, return_index=True)
    hundredth = np.sort(first)[min(99, len(first) - 1)]
    begins, ends = int(events.at_ms[0]), int(events.at_ms[-1])
    return Crowd(tenant, frozenset(queries), begins, ends, int(events.at_ms[hundredth]))


def _rate(events: Events) -> float:
    return len(events.at_ms) / (LENGTH_MS / 1000)


def _machine(at_ms: Column, queries: Column, users: Column) -> Events:
    return ordered(at_ms, np.zeros(len(at_ms), dtype=np.int64), queries, users)


def promotion(world: World) -> Scenario:
    """5 % of the traffic asks for something new."""
    base = world.base()
    events, crowd = world.gathering(SHARE / (1 - SHARE) * _rate(base))
    return Scenario("promotion", base + events, crowd)


def promotion_of_known(world: World) -> Scenario:
    """5 % more ask for three queries of which two have been popular all along."""
    base = world.base()
    events, crowd = world.gathering(SHARE / (1 - SHARE) * _rate(base), queries=(20, PROMOTED, 7))
    return Scenario("promotion_of_known", base + events, crowd)


def crawler(world: World) -> Scenario:
    """One client asks for one page again and again, 20 % of all requests, and another goes through all pages."""
    base, begins = world.base(), world.begins()
    rate = 0.2 * _rate(base)
    again = world.poisson(rate, begins, LASTS_MS)
    sweep = np.arange(begins, begins + LASTS_MS, max(1, int(1000 / rate)), dtype=np.int64)
    one = _machine(again, np.full(len(again), PROMOTED), np.full(len(again), 2 * USERS))
    all_pages = _machine(sweep, np.arange(len(sweep)) % QUERIES, np.full(len(sweep), 2 * USERS + 1))
    return Scenario("crawler", base + one + all_pages)


def replay(world: World) -> Scenario:
    """Twenty accounts of a load test replay five queries, 30 % of all requests, at random gaps."""
    base, begins = world.base(), world.begins()
    at_ms = world.poisson(0.3 * _rate(base), begins, LASTS_MS)
    queries = PROMOTED + world.chance.integers(0, 5, len(at_ms))
    users = 2 * USERS + world.chance.integers(0, 20, len(at_ms))
    return Scenario("replay", base + _machine(at_ms, queries, users))


def bot_net(world: World) -> Scenario:
    """500 users ask for one page every 20 s each, give or take a second: until they repeat themselves, a crowd."""
    base, begins = world.base(), world.begins()
    phases = world.chance.integers(0, 20_000, 500)
    ticks = np.arange(0, LASTS_MS, 20_000)
    at_ms = (begins + phases[:, None] + ticks[None, :]).ravel() + world.chance.integers(-1_000, 1_000, 500 * len(ticks))
    users = 2 * USERS + np.repeat(np.arange(500), len(ticks))
    return Scenario("bot_net", base + _machine(at_ms, np.full(len(at_ms), PROMOTED), users))


def bot_net_like_people(world: World) -> Scenario:
    """The same net at random times, each bot once or twice: by all counts a crowd."""
    base, begins = world.base(), world.begins()
    at_ms = world.poisson(SHARE / (1 - SHARE) * _rate(base), begins, LASTS_MS)
    users = 2 * USERS + world.chance.integers(0, 1_500, len(at_ms))
    bots = _machine(at_ms, np.full(len(at_ms), PROMOTED), users)
    return Scenario("bot_net_like_people", base + bots)


def drift(world: World) -> Scenario:
    """Tastes change slowly: a topic grows from nothing to 10 % in fifteen minutes while the favourites come and go."""
    base = world.base()
    phase = world.chance.random(QUERIES) * 2 * np.pi
    # A request keeps its query with a chance that swings over twenty minutes, else it is drawn anew.
    swing = 1 + 0.3 * np.sin(2 * np.pi * base.at_ms / LENGTH_MS + phase[base.queries])
    again = world.chance.random(len(base.at_ms)) * 1.3 > swing
    queries = np.where(again, world.zipf(QUERIES, 1.1, len(again)), base.queries)
    grown = 0.1 * np.clip((base.at_ms - 300_000) / 900_000, 0, 1)
    queries = np.where(world.chance.random(len(queries)) < grown, PROMOTED, queries)
    return Scenario("drift", replace(base, queries=queries))


def day_curve(world: World) -> Scenario:
    """A day in twenty minutes: down to 3 % of the traffic and up again."""
    base = world.base()
    level = 0.515 + 0.485 * np.cos(2 * np.pi * base.at_ms / LENGTH_MS)
    kept = world.chance.random(len(level)) < level
    return Scenario("day_curve", Events(*(column[kept] for column in base.columns)))


def rate_doubling(world: World) -> Scenario:
    """Twice as many requests from one moment on, for the same things."""
    base, begins = world.base(), world.begins()
    more = world.times()
    return Scenario("rate_doubling", base + world.usual(more[more >= begins]))


def one_tenant(world: World) -> Scenario:
    """Each of 50 tenants is a scope: one has a crowd worth 5 % of all traffic, one five times its usual requests."""
    at_ms = world.times()
    tenants = world.zipf(50, 1.0, len(at_ms))
    usual = world.usual(at_ms)
    base = Events(at_ms, tenants, usual.queries, usual.users)
    crowd_events, crowd = world.gathering(SHARE / (1 - SHARE) * _rate(base), tenant=7)
    begins = world.begins()
    own = float((tenants == 4).sum()) / (LENGTH_MS / 1000)
    busy = world.usual(world.poisson(4 * own, begins, LASTS_MS), tenant=4)
    return Scenario("one_tenant", base + crowd_events + busy, crowd)


def redacted(world: World) -> Scenario:
    """Half of the gateways begin to send one text for all, the rest follows three minutes later."""
    base, begins = world.base(), world.begins()
    half = world.chance.random(len(base.at_ms)) < 0.5
    hidden = ((base.at_ms >= begins) & half) | (base.at_ms >= begins + LASTS_MS)
    return Scenario("redacted", replace(base, queries=np.where(hidden, ONE_TEXT, base.queries)))


def redacted_always(world: World) -> Scenario:
    """All texts are one from the beginning, and the traffic doubles."""
    base, begins = world.base(), world.begins()
    more = world.times()
    both = base + world.usual(more[more >= begins])
    return Scenario("redacted_always", replace(both, queries=np.full(len(both.at_ms), ONE_TEXT)))


def long_generations(world: World) -> Scenario:
    """Events come when the answers end, up to minutes later; one crowd, and a stall that lets many go at once."""
    base = world.base()
    events, _ = world.gathering(SHARE / (1 - SHARE) * _rate(base))
    ended_crowd = _ended(world, events)
    ended = _ended(world, base)
    # For half a minute no answer ends, then all do within two seconds.
    stalled = (ended.at_ms >= 360_000) & (ended.at_ms < 390_000)
    at_ms = np.where(stalled, 390_000 + world.chance.integers(0, 2_000, len(stalled)), ended.at_ms)
    ended = ordered(at_ms, ended.tenants, ended.queries, ended.users)
    return Scenario("long_generations", ended + ended_crowd, truth(ended_crowd, 0, (PROMOTED,)))


def _ended(world: World, events: Events) -> Events:
    tokens = np.array([arrival.generated_tokens for arrival in world.arrivals])
    took = 500 + 60 * world.chance.choice(tokens, len(events.at_ms))
    return ordered(events.at_ms + took, events.tenants, events.queries, events.users)


Make = Callable[[World], Scenario]
QUERY_SCENARIOS: dict[str, Make] = {
    make.__name__: make
    for make in (
        promotion,
        promotion_of_known,
        one_tenant,
        long_generations,
        crawler,
        replay,
        bot_net,
        bot_net_like_people,
        drift,
        day_curve,
        rate_doubling,
        redacted,
        redacted_always,
    )
}
"""Scenarios about queries, those with a crowd first."""

UNDECIDABLE = ("bot_net", "bot_net_like_people")
"""No count can tell them from a crowd, the first of them not until its bots repeat themselves."""
