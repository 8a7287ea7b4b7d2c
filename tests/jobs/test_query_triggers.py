"""Triggers of commands to the Redis pool on real Kafka and Flink: real events in, the command with its reason out.

Second sight: test_warmup. Rewards, good and bad: test_rewards.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable

import pytest

from schemas import Embedding, Focus, Response, RewardEvent, WarmupCommand, encode
from schemas.canonical import h128, query_sha256
from schemas.topics import REWARDS
from tests.jobs.asking import ask, issued, waited
from tests.jobs.conftest import CROWDED, WATCHED
from tests.jobs.deployment import Deployment, now_ms
from tests.jobs.rules import Rules
from tests.jobs.telling import announce

pytestmark = [pytest.mark.service, pytest.mark.slow]

USUAL_PER_S, CROWD_SHARE = 100, 0.08
OWED_S = 17.0
"""Longer than a query that was seen twice waits for a budget: after that it is warmed for another reason."""
CROWD_S, AGAIN_S = 20.0, 60.0
"""A crowd lasts for so long, and comes again when it is forgotten: a job that was too far behind to act on one may act
on the next."""
FRESH_MS = 5_000


def embeds(*queries: str) -> Callable[[WarmupCommand], bool]:
    """Whether a command warms the embedding of one of some queries."""
    hashes = {query_sha256(query) for query in queries}
    return lambda command: isinstance(command.target, Embedding) and command.target.query_sha256 in hashes


def test_the_answer_of_a_model_that_is_replaced_leaves_the_cache(deployment: Deployment, pool: str) -> None:
    name = uuid.uuid4().hex
    query, model, answer, redis = f"who {name}", f"m-{name}", h128(name), deployment.settings.redis.pool_key

    def answered_and_praised() -> None:
        for user in ("ann", "bob"):
            ask(
                deployment, query, pool=pool, model=model, user=user, phase="finished", completed_at_ms=now_ms(),
                status=200, finish_reason="stop", response_sha256=answer, response_ref=answer,
            )  # fmt: skip
        reward = RewardEvent(
            event_id=uuid.uuid4().hex, occurred_at_ms=now_ms(), tenant=WATCHED, query_sha256=query_sha256(query),
            response_sha256=answer, reward=1.0, source="judge", reward_model_version="1",
        )  # fmt: skip
        deployment.send(encode(reward), REWARDS, at_ms=reward.occurred_at_ms)

    def about_it(command: WarmupCommand) -> bool:
        return isinstance(command.target, Response) and command.target.query_sha256 == query_sha256(query)

    warm = waited(deployment, "rewarded_answer", about_it, answered_and_praised)

    def replaced() -> None:
        announce(deployment, pool, now_ms(), kind="model", name=model, replaces=model)

    gone = waited(deployment, "replaced", about_it, replaced)
    assert (gone.scope, gone.pool) == (WATCHED, redis)
    assert (gone.action, gone.arm, gone.lane) == ("invalidate", "warm", "fast")
    assert (gone.target.response_ref, gone.target.model) == (answer, model)
    assert gone.content_version != warm.content_version
    assert (gone.reason.evidence["reward"], gone.reason.evidence["tries"]) == (1.0, 1)
    deployment.settle()


def test_members_of_a_growing_group_of_like_queries_are_warmed(deployment: Deployment, rules: Rules) -> None:
    deployment.at(1)
    deployment.heartbeat()
    rules.tell(CROWDED, "plan", first_sight_share=1.0)
    name, asked = uuid.uuid4().hex[:8], []

    def in_other_words() -> None:
        """Each is asked for once: none of them is hot, and none has been seen twice."""
        for _ in range(8):
            asked.append(f"how do I reset the PIN of my card, ticket {name} {len(asked)}")
            ask(deployment, asked[-1], tenant=CROWDED)

    command = waited(deployment, "cluster", lambda command: embeds(*asked)(command), in_other_words)
    assert (command.scope, command.pool) == (CROWDED, deployment.settings.redis.pool_key)
    evidence = command.reason.evidence
    assert evidence["mass"] >= 30 or (evidence["mass"] >= 10 and evidence["growth"] >= 0.5)
    assert evidence["size"] >= 5
    assert evidence["cluster_rate_per_s"] > 0
    assert issued(deployment, "second_sight", embeds(*asked)) is None
    deployment.settle()


def test_a_crowd_is_warmed_for_gathering_and_what_is_hot_for_its_heat(deployment: Deployment, rules: Rules) -> None:
    """While nothing can be paid a crowd gathers on a query; then both go out, each for its own reason."""
    deployment.at(1)
    deployment.heartbeat()
    rules.tell(CROWDED, "quota", share=0.0)
    rules.heard(CROWDED, "quota")
    name = uuid.uuid4().hex
    chance = random.Random(name)
    usual = [f"question {number} {name}" for number in range(30)]
    promoted = f"what is in the sale {name}"
    for user in ("ann", "bob"):
        ask(deployment, promoted, tenant=CROWDED, user=user)
    began_s = until_s = time.monotonic()

    def goes_on() -> None:
        nonlocal until_s
        from_s, until_s = until_s, time.monotonic()
        age_s = until_s - began_s - OWED_S
        share = CROWD_SHARE if age_s > 0 and age_s % AGAIN_S < CROWD_S else 0.0
        for _ in range(int((until_s - from_s) * USUAL_PER_S)):
            query = promoted if chance.random() < share else chance.choice(usual)
            ask(deployment, query, tenant=CROWDED, user=f"user {chance.randrange(100_000)}")
        deployment.flush()

    def names_it(found: Focus) -> bool:
        fresh = now_ms() - found.at_ms < FRESH_MS
        of_queries = (found.scope, found.dimension, found.verdict) == (CROWDED, "query", "crowd")
        return fresh and of_queries and query_sha256(promoted) in {each.key for each in found.keys}

    def gathered() -> bool:
        goes_on()
        return any(map(names_it, deployment.outputs.focuses))

    deployment.wait(gathered, "the focus on what is promoted")
    assert issued(deployment, "second_sight", embeds(promoted, *usual)) is None
    rules.drop(CROWDED, "quota")
    crowd = waited(deployment, "focus", embeds(promoted), goes_on, pause_s=0.0)
    hot = waited(deployment, "hot_query", embeds(*usual), goes_on, pause_s=0.0)
    assert crowd.reason.evidence["focus_users"] >= 30
    assert 0.02 < crowd.reason.evidence["focus_share"] < 0.15
    assert crowd.reason.evidence["boost"] == 2.0
    assert hot.reason.evidence["score"] >= 0.25
    assert hot.reason.evidence["rate_per_s"] > 0
    assert hot.reason.evidence["reward_known"] == 0.0
    for command in (crowd, hot):
        assert (command.scope, command.pool) == (CROWDED, deployment.settings.redis.pool_key)
        assert command.lane == "tick"
    deployment.settle()
