"""The balance over shards and panes: repetitions and order do not matter."""

from __future__ import annotations

import random

from analytics.accounting import Balance, Ledger
from schemas import Accounting, WindowStats


def stats(shard: int, pane: int, events: int, dimension: str = "query") -> WindowStats:
    return WindowStats(
        scope="a",
        dimension=dimension,  # type: ignore[arg-type]
        shard=shard,
        pane_start_ms=pane,
        revision=events,
        at_ms=1,
        events=events,
        weight=events,
        sum_clogc=0,
        distinct=1,
        users=0,
    )


def test_the_latest_of_each_shard_and_pane_holds_in_any_order() -> None:
    told: list[Accounting | WindowStats] = [
        Accounting(shard=0, revision=3, at_ms=1, counted=2, late=1),
        Accounting(shard=0, revision=7, at_ms=2, counted=4, late=1, duplicate=2),
        Accounting(shard=1, revision=4, at_ms=2, counted=1, dead=1, not_demand=1, second_phase=1),
        stats(0, 0, 2),
        stats(0, 0, 3),
        stats(0, 10, 1),
        stats(1, 0, 1),
        stats(1, 0, 1, "template"),
    ]
    for seed in range(10):
        shuffled = told * 2
        random.Random(seed).shuffle(shuffled)
        ledger = Ledger()
        for insight in shuffled:
            ledger.take(insight)
        balance = ledger.balance
        assert balance == Balance(counted=5, second_phase=1, not_demand=1, late=1, duplicate=2, dead=1, in_panes=5)
        assert balance.read == 11
        assert balance.holds(11)
        assert (balance.missing(12), balance.missing(10)) == (1, -1)


def test_panes_that_disagree_with_the_count_are_no_balance() -> None:
    assert not Balance(counted=2, in_panes=1).holds(2)
    assert not Balance(counted=2, in_panes=2).holds(3)
