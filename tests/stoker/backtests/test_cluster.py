"""Backtest cluster on drawn vectors whose intents are known."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.backtests.cluster import BETWEEN, Questions, played, stream

pytest.importorskip("sklearn.metrics")


def questions(spread: float) -> Questions:
    """Ten intents of thirty questions each."""
    source = np.random.default_rng(2)
    intents = np.repeat(np.arange(10), 30)
    rows = source.normal(size=(10, 24))[intents] + spread * source.normal(size=(300, 24))
    return Questions(rows.astype(np.float32), intents)


def test_streams_ask_for_intents_alike_or_by_rank() -> None:
    intents = questions(0.1).intents
    even, skewed = (np.sort(np.bincount(intents[stream(intents, 6_000, law)])) for law in (False, True))
    assert even[0] > 0.8 * even[-1]
    assert skewed[-1] > 1.6 * skewed[-2] > 2.5 * skewed[-4]
    assert stream(intents, 50, True).tolist() == stream(intents, 50, True).tolist()


@pytest.mark.parametrize("tuned", [False, True])
def test_intents_that_lie_apart_are_found_and_those_that_do_not_are_not(tuned: bool) -> None:
    clear, blurred = questions(0.2), questions(3.0)
    asked = stream(clear.intents, BETWEEN + 1_000, skewed=False)
    found = played(clear, asked, 0.15, tuned, window=1_000)
    assert (found.purity, found.groups) == (1.0, 10)
    assert min(found.adjusted_rand, found.grouped) > 0.85  # what left the window is in no group
    assert played(blurred, asked, 0.15, tuned, window=1_000).grouped < 0.2
