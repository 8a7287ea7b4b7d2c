"""Adapter slots against a list-based oracle."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.simulator.adapters import AdapterSlots


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 3), st.integers(0, 2))
def test_gpu_slots_are_an_lru(order: list[int], slots: int, extra: int) -> None:
    pool = AdapterSlots(slots, slots + extra)
    gpu: list[str] = []
    cpu: list[str] = []
    for number in order:
        name = f"a{number}"
        adapter = pool.names.get(name) or pool.register(name, f"/adapters/{name}")
        evicted = pool.activate(adapter)
        for level in (gpu, cpu):
            if name in level:
                level.remove(name)
            level.append(name)
        assert len(evicted) == max(0, len(gpu) - slots)
        del gpu[: max(0, len(gpu) - slots)]
        while len(cpu) > slots + extra:
            cpu.remove(next(other for other in cpu if other not in gpu))
        assert pool.on_gpu == gpu
        assert pool.on_cpu == cpu


def test_unloading_takes_only_the_name() -> None:
    pool = AdapterSlots(2, 4)
    pool.activate(pool.register("a", "/a"))
    pool.unregister("a")
    assert not pool.names
    assert pool.on_gpu == ["a"]


def test_a_name_that_comes_back_gets_new_weights() -> None:
    pool = AdapterSlots(2, 4)
    first = pool.register("a", "/a")
    pool.activate(first)
    pool.unregister("a")
    second = pool.register("a", "/a")
    pool.activate(second)
    assert first.adapter_id != second.adapter_id
    assert pool.on_gpu == ["a", "a"]


def test_a_slot_in_use_is_not_taken() -> None:
    pool = AdapterSlots(1, 2)
    first, second = pool.register("a", "/a"), pool.register("b", "/b")
    pool.activate(first)
    pool.begin(first)
    assert not pool.can_activate(second)
    with pytest.raises(LookupError):
        pool.activate(second)
    pool.end(first)
    assert pool.can_activate(second)
    assert pool.activate(second) == [first.adapter_id]
