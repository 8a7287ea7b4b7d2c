"""A shard may be dropped at any point and go on from its store: outputs, counters and timers are those of one life."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings

from analytics.demand import Demand, DemandConfig
from analytics.panes import PaneCaps
from analytics.policy import PolicyBook
from analytics.rewards import LAST_KEY, RewardConfig
from analytics.second_sight import SecondSightConfig
from analytics.stores import MemoryLogStore
from schemas import BrokenConfiguration
from tests.analytics.shard_script import CHAINS, START_MS, Step, live, request, steps

TIGHT = DemandConfig(
    shards=1,
    pane_ms=1_000,
    window_ms=5_000,
    lateness_ms=2_000,
    close_after_ms=1_000,
    slots=2,
    top=3,
    max_delta_bytes=200,
    caps=PaneCaps(keys=6, users_per_key=2, places=1),
    second_sight=SecondSightConfig(shards=50, time_scale=1_000.0, max_asked=5),
    rewards=RewardConfig(wait_ms=2_500, memory_ms=6_000, max_entries=8),
    family_leads=2,
)
"""So small that every cap and every bucket is hit."""


@settings(max_examples=60, deadline=None)
@given(steps())
def test_one_life_and_many_publish_the_same_bytes(script: list[Step]) -> None:
    whole = live(TIGHT, script)
    broken = live(TIGHT, script, crashes=True)
    assert broken.outputs == whole.outputs
    assert broken.demand.counters == whole.demand.counters


@settings(max_examples=15, deadline=None)
@given(steps())
def test_nothing_but_meta_and_asks_is_left_when_the_window_has_passed(script: list[Step]) -> None:
    life = live(TIGHT, script)
    assert not any(life.store.logs)
    assert all(LAST_KEY < key < 0 for key in life.store.blobs)
    assert life.demand.next_timer_ms is None


def _both(script: list[Step]) -> None:
    whole = live(TIGHT, script)
    dying = [dataclasses.replace(step, crash=True) for step in script]
    broken = live(TIGHT, dying, crashes=True)
    assert broken.outputs == whole.outputs
    assert broken.demand.counters == whole.demand.counters


def test_a_second_phase_in_an_earlier_pane_keeps_its_identity_as_long_as_the_later_pane() -> None:
    finish, start = START_MS + 1_500, START_MS + 500
    script = [
        Step(request(finish, 1, finished=True), START_MS),
        Step(request(start, 1), START_MS),
        # The earlier pane leaves the window at 8,000, the later one at 9,000.
        Step(request(START_MS + 8_200, 2), START_MS + 8_100),
        Step(request(start, 1), START_MS + 8_100),
    ]
    _both(script)
    assert live(TIGHT, script).demand.counters["duplicate"] == 1


def test_a_chain_that_had_no_room_gets_none_in_the_order_of_a_replay() -> None:
    script = [
        # Slot 0 is read before slot 1, whose chains came first and took the room.
        Step(request(START_MS + 1_100, 1, segments=CHAINS[4]), START_MS),
        Step(request(START_MS + 1_200, 2, segments=CHAINS[3]), START_MS),
        Step(request(START_MS + 100, 3, segments=CHAINS[2]), START_MS),
        Step(request(START_MS + 200, 4, segments=CHAINS[1]), START_MS),
    ]
    _both(script)
    assert live(TIGHT, script).demand.counters["chains_dropped"] == 2


def test_an_identity_is_that_of_both_phases_whichever_slot_is_read_first() -> None:
    script = [
        # Slot 1 has the first phase, slot 0 the second one.
        Step(request(START_MS + 1_100, 1), START_MS),
        Step(request(START_MS + 2_100, 1, finished=True), START_MS),
        Step(request(START_MS + 2_100, 1, finished=True), START_MS),
        Step(request(START_MS + 1_100, 1), START_MS),
    ]
    _both(script)
    assert live(TIGHT, script).demand.counters["duplicate"] == 2


def test_the_bucket_is_as_empty_after_a_crash_as_before() -> None:
    script = []
    for number in range(6):
        # Second sights in slot 1, then in slot 0, which is read first; later ones after a slide.
        at_ms = START_MS + (1_000 if number % 2 == 0 else 0)
        watermark_ms = START_MS + (0 if number < 4 else 1_000)
        for phase in range(2):
            script.append(Step(request(at_ms, 10 * number + phase + 1, f"q{number}"), watermark_ms))
    _both(script)
    counters = live(TIGHT, script).demand.counters
    assert counters["embed_asked"] == 3
    assert counters["embed_over_rate"] == 3


@pytest.mark.parametrize("change", [{"shards": 2}, {"pane_ms": 2_000}])
def test_a_state_of_another_shape_is_refused_in_words(change: dict[str, int]) -> None:
    store = MemoryLogStore(TIGHT.logs)
    Demand(TIGHT, 0, store).on_fact(request(START_MS, 1), START_MS, PolicyBook())
    other = DemandConfig(**{"shards": 1, "pane_ms": 1_000, "slots": 2, **change})
    with pytest.raises(BrokenConfiguration, match=next(iter(change))):
        Demand(other, 0, store)
