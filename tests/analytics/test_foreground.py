"""How users fare beside their own baseline, with warm-ups taken out."""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_left

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


def warmed(engine: Engine) -> tuple[str, ...]:
    """A second with one warm-up of 100 tokens, which nothing was found of."""
    engine.served(1, 0, found=0.0)
    return engine.second([Own(5.0, 100, 0)])


def test_users_who_wait_longer_or_find_less_than_without_warmups_are_told() -> None:
    engine = Engine()
    engine.calm()
    slow = [(engine.served(3, 1), warmed(engine))[1] for _ in range(10)]
    assert slow[-1] == ("slow",)
    engine = Engine()
    engine.calm()
    cold = [(engine.served(3, 0, found=0.1), warmed(engine))[1] for _ in range(10)]
    assert cold[-1] == ("hits",)


def test_what_users_do_to_each_other_is_not_put_down_to_a_few_warmups() -> None:
    engine = Engine()
    engine.calm()
    for second in range(20):
        engine.served(30, 1, found=0.1)
        assert (warmed(engine) if second % 4 == 0 else engine.second()) == ()
    assert engine.foreground.worse(POLICY) == ("slow", "hits")


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
        warmed(engine)
    assert engine.foreground.harm(POLICY) == ("slow",)
    engine.foreground.adopt()
    assert engine.foreground.worse(POLICY) == ()


def test_an_engine_that_starts_anew_is_not_compared_across() -> None:
    before = Counters(BOUNDS, (5.0, 5.0, 5.0, 5.0), 100, 50)
    assert Counters(BOUNDS, (1.0, 1.0, 1.0, 1.0), 120, 60).since(before) is None
    assert Counters(BOUNDS, (6.0, 6.0, 6.0, 6.0), 10, 0).since(before) is None
    assert Counters((1.0, math.inf), (9.0, 9.0), 200, 60).since(before) is None


def test_users_whose_prompts_and_times_vary_widely_are_no_sign_of_harm() -> None:
    """An hour of them, warm-ups in every other minute that change nothing: log-normal lengths and first tokens."""
    source, foreground, bounds = random.Random(11), Foreground(), (20.0, 80.0, 250.0, 1_000.0, 5_000.0, math.inf)
    buckets, queried, found = [0] * len(bounds), 0.0, 0.0
    told: set[str] = set()
    for second in range(3_600):
        warming, own = second // 60 % 2 == 1, []
        for _ in range(3):
            buckets[bisect_left(bounds, 80 * source.lognormvariate(0, 1))] += 1
            tokens = 500 * source.lognormvariate(0, 1)
            queried, found = queried + tokens, found + (0.9 * tokens if source.random() < 0.6 else 0.0)
        if warming:
            own.append(Own(150.0, 1_000, 0))
            buckets[bisect_left(bounds, 140.0)] += 1
            queried += 1_000
        counts = tuple(float(count) for count in itertools.accumulate(buckets))
        foreground.look(second * 1_000, Counters(bounds, counts, queried, found), own, second % 120 in range(10, 60))
        told |= {*foreground.harm(POLICY)} if warming else set()
    assert told == set()
