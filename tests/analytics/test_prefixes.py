import math
import random
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics import patch_log, prefix_nodes, prefix_pool
from analytics.envelopes import Candidates, Chain, Fading, PrefixDelta, Root, Tag, key_of, open_as, tag_of
from analytics.prefixes import PrefixConfig, PrefixTree
from analytics.stores import MemoryMapStore

ROOT = Root("m", "", "t", "", "")
SLIDE = 10_000
T0 = 1_790_000_000_000


def segment(*names):
    """A 16-byte hash chained over its predecessors, readable in a failure."""
    return "/".join(names).encode().ljust(16, b".")[-16:]


def chain(*names, count=1.0, last_ms=T0, tokens=64, root=0):
    hashes = b"".join(segment(*names[: i + 1]) for i in range(len(names)))
    return Chain(root, hashes, (tokens,) * len(names), bytes(len(names)), count, last_ms)


def delta(*chains, at_ms=T0 + SLIDE, pool="p", requests=None, roots=(ROOT,)):
    total = sum(c.count for c in chains) if requests is None else requests
    return PrefixDelta("s", pool, 0, at_ms, roots, chains, total)


def tips(envelopes, pool="p"):
    found = {}
    for envelope in envelopes:
        if key_of(envelope) == pool:
            body = open_as(envelope, Candidates)
            found = {candidate.hashes[-16:].rstrip(b"."): candidate for candidate in body.candidates}
    return found


def test_candidates_are_the_deepest_nodes_that_clear_the_bar():
    tree = PrefixTree(PrefixConfig(), MemoryMapStore())
    tree.on_delta(delta(chain("a", "b", "x", count=6), chain("a", "b", "y", count=5), chain("a", "c", count=0.2)))
    found = tips(tree.on_timer(T0 + SLIDE))
    assert set(found) == {b"a/b/x", b"a/b/y"}
    assert [found[b"a/b/x"].tokens, found[b"a/b/x"].requests > found[b"a/b/y"].requests] == [(64, 64, 64), True]


def test_a_parent_is_chosen_where_no_child_is_hot_enough_alone():
    tree = PrefixTree(PrefixConfig(), MemoryMapStore())
    tree.on_delta(delta(*(chain("a", str(i)) for i in range(8))))
    assert set(tips(tree.on_timer(T0 + SLIDE))) == {b"a"}


def test_amount_rate_and_chance_agree_with_the_formula():
    config = PrefixConfig()
    tree = PrefixTree(config, MemoryMapStore())
    tree.on_delta(delta(chain("a", count=4, last_ms=T0), at_ms=T0 + SLIDE))
    tree.on_delta(delta(chain("a", count=2, last_ms=T0 + 300_000), at_ms=T0 + 300_000))
    candidate = tips(tree.on_timer(T0 + 300_000))[b"a"]
    assert candidate.requests == pytest.approx(4 / 2 + 2, rel=1e-6)
    rate = 4 * math.log(2) / 300
    assert candidate.rate_per_s == pytest.approx(rate, rel=1e-6)
    assert candidate.p_asked == pytest.approx(1 - math.exp(-rate * 120), rel=1e-6)


def test_unit_is_the_first_segment_below_the_trunk():
    tree = PrefixTree(PrefixConfig(), MemoryMapStore())
    tree.on_delta(
        delta(
            chain("sys", "tool", "a", "q", count=4),
            chain("sys", "tool", "b", "r", count=4),
            chain("sys", "other", count=2),
        )
    )
    found = tips(tree.on_timer(T0 + SLIDE))
    assert found[b"sys/tool/a/q"].unit == segment("sys", "tool", "a").hex()
    assert found[b"sys/tool/b/r"].unit == segment("sys", "tool", "b").hex()
    assert found[b"sys/other"].unit == segment("sys", "other").hex()


def test_a_prefix_shorter_than_a_block_is_left():
    tree = PrefixTree(PrefixConfig(), MemoryMapStore())
    tree.on_delta(delta(chain("a", count=9, tokens=8), chain("b", "c", count=9, tokens=8)))
    assert set(tips(tree.on_timer(T0 + SLIDE))) == {b"b/c"}


def test_what_cools_down_is_taken_back_once_and_then_the_tree_is_quiet():
    tree = PrefixTree(PrefixConfig(), MemoryMapStore())
    tree.on_delta(delta(chain("a", count=3)))
    assert tree.next_timer_ms == T0 + SLIDE
    sizes = []
    while out := tree.on_timer(tree.next_timer_ms):
        sizes.append(len(open_as(out[0], Candidates).candidates))
    assert sizes[0] == 1
    assert sizes[-1] == 0
    assert sizes == sorted(sizes, reverse=True)


def test_salts_and_templates_do_not_share():
    other = Root("m", "", "t", "", "salt-b")
    tree = PrefixTree(PrefixConfig(), MemoryMapStore())
    tree.on_delta(delta(chain("a", count=9), chain("a", count=3, root=1), roots=(ROOT, other)))
    (envelope,) = tree.on_timer(T0 + SLIDE)
    body = open_as(envelope, Candidates)
    assert [body.roots[c.root].salt_ref for c in body.candidates] == ["", "salt-b"]
    assert [round(c.requests) for c in body.candidates] == [9, 3]


def test_nodes_and_ghosts_are_bounded_and_a_ghost_comes_back_with_its_heat():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(max_nodes=50, max_ghosts=100), store)
    tree.on_delta(delta(chain("old", count=5), at_ms=T0))
    for i in range(100):
        tree.on_delta(delta(*(chain(f"n{i}-{j}", count=6, last_ms=T0 + 1000) for j in range(10)), at_ms=T0 + SLIDE))
        assert tree.nodes <= 50
    tree.on_timer(T0 + SLIDE)
    assert sum(key[0] == "n" for key in store.records) <= 50
    assert sum(key[0] == "g" for key in store.records) <= 100

    tree = PrefixTree(PrefixConfig(max_nodes=50, max_ghosts=100), MemoryMapStore())
    tree.on_delta(delta(chain("old", count=5), at_ms=T0))
    tree.on_delta(delta(*(chain(f"n{j}", count=6) for j in range(60)), at_ms=T0))
    tree.on_delta(delta(chain("old", count=2), at_ms=T0))
    assert round(tips(tree.on_timer(T0))[b"old"].requests) == 7


def test_ghosts_take_bounded_memory_and_those_of_least_worth_are_forgotten():
    """Worth is hotness times tokens: a long prefix that was asked for once outlives short ones."""
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(max_nodes=10, max_ghosts=20), store)
    tree.on_delta(delta(chain("long", tokens=64_000), at_ms=T0))
    for turn in range(200):
        tree.on_delta(delta(*(chain(f"n{turn}-{j}", count=2, last_ms=T0 + turn) for j in range(10)), at_ms=T0))
    tree.on_timer(T0)
    ghosts = {key: blob for key, blob in store.records.items() if key[0] == "g"}
    assert len(ghosts) <= 20
    assert sum(len(key) + len(blob) for key, blob in ghosts.items()) <= 20 * 128
    assert any(segment("long").hex() in key for key in ghosts)


def test_candidates_are_bounded_and_hottest_first():
    tree = PrefixTree(PrefixConfig(max_candidates=3), MemoryMapStore())
    tree.on_delta(delta(*(chain(f"n{j}", count=10 + j) for j in range(9))))
    (envelope,) = tree.on_timer(T0 + SLIDE)
    assert [c.hashes[:2] for c in open_as(envelope, Candidates).candidates] == [b"n8", b"n7", b"n6"]


def test_pools_are_forgotten_when_nothing_is_asked_of_them_any_more():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(), store)
    tree.on_delta(delta(chain("a", count=9), pool="gone"))
    due_ms = T0
    while tree.next_timer_ms <= due_ms + SLIDE:
        due_ms = tree.next_timer_ms
        tree.on_timer(due_ms)
    assert "p4:gone" in store.records
    at_ms = T0 + 60 * 60_000
    tree.on_delta(delta(chain("a", count=9, last_ms=at_ms), at_ms=at_ms))
    tree.on_timer(at_ms)
    assert [key for key in store.records if "gone" in key] == []
    assert "p1:p" in store.records


def test_a_tree_that_fades_is_woken_once_more_and_leaves_nothing():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(), store)
    tree.on_delta(delta(chain("a", count=9), pool="one"))
    tree.on_delta(delta(chain("b", count=2), pool="two"))
    quiet_at_ms = T0
    while not tree.blank:
        due_ms = tree.next_timer_ms
        if due_ms > quiet_at_ms + SLIDE:
            tree = PrefixTree(PrefixConfig(), store)
        tree.on_timer(due_ms)
        quiet_at_ms = due_ms
    assert quiet_at_ms - T0 > 7 * PrefixConfig().half_life_ms
    assert store.records == {}
    tree.on_delta(delta(chain("a", count=9)))
    assert set(tips(tree.on_timer(T0 + SLIDE))) == {b"a"}


def test_pools_that_a_producer_makes_up_are_bounded_and_the_asked_for_stay():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(max_pools=3), store)
    for slide in range(1, 30):
        at_ms = T0 + slide * SLIDE
        tree.on_delta(delta(chain("a", count=9, last_ms=at_ms), at_ms=at_ms))
        for i in range(10):
            tree.on_delta(delta(chain("a", count=5, last_ms=at_ms), at_ms=at_ms, pool=f"made-up-{slide}-{i}"))
        out = tree.on_timer(at_ms)
        assert set(tips(out)) == {b"a"}
        assert sum(key[0] == "p" for key in store.records) <= 3
    assert tree.nodes <= 3


def test_time_scale_shortens_slide_half_life_and_horizon_together():
    plain = PrefixTree(PrefixConfig(), MemoryMapStore())
    fast = PrefixTree(PrefixConfig(time_scale=10), MemoryMapStore())
    plain.on_delta(delta(chain("a", count=80, last_ms=0), at_ms=300_000))
    fast.on_delta(delta(chain("a", count=80, last_ms=0), at_ms=30_000))
    one, two = tips(plain.on_timer(300_000))[b"a"], tips(fast.on_timer(30_000))[b"a"]
    assert (one.requests, one.p_asked) == pytest.approx((two.requests, two.p_asked))
    assert two.rate_per_s == pytest.approx(10 * one.rate_per_s)
    assert fast.next_timer_ms == 31_000


def test_another_rule_at_the_next_start_changes_the_pace_and_no_amount():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(half_life_ms=600_000), store)
    tree.on_delta(delta(chain("a", count=8)))
    before = tips(tree.on_timer(T0 + SLIDE))[b"a"]
    again = PrefixTree(PrefixConfig(half_life_ms=300_000), store.copy())
    fading, candidates = again.on_timer(T0 + 2 * SLIDE)
    assert tag_of(fading) == Tag.FADING
    assert open_as(fading, Fading).half_life_ms == pytest.approx(300_000)
    after = tips([candidates])[b"a"]
    assert after.requests == pytest.approx(before.requests * 0.5 ** (SLIDE / 600_000), rel=1e-6)
    assert after.rate_per_s == pytest.approx(after.requests * math.log(2) / 300, rel=1e-6)


def random_steps(seed, count):
    rng = random.Random(seed)
    now = T0
    steps = []
    for _ in range(count):
        if rng.random() < 0.3:
            now += SLIDE
            steps.append(now)
        else:
            chains = []
            for _ in range(rng.randint(1, 4)):
                names = [rng.choice("abc") for _ in range(rng.randint(1, 4))]
                chains.append(chain(*names, count=rng.choice([0.5, 1, 3]), last_ms=now + rng.randint(0, SLIDE)))
            steps.append(delta(*chains, at_ms=now + SLIDE, pool=rng.choice("pq"), requests=5.0))
    return steps


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    crashes=st.sets(st.integers(0, 39), max_size=8),
    max_nodes=st.sampled_from([10, 999]),
    max_pools=st.sampled_from([1, 9]),
    spare_nodes=st.sampled_from([0, 256]),
    rule=st.sampled_from(["spec", "tuned"]),
)
def test_a_tree_rebuilt_at_any_point_goes_on_with_the_same_bytes(
    seed, crashes, max_nodes, max_pools, spare_nodes, rule
):
    every = mock.patch.multiple(prefix_pool, GAPS_SAMPLED=1, SAMPLED_MARK=ord("."))
    with (
        mock.patch.object(prefix_nodes, "SPARE_NODES", spare_nodes),
        mock.patch.object(patch_log, "PATCH_ENTRIES", 3),
        every,
    ):
        rebuilt_goes_on_with_the_same_bytes(seed, crashes, max_nodes, max_pools, rule)


def rebuilt_goes_on_with_the_same_bytes(seed, crashes, max_nodes, max_pools, rule):
    config = PrefixConfig(rule=rule, max_nodes=max_nodes, max_ghosts=12, max_pools=max_pools)
    store, broken_store = MemoryMapStore(), MemoryMapStore()
    whole, broken = PrefixTree(config, store), PrefixTree(config, broken_store)
    for index, step in enumerate(random_steps(seed, 40)):
        if index in crashes:
            broken_store = broken_store.copy()
            items = list(broken_store.records.items())
            random.Random(index).shuffle(items)
            broken_store.records = dict(items)
            broken = PrefixTree(config, broken_store)
        if isinstance(step, int):
            assert whole.on_timer(step) == broken.on_timer(step)
        else:
            whole.on_delta(step)
            broken.on_delta(step)
        assert whole.next_timer_ms == broken.next_timer_ms
        assert store.records == broken_store.records


def test_the_log_of_nodes_takes_one_record_a_slide_and_begins_anew_when_most_of_it_is_outdated():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(), store)
    names = [f"n{number}" for number in range(100)]
    held = []
    for slide in range(1, 9):
        at_ms = T0 + slide * SLIDE
        tree.on_delta(delta(*(chain(name, count=9, last_ms=at_ms) for name in names), at_ms=at_ms))
        tree.on_timer(at_ms)
        held.append(sum(key[0] == "n" for key in store.records))
        again = PrefixTree(PrefixConfig(), store.copy())
        assert again.nodes == tree.nodes == 100
    assert held == [1, 2, 3, 4, 1, 2, 3, 4]


def test_envelopes_are_candidates_of_the_scope_even_after_a_rebuild():
    store = MemoryMapStore()
    tree = PrefixTree(PrefixConfig(), store)
    tree.on_delta(delta(chain("a", count=9)))
    tree.on_timer(T0 + SLIDE)
    (envelope,) = PrefixTree(PrefixConfig(), store.copy()).on_timer(T0 + 2 * SLIDE)
    assert tag_of(envelope) == Tag.CANDIDATES
    assert open_as(envelope, Candidates).scope == "s"
    assert msgspec.msgpack.decode(envelope[2 + envelope[1] :])[0] == "s"
