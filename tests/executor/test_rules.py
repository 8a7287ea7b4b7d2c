"""The small pure rules: quota, replicas, admission order, endings, fail-safe judgement of warm-ups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.policy import PolicyBook
from connectors.engines.base import Warmed
from executor.admission import Circumstances, Go, Nothing, admit, late
from executor.apply.prefix import judged
from executor.outcomes import Ending, first_try
from executor.quota import Quota, Rate, entry_rate, prefill_rate
from executor.replicas import replicas_for
from schemas import Embedding, OutcomeReason, Policy, Prefix, Reason, Replicas, Response, Segment, WarmupCommand


def command(**fields) -> WarmupCommand:
    values = {
        "command_id": "a" * 32,
        "scope": "acme",
        "tenant": "acme",
        "pool": "gpu",
        "target": Prefix(model="m", segments=(Segment("b" * 32, 64),)),
        "target_key": "prefix:b",
        "priority": 1,
        "lane": "tick",
        "issued_at_ms": 0,
        "not_before_ms": 0,
        "expires_at_ms": 100,
        "reason": Reason(trigger="t"),
        "unit": "u",
        **fields,
    }
    return WarmupCommand(**values)


ALL_AGAINST = {"cancelled": True, "frozen": ("why",), "shadow": True, "replica_known": False}


def test_the_ledger_speaks_before_everything_else() -> None:
    late_and_held = command(arm="hold", expires_at_ms=1)
    assert admit(late_and_held, Circumstances(50, "ended", **ALL_AGAINST)) == Nothing()
    assert admit(late_and_held, Circumstances(50, "started", **ALL_AGAINST)) == Go(begun_before=True)


@pytest.mark.parametrize(
    ("fields", "circumstances", "reason"),
    [
        ({"expires_at_ms": 50}, {}, "expired_on_arrival"),
        ({}, {"cancelled": True, "frozen": ("x",)}, "cancelled"),
        ({"arm": "hold", "shadow": True}, {"frozen": ("x",)}, "held_out"),
        ({"shadow": True}, {"frozen": ("x",)}, "shadow"),
        ({}, {"shadow": True, "frozen": ("x",)}, "shadow"),
        ({"action": "pin"}, {"frozen": ("x",)}, "frozen"),
        ({"action": "pin"}, {}, "unsupported"),
        ({"target": Embedding(fingerprint="c" * 32, query_sha256="d" * 32)}, {}, "unsupported"),
        ({"pool": "redis:main"}, {}, "unsupported"),
        ({}, {"replica_known": False}, "no_replica"),
    ],
)
def test_each_rule_has_its_reason_and_its_turn(fields, circumstances, reason) -> None:
    verdict = admit(command(**fields), Circumstances(50, **circumstances))
    assert isinstance(verdict, Ending)
    assert verdict.reason == reason


def test_what_nothing_speaks_against_goes() -> None:
    assert admit(command(), Circumstances(99)) == Go()


def test_an_invalidation_passes_a_freeze_and_nothing_else_does() -> None:
    answer = Response(cache="c", fingerprint="c" * 32, query_sha256="d" * 32, model="m", until_ms=100)
    for action, verdict in (("invalidate", Go), ("warm", Ending)):
        order = command(pool="redis:main", target=answer, action=action)
        assert isinstance(admit(order, Circumstances(50, frozen=("why",))), verdict)


def test_late_work_that_somebody_began_is_not_called_expired() -> None:
    assert late(taken_over=False).status == "expired"
    assert (late(taken_over=True).status, late(taken_over=True).reason) == ("failed", OutcomeReason.UNVERIFIED)


def test_a_second_look_at_own_work_is_applied() -> None:
    resident = Ending("resident", OutcomeReason.ALREADY_RESIDENT, tokens_already_resident=48)
    assert (first_try(resident).status, first_try(resident).tokens_warmed) == ("applied", 48)
    skipped = Ending("skipped", OutcomeReason.BELOW_BLOCK)
    assert first_try(skipped) is skipped


@pytest.mark.parametrize(
    ("warmed", "status", "reason"),
    [
        (Warmed(60, 0, 48), "applied", "done"),
        (Warmed(60, 48, 0), "resident", "already_resident"),
        (Warmed(64, 48, 16), "resident", "already_resident"),  # block-aligned: vLLM computes the last block again
        (Warmed(60, 32, 16), "applied", "done"),
        (Warmed(12, 0, 0), "skipped", "below_block"),
        (Warmed(60, None, None), "applied", "unverified"),
    ],
)
def test_what_a_warm_up_was_is_read_off_its_usage(warmed, status, reason) -> None:
    assert ((e := judged(warmed, 16)).status, e.reason) == (status, reason)


NAMES = tuple(f"r{i}" for i in range(6))


@given(st.text(min_size=1, max_size=20), st.integers(1, 8))
def test_the_choice_of_replicas_is_the_same_each_time_and_moves_little(key, copies) -> None:
    asked = command(target_key=key, replicas=Replicas(max=copies))
    chosen = replicas_for(asked, NAMES)
    assert chosen == replicas_for(asked, NAMES[::-1])
    assert len(set(chosen)) == min(copies, 6)
    without = replicas_for(asked, [name for name in NAMES if name != "r3"])
    assert set(chosen) - {"r3"} <= set(without)


def test_named_replicas_are_taken_as_they_are() -> None:
    assert replicas_for(command(replicas=Replicas(names=("r9", "r1", "r9"))), NAMES) == ("r9", "r1")


def test_a_bucket_spends_refills_and_never_stops_a_single_large_one() -> None:
    quota = Quota(lambda scope: Rate(per_s=10_000 if scope is None else 10, burst_s=10))
    assert quota.take("a", 60, 0)
    assert not quota.take("a", 60, 1_000)
    assert quota.take("b", 60, 1_000)
    assert quota.take("a", 50, 1_000)
    assert quota.take("c", 500, 0), "longer than the burst, on a full bucket"
    assert not quota.take("c", 1, 10_000), "it left a debt"
    quota.give_back("c", 500)
    assert quota.take("c", 1, 10_000)


def test_many_scopes_together_cannot_spend_more_than_the_pool_may() -> None:
    book = PolicyBook()
    quota = Quota(lambda scope: prefill_rate(book, scope, 1, part=1, time_scale=1, slack=2))
    whole = prefill_rate(book, None, 1, part=1, time_scale=1, slack=2)
    one = whole.full / 10
    spent = sum(one for number in range(50) if quota.take(f"scope {number}", one, 0))
    assert one * 9 <= spent <= whole.full
    assert not quota.take("yet another", one, 0)
    quota.give_back("scope 0", one)
    assert quota.take("yet another", one, 0)


def test_nothing_can_be_spent_of_a_share_of_nothing() -> None:
    quota = Quota(lambda scope: Rate(per_s=1 if scope is None else 0, burst_s=10))
    assert not quota.take("a", 0, 0)


def test_rates_follow_the_policy_and_the_share_of_partitions() -> None:
    book = PolicyBook()
    budget = {"prefill_share": 0.1, "prefill_tokens_per_s": 1000, "burst_ms": 10_000, "embeddings_per_s": 50}
    book.apply(Policy(scope="*", section="budget", writer="w", version=1, at_ms=0, body=budget))
    book.apply(Policy(scope="acme", section="quota", writer="w", version=1, at_ms=0, body={"share": 0.5}))
    assert prefill_rate(book, "acme", 2, part=0.25, time_scale=1, slack=2) == Rate(50.0, 10.0)
    assert prefill_rate(book, "other", 2, part=0.25, time_scale=1, slack=2) == Rate(100.0, 10.0)
    assert entry_rate(book, "acme", part=1, time_scale=10, slack=1) == Rate(250.0, 1.0)
