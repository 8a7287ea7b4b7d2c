"""The planners under the laws of `test_laws.py`: what they may hear, from demand to what became of their commands."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from analytics.engine_planning import EnginePlanner
from analytics.envelopes import Answered, Rewarded, Tag, body_of, seal, tag_of
from analytics.focused import Focused
from analytics.plan_config import PlanConfig
from analytics.planners import planner_of
from analytics.redis_planning import RedisPlanner
from schemas import OutcomeReason, Policy, WarmupCommand, decode, encode
from tests.analytics.lives import Life, Subject
from tests.analytics.subjects import Make, copied, over_map, stream
from tests.analytics.test_adapter_planning import announced
from tests.analytics.test_adapter_planning import sample as adapter_sample
from tests.analytics.test_cluster_planning import clustered, group
from tests.analytics.test_pattern_planning import pattern, prompt_announcement, use
from tests.analytics.test_planning import REDIS, book, candidate, embedded, hot, name, outcome, partial, residency

CONFIG = PlanConfig(
    adapter_rule="tuned",
    renew_rule="tuned",
    candidates_life_ms=20_000,
    longest_rest_ms=60_000,
    reward_life_ms=20_000,
    max_targets=100,
    max_known=100,
    max_judged=100,
)
"""So short and small that everything is over within a minute or has to make room."""
SHORT_MS = {"prefix": 5_000, "embedding": 10_000, "response": 5_000}
POLICY = book(
    plan={
        "prefix_resident_ms": 20_000,
        "embedding_resident_ms": 20_000,
        "response_resident_ms": 20_000,
        **{f"{kind}_repeat_ms": repeat_ms for kind, repeat_ms in SHORT_MS.items()},
        **{f"{kind}_life_ms": repeat_ms for kind, repeat_ms in SHORT_MS.items()},
    },
    adapter={"repeat_ms": 5_000, "resident_ms": 20_000, "unload": True, "prefetch": True},
    budget={"prefill_share": 1.0, "adapter_slots": 2, "adapter_loads_per_s": 100, "embeddings_per_s": 10_000},
)
UNHURRIED = "u"
"""A scope whose queries are not warmed for their second sight."""
POLICY.apply(Policy(scope=UNHURRIED, section="plan", writer="test", version=1, at_ms=1, body={"second_sight": False}))
PATHS = [("sys",), ("sys", "u1"), ("sys", "u1", "a1"), ("other", "x")]
PANE_MS = 10_000


def heard(envelope: bytes) -> Callable[[Life], Any]:
    return lambda life: life.object.on_envelope(envelope, life.now_ms, life.now_ms, POLICY)


def control(pool: str, message: Any) -> Callable[[Life], Any]:
    return heard(seal(Tag.CONTROL, pool, encode(message)))


def commands(said: Sequence[bytes]) -> list[WarmupCommand]:
    """The commands in an order of their own."""
    found = [decode(body_of(envelope), WarmupCommand) for envelope in said if tag_of(envelope) == Tag.COMMAND]
    return sorted(found, key=lambda command: (command.issued_at_ms, command.scope, command.target_key))


def answer(pool: str, at_ms: int, share: float, seen: bool) -> Callable[[Life], Any]:
    """What became of one of the commands, on one of its replicas."""

    def hear(life: Life) -> Any:
        known = commands(life.known)
        if not known:
            return []
        command = known[int(share * len(known))]
        replica = (command.replicas.names or (pool,))[0]
        if seen:
            tokens = command.cost.tokens if at_ms % 2 else 0
            return control(pool, residency(command, replica, at_ms, tokens))(life)
        # A command ends in one way on a replica, however often that is told.
        status = ("applied", "failed", "resident", "skipped")[int(command.command_id[:4], 16) % 4]
        reason = OutcomeReason.CONTENT_MISSING if status == "skipped" else OutcomeReason.DONE
        return control(pool, outcome(command, replica, command.issued_at_ms + 500, status, reason))(life)

    return hear


def engine_event(chance: random.Random, at_ms: int, number: int, kinds: Sequence[str], strange: bool) -> Any:
    kind = chance.choice(kinds)
    path = (f"n{number}", "x") if strange else chance.choice(PATHS)
    scope = f"s{number}" if strange and chance.random() < 0.3 else chance.choice("st")
    replica = f"r{number}" if strange and chance.random() < 0.1 else chance.choice(["r1", "r2"])
    if kind in ("sample", "traffic"):
        listed = chance.sample(["a@1", "a@2", "b@1"], chance.randrange(3))
        counters = {"prefix_query_tokens": 2_000 * number, "prefix_hit_tokens": 900 * number}
        tells = {"blocks_total": 1_000, **counters} if kind == "traffic" else {}
        return control("p", replace(adapter_sample(replica, at_ms, *sorted(listed)), **tells))
    if kind == "hot":
        found = [candidate(*path, tokens=500), candidate(*chance.choice(PATHS))]
        return heard(hot(*found[: chance.randint(1, 2)], at=at_ms, scope=scope))
    if kind == "cold":
        return heard(hot(at=at_ms, scope=scope))
    if kind == "pattern":
        return heard(pattern(*path, at=at_ms, known=chance.random() < 0.5, scope=scope))
    if kind == "use":
        prompt = f"faq@{number}" if strange else chance.choice(["faq@1", "faq@2", "b@1"])
        return heard(use(prompt, *path, at=at_ms, answered=chance.randrange(3)))
    if kind == "announced":
        version = str(number) if strange else chance.choice("12")
        effect_ms = at_ms + chance.randrange(-20_000, 20_000)
        if chance.random() < 0.5:
            return control("p", prompt_announcement(version, effect_ms))
        return control("p", announced("a", version, effect_ms, scope=scope))
    if kind == "partial":
        adapter = f"a@{number}" if strange else chance.choice(["a@1", "a@2", "b@1"])
        pane_ms = (at_ms // PANE_MS - chance.randrange(2)) * PANE_MS
        counts = {adapter: chance.randint(1, 9)}
        return heard(partial(counts, pane_ms, shard=number, scope=scope, dimension="adapter"))
    if kind == "visit":
        pane_ms = at_ms // PANE_MS * PANE_MS
        return heard(partial({"t": 1 + number % 9}, pane_ms, shard=number, scope=scope, dimension="template"))
    if kind == "crowd":
        adapter = f"a@{number}" if strange else chance.choice(["a@1", "a@2", "b@1"])
        dimension, key = chance.choice([("adapter", adapter), ("prefix_family", name(path[0]))])
        told = Focused(scope, dimension, at_ms, at_ms + 20_000, (key,), {"users": float(number)})
        return heard(seal(Tag.FOCUSED, "p", told))
    return answer("p", at_ms, chance.random(), kind == "residency")


def redis_event(chance: random.Random, at_ms: int, number: int, kinds: Sequence[str], strange: bool) -> Any:
    kind = chance.choice(kinds)
    text = f"q{number}" if strange else chance.choice("abcd")
    scope = f"s{number}" if strange and chance.random() < 0.3 else chance.choice(["s", "t", UNHURRIED])
    if kind == "partial":
        pane_ms = at_ms // PANE_MS * PANE_MS - PANE_MS
        counts = {name(text): chance.randint(1, 9), name("a"): 2}
        return heard(partial(counts, pane_ms, shard=number, scope=scope, key=REDIS))
    if kind == "second_sight":
        return heard(embedded(text, at_ms, scope))
    if kind == "embedded":
        return heard(embedded(text, at_ms, UNHURRIED))
    if kind == "clustered":
        return heard(clustered(group(text, "a", mass=chance.choice([5.0, 60.0])), at=at_ms, scope=scope))
    response = name(f"answer to {text}")
    if kind == "answer":
        told = Answered(scope, name(text), response, response, "m", "", "t@1", "v7", at_ms)
        return heard(seal(Tag.ANSWER, REDIS, told))
    if kind == "reward":
        micro = chance.choice([0, 400_000, 900_000])
        earned = Rewarded(scope, name(text), response, "", at_ms, micro, 1, 0, 0, micro, 1)
        return heard(seal(Tag.REWARDED, REDIS, earned))
    return answer(REDIS, at_ms, chance.random(), kind == "residency")


Maker = Callable[[random.Random, int, int, Sequence[str], bool], Callable[[Life], Any]]


def about(make: Maker, kinds: Sequence[str], strange: bool = False) -> Make:
    """Events of some kinds."""
    return lambda chance, at_ms, number: make(chance, at_ms, number, kinds, strange)


def planned(said: Sequence[bytes], _left: Any) -> list[Any]:
    """What was commanded, when and where."""
    return [(each.issued_at_ms, each.scope, each.target_key, each.action, each.replicas) for each in commands(said)]


def planner(
    kind: type[Any],
    pool: str,
    make: Maker,
    kinds: Sequence[str],
    first_come: Sequence[str],
    strange_gap_ms: int,
) -> Subject:
    """A planner.

    Args:
        first_come: kinds of events that are answered at once, so that of two the first one is served, or whose order is
            given.
        strange_gap_ms: so that four hundred strangers take longer than anything is remembered.
    """
    return Subject(
        kind,
        over_map(lambda store: planner_of(CONFIG, pool, store)),
        copied,
        stream(about(make, kinds), 400, 2_000),
        stream(about(make, kinds, strange=True), strange_gap_ms),
        planned,
        lambda live, at_ms: live.on_timer(at_ms, at_ms, POLICY),
        stream(about(make, [each for each in kinds if each not in first_come]), 400, 2_000),
    )


ENGINE = [
    "sample",
    "sample",
    "sample",
    "traffic",
    "hot",
    "hot",
    "cold",
    "pattern",
    "use",
    "announced",
    "partial",
    "visit",
    "crowd",
    "outcome",
    "residency",
]
REDIS_POOL = ["partial", "partial", "second_sight", "embedded", "clustered", "answer", "reward", "outcome", "residency"]
engine = planner(
    EnginePlanner, "p", engine_event, ENGINE, ["traffic", "pattern", "announced", "residency", "cold", "crowd"], 1_000
)
redis = planner(RedisPlanner, REDIS, redis_event, REDIS_POOL, ["second_sight", "reward"], 3_000)
