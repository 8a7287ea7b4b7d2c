"""Rewards on the real job: before and after their requests; responses are commanded, a bad one is taken back.

How soon a score follows its reward is a figure with a goal: `stoker bench reward`.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from schemas import RequestEvent, Response, RewardEvent, Score, WarmupCommand, encode
from schemas.canonical import h128, query_sha256
from schemas.topics import INSIGHTS, REWARDS
from tests.jobs.deployment import Deployment, now_ms

pytestmark = [pytest.mark.service, pytest.mark.slow]

JUDGEMENTS = 100


@dataclass
class Scores:
    """The first Score insight of a job for each query and number of rewards."""

    deployment: Deployment
    read: dict[tuple[str, int], Score] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kafka = self.deployment.settings.kafka
        self._over = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "scores", "fetch.wait.max.ms": 5})
        # The end of the topic as it is now, before anything is sent that is waited for.
        parts = [TopicPartition(kafka.topic(INSIGHTS), part) for part in range(4)]
        for part in parts:
            part.offset = self._consumer.get_watermark_offsets(part, timeout=60.0)[1]
        self._consumer.assign(parts)
        self._thread = threading.Thread(target=self._tail)
        self._thread.start()

    def of(self, query: str, rewards: int) -> Score | None:
        """The score after so many rewards of a query."""
        return self.read.get((query_sha256(query), rewards))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _tail(self) -> None:
        while not self._over.is_set():
            self._take(0.02)

    def _take(self, wait_s: float) -> None:
        message = self._consumer.poll(wait_s)
        if message is None or message.error() or b'"schema":"score/1"' not in message.value():
            return
        score = msgspec.json.decode(message.value(), type=Score)
        self.read.setdefault((score.query_sha256, score.rewards), score)


@pytest.fixture
def scores(deployment: Deployment) -> Iterator[Scores]:
    deployment.at(1)
    deployment.heartbeat()
    tail = Scores(deployment)
    yield tail
    tail.close()


def answer_of(query: str) -> str:
    """Hash of the answer that every request for a query gets."""
    return h128(f"the answer to {query}")


def ask(deployment: Deployment, query: str, user: str) -> None:
    """Both events of one request."""
    name, at_ms = uuid.uuid4().hex, now_ms()
    common = {"request_id": name, "occurred_at_ms": at_ms, "tenant": "t", "user": user, "pool": "gpu", "model": "m"}
    common |= {"query": query, "domain": "news"}
    started = RequestEvent(event_id=f"{name}-started", phase="started", **common)
    finished = RequestEvent(
        event_id=f"{name}-finished",
        phase="finished",
        completed_at_ms=at_ms,
        status=200,
        finish_reason="stop",
        response_sha256=answer_of(query),
        response_ref=answer_of(query),
        **common,
    )
    for event in (started, finished):
        deployment.send(encode(event), at_ms=at_ms)
    deployment.flush()


def judge(deployment: Deployment, query: str, reward: float) -> None:
    """One reward for the answer to a query; its record time is its own."""
    event = RewardEvent(
        event_id=uuid.uuid4().hex,
        occurred_at_ms=now_ms(),
        tenant="t",
        query_sha256=query_sha256(query),
        response_sha256=answer_of(query),
        reward=reward,
        source="judge",
        reward_model_version="1",
    )
    deployment.send(encode(event), REWARDS, at_ms=event.occurred_at_ms)
    deployment.flush()


def response_command(deployment: Deployment, query: str, action: str) -> WarmupCommand | None:
    """The command of this action for the answer to a query, if it was issued."""
    for command in deployment.outputs.commands.values():
        target = command.target
        if isinstance(target, Response) and target.query_sha256 == query_sha256(query) and command.action == action:
            return command
    return None


def test_rewards_before_and_after_their_requests_make_responses_and_unmake_them(
    deployment: Deployment, scores: Scores
) -> None:
    early, late = (f"{name} reward {uuid.uuid4().hex}" for name in ("an early", "a late"))
    judge(deployment, early, 0.9)
    for user in ("ann", "bob"):
        for query in (early, late):
            ask(deployment, query, user)
    judge(deployment, late, 0.8)
    for query, share in ((early, 0.9), (late, 0.8)):
        deployment.wait(lambda query=query: scores.of(query, 1) is not None, f"the score of {query}")
        score = scores.of(query, 1)
        assert score is not None
        assert (score.scope, score.alpha, score.reward) == ("default", 0.6, share)
        assert score.score == pytest.approx(0.6 * share + 0.4 * score.demand)
    for query in (early, late):
        deployment.wait(
            lambda query=query: response_command(deployment, query, "warm") is not None, f"the response to {query}"
        )
        command = response_command(deployment, query, "warm")
        assert command is not None
        assert isinstance(command.target, Response)
        assert (command.pool, command.scope) == (deployment.settings.redis.pool_key, "default")
        assert command.target.response_ref == answer_of(query)
        assert command.unit == query_sha256(query)

    # One bad judgement brings the mean of the late one to 0.4, below the floor.
    judge(deployment, late, 0.0)
    deployment.wait(lambda: response_command(deployment, late, "invalidate") is not None, "the bad response is out")
    warm, gone = (response_command(deployment, late, action) for action in ("warm", "invalidate"))
    assert warm is not None
    assert gone is not None
    assert (gone.arm, gone.lane, gone.reason.trigger) == ("warm", "fast", "bad_reward")
    assert gone.target.response_ref == warm.target.response_ref
    assert gone.content_version != warm.content_version
    assert response_command(deployment, early, "invalidate") is None

    for _ in range(JUDGEMENTS):
        judge(deployment, early, 0.9)
    last = JUDGEMENTS + 1
    deployment.wait(lambda: scores.of(early, last) is not None, f"{JUDGEMENTS} scores")
    told = [scores.of(early, number) for number in range(1, last + 1)]
    assert [score.reward for score in told if score is not None] == [pytest.approx(0.9)] * last, "a score a reward"
    deployment.settle()
