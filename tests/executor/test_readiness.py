"""When the first token of a replica is asked for."""

from __future__ import annotations

import pytest

from executor.readiness import Readiness
from schemas import ReplicaSample


def sample(state: str, incarnation: str = "1") -> ReplicaSample:
    return ReplicaSample(replica="r", pool="p", incarnation=incarnation, sampled_at_ms=0, state=state)


@pytest.mark.parametrize(
    ("looks", "probed"),
    [
        ([("ready", "1", 0)], [True]),
        ([("ready", "1", 7)], [False]),  # it served long before we looked
        ([("starting", "1", 0), ("ready", "1", 0), ("ready", "1", 1)], [False, True, False]),
        ([("ready", "1", 7), ("lost", "1", 0), ("ready", "1", 7)], [False, False, False]),  # merely out of reach
        ([("ready", "1", 7), ("lost", "1", 0), ("ready", "2", 0)], [False, False, True]),
        ([("ready", "1", 7), ("lost", "1", 0), ("ready", "2", 3)], [False, False, True]),
        ([("ready", "1", 7), ("ready", "2", 1)], [False, True]),
        ([("ready", "1", 7), ("sleeping", "1", 7), ("ready", "1", 7)], [False, False, True]),
        ([("lost", "1", 0), ("sleeping", "1", 0)], [False, False]),
    ],
)
def test_once_for_each_time_that_it_becomes_ready(looks, probed) -> None:
    readiness = Readiness()
    assert [readiness.became(sample(state, life), served) for state, life, served in looks] == probed
