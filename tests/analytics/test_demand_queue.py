import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.demand_queue import DemandQueue
from analytics.envelopes import Rewarded
from analytics.policy import ScorePolicy
from analytics.records import Section
from analytics.reward_book import MAX_NAMED, RewardBook
from analytics.stores import MemoryMapStore

LIFE_MS = 300_000
T0 = 1_790_000_000_000


def queue(store):
    found = DemandQueue(Section(store, "q"), Section(store, "u"))
    for key, blob in sorted(store.items()):
        if key[0] == "q":
            found.restore(key[1:], blob)
        else:
            found.restore_queue(blob)
    return found


def test_a_queue_keeps_its_best_and_drops_low_scores():
    store = MemoryMapStore()
    held = queue(store)
    for i in range(1, 101):
        held.add("s", {f"q{i:03d}": float(i)}, T0, LIFE_MS)
    held.sort(T0, 30_000, "s", 1000, 0.25)
    # The 99th of 100 is the yardstick: 0.25 of 99 is 24.75.
    assert held.queries("s") == [f"q{i:03d}" for i in range(25, 101)]
    assert held.score("s", "q100") == 1.0
    assert held.score("s", "q050") == pytest.approx(50 / 99)
    held.sort(T0 + 1, 30_000, "s", 10, 0.25)
    assert len(held.queries("s")) == 76
    held.sort(T0 + 30_000, 30_000, "s", 10, 0.25)
    assert held.queries("s") == [f"q{i:03d}" for i in range(91, 101)]
    again = queue(store)
    assert again.queries("s") == held.queries("s")
    assert again.score("s", "q095") == held.score("s", "q095")


def test_a_queue_that_nobody_feeds_disappears():
    store = MemoryMapStore()
    held = queue(store)
    held.add("s", {"q": 1.0}, T0, LIFE_MS)
    held.sort(T0, 30_000, "s", 1000, 0.25)
    assert held
    held.sort(T0 + 2_000_000, 30_000, "s", 1000, 0.25)
    assert not held
    assert not store.records


def swept(held, at_ms):
    """Sorts what another sorting may change, and says what that was."""
    found = held.unsorted(at_ms)
    for scope in found:
        held.sort(at_ms, 30_000, scope, 3, 0.25)
    return found


def test_only_queues_of_which_something_was_heard_are_sorted_and_the_others_when_they_have_faded():
    held = queue(MemoryMapStore())
    held.add("s", {"q": 1.0}, T0, LIFE_MS)
    held.add("t", {"q": 1.0}, T0, LIFE_MS)
    assert swept(held, T0) == ["s", "t"]
    held.add("t", {"q": 1.0}, T0 + 10_000, LIFE_MS)
    assert swept(held, T0 + 10_000) == ["t"]  # but it is not due yet
    assert swept(held, T0 + 40_000) == ["t"]
    assert swept(held, T0 + 80_000) == []
    faded_ms = T0 + math.ceil(math.log(100) * LIFE_MS)
    assert swept(held, faded_ms - 2_000) == []
    assert swept(held, faded_ms + 1) == ["s"]
    assert held
    assert swept(held, faded_ms + 500_000) == ["t"]
    assert not held


def test_a_message_costs_one_record_and_what_is_outdated_is_written_anew():
    store = MemoryMapStore()
    held, rebuilt, copied = queue(store), None, None
    most = 0
    for number in range(60):
        arrivals = {f"q{(7 * number + i) % 90:02d}": 1.0 + number for i in range(50)}
        for each in (held, rebuilt):
            if each is not None:
                each.add("s", arrivals, T0 + 1_000 * number, LIFE_MS)
                each.sort(T0 + 1_000 * number, 15_000, "s", 60, 0.25)
        if copied is not None:
            assert copied.records == store.records
        copied = store.copy()
        rebuilt = queue(copied)
        levels = [key for key in store.records if key[0] == "q"]
        most = max(most, len(levels))
        assert rebuilt.queries("s") == held.queries("s")
    assert 2 < most <= 2 + (2 * 90 + 16) // 50
    assert len(held.queries("s")) >= 60


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from([1, 20_000, 400_000, 2_000_000])),
        max_size=40,
    )
)
def test_a_restored_queue_waits_for_the_same_and_all_of_it_fades(asked):
    store, at_ms = MemoryMapStore(), T0
    held = queue(store)
    for scope, query, wait_ms in asked:
        held.add(scope, {query: 1.0}, at_ms, LIFE_MS)
        at_ms += wait_ms
        again = queue(store.copy())
        assert swept(again, at_ms) == swept(held, at_ms)
        assert [again.queries(name) for name in "abc"] == [held.queries(name) for name in "abc"]
    for _ in range(2):
        at_ms += 4_000_000
        swept(held, at_ms)
    assert not held
    assert not store.records


def test_demand_fades_at_another_speed_from_the_change_on():
    store = MemoryMapStore()
    held = queue(store)
    held.add("s", {"a": 8.0}, T0, LIFE_MS)
    held.add("s", {"b": 2.0}, T0, LIFE_MS)
    held.sort(T0, 30_000, "s", 1000, 0.1)
    held.add("s", {"b": 1.0}, T0 + 60_000, 60_000)
    a_then = 8 * math.exp(-60_000 / LIFE_MS)
    b_then = 2 * math.exp(-60_000 / LIFE_MS) + 1
    for seen in (held, queue(store)):
        assert seen.demand("s", "a", T0 + 60_000) == pytest.approx(a_then)
        assert seen.demand("s", "b", T0 + 60_000) == pytest.approx(b_then)
        assert seen.demand("s", "a", T0 + 120_000) == pytest.approx(a_then * math.exp(-1))
        assert seen.score("s", "b") == pytest.approx(b_then / a_then)
        assert seen.rate_per_s("s", 6.0) == pytest.approx(6.0 / 60)


def rewarded(query, share, count=1, *, scope="s", domain="", at_ms=T0, response=""):
    """What a shard says of rewards that are all alike."""
    micro = round(share * 1_000_000) * count
    named = (micro, count) if response else (0, 0)
    unnamed = (0, 0) if response else (micro, count)
    return Rewarded(scope, query, response, domain, at_ms, micro, count, *unnamed, *named)


def judged_queue(**levels):
    """A queue whose 99th percentile is a demand of 4, and its book."""
    store = MemoryMapStore()
    book = RewardBook(1000, Section(store, "r"))
    held = DemandQueue(Section(store, "q"), Section(store, "u"), book)
    for query, demand in levels.items():
        held.add("s", {query: demand}, T0, LIFE_MS)
    return held, book


def test_a_reward_changes_the_score_by_its_domain_and_only_in_its_scope():
    held, book = judged_queue(a=3.0, b=4.0)
    held.add("other", {"a": 1.0}, T0, LIFE_MS)
    assert held.score("s", "a") == pytest.approx(0.75)
    book.take(rewarded("a", 0.8))
    assert held.score("s", "a") == pytest.approx(0.785)
    book.take(rewarded("a", 0.8, 2, domain="news"))
    assert held.score("s", "a") == pytest.approx(0.78)
    assert held.score("s", "b") == 1.0
    assert held.score("other", "a") == 1.0
    assert held.score("s", "a", ScorePolicy(alpha_news=0.0)) == pytest.approx(0.75)
    insight = held.judged(book.of("s")["a"], T0 + 5)
    assert (insight.scope, insight.query_sha256, insight.rule, insight.rewards) == ("s", "a", "spec", 2)
    assert (insight.at_ms, insight.reward_at_ms, insight.alpha) == (T0 + 5, T0, 0.6)
    assert (insight.reward, insight.demand) == pytest.approx((0.8, 0.75))
    assert insight.score == pytest.approx(0.78)


def test_sorting_keeps_what_was_rewarded_and_drops_what_was_judged_badly():
    held, book = judged_queue(top=4.0, quiet=0.4, praised=0.4, blamed=2.0)
    book.take(rewarded("praised", 0.5))  # 0.35 + 0.3 * 0.1
    book.take(rewarded("blamed", 0.1))  # 0.07 + 0.3 * 0.5
    held.sort(T0, 30_000, "s", 1000, 0.25)
    assert held.queries("s") == ["praised", "top"]
    book.take(rewarded("top", 0.0, 3))  # 0.3
    held.sort(T0 + 30_000, 30_000, "s", 1, 0.25)
    assert held.queries("s") == ["praised"]


def test_rewards_are_forgotten_with_age_and_beyond_the_bound():
    store = MemoryMapStore()
    book = RewardBook(100, Section(store, "r"))
    for number in range(101):
        book.take(rewarded(f"q{number:03d}", 0.5, at_ms=T0 + number))
    book.expire(T0, 1_000)
    assert len(book) == 90
    assert min(book.of("s")) == "q011"
    book.expire(T0 + 1_050, 1_000)
    assert min(book.of("s")) == "q051"
    again = RewardBook(100, Section(store, "r"))
    for _, blob in store.items():
        again.restore(blob)
    assert again.of("s") == book.of("s")
    book.expire(T0 + 5_000, 1_000)
    assert not store.records


def test_by_the_tuned_rule_few_rewards_move_the_score_little_and_those_of_clicks_least():
    tuned = ScorePolicy(rule="tuned")
    held, book = judged_queue(a=4.0, b=4.0, c=4.0)
    for query, quarters, count in (("a", 4, 1), ("b", 40, 10), ("c", 1, 1)):
        micro = 1_000_000 * count
        weighed = (quarters * 1_000_000, quarters) * 2
        book.take(Rewarded("s", query, "", "", T0, micro, count, micro, count, 0, 0, *weighed))
    once, often, click = (held.score("s", query, tuned) for query in "abc")
    assert (once, often, click) == pytest.approx([0.3 + 0.7 * mean for mean in (2 / 3, 11 / 12, 1.25 / 2.25)])
    assert held.score("s", "c") == 1.0  # the reference rule takes a click for a proof
    assert once < held.hope("s", "a", tuned) < 1.0
    assert held.hope("s", "a") == held.score("s", "a") == 1.0
    insight = held.judged(book.of("s")["a"], T0, tuned)
    assert (insight.rule, insight.reward, insight.score) == ("tuned", pytest.approx(2 / 3), pytest.approx(once))


def test_by_the_tuned_rule_the_mean_decides_who_leaves_the_queue():
    held, book = judged_queue(top=4.0, blamed=0.8)
    book.take(Rewarded("s", "blamed", "", "", T0, 0, 1, 0, 1, 0, 0, 0, 4, 0, 4))
    for policy, stay in ((ScorePolicy(rule="tuned"), ["blamed", "top"]), (ScorePolicy(), ["top"])):
        held.sort(T0 + (30_000 if policy.rule == "spec" else 0), 30_000, "s", 1000, 0.25, policy)
        assert held.queries("s") == stay  # 0.7 / 3 + 0.3 * 0.2 = 0.293, against 0.06


def test_the_prior_of_a_query_is_what_its_cluster_earned():
    store = MemoryMapStore()
    book = RewardBook(100, Section(store, "r"), lambda _, query: () if query == "d" else ("a", "b", "c"))
    book.take(Rewarded("s", "b", "", "", T0, 0, 9, 0, 9, 0, 0, 0, 36, 0, 36))
    assert book.posterior("s", "a").mean == pytest.approx(1 / 11)
    assert book.posterior("s", "b").mean == pytest.approx(1 / 11)  # by itself: the others were not judged
    assert book.posterior("s", "d").mean == book.posterior("other", "a").mean == 0.5


def test_an_answer_has_its_own_mean_and_that_of_what_names_none():
    book = RewardBook(100, Section(MemoryMapStore(), "r"))
    for number in range(MAX_NAMED + 1):
        earned = book.take(rewarded("q", 0.1 * number, 2, response=f"x{number}"))
    assert earned.of_answer("x0") == (0.0, 0)
    assert earned.of_answer("x4") == (pytest.approx(0.4), 2)
    both = book.take(Rewarded("s", "q", "x4", "", T0, 1_800_000, 5, 1_000_000, 3, 800_000, 2))
    assert both.of_answer("x4") == (pytest.approx(0.36), 5)
    assert both.of_answer("unknown") == (pytest.approx(1 / 3), 3)
