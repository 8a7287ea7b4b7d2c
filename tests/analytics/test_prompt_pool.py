"""The spec rules of D7, each against numbers worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.prompt_pool import DAY_MS, PromptPool, prompt_hotness, prompt_sample
from analytics.records import Section
from analytics.stores import MemoryMapStore

T0 = 1_790_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("hotness", "idle_ms", "adopted", "answered", "expected"),
    [
        (1.0, 0, 1, 0, 1.3),
        (1.0, 0, 0, 1, 1.5),
        (1.0, 0, 2, 3, 3.1),
        (1.0, DAY_MS - 1, 0, 0, 1.0),  # whole days only
        (1.0, DAY_MS, 0, 0, 0.95),
        (2.0, 3 * DAY_MS - 1, 0, 0, 1.805),  # 2 · 0.95²
        (2.0, DAY_MS, 1, 1, 2.7),  # first it fades, then it is used: 1.9 + 0.8
        (9.9, 0, 0, 1, 10.0),  # the ceiling
        (1.0, -5, 0, 0, 1.0),
    ],
)
def test_hotness_by_the_spec(hotness: float, idle_ms: int, adopted: int, answered: int, expected: float) -> None:
    assert prompt_hotness(hotness, idle_ms, adopted, answered) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("u", "index"), [(0.0, 0), (0.1999, 0), (0.2, 1), (0.4999, 1), (0.5, 3), (0.9999, 3)], ids=lambda value: str(value)
)
def test_roulette_goes_by_cumulative_share(u: float, index: int) -> None:
    # Shares 0.2, 0.3, 0, 0.5: cumulative 0.2, 0.5, 0.5, 1.
    assert prompt_sample([1.0, 1.5, 0.0, 2.5], u) == index


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.floats(0, 1, exclude_max=True))
def test_no_draw_names_a_prompt_without_hotness(hotness: list[float], u: float) -> None:
    if sum(hotness) > 0:
        assert hotness[prompt_sample(hotness, u)] > 0


@pytest.mark.parametrize(("hotness", "u"), [([1.0], 1.0), ([1.0], -0.1), ([], 0.5), ([0.0], 0.5), ([2.0, -1.0], 0.5)])
def test_a_draw_from_nothing_is_refused(hotness: list[float], u: float) -> None:
    with pytest.raises(ValueError, match="draw"):
        prompt_sample(hotness, u)


def pool(store: MemoryMapStore, max_prompts: int = 10) -> PromptPool:
    return PromptPool(max_prompts, DAY_MS, Section(store, ""))


def test_hotness_fades_from_the_last_use_on_and_asking_changes_nothing() -> None:
    store = MemoryMapStore()
    prompts = pool(store)
    prompts.add("s", "a@1", T0)
    prompts.used("s", "a@1", T0, adopted=1, answered=1, ceiling=10.0)
    before = dict(store.records)
    assert prompts.hotness("s", "a@1", T0 + 23 * HOUR_MS) == pytest.approx(1.8)
    assert prompts.hotness("s", "a@1", T0 + 49 * HOUR_MS) == pytest.approx(1.8 * 0.95**2)
    assert store.records == before
    # A use after 25 h: one whole day has passed, and the next one counts from here.
    prompts.used("s", "a@1", T0 + 25 * HOUR_MS, adopted=0, answered=1, ceiling=10.0)
    assert prompts.hotness("s", "a@1", T0 + 48 * HOUR_MS) == pytest.approx(1.8 * 0.95 + 0.5)


def test_the_hottest_come_first_and_only_those_in_use() -> None:
    prompts = pool(MemoryMapStore())
    for name, answered in (("a", 1), ("b", 3), ("c", 2)):
        prompts.add("s", name, T0)
        prompts.used("s", name, T0, 0, answered, 10.0)
    prompts.add("s", "later", T0 + 1)
    assert prompts.hottest("s", 2, T0) == [("b", 2.5), ("c", 2.0)]
    assert prompts.hottest("s", 9, T0) == [("b", 2.5), ("c", 2.0), ("a", 1.5)]
    assert prompts.hottest("s", 9, T0 + 1)[-1] == ("later", 1.0)
    assert prompts.hottest("other", 9, T0) == []


def test_a_prompt_stays_in_use_while_its_last_uses_are_ahead_of_event_time() -> None:
    prompts = pool(MemoryMapStore())
    prompts.add("s", "a", T0 + 2)
    prompts.add("s", "announced", T0 + 9)
    assert prompts.hottest("s", 9, T0 + 1) == []
    for passed in range(5):
        prompts.used("s", "a", T0 + passed + 3, 0, 0, 10.0)
    assert prompts.hottest("s", 9, T0 + 2) == [("a", 1.0)]
    prompts.used("s", "announced", T0 + 4, 0, 0, 10.0)  # before it was due
    assert dict(prompts.hottest("s", 9, T0 + 4)) == {"a": 1.0, "announced": 1.0}


def test_beyond_its_bound_the_coldest_leaves() -> None:
    store = MemoryMapStore()
    prompts = pool(store, max_prompts=2)
    for name in ("a", "b"):
        prompts.add("s", name, T0)
        prompts.used("s", name, T0, 0, 1, 10.0)
    assert prompts.add("s", "c", T0) == ["c"]
    assert prompts.get("s", "c") is None
    assert len(store.records) == 2


def test_what_was_not_known_of_a_prompt_is_added_and_a_rebuilt_pool_is_the_same() -> None:
    store = MemoryMapStore()
    prompts = pool(store)
    prompts.add("s", "a@1", T0)
    prompts.used("s", "a@1", T0, 0, 1, 10.0)
    prompts.add("s", "a@1", T0 + 5, ref="f" * 32, tags=("faq",))
    again = pool(store)
    for _, blob in store.items():
        again.restore(blob)
    held = again.get("s", "a@1")
    assert held == prompts.get("s", "a@1")
    assert held is not None
    assert (held.ref, held.tags, held.hotness) == ("f" * 32, ("faq",), 1.5)
