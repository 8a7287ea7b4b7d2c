"""Braking: what breakers are told, what holds at a replica, and what executors tell each other; on a fake clock."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from test_waiting import work as waiting_work

from analytics.breaker import Brake
from analytics.policy_sections import BreakerPolicy
from connectors.engines.base import EngineMetrics
from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored
from connectors.engines.histogram import Histogram
from connectors.metrics import PrometheusMetrics
from connectors.redis.fake import MemoryBrakes, MemoryStore
from executor.admission import held_by_breaker
from executor.brake_words import BrakeWords, spoken, understood
from executor.braking import FREE, UNSEEN, Braking
from executor.host import memory_pressure
from executor.orders import Order, Work
from executor.outcomes import Ending, outcome_of
from executor.telemetry import Sampler
from executor.waiting import WaitingLine
from schemas import Model, OutcomeReason, Prefix, Render, Segment, WarmupCommand
from schemas.warmup_command import Qos

BLOCKS = 100
DONE = Ending("applied", OutcomeReason.DONE, tokens_warmed=16)


def command(qos: Qos = "burstable", number: int = 0, **fields: Any) -> WarmupCommand:
    from test_rules import command as any_command

    segments = (Segment("a" * 32, 16, "system"),)
    target = Prefix(model="tiny", segments=segments, render=Render(template_sha="t"))
    values = {"pool": "gpu", "target": target, "qos": qos, "target_key": f"prefix:{number}", "expires_at_ms": 10**15}
    return any_command(command_id=f"{number:032x}", **{**values, **fields})


def work(qos: Qos = "burstable", **fields: Any) -> Work:
    return Work(Order(command(qos, **fields), []), "r0", 0)


def engine(usage: float = 0.0, waiting: int = 0, **fields: Any) -> EngineMetrics:
    values = {
        "running": 0,
        "waiting": waiting,
        "kv_usage": usage,
        "prefix_query_tokens": 0,
        "prefix_hit_tokens": 0,
        "preemptions": 0,
        "rejections": 0,
        "prompt_tokens": 0,
        "sleeping": False,
        "blocks_total": BLOCKS,
        "block_tokens": 16,
        "ttft_s": Histogram(),
        **fields,
    }
    return EngineMetrics(**values)


class Host:
    """An executor's braking on a clock of its own, and what its watch of r0 would tell it."""

    def __init__(self, policy: BreakerPolicy | None = None, time_scale: float = 1.0) -> None:
        self.now_ms, self.psi = 10**12, None
        self.metrics, self.sampler = PrometheusMetrics(), Sampler("r0", "gpu")
        held = policy or BreakerPolicy()
        self.braking = Braking(lambda: held, lambda: self.psi, lambda: self.now_ms, time_scale, self.metrics)
        self.changes: list[str] = []
        self.braking.on_change(self.changes.append)

    def look(self, metrics: EngineMetrics | None = None, seconds: int = 1, lost: bool = False) -> Brake:
        for _ in range(seconds):
            self.now_ms += 1_000
            told = None if lost else metrics or engine()
            self.braking.looked("r0", told, self.sampler.sample(told, self.now_ms, None))
        return self.braking.brake("r0")

    def warm(self, number: int, blocks: int = 20, found: int = 0) -> None:
        """One warm-up from beginning to end, with its events and its outcome."""
        one = work(number=number)
        ending = Ending("applied", OutcomeReason.DONE, (blocks - found) * 16, found * 16)
        self.braking.began(one)
        self.store(range(1_000 * number, 1_000 * number + blocks))
        self.braking.ended(one, ending)
        self.braking.heard(outcome_of(one.command, "r0", ending, self.now_ms, 0, 5.0))

    def store(self, blocks: range) -> None:
        self.braking.event("r0", BlocksStored(tuple(blocks), None, (), 16, None, None))

    def displace(self) -> None:
        """A warm-up drives out what users come back for."""
        self.braking.event("r0", BlocksCleared())
        self.look(seconds=11)
        self.store(range(10))
        self.look(seconds=20)
        self.warm(7)
        self.braking.event("r0", BlocksRemoved(tuple(range(10))))
        self.store(range(10))

    def says(self, places: int = 2) -> list[bool]:
        return [self.braking.admits(work(qos), places) for qos in ("guaranteed", "burstable", "best_effort")]

    def count(self, line: str) -> bool:
        return line in self.metrics.exposition().decode()


def watched(policy: BreakerPolicy | None = None, time_scale: float = 1.0) -> Host:
    host = Host(policy, time_scale)
    host.braking.watch("r0")
    return host


def test_where_nobody_says_anything_nothing_is_held_back() -> None:
    host = Host()
    assert host.braking.brake("r0") == FREE
    assert host.says() == [True, True, True]
    assert host.braking.refuses(command("best_effort"), "r0") == ()


def test_absent_figures_open_nothing() -> None:
    host = watched()
    silent = engine(blocks_total=None, block_tokens=None)
    for number in range(600):
        host.warm(number % 50, 2, found=2 if number >= 50 else 0)
        assert host.look(silent if number % 3 else None, lost=number % 5 == 0) == FREE


def test_an_engine_that_restarts_again_and_again_is_not_harmed_by_us() -> None:
    host = watched()
    for number in range(100):
        host.warm(number % 5)
        if number % 5 == 4:
            host.braking.event("r0", BlocksCleared())
        assert host.look(engine(prompt_tokens=1_000 - 10 * number)) == FREE


def test_from_its_lease_to_the_first_look_only_guaranteed_goes() -> None:
    host = watched()
    assert host.braking.brake("r0") == UNSEEN
    assert host.says() == [True, False, False]
    assert host.braking.refuses(command("best_effort"), "r0") == ()
    assert host.look() == FREE
    assert host.changes == ["r0", "r0"]
    assert Host(BreakerPolicy(enabled=False)).says() == [True, True, True]
    host = watched()
    assert host.look(lost=True) == FREE, "one that does not answer refuses for itself"


def test_what_comes_back_opens_it_and_it_is_counted_by_cause() -> None:
    host = watched()
    host.displace()
    brake = host.look()
    assert (brake.state, brake.reasons) == ("open", ("displaced",))
    assert host.says() == [True, False, False]
    assert host.braking.refuses(command("best_effort"), "r0") == ("displaced",)
    assert host.braking.refuses(command("burstable"), "r0") == ()
    assert host.count('stoker_executor_breaker_trips_total{cause="displaced",replica="r0"} 1.0')
    assert host.count('stoker_executor_breaker_state_count{replica="r0",state="open"} 1.0')
    assert host.count('stoker_executor_breaker_share_ratio{replica="r0"} 0.0')


def test_half_open_lets_one_through_and_one_that_did_nothing_does_not_count() -> None:
    host = watched()
    host.displace()
    host.look()
    assert host.look(seconds=5).state == "half_open"
    assert host.says() == [True, True, False]
    probe = work()
    host.braking.began(probe)
    assert host.says() == [True, False, False]
    host.braking.ended(probe, Ending("skipped", OutcomeReason.CONTENT_MISSING))
    assert host.says() == [True, True, False]
    host.braking.began(probe)
    host.braking.ended(probe, DONE)
    assert host.says() == [True, False, False], "what comes of it is awaited"
    assert host.look(seconds=3) == FREE
    assert host.says() == [True, True, True]


def test_a_busy_engine_gets_its_share_of_warmups() -> None:
    host = watched()
    assert host.look(engine(0.7, waiting=1)).share == 0.5
    assert host.says(places=4) == [True, True, True]
    for _ in range(2):
        host.braking.began(work())
    assert host.says(places=4) == [True, False, False]
    host.changes.clear()
    host.braking.ended(work(), DONE)
    assert host.says(places=4) == [True, True, True]
    assert host.changes == ["r0"], "whoever waits for the place is told"


def test_memory_pressure_of_the_host_takes_steps_and_turns_best_effort_away() -> None:
    host = watched()
    host.psi = 0.3
    assert [host.look().share for _ in range(3)] == [0.5, 0.25, 0.0]
    assert host.braking.refuses(command("best_effort"), "r0") == ("pressure",)
    assert host.says() == [True, False, False]
    host.psi = 0.0
    assert host.look(seconds=31) == FREE


def test_a_fresh_executor_sees_at_its_first_look_what_still_holds() -> None:
    """After a restart: usage at once, and what warm-ups lost from the outcomes that are read again."""
    before, after = watched(), Host()
    assert before.look(engine(0.9)).state == "open"
    after.braking.watch("r0")
    assert after.look(engine(0.9)).reasons == ("usage",)

    told = [
        outcome_of(command(number=number % 4), "r0", Ending("applied", OutcomeReason.DONE, 320), 10**12 + at_ms)
        for at_ms in (-40_000, -10_000)
        for number in range(4)
    ]
    for number in (2, 6):  # heard before it speaks for the replica, or after
        after = Host()
        for outcome in told[:number]:
            after.braking.heard(outcome)
        after.braking.watch("r0")
        for outcome in told[number:]:
            after.braking.heard(outcome)
        assert after.look().reasons == ("lost",)


def test_expired_works_and_those_that_no_breaker_holds_go_on() -> None:
    host = watched()
    host.look(engine(0.9))
    assert host.braking.admits(work(expires_at_ms=host.now_ms), 2)
    assert not host.braking.admits(work(expires_at_ms=host.now_ms + 1), 2)
    wake = work(target=Model(model="tiny", replica="r0"), action="wake", target_key="model:tiny@r0")
    assert host.braking.admits(wake, 2)
    assert not held_by_breaker(command(pool="redis:main"))
    assert not held_by_breaker(command(action="unload"))


def test_time_scale_shortens_every_wait() -> None:
    for scale, state in ((1.0, "open"), (10.0, "half_open")):
        host = watched(time_scale=scale)
        host.look(engine(0.9))
        assert host.look().state == state


def test_a_lease_that_goes_takes_the_breaker_along() -> None:
    host = watched()
    host.look(engine(0.9))
    host.braking.unwatch("r0")
    assert host.braking.brake("r0") == FREE
    assert host.count('stoker_executor_breaker_state_count{replica="r0",state="open"} 0.0')
    running = work()
    host.braking.began(running)
    host.braking.watch("r0")
    host.look(engine(0.9))
    host.braking.ended(running, DONE)
    assert host.look(engine(0.9)).state == "open"


# -- what executors tell each other ------------------------------------------------------------------------------------


def exchange(host: Host, store: MemoryStore) -> BrakeWords:
    return BrakeWords(MemoryBrakes(store), host.braking, lambda: ["r0", "r1"], 1_000)


async def test_what_the_speaker_holds_back_every_executor_does() -> None:
    speaker, other = watched(), Host()
    store = MemoryStore(now_ms=lambda: speaker.now_ms)
    one, two = exchange(speaker, store), exchange(other, store)
    speaker.look(engine(0.9))
    for turns in (one, two):
        await turns.turn()
    assert other.braking.brake("r0") == Brake("open", 0.0, reasons=("usage",))
    assert other.says() == [True, False, False]
    assert other.changes == ["r0"]
    while speaker.look().state == "open":
        await one.turn()
    await one.turn()
    await two.turn()
    assert other.braking.brake("r0").state == "open", "the one probe is the speaker's"
    assert speaker.look(seconds=6) == FREE
    await one.turn()
    await two.turn()
    assert other.braking.brake("r0") == FREE
    assert other.says() == [True, True, True]


async def test_a_speaker_that_dies_holds_nobody_for_long() -> None:
    speaker, other = watched(), Host()
    store = MemoryStore(now_ms=lambda: speaker.now_ms)
    speaker.look(engine(0.9))
    await exchange(speaker, store).turn()
    two = exchange(other, store)
    await two.turn()
    assert other.braking.brake("r0").state == "open"
    speaker.now_ms += 6_000
    await two.turn()
    assert other.braking.brake("r0") == FREE


def test_a_word_that_cannot_be_read_holds_nothing_back() -> None:
    pressed = Brake(pressed=True, share=0.25, reasons=("pressure",))
    assert understood(spoken(pressed)) == pressed
    for word in (b"", b"{}", b"\xff", b'{"schema":"brake/2","state":"open"}'):
        assert understood(word) == FREE


# -- the line, the host ------------------------------------------------------------------------------------------------


def test_a_work_that_is_held_back_is_passed_over_until_it_may_begin() -> None:
    held = {"burstable"}
    line = WaitingLine(10, lambda: 0, lambda each: each.command.qos not in held)
    later, sooner = waiting_work("best_effort"), waiting_work("burstable")
    line.put(sooner)
    line.put(later)
    assert line.next_of("r0") is later
    assert line.next_of("r0") is None
    held.clear()
    assert line.next_of("r0") is sooner


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("some avg10=12.50 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 0.125),
        ("some avg10=250 avg60=0\n", 1.0),
        ("full avg10=12.50\n", None),
        ("some avg60=1\n", None),
        ("some avg10=much\n", None),
        ("", None),
    ],
)
def test_pressure_is_read_from_what_the_kernel_tells(tmp_path: Path, text: str, share: float | None) -> None:
    file = tmp_path / "memory"
    file.write_text(text)
    assert memory_pressure(file) == share
    assert memory_pressure(tmp_path / "none") is None


def test_slow_users_are_seen_through_the_histogram_of_the_engine() -> None:
    host, fast, slow, tokens = watched(), 0, 0, 0
    for second in range(70):
        warming = second >= 40
        fast, slow, tokens = fast + (0 if warming else 3), slow + (3 if warming else 0), tokens + 300
        if warming:
            host.warm(second, 8)
            fast, tokens = fast + 1, tokens + 128
        counts = (float(fast), float(fast + slow), float(fast + slow))
        metrics = engine(
            ttft_s=Histogram((0.05, 0.5, math.inf), counts), prefix_query_tokens=tokens, blocks_total=10**6
        )
        brake = host.look(metrics)
        if brake.state == "open":
            break
    assert brake.reasons == ("slow",)
    assert second >= 40


async def test_many_that_are_held_back_wake_nobody_and_one_that_may_go_is_taken_at_once() -> None:
    looks: list[Work] = []

    def admits(each: Work) -> bool:
        looks.append(each)
        return each.command.qos == "guaranteed"

    line = WaitingLine(1_000, lambda: 0, admits)
    taking = asyncio.create_task(line.take("r0"))
    await asyncio.sleep(0)
    for _ in range(200):
        line.put(waiting_work("burstable"))
        await asyncio.sleep(0)
    assert len(looks) < 500
    sure = waiting_work("guaranteed")
    line.put(sure)
    assert await asyncio.wait_for(taking, 5) is sure
