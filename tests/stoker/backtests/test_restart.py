"""Backtest `restart`: who comes back is warm sooner with Stoker, and still sooner where users wait for it."""

from __future__ import annotations

import pytest

from stoker.backtests import restart
from stoker.backtests.restart import REPLICAS, RULES, played

SEED = 8


@pytest.mark.slow
def test_after_a_restart_users_find_more_with_stoker_and_most_behind_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "LEAD_MS", 180_000)
    lru, stoker, gate = (played(rule, SEED) for rule in RULES)
    assert lru.warmed_tokens == 0 < stoker.warmed_tokens
    assert lru.rolling.asked == stoker.rolling.asked == gate.rolling.asked, "the same requests"
    assert lru.back[0].asked == stoker.back[0].asked
    assert lru.back[0].rate < lru.usual.rate - 0.1, "a restart costs what was cached"
    assert lru.back[0].rate < stoker.back[0].rate < gate.back[0].rate
    assert lru.rolling.rate < stoker.rolling.rate
    assert max(lru.kept_out_ms) < 5_000 < min(gate.kept_out_ms)
    assert [len(run.kept_out_ms) for run in (lru, stoker, gate)] == [REPLICAS] * 3
