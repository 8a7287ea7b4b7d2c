"""Rewards and answers in one demand shard: whichever comes first, once each, for a bounded time, in their scope."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.demand import Demand, DemandConfig
from analytics.envelopes import Answered, EmbedRequest, Rewarded, Tag, body_of, key_of, open_as, tag_of
from analytics.facts import MICRO
from analytics.policy import PolicyBook
from analytics.pools import for_redis
from analytics.rewards import LAST_KEY, MAX_TOLD, MAX_WAITING, RewardConfig
from analytics.stores import MemoryLogStore
from tests.analytics.shard_script import START_MS, Step, answered, live, query, request, reward

CONFIG = DemandConfig(
    shards=1,
    pane_ms=1_000,
    window_ms=5_000,
    lateness_ms=2_000,
    close_after_ms=1_000,
    rewards=RewardConfig(wait_ms=4_000, memory_ms=60_000, max_entries=100),
)


@dataclass
class Shard:
    """A shard that event time flows through; `told` is what it said of rewards."""

    config: DemandConfig = CONFIG
    now_ms: int = START_MS
    told: list[Rewarded | Answered] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryLogStore(self.config.logs)
        self.demand = Demand(self.config, 0, self.store)

    def hear(self, fact: bytes) -> list[Rewarded | Answered]:
        """What is said at once."""
        before = len(self.told)
        self._take(self.demand.on_fact(fact, self.now_ms, PolicyBook()))
        return self.told[before:]

    def until(self, at_ms: int) -> None:
        """Lets event time go on."""
        while self.demand.next_timer_ms is not None and self.demand.next_timer_ms <= at_ms:
            self._take(self.demand.on_timer(self.demand.next_timer_ms, PolicyBook()))
        self.now_ms = at_ms

    def counted(self, name: str) -> int:
        return self.demand.counters[name]

    def _take(self, envelopes: list[bytes]) -> None:
        for envelope in envelopes:
            if tag_of(envelope) == Tag.REWARDED:
                self.told.append(open_as(envelope, Rewarded))
            elif tag_of(envelope) == Tag.ANSWER:
                self.told.append(open_as(envelope, Answered))


def asked(identity: int, name: str = "q", answer: str = "x", at_ms: int = START_MS, **more: object) -> bytes:
    told = answered(answer, **{k: more.pop(k) for k in ("ref", "domain", "finish_reason", "status") if k in more})
    return request(at_ms, identity, name, finished=True, answer=told, **more)


def test_a_reward_after_its_request_is_told_at_once_with_the_answer_that_it_judges():
    shard = Shard()
    assert shard.hear(asked(1, domain="news", adapter="lora@2", template="t")) == []
    answer, earned = shard.hear(reward(START_MS + 700, 1, answer="x", share=0.9))
    response = query("x").hex()
    assert answer == Answered("a", query("q").hex(), response, response, "m", "lora@2", "t", "", START_MS)
    counted, weighed = (900_000, 1, 0, 0, 900_000, 1), (3_600_000, 4, 0, 0, 3_600_000, 4)
    assert earned == Rewarded("a", query("q").hex(), response, "news", START_MS + 700, *counted, *weighed)


def test_a_reward_before_its_request_waits_and_is_told_when_the_answer_comes():
    shard = Shard()
    assert shard.hear(reward(START_MS, 1, answer="x", share=0.25)) == []
    shard.until(START_MS + 2_000)
    assert shard.hear(request(START_MS + 2_000, 1)) == []
    answer, earned = shard.hear(asked(1, at_ms=START_MS + 2_100))
    assert (answer.response, earned.response, earned.named, earned.at_ms) == (
        query("x").hex(),
        query("x").hex(),
        250_000,
        START_MS,
    )
    assert shard.counted("second_phase") == 1
    assert shard.counted("reward_joined") == 1


def test_a_reward_that_names_no_answer_is_for_any_request_of_its_query_even_one_that_only_started():
    for order in ("before", "after"):
        shard = Shard()
        facts = [request(START_MS, 1), reward(START_MS, 1, share=0.5)]
        told = [each for fact in (facts if order == "after" else facts[::-1]) for each in shard.hear(fact)]
        (earned,) = told
        assert (earned.response, earned.unnamed, earned.unnamed_count, earned.named_count) == ("", 500_000, 1, 0)


def test_a_reward_for_another_answer_of_the_query_waits_for_that_one():
    shard = Shard()
    shard.hear(asked(1, answer="x"))
    assert shard.hear(reward(START_MS, 1, answer="y")) == []
    told = shard.hear(asked(2, answer="y"))
    assert [each.response for each in told] == [query("y").hex()] * 2


def test_a_reward_is_given_up_when_its_wait_is_over():
    shard = Shard()
    shard.hear(reward(START_MS, 1, answer="x"))
    shard.until(START_MS + 5_000)
    assert shard.counted("reward_unmatched") == 1
    assert shard.hear(asked(1, at_ms=START_MS + 5_000)) == []
    assert shard.counted("reward_joined") == 0


def test_one_judgement_counts_once_however_often_it_comes():
    shard = Shard()
    shard.hear(asked(1))
    shard.hear(reward(START_MS, 1, answer="x", share=1.0))
    assert shard.hear(reward(START_MS, 1, answer="x", share=1.0)) == []
    (_, earned) = shard.hear(reward(START_MS, 2, answer="x", share=0.0))
    assert (earned.total, earned.total_count) == (MICRO, 2)
    assert shard.counted("reward_repeated") == 1


def test_the_mean_of_a_query_is_over_all_its_answers_and_that_of_an_answer_over_its_own():
    shard = Shard()
    for identity, name in enumerate(("x", "y"), 1):
        shard.hear(asked(identity, answer=name))
    for identity, (name, share) in enumerate((("x", 1.0), ("x", 0.5), ("y", 0.0), ("", 0.1)), 1):
        shard.hear(reward(START_MS, identity, answer=name, share=share))
    last = shard.told[-1]
    assert (last.total, last.total_count, last.unnamed, last.unnamed_count) == (1_600_000, 4, 100_000, 1)
    (*_, earned) = shard.hear(reward(START_MS, 9, answer="x", share=0.0))
    assert (earned.named, earned.named_count) == (1_500_000, 3)


@pytest.mark.parametrize(
    "flaw",
    [{"ref": ""}, {"finish_reason": "length"}, {"finish_reason": ""}, {"status": 500}, {"status": 0}, {"answer": ""}],
)
def test_only_whole_answers_whose_text_lies_ready_are_offered_to_the_cache(flaw):
    shard = Shard()
    shard.hear(asked(1, **flaw))
    told = shard.hear(reward(START_MS, 1, answer=flaw.get("answer", "x"), share=1.0))
    assert [type(each) for each in told] == [Rewarded]


def test_answers_of_evaluations_and_warm_ups_are_not_judged():
    shard = Shard()
    shard.hear(asked(1, demand=False))
    assert shard.hear(reward(START_MS, 1, answer="x")) == []


def test_a_judgement_that_names_no_answer_tells_of_the_latest_ones_only():
    shard = Shard()
    for number in range(7):
        shard.hear(asked(number + 1, answer=f"x{number}"))
    told = shard.hear(reward(START_MS, 1, share=1.0))
    assert [each.response for each in told] == [query(f"x{n}").hex() for n in range(7 - MAX_TOLD, 7)] + [""]


def test_the_same_query_and_answer_in_two_scopes_have_nothing_in_common():
    shard = Shard()
    shard.hear(asked(1, scope="a"))
    assert shard.hear(reward(START_MS, 1, answer="x", scope="b")) == []
    assert shard.hear(reward(START_MS, 2, scope="b")) == []
    told = shard.hear(asked(2, scope="b"))
    assert {each.scope for each in told} == {"b"}
    (_, earned) = shard.hear(reward(START_MS, 3, answer="x", share=1.0, scope="a"))
    assert (earned.scope, earned.total_count) == ("a", 1)


def test_judgements_and_answers_leave_memory_and_means_in_time():
    shard = Shard()
    shard.hear(asked(1))
    shard.hear(reward(START_MS, 1, answer="x", share=0.0))
    shard.until(START_MS + 40_000)
    shard.hear(asked(2, at_ms=START_MS + 40_000))
    shard.until(START_MS + 70_000)
    (_, earned) = shard.hear(reward(START_MS + 70_000, 2, answer="x", share=1.0))
    assert (earned.total, earned.total_count) == (MICRO, 1)
    shard.until(START_MS + 200_000)
    assert shard.demand.next_timer_ms is None
    assert not [key for key in shard.store.blobs if key < LAST_KEY]


def test_an_answer_that_is_given_again_and_again_is_written_down_now_and_then():
    shard = Shard()
    for second in range(40):
        shard.until(START_MS + 1_000 * second)
        for part in range(5):
            shard.hear(asked(5 * second + part + 1, at_ms=START_MS + 1_000 * second))
    assert shard.counted("answers_kept") <= 1 + 40_000 // CONFIG.rewards.refresh_ms
    assert len(shard.hear(reward(START_MS + 39_000, 1, answer="x"))) == 2


def test_memory_is_bounded_and_what_was_lost_is_counted():
    shard = Shard()
    for number in range(250):
        shard.hear(asked(number + 1, f"q{number}"))
    assert shard.counted("answers_lost") == 150
    shard.until(START_MS + 1_000)
    for number in range(80):
        shard.hear(asked(1_000 + number, f"r{number}", at_ms=START_MS + 1_000))
    shard.until(START_MS + 3_000)
    assert shard.hear(reward(START_MS + 3_000, 1, "r0", "x"))
    assert shard.hear(reward(START_MS + 3_000, 2, "q0", "x")) == []


def test_no_query_has_more_rewards_waiting_than_its_requests_can_look_at():
    shard = Shard()
    for number in range(1, MAX_WAITING + 11):
        shard.hear(reward(START_MS, number, answer="x" if number > 5 else "never"))
    assert shard.counted("reward_lost") == 10
    (*_, earned) = shard.hear(asked(1))
    assert earned.named_count == MAX_WAITING - 5
    assert shard.hear(reward(START_MS, 1_000, answer="x"))


def test_whichever_comes_first_the_sums_are_the_same():
    facts = [asked(1), asked(2, answer="y"), reward(START_MS, 1, answer="x", share=0.2)]
    facts += [reward(START_MS, 2, answer="y", share=0.7), reward(START_MS, 3, share=0.4)]

    @settings(max_examples=60, deadline=None)
    @given(st.permutations(facts))
    def check(order):
        shard = Shard()
        for fact in order:
            shard.hear(fact)
        (last,) = shard.hear(reward(START_MS, 4, "q", "", 0.0))[-1:]
        assert (last.total, last.total_count, last.unnamed, last.unnamed_count) == (1_300_000, 4, 400_000, 2)
        assert shard.counted("reward_joined") == 4

    check()


def test_what_is_joined_agrees_with_a_recount_whatever_the_order():
    names = st.sampled_from(["x", "y", "z"])
    events = st.one_of(
        st.tuples(st.just("answer"), names), st.tuples(st.just("reward"), st.sampled_from(["", "x", "y", "z"]))
    )

    @settings(max_examples=60, deadline=None)
    @given(st.lists(events, max_size=25), st.lists(st.integers(0, MICRO), min_size=25, max_size=25))
    def check(script, shares):
        shard = Shard()
        seen, rewards = set(), defaultdict(list)
        for number, ((kind, name), micro) in enumerate(zip(script, shares, strict=False), 1):
            if kind == "answer":
                seen.add(name)
                shard.hear(asked(number, answer=name))
            else:
                rewards[name].append(micro)
                shard.hear(reward(START_MS, number, answer=name, share=micro / MICRO))
        joined = [m for name, given_ in rewards.items() if (name in seen or (not name and seen)) for m in given_]
        assert shard.counted("reward_joined") == len(joined)
        said = [each for each in shard.told if isinstance(each, Rewarded)]
        assert (said[-1].total if said else 0) == sum(joined)

    check()


def test_a_shard_that_dies_after_every_fact_says_the_same():
    script = [
        Step(reward(START_MS, 1, answer="x"), START_MS, crash=True),
        Step(reward(START_MS, 2, answer="never"), START_MS, crash=True),
        Step(asked(1), START_MS + 1_500, crash=True),
        Step(reward(START_MS, 1, answer="x"), START_MS + 1_500, crash=True),
        Step(reward(START_MS + 1_500, 3, share=0.0), START_MS + 6_000, crash=True),
    ]
    whole, broken = live(CONFIG, script), live(CONFIG, script, crashes=True)
    assert broken.outputs == whole.outputs
    assert broken.demand.counters == whole.demand.counters
    assert whole.demand.counters["reward_unmatched"] == 1


def test_the_router_sends_both_to_the_redis_pool():
    shard = Shard()
    shard.hear(asked(1))
    out = shard.demand.on_fact(reward(START_MS, 1, answer="x"), START_MS, PolicyBook())
    for envelope in out:
        copy = for_redis(envelope, "redis:main")
        assert copy is not None
        assert (key_of(copy), tag_of(copy), body_of(copy)) == ("redis:main", tag_of(envelope), body_of(envelope))


def test_the_text_is_as_it_was_where_an_answer_stands_behind_it():
    shard = Shard()
    shard.hear(asked(1, text="zwei Wörter"))
    out = shard.demand.on_fact(asked(2, text="zwei Wörter"), START_MS, PolicyBook())
    (embed,) = (open_as(each, EmbedRequest) for each in out if tag_of(each) == Tag.EMBED)
    assert embed.text == "zwei Wörter"
