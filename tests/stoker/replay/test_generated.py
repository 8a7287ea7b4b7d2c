"""The generated workload: deterministic, ordered, and of the shape that its docstring promises."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice, pairwise

import pytest

from stoker.replay.generated import DEFAULT_TENANTS, GeneratedConfig, generated
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
