"""What the topics say, folded: repetitions count once, revisions win, sums balance."""

from __future__ import annotations

import pytest

from analytics.entropy import clogc
from schemas import (
    Accounting,
    DeadLetter,
    DeadReason,
    Embedding,
    OutcomeReason,
    Pattern,
    PlannerState,
    Prefix,
    Reason,
    Segment,
    Target,
    TopKey,
    WarmupCommand,
    WarmupOutcome,
    WindowStats,
    encode,
)
from schemas.canonical import h128
from stoker.demo.board import Board
from stoker.demo.effect import Issued


def command(name: str, target: Target | None = None, shadow: bool = False) -> WarmupCommand:
    prefix = Prefix(model="tiny", segments=(Segment(h128("s"), 10),))
    return WarmupCommand(
        command_id=h128(name),
        scope="shop",
        tenant="shop",
        pool="main",
        target=target or prefix,
        target_key=f"prefix:{name}",
        priority=1,
        lane="tick",
        issued_at_ms=1_000,
        not_before_ms=1_000,
        expires_at_ms=2_000,
        reason=Reason(trigger="hot"),
        unit=f"unit-{name}",
        arm="hold",
        shadow=shadow,
    )


def outcome(name: str, status: str, warmed: int = 0) -> WarmupOutcome:
    return WarmupOutcome(
        outcome_id=h128(name, "r0"),
        command_id=h128(name),
        target_key=f"prefix:{name}",
        scope="shop",
        pool="main",
        replica="r0",
        unit=f"unit-{name}",
        status=status,  # type: ignore[arg-type]
        reason=OutcomeReason.DONE if status == "applied" else OutcomeReason.ALREADY_RESIDENT,
        finished_at_ms=1_500,
        tokens_warmed=warmed,
    )


def stats(shard: int, pane: int, counts: dict[str, int], revision: int = 0, scope: str = "shop") -> WindowStats:
    return WindowStats(
        scope=scope,
        dimension="query",
        shard=shard,
        pane_start_ms=pane,
        revision=revision,
        at_ms=pane + 1,
        events=sum(counts.values()),
        weight=float(sum(counts.values())),
        sum_clogc=sum(map(clogc, counts.values())),
        distinct=len(counts),
        users=1,
        top=tuple(TopKey(key, count, 1) for key, count in counts.items()),
    )


def test_a_command_that_comes_again_counts_once() -> None:
    board = Board()
    embedding = Embedding(fingerprint=h128("f"), query_sha256=h128("q"))
    for record in (command("a"), command("a"), command("b", embedding)):
        board.on_command(encode(record))
    assert board.commands_by_kind() == {"prefix": 1, "embedding": 1}
    assert board.issued() == [Issued(1_000, "shop", "unit-a", "hold")]


def test_shadow_commands_have_no_effect_to_look_for() -> None:
    board = Board()
    board.on_command(encode(command("a", shadow=True)))
    assert board.issued() == []
    assert board.commands_by_arm() == {("prefix", "shadow"): 1}


def test_applied_is_never_replaced_by_resident() -> None:
    board = Board()
    for status, warmed in (("resident", 0), ("applied", 50), ("resident", 0)):
        board.on_outcome(encode(outcome("a", status, warmed)))
    assert board.outcomes_by_status() == {"applied": 1}
    assert board.warmed_tokens() == 50
    assert board.outcomes_by_kind() == {("prefix", "applied", "done"): 1}


def test_a_closed_board_follows_what_it_has_and_takes_nothing_new() -> None:
    board = Board()
    board.on_command(encode(command("a")))
    board.close()
    for record in (outcome("a", "applied"), outcome("b", "applied")):
        board.on_outcome(encode(record))
    board.on_command(encode(command("b")))
    assert (list(board.commands), board.outcomes_by_status()) == ([h128("a")], {"applied": 1})


def test_accounting_takes_the_newest_of_each_shard_and_sums() -> None:
    board = Board()
    for one in (
        Accounting(shard=0, revision=1, at_ms=10, counted=3),
        Accounting(shard=1, revision=5, at_ms=20, counted=4, dead=1, late=2),
        Accounting(shard=0, revision=2, at_ms=30, counted=5, second_phase=5),
        Accounting(shard=0, revision=1, at_ms=10, counted=3),
    ):
        board.on_insight(encode(one))
    assert (board.account.counted, board.account.dead, board.account.late) == (9, 1, 2)
    assert board.read == 9 + 5 + 1 + 2


def test_entropy_is_of_the_newest_minute_over_all_shards() -> None:
    board = Board()
    for pane in range(1, 7):
        board.on_insight(encode(stats(0, pane, {"a": 2})))
        board.on_insight(encode(stats(1, pane, {"b": 9}, revision=0)))
        board.on_insight(encode(stats(1, pane, {"b": 2}, revision=1)))
    board.on_insight(encode(stats(0, 0, {"long ago": 1_000})))
    board.on_insight(encode(stats(0, 3, {"x": 4, "y": 4, "z": 4, "w": 4}, scope="docs")))
    assert board.entropy_bits() == {"docs": pytest.approx(2.0), "shop": pytest.approx(1.0)}


def test_other_records_are_counted_and_do_no_harm() -> None:
    board = Board()
    board.on_insight(encode(PlannerState(pool="main", at_ms=1, state="catching_up")))
    board.on_insight(b"{")
    board.on_command(b"{}")
    dead = DeadLetter(dead_id=h128("d"), at_ms=1, source_topic="t", reason=DeadReason.TOO_LARGE, size=3)
    board.on_dead(encode(dead))
    assert board.planners["main"].state == "catching_up"
    assert (board.unreadable, board.dead_records) == (2, 1)


def test_a_pattern_is_what_happened_and_not_what_is_told_of_groups_at_every_slide() -> None:
    board = Board()
    for kind in ("consecutive_prompts", "request_group", "adapter_rate", "request_group"):
        told = Pattern(scope="s", pool="p", pattern=kind, subject="x", at_ms=1, priority=1, state=201)
        board.on_insight(encode(told))
    assert board.seen["pattern"] == 2
