"""Every decision object that is under the laws of `test_laws.py`, and what each may hear."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from analytics import facts
from analytics.adapter_classes import CLASSES
from analytics.adapter_habits import HOUR_MS, HabitConfig
from analytics.adapter_prefetch import AdapterPrefetch, PrefetchConfig
from analytics.adapter_residency import ResidencyConfig, TunedResidency
from analytics.cache_models import Run
from analytics.cluster_config import ClusterConfig
from analytics.clustered import Clustered
from analytics.demand import Demand
from analytics.envelopes import Candidates, Partial, PrefixDelta, Tag, body_of, open_as, tag_of
from analytics.host_tier import HostTierCache, HostTierConfig
from analytics.panes import PaneCaps
from analytics.policy import PolicyBook
from analytics.prefixes import PrefixConfig, PrefixTree
from analytics.prompt_usage import PromptUsage, PromptUsageConfig, PromptUse
from analytics.retention import Retention, RetentionConfig
from analytics.scope_clusters import ScopeClusters
from analytics.scope_focus import ScopeFocus
from analytics.sessions import Session, SessionConfig
from analytics.stores import MemoryLogStore, MemoryMapStore
from analytics.window_dbscan import WindowConfig, WindowDbscan
from schemas import decode
from schemas.insights import Accounting
from tests.analytics import asking, test_prefixes, test_prompt_usage, test_scope_clusters, test_sessions
from tests.analytics.lives import Event, Events, Life, Subject
from tests.analytics.shard_script import CHAINS, answered, chain, request, reward
from tests.analytics.test_demand_recovery import TIGHT
from tests.analytics.test_scope_focus import PANE_MS, SMALL

BOOK = PolicyBook()
Make = Callable[[random.Random, int, int], Callable[[Life], Sequence[Any] | None]]
"""An event of a time; the last argument is its number."""


def stream(make: Make, gap_ms: int, jitter_ms: int = 0) -> Events:
    """Events about so far apart, out of order by less than `jitter_ms`."""

    def events(chance: random.Random, start_ms: int) -> Iterator[Event]:
        now_ms = start_ms
        for number in itertools.count(1):
            now_ms += chance.randrange(2 * gap_ms)
            at_ms = (now_ms - chance.randrange(jitter_ms + 1)) // 64 * 64 + number % 64  # no two at the same time
            yield Event(at_ms, make(chance, at_ms, number))

    return events


def over_map(make: Callable[[MemoryMapStore], Any]) -> Callable[[Any], tuple[Any, Any]]:
    """Born over a map."""

    def born(left: MemoryMapStore | None) -> tuple[Any, Any]:
        store = left or MemoryMapStore()
        return make(store), store

    return born


def copied(_object: Any, store: Any) -> Any:
    """What a checkpoint of its store would restore."""
    return store.copy()


def snapshotted(make: Callable[[], Any]) -> Callable[[Any], tuple[Any, Any]]:
    """Born from a snapshot."""

    def born(left: bytes | None) -> tuple[Any, Any]:
        made = make()
        if left is not None:
            made.restore(left)
        return made, None

    return born


# Sessions and prompts


def turn(words: Callable[[random.Random, int], str]) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        text = words(chance, number)
        heard = test_sessions.turn(at_ms - test_sessions.START_MS, text, "sys", text, identity=number)
        return lambda life: life.object.on_turn(heard)

    return make


session = Subject(
    Session,
    over_map(lambda store: Session(SessionConfig(pause_ms=15_000), store)),
    copied,
    stream(turn(lambda chance, _: chance.choice(["again", "again", "other"])), 2_000, 3_000),
    stream(turn(lambda _, number: f"never {number} before"), 2_000),
    lambda _, left: left,
    lambda live, at_ms: live.on_timer(at_ms),
)


def prompted(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        asked = f"q{number}" if strange else chance.choice("abc")
        at = at_ms - test_prompt_usage.START_MS
        if chance.random() < 0.4:
            message = test_prompt_usage.adopted(at, number, asked)
        else:
            # A query belongs to one prompt here: to which of two an answer belongs is the last one's.
            prompt = f"faq@{asked}" if strange else f"faq@{ord(asked) % 2}"
            message = test_prompt_usage.use(at, number, asked, prompt, chance.random() < 0.7)
        return lambda life: life.object.on_prompted(message, life.now_ms)

    return make


def uses(said: Sequence[bytes], _left: Any) -> dict[str, tuple[int, ...]]:
    """Totals of each prompt."""
    found: dict[str, tuple[int, ...]] = {}
    for each in (open_as(envelope, PromptUse) for envelope in said):
        more = (each.uses, each.answered, each.adopted)
        found[each.prompt] = tuple(map(sum, zip(found.get(each.prompt, (0, 0, 0)), more, strict=True)))
    return found


prompts = Subject(
    PromptUsage,
    over_map(lambda store: PromptUsage(PromptUsageConfig(wait_ms=60_000, max_waiting=20), store)),
    copied,
    stream(prompted(False), 1_000, 3_000),
    stream(prompted(True), 1_000),
    uses,
    lambda live, at_ms: live.on_timer(at_ms),
)

# Demand


def fact(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        kind = chance.random()
        asked = f"q{number}" if strange else f"q{chance.randrange(4)}"
        if kind < 0.1:
            made = reward(at_ms, number, asked, chance.choice(["", "x", "y"]), chance.random())
        elif kind < 0.15:
            made = facts.pack_dead(0, at_ms)
        else:
            finished = chance.random() < 0.5
            made = request(
                at_ms,
                number,
                asked,
                finished=finished,
                answer=answered("x") if finished and chance.random() < 0.5 else None,
                scope=f"scope{number}" if strange and kind < 0.4 else chance.choice("ab"),
                pool=f"pool{number}" if strange and kind < 0.3 else "p",
                user=number if strange else chance.randrange(4),
                weight_micro=chance.choice([facts.MICRO, 333_333, 2_700_001]),
                segments=chain(f"n{number}", "x") if strange else chance.choice(CHAINS),
            )
        return lambda life: life.object.on_fact(made, life.now_ms, BOOK)

    return make


ROOMY = dataclasses.replace(TIGHT, top=30, max_delta_bytes=5_000, caps=PaneCaps(keys=30, users_per_key=10, places=4))
"""Room for all that is asked for by few: what a full pane drops is what came last."""


def born_shard(left: MemoryLogStore | None) -> tuple[Any, Any]:
    store = left or MemoryLogStore(ROOMY.logs)
    return Demand(ROOMY, 0, store), store


def totals(said: Sequence[bytes], _left: Any) -> dict[Any, Any]:
    """The last word on each pane, and where the facts went."""
    found: dict[Any, Any] = {}
    for envelope in said:
        if tag_of(envelope) == Tag.PARTIAL:
            each = open_as(envelope, Partial)
            place = (each.scope, each.pool, each.dimension, each.pane_start_ms)
            found[place] = (each.weight, each.sum_clogc, each.distinct, sorted(map(str, each.top)))
        elif tag_of(envelope) == Tag.INSIGHT and b'"accounting/1"' in body_of(envelope):
            account = decode(body_of(envelope), Accounting)
            found["account"] = (account.counted, account.dead, account.late, account.duplicate)
    return found


demand = Subject(
    Demand,
    born_shard,
    copied,
    stream(fact(False), 150, 1_200),
    stream(fact(True), 150),
    totals,
    lambda live, at_ms: live.on_timer(at_ms, BOOK),
)

# Prefixes and clusters


def delta(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        names = [f"n{number}", "x"] if strange else [chance.choice("abc") for _ in range(chance.randint(1, 4))]
        told = test_prefixes.chain(*names, count=chance.choice([1.0, 3.0, 6.0]), last_ms=at_ms)
        pool = f"pool{number}" if strange and chance.random() < 0.2 else chance.choice("pq")
        heard: PrefixDelta = test_prefixes.delta(told, at_ms=at_ms, pool=pool)
        return lambda life: life.object.on_delta(heard)

    return make


def candidates(said: Sequence[bytes], _left: Any) -> list[Any]:
    """Hot prefixes at each slide; amounts are sums of floats, so that their last digits are the order's."""
    found = []
    for each in (open_as(envelope, Candidates) for envelope in said if tag_of(envelope) == Tag.CANDIDATES):
        hot = sorted((candidate.hashes, round(candidate.requests, 6)) for candidate in each.candidates)
        found.append((each.pool, each.at_ms, hot))
    return sorted(found, key=lambda told: (told[1], told[0]))


LEARNING = PrefixConfig(max_nodes=50, max_ghosts=50, max_pools=3, asked_rule="tuned")
"""What it learns is state as well."""

tree = Subject(
    PrefixTree,
    over_map(lambda store: PrefixTree(LEARNING, store)),
    copied,
    stream(delta(False), 2_000, 4_000),
    stream(delta(True), 2_000),
    candidates,
    lambda live, at_ms: live.on_timer(at_ms),
)


def embedded_or_counted(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        name = (chance.randrange(3), number if strange else chance.randrange(12))
        if chance.random() < 0.5:
            vector = test_scope_clusters.vector(*name, at_ms=at_ms)
            return lambda life: life.object.on_vector(vector)
        pane_ms = at_ms // test_scope_clusters.PANE * test_scope_clusters.PANE
        shard = number if strange else chance.randrange(3)
        counts = test_scope_clusters.counts({name: 1 + number % 7}, pane_ms=pane_ms, shard=shard, revision=number)
        return lambda life: life.object.on_counts(counts)

    return make


def embedded_first(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
    """A pane's totals are only kept of queries that are embedded by then: here they are."""
    if number <= 36:
        vector = test_scope_clusters.vector(number % 3, number // 3, at_ms=at_ms)
        return lambda life: life.object.on_vector(vector)
    pane_ms = at_ms // test_scope_clusters.PANE * test_scope_clusters.PANE
    counts = {(chance.randrange(3), chance.randrange(1, 10)): 1 + number % 7}
    told = test_scope_clusters.counts(counts, pane_ms=pane_ms, shard=chance.randrange(3), revision=number)
    return lambda life: life.object.on_counts(told)


def groups(said: Sequence[bytes], _left: Any) -> list[Any]:
    """Who was together at each stride."""
    told = [open_as(envelope, Clustered) for envelope in said if tag_of(envelope) == Tag.CLUSTERED]
    return [(each.at_ms, sorted((sorted(group.members), group.mass) for group in each.clusters)) for each in told]


CLUSTERS = ClusterConfig(
    redis_pool=test_scope_clusters.POOL, window=40, max_places=100, mass_ms=60_000, max_age_ms=120_000
)
clusters = Subject(
    ScopeClusters,
    over_map(lambda store: ScopeClusters(CLUSTERS, store)),
    copied,
    stream(embedded_or_counted(False), 2_000, 4_000),
    stream(embedded_or_counted(True), 2_000),
    groups,
    lambda live, at_ms: live.on_timer(at_ms),
    stream(embedded_first, 1_000, 4_000),
)


def request_of(strange: bool) -> Make:
    def make(chance: random.Random, _at_ms: int, number: int) -> Callable[[Life], Any]:
        vector = test_scope_clusters.vector(chance.randrange(3), number if strange else chance.randrange(4))
        row = np.frombuffer(vector.vector, dtype="<f4")[None, :]

        def hear(life: Life) -> list[Any]:
            life.object.extend([vector.query], row)
            return [life.object.groups()]

        return hear

    return make


window = Subject(
    WindowDbscan,
    snapshotted(lambda: WindowDbscan(WindowConfig(window=20, eps=0.05, min_samples=3))),
    lambda live, _: live.snapshot(),
    stream(request_of(False), 1_000),
    stream(request_of(True), 1_000),
    "the last requests are its input",
)


def asked(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        who = [(number, number)] if strange else [(chance.randrange(4), chance.randrange(6)) for _ in range(3)]
        rows = [
            asking.Event(
                at_ms, *each, chance.choice(["", "t"]), "", 10 * number + n, chance.choice([(), (1, 2), (1, 3)])
            )
            for n, each in enumerate(who)
        ]
        (message,) = asking.told(rows, PANE_MS)
        return lambda life: life.object.on_asked(message)

    return make


def found(said: Sequence[bytes], _left: Any) -> list[bytes]:
    """What gathered, and who is told."""
    return sorted(said)


focus = Subject(
    ScopeFocus,
    over_map(lambda store: ScopeFocus(SMALL, store)),
    copied,
    stream(asked(False), 120, 400),
    stream(asked(True), 120),
    found,
    lambda live, at_ms: live.on_timer(at_ms),
)

# Caches and adapters: what was used last is what they learn from

IN_ORDER = "what was asked for last is its input"


def adapter_use(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        which = number if strange else chance.randrange(9)
        told = (f"a{which}", CLASSES[which % 3], at_ms)
        if chance.random() < 0.2:
            return lambda life: [life.object.expect(*told)]
        return lambda life: [life.object.use(*told, which % 10 / 10, 4_400)]

    return make


def read_back(make: Callable[[MemoryMapStore], Any]) -> Callable[[MemoryMapStore], Any]:
    """Made, and told each record of its store by its owner."""

    def made(store: MemoryMapStore) -> Any:
        live = make(store)
        for name, blob in store.items():
            live.restore(name, blob)
        return live

    return made


residency = Subject(
    TunedResidency,
    over_map(read_back(lambda store: TunedResidency(ResidencyConfig(4, max_adapters=30), store))),
    copied,
    stream(adapter_use(False), 20_000, 60_000),
    stream(adapter_use(True), 20_000),
    IN_ORDER,
)


def asked_for(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        tenant, model = (f"t{number}", f"m{number}") if strange else (chance.choice("tu"), chance.choice("mn"))
        names = [f"a{number}", f"b{number}"] if strange else ["a", "b", "c", "d"]
        adapters = tuple(chance.sample(names, chance.randrange(3)))
        return lambda life: life.object.on_request(at_ms, tenant, model, adapters, set(adapters))

    return make


HABITS = HabitConfig(
    max_tenants=20, max_models=5, max_adapters=30, adapters_of_tenant=4, adapters_of_model=6, visitors_of_model=7
)
prefetch = Subject(
    AdapterPrefetch,
    over_map(read_back(lambda store: AdapterPrefetch(PrefetchConfig(bar=0.1, max_open=6, habits=HABITS), store))),
    copied,
    stream(asked_for(False), HOUR_MS, HOUR_MS),
    stream(asked_for(True), HOUR_MS),
    IN_ORDER,
)


def prompt(strange: bool) -> Make:
    def make(chance: random.Random, at_ms: int, number: int) -> Callable[[Life], Any]:
        first = f"n{number}" if strange else chance.choice("abcd")
        runs = [Run(first, 2), Run(f"{first}/{chance.randrange(3)}", 1)]
        return lambda life: [life.object.request(runs, float(at_ms))]

    return make


retention = Subject(
    Retention,
    snapshotted(lambda: RetentionConfig(sampled=2, tolerance=0.0, max_ghosts=20).build(8)),
    lambda live, _: live.snapshot(),
    stream(prompt(False), 20_000),
    stream(prompt(True), 20_000),
    IN_ORDER,
)
host_tier = Subject(
    HostTierCache,
    snapshotted(lambda: HostTierConfig(tick_ms=20_000, learn_ms=50_000).build(6, 20)),
    lambda live, _: live.snapshot(),
    stream(prompt(False), 20_000),
    stream(prompt(True), 20_000),
    IN_ORDER,
)
