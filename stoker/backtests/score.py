"""Backtest `score`: which answers are served again by few judgements, played over people's judgements (D6).

PandaLM's test set: 999 pairs of answers to 170 questions, each judged by three people. A win is a reward of 1, a tie of
one half. The first two people's rewards arrive in a random order, and after a quarter, half and all of them each rule
says which answers it would serve; what the third person said of an answer, over all its pairs, is what serving it was
worth. A served answer is wrong where that is below the floor. The control deals the same rewards out among all answers
by chance: what still shows a gain then has found it in the data's shape, not in the rewards. Figures are means over
seeds. No parameter was chosen here.
"""

from __future__ import annotations

import json
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from analytics.reward_posterior import Evidence, posterior
from analytics.scoring import SPEC
from stoker.backtests.data import data_file
from stoker.bench.figures import Figure, Report, at_least, at_most

JUDGEMENTS = "feedback/pandalm_testset_v1.json"
SEEDS = 20
SHARES = (0.25, 0.5, 1.0)
REWARDS = {0: (0.5, 0.5), 1: (1.0, 0.0), 2: (0.0, 1.0)}
"""What a person's word for the first, the second or neither of two answers gives to each."""

Answer = tuple[str, str]
Judged = tuple[Answer, float]


@dataclass(frozen=True)
class Judgements:
    """What people said.

    Attributes:
        told: rewards that arrive.
        worth: mean reward of each answer by the person who is held out.
    """

    told: tuple[Judged, ...]
    worth: Mapping[Answer, float]


@dataclass(frozen=True)
class Served:
    """What serving some answers comes to.

    Attributes:
        count: answers that are served.
        gain: their mean worth above that of all answers; 0 where none is.
        wrong: part of them that is worth less than the floor.
        surplus: sum of what they are worth above the floor.
    """

    count: float
    gain: float
    wrong: float
    surplus: float


def run() -> Report:
    """Answers served, their gain and how many are wrong, by rule and share of the rewards; and the control."""
    judgements = read_judgements()
    report = Report("score")
    for share in SHARES:
        for name, rule in RULES.items():
            found = played(judgements, share, rule, shuffled=False)
            at = f"{name}.{share:g}"
            report.add(Figure(f"served.{at}", found.count, "answers"))
            spec = played(judgements, share, _spec, shuffled=False) if rule is not _spec else None
            fewer = at_most(1.0, of="ratio") if spec is not None else None
            report.add(Figure(f"gain.{at}", found.gain, baseline=None if spec is None else spec.gain, goal=at_least(0)))
            wrong = None if spec is None else spec.wrong
            report.add(Figure(f"wrong_share.{at}", found.wrong, baseline=wrong, goal=fewer))
            report.add(
                Figure(f"surplus.{at}", found.surplus, "rewards", baseline=None if spec is None else spec.surplus)
            )
            control = played(judgements, share, rule, shuffled=True)
            report.add(Figure(f"gain_shuffled.{at}", control.gain, goal=at_most(0.05)))
    return report


def read_judgements() -> Judgements:
    """The data set.

    Raises:
        BrokenConfiguration: it is absent.
    """
    told: list[Judged] = []
    held: dict[Answer, list[float]] = defaultdict(list)
    for pair in json.loads(data_file(JUDGEMENTS).read_text(encoding="utf-8")):
        question = pair["instruction"] + "\n" + pair["input"]
        answers = [(question, pair["response1"]), (question, pair["response2"])]
        for person in ("annotator1", "annotator2"):
            told += zip(answers, REWARDS[pair[person]], strict=True)
        for answer, reward in zip(answers, REWARDS[pair["annotator3"]], strict=True):
            held[answer].append(reward)
    return Judgements(tuple(told), {answer: statistics.mean(rewards) for answer, rewards in held.items()})


def _spec(evidence: Evidence) -> bool:
    return evidence.weight >= SPEC.judgements and evidence.reward / evidence.weight >= SPEC.reward_floor


def _tuned(evidence: Evidence) -> bool:
    return posterior(evidence).lower() >= SPEC.reward_floor


RULES: Mapping[str, Callable[[Evidence], bool]] = {"spec": _spec, "tuned": _tuned}
"""Whether an answer with such judgements is served again."""


def played(
    judgements: Judgements, share: float, rule: Callable[[Evidence], bool], shuffled: bool, seeds: int = SEEDS
) -> Served:
    """What a rule serves after a share of the rewards, as means over seeds.

    Args:
        shuffled: deals the rewards out among all answers by chance.
    """
    found = []
    for seed in range(seeds):
        told = dealt(judgements.told, seed) if shuffled else list(judgements.told)
        random.Random(seed).shuffle(told)
        evidence: dict[Answer, Evidence] = defaultdict(Evidence)
        for answer, reward in told[: round(share * len(told))]:
            evidence[answer] = evidence[answer].plus(Evidence(reward, 1.0))
        found.append(_worth((answer for answer, each in evidence.items() if rule(each)), judgements.worth))
    return Served(*(statistics.mean(column) for column in zip(*found, strict=True)))


def dealt(told: Sequence[Judged], seed: int) -> list[Judged]:
    """The same answers with the same rewards, put together by chance."""
    rewards = [reward for _, reward in told]
    random.Random(f"dealt {seed}").shuffle(rewards)
    return [(answer, reward) for (answer, _), reward in zip(told, rewards, strict=True)]


def _worth(served: Iterable[Answer], worth: Mapping[Answer, float]) -> tuple[float, float, float, float]:
    values = [worth[answer] for answer in served]
    if not values:
        return 0, 0.0, 0.0, 0.0
    floor = SPEC.reward_floor
    gain = statistics.mean(values) - statistics.mean(worth.values())
    return len(values), gain, sum(value < floor for value in values) / len(values), sum(values) - floor * len(values)
