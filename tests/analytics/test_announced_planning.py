import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from analytics.envelopes import Root
from analytics.plan_config import PlanConfig
from schemas import Announcement, Cancel, Model, OutcomeReason, Prefix, Segment, Value
from schemas.announcement import announcement_id
from schemas.canonical import cancel_key, h128, prefix_key
from tests.analytics.test_planning import REDIS, T0, Drive, book, candidate, hot, name, outcome, residency, sample

MINUTE = 60_000


def announcement(kind="prompt", at=T0 + MINUTE, scope="a", pool="p", name="support", version="8", **more):
    return Announcement(
        announcement_id=announcement_id(scope, pool, kind, name, version, at),
        scope=scope,
        pool=pool,
        kind=kind,
        name=name,
        version=version,
        at_ms=at,
        **{"announced_at_ms": T0, **more},
    )


SEGMENTS = (
    Segment(hash=h128("system"), tokens=600, role="system"),
    Segment(hash=h128("user"), tokens=20, role="user"),
)
PROMPT = {"segments": SEGMENTS, "model": "m"}


def drive(pool="p", replicas=("r1", "r2"), **more):
    found = Drive(pool=pool, **more)
    for replica in replicas:
        found.control(sample(replica, T0))
    return found


def test_a_prompt_is_warmed_on_every_replica_shortly_before_it_takes_effect():
    d = drive()
    assert d.control(announcement(**PROMPT)) == []
    assert d.run(29_000, samples=("r1", "r2")) == []
    (command,) = d.run(3_000, samples=("r1", "r2"))
    assert isinstance(command.target, Prefix)
    assert command.target.segments == SEGMENTS
    assert command.target_key == prefix_key(SEGMENTS[-1].hash)
    assert set(command.replicas.names) == {"r1", "r2"}
    assert (command.lane, command.reason.trigger, command.content_version) == ("fast", "announced", "8")


def test_strategy_template_leaves_the_users_words_out():
    d = drive()
    (command,) = d.control(announcement(at=T0 + 10_000, strategy="template", **PROMPT))
    assert command.target.segments == SEGMENTS[:1]


def test_telling_it_twice_is_telling_it_once_and_a_recovery_sends_the_same():
    d = drive()
    first = d.control(announcement(at=T0 + 10_000, **PROMPT))
    d.rebuild()
    assert len(first) == 1
    assert d.control(announcement(at=T0 + 10_000, **PROMPT)) == []
    assert d.run(3_000, samples=("r1", "r2")) == []


def test_what_was_taken_back_is_not_warmed():
    d = drive()
    d.control(announcement(**PROMPT))
    d.control(announcement(deleted=True, **PROMPT))
    assert d.run(2 * MINUTE, samples=("r1", "r2")) == []


def test_what_is_under_way_for_an_announcement_that_is_taken_back_is_cancelled():
    d = drive()
    told = announcement(at=T0 + 10_000, **PROMPT)
    (command,) = d.control(told)
    d.rebuild()
    (cancel,) = d.control(structs.replace(told, deleted=True))
    assert cancel.target == Cancel(command_ids=(command.command_id,))
    assert (cancel.target_key, cancel.action) == (cancel_key((command.command_id,)), "cancel")
    assert (cancel.pool, cancel.scope, cancel.arm, cancel.lane) == ("p", "a", "warm", "fast")
    assert (cancel.reason.trigger, cancel.priority) == ("withdrawn", 999)
    assert cancel.expires_at_ms >= command.expires_at_ms
    assert d.control(structs.replace(told, deleted=True)) == []
    for replica in ("r1", "r2"):
        d.control(outcome(command, replica, d.now, "cancelled", OutcomeReason.CANCELLED))
    d.control(outcome(cancel, "p", d.now))
    assert d.run(2 * MINUTE, samples=("r1", "r2")) == []


def test_what_is_moved_is_cancelled_and_warmed_at_its_new_time():
    d = drive(replicas=("r1",))
    first, later = announcement(at=T0 + 10_000, **PROMPT), announcement(at=T0 + 5 * MINUTE, **PROMPT)
    (command,) = d.control(first)
    (cancel,) = d.control(structs.replace(first, deleted=True))
    assert cancel.target == Cancel(command_ids=(command.command_id,))
    assert d.control(later) == []
    d.control(outcome(command, "r1", d.now, "cancelled", OutcomeReason.CANCELLED))
    assert d.run(4 * MINUTE, samples=("r1",)) == []
    (again,) = d.run(MINUTE, samples=("r1",))
    assert again.target_key == command.target_key
    assert again.command_id != command.command_id


def test_what_is_over_is_nobodys_or_another_announcement_wants_is_not_cancelled():
    told = announcement(at=T0 + 10_000, **PROMPT)
    taken_back = structs.replace(told, deleted=True)
    d = drive(replicas=("r1",))
    (command,) = d.control(told)
    d.control(outcome(command, "r1", d.now))
    assert d.control(taken_back) == [], "it is done"

    d = drive(replicas=("r1",))
    d.control(told)
    assert d.control(announcement(at=T0 + 10_000, name="twin", **PROMPT)) == []
    assert d.control(taken_back) == [], "its twin still waits for the same prefix"

    d = drive(replicas=("r1",))
    demand = candidate("a", tokens=2_000)
    segments = (Segment(hash=name("a"), tokens=2_000, role="system"),)
    (command,) = d.hear(hot(demand, scope="a")) + d.run(2_000, samples=("r1",))
    wanted = announcement(at=T0 + 10_000, segments=segments, model="m")
    assert d.control(wanted) == []
    assert d.control(structs.replace(wanted, deleted=True)) == [], "demand asked for it"


def test_an_events_values_that_are_under_way_are_cancelled_together_and_what_is_done_is_not():
    keys = tuple(f"sku:{n}" for n in range(20))
    d = Drive(pool=REDIS, policy=book(budget={"embeddings_per_s": 1e6}))
    told = announcement("event", pool=REDIS, name="sale", keys=keys, loader="prices", at=T0 + 3_600_000)
    commands = d.control(told)
    assert len(commands) == 20
    for command in commands[:5]:
        d.control(outcome(command, REDIS, d.now))
    (cancel,) = d.control(structs.replace(told, deleted=True))
    assert set(cancel.target.command_ids) == {command.command_id for command in commands[5:]}


def test_what_failed_is_tried_again_until_shortly_after_the_effect():
    d = drive(replicas=("r1",))
    (command,) = d.control(announcement(at=T0 + 10_000, **PROMPT))
    d.control(outcome(command, "r1", d.now, "failed", OutcomeReason.ENGINE_UNAVAILABLE))
    (again,) = d.run(2_000, samples=("r1",))
    assert again.target_key == command.target_key
    assert again.command_id != command.command_id


def test_a_new_model_is_probed_on_every_replica_when_it_answers_and_never_held_out():
    d = Drive(policy=book(experiment={"hold_share": 1.0}))
    for replica in ("r1", "r2"):
        d.control(sample(replica, T0))
    d.control(announcement("model", name="m2", version="2", replaces="m1", at=T0 + 5_000))
    assert d.run(4_000, samples=("r1", "r2")) == []
    probes = d.run(4_000, samples=("r1", "r2"))
    assert [(command.target, command.action, command.arm, command.replicas.names) for command in probes] == [
        (Model(model="m2", replica="r1"), "probe", "warm", ("r1",)),
        (Model(model="m2", replica="r2"), "probe", "warm", ("r2",)),
    ]
    for command, replica in zip(probes, ("r1", "r2"), strict=True):
        d.control(outcome(command, replica, d.now))
    assert d.run(20_000, samples=("r1", "r2")) == []


def test_full_model_wakes_what_sleeps_though_nothing_is_ready_and_what_was_woken_needs_no_probe():
    d = Drive()
    d.control(sample("r1", T0, state="sleeping"))
    (wake,) = d.control(announcement("model", name="m2", version="2", at=T0, strategy="full_model"))
    assert (wake.target, wake.action, wake.replicas.names) == (Model(model="m2", replica="r1"), "wake", ("r1",))
    assert wake.arm == "warm"
    d.rebuild()
    d.control(outcome(wake, "r1", d.now))
    assert d.run(20_000, samples=("r1",)) == []


def test_a_model_is_probed_where_it_is_awake_and_wakes_nobody_by_itself():
    for strategy, actions in ((None, ["probe"]), ("full_model", ["probe", "wake"])):
        d = drive(replicas=("r1",))
        d.control(sample("r2", T0, state="sleeping"))
        found = d.control(announcement("model", name="m2", version="2", at=T0, strategy=strategy))
        assert [command.action for command in found] == actions


def test_prefixes_of_the_old_model_are_not_offered_any_more():
    d = drive(replicas=("r1",))
    asked = hot(candidate("a", "b", tokens=2_000), scope="a")
    before = d.hear(asked) + d.run(2_000, samples=("r1",))
    assert len(before) == 1
    ended = drive(replicas=("r1",))
    ended.control(announcement("model", name="m2", version="2", replaces=before[0].target.model, at=T0 - 1))
    found = ended.hear(asked) + ended.run(2_000, samples=("r1",))
    assert [command for command in found if isinstance(command.target, Prefix)] == []


CHANGES = {
    "new weights": ("model", "m", {"model": "m", "replaces": "m"}),
    "another tokenizer": ("tokenizer", "tok", {"model": "m"}),
    "another tokenizer in a model's place": ("tokenizer", "tok", {"model": "m", "replaces": "tok-1"}),
}


@pytest.mark.parametrize(("kind", "named", "change"), CHANGES.values(), ids=CHANGES)
def test_what_is_asked_for_after_a_change_under_the_same_name_is_warmed_again(kind, named, change):
    d = drive(replicas=("r1",))
    d.control(announcement(kind, name=named, version="2", at=T0 + 5_000, **change))
    d.run(6_000, samples=("r1",))
    old = candidate("old", tokens=2_000)
    assert old.last_ms < T0 + 5_000
    found = d.hear(hot(old, at=d.now, scope="a")) + d.run(2_000, samples=("r1",))
    assert [command for command in found if isinstance(command.target, Prefix)] == []
    d.rebuild()
    asked_again = structs.replace(old, last_ms=d.now)
    found = d.hear(hot(asked_again, at=d.now, scope="a")) + d.run(2_000, samples=("r1",))
    (command,) = [command for command in found if isinstance(command.target, Prefix)]
    assert command.target.segments[0].hash == name("old")


@pytest.mark.parametrize("kind", ["tokenizer", "template", "model"])
def test_another_model_is_untouched_by_a_change(kind):
    d = drive(replicas=("r1",))
    d.control(announcement(kind, name="x2", version="2", at=T0 - 1, model="x2", replaces="x1"))
    found = d.hear(hot(candidate("a", tokens=2_000), scope="a")) + d.run(2_000, samples=("r1",))
    assert [command for command in found if isinstance(command.target, Prefix)] != []


@pytest.mark.parametrize(("model", "over"), [(None, True), ("m", True), ("other", False)])
def test_prefixes_of_the_old_template_are_not_offered_any_more_and_nothing_is_probed(model, over):
    d = drive(replicas=("r1",))
    d.control(announcement("template", name="t2", version="2", at=T0 - 1, replaces="t", model=model))
    roots = {template: Root("m", "", template, "", "") for template in ("t", "t2")}
    found = [
        command
        for template, root in roots.items()
        for command in d.hear(hot(candidate(template, tokens=2_000), at=d.now, scope="a", root=root))
        + d.run(2_000, samples=("r1",))
    ]
    offered = {command.target.render.template_sha for command in found}
    assert offered == ({"t2"} if over else {"t", "t2"})


def test_a_lost_prefix_of_the_old_model_is_not_warmed_again():
    for change, warmed in (({"name": "m2", "replaces": "m"}, 0), ({"name": "x2", "replaces": "x"}, 1)):
        d = drive(replicas=("r1",))
        asked = hot(candidate("a", tokens=2_000), scope="a")
        (command,) = d.hear(asked) + d.run(2_000, samples=("r1",))
        d.control(outcome(command, "r1", d.now))
        d.run(20_000, samples=("r1",))
        d.control(announcement("model", version="2", at=d.now - 1, **change))
        assert len(d.control(residency(command, "r1", d.now, 0))) == warmed


def test_a_tokenizer_is_probed_under_the_name_of_its_model_and_not_without_one():
    for model, probed in (("m", ["m"]), (None, [])):
        d = drive(replicas=("r1",))
        found = d.control(announcement("tokenizer", name="tok", version="2", at=T0, model=model))
        assert [command.target.model for command in found] == probed


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_an_events_values_come_in_tiers_with_at_most_32_of_the_first_under_way(scale):
    keys = tuple(f"sku:{n}" for n in range(180))
    d = Drive(pool=REDIS, policy=book(budget={"embeddings_per_s": 1e6}), config=PlanConfig(time_scale=scale))
    event = announcement("event", pool=REDIS, name="sale", keys=keys, loader="prices", at=T0 + int(3_600_000 / scale))
    first = d.control(event)
    assert [command.target for command in first] == [
        Value(key=key, loader="prices", ttl_ms=900_000) for key in keys[:32]
    ]
    for command in first:
        d.control(outcome(command, REDIS, d.now))
    seen = list(first)
    for _ in range(10):
        fresh = d.run(1_000)
        for command in fresh:
            d.control(outcome(command, REDIS, d.now))
        seen += fresh
    named = [command.target.key for command in seen]
    assert [key for key in named if key in keys[:100]] == list(keys[:100])
    assert [key for key in named if key in keys[100:]] == list(keys[100:])
    assert len(named) == len(keys)


@pytest.mark.parametrize(
    ("strategy", "coverage", "cost"), [("hot_top_n", 0.25, 10), ("sampled", None, None), ("full_snapshot", 1.0, 40)]
)
def test_a_values_command_tells_what_its_strategy_covers_and_costs(strategy, coverage, cost):
    keys = tuple(f"sku:{n}" for n in range(40))
    d = Drive(pool=REDIS, policy=book(schedule={"top": 10, "sample_share": 0.5}, budget={"embeddings_per_s": 1e6}))
    event = announcement("event", pool=REDIS, keys=keys, loader="prices", at=T0, strategy=strategy)
    found = d.control(event) + d.run(10_000)
    assert found
    evidence = [command.reason.evidence for command in found]
    if strategy == "sampled":
        assert 0.2 < evidence[0]["coverage"] < 0.8
        coverage, cost = evidence[0]["coverage"], 40 * evidence[0]["coverage"]
    assert {(each["coverage"], each["cost"]) for each in evidence} == {(coverage, cost)}


def snapshot(at, version="1", keys=("a", "b", "c"), told=T0, **more):
    more = {"announced_at_ms": told, "ttl_ms": 86_400_000, "loader": "flags", "strategy": "full_snapshot", **more}
    return announcement("event", pool=REDIS, name="flags", version=version, at=at, keys=keys, **more)


def all_fetched(d, found):
    """Runs until nothing more is asked for, answers every command, and tells what was asked for and its cost."""
    asked = []
    while found:
        for command in found:
            d.control(outcome(command, REDIS, d.now))
        asked += [(command.target.key, command.reason.evidence["cost"]) for command in found]
        found = d.run(5_000)
    return asked


def test_a_second_snapshot_fetches_what_the_first_did_not_and_another_version_everything():
    d = Drive(pool=REDIS)
    assert all_fetched(d, d.control(snapshot(T0 + 1_000))) == [("a", 3), ("b", 3), ("c", 3)]
    d.run(10 * MINUTE)
    d.rebuild()
    second = d.control(snapshot(d.now + 1_000, keys=("a", "b", "c", "new")))
    d.rebuild()
    assert all_fetched(d, second) == [("new", 1)]
    d.run(10 * MINUTE)
    third = d.control(snapshot(d.now + 1_000, version="2", keys=("a", "b"), told=d.now))
    assert all_fetched(d, third) == [("a", 2), ("b", 2)]


def test_two_versions_that_stand_announced_do_not_chase_each_other():
    d = Drive(pool=REDIS)
    (first,) = d.control(snapshot(T0 + 60_000, keys=("a",)))
    d.run(1_000)
    assert d.control(snapshot(T0 + 60_000, version="2", keys=("a",), told=d.now)) == []
    d.control(outcome(first, REDIS, d.now))
    (second,) = d.run(2_000)
    d.control(outcome(second, REDIS, d.now))
    assert (first.content_version, second.content_version) == ("1", "2")
    assert d.run(MINUTE) == []


def test_a_snapshot_fetches_again_what_would_not_last_or_failed():
    d = Drive(pool=REDIS)
    assert len(all_fetched(d, d.control(snapshot(T0, keys=("a", "b"), ttl_ms=600_000)))) == 2
    d.run(5 * MINUTE)
    assert [key for key, _ in all_fetched(d, d.control(snapshot(d.now + 20 * MINUTE, keys=("a", "b"))))] == ["a", "b"]
    other = Drive(pool=REDIS)
    a, b = other.control(snapshot(T0, keys=("a", "b")))
    other.control(outcome(a, REDIS, other.now))
    other.control(outcome(b, REDIS, other.now, "failed", OutcomeReason.ENGINE_UNAVAILABLE))
    other.control(snapshot(T0, keys=("a", "b"), deleted=True))
    assert [key for key, _ in all_fetched(other, other.control(snapshot(T0 + 20 * MINUTE, keys=("a", "b"))))] == ["b"]


def test_values_are_fetched_again_after_half_of_their_life_until_the_event():
    d = Drive(pool=REDIS)
    found = d.control(announcement("event", pool=REDIS, keys=("sku:1",), loader="prices", at=T0 + 3_600_000))
    d.control(outcome(found[0], REDIS, d.now))
    for _ in range(40):
        fresh = d.run(30_000)
        for command in fresh:
            d.control(outcome(command, REDIS, d.now))
        found += fresh
    assert 3 <= len(found) <= 4, "20 minutes are 2.7 half lives of 7.5 minutes"
    assert len({command.command_id for command in found}) == len(found)


def told_at_random(rng, redis):
    """What is announced, taken back, answered and sampled, as steps of an operator's day."""
    told, now, steps = [], T0, []
    for _ in range(60):
        kind = rng.choice(("tell", "take back", "answer", "answer", "sample", "advance", "advance"))
        if kind == "tell":
            at, version = now + rng.randrange(-5_000, 90_000), rng.choice("12")
            if redis:
                keys = tuple(rng.sample("abcdefgh", 4))
                told.append(snapshot(at, version, keys, now, strategy=rng.choice(("full_snapshot", "hot_top_n"))))
            elif rng.random() < 0.5:
                told.append(announcement("prompt", at, version=version, announced_at_ms=now, **PROMPT))
            else:
                kind, strategy = rng.choice(("model", "tokenizer")), rng.choice((None, "full_model"))
                told.append(announcement(kind, at, model="m", replaces="m", announced_at_ms=now, strategy=strategy))
            steps.append(("tell", told[-1]))
        elif kind == "take back" and told:
            steps.append(("tell", structs.replace(rng.choice(told), deleted=True, announced_at_ms=now)))
        elif kind == "answer":
            steps.append(("answer", (rng.random(), rng.choice(("applied", "applied", "failed", "cancelled")))))
        elif kind == "sample":
            steps.append(("sample", (rng.choice(("r1", "r2")), rng.choice(("ready", "ready", "sleeping")))))
        else:
            now += rng.choice((1_000, 4_000, 20_000))
            steps.append(("advance", now))
    return steps


def said(steps, redis, crashing):
    d, commands = Drive(pool=REDIS if redis else "p"), []
    for kind, what in steps:
        if crashing:
            d.rebuild()
        if kind == "tell":
            commands += d.control(what)
        elif kind == "answer" and commands:
            share, status = what
            command = commands[int(share * len(commands))]
            d.control(outcome(command, (command.replicas.names or (d.pool,))[0], d.now, status))
        elif kind == "sample":
            d.control(sample(what[0], d.now, state=what[1]))
        elif kind == "advance":
            commands += d.run(what - d.now)
    return commands


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_a_planner_rebuilt_from_its_store_says_the_same_of_announcements(seed, redis):
    steps = told_at_random(random.Random(seed), redis)
    assert said(steps, redis, crashing=True) == said(steps, redis, crashing=False)
