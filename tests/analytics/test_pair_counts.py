"""Counts of pairs against a counter: what is new and what has gone."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.pair_counts import PairCounts

batches = st.lists(st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)), max_size=8)


@settings(max_examples=50, deadline=None)
@given(batches)
def test_new_and_gone_are_those_of_a_counter(added: list[set[int]]) -> None:
    counts, held = PairCounts(), Counter[int]()
    for batch in added:
        pairs = np.array(sorted(batch), dtype=np.int64)
        assert counts.add(pairs).tolist() == [pair not in held for pair in sorted(batch)]
        held.update(batch)
        assert len(counts) == len(held)
    for batch in added:
        held -= Counter(batch)
        gone = counts.remove(np.array(sorted(batch), dtype=np.int64))
        assert gone.tolist() == [pair not in held for pair in sorted(batch)]
    assert len(counts) == 0
