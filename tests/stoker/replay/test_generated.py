"""The generated workload: deterministic, ordered, and of the shape that its docstring promises."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice, pairwise

import pytest

from stoker.replay.generated import DEFAULT_TENANTS, GeneratedConfig, Promotion, TenantPlan, generated
from stoker.replay.prose import prose
from stoker.replay.turns import Turn, faster, until


def minutes(number: float, **settings: object) -> list[Turn]:
    return list(until(generated(GeneratedConfig(**settings)), number * 60_000))  # type: ignore[arg-type]


def test_same_seed_same_turns_other_seed_others() -> None:
    first, again, other = minutes(0.5, seed=4), minutes(0.5, seed=4), minutes(0.5, seed=5)
    assert first == again
    assert first != other


def test_arrivals_are_ordered_and_as_many_as_asked_for() -> None:
    turns = minutes(5, requests_per_s=20)
    assert all(a.at_ms <= b.at_ms for a, b in pairwise(turns))
    assert len(turns) / 300 == pytest.approx(20, rel=0.1)


def test_a_tenants_requests_share_their_system_prompt_and_nobody_elses() -> None:
    firsts = defaultdict(set)
    for turn in minutes(1):
        firsts[turn.tenant].add(turn.pieces[0].text)
    assert set(firsts) == {plan.name for plan in DEFAULT_TENANTS}
    assert all(len(texts) == 1 for texts in firsts.values())
    assert len({text for texts in firsts.values() for text in texts}) == 3


def test_a_conversation_grows_by_answer_and_question() -> None:
    talks = defaultdict(list)
    for turn in minutes(2):
        talks[turn.session].append(turn)
    longer = [talk for talk in talks.values() if len(talk) > 1]
    assert len(longer) > 50
    for talk in longer:
        for before, after in pairwise(talk):
            assert after.pieces[: len(before.pieces)] == before.pieces
            assert [piece.role for piece in after.pieces[len(before.pieces) :]] == ["assistant", "user"]
    assert all(talk[0].pieces[-1].text == talk[0].query for talk in talks.values())


def test_documents_come_back_and_uploads_do_not() -> None:
    talks: dict[str, set[str]] = defaultdict(set)
    for turn in minutes(3):
        talks[turn.pieces[1].text].add(turn.session)
    counts = sorted(map(len, talks.values()))
    assert sum(count == 1 for count in counts) > 100
    assert counts[-1] > 20


def test_the_tenant_that_withholds_says_so_in_every_turn() -> None:
    assert {turn.tenant for turn in minutes(1) if turn.withheld} == {"clinic"}
    assert all(turn.withheld for turn in minutes(1) if turn.tenant == "clinic")


def test_faster_keeps_everything_but_the_times() -> None:
    slow = list(islice(generated(GeneratedConfig()), 50))
    fast = list(faster(slow, 10))
    assert [turn.at_ms for turn in fast] == [int(turn.at_ms / 10) for turn in slow]
    assert [turn.pieces for turn in fast] == [turn.pieces for turn in slow]
    with pytest.raises(ValueError, match="speed"):
        list(faster(slow, 0))


@pytest.mark.parametrize("bad", [{"requests_per_s": 0}, {"turns": 0.5}, {"tenants": ()}])
def test_impossible_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must"):
        GeneratedConfig(**bad)  # type: ignore[arg-type]


def test_a_promotion_is_a_crowd_on_one_document_with_few_questions() -> None:
    crowd = Promotion(at_ms=60_000, for_ms=60_000, share=0.5, queries=2)
    turns = list(until(generated(GeneratedConfig(tenants=(TenantPlan("shop", 1.0, promotion=crowd),))), 180_000))
    promoted = [turn for turn in turns if turn.pieces[1].text == prose("shop/promoted", 600)]
    began = [turn for turn in promoted if len(turn.pieces) == 3]
    assert all(60_000 <= turn.at_ms < 120_000 for turn in began)
    inside = [turn for turn in turns if 60_000 <= turn.at_ms < 120_000 and len(turn.pieces) == 3]
    assert 0.4 < len(began) / len(inside) < 0.6
    assert len({turn.query for turn in promoted}) == 2
    assert len({turn.user for turn in began}) > 50


def test_a_robot_crawls_at_regular_times_under_one_name_what_nobody_asks_for() -> None:
    plan = TenantPlan("docs", 1.0, crawl_ms=500)
    turns = list(until(generated(GeneratedConfig(tenants=(plan,))), 30_000))
    assert turns == sorted(turns, key=lambda turn: turn.at_ms)
    robot = [turn for turn in turns if turn.user == "docs/robot"]
    assert [turn.at_ms for turn in robot] == [500 * number for number in range(60)]
    assert len({turn.pieces[1].text for turn in robot}) == len(robot)


def test_adapters_take_turns() -> None:
    plan = TenantPlan("shop", 1.0, adapters=("a@1", "a@2"), rotation_ms=10_000)
    turns = until(generated(GeneratedConfig(tenants=(plan,))), 30_000)
    assert {(int(turn.at_ms // 10_000), turn.adapter) for turn in turns} == {(0, "a@1"), (1, "a@2"), (2, "a@1")}
