"""The bounds of backtest lora against brute force, and what it counts on traces worked by hand."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.adapter_prefetch import PrefetchConfig
from stoker.backtests.lora import JUDGED_FROM_MS, Played, coverage, first, lost, lru2, played, share
from stoker.backtests.lora_trace import LOAD_MS, TRACE, Asked, Use, belady, read_lora_trace

HOUR_MS = 3_600_000


def uses(names: str) -> list[Use]:
    return [Use(index * 1_000, name) for index, name in enumerate(names)]


def most_hits(names: str, slots: int) -> int:
    """By trying every way to keep and to drop, also not to take in what was asked for."""

    @cache
    def best(index: int, held: frozenset[str]) -> int:
        if index == len(names):
            return 0
        hit, with_it = names[index] in held, held | {names[index]}
        if len(with_it) <= slots:
            return hit + best(index + 1, with_it)
        return hit + max(best(index + 1, with_it - {gone}) for gone in with_it)

    return best(0, frozenset())


@settings(max_examples=60, deadline=None)
@given(names=st.text("abcde", max_size=14), slots=st.integers(1, 4))
def test_belady_is_the_most_that_any_cache_could_hit(names: str, slots: int) -> None:
    assert sum(belady(uses(names), slots)) == most_hits(names, slots)


def test_lru2_keeps_what_was_used_twice() -> None:
    assert [int(hit) for hit in lru2(uses("aabbcab"), 2)] == [0, 1, 0, 1, 0, 0, 1]


@given(names=st.text("abcdef", max_size=40), slots=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_rule_lru_hits_as_a_plain_lru_cache(names: str, slots: int) -> None:
    held: list[str] = []
    expected = []
    for name in names:
        expected.append(name in held)
        held = [*(each for each in held if each != name), name][-slots:]
    # Minutes apart, so that no class's residency keeps anything.
    requests = [Asked(index * 60_000, "t", "m", (name,)) for index, name in enumerate(names)]
    assert list(played(requests, slots, ("lru",), None).hits) == expected


def test_a_load_ahead_that_comes_late_hides_the_part_that_was_over() -> None:
    requests = []
    for day in range(30):
        at_ms = JUDGED_FROM_MS + day * 24 * HOUR_MS
        requests.append(Asked(at_ms, "t", "m", ()))
        requests.append(Asked(at_ms + 3_000, "t", "m", ("a",)))
        requests.append(Asked(at_ms + 9 * HOUR_MS, "other", "n", (f"once{day}",)))
    found = played(requests, 1, ("lru",), PrefetchConfig())
    assert (found.hits[0], found.waited_ms[0]) == (False, LOAD_MS)
    assert (found.hits[-2], found.waited_ms[-2]) == (True, LOAD_MS - 3_000)
    assert found.useful >= 25
    assert found.useful <= found.sent <= found.useful + 3  # what the hour of the others had promised, and did not keep


def test_what_is_covered_and_what_is_lost_are_counted_apart() -> None:
    asked = uses("abab")
    without = Played((False, False, False, True), (0,) * 4)
    ahead = Played((False, False, True, False), (0,) * 4)
    whole = slice(0, None)
    assert first(asked) == [True, True, False, False]
    assert coverage(asked, whole, without, ahead) == 1.0
    assert lost(without, ahead, whole) == 0.25
    assert share(ahead.hits) == 0.25


def test_a_trace_is_read_with_requests_of_no_and_of_several_adapters(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("gmt_create,groupId,base_model,lora_ids,predict_type,status,exec_time_seconds,prompt_length\n")
        file.write("1970-01-01 00:00:01,G1,M1,,TXT_2_IMG,SUCCEED,32.0,63.0\n")
        file.write("1970-01-01 00:01:00,G1,M2,L1|L2,TXT_2_IMG,FAILED,,\n")
    assert read_lora_trace(path) == [Asked(1_000, "G1", "M1", ()), Asked(60_000, "G1", "M2", ("L1", "L2"))]


def test_on_the_trace_nothing_is_below_lru(data_dir: Path) -> None:
    requests = read_lora_trace(data_dir / TRACE)[:4_000]
    lru = played(requests, 16, ("lru",), None)
    stoker = played(requests, 16, ("lru", "hotness", "spec"), PrefetchConfig())
    assert sum(lru.hits) <= sum(stoker.hits)
