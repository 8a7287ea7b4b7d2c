"""The bucket against the textbook one, which counts tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from analytics.token_bucket import take


@given(st.lists(st.integers(0, 2_000), max_size=100), st.sampled_from([0.5, 1.0, 4.0, 50.0]), st.integers(1, 6))
def test_it_gives_and_refuses_as_a_bucket_of_tokens(gaps_ms: list[int], rate_per_s: float, burst: int) -> None:
    tat_us, tokens, now_ms = 0, float(burst), 1_000_000_000
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        tokens = min(burst, tokens + gap_ms * rate_per_s / 1000)
        new = take(tat_us, now_ms, rate_per_s, burst)
        assert (new is not None) == (tokens >= 1 - 1e-9)
        if new is not None:
            assert new > tat_us
            tat_us, tokens = new, tokens - 1


def test_a_rate_of_nothing_refuses_and_a_tiny_one_gives_once() -> None:
    assert take(0, 0, 0.0, 5) is None
    once = take(0, 0, 1e-300, 1)
    assert once is not None
    assert once < 2**63
    assert take(once, 2**40, 1e-300, 1) is not None
    assert take(once, 1_000, 1e-300, 1) is None


def test_time_going_backwards_only_refuses() -> None:
    tat_us = take(0, 10_000, 1.0, 1)
    assert tat_us is not None
    assert take(tat_us, 5_000, 1.0, 1) is None
    assert take(tat_us, 11_000, 1.0, 1) is not None
