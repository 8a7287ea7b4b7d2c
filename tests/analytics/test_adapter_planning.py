"""Adapters in a pool's plan: announced versions, demand from panes, residency from samples (D10, D12)."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.adapter_uses import AdapterUses
from analytics.envelopes import KeyCount, Partial, Tag, seal
from analytics.focused import Focused
from analytics.patterns import fnv1a32
from analytics.plan_config import PlanConfig
from analytics.records import Section
from analytics.stores import MemoryMapStore
from schemas import (
    EVERY_SCOPE,
    Adapter,
    Announcement,
    OutcomeReason,
    Pattern,
    PlannerState,
    Policy,
    ReplicaSample,
    ResidentAdapter,
    encode,
)
from schemas.announcement import announcement_id
from tests.analytics.test_planning import T0, TICK, Drive, book, outcome, partial

PANE_MS = 10_000
PANE = T0 // PANE_MS * PANE_MS
LONG_AGO = T0 - 600_000


def announced(name: str = "support", version: str = "3", at: int = LONG_AGO, **more: Any) -> Announcement:
    fields: dict[str, Any] = {"rank": 16, "sha256": "ab" * 32, "source": f"adapters/{name}-{version}", "scope": "s"}
    fields |= {"alpha": 32.0, "dropout": 0.05, "target_modules": ("q_proj", "v_proj")}
    fields |= more
    return Announcement(
        announcement_id=announcement_id(fields["scope"], "p", "adapter", name, version, at),
        pool="p",
        kind="adapter",
        name=name,
        version=version,
        announced_at_ms=min(at, T0),
        at_ms=at,
        **fields,
    )


def sample(replica: str, at: int, *adapters: str, incarnation: str = "i1") -> ReplicaSample:
    listed = tuple(ResidentAdapter(*adapter.split("@"), "named") for adapter in adapters)
    return ReplicaSample(
        replica=replica, pool="p", incarnation=incarnation, sampled_at_ms=at, state="ready", adapters=listed
    )


def used(drive: Drive, counts: dict[str, int], pane: int = PANE, revision: int = 1, scope: str = "s") -> None:
    drive.hear(partial(counts, pane, revision=revision, scope=scope, dimension="adapter"))


def visited(drive: Drive, pane: int, revision: int = 1, scope: str = "s") -> None:
    """A scope asks for something, and for no adapter."""
    drive.hear(partial({"t": 1}, pane, revision=revision, scope=scope, dimension="template"))


def gathered(drive: Drive, adapter: str, for_ms: int, scope: str = "s") -> None:
    """A crowd gathers on an adapter."""
    told = Focused(scope, "adapter", drive.now, drive.now + for_ms, (adapter,), {"users": 120.0})
    drive.hear(seal(Tag.FOCUSED, "p", told))


def tick(drive: Drive, *samples: ReplicaSample, ms: int = TICK) -> list[Any]:
    for each in samples:
        drive.control(each)
    return drive.run(ms)


def patterns(drive: Drive) -> list[Pattern]:
    return [insight for insight in drive.insights if isinstance(insight, Pattern)]


def test_five_uses_in_a_minute_load_an_adapter_where_it_is_absent() -> None:
    drive = Drive()
    drive.control(announced())
    used(drive, {"support@3": 5})
    (command,) = tick(drive, sample("r1", T0), sample("r2", T0, "support@3"))
    assert command.target == Adapter(
        name="support",
        version="3",
        rank=16,
        alpha=32.0,
        dropout=0.05,
        target_modules=("q_proj", "v_proj"),
        sha256="ab" * 32,
        source="adapters/support-3",
    )
    assert (command.action, command.target_key, command.replicas.names) == ("load", "adapter:support@3", ("r1",))
    assert (command.reason.trigger, command.lane, command.content_version) == ("adapter_rate", "tick", "3")
    assert command.unit == "support@2026-09-21"
    # 5 uses in 60 s: the spec's priority is int(fnv1a32 mod 100 · (5/60) / 2.5).
    raw = int(fnv1a32(b"support@3") % 100 * (5 / 60) / 2.5)
    assert (command.priority, command.reason.evidence["priority_raw"]) == (raw, raw)
    (insight,) = patterns(drive)
    assert (insight.pattern, insight.subject, insight.priority) == ("adapter_rate", "support@3", raw)
    assert insight.evidence["uses_in_minute"] == 5


@pytest.mark.parametrize(("qos", "loads"), [("best_effort", 0), ("burstable", 1), ("guaranteed", 1)])
def test_four_uses_load_it_only_where_its_priority_lets_it_stay(qos: str, loads: int) -> None:
    # Four uses spread over 10 s are 2.5 s apart: in use, so that a priority above 0.7 stays.
    drive = Drive(policy=book(plan={"qos": qos}))
    drive.control(announced())
    used(drive, {"support@3": 4})
    commands = tick(drive, sample("r1", T0))
    assert [command.reason.trigger for command in commands] == ["adapter_hot"] * loads
    assert patterns(drive) == []


def test_a_crowd_loads_what_its_class_would_not_and_raises_it_while_it_lasts() -> None:
    drive = Drive(policy=book(plan={"qos": "best_effort"}))
    for name in ("support", "quiet", "elsewhere"):
        drive.control(announced(name))
    used(drive, {"support@3": 3, "quiet@3": 3})
    gathered(drive, "support@3", 20_000)
    gathered(drive, "quiet@3", 20_000, scope="t")
    (command,) = tick(drive, sample("r1", T0))
    evidence = command.reason.evidence
    assert (command.target_key, command.reason.trigger) == ("adapter:support@3", "focus")
    assert (evidence["focus_users"], evidence["boost"], evidence["uses_in_minute"]) == (120, 2, 3)
    assert evidence["priority_raw"] == int(fnv1a32(b"support@3") % 100 * (2 * 3 / 60) / 2.5)
    gathered(drive, "elsewhere@3", 20_000)  # asked for in another pool
    assert tick(drive, sample("r1", drive.now), ms=15_000) == []
    gathered(drive, "quiet@3", 1_000)
    assert tick(drive, sample("r1", drive.now + 5_000), ms=6_000) == []  # it was over before the tick


def test_a_crowd_on_the_version_that_is_replaced_loads_the_next_one_once_it_is_in_effect() -> None:
    drive = Drive(policy=book(schedule={"adapter_lead_ms": 0}, plan={"qos": "best_effort"}))
    drive.control(announced(version="2"))
    drive.control(announced(version="3", at=T0 + 15_000, replaces="2"))
    used(drive, {"support@2": 3})
    gathered(drive, "support@2", 60_000)
    (before,) = tick(drive, sample("r1", T0, "other@1"), ms=10_000)
    (after,) = tick(drive, sample("r1", drive.now, "support@2"), ms=10_000)
    assert [(each.target.version, each.reason.trigger) for each in (before, after)] == [("2", "focus"), ("3", "focus")]


def test_the_spec_rules_raise_the_adapters_of_a_focus_as_well() -> None:
    drive = Drive(policy=book(focus={"rule": "spec"}, plan={"qos": "best_effort"}, adapter={"repeat_ms": 1_000}))
    drive.control(announced())
    minute = T0 // 60_000
    for step, heavy in enumerate([4, 14, 60, 400]):
        drive.now = max(drive.now, (minute + step) * 60_000)
        used(drive, {"support@3": heavy, **{f"other@{number}": 4 for number in range(7)}}, (minute + step) * 60_000)
        tick(drive, sample("r1", drive.now, "support@3"), ms=(minute + step + 1) * 60_000 - drive.now)
    used(drive, {"support@3": 3}, drive.now - PANE_MS)
    (command,) = tick(drive, sample("r1", drive.now, "other@1"))
    assert (command.reason.trigger, command.reason.evidence["boost"]) == ("focus", 2.0)


def test_uses_of_several_shards_add_up_and_a_later_revision_replaces() -> None:
    drive = Drive(policy=book(adapter={"priority": 0.0}))
    drive.control(announced())
    used(drive, {"support@3": 2}, revision=2)
    used(drive, {"support@3": 4}, revision=4)
    assert tick(drive, sample("r1", T0)) == []
    drive.hear(partial({"support@3": 1}, PANE - PANE_MS, shard=1, scope="s", dimension="adapter"))
    assert len(tick(drive, sample("r1", drive.now))) == 1


def test_an_adapter_that_nobody_announced_is_told_and_not_loaded() -> None:
    drive = Drive()
    used(drive, {"support@3": 50})
    assert tick(drive, sample("r1", T0)) == []
    assert [insight.subject for insight in patterns(drive)] == ["support@3"]


def test_another_scope_s_requests_load_nothing() -> None:
    drive = Drive()
    drive.control(announced())
    used(drive, {"support@3": 50}, scope="t")
    assert tick(drive, sample("r1", T0)) == []


def test_an_announced_version_is_loaded_shortly_before_it_takes_effect_and_the_old_one_is_let_go() -> None:
    drive = Drive(policy=book(adapter={"unload": True}, budget={"adapter_slots": 1}))
    drive.control(announced(version="2"))
    drive.control(announced(version="3", at=T0 + 90_000, replaces="2"))
    for _ in range(25):  # the lead is a minute: until then nothing goes out
        assert tick(drive, sample("r1", drive.now), sample("r2", drive.now, "support@2")) == []
    found = []
    for _ in range(10):
        found += tick(drive, sample("r1", drive.now), sample("r2", drive.now, "support@2"))
    loads = [command for command in found if command.action == "load"]
    assert [(c.target.version, c.replicas.names, c.reason.trigger) for c in loads] == [("3", ("r1",), "announced")]
    # r2 has one slot, which version 2 holds: unused, with a priority of 0.8, it need not stay.
    unloads = [command for command in found if command.action == "unload"]
    assert [(c.target.version, c.replicas.names, c.reason.trigger) for c in unloads] == [("2", ("r2",), "adapter_idle")]


def test_a_new_version_inherits_the_uses_of_the_one_that_it_replaces() -> None:
    drive = Drive()
    drive.control(announced(version="2"))
    drive.control(announced(version="3", at=T0 - 90_000, replaces="2"))
    used(drive, {"support@2": 9})
    (command,) = tick(drive, sample("r1", T0, "other@1"))
    assert (command.target.version, command.reason.trigger) == ("3", "adapter_rate")
    assert command.reason.evidence["uses_in_minute"] == 9


def test_what_was_loaded_is_believed_until_a_replica_that_lists_adapters_does_not_list_it() -> None:
    drive = Drive(policy=book(adapter={"repeat_ms": 1_000, "resident_ms": 60_000}))
    drive.control(announced())
    used(drive, {"support@3": 9})
    (command,) = tick(drive, sample("r1", T0))
    drive.control(outcome(command, "r1", drive.now, warmed=0))
    # It lists nothing at all: an engine that does not tell. What was applied is believed.
    assert tick(drive, sample("r1", drive.now + 9_000), ms=10_000) == []
    # It lists another one: so it tells, and this one is gone.
    (again,) = tick(drive, sample("r1", drive.now + 1_000, "other@1"), ms=2_000)
    assert again.target_key == command.target_key


def test_a_new_incarnation_has_lost_what_was_loaded() -> None:
    drive = Drive(policy=book(adapter={"repeat_ms": 1_000}))
    drive.control(announced())
    used(drive, {"support@3": 9})
    (command,) = tick(drive, sample("r1", T0))
    drive.control(outcome(command, "r1", drive.now, warmed=0))
    assert tick(drive, sample("r1", drive.now, incarnation="i1"), ms=3_000) == []
    (again,) = tick(drive, sample("r1", drive.now, incarnation="i2"), ms=2_000)
    assert again.command_id != command.command_id


@pytest.mark.parametrize(
    "bodies",
    [{"adapter": {"enabled": False}}, {"freeze": {"frozen": True}}, {"budget": {"adapter_loads_per_s": 0.0}}],
    ids=["disabled", "frozen", "no budget"],
)
def test_what_policy_forbids_is_not_loaded(bodies: dict[str, dict[str, Any]]) -> None:
    drive = Drive(policy=book(**bodies))
    drive.control(announced())
    used(drive, {"support@3": 50})
    assert tick(drive, sample("r1", T0)) == []


def test_loads_are_paid_from_their_own_budget_and_a_scope_s_share_of_it() -> None:
    # 0.1 a second in a burst of 30 s: three, of which each of two scopes has one and a half.
    drive = Drive(policy=book(budget={"adapter_loads_per_s": 0.1}))
    for index in range(4):
        drive.control(announced(f"a{index}"))
    drive.control(announced("other", scope="t"))
    used(drive, {f"a{index}@3": 9 for index in range(4)})
    first = tick(drive, sample("r1", T0))
    assert len(first) == 1
    later = tick(drive, sample("r1", drive.now + 9_000), ms=10_000)
    assert len(later) == 1
    assert not drive.planner._budget  # not a token of prefill


def test_a_full_replica_lets_go_of_the_longest_unused_that_need_not_stay_and_only_then_loads() -> None:
    drive = Drive(policy=book(adapter={"unload": True}, budget={"adapter_slots": 2}))
    for name in ("old", "older", "new"):
        drive.control(announced(name))
    used(drive, {"older@3": 1}, PANE - 90_000)
    used(drive, {"old@3": 1}, PANE - 80_000)
    used(drive, {"new@3": 9}, PANE - PANE_MS)
    (unload,) = tick(drive, sample("r1", T0, "old@3", "older@3"))
    assert (unload.action, unload.target_key, unload.replicas.names) == ("unload", "adapter:older@3", ("r1",))
    assert (unload.arm, unload.propensity) == ("warm", 1.0)  # taking back is never held out
    done = outcome(unload, "r1", drive.now, warmed=0)
    drive.control(type(done)(**{**{f: getattr(done, f) for f in done.__struct_fields__}, "action": "unload"}))
    (load,) = tick(drive, sample("r1", drive.now, "old@3"), ms=2_000)
    assert (load.action, load.target_key) == ("load", "adapter:new@3")


@pytest.mark.parametrize(
    ("rule", "adapter", "unloads"),
    [
        ("spec", {"unload": False}, []),
        ("tuned", {"unload": False}, []),
        ("spec", {"unload": True, "priority": 0.96}, []),
        ("spec", {"unload": True, "priority": 0.95}, ["adapter:old@3"]),
        ("tuned", {"unload": True, "priority": 0.96}, ["adapter:old@3"]),
    ],
    ids=["policy says no", "to any rule", "above 0.95 always stays", "but not at it", "and not by the tuned rule"],
)
def test_nothing_is_unloaded_that_may_or_must_stay_and_a_full_replica_gets_no_load(
    rule: str, adapter: dict[str, Any], unloads: list[str]
) -> None:
    policy = book(adapter=adapter, budget={"adapter_slots": 1})
    drive = Drive(policy=policy, config=PlanConfig(adapter_rule=rule))
    for name in ("old", "new"):
        drive.control(announced(name))
    used(drive, {"new@3": 9}, PANE - PANE_MS)
    commands = tick(drive, sample("r1", T0, "old@3"))
    assert [command.target_key for command in commands if command.action == "unload"] == unloads
    assert len(commands) == len(unloads)


def test_a_replica_that_is_full_keeps_what_the_slots_hold_and_makes_no_room_for_what_they_do_not() -> None:
    # Two slots, one of them silver's own: support takes it and stays 45 s after its last use, other the free one.
    drive = Drive(policy=book(adapter={"unload": True}, budget={"adapter_slots": 2}))
    drive.policy.apply(
        Policy(scope="b", section="plan", writer="test", version=2, at_ms=1, body={"qos": "best_effort"})
    )
    drive.control(announced("support"))
    for name in ("other", "third"):
        drive.control(announced(name, scope="b"))
    used(drive, {"support@3": 1}, PANE - 2 * PANE_MS)
    used(drive, {"other@3": 6}, PANE - 2 * PANE_MS, scope="b")
    full = sample("r1", T0, "support@3", "other@3")
    assert tick(drive, full) == []
    drive.now = PANE + 9 * PANE_MS  # both were last used more than a minute ago
    used(drive, {"third@3": 6}, drive.now - PANE_MS, scope="b")
    (unload,) = tick(drive, sample("r1", drive.now, "support@3", "other@3"))
    assert (unload.action, unload.target_key) == ("unload", "adapter:other@3")
    report = next(each for each in reversed(drive.insights) if isinstance(each, PlannerState))
    assert report.evidence["adapter_versions"] == 3
    assert report.evidence["adapter_hits_silver"] == 0.0
    assert 0.8 < report.evidence["adapter_hits_bronze"] < 0.9


def test_a_class_that_gets_less_than_it_was_promised_is_loaded_for_a_single_use() -> None:
    drive = Drive(policy=book(budget={"adapter_slots": 4, "adapter_loads_per_s": 100}, adapter={"repeat_ms": 1_000}))
    names = [f"a{number}" for number in range(20)]
    for name in names:
        drive.control(announced(name))
    found = []
    for index in range(24):  # a single use each, minutes after the one before: nothing that would load an adapter
        used(drive, {f"{names[index % 20]}@3": 1}, drive.now // PANE_MS * PANE_MS)
        found += tick(drive, sample("r1", drive.now, "other@1"), ms=10_000)
    assert {command.reason.trigger for command in found} == {"adapter_class"}
    evidence = found[0].reason.evidence
    assert (evidence["class_floor"], evidence["class_hit_ratio"], evidence["uses_in_minute"]) == (0.75, 0.0, 1)
    assert found[0].issued_at_ms > T0 + 15 * PANE_MS  # sixteen uses before a class is judged


def test_what_a_scope_does_every_day_is_loaded_when_it_comes() -> None:
    # A day of people lasts a minute here, a pane 200 ms, and what is expected is waited for for 2.5 s.
    config = PlanConfig(time_scale=1_440, pane_ms=288_000)
    bodies = {"adapter": {"prefetch": True}, "budget": {"adapter_slots": 1, "adapter_loads_per_s": 10_000}}
    drive = Drive(policy=book(plan={"qos": "best_effort"}, **bodies), config=config)
    for name, scope in (("support", "s"), ("other", "t")):
        drive.control(announced(name, scope=scope))
    days, found = 8, []
    for day in range(1, days + 1):
        visited(drive, drive.now)
        found.append(tick(drive, sample("r1", drive.now)))
        if day < days:
            for adapter, scope in (("support@3", "s"), ("other@3", "t")):
                used(drive, {adapter: 1}, drive.now, scope=scope)
                tick(drive)
            tick(drive, ms=T0 + 60_000 * day - drive.now)
            drive.rebuild()
    assert [len(each) for each in found] == [0] + [1] * (days - 1)
    [command] = found[-1]
    assert (command.action, command.target_key, command.scope) == ("load", "adapter:support@3", "s")
    assert command.reason.trigger == "adapter_expected"
    evidence = command.reason.evidence
    assert evidence["hour_share"] > 0.8
    assert command.benefit.p_asked == evidence["confidence"] >= 0.5
    assert evidence["uses_in_minute"] == 0


def test_an_adapter_that_is_not_where_it_was_announced_rests_before_it_is_tried_again() -> None:
    drive = Drive(policy=book(adapter={"repeat_ms": 1_000, "resident_ms": 20_000}))
    drive.control(announced())
    used(drive, {"support@3": 9})
    (command,) = tick(drive, sample("r1", T0, "other@1"))
    drive.control(outcome(command, "r1", drive.now, "failed", OutcomeReason.ADAPTER_MISSING))
    assert tick(drive, sample("r1", drive.now + 9_000, "other@1"), ms=15_000) == []
    (again,) = tick(drive, sample("r1", drive.now + 3_000, "other@1"), ms=8_000)
    assert again.command_id != command.command_id


def test_a_held_out_adapter_s_command_says_so() -> None:
    drive = Drive(policy=book(experiment={"hold_share": 1.0}))
    drive.control(announced())
    used(drive, {"support@3": 9})
    (command,) = tick(drive, sample("r1", T0))
    assert (command.arm, command.unit) == ("hold", "support@2026-09-21")


def test_what_was_taken_back_is_not_loaded() -> None:
    drive = Drive()
    drive.control(announced())
    drive.control(announced(deleted=True))
    used(drive, {"support@3": 9})
    assert tick(drive, sample("r1", T0)) == []


@mock.patch("analytics.adapter_versions.MAX_VERSIONS", 4)
def test_a_flood_of_announcements_ends_what_its_own_scope_used_least_lately() -> None:
    drive = Drive()
    drive.control(announced("theirs", scope="t"))
    for number in range(3):
        drive.control(announced(f"a{number}", at=LONG_AGO + number))
    used(drive, {"a0@3": 9})
    for number in range(3, 6):
        drive.control(announced(f"a{number}", at=LONG_AGO + number))
    left = {known.name for known in drive.planner._adapters._versions}
    assert left == {"theirs", "a0", "a4", "a5"}
    drive.rebuild()
    assert {known.name for known in drive.planner._adapters._versions} == left


def test_a_pool_of_which_only_adapters_were_named_is_left_after_an_hour() -> None:
    drive = Drive()
    used(drive, {"support@3": 9})
    drive.run(3_700_000)
    assert drive.planner.blank
    assert drive.store.records == {}


# Uses


def counted(counts: dict[str, int], pane: int) -> tuple[Partial, Partial]:
    top = tuple(KeyCount(key, count, 1) for key, count in counts.items())
    full = Partial("s", "p", "adapter", 0, pane, pane + PANE_MS, 1, 1.0, 0.0, 1, 1, top)
    return full, Partial("s", "p", "adapter", 0, pane, pane + PANE_MS, 0, 0.0, 0.0, 0, 0, ())


def uses() -> AdapterUses:
    return AdapterUses(PANE_MS, 3_600_000, Section(MemoryMapStore(), ""))


def test_uses_are_spread_evenly_over_their_pane() -> None:
    found = uses()
    found.add(*counted({"a@1": 1}, 0))
    assert found.last_two_ms("s", "a@1") == (5_000,)
    found.add(*counted({"a@1": 1}, 20_000))
    assert found.last_two_ms("s", "a@1") == (5_000, 25_000)
    found.add(*counted({"a@1": 4}, 30_000))  # at 31,250, 33,750, 36,250 and 38,750
    assert found.last_two_ms("s", "a@1") == (36_250, 38_750)
    found.add(*counted({"a@2": 1}, 40_000))
    assert found.last_two_ms("s", "a@1", "a@2") == (38_750, 45_000)


def test_a_minute_is_six_panes_and_the_last_two_uses_are_kept_longer() -> None:
    found = uses()
    for pane in (0, 100_000, 110_000, 160_000):
        found.add(*counted({"a@1": 2}, pane))
    assert found.in_minute("s", "a@1", 170_000) == 4  # the panes of 110 s and 160 s
    assert found.in_minute("s", "a@1", 300_000) == 0
    assert found.last_two_ms("s", "a@1") == (162_500, 167_500)


# Recovery


events = st.one_of(
    st.tuples(
        st.just("use"),
        st.sampled_from(["a@1", "a@2", "b@1"]),
        st.integers(1, 9),
        st.sampled_from("st"),
        st.integers(0, 1),
    ),
    st.tuples(st.just("announce"), st.sampled_from(["1", "2"]), st.integers(-50, 50), st.sampled_from("st")),
    st.tuples(st.just("sample"), st.sampled_from(["r1", "r2"]), st.sets(st.sampled_from(["a@1", "a@2", "b@1"]))),
    st.tuples(st.just("visit"), st.sampled_from("st")),
    st.tuples(st.just("slots"), st.integers(0, 3)),
    st.tuples(st.just("crowd"), st.sampled_from(["a@1", "a@2", "b@1"]), st.integers(0, 40), st.sampled_from("st")),
    st.tuples(st.just("outcome"), st.floats(0, 0.99), st.sampled_from(["applied", "failed", "resident"])),
    st.tuples(st.just("run"), st.integers(1, 40)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=25), st.sets(st.integers(0, 25)))
def test_a_planner_with_adapters_rebuilt_anywhere_says_the_same(script: list[Any], crashes: set[int]) -> None:
    def run(crashes: set[int]) -> list[bytes]:
        bodies = {
            "adapter": {"repeat_ms": 5_000, "resident_ms": 20_000, "unload": True, "prefetch": True},
            "budget": {"adapter_slots": 2},
        }
        # Half an hour of people is ten seconds here, so that sessions end and habits form.
        config = PlanConfig(adapter_rule="tuned", time_scale=180, pane_ms=1_800_000)
        drive, issued, said = Drive(policy=book(**bodies), config=config), [], []
        for index, (kind, *rest) in enumerate(script):
            if index in crashes:
                drive.rebuild()
                items = list(drive.store.records.items())
                random.Random(index).shuffle(items)
                drive.store.records = dict(items)
                drive.planner = type(drive.planner)(drive.config, drive.pool, drive.store)
            if kind == "use":
                adapter, count, scope, ago = rest
                pane = (drive.now // PANE_MS - ago) * PANE_MS
                used(drive, {adapter: count}, pane, revision=index + 1, scope=scope)
            elif kind == "announce":
                version, offset, scope = rest
                replaces = "1" if version == "2" else None
                drive.control(announced("a", version, drive.now + offset * 1_000, scope=scope, replaces=replaces))
            elif kind == "visit":
                visited(drive, drive.now // PANE_MS * PANE_MS, index + 1, rest[0])
            elif kind == "slots":
                told = Policy(
                    scope=EVERY_SCOPE, section="budget", writer="test", version=index + 2, at_ms=1,
                    body={"adapter_slots": rest[0]},
                )  # fmt: skip
                drive.policy.apply(told)
            elif kind == "crowd":
                adapter, seconds, scope = rest
                gathered(drive, adapter, seconds * 1_000, scope)
            elif kind == "sample":
                replica, listed = rest
                drive.control(sample(replica, drive.now, *sorted(listed)))
            elif kind == "outcome" and issued:
                command = issued[int(rest[0] * len(issued))]
                drive.control(outcome(command, command.replicas.names[0], drive.now, rest[1]))
            elif kind == "run":
                issued += drive.run(rest[0] * 1_000)
        said = [encode(command) for command in issued] + [encode(insight) for insight in drive.insights]
        return [*said, *(key.encode() + blob for key, blob in sorted(drive.store.records.items()))]

    assert run(crashes) == run(set())


def test_an_adapter_s_announcement_is_heard_as_control() -> None:
    drive = Drive()
    assert drive.hear(seal(Tag.CONTROL, "p", encode(announced()))) == []
    assert drive.planner._adapters
