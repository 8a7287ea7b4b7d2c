"""Where copies go, and what a target needs first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from analytics.after import needs
from analytics.copies import spread
from schemas import Adapter, Prefix, Response, Segment, Value

names = st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=8).map(sorted)


@given(names, st.integers(1, 9), st.text(max_size=5))
def test_so_many_of_the_replicas_are_named_in_order(replicas: list[str], copies: int, key: str) -> None:
    found = spread(replicas, copies, key)
    assert len(found) == min(copies, len(replicas))
    assert list(found) == sorted(set(found) & set(replicas))


@given(names, st.integers(1, 9), st.text(max_size=5))
def test_a_replica_that_leaves_moves_only_its_own_copies(replicas: list[str], copies: int, key: str) -> None:
    before = set(spread(replicas, copies, key))
    for gone in replicas:
        after = set(spread([name for name in replicas if name != gone], copies, key))
        assert before - {gone} <= after


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.sampled_from(["x", "y", "z", ""]), min_size=1),
    st.integers(1, 9),
    st.text(max_size=5),
    st.data(),
)
def test_copies_are_spread_over_zones_with_those_that_are_held(
    zones: dict[str, str], copies: int, key: str, data: st.DataObject
) -> None:
    held = data.draw(st.sets(st.sampled_from(sorted(zones))))
    missing = sorted(set(zones) - held)
    found = spread(missing, copies, key, zones, held)
    assert len(found) == min(copies, len(missing))
    assert list(found) == sorted(set(found) & set(missing))
    counts = Counter(zones[name] for name in {*held, *found})
    left = {zones[name] for name in missing if name not in found}
    # Wherever a copy could still have gone there are already as many as where the fullest one was put, but one.
    assert all(counts[zones[name]] <= counts[zone] + 1 for name in found for zone in left)


def test_zones_that_nobody_tells_change_nothing() -> None:
    replicas = tuple(f"r{number}" for number in range(9))
    for number in range(50):
        key = f"prefix:{number}"
        assert spread(replicas, 3, key) == spread(replicas, 3, key, dict.fromkeys(replicas, "one"), ("elsewhere",))


def test_targets_spread_over_all_replicas() -> None:
    replicas = tuple(f"r{number}" for number in range(5))
    counts = Counter(name for number in range(500) for name in spread(replicas, 1, f"prefix:{number}"))
    assert set(counts) == set(replicas)
    assert max(counts.values()) < 1.5 * min(counts.values())


def test_what_comes_first_is_named_by_kind() -> None:
    prefix = Prefix(model="m", adapter="lora@2", segments=(Segment("0" * 32, 1, "user"),))
    assert needs(prefix, ("r1", "r2")) == ("model:r1", "model:r2", "adapter:lora@2")
    assert needs(Adapter(name="lora", version="2"), ("r1",)) == ("model:r1",)
    response = Response(cache="c", fingerprint="f" * 32, query_sha256="a" * 32, model="m", until_ms=1)
    assert needs(response, ()) == (f"embedding:{'f' * 32}:{'a' * 32}",)
    assert needs(Value(key="k", loader="l", ttl_ms=1_000), ()) == ()
