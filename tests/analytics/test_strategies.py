import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.strategies import Tiers, full_snapshot, hot_top_n, sampled, schedule_warmup

KEYS = tuple(f"sku:{n}" for n in range(2_000))


def test_ranks_up_to_100_go_at_once_to_1000_in_batches_of_50_every_2_s_and_the_rest_never():
    waves = schedule_warmup(KEYS)
    assert waves[0] == (0, KEYS[:100], 32)
    assert [(wave.offset_ms, wave.in_flight) for wave in waves[1:]] == [(2_000 * n, 0) for n in range(1, 19)]
    assert all(len(wave.keys) == 50 for wave in waves[1:])
    assert tuple(key for wave in waves for key in wave.keys) == KEYS[:1_000]


@given(st.integers(0, 300), st.integers(0, 120), st.integers(0, 250), st.integers(1, 60))
def test_every_key_of_the_top_is_in_just_one_wave_in_order(count, first, top, batch):
    waves = schedule_warmup(KEYS[:count], Tiers(first=first, top=top, batch=batch))
    assert tuple(key for wave in waves for key in wave.keys) == KEYS[: min(count, top)]
    assert all(wave.keys for wave in waves)
    assert [wave.offset_ms for wave in waves] == sorted({wave.offset_ms for wave in waves})


def test_nothing_to_fetch_is_no_wave():
    assert schedule_warmup(()) == ()


def test_hot_top_n_ranks_by_demand_and_tells_what_share_of_it_is_covered():
    found = hot_top_n(["a", "b", "c", "b"], 2, {"c": 6.0, "b": 3.0, "a": 1.0})
    assert (found.keys, found.cost) == (("c", "b"), 2)
    assert found.coverage == pytest.approx(0.9)
    assert hot_top_n(["a", "b", "c", "d"], 1) == (("a",), 0.25, 1)


def test_a_snapshot_takes_everything_once_and_then_only_what_changed():
    now = {"a": "2", "b": "1"}
    assert full_snapshot(["a", "b", "c"], {}, now).keys == ("a", "b", "c")
    assert full_snapshot(["a", "b", "c"], {"a": "1", "b": "1"}, now).keys == ("a", "c")


def test_a_sample_is_the_same_for_the_same_salt_and_has_about_its_share():
    first, again = sampled(KEYS, 0.1, "monday"), sampled(KEYS, 0.1, "monday")
    assert first == again
    assert first.keys != sampled(KEYS, 0.1, "tuesday").keys
    assert 0.07 < first.coverage < 0.13
    assert first.cost == len(first.keys)
    assert sampled(KEYS, 0.0, "s").keys == ()
    assert sampled(KEYS, 1.0, "s").keys == KEYS
