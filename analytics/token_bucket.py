"""A token bucket in event time that holds one number (the generic cell rate algorithm, ITU-T I.371).

The number is the theoretical arrival time (TAT): when the bucket would be full again. It only grows, and a refusal
does not change it, so a log of takes can be replayed in any order: the greatest TAT is the state.
"""

from __future__ import annotations

from functools import lru_cache

_MAX_INTERVAL_US = 10**15


def take(tat_us: int, now_ms: int, rate_per_s: float, burst: float) -> int | None:
    """Takes one token: the new TAT in microseconds, or None when the bucket is empty.

    Args:
        tat_us: the bucket's state, 0 at first.
        now_ms: event time. Going backwards is harmless: it only refuses more.
        rate_per_s: tokens a second; 0 refuses everything. It may differ from one take to the next.
        burst: tokens that may be taken at once, at least 1.
    """
    if rate_per_s <= 0:
        return None
    interval_us = _interval_us(rate_per_s)
    now_us = now_ms * 1000
    # Most requests for a known query end here: comparisons cost a quarter of calls of `max`.
    if tat_us - now_us > (burst - 1.0 if burst > 1.0 else 0.0) * interval_us:
        return None
    return (tat_us if tat_us > now_us else now_us) + interval_us


@lru_cache(maxsize=1024)
def _interval_us(rate_per_s: float) -> int:
    return min(round(1_000_000 / rate_per_s), _MAX_INTERVAL_US)
