"""Whether a replica's cache is warm, and what counts as hot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from executor.hot_mass import REPLICAS_BOUND, HotMass, Mass
from executor.warmth import Warmth, WarmthRule
from schemas import OutcomeReason, Prefix, Reason, Replicas, Segment, WarmupCommand, WarmupOutcome
from schemas.canonical import outcome_id

SETTLE, PATIENCE, STAY = 15_000, 120_000, 200_000
RULE = WarmthRule(share=0.8, patience_ms=PATIENCE, settle_ms=SETTLE)
DAY = 10**12
"""A wall time to begin at."""


def metrics(served: float = 0, tokens: int = 0, sleeping: bool | None = None) -> EngineMetrics:
    return EngineMetrics(
        running=0,
        waiting=0,
        kv_usage=0.0,
        prefix_query_tokens=0,
        prefix_hit_tokens=0,
        preemptions=0,
        rejections=0,
        prompt_tokens=tokens,
        sleeping=sleeping,
        blocks_total=None,
        block_tokens=None,
        ttft_s=Histogram((1.0,), (served, served)),
    )


def command(key: int, *names: str, at: int = DAY, tokens: int = 100, life: int = STAY, **fields) -> WarmupCommand:
    values = {
        "command_id": f"{key:032x}",
        "scope": "acme",
        "tenant": "acme",
        "pool": "gpu",
        "target": Prefix(model="m", segments=(Segment("b" * 32, tokens),)),
        "target_key": f"prefix:{key}",
        "replicas": Replicas(names=names or None),
        "priority": 1,
        "lane": "tick",
        "issued_at_ms": at,
        "not_before_ms": at,
        "expires_at_ms": at + life,
        "reason": Reason(trigger="t"),
        "unit": "u",
        **fields,
    }
    return WarmupCommand(**values)


def outcome(key: int, replica: str, at: int, status="applied", reason="done", tokens: int = 96, **fields):
    values = {
        "outcome_id": outcome_id(f"{key:032x}", replica),
        "command_id": f"{key:032x}",
        "target_key": f"prefix:{key}",
        "scope": "acme",
        "pool": "gpu",
        "replica": replica,
        "unit": "u",
        "status": status,
        "reason": OutcomeReason(reason),
        "finished_at_ms": at,
        "tokens_warmed": tokens,
        **fields,
    }
    return WarmupOutcome(**values)


class Town:
    """Replicas a, b and c of one pool, at a time that a test sets."""

    def __init__(self, rule: WarmthRule = RULE) -> None:
        self.ended: set[str] = set()
        self.mass = HotMass(lambda _: STAY, self.ended.__contains__, bound=1_000)
        self.warmth = Warmth(rule, self.mass)

    def warm(self, replica: str, keys, at: int, **fields) -> None:
        for key in keys:
            self.mass.heard(outcome(key, replica, at, **fields))

    def asks(self, at: int, replica: str = "a", drains: bool = False, others=("b", "c")) -> tuple[bool, str]:
        verdict = self.warmth.verdict(replica, others, drains, at)
        return verdict.warm, verdict.why

    def comes(self, at: int = DAY, replica: str = "a") -> None:
        """It was seen loading, and then to answer."""
        self.warmth.looked(replica, None, at - 1_000)
        self.warmth.looked(replica, metrics(), at)


def test_a_replica_comes_up_cold_and_is_warm_once_a_share_of_its_siblings_hot_mass_is_there() -> None:
    town = Town()
    town.warm("b", range(10), DAY - 50_000)
    town.warm("c", range(5), DAY - 50_000)
    town.comes()
    assert town.asks(DAY + 1_000) == (False, "it is not known yet what is hot")
    assert town.asks(DAY + SETTLE) == (False, "0 of 960 hot tokens are there")
    town.warm("a", range(7), DAY + 20_000)
    assert town.asks(DAY + 20_000) == (False, "672 of 960 hot tokens are there")
    town.warm("a", [7], DAY + 21_000)
    assert town.asks(DAY + 21_000) == (True, "768 of 960 hot tokens are there")


def test_what_the_planner_asks_for_there_counts_where_siblings_are_warm_by_their_traffic() -> None:
    town = Town()
    town.comes()
    for key in range(4):
        town.mass.asked(command(key, "a", at=DAY + 5_000))
    town.warm("a", range(3), DAY + 9_000)
    assert town.asks(DAY + SETTLE) == (False, "288 of 388 hot tokens are there")
    town.warm("a", [3], DAY + SETTLE)
    assert town.asks(DAY + SETTLE) == (True, "384 of 384 hot tokens are there")


def test_patience_ends_whatever_is_missing() -> None:
    town = Town()
    town.warm("b", range(10), DAY + 50_000)
    town.comes()
    assert town.asks(DAY + PATIENCE - 1) == (False, "0 of 960 hot tokens are there")
    assert town.asks(DAY + PATIENCE) == (True, "waited for 120 s: 0 of 960 hot tokens are there")


def test_patience_that_is_shorter_than_what_there_is_to_know_goes_first() -> None:
    town = Town(WarmthRule(0.8, patience_ms=0, settle_ms=SETTLE))
    town.comes()
    assert town.asks(DAY) == (True, "waited for 0 s: it is not known yet what is hot")


@pytest.mark.parametrize("others", [("b", "c"), ()])
def test_where_nothing_is_hot_it_is_warm_after_a_short_while(others) -> None:
    town = Town()
    town.comes()
    assert town.asks(DAY + SETTLE - 1, others=others)[0] is False
    assert town.asks(DAY + SETTLE, others=others) == (True, "nothing is hot")


def test_once_warm_it_stays_so_while_what_is_hot_changes() -> None:
    town = Town()
    town.comes()
    assert town.asks(DAY + SETTLE)[0]
    town.warm("b", range(10), DAY + 30_000)
    town.warmth.looked("a", None, DAY + 31_000)
    assert town.asks(DAY + 10 * STAY) == (True, "nothing is hot")


def test_a_restart_makes_it_cold_again_and_what_it_held_is_lost() -> None:
    town = Town()
    town.warm("b", range(10), DAY)
    town.comes()
    town.warm("a", range(10), DAY + 2_000)
    town.warmth.looked("a", metrics(served=11, tokens=1_000), DAY + SETTLE)
    assert town.asks(DAY + SETTLE)[0]
    again = DAY + 60_000
    town.warmth.looked("a", metrics(served=12, tokens=1_100), again - 1_000)
    town.warmth.looked("a", metrics(), again)
    assert town.asks(again) == (False, "it is not known yet what is hot")
    town.warm("a", range(2), again + 1_000)
    town.warm("b", range(10), again)
    assert town.asks(again + SETTLE) == (False, "192 of 960 hot tokens are there")
    assert town.asks(again + PATIENCE)[0]


def test_a_replica_that_was_serving_when_the_executor_began_is_left_in_its_traffic() -> None:
    town = Town()
    town.warm("b", range(10), DAY)
    town.warmth.looked("a", metrics(served=3), DAY)
    assert town.asks(DAY) == (True, "it was serving before this executor looked")


def test_a_replica_that_was_seen_to_come_is_cold_though_it_has_answered_a_probe() -> None:
    town = Town()
    town.warm("b", range(10), DAY)
    town.warmth.looked("a", None, DAY - 1_000)
    town.warmth.looked("a", metrics(served=1), DAY)
    assert town.asks(DAY)[0] is False


def test_an_engine_that_cannot_be_reached_is_no_reason_to_wait_for_ever() -> None:
    town = Town()
    assert town.asks(DAY) == (False, "its engine does not answer")
    town.warmth.looked("a", None, DAY + 1)
    assert town.asks(DAY + PATIENCE - 1)[0] is False
    assert town.asks(DAY + PATIENCE) == (True, "waited for 120 s: its engine does not answer")
    town.warmth.looked("a", metrics(served=40), DAY + PATIENCE + 1)
    assert town.asks(DAY + PATIENCE + 1)[0], "it has users by now"


def test_an_engine_that_comes_late_begins_anew_while_nobody_is_served_by_it() -> None:
    town = Town()
    town.asks(DAY)
    assert town.asks(DAY + PATIENCE)[0]
    town.warmth.looked("a", metrics(), DAY + PATIENCE + 1)
    assert town.asks(DAY + PATIENCE + 1)[0] is False


def test_one_that_drains_is_not_waited_for_and_one_that_sleeps_takes_no_traffic() -> None:
    town = Town()
    town.comes()
    town.warmth.looked("a", metrics(sleeping=True), DAY + 1)
    assert town.asks(DAY + PATIENCE) == (False, "its engine sleeps")
    town.warmth.looked("a", metrics(sleeping=False), DAY + 2)
    assert town.asks(DAY + 2, drains=True) == (True, "it drains, so that nothing is warmed there")
    assert town.asks(DAY + 3)[0], "it is ready then, and must not be taken out again"


def test_one_that_has_left_is_forgotten() -> None:
    town = Town()
    town.comes()
    town.warm("a", range(10), DAY)
    assert town.asks(DAY + SETTLE)[0]
    town.warmth.forget("a")
    assert (town.mass.of("a", 0, DAY), town.warmth.looked_ms("a")) == (Mass(0, 0), None)


def test_two_executors_come_to_the_same_verdict_within_the_time_between_their_looks() -> None:
    one, other = Town(), Town()
    verdicts = []
    for town, late in ((one, 0), (other, 900)):
        town.warm("b", range(10), DAY)
        town.comes(DAY + late)
        town.warm("a", range(8), DAY + 20_000)
        verdicts.append([town.asks(DAY + at) for at in (SETTLE - 1, 20_000)])
    assert verdicts[0] == verdicts[1]
    assert [warm for warm, _ in verdicts[0]] == [False, True]


@pytest.mark.parametrize(
    ("status", "reason", "lacking"),
    [
        ("failed", "engine_unavailable", 100),
        ("rejected", "breaker_open", 100),
        ("rejected", "no_replica", 100),
        ("expired", "expired_queued", 100),
        ("failed", "engine_refused", 0),
        ("skipped", "content_missing", 0),
        ("skipped", "below_block", 0),
        ("held_out", "held_out", 0),
        ("shadow", "shadow", 0),
        ("cancelled", "cancelled", 0),
        ("applied", "done", 0),
    ],
)
@pytest.mark.parametrize("outcome_first", [False, True])
def test_what_may_be_tried_again_is_lacking_and_what_cannot_be_warmed_is_not(
    status, reason, lacking, outcome_first
) -> None:
    town = Town()
    told, asked = outcome(1, "a", DAY + 5, status, reason), command(1, "a")
    if outcome_first:
        town.mass.heard(told)
        town.ended.add(told.outcome_id)
        town.mass.asked(asked)
        lacking = 0  # a command that has ended before it is heard of asks for nothing
    else:
        town.mass.asked(asked)
        town.mass.heard(told)
    assert town.mass.of("a", DAY, DAY + 10) == Mass(96 if status == "applied" else 0, lacking)
    assert town.mass.of("a", DAY, DAY + 10 + STAY) == Mass(0, 0)


@pytest.mark.parametrize("fields", [{"arm": "hold"}, {"shadow": True}, {"action": "touch"}, {"replicas": Replicas()}])
def test_a_command_that_warms_nothing_there_asks_for_nothing(fields) -> None:
    town = Town()
    town.mass.asked(command(1, "a", **fields))
    assert town.mass.of("a", 0, DAY) == Mass(0, 0)


def test_other_targets_have_no_mass_and_an_engine_that_tells_no_tokens_has_the_command_s() -> None:
    town = Town()
    town.mass.heard(outcome(1, "a", DAY, target_key="adapter:x@1"))
    assert town.mass.of("a", 0, DAY) == Mass(0, 0)
    town.mass.asked(command(2, "a"))
    town.mass.heard(outcome(2, "a", DAY, "applied", "unverified", tokens=0))
    assert town.mass.of("a", 0, DAY) == Mass(100, 0)
    town.mass.heard(outcome(3, "a", DAY, "resident", "already_resident", tokens=0, tokens_already_resident=32))
    assert town.mass.of("a", 0, DAY) == Mass(132, 0)


def test_a_renewal_that_is_under_way_does_not_make_a_prefix_count_twice() -> None:
    town = Town()
    town.warm("a", [1], DAY)
    town.mass.asked(command(1, "a", at=DAY + 1))
    assert town.mass.of("a", 0, DAY + 2) == Mass(96, 0)


def test_what_is_kept_is_bounded_whatever_is_named() -> None:
    mass = HotMass(lambda _: STAY, lambda _: False, bound=3)
    for key in range(10):
        mass.asked(command(key, "a", tokens=10**key))
        mass.heard(outcome(100 + key, "a", DAY))
    assert mass.of("a", 0, DAY) == Mass(3 * 96, 1_110_000_000)
    for number in range(REPLICAS_BOUND):
        mass.asked(command(1, f"pod-{number}"))
    assert (mass.of("a", 0, DAY), mass.of("pod-0", 0, DAY)) == (Mass(0, 0), Mass(0, 100))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["look", "no answer", "restart", "command", "applied", "failed", "ask"]),
        st.sampled_from(["a", "b"]),
        st.integers(0, 3),
        st.integers(0, 30_000),
    ),
    max_size=60,
)


@given(EVENTS, st.floats(0, 1), st.integers(0, 60_000))
def test_it_opens_in_time_and_stays_open_through_a_life(events, share, patience_ms) -> None:
    town, now, served = Town(WarmthRule(share, patience_ms, SETTLE)), DAY, {"a": 0, "b": 0}
    cold_since: dict[str, int] = {}
    opened: set[str] = set()
    for what, replica, key, pause in events:
        now += pause
        if what in ("look", "restart"):
            served[replica] = 0 if what == "restart" else served[replica] + 1
            before = town.warmth._life(replica).incarnations.name
            town.warmth.looked(replica, metrics(served[replica], served[replica]), now)
            if town.warmth._life(replica).incarnations.name != before or served[replica] == 0:
                opened.discard(replica)
                cold_since.pop(replica, None)
        elif what == "no answer":
            town.warmth.looked(replica, None, now)
        elif what == "command":
            town.mass.asked(command(key, replica, at=now))
        elif what in ("applied", "failed"):
            reason = "done" if what == "applied" else "engine_unavailable"
            town.mass.heard(outcome(key, replica, now, what, reason))
        else:
            warm, why = town.asks(now, replica, others=("b",) if replica == "a" else ("a",))
            assert warm or replica not in opened, why
            since = cold_since.setdefault(replica, now)
            assert warm or now - since < patience_ms
            if warm:
                opened.add(replica)
