"""Shards are spread evenly over the subtasks of every parallelism."""

from __future__ import annotations

import pytest

from jobs.placement import key_group, shard_keys
from jobs.settings import MAX_PARALLELISM

FLINK_SAYS = (689, 444, 705, 8, 433, 705, 637, 177)
"""KeyGroupRangeAssignment.assignToKeyGroup(Row.of(n), 720) of Flink 2.3, for n from 0 on."""


def test_groups_are_those_of_flink() -> None:
    assert tuple(map(key_group, range(8))) == FLINK_SAYS


@pytest.mark.parametrize("shards", [1, 4, 8, 32, 100, 1_000, 4_096])
def test_each_subtask_gets_its_part_of_the_shards(shards: int) -> None:
    keys = shard_keys(shards)
    assert len(set(keys)) == shards
    for parallelism in (1, 2, 3, 4, 8, 16):
        held = [0] * parallelism
        for key in keys:
            held[key_group(key) * parallelism // MAX_PARALLELISM] += 1
        assert max(held) <= -(-shards // parallelism) + 1
        if shards % parallelism == 0 and MAX_PARALLELISM % shards == 0:
            assert set(held) == {shards // parallelism}
