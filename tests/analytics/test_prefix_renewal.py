"""Where what is resident is renewed, and when not."""

from __future__ import annotations

from analytics.commands import NEVER_MS
from analytics.prefix_renewal import Held, renewal_of, used_ms
from analytics.replicas import Ready
from analytics.targets import Target

AT_MS = 10_000_000
STAY_MS, HORIZON_MS = 100_000.0, 120_000.0
ONE = Ready(("r1",), (7,), (16,))
TWO = Ready(("r1", "r2"), (7, 8), (16, 16))


def held(ago_ms: int, rate_per_s: float = 0.02, margin_per_s: float = 0.001, least: float = 0.0) -> Held:
    return Held(rate_per_s, AT_MS - ago_ms, STAY_MS, HORIZON_MS, margin_per_s, least)


def seen(replica: str, mark: int, ago_ms: int, lost: bool = False) -> Target:
    target = Target("s", "prefix:a")
    target.see(replica, mark, AT_MS - ago_ms, 0 if lost else AT_MS + 60_000)
    return target


def test_a_lone_replica_used_what_was_asked_for() -> None:
    assert used_ms(None, "r1", 7, 500, alone=True) == 500
    assert used_ms(None, "r1", 7, 500, alone=False) == 0
    known = seen("r1", 7, 1_000)
    assert used_ms(known, "r1", 7, 500, alone=True) == AT_MS - 1_000
    assert used_ms(known, "r1", 7, AT_MS - 200, alone=True) == AT_MS - 200
    assert used_ms(known, "r1", 9, 500, alone=False) == 0, "another incarnation has lost it"
    lost = seen("r1", 7, 1_000, lost=True)
    assert used_ms(lost, "r1", 7, AT_MS - 2_000, alone=True) == 0
    assert used_ms(lost, "r1", 7, AT_MS - 500, alone=True) == AT_MS - 500


def test_it_is_renewed_in_the_second_half_of_its_stay() -> None:
    early, late, gone = (renewal_of(held(ago_ms), None, ONE, 1, AT_MS) for ago_ms in (20_000, 60_000, 120_000))
    assert (early.names, early.due_ms) == ((), AT_MS + 30_000)
    assert late.names == ("r1",)
    assert 0 < late.p_kept < 1
    assert (gone.names, gone.due_ms) == ((), NEVER_MS)


def test_it_is_left_where_what_it_displaces_is_worth_more_or_too_little_is_gained() -> None:
    assert renewal_of(held(60_000, margin_per_s=0.02), None, ONE, 1, AT_MS).names == ()
    gain = renewal_of(held(60_000), None, ONE, 1, AT_MS).p_kept
    assert renewal_of(held(60_000, least=gain * 1.01), None, ONE, 1, AT_MS) == ((), 0.0, AT_MS)


def test_behind_several_only_what_was_warmed_is_renewed_and_less_if_a_request_may_have_met_it() -> None:
    assert renewal_of(held(60_000), None, TWO, 2, AT_MS).names == ()
    quiet = renewal_of(held(90_000), seen("r2", 8, 60_000), TWO, 2, AT_MS)
    asked = renewal_of(held(5_000), seen("r2", 8, 60_000), TWO, 2, AT_MS)
    assert quiet.names == asked.names == ("r2",)
    assert asked.p_kept < quiet.p_kept / 2
