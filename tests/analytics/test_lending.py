"""A pool lends no more than its budget, whoever asks; who needs no loan is served; and nothing is looked at in vain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.lending import Lending
from analytics.records import Section
from analytics.stores import MemoryMapStore
from schemas import Policy, WarmupCommand
from tests.analytics.test_planning import T0, TICK, Drive, book, candidate, hot, ready

RATE, BURST, PAUSE_MS = 100.0, 3_000.0, 2_000


def restored(store: MemoryMapStore) -> Lending:
    lending = Lending(PAUSE_MS, Section(store, "l"))
    for _, blob in store.items():
        lending.restore(blob)
    return lending


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20_000), st.floats(1, 5_000), st.booleans()), max_size=60))
def test_loans_are_bounded_by_rate_and_one_bucket_and_the_last_loan(asked: list[tuple[int, float, bool]]) -> None:
    store = MemoryMapStore()
    lending, now_ms, lent, largest = restored(store), 0, 0.0, 0.0
    for wait_ms, amount, crash in asked:
        now_ms += wait_ms
        if crash:
            store = store.copy()
            lending = restored(store)
        lending.forget(now_ms)
        open_ms = lending.open_ms(now_ms, RATE)
        assert lending.open_ms(open_ms, RATE) == open_ms, "it is open when it says so"
        if open_ms == now_ms:
            lending.lend(amount, now_ms, RATE, BURST)
            lent, largest = lent + amount, max(largest, amount)
        assert lent < BURST + largest + RATE * now_ms / 1000 + 1e-6


def test_after_the_last_there_is_a_pause_and_a_full_bucket_is_forgotten() -> None:
    store = MemoryMapStore()
    lending = restored(store)
    lending.lend(2_999.0, 10_000, RATE, BURST)
    assert (lending.open_ms(10_000, RATE), lending.emptied(10_000)) == (10_000, False)
    lending.lend(2.0, 10_000, RATE, BURST)
    assert lending.emptied(10_000)
    assert lending.open_ms(10_000, RATE) == 10_000 + PAUSE_MS  # 1 token is there again after 10 ms
    lending.lend(4_000.0, 12_000, RATE, BURST)  # 199 were there
    assert lending.open_ms(12_000, RATE) == 12_000 + 38_011
    lending.forget(12_000 + 68_009)
    assert lending
    lending.forget(12_000 + 68_010)
    assert not lending
    assert store.records == {}


def crowded(scopes: int, tokens: int = 1_000) -> Drive:
    """Many new scopes, each with a hot prefix that is larger than its bucket, and `big` with half of the budget."""
    drive = Drive(policy=book(budget={"prefill_share": 0.01}))  # 200 tokens/s, in a burst of 6,000
    share = Policy(scope="big", section="quota", writer="test", version=2, at_ms=1, body={"share": 0.5})
    drive.policy.apply(share)
    ready(drive, "r1")
    for number in range(scopes):
        drive.hear(hot(candidate(f"c{number}", tokens=tokens, p_asked=0.9), scope=f"s{number}"))
    drive.hear(hot(candidate("big", tokens=tokens, p_asked=0.4), scope="big"))
    return drive


def test_a_thousand_new_scopes_together_owe_no_more_than_the_pool_lends() -> None:
    drive = crowded(1_000)
    issued: list[WarmupCommand] = []
    for second in range(1, 41):
        issued += drive.run(TICK, ["r1"])
        small = [command for command in issued if command.scope != "big"]
        assert sum(command.cost.tokens for command in small) <= 6_000 + 1_000 + 200 * second
        if second == 2:
            # Its offer is the worst of all, but it needs no loan: the tick after the one that lent is its own.
            assert "big" in {command.scope for command in issued}
    assert len({command.scope for command in small}) == len(small) >= 7 + 6
    assert sum(command.cost.tokens for command in small) >= 200 * 40, "what the pool may lend it does lend"


def test_one_scope_alone_is_lent_to_as_ever() -> None:
    drive = Drive(policy=book(budget={"prefill_share": 0.01}))
    ready(drive, "r1")
    drive.hear(hot(candidate("a", tokens=20_000), candidate("b", tokens=20_000)))
    assert len(drive.run(TICK, ["r1"])) == 1
    assert drive.run(60_000, ["r1"]) == []
    for _ in range(5):
        drive.hear(hot(candidate("b", tokens=20_000), at=drive.now))
        later = drive.run(10_000, ["r1"])
        if later:
            break
    assert len(later) == 1
    assert T0 + 100_000 <= later[0].issued_at_ms <= T0 + 102_000  # 14,000 owed and a full bucket, at 200 a second


def test_while_the_pool_lends_nothing_who_needs_a_loan_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    import analytics.prefix_ranking as ranking

    looked: list[str] = []
    look_at = ranking.look_at

    def counting(scope: str, *rest: Any) -> Any:
        looked.append(scope)
        return look_at(scope, *rest)

    monkeypatch.setattr(ranking, "look_at", counting)
    drive = crowded(2_000, tokens=5_000)
    drive.run(TICK, ["r1"])
    looked.clear()
    for _ in range(5):
        drive.run(TICK, ["r1"])
    assert set(looked) <= {"big"}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**16))
def test_a_planner_that_was_rebuilt_lends_on(seed: int) -> None:
    def commands(crashes: int) -> list[str]:
        drive, found = crowded(8 + seed % 8, tokens=500 + seed % 4_000), []
        for second in range(30):
            if crashes >> second & 1:
                drive.rebuild()
            found += [command.command_id for command in drive.run(TICK, ["r1"])]
        return found

    assert commands(seed * 2_654_435_761) == commands(0)
