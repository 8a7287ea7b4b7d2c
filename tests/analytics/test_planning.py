"""The planner of a pool, driven as an operator drives it: envelopes in, a tick a second, commands out."""

import math
import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from analytics.budget import BucketRecord
from analytics.entropy import EntropySums
from analytics.envelopes import (
    Candidate,
    Candidates,
    Embedded,
    KeyCount,
    Partial,
    Root,
    Tag,
    body_of,
    key_of,
    seal,
    tag_of,
)
from analytics.experiments import assign, period_of
from analytics.focused import Focused
from analytics.plan_config import PlanConfig
from analytics.planners import planner_of
from analytics.policy import PolicyBook
from analytics.records import unpack
from analytics.stores import MemoryMapStore
from schemas import (
    EVERY_SCOPE,
    Announcement,
    Focus,
    OutcomeReason,
    Pattern,
    PlannerState,
    Policy,
    ReplicaSample,
    Residency,
    WarmupCommand,
    WarmupOutcome,
    decode,
    encode,
)
from schemas.canonical import bucket, command_id, outcome_id, query_sha256

T0 = 1_790_000_040_000
TICK = 1_000
ROOT = Root("m", "", "t", "", "")
REDIS = "redis:main"
FINGERPRINT = "f" * 32


def book(**sections):
    """Policies of every scope, all warm unless told otherwise."""
    found = PolicyBook()
    bodies = {"experiment": {"hold_share": 0}, "budget": {"prefill_share": 1.0}, **sections}
    for section, body in bodies.items():
        found.apply(
            Policy(scope=EVERY_SCOPE, section=section, writer="test", version=1, at_ms=1, body=dict(body or {}))
        )
    return found


class Drive:
    """A planner, its clock and what it said."""

    def __init__(self, pool="p", policy=None, config=None, store=None):
        self.store = store or MemoryMapStore()
        self.pool, self.config = pool, config or PlanConfig()
        self.policy = policy or book()
        self.planner = planner_of(self.config, pool, self.store)
        self.now = T0
        self.insights = []

    def rebuild(self):
        self.store = self.store.copy()
        self.planner = planner_of(self.config, self.pool, self.store)

    def hear(self, envelope, lag=0):
        return self._commands(self.planner.on_envelope(envelope, self.now, self.now + lag, self.policy))

    def control(self, message, lag=0):
        return self.hear(seal(Tag.CONTROL, self.pool, encode(message)), lag)

    def run(self, ms=TICK, samples=(), lag=0):
        """Ticks for so long, with a sample of these replicas in each second."""
        out = []
        end = self.now + ms
        while self.now < end:
            self.now += TICK
            for replica in samples:
                self.control(sample(replica, self.now))
            while self.planner.next_timer_ms is not None and self.planner.next_timer_ms <= self.now:
                at = self.planner.next_timer_ms
                out += self._commands(self.planner.on_timer(at, at + lag, self.policy))
        return out

    def _commands(self, envelopes):
        commands = []
        for envelope in envelopes:
            if tag_of(envelope) == Tag.COMMAND:
                command = decode(body_of(envelope), WarmupCommand)
                assert key_of(envelope) == f"{self.pool} {command.target_key}"
                commands.append(command)
            else:
                self.insights.append(decode(body_of(envelope), Focus, Pattern, PlannerState))
        return commands


def sample(replica, at, incarnation="i1", state="ready", block_tokens=16, blocks=None, queried=0, found=0):
    return ReplicaSample(
        replica=replica,
        pool="p",
        incarnation=incarnation,
        sampled_at_ms=at,
        state=state,
        block_tokens=block_tokens,
        blocks_total=blocks,
        prefix_query_tokens=queried,
        prefix_hit_tokens=found,
    )


def name(text):
    return query_sha256(text)


def candidate(*path, tokens=100, rate=0.005, p_asked=0.5, role=0):
    hashes = b"".join(bytes.fromhex(name("/".join(path[: i + 1]))) for i in range(len(path)))
    return Candidate(0, hashes, (tokens,) * len(path), bytes([role] * len(path)), name(path[0]), rate, p_asked, 3.0, T0)


def hot(*candidates, at=T0, scope="s", root=ROOT):
    return seal(Tag.CANDIDATES, "p", Candidates(scope, "p", at, (root,), candidates))


def outcome(command, replica, at, status="applied", reason=OutcomeReason.DONE, warmed=None):
    tokens = command.cost.tokens if warmed is None and status == "applied" else warmed or 0
    return WarmupOutcome(
        outcome_id=outcome_id(command.command_id, replica),
        command_id=command.command_id,
        target_key=command.target_key,
        action=command.action,
        scope=command.scope,
        pool=command.pool,
        replica=replica,
        unit=command.unit,
        arm=command.arm,
        status=status,
        reason=reason,
        finished_at_ms=at,
        tokens_warmed=tokens,
    )


def residency(command, replica, at, tokens, seq=1, incarnation="i1", full=None):
    return Residency(
        replica=replica,
        pool=command.pool,
        incarnation=incarnation,
        scope=command.scope,
        target_key=command.target_key,
        resident_tokens=tokens,
        full_tokens=full,
        seq=seq,
        observed_at_ms=at,
        source="events",
    )


def embedded(text, at, scope="s", trigger="second_sight"):
    return seal(Tag.EMBEDDED, REDIS, Embedded(scope, name(text), FINGERPRINT, 384, len(text), at, trigger))


def partial(counts, pane, shard=0, revision=1, scope="s", pool="p", dimension="query", key="p"):
    sums = EntropySums.of(counts.values())
    top = tuple(KeyCount(k, c, 1) for k, c in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))[:50])
    body = Partial(
        scope, pool, dimension, shard, pane, pane + 10_000, revision, sums.weight, sums.sum_clogc, sums.distinct, 1, top
    )
    return seal(Tag.PARTIAL, key, body)


def ready(drive, *replicas):
    for replica in replicas:
        drive.control(sample(replica, drive.now))


# The tick lane


def test_a_hot_prefix_becomes_a_command_that_tells_everything():
    drive = Drive()
    ready(drive, "r2", "r1")
    drive.hear(hot(candidate("sys", "q")))
    (command,) = drive.run()
    now = T0 + TICK
    assert command.target_key == f"prefix:{name('sys/q')}"
    assert [s.hash for s in command.target.segments] == [name("sys"), name("sys/q")]
    assert (command.target.tokens, command.target.model, command.target.segment_kind) == (200, "m", "message")
    assert (command.scope, command.tenant, command.pool, command.lane) == ("s", "s", "p", "tick")
    assert (command.issued_at_ms, command.not_before_ms, command.expires_at_ms) == (now, now, now + 30_000)
    assert command.command_id == command_id("s", "p", command.target_key, "warm", "1", bucket(now, 60_000), 1)
    assert (command.replicas.min, command.replicas.max, command.replicas.names) == (1, 2, ("r1", "r2"))
    assert (command.unit, command.arm, command.propensity, command.shadow) == (name("sys"), "warm", 1.0, False)
    assert command.reason.trigger == "hot_prefix"
    assert command.reason.evidence["replicas_ready"] == 2
    assert command.benefit.p_asked == 0.5
    assert 0.7 < command.benefit.p_absent < 0.75
    assert command.benefit.saved_ms == pytest.approx(10.0)
    assert drive.run(5_000, ["r1", "r2"]) == []


def test_roles_of_blocks_make_a_token_block_target():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a", role=5), root=Root("m", "lora@1", "", "", "salt")))
    (command,) = drive.run()
    assert command.target.segment_kind == "token_block"
    assert (command.target.adapter, command.target.render.salt_ref) == ("lora@1", "salt")


def test_applied_is_resident_until_its_time_is_over_minus_the_lead():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1"])
    drive.control(outcome(command, "r1", drive.now))
    seen = []
    for second in range(2, 180):
        drive.hear(hot(candidate("a"), at=drive.now))
        if drive.run(TICK, ["r1"]):
            seen.append(second)
            break
    assert seen == [1 + 115]


@pytest.mark.parametrize("status", ["failed", "expired"])
def test_a_failure_frees_the_target_in_the_next_bucket_with_the_next_attempt(status):
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1"])
    drive.control(outcome(command, "r1", drive.now, status, OutcomeReason.ENGINE_UNAVAILABLE))
    again = []
    while not again:
        drive.hear(hot(candidate("a"), at=drive.now))
        again = drive.run(TICK, ["r1"])
    first, second = bucket(command.issued_at_ms, 60_000), bucket(again[0].issued_at_ms, 60_000)
    assert second == first + 1
    assert again[0].issued_at_ms == second * 60_000
    assert again[0].command_id == command_id("s", "p", command.target_key, "warm", "1", second, 2)


def test_a_command_that_nobody_answered_counts_as_failed():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1"])
    again = []
    while not again:
        drive.hear(hot(candidate("a"), at=drive.now))
        again = drive.run(TICK, ["r1"])
    assert again[0].reason.evidence["attempt"] == 2
    assert again[0].issued_at_ms >= command.expires_at_ms


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("skipped", OutcomeReason.BELOW_BLOCK),
        ("failed", OutcomeReason.ENGINE_REFUSED),
        ("rejected", OutcomeReason.SALT_MISMATCH),
    ],
)
def test_what_is_refused_for_good_is_not_asked_again_at_once(status, reason):
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1"])
    drive.control(outcome(command, "r1", drive.now, status, reason))
    for _ in range(80):
        drive.hear(hot(candidate("a"), at=drive.now))
        assert drive.run(TICK, ["r1"]) == []


def test_a_prefix_whose_text_is_withheld_is_offered_ever_more_rarely():
    scale = 20
    drive = Drive(config=PlanConfig(time_scale=scale))
    ready(drive, "r1", "r2")
    issued = []
    for _ in range(6 * 3_600 // scale // 10):
        for _ in range(10):
            drive.hear(hot(candidate("a", tokens=5_000), at=drive.now))
            for command in drive.run(TICK, ["r1", "r2"]):
                issued.append(command.issued_at_ms)
                for replica in command.replicas.names:
                    drive.control(outcome(command, replica, drive.now, "skipped", OutcomeReason.CONTENT_MISSING))
        drive.rebuild()
    gaps = [(later - earlier) * scale / 1000 for earlier, later in pairwise(issued)]
    assert gaps[:8] == pytest.approx([120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600], abs=60 + 2 * scale)


def test_a_lost_prefix_without_content_rests_too():
    drive = Drive()
    ready(drive, "r1", "r2")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1", "r2"])
    drive.control(outcome(command, "r2", drive.now, "skipped", OutcomeReason.TEXT_WITHHELD))
    drive.control(outcome(command, "r1", drive.now, "skipped", OutcomeReason.TEXT_WITHHELD))
    drive.run(20_000, ["r1", "r2"])
    assert drive.control(residency(command, "r1", drive.now, 0)) == []


def test_only_replicas_that_lack_it_are_named_and_a_new_incarnation_lacks_everything():
    drive = Drive()
    ready(drive, "r1", "r2")
    drive.hear(hot(candidate("a", tokens=1000)))
    (command,) = drive.run(TICK, ["r1", "r2"])
    for replica in ("r1", "r2"):
        drive.control(outcome(command, replica, drive.now))
    drive.control(sample("r2", drive.now, incarnation="i2"))
    again = []
    while not again:
        drive.hear(hot(candidate("a", tokens=1000), at=drive.now))
        drive.now += TICK
        drive.control(sample("r1", drive.now))
        drive.control(sample("r2", drive.now, incarnation="i2"))
        drive.now -= TICK
        again = drive.run()
    assert again[0].replicas.names == ("r2",)


def test_copies_policy_bounds_the_replicas_that_hold_it_and_spreads_targets_over_them():
    drive = Drive(policy=book(plan={"copies": 2}))
    replicas = ("r1", "r2", "r3", "r4")
    ready(drive, *replicas)
    drive.hear(hot(*(candidate(f"c{i}") for i in range(12))))
    commands = drive.run(TICK, replicas)
    assert {(command.replicas.max, len(command.replicas.names)) for command in commands} == {(2, 2)}
    assert {name for command in commands for name in command.replicas.names} == set(replicas)
    for command in commands:
        for replica in command.replicas.names:
            drive.control(outcome(command, replica, drive.now))
    for _ in range(7):
        drive.hear(hot(*(candidate(f"c{i}") for i in range(12)), at=drive.now))
        assert drive.run(10_000, replicas) == [], "two copies are enough while they last"


def test_copies_of_a_prefix_go_to_other_zones_where_replicas_tell_theirs():
    drive = Drive(policy=book(plan={"copies": 2}))
    zone_of = {"r1": "a", "r2": "a", "r3": "a", "r4": "b", "r5": "b"}
    for replica, zone in zone_of.items():
        drive.control(structs.replace(sample(replica, drive.now), zone=zone))
    drive.rebuild()
    drive.hear(hot(*(candidate(f"c{i}", tokens=1_000) for i in range(12))))
    commands = drive.run()
    assert len(commands) == 12
    assert all({zone_of[name] for name in command.replicas.names} == {"a", "b"} for command in commands)
    assert len({command.replicas.names for command in commands}) > 2


def test_a_copy_is_worth_what_its_replica_would_miss():
    worth = {}
    for copies in (1, 2, 9):
        drive = Drive(policy=book(plan={"copies": copies}))
        ready(drive, "r1", "r2")
        drive.hear(hot(candidate("a", tokens=1_000)))
        (command,) = drive.run()
        worth[copies] = command
    densities = [command.reason.evidence["worth_density"] for command in worth.values()]
    assert densities == pytest.approx([densities[0]] * 3)
    assert worth[1].benefit.p_absent == pytest.approx(worth[2].benefit.p_absent / 2)


def test_a_command_names_what_is_under_way_that_it_needs():
    drive = Drive()
    ready(drive, "r1")
    change = Announcement(
        announcement_id="a" * 32,
        scope="s",
        pool="p",
        kind="adapter",
        name="lora",
        version="2",
        source="adapters/lora-2",
        at_ms=T0 + 30_000,
        announced_at_ms=T0,
    )
    drive.control(change)
    drive.hear(hot(candidate("a"), candidate("b"), root=Root("m", "lora@2", "", "", "")))
    commands = drive.run(TICK, ["r1"])
    (load,) = [command for command in commands if command.target_key == "adapter:lora@2"]
    assert load.after == ()
    assert [command.after for command in commands if command is not load] == [(load.command_id,)] * 2
    drive.control(outcome(load, "r1", drive.now))
    drive.hear(hot(candidate("c"), root=Root("m", "lora@2", "", "", ""), at=drive.now))
    assert [command.after for command in drive.run(TICK, ["r1"])] == [()]


def test_stale_sleeping_and_lost_replicas_are_not_warmed():
    drive = Drive()
    drive.control(sample("r1", drive.now, state="sleeping"))
    drive.control(sample("r2", drive.now - 60_000))
    drive.hear(hot(candidate("a")))
    assert drive.run(3_000) == []
    assert drive.insights[0].evidence["replicas_ready"] == 0


def test_a_prefix_below_the_replicas_block_is_left():
    drive = Drive()
    drive.control(sample("r1", drive.now, block_tokens=512))
    drive.hear(hot(candidate("a"), candidate("b", "c", tokens=300)))
    assert [c.cost.tokens for c in drive.run()] == [600]


def test_each_replica_gets_what_fills_a_block_of_its_own():
    drive = Drive()

    def sampled():
        drive.control(sample("r1", drive.now, block_tokens=512))
        drive.control(sample("r2", drive.now))

    sampled()
    drive.hear(hot(candidate("a", tokens=400), candidate("b", "c", tokens=300)))
    small, large = sorted(drive.run(), key=lambda command: command.cost.tokens)
    assert [command.replicas.names for command in (small, large)] == [("r2",), ("r1", "r2")]
    # A request for the small one meets the other replica every second time, where nothing can help it.
    assert small.benefit.p_absent == pytest.approx(large.benefit.p_absent / 2)
    drive.control(outcome(small, "r2", drive.now))
    drive.run(11_000)
    sampled()
    assert drive.control(residency(small, "r1", drive.now, 0)) == [], "it was never there"
    (again,) = drive.control(residency(small, "r2", drive.now, 0))
    assert (again.replicas.names, again.reason.trigger) == (("r2",), "lost_prefix")


def test_copies_are_counted_among_the_replicas_that_can_hold_them():
    drive = Drive(policy=book(plan={"copies": 2, "prefix_repeat_ms": 5_000, "prefix_life_ms": 2_000}))
    for replica, block_tokens in (("r1", 512), ("r2", 16), ("r3", 16), ("r4", 16)):
        drive.control(sample(replica, drive.now, block_tokens=block_tokens))
    drive.hear(hot(candidate("a")))
    (command,) = drive.run()
    assert len(command.replicas.names) == 2
    assert "r1" not in command.replicas.names


def test_how_long_replicas_keep_things_follows_from_their_capacity_and_traffic():
    """A hundred tokens a second come into sixteen thousand: what is asked for every 200 s is gone before."""

    def benefit_of(config, blocks):
        drive = Drive(config=config)
        for ago_s in range(1_200, -1, -10):
            for replica in ("r1", "r2"):
                drive.control(sample(replica, T0 - 1_000 * ago_s, blocks=blocks, queried=100 * (1_200 - ago_s)))
        drive.hear(hot(candidate("a", tokens=300, rate=0.005)))
        (command,) = drive.run(TICK, ["r1", "r2"])
        return command.benefit.p_absent, command.reason.evidence

    absent, evidence = benefit_of(PlanConfig(), 1_000)
    assert evidence["stay_shadow_ms"] == pytest.approx(160_000, rel=0.1)
    assert absent == pytest.approx(math.exp(-0.0025 * evidence["stay_ms"] / 1000))
    longer, _ = benefit_of(PlanConfig(), 2_000)
    assert longer == pytest.approx(absent**2, rel=0.1)
    untold, evidence = benefit_of(PlanConfig(), None)
    assert (untold, "stay_shadow_ms" in evidence) == (pytest.approx(math.exp(-0.3)), False)
    by_policy, evidence = benefit_of(PlanConfig(absent_rule="spec"), 1_000)
    assert (by_policy, evidence["stay_ms"]) == (untold, 120_000)


def test_priorities_follow_worth_and_stay_within_their_range():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(*(candidate(f"c{i}", p_asked=0.3 + i / 100) for i in range(20))))
    commands = drive.run()
    assert [c.benefit.p_asked for c in commands] == sorted((c.benefit.p_asked for c in commands), reverse=True)
    priorities = [c.priority for c in commands]
    assert priorities == sorted(set(priorities), reverse=True)
    uses = commands[0].benefit.p_asked * commands[0].benefit.p_absent
    assert priorities[0] == 999 + round(50 * math.log2(uses))
    drive.hear(hot(candidate("certain", p_asked=1.0, rate=0), candidate("hopeless", p_asked=0.001), at=drive.now))
    (certain,) = drive.run()
    assert certain.priority == 999


def test_a_lone_weak_prefix_does_not_go_before_a_strong_one_of_another_tick():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("strong", p_asked=0.9), candidate("middling", p_asked=0.5)))
    _, middling = drive.run()
    drive.hear(hot(candidate("weak", p_asked=0.3, tokens=500), at=drive.now))
    (weak,) = drive.run()
    assert weak.priority < middling.priority


def test_guaranteed_scopes_go_first():
    policy = book()
    policy.apply(Policy(scope="gold", section="plan", writer="t", version=1, at_ms=1, body={"qos": "guaranteed"}))
    drive = Drive(policy=policy)
    ready(drive, "r1")
    drive.hear(hot(candidate("a", p_asked=0.9)))
    drive.hear(hot(candidate("b", p_asked=0.4), scope="gold"))
    assert [(c.scope, c.qos) for c in drive.run()] == [("gold", "guaranteed"), ("s", "burstable")]


def test_time_scale_shortens_buckets_residency_and_savings_but_no_life_below_what_executors_need():
    drive = Drive(config=PlanConfig(time_scale=10))
    ready(drive, "r1")
    drive.hear(hot(candidate("a", tokens=100, rate=0.05)))
    (command,) = drive.run(TICK, ["r1"])
    assert command.benefit.saved_ms == pytest.approx(100 / 200_000 * 1000)
    assert command.expires_at_ms - command.issued_at_ms == 15_000
    at = command.issued_at_ms
    assert command.command_id == command_id("s", "p", command.target_key, "warm", "1", bucket(at, 6_000), 1)
    drive.control(outcome(command, "r1", drive.now))
    again = []
    while not again:
        drive.hear(hot(candidate("a", tokens=100, rate=0.05), at=drive.now))
        again = drive.run(TICK, ["r1"])
    assert 11_000 <= again[0].issued_at_ms - at <= 13_000


# Budgets


def spent(commands):
    return sum(c.cost.tokens * c.replicas.max for c in commands)


def test_prefill_stays_within_its_share_of_the_ready_replicas():
    policy = book(budget={"prefill_share": 0.01, "prefill_tokens_per_s": 20_000.0, "burst_ms": 10_000})
    drive = Drive(policy=policy)
    ready(drive, "r1", "r2")
    commands = []
    for step in range(120):
        if step % 10 == 0:
            drive.hear(hot(*(candidate(f"{step}-{i}", tokens=500) for i in range(60)), at=drive.now))
        commands += drive.run(TICK, ["r1", "r2"])
    rate = 0.01 * 20_000 * 2
    assert rate * 120 * 0.9 < spent(commands) <= rate * (120 + 10) + 1000


@pytest.mark.parametrize(("cold_start_share", "pool"), [(0.05, 0.04), (0.02, 0.03), (0.0, 0.02)])
def test_a_replica_that_came_back_is_warmed_at_a_larger_part_of_its_prefill(cold_start_share, pool):
    """For a minute, as long as it is cold; the pool's budget at most doubles."""
    drive = Drive(policy=book(budget={"prefill_share": 0.01, "cold_start_share": cold_start_share, "burst_ms": 10_000}))
    drive.run(120 * TICK, ["r1", "r2"])

    def paid(steps):
        commands = []
        for step in range(steps):
            if step % 10 == 0:
                drive.hear(hot(*(candidate(f"{drive.now}-{i}", tokens=500) for i in range(60)), at=drive.now))
            drive.control(sample("r2", drive.now + TICK, incarnation="i2"))
            commands += drive.run(TICK, ["r1"])
        return spent(commands)

    paid(1)  # what was saved up
    assert paid(55) == pytest.approx(20_000 * pool * 55, rel=0.15)
    paid(20)
    assert paid(50) == pytest.approx(20_000 * 0.02 * 50, rel=0.15)


def test_a_prefix_larger_than_the_bucket_is_paid_by_a_full_one_and_then_owed():
    drive = Drive(policy=book(budget={"prefill_share": 0.01, "burst_ms": 10_000}))
    ready(drive, "r1")
    drive.hear(hot(candidate("big", tokens=8_000, p_asked=0.9), candidate("small", p_asked=0.4)))
    assert [c.cost.tokens for c in drive.run(TICK, ["r1"])] == [8_000]
    late = []
    while not late:
        drive.hear(hot(candidate("small", p_asked=0.4), at=drive.now))
        late = drive.run(TICK, ["r1"])
    assert drive.now - T0 == pytest.approx((8_000 - 2_000 + 100) / 200 * 1000 + TICK, abs=2 * TICK)


def test_what_was_not_used_is_given_back():
    drive = Drive(policy=book(budget={"prefill_share": 0.01, "burst_ms": 10_000}))
    ready(drive, "r1")
    drive.hear(hot(candidate("big", tokens=8_000, p_asked=0.9), candidate("small", p_asked=0.4)))
    (command,) = drive.run(TICK, ["r1"])
    drive.control(outcome(command, "r1", drive.now, "resident", OutcomeReason.ALREADY_RESIDENT))
    assert [c.cost.tokens for c in drive.run(TICK, ["r1"])] == [100]


def test_a_scope_never_spends_another_ones_share():
    policy = book(budget={"prefill_share": 0.01, "burst_ms": 10_000})
    policy.apply(Policy(scope="a", section="quota", writer="t", version=1, at_ms=1, body={"share": 0.75}))
    drive = Drive(policy=policy)
    ready(drive, "r1")
    totals = defaultdict(int)
    for step in range(100):
        if step % 10 == 0:
            for scope in ("a", "b"):
                drive.hear(hot(*(candidate(f"{step}-{scope}-{i}") for i in range(40)), at=drive.now, scope=scope))
        for command in drive.run(TICK, ["r1"]):
            totals[command.scope] += command.cost.tokens
    assert totals["a"] == pytest.approx(0.75 * 200 * 110, rel=0.05)
    assert totals["b"] == pytest.approx(0.25 * 200 * 110, rel=0.05)


# Hold-out, shadow, freeze, catching up


def test_held_out_units_are_commanded_with_their_arm_and_look_warmed_to_the_planner():
    drive = Drive(policy=book(experiment={"hold_share": 0.5, "salt": "x"}))
    ready(drive, "r1")
    drive.hear(hot(*(candidate(f"u{i}", "q") for i in range(40))))
    commands = drive.run(TICK, ["r1"])
    arms = defaultdict(list)
    for command in commands:
        found = assign(command.unit, command.issued_at_ms, drive.policy.experiment("s"))
        assert (command.arm, command.propensity) == (found.arm, 0.5)
        arms[command.arm].append(command)
    assert min(len(arms["warm"]), len(arms["hold"])) > 8
    for command in arms["hold"]:
        drive.control(outcome(command, "r1", drive.now, "held_out", OutcomeReason.HELD_OUT))
    for command in arms["warm"]:
        drive.control(outcome(command, "r1", drive.now))
    for _ in range(70):
        drive.hear(hot(*(candidate(f"u{i}", "q") for i in range(40)), at=drive.now))
        assert drive.run(TICK, ["r1"]) == []


def test_the_period_is_the_day_of_event_time():
    assert period_of(T0) == "2026-09-21"
    assert period_of(T0 + 86_400_000) == "2026-09-22"


def test_shadow_commands_say_so():
    drive = Drive(policy=book(plan={"shadow": True}))
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    assert [c.shadow for c in drive.run()] == [True]


def test_a_frozen_scope_issues_nothing_in_either_lane():
    drive = Drive(policy=book(freeze={"reason": "harm"}))
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    assert drive.run(3_000, ["r1"]) == []
    assert drive.insights[-1].state == "frozen"
    redis = Drive(REDIS, policy=book(freeze={}))
    assert redis.hear(embedded("q", T0)) == []
    assert redis.run(3_000) == []


def test_while_event_time_lags_nothing_is_issued_and_the_insight_says_so():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    assert drive.run(2_000, ["r1"], lag=15_001) == []
    assert (drive.insights[0].state, drive.insights[0].lag_ms) == ("catching_up", 15_001)
    assert len(drive.run(1_000, ["r1"], lag=15_000)) == 1


def test_a_pool_that_only_had_requests_leaves_nothing_behind():
    drive = Drive()
    drive.hear(partial({"t": 3}, T0, dimension="template"))
    drive.hear(hot(candidate("a")))
    assert not drive.planner.blank
    drive.run(600_000)
    assert drive.planner.blank
    assert drive.store.records == {}


def test_a_pool_with_a_replica_is_kept():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    drive.run(600_000)
    assert drive.planner.next_timer_ms is None
    assert not drive.planner.blank


def test_a_planner_without_anything_to_plan_sets_no_timer():
    drive = Drive()
    ready(drive, "r1")
    assert drive.planner.next_timer_ms is None
    drive.hear(hot(candidate("a")))
    assert drive.planner.next_timer_ms == T0 + TICK
    drive.run(400_000)
    assert drive.planner.next_timer_ms is None


# The fast lane


def lost(drive, replica="r1", tokens=0, full=None):
    """A hot prefix, warmed and then lost, or cut down to some tokens."""
    ready(drive, "r1", "r2")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1", "r2"])
    for each in ("r1", "r2"):
        drive.control(outcome(command, each, drive.now))
    drive.run(12_000, ["r1", "r2"])
    return command, drive.control(residency(command, replica, drive.now, tokens, full=full))


def test_a_lost_hot_prefix_is_warmed_again_at_once_where_it_was_lost():
    command, (again,) = lost(drive := Drive())
    assert (again.lane, again.priority, again.reason.trigger) == ("fast", 999, "lost_prefix")
    assert again.replicas.names == ("r1",)
    assert again.command_id == command_id(
        "s", "p", command.target_key, "warm", "1", bucket(again.issued_at_ms, 60_000), 2
    )
    assert again.issued_at_ms == drive.now
    drive.control(outcome(again, "r1", drive.now))
    assert drive.control(residency(command, "r1", drive.now + 1, 0)) == []


def test_a_prefix_whose_shared_head_stayed_is_lost_all_the_same():
    _, (again,) = lost(Drive(), tokens=112, full=512)
    assert again.reason.trigger == "lost_prefix"
    assert again.replicas.names == ("r1",)


def test_a_prefix_that_lost_little_is_not_warmed_at_once_nor_promised_longer():
    drive = Drive()
    command, again = lost(drive, tokens=400, full=512)
    assert again == []
    held = drive.planner._memory.get("s", command.target_key)
    assert held.stays["r1"].until_ms < held.stays["r1"].seen_ms + 120_000
    drive.control(residency(command, "r1", drive.now + 1, 512, full=512))
    assert held.stays["r1"].until_ms == drive.now + 1 + 120_000


def test_a_lost_prefix_is_left_when_it_is_not_hot_or_not_wanted():
    drive = Drive(policy=book(plan={"rewarm": False}))
    assert lost(drive)[1] == []
    drive = Drive()
    command, _ = lost(drive)
    drive.hear(hot(candidate("b"), at=drive.now))
    assert drive.control(residency(command, "r2", drive.now, 0)) == []


def test_an_old_observation_does_not_undo_a_newer_one():
    drive = Drive()
    ready(drive, "r1")
    drive.hear(hot(candidate("a")))
    (command,) = drive.run(TICK, ["r1"])
    drive.control(residency(command, "r1", drive.now, 100))
    assert drive.control(residency(command, "r1", drive.now - 500, 0)) == []


def test_a_second_sight_is_warmed_at_once():
    drive = Drive(REDIS)
    (command,) = drive.hear(embedded("hello", T0))
    assert command.target.fingerprint == FINGERPRINT
    assert command.target_key == f"embedding:{FINGERPRINT}:{name('hello')}"
    assert (command.unit, command.lane, command.reason.trigger) == (name("hello"), "fast", "second_sight")
    assert (command.issued_at_ms, command.expires_at_ms) == (T0, T0 + 120_000)
    assert command.cost.bytes == 384 * 4 + 5
    assert command.replicas.names is None
    assert drive.hear(embedded("hello", T0 + 5)) == []


def test_fast_commands_wait_for_budget_and_go_out_in_order():
    drive = Drive(REDIS, policy=book(budget={"embeddings_per_s": 2.0, "burst_ms": 1000}))
    issued = [len(drive.hear(embedded(f"q{i}", T0))) for i in range(10)]
    assert sum(issued) == 2
    assert [len(drive.run()) for _ in range(5)] == [2, 2, 2, 2, 0]


def test_second_sight_can_be_switched_off():
    drive = Drive(REDIS, policy=book(plan={"second_sight": False}))
    assert drive.hear(embedded("q", T0)) == []
    assert drive.run(3_000) == []


def test_a_fast_command_that_came_while_catching_up_goes_out_afterwards():
    drive = Drive(REDIS)
    assert drive.hear(embedded("q", T0), lag=70_000) == []
    assert len(drive.run()) == 1


# Focus and scores


def minute_of(counts, minute, **kwargs):
    """The same counts in each of a minute's six panes."""
    return [partial(counts, minute * 60_000 + pane * 10_000, **kwargs) for pane in range(6)]


def falling(drive, redis=True):
    """Four minutes in which the crowd gathers on one query."""
    first = T0 // 60_000
    key = REDIS if redis else "p"
    for step, heavy in enumerate([4, 14, 60, 400]):
        drive.now = max(drive.now, (first + step) * 60_000)
        for envelope in minute_of({name("hot"): heavy, **{name(f"q{i}"): 4 for i in range(7)}}, first + step, key=key):
            drive.hear(envelope)
        drive.now = (first + step + 1) * 60_000 - TICK
        drive.run(TICK)


def test_both_spec_rules_report_a_crowd_with_its_keys():
    drive = Drive(REDIS, policy=book(focus={"rule": "spec"}))
    falling(drive)
    focus = [i for i in drive.insights if isinstance(i, Focus)]
    assert {i.rule for i in focus} == {"should_preheat", "entropy_only"}
    for insight in focus:
        assert insight.keys[0].key == name("hot")
        assert insight.dimension == "query"
        assert insight.evidence["named_share"] == 1.0
        assert insight.at_ms % 60_000 == 0
    final = focus[-1]
    assert final.keys[0].qps == pytest.approx(400 * 6 / 60)
    counts = [400] + [4] * 7
    assert final.entropy_bits == pytest.approx(EntropySums.of(counts).entropy_bits)


def test_a_gpu_pool_leaves_query_focus_to_the_redis_pool_when_there_is_one():
    drive = Drive("p", config=PlanConfig(redis_pool=REDIS), policy=book(focus={"rule": "spec"}))
    falling(drive, redis=False)
    assert not [i for i in drive.insights if isinstance(i, Focus)]
    assert not drive.store.records


def test_queries_of_a_focus_are_raised_and_scored_by_demand():
    drive = Drive(REDIS, policy=book(budget={"embeddings_per_s": 0.0}, focus={"rule": "spec"}))
    for text in ("hot", "q1"):
        drive.hear(embedded(text, T0))
    falling(drive)
    drive.policy.apply(
        Policy(scope=EVERY_SCOPE, section="budget", writer="test", version=2, at_ms=2, body={"embeddings_per_s": 9.0})
    )
    commands = drive.run(20_000)
    assert [c.target.query_sha256 for c in commands] == [name("hot")]
    assert commands[0].reason.trigger == "focus"
    assert (commands[0].reason.evidence["score"], commands[0].reason.evidence["boost"]) == (1.0, 2.0)


def focused(dimension, key, at, until, pool="p"):
    return seal(Tag.FOCUSED, pool, Focused("s", dimension, at, until, (key,), {"users": 120.0}))


def test_what_is_warmed_for_a_crowd_that_the_tuned_rule_found_says_so_while_it_lasts():
    drive = Drive(policy=book(plan={"prefix_repeat_ms": 10_000}))
    drive.run(samples=["r1"])
    drive.hear(focused("template", ROOT.template_sha, drive.now, drive.now + 20_000))
    drive.hear(hot(candidate("a", "b")))
    (command,) = drive.run(2_000, samples=["r1"])
    assert command.reason.trigger == "focus"
    assert command.reason.evidence["focus_users"] == 120.0
    drive.control(outcome(command, "r1", drive.now, "failed", OutcomeReason.STORE_UNAVAILABLE))
    later = drive.run(40_000, samples=["r1"])
    assert {each.reason.trigger for each in later if each.issued_at_ms > T0 + 25_000} == {"hot_prefix"}


def test_a_newer_focus_replaces_an_older_one_and_a_planner_forgets_it_when_it_is_over():
    drive = Drive(REDIS, policy=book(plan={"second_sight": False}))
    for text in ("a", "b"):
        drive.hear(embedded(text, T0))
    drive.run(16_000)
    first = T0 // 60_000
    for envelope in minute_of({name("a"): 9, name("b"): 9, name("c"): 1}, first, key=REDIS):
        drive.hear(envelope)
    drive.hear(focused("query", name("a"), drive.now, drive.now + 60_000, REDIS))
    drive.hear(focused("query", name("b"), drive.now - 1, drive.now + 50_000, REDIS))
    drive.rebuild()
    commands = drive.run(20_000)
    assert {c.target.query_sha256: c.reason.trigger for c in commands} == {name("a"): "focus", name("b"): "hot_query"}
    assert commands[0].target.query_sha256 == name("a")
    drive.run(60_000)
    assert not [key for key in drive.store.records if key.startswith("f")]


def test_a_later_revision_replaces_an_earlier_one_and_counts_arrivals_once():
    drive = Drive(REDIS)
    pane = T0 // 60_000 * 60_000
    drive.hear(partial({name("a"): 5}, pane, revision=5, key=REDIS))
    drive.hear(partial({name("a"): 8}, pane, revision=8, key=REDIS))
    drive.hear(partial({name("a"): 5}, pane, revision=5, key=REDIS))
    drive.hear(embedded("a", T0, trigger="focus"))
    assert drive.planner._queue.demand("s", name("a"), pane + 5_000) == pytest.approx(8)


# Recovery and determinism


def inputs(seed, redis, steps=120):
    """What an operator may hear and be woken for, as (kind, argument) pairs; outcomes answer earlier commands."""
    rng = random.Random(seed)
    now = T0
    plan = []
    calm = rng.choice([0.3, 0.6, 0.9])
    for _ in range(steps):
        kind = rng.random() / (2 * calm) if plan and rng.random() < calm else rng.random()
        if kind < 0.4:
            now += rng.choice([TICK, TICK, TICK, 5_000, 30_000])
            plan.append(("advance", now, rng.choice([0, 0, 0, 40_000])))
        elif kind < 0.55:
            plan.append(("outcome", rng.random(), rng.choice(["applied", "failed", "expired", "resident", "held_out"])))
        elif kind < 0.65:
            plan.append(("residency", rng.random(), rng.choice([0, 100])))
        elif kind < 0.75:
            tells = {"blocks": rng.choice([None, 50, 50]), "queried": 40 * len(plan), "found": 9 * len(plan)}
            tells["block_tokens"] = rng.choice([16, 16, 256])
            plan.append(("sample", rng.choice(["r1", "r2", "r3"]), rng.choice(["i1", "i1", "i1", "i2"]), tells))
        elif kind < 0.8:
            body = rng.choice([{"lead_ms": 1000}, {"copies": 1}, {"shadow": True}, {}])
            plan.append(("policy", rng.choice(["plan", "freeze"]), body))
        elif redis:
            text = f"q{rng.randint(0, 5)}"
            scope = rng.choice("st")
            if rng.random() < 0.5:
                plan.append(("envelope", embedded(text, now - rng.choice([0, 700, 9_000]), scope=scope)))
            else:
                counts = {name(f"q{i}"): rng.randint(1, 30) for i in range(rng.randint(1, 6))}
                pane = now // 10_000 * 10_000 - 10_000
                total = sum(counts.values())
                plan.append(("envelope", partial(counts, pane, rng.randint(0, 2), total, scope, key=REDIS)))
        else:
            names = rng.sample("abcdefgh", rng.randint(0, 5))
            found = [candidate(each, "x", p_asked=rng.choice([0.2, 0.4, 0.8])) for each in names]
            plan.append(("envelope", hot(*found, at=now, scope=rng.choice("stu"))))
    return plan


def drive_through(plan, redis, crashes=()):
    policy = book(
        budget={"prefill_share": 0.001, "embeddings_per_s": 0.2, "burst_ms": 5_000},
        plan={
            "prefix_repeat_ms": 10_000,
            "prefix_resident_ms": 25_000,
            "prefix_life_ms": 7_000,
            "embedding_repeat_ms": 20_000,
            "embedding_resident_ms": 30_000,
        },
        experiment={"hold_share": 0.3},
    )
    pool = REDIS if redis else "p"
    config = PlanConfig(candidates_life_ms=600_000, stale_ms=600_000, min_life_ms=100, rewarm_pause_ms=2_000)
    drive = Drive(pool, policy, config)
    raw, issued, live = [], [], {}
    watermark, version = T0, 1

    def took(envelopes):
        raw.extend(envelopes)
        for envelope in envelopes:
            if tag_of(envelope) == Tag.COMMAND:
                command = decode(body_of(envelope), WarmupCommand)
                issued.append(command)
                at, key = command.issued_at_ms, (command.scope, command.target_key)
                previous = live.get(key)
                assert previous is None or at >= previous.expires_at_ms, "two live commands of one target"
                live[key] = command

    for index, (kind, *rest) in enumerate(plan):
        if index in crashes:
            drive.rebuild()
            items = list(drive.store.records.items())
            random.Random(index).shuffle(items)
            drive.store.records = dict(items)
            drive.planner = planner_of(drive.config, pool, drive.store)
            policy = drive.policy = PolicyBook.of(policy.entries())
        planner = drive.planner
        if kind == "advance":
            watermark, lag = rest
            while planner.next_timer_ms is not None and planner.next_timer_ms <= watermark:
                at = planner.next_timer_ms
                took(planner.on_timer(at, at + lag, policy))
        elif kind == "policy":
            version += 1
            section, body = rest
            frozen = {"frozen": version % 3 == 0} if section == "freeze" else body
            policy.apply(Policy(scope="s", section=section, writer="t", version=version, at_ms=version, body=frozen))
        else:
            if kind == "envelope":
                envelope = rest[0]
            elif kind == "sample":
                envelope = seal(Tag.CONTROL, pool, encode(sample(rest[0], watermark, rest[1], **rest[2])))
            elif not issued:
                continue
            else:
                command = issued[int(rest[0] * len(issued))]
                replica = (command.replicas.names or (pool,))[0]
                if kind == "outcome":
                    message = outcome(command, replica, watermark, rest[1])
                    names = set(command.replicas.names or (pool,))
                    held = live.get((command.scope, command.target_key))
                    if held is command and (names == {replica} or rest[1] == "held_out"):
                        del live[command.scope, command.target_key]
                else:
                    message = residency(command, replica, watermark, rest[1], incarnation=(rest[1] and "i1") or "i1")
                envelope = seal(Tag.CONTROL, pool, encode(message))
            took(planner.on_envelope(envelope, watermark, watermark, policy))
        raw.append(str(planner.next_timer_ms).encode())
    return raw, drive.store.records


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000), redis=st.booleans(), crashes=st.sets(st.integers(0, 119), max_size=20))
def test_a_planner_rebuilt_at_any_point_goes_on_with_the_same_bytes(seed, redis, crashes):
    plan = inputs(seed, redis)
    whole, broken = drive_through(plan, redis), drive_through(plan, redis, crashes)
    assert whole[0] == broken[0]
    assert whole[1] == broken[1]


def test_the_same_input_gives_the_same_bytes():
    for redis in (False, True):
        plan = inputs(7, redis, 400)
        one, two = drive_through(plan, redis), drive_through(plan, redis)
        assert one == two
        assert any(envelope[:1] == bytes([Tag.COMMAND]) for envelope in one[0])


def test_what_a_lone_replica_still_holds_is_renewed_before_it_goes():
    """Half of the stay after its last use a prefix is touched, at the cost of a block, and then again."""
    drive = Drive(config=PlanConfig(renew_rule="tuned"))
    for ago_s in range(1_200, -1, -10):
        at = 1_200 - ago_s
        drive.control(sample("r1", T0 - 1_000 * ago_s, blocks=1_000, queried=100 * at, found=10 * at))
    drive.hear(hot(candidate("a", tokens=400, rate=0.01, p_asked=0.7)))
    found, queried = {}, 120_000
    for second in range(200):
        queried += 100
        drive.control(sample("r1", drive.now, blocks=1_000, queried=queried, found=queried // 10))
        if second % 30 == 29:
            drive.hear(hot(candidate("a", tokens=400, rate=0.01, p_asked=0.7), at=drive.now))
        for command in drive.run():
            found[drive.now - T0] = command
            drive.control(outcome(command, "r1", drive.now, "resident", OutcomeReason.ALREADY_RESIDENT))
    (first, command), (second, _) = found.items()
    stay = command.reason.evidence["stay_ms"]
    assert (command.reason.trigger, command.replicas.names) == ("renewed_prefix", ("r1",))
    assert stay / 2 <= first <= stay / 2 + 2 * TICK
    assert stay / 2 <= second - first <= stay / 2 + 3 * TICK
    assert 0 < command.benefit.p_absent < 1
    assert command.reason.evidence["margin_per_s"] == pytest.approx(10 / 16_000, rel=0.1)
    assert command.reason.evidence["worth_density"] > 0.1, "a block is cheap"


def test_what_a_renewal_had_to_compute_after_all_is_owed():
    def held_after(tokens):
        drive = Drive(config=PlanConfig(renew_rule="tuned"), policy=book(budget={"prefill_share": 0.01}))
        queried = 0
        for ago_s in range(1_200, -1, -10):
            queried = 100 * (1_200 - ago_s)
            drive.control(sample("r1", T0 - 1_000 * ago_s, blocks=1_000, queried=queried, found=queried // 10))
        drive.hear(hot(candidate("a", tokens=400, rate=0.01, p_asked=0.7)))
        drive.now += 110_000
        drive.control(sample("r1", drive.now, blocks=1_000, queried=queried + 11_000, found=queried // 10 + 1_100))
        drive.hear(hot(candidate("a", tokens=400, rate=0.01, p_asked=0.7), at=drive.now))
        (command,) = drive.run(TICK, ["r1"])
        assert command.reason.trigger == "renewed_prefix"
        drive.control(outcome(command, "r1", drive.now, "applied", warmed=tokens))
        (bucket,) = [blob for key, blob in drive.store.records.items() if key.startswith("y")]
        return unpack(bucket, BucketRecord).held

    assert held_after(200) - held_after(400) == 200
