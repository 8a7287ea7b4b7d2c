"""A scope whose texts are stored nowhere is not asked for prefix after prefix; what is stored is warmed as ever."""

from __future__ import annotations

from itertools import pairwise

import pytest

from analytics.plan_config import PlanConfig
from analytics.scope_rests import PATIENCE
from schemas import Announcement, OutcomeReason, Value, WarmupCommand
from schemas.announcement import announcement_id
from tests.analytics.test_planning import REDIS, T0, Drive, book, candidate, hot, outcome

MINUTE_MS = 60_000
MISSING = OutcomeReason.CONTENT_MISSING


class Town(Drive):
    """A planner of one replica whose scopes come with new prefixes all the time."""

    def __init__(self, stored: frozenset[str] = frozenset(), dies: bool = False, **more) -> None:
        super().__init__(policy=book(budget={"prefill_share": 1.0}), **more)
        self.stored = stored
        self.dies = dies
        self.turn = 0

    def turns(self, count: int, *scopes: str, each: int = 3) -> list[tuple[int, WarmupCommand]]:
        """Seconds with new hot prefixes in each; executors answer at once."""
        issued = []
        for _ in range(count):
            self.turn += 1
            for scope in scopes:
                new = [candidate(f"{scope}{self.turn}.{i}", tokens=1_000) for i in range(each)]
                self.hear(hot(*new, at=self.now, scope=scope))
            for command in self.run(1_000, ["r1"]):
                issued.append((self.now, command))
                ending = ("applied", OutcomeReason.DONE) if command.scope in self.stored else ("skipped", MISSING)
                self.control(outcome(command, "r1", self.now, *ending))
            if self.dies and self.turn % 10 == 0:
                self.rebuild()
        return issued


def of(scope: str, issued: list[tuple[int, WarmupCommand]]) -> list[int]:
    return [at_ms for at_ms, command in issued if command.scope == scope]


@pytest.mark.parametrize("dies", [False, True])
def test_after_refusals_in_a_row_one_command_at_a_time_looks_again_ever_more_rarely(dies):
    town = Town(frozenset({"open"}), dies)
    issued = town.turns(15 * 60, "open", "redacted")
    assert len(of("open", issued)) > 2_500
    asked = of("redacted", issued)
    first = [at_ms for at_ms in asked if at_ms < T0 + 10_000]
    assert PATIENCE <= len(first) <= PATIENCE + 2
    gaps = [round((later - earlier) / 1000) for earlier, later in pairwise(asked)][len(first) - 1 :]
    assert gaps == pytest.approx([120, 240, 480], abs=2)


def test_a_text_that_is_stored_again_ends_the_rest():
    town = Town()
    town.turns(20, "s")
    town.stored = frozenset({"s"})
    assert of("s", town.turns(60, "s")) == []
    assert len(of("s", town.turns(120, "s"))) > 100


def test_refusals_with_a_warmed_prefix_among_them_send_nobody_to_rest():
    town = Town()
    for turn in range(60):
        town.stored = frozenset({"s"}) if turn % PATIENCE == 0 else frozenset()
        assert len(of("s", town.turns(1, "s", each=1))) == 1


def test_replicas_that_say_the_same_of_one_command_count_once():
    town = Town()
    town.hear(hot(candidate("a", tokens=1_000), at=town.now))
    (command,) = town.run(1_000, ["r1", "r2", "r3"])
    for _ in range(PATIENCE):
        for replica in ("r1", "r2", "r3"):
            town.control(outcome(command, replica, town.now, "skipped", MISSING))
    assert len(of("s", town.turns(1, "s"))) == 3


def test_a_scope_at_rest_costs_others_nothing_and_is_forgotten_when_it_is_quiet():
    town = Town()
    town.turns(20, "s")
    assert [key for key in town.store.records if key.startswith("z")]
    town.run(10 * MINUTE_MS, ["r1"])
    assert not [key for key in town.store.records if key.startswith("z")]


def test_an_announced_prompt_of_a_scope_at_rest_is_warmed_for_its_text_was_stored_with_it():
    from tests.analytics.test_announced_planning import PROMPT, announcement

    town = Town()
    town.turns(20, "a")
    (command,) = town.control(announcement(at=town.now + 1_000, **PROMPT))
    assert command.reason.trigger == "announced"


def test_a_value_that_its_source_lacks_is_asked_for_ever_more_rarely():
    drive = Drive(pool=REDIS, config=PlanConfig())
    at_ms = T0 + 60 * MINUTE_MS
    event = Announcement(
        announcement_id=announcement_id("s", REDIS, "event", "sale", "1", at_ms),
        scope="s",
        pool=REDIS,
        kind="event",
        name="sale",
        version="1",
        announced_at_ms=T0,
        at_ms=at_ms,
        keys=("sku:1",),
        loader="prices",
        ttl_ms=300_000,
    )
    found, asked = drive.control(event), []
    for _ in range(40 * 60):
        for command in found:
            assert command.target == Value(key="sku:1", loader="prices", ttl_ms=300_000)
            asked.append(drive.now)
            drive.control(outcome(command, REDIS, drive.now, "rejected", OutcomeReason.LOADER_UNKNOWN))
        found = drive.run(1_000)
    gaps = [(later - earlier) / MINUTE_MS for earlier, later in pairwise(asked)]
    assert gaps == pytest.approx([5, 10, 20], abs=0.1)
