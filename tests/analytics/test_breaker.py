"""The breaker: when it opens, what it lets through, when it closes, and who gives way."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.breaker import Brake, Breaker, Reading
from analytics.breaker_rules import Load
from analytics.foreground import Counters
from analytics.policy_sections import BreakerPolicy
from schemas.warmup_command import QOS_RANK

POLICY = BreakerPolicy()
QUIET = Load(0.0)
FULL = Load(0.9)


class Replica:
    """A breaker and the clock of whoever looks."""

    def __init__(self, policy: BreakerPolicy = POLICY) -> None:
        self.breaker, self.policy, self.now_ms = Breaker(), policy, 0

    def look(self, load: Load = QUIET, seconds: int = 1, psi: float | None = None, incarnation: str = "1") -> Brake:
        for _ in range(seconds):
            self.now_ms += 1_000
            reading = Reading(incarnation, load, Counters(), blocks_total=100)
            brake = self.breaker.look(self.now_ms, reading, psi, self.policy)
        return brake

    def warm(self, prefix: str, blocks: range, found: int = 0) -> None:
        self.breaker.began(self.now_ms)
        self.breaker.stored(self.now_ms, blocks, self.policy)
        self.breaker.warmed(self.now_ms, prefix, len(blocks) * 16, found, 5.0, 16, self.policy)
        self.breaker.ended(self.now_ms)

    def displace(self) -> None:
        """A warm-up drives out what somebody stored, who comes back for it."""
        hot = range(10)
        self.breaker.stored(self.now_ms, hot, self.policy)
        self.look(seconds=20)
        self.warm("junk", range(100, 120))
        self.breaker.removed(self.now_ms, hot, self.policy)
        self.breaker.stored(self.now_ms, hot, self.policy)


def says(brake: Brake) -> list[str]:
    return [brake.says(qos) for qos in sorted(QOS_RANK, key=QOS_RANK.__getitem__)]  # type: ignore[arg-type]


def test_who_gives_way() -> None:
    assert says(Brake()) == ["go", "go", "go"]
    assert says(Brake("open", 0.0)) == ["go", "wait", "refuse"]
    assert says(Brake("half_open")) == ["go", "go", "refuse"]
    assert says(Brake("half_open", probing=True)) == ["go", "wait", "refuse"]
    assert says(Brake(pressed=True, share=0.5)) == ["go", "go", "refuse"]
    assert says(Brake(pressed=True, share=0.0)) == ["go", "wait", "refuse"]
    assert says(Brake(share=0.0)) == ["go", "wait", "wait"]
    assert [Brake(share=share).places(4) for share in (1.0, 0.5, 0.1, 0.0)] == [4, 2, 1, 0]
    assert (Brake("half_open").places(4), Brake("open", 0.0).places(4)) == (1, 0)


def test_what_comes_back_opens_it_at_the_next_look_and_usage_alone_would_not() -> None:
    for rule, state in (("tuned", "open"), ("spec", "closed")):
        replica = Replica(dataclasses.replace(POLICY, rule=rule))
        replica.displace()
        brake = replica.look()
        assert brake.state == state
        assert ("displaced" in brake.reasons) is (rule == "tuned")


def test_after_its_time_one_warmup_goes_and_what_comes_of_it_decides() -> None:
    replica = Replica()
    replica.displace()
    assert replica.look().state == "open"
    assert replica.look(seconds=5).state == "half_open"
    replica.breaker.began(replica.now_ms)
    assert replica.breaker.brake.says("burstable") == "wait"
    assert replica.look(seconds=30).state == "half_open", "it is still out"
    replica.breaker.ended(replica.now_ms)
    assert replica.look().state == "half_open"
    assert replica.look(seconds=2) == Brake()


def test_a_probe_that_asked_nothing_of_the_engine_proves_nothing() -> None:
    replica = Replica()
    replica.displace()
    replica.look(seconds=6)
    replica.breaker.began(replica.now_ms)
    replica.breaker.ended(replica.now_ms, warmed=False)
    assert replica.breaker.brake.state == "half_open"
    assert replica.breaker.brake.says("burstable") == "go"
    assert replica.look(seconds=2).state == "half_open"


def test_users_who_change_while_nothing_is_warmed_open_nothing() -> None:
    breaker, bounds = Breaker(), (10.0, 100.0, math.inf)
    fast, slow = [0], [0]
    for second in range(120):
        (fast if second < 60 else slow)[0] += 5
        counts = (float(fast[0]), float(fast[0] + slow[0]), float(fast[0] + slow[0]))
        reading = Reading("1", QUIET, Counters(bounds, counts, 100.0 * sum(fast + slow)), 100)
        assert breaker.look(second * 1_000, reading, None, POLICY) == Brake()


def test_each_time_it_opens_again_it_stays_open_for_twice_as_long() -> None:
    replica, opened = Replica(), []
    for _ in range(8):
        while replica.look(FULL).state != "open":
            pass
        since_ms = replica.now_ms
        while replica.look().state == "open":
            pass
        opened.append((replica.now_ms - since_ms) // 1_000)
    assert opened == [5, 10, 20, 40, 80, 160, 300, 300]


def test_an_overloaded_engine_gets_no_probe_and_a_calm_one_closes_without() -> None:
    replica = Replica()
    assert replica.look(FULL, seconds=60).state == "open"
    assert replica.look().state == "half_open"
    assert replica.look(seconds=5) == Brake(), "nobody asked for a probe"


def test_pressure_takes_step_by_step_and_gives_back_step_by_step() -> None:
    replica = Replica()
    shares = [replica.look(psi=0.2).share for _ in range(4)]
    assert shares == [0.5, 0.25, 0.0, 0.0]
    assert says(replica.breaker.brake) == ["go", "wait", "refuse"]
    assert replica.breaker.brake.reasons == ("pressure",)
    assert replica.look(psi=0.07, seconds=60).share == 0.0, "neither more nor less"
    shares = [replica.look(psi=0.01).share for _ in range(35)]
    assert [shares.index(share) for share in (0.25, 0.5, 1.0)] == [10, 20, 30]
    assert replica.breaker.brake == Brake()


def test_the_specification_alone_follows_usage_without_memory() -> None:
    replica = Replica(dataclasses.replace(POLICY, rule="spec"))
    assert replica.look(FULL, psi=0.9) == Brake("open", 0.0, reasons=("usage",))
    assert replica.look(Load(0.7, 3), psi=0.9) == Brake("closed", 0.25, reasons=("queue",))
    assert replica.look(QUIET, psi=0.9) == Brake()


def test_switched_off_it_holds_nothing() -> None:
    replica = Replica(dataclasses.replace(POLICY, enabled=False))
    assert replica.look(FULL, psi=0.9) == Brake()


def test_a_replica_that_does_not_answer_keeps_its_state() -> None:
    replica = Replica()
    replica.look(FULL)
    assert replica.breaker.look(10**6, None, None, POLICY).state == "open"


def test_a_cache_that_warmups_turned_over_waits_at_once_and_goes_on_later() -> None:
    replica = Replica()
    replica.breaker.stored(0, range(100), POLICY)
    replica.look(seconds=120)
    for number in range(12):
        replica.warm(f"w{number}", range(1_000 + number * 6, 1_006 + number * 6))
        replica.breaker.removed(replica.now_ms, range(number * 6, number * 6 + 6), POLICY)
    assert (replica.breaker.brake.state, replica.breaker.brake.share) == ("closed", 0.0)
    assert replica.breaker.brake.reasons == ("pace",)
    assert replica.look(seconds=60) == Brake()


def test_what_is_lost_is_harm_unless_the_engine_lives_anew() -> None:
    for life, state in (("1", "open"), ("2", "closed")):
        replica = Replica()
        replica.look()
        for prefix in "abcd":
            replica.warm(prefix, range(6))
        replica.look(incarnation=life)
        for prefix in "abcd":
            replica.warm(prefix, range(6), found=0)
        assert replica.look(incarnation=life).state == state


@pytest.mark.parametrize("seed", range(3))
def test_it_is_deterministic(seed: int) -> None:
    told = []
    for _ in range(2):
        replica = Replica()
        for step in range(60):
            replica.warm(str((step * 7 + seed) % 11), range(step, step + 5), found=step % 3 * 16)
            replica.breaker.removed(replica.now_ms, [step * 3 % 17], POLICY)
            told.append(replica.look(Load((step % 10) / 10, step % 4)))
    assert told[:60] == told[60:]


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 5), st.none() | st.floats(0, 1), st.integers(0, 20)), max_size=60
    )
)
def test_guaranteed_always_goes_and_no_class_goes_before_a_higher_one(
    looks: list[tuple[float, int, float | None, int]],
) -> None:
    replica, order = Replica(), ("refuse", "wait", "go")
    for usage, waiting, psi, block in looks:
        replica.warm(str(block), range(block, block + 3))
        replica.breaker.removed(replica.now_ms, [block], POLICY)
        brake = replica.look(Load(usage, waiting, 2_000.0), psi=psi)
        ranks = [order.index(word) for word in says(brake)]
        assert ranks[0] == 2
        assert ranks == sorted(ranks, reverse=True)
        assert 0 <= brake.share <= 1
