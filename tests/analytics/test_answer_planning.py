"""The planner of a Redis pool hears of rewards and answers: scores at once, responses into the cache, bad ones out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.clustered import Clustered, LiveCluster
from analytics.envelopes import Answered, Rewarded, Tag, body_of, seal, tag_of
from analytics.plan_config import PlanConfig
from analytics.planners import planner_of
from analytics.policy import PolicyBook
from analytics.stores import MemoryMapStore
from schemas import (
    EVERY_SCOPE,
    Announcement,
    Focus,
    OutcomeReason,
    PlannerState,
    Policy,
    Response,
    Score,
    WarmupCommand,
    decode,
    encode,
)
from schemas.announcement import announcement_id
from schemas.canonical import arm, bucket, command_id, query_sha256, response_key
from tests.analytics.test_planning import FINGERPRINT, REDIS, T0, TICK, book, embedded, outcome, partial

QUERY = query_sha256("reset my password")
KEY = response_key("answers", QUERY)


class Drive:
    """The Redis pool's planner, its clock and everything that it said."""

    def __init__(self, policy: PolicyBook | None = None, store: MemoryMapStore | None = None) -> None:
        self.policy = policy or book()
        self.store = store or MemoryMapStore()
        self.planner = planner_of(PlanConfig(redis_pool=REDIS), REDIS, self.store)
        self.now = T0
        self.scores: list[Score] = []
        self.states: list[PlannerState] = []
        self.said: list[bytes] = []
        self.issued: list[WarmupCommand] = []

    def rebuild(self) -> None:
        self.store = self.store.copy()
        self.planner = planner_of(PlanConfig(redis_pool=REDIS), REDIS, self.store)

    def hear(self, envelope: bytes, lag: int = 0) -> list[WarmupCommand]:
        return self._take(self.planner.on_envelope(envelope, self.now, self.now + lag, self.policy))

    def run(self, ms: int, lag: int = 0) -> list[WarmupCommand]:
        out = []
        for now in range(self.now + TICK, self.now + ms + 1, TICK):
            self.now = now
            while self.planner.next_timer_ms is not None and self.planner.next_timer_ms <= self.now:
                at_ms = self.planner.next_timer_ms
                out += self._take(self.planner.on_timer(at_ms, at_ms + lag, self.policy))
        return out

    def demand(self, count: int = 3, scope: str = "s", text: str = "reset my password") -> None:
        self.hear(partial({query_sha256(text): count}, T0, scope=scope, key=REDIS))

    def vector(self, scope: str = "s", text: str = "reset my password") -> list[WarmupCommand]:
        return self.hear(embedded(text, self.now, scope))

    def answer(self, name: str = "x", scope: str = "s", model: str = "m", template: str = "t@1") -> None:
        response = query_sha256(name)
        told = Answered(scope, QUERY, response, response, model, "", template, "v7", self.now)
        assert self.hear(seal(Tag.ANSWER, REDIS, told)) == []

    def reward(self, share: float, count: int = 1, name: str = "x", scope: str = "s", domain: str = "", lag: int = 0):
        micro = round(share * 1_000_000) * count
        response = query_sha256(name)
        counted, weighed = (micro, count, 0, 0, micro, count), (4 * micro, 4 * count, 0, 0, 4 * micro, 4 * count)
        told = Rewarded(scope, QUERY, response, domain, self.now, *counted, *weighed)
        return self.hear(seal(Tag.REWARDED, REDIS, told), lag)

    def ended(self, status: str = "applied", reason: OutcomeReason = OutcomeReason.DONE) -> None:
        """What became of the last command."""
        if self.issued:
            told = outcome(self.issued[-1], "redis", self.now, status, reason)
            assert self.hear(seal(Tag.CONTROL, REDIS, encode(told))) == []

    def responses(self, commands: list[WarmupCommand]) -> list[WarmupCommand]:
        return [command for command in commands if isinstance(command.target, Response)]

    def hot(self, share: float = 0.9) -> WarmupCommand:
        """A query with everything that a Response command needs, and that command."""
        self.demand()
        self.vector()
        self.answer()
        self.reward(share)
        (command,) = self.responses(self.run(20_000))
        return command

    def _take(self, envelopes: list[bytes]) -> list[WarmupCommand]:
        self.said += envelopes
        commands = []
        for envelope in envelopes:
            if tag_of(envelope) == Tag.COMMAND:
                commands.append(decode(body_of(envelope), WarmupCommand))
                self.issued.append(commands[-1])
                continue
            message = decode(body_of(envelope), Score, PlannerState, Focus)
            if isinstance(message, Score):
                self.scores.append(message)
            elif isinstance(message, PlannerState):
                self.states.append(message)
        return commands


def test_a_reward_is_told_as_a_score_at_once_by_the_formula():
    drive = Drive()
    drive.demand(4)
    drive.now += 3_000
    drive.reward(0.8, domain="e-commerce")
    (score,) = drive.scores
    assert (score.scope, score.query_sha256, score.rule, score.alpha, score.rewards) == ("s", QUERY, "spec", 0.85, 1)
    assert (score.reward, score.demand) == (0.8, 1.0)
    assert score.score == pytest.approx(0.85 * 0.8 + 0.15)
    assert score.reward_at_ms == drive.now == score.at_ms


def test_a_score_is_told_even_where_no_request_is_known_yet_and_while_event_time_lags():
    drive = Drive()
    assert drive.reward(0.5, lag=3_600_000) == []
    (score,) = drive.scores
    assert (score.demand, score.score) == (0.0, pytest.approx(0.35))


def test_a_well_rewarded_answer_of_a_hot_query_becomes_a_response_command_that_tells_everything():
    drive = Drive()
    command = drive.hot(0.9)
    now = command.issued_at_ms
    assert command.target == Response(
        cache="answers",
        fingerprint=FINGERPRINT,
        query_sha256=QUERY,
        response_ref=query_sha256("x"),
        model="m",
        template_version="t@1",
        semantic_version="v7",
        reward=0.9,
        until_ms=now + 1_800_000,
    )
    assert (command.target_key, command.action, command.lane, command.pool) == (KEY, "warm", "tick", REDIS)
    assert command.command_id == command_id("s", REDIS, KEY, "warm", "1", bucket(now, 600_000), 1)
    assert (command.unit, command.arm, command.scope) == (QUERY, "warm", "s")
    assert command.benefit.reward == 0.9
    assert command.reason.trigger == "rewarded_answer"
    assert command.reason.evidence["judgements"] == 1
    assert drive.states[-1].evidence["answers_known"] == 1


def test_by_the_tuned_rule_one_good_reward_is_no_proof_and_more_of_them_are():
    drive = Drive(book(score={"rule": "tuned"}))
    drive.demand()
    drive.vector()
    drive.answer()
    drive.reward(1.0)
    assert drive.responses(drive.run(20_000)) == []
    assert (drive.scores[-1].rule, drive.scores[-1].reward) == ("tuned", pytest.approx(2 / 3))
    drive.reward(1.0, 6)
    (command,) = drive.responses(drive.run(20_000))
    assert (command.action, command.benefit.reward) == ("warm", 1.0)
    drive.reward(0.5, 12)
    assert drive.responses(drive.run(20_000)) == []  # not so good as to be put there, not so bad as to be taken out
    (gone,) = drive.responses(drive.reward(0.4, 20))
    assert gone.action == "invalidate"


def test_by_the_tuned_rule_what_like_queries_earned_speaks_for_an_answer_until_it_is_judged_itself():
    drive = Drive(book(score={"rule": "tuned"}))
    drive.demand()
    drive.vector()
    drive.answer()
    others = [query_sha256(f"{number} resets") for number in range(5)]
    for other in others:
        earned = (5_000_000, 5, 5_000_000, 5, 0, 0)
        weighed = (20_000_000, 20, 20_000_000, 20, 0, 0)
        drive.hear(seal(Tag.REWARDED, REDIS, Rewarded("s", other, "", "", drive.now, *earned, *weighed)))
    group = LiveCluster("c" * 32, (QUERY, *others), 6, 60.0, 0.0, 0.2)
    drive.hear(seal(Tag.CLUSTERED, REDIS, Clustered("s", drive.now, drive.now + 600_000, "f" * 32, (group,))))
    drive.rebuild()
    drive.reward(0.9)
    (command,) = drive.responses(drive.run(20_000))
    assert command.action == "warm"
    (gone,) = drive.responses(drive.reward(0.1, 8))
    assert gone.action == "invalidate"


@pytest.mark.parametrize("lacking", ["demand", "vector", "answer", "reward"])
def test_without_any_one_of_demand_vector_answer_and_reward_there_is_none(lacking):
    drive = Drive()
    for part in ("demand", "vector", "answer"):
        if part != lacking:
            getattr(drive, part)()
    if lacking != "reward":
        drive.reward(0.9)
    assert drive.responses(drive.run(40_000)) == []


def test_below_the_floor_or_judged_too_seldom_or_not_hot_enough_it_stays_out():
    assert Drive().hot(0.5)
    for share, policy in (
        (0.49, book()),
        (0.9, book(score={"judgements": 2})),
        (0.9, book(score={"reward_floor": 0.95})),
        (0.6, book(score={"answer_score": 0.9})),
        (0.9, book(plan={"responses": False})),
        (0.9, book(freeze={"frozen": True})),
    ):
        drive = Drive(policy)
        drive.demand()
        drive.vector()
        drive.answer()
        drive.reward(share)
        assert drive.responses(drive.run(20_000)) == []


def test_of_several_good_answers_the_best_one_is_taken_and_kept_while_it_is_good():
    drive = Drive()
    drive.demand()
    drive.vector()
    for name, share in (("x", 0.8), ("y", 0.95), ("z", 0.3)):
        drive.answer(name)
        drive.reward(share, name=name)
    (command,) = drive.responses(drive.run(20_000))
    assert command.target.response_ref == query_sha256("y")
    drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(command, "redis", drive.now))))
    drive.answer("w")
    drive.reward(1.0, name="w")
    assert drive.responses(drive.run(30_000)) == []


def test_the_entry_is_renewed_shortly_before_its_absolute_end_while_the_query_is_hot():
    drive = Drive()
    command = drive.hot()
    drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(command, "redis", drive.now))))
    again: list[WarmupCommand] = []
    while not again:
        drive.hear(partial({QUERY: 3}, drive.now // 10_000 * 10_000, key=REDIS))
        drive.reward(0.9)
        again = drive.responses(drive.run(10_000))
    assert command.target.until_ms - 5_000 - 10_000 <= again[0].issued_at_ms <= command.target.until_ms
    assert again[0].content_version == "1"
    assert again[0].target.until_ms == again[0].issued_at_ms + 1_800_000


def test_held_out_answers_are_commanded_for_their_arm_and_taken_back_all_the_same():
    policy = book(experiment={"hold_share": 1.0})
    drive = Drive(policy)
    command = drive.hot()
    assert (command.arm, command.propensity) == ("hold", 1.0)
    (invalidation,) = drive.reward(0.1, 2)
    assert (invalidation.action, invalidation.arm, invalidation.propensity) == ("invalidate", "warm", 1.0)


def test_unit_and_arm_are_those_of_the_query_whatever_is_warmed_for_it():
    policy = book(experiment={"hold_share": 0.5, "salt": "s"})
    drive = Drive(policy)
    command = drive.hot()
    assert command.arm == arm(QUERY, "s", "2026-09-21", 0.5)


def test_a_response_that_is_judged_badly_is_taken_back_at_once_with_an_id_of_its_own():
    drive = Drive()
    command = drive.hot()
    assert drive.reward(0.5, 2) == []
    drive.now += 300
    (gone,) = drive.reward(0.45, 3)
    assert (gone.action, gone.lane, gone.priority, gone.target_key) == ("invalidate", "fast", 999, KEY)
    assert gone.target.response_ref == command.target.response_ref
    assert gone.target.fingerprint == FINGERPRINT
    assert gone.content_version == "2" != command.content_version
    assert gone.command_id not in ("", command.command_id)
    assert gone.issued_at_ms == drive.now
    assert gone.reason.trigger == "bad_reward"
    numbers = {"reward": 0.45, "judgements": 3.0, "worth_density": 0.0, "attempt": 2.0, "tries": 1.0}
    assert gone.reason.evidence == numbers
    assert drive.reward(0.4, 4) == []
    drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(gone, "redis", drive.now))))
    assert drive.responses(drive.run(700_000)) == []


def test_one_bad_judgement_does_not_count_where_policy_wants_more():
    drive = Drive(book(score={"judgements": 3}))
    drive.demand()
    drive.vector()
    drive.answer()
    drive.reward(0.9, 3)
    assert drive.responses(drive.run(20_000))
    assert drive.reward(0.3, 2) == []
    assert [command.action for command in drive.reward(0.3, 3)] == ["invalidate"]


def test_a_floor_that_policy_raises_holds_for_what_is_in_the_cache_already():
    drive = Drive()
    drive.hot(0.8)
    body = {"reward_floor": 0.85}
    drive.policy.apply(Policy(scope="s", section="score", writer="w", version=1, at_ms=1, body=body))
    (gone,) = drive.responses(drive.run(20_000))
    assert (gone.action, gone.reason.trigger) == ("invalidate", "bad_reward")


def test_the_next_best_answer_takes_the_place_of_a_bad_one_when_that_is_out():
    drive = Drive()
    drive.hot()
    drive.answer("y")
    drive.reward(0.8, name="y")
    (gone,) = drive.reward(0.1, 2)
    assert drive.responses(drive.run(10_000)) == []
    drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(gone, "redis", drive.now))))
    (command,) = drive.responses(drive.run(20_000))
    assert command.target.response_ref == query_sha256("y")
    assert command.content_version == "3"


def test_a_withdrawal_waits_for_event_time_but_not_for_budget():
    drive = Drive(book(budget={"embeddings_per_s": 1.0, "burst_ms": 1_000}))
    drive.hot()
    assert drive.reward(0.1, 2, lag=3_600_000) == []
    assert drive.responses(drive.run(2_000, lag=3_600_000)) == []
    (gone,) = drive.responses(drive.run(TICK))
    assert gone.action == "invalidate"


def test_a_freeze_holds_answers_back_but_lets_a_bad_one_be_taken_out():
    drive = Drive()
    drive.hot()
    drive.policy.apply(Policy(scope="s", section="freeze", writer="w", version=1, at_ms=1, body={"frozen": True}))
    drive.answer("y")
    drive.reward(0.9, name="y")
    (gone,) = drive.reward(0.1, 2)
    assert (gone.action, gone.target.response_ref) == ("invalidate", query_sha256("x"))
    drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(gone, "redis", drive.now))))
    assert drive.responses(drive.run(20_000)) == []
    drive.policy.apply(Policy(scope="s", section="freeze", writer="w", version=2, at_ms=2, body={"frozen": False}))
    (command,) = drive.responses(drive.run(20_000))
    assert (command.action, command.target.response_ref) == ("warm", query_sha256("y"))


def replaced(drive, kind, **fields):
    """The command that takes an answer out of the cache once a change of that kind is in effect."""
    at_ms = drive.now + 5_000
    change = Announcement(
        announcement_id=announcement_id("s", "gpu", kind, "new", "2", at_ms),
        scope="s",
        pool="gpu",
        kind=kind,
        name="new",
        version="2",
        announced_at_ms=drive.now,
        at_ms=at_ms,
        **fields,
    )
    drive.hear(seal(Tag.CONTROL, REDIS, encode(change)))
    (gone,) = drive.responses(drive.run(20_000))
    assert (gone.action, gone.reason.trigger) == ("invalidate", "replaced")
    return gone


def test_answers_of_a_replaced_model_or_template_leave_the_cache_and_do_not_come_back():
    for kind, old in (("model", "m"), ("template", "t@1")):
        drive = Drive()
        drive.hot()
        gone = replaced(drive, kind, replaces=old)
        drive.answer()
        drive.reward(0.9, 2)
        drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(gone, "redis", drive.now))))
        assert drive.responses(drive.run(30_000)) == []


def test_answers_from_before_a_change_under_the_same_name_leave_the_cache_and_later_ones_may_enter():
    for kind, more in (("model", {"replaces": "m"}), ("tokenizer", {})):
        drive = Drive()
        drive.hot()
        gone = replaced(drive, kind, model="m", **more)
        drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(gone, "redis", drive.now))))
        drive.answer()
        drive.reward(0.9, 2)
        again = drive.responses(drive.run(60_000))
        assert [command.action for command in again[:1]] == ["warm"]


def test_what_one_scope_earned_and_answered_is_nothing_to_another():
    drive = Drive()
    for scope in ("s", "other"):
        drive.demand(scope=scope)
        drive.vector(scope)
    drive.answer("x")
    drive.reward(0.9)
    (command,) = drive.responses(drive.run(20_000))
    assert (command.scope, command.target.response_ref) == ("s", query_sha256("x"))
    drive.answer("theirs", scope="other")
    drive.reward(0.9, name="theirs", scope="other")
    (theirs,) = drive.responses(drive.run(20_000))
    assert (theirs.scope, theirs.target.response_ref) == ("other", query_sha256("theirs"))
    (gone,) = drive.reward(0.0, 2, name="theirs", scope="other")
    assert gone.scope == "other"
    assert drive.responses(drive.run(20_000)) == []


def test_a_pool_of_replicas_does_not_hear_of_rewards():
    drive = Drive()
    drive.planner = planner_of(PlanConfig(), "gpu", drive.store)
    assert drive.reward(0.9) == []
    assert drive.scores == []


def test_what_nobody_judges_any_more_is_forgotten_and_leaves_nothing_behind():
    drive = Drive()
    drive.hot()
    drive.run(3_900_000)
    assert not [key for key in drive.store.records if key[0] in "ar"]
    drive.run(7_200_000)
    assert drive.planner.next_timer_ms is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("demand"), st.sampled_from(["s", "other"])),
        st.tuples(st.just("vector"), st.sampled_from(["s", "other"])),
        st.tuples(st.just("answer"), st.sampled_from(["x", "y", "z"]), st.sampled_from(["s", "other"])),
        st.tuples(
            st.just("reward"),
            st.sampled_from([0.0, 0.4, 0.5, 0.9, 1.0]),
            st.integers(1, 4),
            st.sampled_from(["x", "y", "z"]),
            st.sampled_from(["s", "other"]),
        ),
        st.tuples(st.just("run"), st.sampled_from([TICK, 10_000, 40_000, 620_000])),
        st.tuples(st.just("freeze"), st.booleans()),
        st.tuples(st.just("ended"), st.sampled_from(["applied", "failed", "expired"])),
    ),
    max_size=25,
)


def _live(script, rule: str, crashes: bool) -> list[bytes]:
    drive = Drive(book(experiment={"hold_share": 0.3}, score={"rule": rule}, plan={"response_life_ms": 20_000}))
    group = LiveCluster("c" * 32, (QUERY, query_sha256("resets")), 2, 60.0, 0.0, 0.2)
    drive.hear(seal(Tag.CLUSTERED, REDIS, Clustered("s", drive.now, drive.now + 60_000, "f" * 32, (group,))))
    for number, (kind, *arguments) in enumerate(script, 1):
        if kind == "demand":
            drive.hear(partial({QUERY: number}, drive.now, scope=arguments[0], key=REDIS, revision=number))
        elif kind == "freeze":
            body = {"frozen": arguments[0]}
            drive.policy.apply(Policy(scope="s", section="freeze", writer="w", version=number, at_ms=1, body=body))
        else:
            getattr(drive, kind)(*arguments)
        if crashes:
            drive.rebuild()
    drive.run(20_000)
    return drive.said


@settings(max_examples=25, deadline=None)
@given(STEPS, st.sampled_from(["spec", "tuned"]))
def test_a_planner_that_dies_after_every_step_says_the_same(script, rule):
    assert _live(script, rule, crashes=True) == _live(script, rule, crashes=False)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_no_answer_is_commanded_twice_in_an_interval_nor_ever_below_the_floor(script):
    drive = Drive()
    warmed = set()
    earned: dict[tuple[str, str], float] = {}
    for number, (kind, *arguments) in enumerate(script, 1):
        commands = []
        if kind == "demand":
            drive.hear(partial({QUERY: number}, drive.now, scope=arguments[0], key=REDIS, revision=number))
        elif kind == "run":
            commands = drive.run(*arguments)
        elif kind == "reward":
            share, _, name, scope = arguments
            earned[scope, query_sha256(name)] = share
            commands = drive.reward(*arguments)
        elif kind != "freeze":
            getattr(drive, kind)(*arguments)
        assert len({command.command_id for command in drive.issued}) == len(drive.issued)
        for command in drive.responses(commands):
            place = (command.scope, command.target.response_ref)
            assert (command.action == "warm") == (earned[place] >= 0.5)
            if command.action == "warm":
                interval = (*place, command.content_version, bucket(command.issued_at_ms, 600_000))
                assert interval not in warmed
                warmed.add(interval)


def test_every_scope_s_policy_may_be_named_by_the_star():
    drive = Drive()
    body = {"reward_floor": 0.95}
    drive.policy.apply(Policy(scope=EVERY_SCOPE, section="score", writer="w", version=1, at_ms=1, body=body))
    drive.demand()
    drive.vector()
    drive.answer()
    drive.reward(0.9)
    assert drive.responses(drive.run(20_000)) == []


def test_an_answer_that_the_executor_does_not_find_or_take_rests_for_as_long_as_it_would_have_stayed():
    for reason in (OutcomeReason.ANSWER_MISSING, OutcomeReason.BELOW_REWARD_FLOOR):
        drive = Drive()
        command = drive.hot()
        drive.hear(seal(Tag.CONTROL, REDIS, encode(outcome(command, "redis", drive.now, "skipped", reason))))
        again: list[WarmupCommand] = []
        while not again:
            drive.hear(partial({QUERY: 3}, drive.now // 10_000 * 10_000, key=REDIS))
            drive.answer()
            drive.reward(0.9)
            again = drive.responses(drive.run(10_000))
        assert again[0].issued_at_ms - command.issued_at_ms == pytest.approx(1_800_000, abs=20_000)


def test_an_answer_that_cannot_be_served_makes_way_for_the_next_best_and_needs_no_withdrawal():
    drive = Drive()
    command = drive.hot()
    drive.answer("y")
    drive.reward(0.6, name="y")
    missing = outcome(command, "redis", drive.now, "skipped", OutcomeReason.ANSWER_MISSING)
    drive.hear(seal(Tag.CONTROL, REDIS, encode(missing)))
    assert drive.reward(0.1, 2) == []
    again: list[WarmupCommand] = []
    while not again:
        drive.hear(partial({QUERY: 3}, drive.now // 10_000 * 10_000, key=REDIS))
        drive.reward(0.6, name="y")
        drive.rebuild()
        again = drive.responses(drive.run(10_000))
    assert again[0].target.response_ref == query_sha256("y")
