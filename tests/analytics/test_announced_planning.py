import pytest

from analytics.plan_config import PlanConfig
from schemas import Announcement, Model, OutcomeReason, Prefix, Segment, Value
from schemas.announcement import announcement_id
from schemas.canonical import h128, prefix_key
from tests.analytics.test_planning import REDIS, T0, Drive, book, candidate, hot, outcome, sample

MINUTE = 60_000


def announcement(kind="prompt", at=T0 + MINUTE, scope="a", pool="p", name="support", version="8", **more):
    return Announcement(
        announcement_id=announcement_id(scope, pool, kind, name, version, at),
        scope=scope,
        pool=pool,
        kind=kind,
        name=name,
        version=version,
        announced_at_ms=T0,
        at_ms=at,
        **more,
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


def test_prefixes_of_the_old_model_are_not_offered_any_more():
    d = drive(replicas=("r1",))
    asked = hot(candidate("a", "b", tokens=2_000), scope="a")
    before = d.hear(asked) + d.run(2_000, samples=("r1",))
    assert len(before) == 1
    ended = drive(replicas=("r1",))
    ended.control(announcement("model", name="m2", version="2", replaces=before[0].target.model, at=T0 - 1))
    found = ended.hear(asked) + ended.run(2_000, samples=("r1",))
    assert [command for command in found if isinstance(command.target, Prefix)] == []


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
