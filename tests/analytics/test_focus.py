import pytest

from analytics.entropy import EntropySums
from analytics.envelopes import KeyCount, Partial
from analytics.focus import entropy_only, focus_keys, should_preheat
from analytics.minutes import MinuteWindow, merge_minute
from analytics.records import Section
from analytics.stores import MemoryMapStore

QPS = {"a": 1.0, "b": 9.0, "c": 9.0, "d": 0.5}


@pytest.mark.parametrize(
    ("history", "fires"),
    [
        ([3.0, 2.4, 2.0], True),
        ([9.0, 3.0, 2.4, 2.0], True),
        ([3.0, 2.4, 2.04], False),
        ([3.0, 2.6, 2.0], False),
        ([3.0, 2.5, 2.1], False),
        ([4.0, 3.4, 2.0], False),
        ([2.4, 2.0], False),
        ([0.0, 0.0, 0.0], False),
        ([], False),
    ],
)
def test_entropy_only_wants_low_entropy_and_two_sharp_falls(history, fires):
    assert entropy_only(history) is fires


@pytest.mark.parametrize(
    ("history", "fires"),
    [
        ([2.2, 2.1, 1.9], True),
        ([2.0, 2.0, 1.5], True),
        ([9.0, 2.2, 2.1, 1.9], True),
        ([2.2, 2.1, 2.0], False),
        ([1.0, 1.0, 1.0], False),
        ([1.0, 0.9, 0.85], False),
        ([2.0, 1.5], False),
        ([], False),
    ],
)
def test_should_preheat_compares_means_of_the_last_three_strictly(history, fires):
    assert bool(should_preheat(history, QPS)) is fires


def test_should_preheat_names_the_hottest_keys():
    assert should_preheat([2.2, 2.0, 1.0], QPS) == ["b", "c", "a", "d"]
    assert should_preheat([2.2, 2.0, 1.0], QPS, keys=2) == ["b", "c"]
    assert len(should_preheat([2.2, 2.0, 1.0], {str(i): float(i) for i in range(80)})) == 50


def test_focus_keys_scale_with_replicas_within_bounds():
    assert [focus_keys(50, ready, 4) for ready in (0, 1, 4, 8, 400)] == [50, 12, 50, 100, 250]
    assert focus_keys(50, 1, 100) == 10


def partial(counts, shard=0, pane=0, revision=1, pool="p", top=50):
    sums = EntropySums.of(counts.values())
    named = tuple(KeyCount(k, c, 1) for k, c in sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))[:top])
    return Partial(
        "s", pool, "query", shard, pane, pane + 10, revision, sums.weight, sums.sum_clogc, sums.distinct, 1, named
    )


def test_a_minute_merges_the_same_key_over_panes_shards_and_pools_exactly():
    parts = [partial({"a": 3, "b": 1}), partial({"a": 2}, pane=10), partial({"c": 4, "a": 1}, shard=1, pool="q")]
    minute = merge_minute(0, parts)
    assert minute.counts == {"a": 6, "b": 1, "c": 4}
    assert minute.entropy_bits == pytest.approx(EntropySums.of([6, 1, 4]).entropy_bits, abs=1e-12)
    assert (minute.weight, minute.named_share) == (11, 1.0)


def test_what_is_not_named_can_only_raise_the_entropy():
    counts = {f"k{i}": 1 + i % 7 for i in range(200)}
    truth = EntropySums.of([2 * c for c in counts.values()]).entropy_bits
    minute = merge_minute(0, [partial(counts), partial(counts, pane=10)])
    assert truth < minute.entropy_bits < truth + 1
    assert minute.named_share < 1
    focused = {"hot": 5000, **counts}
    truth = EntropySums.of([2 * c for c in focused.values()]).entropy_bits
    minute = merge_minute(0, [partial(focused), partial(focused, pane=10)])
    assert truth <= minute.entropy_bits < truth + 0.15


def test_history_stops_at_a_gap_and_keeps_five_minutes():
    window = MinuteWindow(10, Section(MemoryMapStore(), "i"))
    for minute in (0, 2, 3, 4, 5, 6, 7):
        window.add(partial({"a": minute + 1}, pane=minute * 60))
    assert [m.start_ms for m in window.history("s", "query", 3)] == [120, 180]
    assert [m.start_ms for m in window.history("s", "query", 7)] == [180, 240, 300, 360, 420]
    window.forget(7)
    assert [m.start_ms for m in window.history("s", "query", 7)] == [420]


def test_only_a_greater_revision_replaces_a_partial():
    store = MemoryMapStore()
    window = MinuteWindow(10, Section(store, "i"))
    assert window.add(partial({"a": 1}, revision=1)).weight == 0
    assert window.add(partial({"a": 5}, revision=5)).weight == 1
    assert window.add(partial({"a": 3}, revision=3)) is None
    again = MinuteWindow(10, Section(store, "i"))
    for _, blob in store.items():
        again.restore(blob)
    assert again.history("s", "query", 0) == window.history("s", "query", 0)
    assert again.history("s", "query", 0)[0].weight == 5
