"""What shows that warm-ups drove out the wrong thing."""

from __future__ import annotations

from analytics.displacement import BLOCKS_BOUND, DEAF_MS, GONE_BOUND, WARMED_BOUND, Displacement
from analytics.policy_sections import BreakerPolicy

POLICY = BreakerPolicy()
LIFE_MS = POLICY.regret_ms


def cache(own_tokens: int = 320) -> Displacement:
    """A minute old, with 20 blocks of users and as many of a warm-up as told."""
    found = Displacement()
    found.stored(0, range(20), POLICY)
    found.stored(60_000, range(100, 100 + own_tokens // 16), POLICY)
    found.warmed(60_000, "own", own_tokens, 0, 16, LIFE_MS)
    return found


def test_what_comes_back_soon_counts_and_what_comes_back_late_does_not() -> None:
    for pause_ms, harm in ((5_000, ["displaced"]), (LIFE_MS + 1, [])):
        found = cache()
        found.removed(61_000, range(10), POLICY)
        assert found.harm(61_000, 100, None, POLICY) == []
        found.warmed(61_000 + pause_ms, "more", 320, 0, 16, LIFE_MS)
        found.stored(61_000 + pause_ms, range(10), POLICY)
        assert found.harm(61_000 + pause_ms, 100, None, POLICY) == harm


def test_a_cache_that_users_alone_turn_over_is_not_put_down_to_warmups() -> None:
    found = cache(own_tokens=16)
    found.removed(61_000, range(100, 101), POLICY)
    found.stored(61_000, range(200, 300), POLICY)
    assert found.harm(61_000, 100, None, POLICY) == []


def test_what_leaves_young_tells_how_long_idle_blocks_stay() -> None:
    found = cache()
    found.removed(64_000, range(100, 103), POLICY)
    assert found.harm(64_000, 100, None, POLICY) == [], "too few"
    found.removed(64_000, [103], POLICY)
    assert found.harm(64_000, 100, None, POLICY) == ["idle"]
    assert found.harm(64_000, 100, 30_000.0, POLICY) == [], "the engine knows better"
    assert found.harm(75_000, 100, None, POLICY) == [], "long ago"
    assert cache().harm(64_000, 100, 3_000.0, POLICY) == ["idle"]


def test_prefixes_that_are_lost_between_two_warmups_count_without_events() -> None:
    found = Displacement()
    for prefix in "abcd":
        found.warmed(0, prefix, 320, 0, 16, LIFE_MS)
    for prefix in "abcd":
        found.warmed(10_000, prefix, 16, 304, 16, LIFE_MS)
    assert found.harm(10_000, None, None, POLICY) == []
    for prefix in "abcd":
        found.warmed(20_000, prefix, 320, 0, 16, LIFE_MS)
    assert found.harm(20_000, None, None, POLICY) == ["lost"]
    assert found.own_displaced(20_000) > 40, "without events all that is stored may displace"


def test_what_was_cleared_or_begun_anew_is_no_sign() -> None:
    for reset in (Displacement.begin, lambda cleared: cleared.forget(61_000)):
        found = cache()
        found.removed(61_000, range(10), POLICY)
        reset(found)
        found.stored(62_000, range(10), POLICY)
        assert found.harm(62_000, 100, None, POLICY) == []


def test_what_an_engine_remembers_at_first_is_no_sign() -> None:
    """An executor that follows a full cache anew is told its last minutes within a second."""
    for pause_ms, harm in ((0, []), (DEAF_MS, ["displaced", "idle"])):
        found = Displacement()
        found.forget(60_000)
        at_ms = 60_000 + pause_ms
        found.warmed(at_ms, "own", 320, 0, 16, LIFE_MS)
        found.stored(at_ms, range(20), POLICY)
        found.removed(at_ms, range(20), POLICY)
        found.stored(at_ms, range(20), POLICY)
        assert found.harm(at_ms + 100, 100, None, POLICY) == harm


def test_warmups_that_are_heard_of_after_a_restart_count_where_no_event_speaks() -> None:
    found = Displacement()
    for at_ms in (1_000, 31_000):
        for prefix in "abcd":
            found.warmed(at_ms, prefix, 320, 0, 16, LIFE_MS)
    assert found.harm(32_000, None, None, POLICY) == ["lost"]


def test_its_memory_is_bounded() -> None:
    found = Displacement()
    for start in range(0, 3 * BLOCKS_BOUND, 4_096):
        found.stored(start, range(start, start + 4_096), POLICY)
        found.removed(start, range(start, start + 2_048), POLICY)
    for number in range(2 * WARMED_BOUND):
        found.warmed(number, number, 16, 0, 16, LIFE_MS)
    assert len(found._since) <= BLOCKS_BOUND
    assert [len(found._gone), len(found._warmed)] == [GONE_BOUND, WARMED_BOUND]
    assert len(found._young) <= 2
