"""A prefix under an adapter is planned where the adapter is, or comes; without one nothing is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from analytics.envelopes import Root
from analytics.memory import TargetMemory
from analytics.prefix_places import places
from analytics.records import Section
from analytics.replicas import Ready
from analytics.scope_rests import ScopeRests
from analytics.stores import MemoryMapStore
from schemas import Residency
from tests.analytics.test_adapter_planning import announced, sample
from tests.analytics.test_planning import T0, TICK, Drive, candidate, hot, outcome

LORA = Root("m", "support@3", "", "", "")
SUPPORT, OTHER = ("support", "3"), ("other", "1")
READY = Ready(("r1", "r2", "r3"), (1, 2, 3), (16, 64, 16), zones=("a", "b", "c"))


def memory(**issued: Any) -> TargetMemory:
    store = MemoryMapStore()
    made = TargetMemory(100, Section(store, "t"), ScopeRests(1_000, Section(store, "s")), 1_000)
    if issued:
        values = {"bucket": 0, "attempt": 1, "at_ms": 0, "expires_ms": 100, "keep_ms": 100, "charged": 1.0}
        made.issued("s", "adapter:support@3", "c" * 32, names=issued["names"], **values)
    return made


def names(
    ready: Ready, adapter: str = "support@3", scope: str = "s", at_ms: int = 50, **issued: Any
) -> tuple[str, ...]:
    return places(ready, 100, scope, adapter, memory(**issued), at_ms).names


def test_only_where_it_is_listed_or_nothing_is_told() -> None:
    told = replace(READY, adapters=((SUPPORT, OTHER), (OTHER,), None))
    assert names(told) == ("r1", "r3")
    found = places(told, 100, "s", "support@3", memory(), 50)
    assert (found.marks, found.blocks, found.zones) == ((1, 3), (16, 16), ("a", "c"))
    assert found.adapters == ((SUPPORT, OTHER), None)
    assert names(told, adapter="support@4") == ("r3",)
    assert names(READY) == READY.names


def test_where_its_scope_loads_it_until_that_has_ended() -> None:
    told = replace(READY, adapters=((), (OTHER,), ()))
    assert names(told, names=("r2",)) == ("r2",)
    assert names(told, names=("r2",), at_ms=100) == ()
    assert names(told, names=("r2",), scope="another") == ()


def test_what_fills_no_block_is_left_out_with_its_adapters() -> None:
    told = replace(READY, adapters=((OTHER,), (SUPPORT,), (SUPPORT,)))
    assert places(told, 20, "s", "support@3", memory(), 50).names == ("r3",)


def test_without_an_adapter_memory_and_lists_are_not_asked() -> None:
    told = replace(READY, adapters=((OTHER,), (OTHER,), (OTHER,)))
    assert places(told, 100, "s", "", None, 50) is told  # type: ignore[arg-type]


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_prefix_is_commanded_once_a_replica_lists_its_adapter(rebuilt: bool) -> None:
    """It had been looked at before: what was noted of it must not hide that."""
    drive = Drive()
    for replica in ("r1", "r2"):
        drive.control(sample(replica, drive.now, "other@1"))
    found = candidate("a", tokens=1_000)
    drive.hear(hot(found, root=LORA))
    assert drive.run(3 * TICK) == []
    drive.control(sample("r2", drive.now, "other@1", "support@3"))
    if rebuilt:
        drive.rebuild()
    (command,) = drive.run()
    assert command.replicas.names == ("r2",)
    drive.control(outcome(command, "r2", drive.now))
    for _ in range(60):
        drive.control(sample("r1", drive.now, "other@1"))
        drive.control(sample("r2", drive.now, "support@3"))
        drive.hear(hot(found, root=LORA, at=drive.now))
        assert drive.run() == []
    drive.control(sample("r1", drive.now, "other@1", "support@3"))
    assert [each.replicas.names for each in drive.run()] == [("r1",)]


def test_after_a_held_out_load_its_prefix_is_not_planned_and_others_are() -> None:
    drive = Drive()
    drive.control(sample("r1", drive.now, "other@1"))
    drive.control(announced(at=T0 + 30_000))
    drive.hear(hot(candidate("a"), root=LORA))
    load, prefix = drive.run()
    assert (load.target_key, prefix.after) == ("adapter:support@3", (load.command_id,))
    drive.control(outcome(load, "r1", drive.now, "held_out"))
    drive.hear(hot(candidate("b"), root=LORA, at=drive.now))
    drive.hear(hot(candidate("c"), scope="base", at=drive.now))
    assert [command.scope for command in drive.run(5 * TICK)] == ["base"]


def test_what_a_replica_lost_is_not_warmed_again_there_without_its_adapter() -> None:
    commands = []
    for listed in (("support@3",), ("other@1",)):
        drive = Drive()
        drive.control(sample("r1", drive.now, "support@3"))
        drive.hear(hot(candidate("a"), root=LORA))
        (command,) = drive.run()
        drive.control(outcome(command, "r1", drive.now))
        drive.run(30 * TICK)
        drive.control(sample("r1", drive.now, *listed))
        lost = Residency(
            replica="r1",
            pool="p",
            incarnation="i1",
            scope="s",
            target_key=command.target_key,
            resident_tokens=0,
            full_tokens=100,
            seq=1,
            observed_at_ms=drive.now,
            source="events",
        )
        commands.append(len(drive.control(lost)))
    assert commands == [1, 0]
