"""What hotness promises is corrected by what became of prefixes as hot: many come once, some surely come again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest

from analytics.decay import EMPTY, Decay
from analytics.envelopes import Candidate
from analytics.prefix_nodes import Node
from analytics.prefixes import PrefixConfig, PrefixTree
from analytics.records import Section
from analytics.return_rates import COHORTS, EACH, MEMORY, PRIOR, ReturnRates
from analytics.stores import MemoryMapStore
from stoker.backtests.kv_asked import reliability_error
from tests.analytics.test_prefixes import SLIDE, T0, chain, delta, segment, tips

HORIZON_MS = 120_000
DECAY = Decay.half_life(300_000)
LONE = math.log(2) / 300 * 120
"""Requests within the horizon that one of this very moment promises."""


def rates() -> tuple[ReturnRates, MemoryMapStore]:
    store = MemoryMapStore()
    return ReturnRates(HORIZON_MS, Section(store, "r")), store


def node(number: int, expected: float = LONE, children: int = 0, at_ms: int = T0, age_ms: int = 0) -> Node:
    """A prefix that promises so much at a time, so long after its last request."""
    level = DECAY.level_of(expected / LONE, at_ms)
    made = Node(random.Random(number).randbytes(24), None, 16, 0, level, at_ms - age_ms)
    made.children = children
    return made


Make = Callable[[int], list[Node]]


def alike(count: int, expected: float = LONE) -> Make:
    return lambda at_ms: [node(number, expected, at_ms=at_ms) for number in range(count)]


def lived(found: ReturnRates, make: Make, comes: Callable[[int], bool], cohorts: int = 1) -> None:
    """Cohorts of nodes, a horizon each, of which some are asked for right after they were noted."""
    for cohort in range(cohorts):
        at_ms = T0 + cohort * HORIZON_MS
        nodes = make(at_ms)
        found.note(at_ms, nodes, DECAY)
        asked = {each.key: at_ms + 1 for number, each in enumerate(nodes) if comes(number)}
        found.judge(at_ms + HORIZON_MS, lambda key, asked=asked: asked.get(key, 0))


def factor(found: ReturnRates, of: Node) -> float:
    return found.factor(of, T0, DECAY)


def test_nothing_is_corrected_before_a_horizon_has_passed() -> None:
    found, _ = rates()
    found.note(T0, alike(20)(T0), DECAY)
    found.judge(T0 + HORIZON_MS - 1, lambda _: 0)
    assert factor(found, node(0)) == 1.0


def test_a_class_comes_back_as_often_as_was_found_with_the_promise_as_its_prior() -> None:
    found, _ = rates()
    lived(found, alike(20), lambda number: number < 3)
    promise = -math.expm1(-LONE)
    share = (3 + PRIOR * promise) / (20 + PRIOR)
    assert -math.expm1(-LONE * factor(found, node(0))) == pytest.approx(share)
    assert factor(found, node(1, 3.0)) == 1.0, "another class was not seen"


@pytest.mark.parametrize("other", [{"children": 1}, {"age_ms": 200_000}], ids=["it goes on", "asked for twice"])
def test_equally_hot_prefixes_of_other_kinds_are_other_classes(other: dict[str, int]) -> None:
    found, _ = rates()
    lived(
        found,
        lambda at_ms: [node(number, at_ms=at_ms, **(other if number % 2 else {})) for number in range(60)],
        lambda number: number % 2 == 1,
    )
    assert factor(found, node(0)) < 0.5 < 2 < factor(found, node(1, **other))


def test_a_cohort_holds_a_few_of_each_class_and_not_always_the_same() -> None:
    found, store = rates()
    nodes = [node(number, LONE if number % 4 else 3.0) for number in range(2_000)]
    noted = []
    for turn in range(3):
        found.note(T0 + turn * HORIZON_MS // COHORTS, nodes, DECAY)
        noted.append({each.key for each in nodes if each.key in store.records[f"r{T0 + turn * HORIZON_MS // COHORTS}"]})
        assert EACH < len(noted[-1]) <= 2 * EACH
    assert noted[0] != noted[1] != noted[2]


def test_which_ones_are_noted_does_not_depend_on_their_order() -> None:
    nodes = alike(300)(T0)
    blobs = []
    for order in (nodes, nodes[::-1]):
        found, store = rates()
        found.note(T0, order, DECAY)
        blobs.append(store.records)
    assert blobs[0] == blobs[1]


def test_what_was_asked_for_since_the_horizon_ended_is_not_counted() -> None:
    found, _ = rates()
    found.note(T0, alike(20)(T0), DECAY)
    found.judge(T0 + 2 * HORIZON_MS, lambda _: T0 + HORIZON_MS + 5)
    assert factor(found, node(0)) == 1.0


def test_what_was_found_long_ago_fades() -> None:
    found, _ = rates()
    lived(found, alike(EACH), lambda _: True, cohorts=40)
    assert factor(found, node(0)) > 4
    lived(found, alike(EACH), lambda _: False, cohorts=int(2 * MEMORY / EACH))
    assert factor(found, node(0)) < 0.7


@pytest.mark.parametrize("comes", [True, False])
def test_what_is_certain_stays_finite(comes: bool) -> None:
    found, _ = rates()
    lived(found, alike(EACH, 1_000.0), lambda _: comes, cohorts=20)
    assert factor(found, node(0, 1_000.0)) == 1.0 if comes else 0 < factor(found, node(0, 1_000.0)) < 0.01
    assert factor(found, Node(b"k" * 24, None, 16, 0, EMPTY, T0)) == 1.0


def test_the_least_octave_leaves_out_nothing_that_clears_a_bar() -> None:
    source = random.Random(7)
    kinds = [{}, {"children": 1}, {"age_ms": 400_000}]
    octaves = [step / 5 - 5.03 for step in range(50)]
    for _ in range(30):
        found, _ = rates()
        lived(
            found,
            lambda at_ms: [
                node(number, 2**octave, at_ms=at_ms, **kinds[number % 3]) for number, octave in enumerate(octaves * 6)
            ],
            lambda _: source.random() < 0.5,
            cohorts=3,
        )
        bar = source.choice([0.05, 0.3, 0.5])
        least, cleared = found.least_octave(bar), 0
        for octave in octaves:
            for kind in kinds:
                if 2**octave * factor(found, node(0, 2**octave, **kind)) >= bar:
                    assert octave >= least - 1e-9
                    cleared += 1
        assert cleared


# In the tree


def sessions(again: float, seed: int, minutes: int = 30) -> Iterator[tuple[int, list[str]]]:
    """At each slide who asks: new sessions, and those of half a minute ago that go on."""
    source, number, before = random.Random(seed), 0, {}
    for slide in range(minutes * 6):
        at_ms = T0 + slide * SLIDE
        new = [f"s{number + each}" for each in range(5)]
        number += 5
        before[slide + 3] = [name for name in new if source.random() < again]
        yield at_ms, new + before.pop(slide, [])


def found_by(rule: str, again: float, min_p_asked: float = 0.01) -> tuple[list[dict[bytes, Candidate]], float]:
    """Candidates at each slide, and the reliability of their chances in the second half."""
    tree = PrefixTree(PrefixConfig(asked_rule=rule, min_p_asked=min_p_asked), MemoryMapStore())
    asked: dict[bytes, list[int]] = {}
    slides = []
    for at_ms, names in sessions(again, seed=3):
        for name in names:
            asked.setdefault(segment(name).rstrip(b"."), []).append(at_ms)
        tree.on_delta(delta(*(chain(name, last_ms=at_ms) for name in names), at_ms=at_ms + SLIDE))
        slides.append((at_ms + SLIDE, tips(tree.on_timer(at_ms + SLIDE))))
    said = [
        (candidate.p_asked, any(at_ms <= other_ms < at_ms + HORIZON_MS for other_ms in asked[name]))
        for at_ms, candidates in slides[len(slides) // 2 : -12]
        for name, candidate in candidates.items()
    ]
    return [candidates for _, candidates in slides], reliability_error(said)


@pytest.mark.parametrize("again", [0.05, 0.7])
def test_the_chance_of_being_asked_for_is_reliable_where_hotness_alone_is_not(again: float) -> None:
    errors = {rule: found_by(rule, again)[1] for rule in ("spec", "tuned")}
    print(f"{again:.0%} come again: reliability error by hotness {errors['spec']:.3f}, learned {errors['tuned']:.3f}")
    assert errors["tuned"] <= 0.05
    assert errors["tuned"] < errors["spec"] / 2


def test_what_was_asked_for_once_is_a_candidate_where_it_surely_comes_again_and_only_there() -> None:
    fresh = {again: found_by("tuned", again, min_p_asked=0.3)[0][-1] for again in (0.05, 0.9)}
    assert not any(round(each.requests) == 1 for each in fresh[0.05].values())
    once = [each for each in fresh[0.9].values() if each.requests < 1.01]
    assert once
    assert all(each.p_asked >= 0.3 for each in once)
    assert all(each.p_asked == pytest.approx(-math.expm1(-each.rate_per_s * 120)) for each in once)


def test_a_tree_goes_on_with_what_it_has_learned_and_leaves_nothing_behind() -> None:
    store = MemoryMapStore()
    tuned = PrefixConfig(asked_rule="tuned")
    tree, whole = PrefixTree(tuned, store), PrefixTree(tuned, MemoryMapStore())
    for at_ms, names in sessions(0.5, seed=4, minutes=6):
        told = delta(*(chain(name, last_ms=at_ms) for name in names), at_ms=at_ms + SLIDE)
        tree.on_delta(told)
        whole.on_delta(told)
        store = store.copy()
        tree = PrefixTree(tuned, store)
        assert tree.on_timer(at_ms + SLIDE) == whole.on_timer(at_ms + SLIDE)
    assert any(key[0] == "r" for key in store.records)
    spec = PrefixTree(PrefixConfig(asked_rule="spec"), store.copy())
    assert spec.nodes == tree.nodes
    while tree.next_timer_ms is not None:
        tree.on_timer(tree.next_timer_ms)
    tree.on_delta(delta(chain("x"), at_ms=T0 + 86_400_000, pool="other"))
    tree.on_timer(T0 + 86_400_000)
    assert not [key for key in store.records if key.startswith("r1:p")]


def test_under_the_other_rule_what_was_learned_is_forgotten() -> None:
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(asked_rule="tuned"), store)
    tree.on_delta(delta(chain("a", count=3)))
    tree.on_timer(T0 + SLIDE)
    assert any(key[0] == "r" for key in store.records)
    PrefixTree(PrefixConfig(asked_rule="spec"), store)
    assert not any(key[0] == "r" for key in store.records)
