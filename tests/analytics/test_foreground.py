"""How users fare beside their own baseline, with warm-ups taken out."""

from __future__ import annotations

import itertools
import math

from analytics.foreground import Counters, Foreground, Own
from analytics.policy_sections import BreakerPolicy

POLICY = BreakerPolicy()
BOUNDS = (10.0, 100.0, 1_000.0, math.inf)


class Engine:
    """Counts as an engine does: users and warm-ups alike."""

    def __init__(self) -> None:
        self.foreground, self.now_ms = Foreground(), 0
        self._buckets, self._queried, self._found = [0.0] * 4, 0.0, 0.0
        self._look([], True)

    def served(self, count: int, bucket: int, found: float = 0.8) -> None:
        self._buckets[bucket] += count
        self._queried += count * 100
        self._found += count * 100 * found

    def second(self, own: list[Own] | None = None, calm: bool = False) -> tuple[str, ...]:
        self.now_ms += 1_000
        self._look(own or [], calm)
        return self.foreground.harm(POLICY)

    def _look(self, own: list[Own], calm: bool) -> None:
        counts = tuple(itertools.accumulate(self._buckets))
        self.foreground.look(self.now_ms, Counters(BOUNDS, counts, self._queried, self._found), own, calm)

    def calm(self, seconds: int = 20) -> None:
        for _ in range(seconds):
            self.served(3, 0)
            self.second(calm=True)


def test_slow_warmups_of_ours_are_no_harm_to_users() -> None:
    engine = Engine()
    engine.calm()
    for _ in range(20):
        engine.served(3, 0)
        engine.served(5, 2, found=0.0)
        assert engine.second([Own(400.0, 100, 0)] * 5) == ()


def test_what_a_client_measured_is_found_in_a_lower_bucket_too() -> None:
    engine = Engine()
    engine.calm()
    for _ in range(20):
        engine.served(3, 0)
        engine.served(5, 1, found=0.0)
        assert engine.second([Own(1_200.0, 100, 0)] * 5) == ()


def test_users_who_wait_longer_or_find_less_than_without_warmups_are_told() -> None:
    engine = Engine()
    engine.calm()
    slow = [(engine.served(3, 1), engine.second())[1] for _ in range(10)]
    assert slow[-1] == ("slow",)
    engine = Engine()
    engine.calm()
    cold = [(engine.served(3, 0, found=0.1), engine.second())[1] for _ in range(10)]
    assert cold[-1] == ("hits",)


def test_too_little_is_known_at_first_and_without_a_baseline_nothing_is_said() -> None:
    engine = Engine()
    for _ in range(20):
        engine.served(3, 2, found=0.0)
        assert engine.second() == ()


def test_what_lasts_without_warmups_becomes_the_baseline() -> None:
    engine = Engine()
    engine.calm()
    for _ in range(60):
        engine.served(3, 2)
        engine.second()
    assert engine.foreground.harm(POLICY) == ("slow",)
    engine.foreground.adopt()
    assert engine.foreground.harm(POLICY) == ()


def test_an_engine_that_starts_anew_is_not_compared_across() -> None:
    before = Counters(BOUNDS, (5.0, 5.0, 5.0, 5.0), 100, 50)
    assert Counters(BOUNDS, (1.0, 1.0, 1.0, 1.0), 120, 60).since(before) is None
    assert Counters(BOUNDS, (6.0, 6.0, 6.0, 6.0), 10, 0).since(before) is None
    assert Counters((1.0, math.inf), (9.0, 9.0), 200, 60).since(before) is None
