"""Bench reward without a stack: which score is the answer to which reward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.settings import JobSettings
from schemas import RewardEvent, decode
from schemas.topics import REWARDS
from stoker.bench import reward
from stoker.bench.reward import QUERIES, Judging


class Sender:
    """Keeps what was produced."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    def produce(self, topic: str, value: bytes, **_stamp: int) -> None:
        self.sent.append((topic, value))

    def poll(self, _timeout: int) -> None: ...


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    made = Sender()
    monkeypatch.setattr(reward, "producer", lambda _settings: made)
    monkeypatch.setattr(reward, "Tail", lambda *_, **__: SimpleNamespace(poll=lambda _timeout: []))
    monkeypatch.setattr(reward, "PER_S", 1_000_000)
    return made


def test_each_answer_is_judged_in_turn_and_the_first_score_after_a_reward_counts(sender: Sender) -> None:
    judging = Judging(JobSettings())
    judging.judge(len(QUERIES) + 1)
    rewards = [decode(value, RewardEvent) for topic, value in sender.sent if topic == REWARDS.name]
    assert len({event.event_id for event in rewards}) == len(QUERIES) + 1
    first, second = (rewards[0].query_sha256, 1), (rewards[-1].query_sha256, 2)
    assert first[0] == second[0]
    begun_ms = judging.waiting[first]

    def score(place: tuple[str, int]) -> Any:
        return SimpleNamespace(query_sha256=place[0], rewards=place[1])

    judging.take(score(first), begun_ms + 30)
    judging.take(score(first), begun_ms + 900)  # told again, because its demand has changed
    judging.take(score((first[0], 99)), begun_ms + 900)
    assert judging.lags_ms == [30]
    assert second in judging.waiting
    assert len(judging.waiting) == len(QUERIES)
