"""What a shard knows of one query: its answers, what they earned, and the rewards that wait for an answer.

Sums are whole numbers, rewards in millionths and weights of their sources in quarters, so that taking one away leaves
what was there before.
"""

from __future__ import annotations

from analytics.facts import SOURCES
from analytics.reward_entries import Answering, Judging
from analytics.reward_posterior import QUARTERS, SOURCE_WEIGHTS

_QUARTERS = tuple(round(SOURCE_WEIGHTS[source] * QUARTERS) for source in SOURCES)


class RewardSum:
    """Rewards in millionths and how many; and the same weighed by their sources, in quarters."""

    __slots__ = ("count", "micro", "quarters", "weighted")

    def __init__(self) -> None:
        self.micro = self.count = self.weighted = self.quarters = 0

    def add(self, reward: Judging, times: int) -> None:
        """Adds a reward, or takes one away where `times` is -1."""
        quarters = times * _QUARTERS[reward.source]
        self.micro += times * reward.micro
        self.count += times
        self.weighted += quarters * reward.micro
        self.quarters += quarters


class JudgedQuery:
    """One query of one scope.

    Attributes:
        answers: by their hashes, the latest last.
        total: of all judgements.
        unnamed: of those that name no answer; they count for each of them.
        named: of those that name one, by its hash.
        waiting: rewards whose request has not come.
    """

    __slots__ = ("answers", "named", "total", "unnamed", "waiting")

    def __init__(self) -> None:
        self.answers: dict[bytes, Answering] = {}
        self.total = RewardSum()
        self.unnamed = RewardSum()
        self.named: dict[bytes, RewardSum] = {}
        self.waiting: list[Judging] = []

    @property
    def empty(self) -> bool:
        """Whether nothing is known of it."""
        return not (self.answers or self.total.count or self.waiting)

    def knows(self, response: bytes) -> bool:
        """Whether there is an answer that a reward can be for; one that names none is for any."""
        return response in self.answers if response else bool(self.answers)

    def judged(self, response: bytes) -> bool:
        """Whether a reward counts for an answer."""
        return self.unnamed.count > 0 or response in self.named

    def waiting_for(self, answer: Answering) -> list[Judging]:
        """The waiting rewards that an answer ends the wait of."""
        return [
            reward
            for reward in self.waiting
            if reward.due_ms > answer.now_ms and reward.response in (b"", answer.response)
        ]

    def add(self, reward: Judging, times: int = 1) -> None:
        """Counts a reward, or takes it out of the sums where `times` is -1."""
        self.total.add(reward, times)
        if not reward.response:
            self.unnamed.add(reward, times)
            return
        named = self.named.setdefault(reward.response, RewardSum())
        named.add(reward, times)
        if not named.count:
            del self.named[reward.response]
