"""The law that tenants, documents and questions are drawn by."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from stoker.replay.zipf import DriftingZipf


def test_shares_follow_the_exponent() -> None:
    law = DriftingZipf(50, 1.0, None, seed=3)
    source = random.Random(1)
    drawn = Counter(law.draw(source, 0.0) for _ in range(40_000))
    expected = [1 / rank / sum(1 / k for k in range(1, 51)) for rank in range(1, 51)]
    for rank in (0, 1, 4, 20):
        assert drawn[law.at_rank(rank, 0.0)] / 40_000 == pytest.approx(expected[rank], rel=0.15)


def test_a_leap_puts_the_last_on_top_and_moves_the_others_down_one() -> None:
    law = DriftingZipf(5, 1.0, 100.0, seed=0)
    before = [law.at_rank(rank, 99.0) for rank in range(5)]
    after = [law.at_rank(rank, 100.0) for rank in range(5)]
    assert after == [before[-1], *before[:-1]]
    assert {law.at_rank(0, 100.0 * leap) for leap in range(5)} == set(range(5))


def test_no_items_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one item"):
        DriftingZipf(0, 1.0, None, seed=0)
