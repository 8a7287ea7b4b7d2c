"""Which adapters are taken to be on the GPU, from what an engine tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from executor.adapter_levels import AdapterLevels
from schemas.replica_sample import ResidentAdapter
from stoker.simulator.adapters import AdapterSlots


def on_gpu(adapters: tuple[ResidentAdapter, ...]) -> set[str]:
    return {adapter.name for adapter in adapters if adapter.level == "gpu"}


def test_the_last_by_use_or_load_hold_the_slots() -> None:
    levels = AdapterLevels()
    assert on_gpu(levels.look(["a"], {}, 2)) == {"a"}
    assert on_gpu(levels.look(["a", "b"], {"a": 10.0}, 2)) == {"a", "b"}
    assert on_gpu(levels.look(["a", "b", "c"], {"a": 10.0}, 2)) == {"b", "c"}
    assert on_gpu(levels.look(["a", "b", "c"], {"a": 20.0}, 2)) == {"a", "c"}


def test_names_tell_their_versions_and_an_engine_without_slots_tells_names_only() -> None:
    told = AdapterLevels().look(["german@7", "plain"], {"german@7": 1.0}, None)
    assert told == (ResidentAdapter("german", "7", "named"), ResidentAdapter("plain", "-", "named"))


def test_an_adapter_whose_name_was_taken_away_keeps_its_slot() -> None:
    levels = AdapterLevels()
    levels.look(["a", "b"], {"a": 1.0, "b": 2.0}, 2)
    assert levels.look(["a"], {"a": 1.0, "b": 2.0}, 2) == (ResidentAdapter("a", "-", "gpu"),)
    assert on_gpu(levels.look(["a", "c"], {"a": 1.0, "b": 2.0}, 2)) == {"c"}
    assert on_gpu(levels.look(["a", "c", "b"], {"a": 1.0, "b": 2.0}, 2)) == {"b", "c"}, "loaded again: used again"


def test_who_looks_for_the_first_time_goes_by_use() -> None:
    levels = AdapterLevels()
    assert on_gpu(levels.look(["a", "b", "c"], {"a": 9.0, "b": 5.0}, 2)) == {"a", "b"}


def test_our_own_single_token_counts_as_a_use() -> None:
    levels = AdapterLevels()
    levels.look(["a", "b"], {"a": 5.0, "b": 6.0}, 1)
    levels.touched("a", 7.0)
    assert on_gpu(levels.look(["a", "b"], {"a": 5.0, "b": 6.0}, 1)) == {"a"}
    assert on_gpu(levels.look(["a", "b"], {"a": 5.0, "b": 8.0}, 1)) == {"b"}


def test_a_new_life_begins_with_empty_slots() -> None:
    levels = AdapterLevels()
    levels.look(["a", "b"], {"b": 1.0}, 1)
    levels.restart()
    assert on_gpu(levels.look(["a"], {}, 1)) == {"a"}


@given(
    slots=st.integers(1, 4),
    uses=st.lists(st.tuples(st.sampled_from(["load", "use", "unload"]), st.sampled_from("abcdef")), max_size=40),
)
def test_with_a_look_after_each_event_it_is_what_the_simulator_holds(slots: int, uses: list[tuple[str, str]]) -> None:
    engine, levels, used_s = AdapterSlots(slots, 10), AdapterLevels(), {}
    levels.look([], {}, slots)
    unloaded = set()
    for second, (what, name) in enumerate(uses, start=1):
        if what == "load" and name not in engine.names and name not in unloaded:
            engine.activate(engine.register(name, "/x"))
        elif what == "use" and name in engine.names:
            engine.activate(engine.names[name])
            used_s[name] = float(second)
        elif what == "unload" and name in engine.names:
            engine.unregister(name)
            unloaded.add(name)
        told = levels.look(list(engine.names), used_s, slots)
        assert on_gpu(told) == set(engine.on_gpu) & set(engine.names)
