"""What a work costs its scope, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.redis import fake
from connectors.redis.base import Already
from executor.charges import Charges
from executor.orders import Order, Work
from executor.outcomes import Ending
from executor.quota import Quota, Rate
from schemas import Embedding, OutcomeReason, Prefix, Response, Segment, Target, topics
from schemas.warmup_command import Action
from tests.executor.test_after import SlowLoad, load, prefix
from tests.executor.test_rules import command

FULL, ANSWER_TOKENS = 1_000, 200
PROMPT = Prefix(model="m", segments=(Segment("b" * 32, 64), Segment("c" * 32, 36)))
EMBEDDING = Embedding(fingerprint="c" * 32, query_sha256="d" * 32)
STORED = Response(
    cache="answers", fingerprint="c" * 32, query_sha256="d" * 32, response_ref="e" * 32, model="m", until_ms=9
)
GENERATED = Response(cache="answers", fingerprint="c" * 32, query_sha256="d" * 32, prompt=PROMPT, model="m", until_ms=9)


def work(target: Target, action: Action = "warm") -> Work:
    return Work(Order(command(target=target, action=action), []), "r0", 0)


def left(quota: Quota) -> int:
    """What the scope can still spend, found by spending it."""
    return sum(quota.take("acme", 1, 0) for _ in range(FULL + 1))


@pytest.mark.parametrize(
    ("target", "action", "cost"),
    [
        (PROMPT, "warm", 100),
        (GENERATED, "warm", 100 + ANSWER_TOKENS),
        (STORED, "warm", 1),
        (EMBEDDING, "warm", 1),
        (STORED, "invalidate", 0),
    ],
)
def test_a_work_costs_what_is_computed_for_it(target: Target, action: Action, cost: int) -> None:
    quota = Quota(lambda _: Rate(per_s=0.001, burst_s=FULL / 0.001))
    charged = work(target, action)
    assert Charges(quota, ANSWER_TOKENS).take(charged, 0)
    assert charged.charged_tokens == cost
    assert left(quota) == FULL - cost


@pytest.mark.parametrize(
    ("target", "ending", "spent"),
    [
        (PROMPT, Ending("applied", OutcomeReason.DONE, tokens_warmed=30), 30),
        (PROMPT, Ending("expired", OutcomeReason.EXPIRED_QUEUED), 0),
        (PROMPT, Ending("failed", OutcomeReason.UNVERIFIED), 100),
        (EMBEDDING, Ending("applied", OutcomeReason.DONE), 1),
        (EMBEDDING, Ending("cancelled", OutcomeReason.CANCELLED), 0),
    ],
)
def test_what_was_not_spent_comes_back(target: Target, ending: Ending, spent: int) -> None:
    quota = Quota(lambda _: Rate(per_s=0.001, burst_s=FULL / 0.001))
    charges, charged = Charges(quota, ANSWER_TOKENS), work(target)
    assert charges.take(charged, 0)
    charges.give_back(charged, ending)
    assert left(quota) == FULL - spent
    charges.give_back(charged, Ending("cancelled", OutcomeReason.CANCELLED))
    assert not charged.charged_tokens


def test_a_scope_that_cannot_pay_is_not_charged() -> None:
    charges, charged = Charges(Quota(lambda _: Rate(per_s=0, burst_s=0)), ANSWER_TOKENS), work(PROMPT)
    assert not charges.take(charged, 0)
    assert not charged.charged_tokens


def level(executor: Any) -> float:
    """What is missing of a full bucket of the scope, in the pool of engines."""
    (department,) = (each for each in executor._departments if each.name == "gpu")
    quota = department._charges._quota
    return quota._rate("acme").full - quota._level("acme", 0)


async def test_what_goes_elsewhere_while_it_waits_is_not_paid_for_here(world) -> None:
    world.engines["r0"] = engine = SlowLoad()
    executor = await world.start()
    (department,) = (each for each in executor._departments if each.name == "gpu")
    adapter = load(world)
    world.send(adapter, prefix(world, adapter.command_id))
    await world.until(lambda: len(department._line) == 1)
    assert level(executor) > 100
    department.intake.tracker.revoked(world.broker.partitions(topics.COMMANDS.name))
    department.pool.revoked()
    assert level(executor) <= 1  # the load, which runs on
    engine.may_load.set()


async def test_what_breaks_while_it_is_admitted_is_not_paid_for(world) -> None:
    class Blobs(fake.MemoryAsyncBlobs):
        async def renew(self, *_: Any) -> None:
            raise KeyError("mistake")

    executor = await world.start(world.ports(blobs=Blobs(world.store)))
    world.send(world.warm(world.prefix("word " * 200)))
    await world.until(lambda: world.records(topics.DEAD_LETTERS))
    await world.until(lambda: sum(world.committed("stoker-executor-gpu").values()) == 1)
    assert level(executor) == 0


async def test_what_another_executor_has_settled_meanwhile_is_not_paid_for_here(world) -> None:
    class Ledger(fake.MemoryLedger):
        async def begin(self, *_: Any) -> Already:
            return Already("applied", "another")

    executor = await world.start(world.ports(ledger=Ledger(world.store)))
    world.send(world.warm(world.prefix("word " * 200)))
    await world.until(lambda: sum(world.committed("stoker-executor-gpu").values()) == 1)
    assert level(executor) == 0
