"""kill -9 of every part of one running Stoker, one after the other: the books balance and nothing is done twice."""

from __future__ import annotations

import os
import random
import time
import uuid

import pytest

from stoker.stack.kafka import Kafka
from stoker.stack.redis import Redis
from tests.e2e.asking import Asking
from tests.e2e.whole import Whole
from tests.jobs.deployment import READY_S, now_ms
from tests.jobs.kills import Parts, jobmanager, kafka, redis, taskmanager
from tests.jobs.traffic import Mix

ROUNDS = int(os.environ.get("STOKER_FAULT_ROUNDS", "1"))
"""One in `make test`: the parts that die alone there do so twice."""
DOCUMENTS = 300

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.faults]


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_every_part_killed_in_turn_books_balance_and_nothing_is_applied_twice(
    whole: Whole, kafka_server: Kafka, redis_server: Redis, turn: int
) -> None:
    seed = int(os.environ.get("STOKER_FAULT_SEED") or uuid.uuid4().int % 10**6)
    luck = random.Random(seed)
    print(f"turn {turn}, seed {seed}", flush=True)
    before = whole.settle()
    mix = Mix(seed, Asking(f"{turn}x{seed}x", seed, whole.town.blobs, DOCUMENTS))
    parts = Parts(whole.job.app, kafka_server, redis_server, luck)

    def executor(_: Parts) -> None:
        whole.kill_executor()
        time.sleep(luck.uniform(0.0, 2.0))
        whole.start_executor()

    kills = [taskmanager, jobmanager, executor, redis, kafka]
    luck.shuffle(kills)
    with whole.asked(mix):
        whole.wait_applied(now_ms(), "the start")
        for kill in kills:
            time.sleep(luck.uniform(0.5, 3.0))
            whole.job.wait(lambda: bool(whole.unanswered()), "something under way")
            time.sleep(luck.uniform(0.0, 0.2))
            print(f"kill {kill.__name__}", flush=True)
            kill(parts)
            whole.job.app.wait_running(READY_S)
            whole.wait_applied(now_ms(), f"{kill.__name__} came back")
    after = whole.settle()
    grown = {fate: after[fate] - before[fate] for fate in after}
    for fate in ("counted", "duplicate", "late", "dead"):
        assert grown[fate] > 0, grown
    outcomes = whole.job.outputs.outcomes.values()
    print(
        f"{grown}; {len(whole.job.outputs.commands)} commands, {len(outcomes)} outcomes, "
        f"{sum(len(told) > 1 for told in outcomes)} of them told again, "
        f"{sum(len(entries) > 1 for entries in whole.requests().values())} warm-ups asked for again",
        flush=True,
    )


def test_over_many_rounds_a_warm_up_was_begun_again(whole: Whole) -> None:
    if ROUNDS < 5:
        pytest.skip("a few kills may all come between two warm-ups")
    assert any(len(entries) > 1 for entries in whole.requests().values())
