"""Candidates from clusters: the planner of a Redis pool hears of groups and warms what is embedded but not resident."""

import pytest

from analytics.clustered import Clustered, LiveCluster
from analytics.envelopes import Tag, seal
from analytics.experiments import assign, period_of
from analytics.policy import PolicyBook
from schemas import EVERY_SCOPE, Policy
from schemas.canonical import arm
from tests.analytics.test_planning import REDIS, T0, Drive, book, embedded, name, outcome, partial

QUIET = {"second_sight": False}
"""No query is warmed for its own second sight, so that what comes is the cluster's."""


def group(*texts, cluster_id="c" * 32, mass=60.0, growth=0.0):
    """A group whose medoid is the first of these queries."""
    return LiveCluster(cluster_id, tuple(map(name, texts)), len(texts), mass, growth, mass / 300)


def clustered(*groups, at=T0, scope="s", until=None):
    until_ms = at + 60_000 if until is None else until
    return seal(Tag.CLUSTERED, REDIS, Clustered(scope, at, until_ms, "f" * 32, groups))


def told(drive, *texts, scope="s"):
    """Has these queries embedded."""
    for text in texts:
        assert drive.hear(embedded(text, drive.now, scope)) == []


def quiet(**sections):
    return Drive(pool=REDIS, policy=book(plan={**QUIET, **sections.pop("plan", {})}, **sections))


def test_members_of_a_massive_group_that_are_embedded_become_commands_that_say_why():
    drive = quiet()
    told(drive, "a", "b")
    drive.hear(clustered(group("a", "b", "c", mass=60, growth=0.25)))
    commands = drive.run(10_000)
    assert {command.target.query_sha256 for command in commands} == {name("a"), name("b")}  # c has no vector
    assert {command.unit for command in commands} == {name("a")}
    for command in commands:
        assert (command.reason.trigger, command.lane, command.action) == ("cluster", "tick", "warm")
        evidence = command.reason.evidence
        assert (evidence["mass"], evidence["growth"], evidence["size"]) == (60, 0.25, 3)
        # 60 requests in five minutes, over three queries alike, two minutes ahead
        assert command.benefit.p_asked == pytest.approx(1 - 2.718281828459045 ** (-60 / 300 / 3 * 120))
    assert drive.run(30_000) == []


def test_like_queries_are_those_of_the_last_groups_of_the_same_scope():
    drive = quiet()
    alike = drive.planner._clusters.alike
    assert alike("s", name("a")) == ()
    drive.hear(clustered(group("a", "b"), group("c", "d", cluster_id="d" * 32)))
    assert alike("s", name("b")) == (name("a"), name("b"))
    assert alike("other", name("b")) == ()
    drive.hear(clustered(group("b", "c"), at=T0 + 1))
    assert (alike("s", name("a")), alike("s", name("c"))) == ((), (name("b"), name("c")))
    drive.hear(clustered(at=T0 + 2))
    assert alike("s", name("c")) == ()


@pytest.mark.parametrize(
    ("mass", "growth", "warmed"), [(60, -0.5, True), (12, 0.6, True), (12, 0.2, False), (6, 5.0, False)]
)
def test_a_group_is_a_candidate_when_it_is_massive_or_growing(mass, growth, warmed):
    drive = quiet()
    told(drive, "a")
    drive.hear(clustered(group("a", mass=mass, growth=growth)))
    assert bool(drive.run(10_000)) == warmed


def test_what_is_resident_or_was_commanded_lately_is_left():
    drive = Drive(pool=REDIS)
    (fast,) = drive.hear(embedded("a", drive.now))  # its own second sight
    drive.control(outcome(fast, REDIS, drive.now))
    drive.hear(clustered(group("a", "b")))
    assert drive.run(60_000) == []


def test_a_query_that_is_hot_itself_says_so():
    drive = quiet()
    told(drive, "a", "b")
    drive.hear(partial({name("a"): 30}, T0, pool="p", key=REDIS))
    drive.hear(clustered(group("b", "a")))
    assert {c.target.query_sha256: c.reason.trigger for c in drive.run(10_000)} == {
        name("a"): "hot_query",
        name("b"): "cluster",
    }


def test_a_sampled_first_sight_is_warmed_as_a_member_of_a_group_only_until_it_is_seen_again():
    drive = Drive(pool=REDIS)
    assert drive.hear(embedded("a", drive.now, trigger="first_sight")) == []
    drive.hear(partial({name("a"): 1}, T0, pool="p", key=REDIS))
    assert drive.run(20_000) == []
    drive.rebuild()
    drive.hear(clustered(group("a", "b"), at=drive.now))
    (command,) = drive.run(10_000)
    assert (command.reason.trigger, command.target.query_sha256) == ("cluster", name("a"))
    other = Drive(pool=REDIS)
    other.hear(embedded("a", other.now, trigger="first_sight"))
    (fast,) = other.hear(embedded("a", other.now))
    assert fast.reason.trigger == "second_sight"
    assert other.hear(embedded("a", other.now, trigger="first_sight")) == []


def test_groups_end_when_they_are_taken_back_or_nobody_stands_for_them():
    for end in (lambda drive: drive.hear(clustered(at=T0 + 1)), lambda drive: drive.run(60_000)):
        drive = quiet()
        drive.hear(clustered(group("a"), at=T0))
        end(drive)
        assert not [key for key in drive.store.records if key.startswith("c")]
        told(drive, "a")
        assert drive.run(20_000) == []


def test_older_groups_do_not_replace_newer_ones():
    drive = quiet()
    told(drive, "a", "b")
    drive.hear(clustered(group("a"), at=T0 + 5))
    drive.hear(clustered(group("b"), at=T0))
    assert [command.target.query_sha256 for command in drive.run(10_000)] == [name("a")]


@pytest.mark.parametrize("off", [{"plan": {"clusters": False}}, {"freeze": {"frozen": True}}])
def test_policy_turns_it_off(off):
    drive = quiet(**off)
    told(drive, "a")
    drive.hear(clustered(group("a")))
    assert drive.run(20_000) == []


def test_budget_is_shared_with_all_other_embeddings():
    drive = quiet(budget={"embeddings_per_s": 0.1, "burst_ms": 20_000})
    texts = [f"q{n}" for n in range(8)]
    told(drive, *texts)
    drive.hear(clustered(group(*texts), until=T0 + 600_000))
    commands = drive.run(60_000)
    assert len(commands) == 2 + 6 - 1  # a full bucket, then one in ten seconds


def test_no_command_names_a_query_of_another_scope():
    drive = quiet()
    told(drive, "theirs", scope="t")
    drive.hear(clustered(group("theirs", "ours"), scope="s"))
    assert drive.run(20_000) == []


def test_the_unit_is_the_medoid_and_a_query_that_is_held_out_itself_stays_so():
    share = 0.5
    drive = quiet(experiment={"hold_share": share, "salt": "x"})
    policy = drive.policy.experiment("s")
    texts = [f"question {n}" for n in range(40)]
    medoid = next(text for text in texts if assign(name(text), T0, policy).arm == "warm")
    members = [medoid, *(text for text in texts if text != medoid)]
    told(drive, *members)
    drive.hear(clustered(group(*members)))
    commands = {command.target.query_sha256: command for command in drive.run(10_000)}
    assert len(commands) == 40
    for text in members:
        command = commands[name(text)]
        own = arm(name(text), "x", period_of(T0), share)
        assert command.arm == own  # the medoid is warmed: only the query's own hold-out holds it
        assert command.unit == (name(text) if own == "hold" else name(medoid))
    assert {command.arm for command in commands.values()} == {"warm", "hold"}


def test_a_held_out_medoid_holds_its_whole_group():
    drive = quiet(experiment={"hold_share": 0.5, "salt": "x"})
    policy = drive.policy.experiment("s")
    texts = [f"question {n}" for n in range(40)]
    medoid = next(text for text in texts if assign(name(text), T0, policy).arm == "hold")
    members = [medoid, *(text for text in texts if text != medoid)]
    told(drive, *members)
    drive.hear(clustered(group(*members)))
    assert {command.arm for command in drive.run(10_000)} == {"hold"}


def test_a_rebuilt_planner_goes_on_with_its_groups_and_leaves_nothing_when_they_are_gone():
    outputs = []
    for rebuild in (False, True):
        drive = quiet()
        told(drive, "a", "b", "c")
        drive.hear(clustered(group("a", "b", mass=12, growth=0.0), group("c", cluster_id="d" * 32)))
        if rebuild:
            drive.rebuild()
        commands = drive.run(10_000)
        if rebuild:
            drive.rebuild()
        drive.hear(clustered(group("a", "b", mass=24, growth=1.0), at=drive.now))
        commands += drive.run(20_000)
        outputs.append([command.command_id for command in commands])
        assert {command.target.query_sha256 for command in commands} == {name("a"), name("b"), name("c")}
    assert outputs[0] == outputs[1]


def test_a_gpu_pool_has_no_clusters():
    drive = Drive(pool="p", policy=PolicyBook())
    drive.policy.apply(Policy(scope=EVERY_SCOPE, section="plan", writer="t", version=1, at_ms=1, body={}))
    assert drive.hear(clustered(group("a"))) == []
    assert drive.planner.next_timer_ms is None
