import msgspec
import pytest

from analytics.commands import command_key, priority_of
from analytics.decay import Decay
from analytics.envelopes import Partial, Tag, body_of, key_of, seal, tag_of
from analytics.experiments import assign
from analytics.memory import TargetMemory
from analytics.policy import ExperimentPolicy
from analytics.pools import envelope_key, for_redis, is_redis
from analytics.records import Record, Section, pack, path, unpack
from analytics.replicas import Fleet, Ready
from analytics.scope_rests import ScopeRests
from analytics.stores import MemoryMapStore
from analytics.targets import Target, TargetRecord
from analytics.timescale import scaled
from schemas import BrokenConfiguration, OutcomeReason, ReplicaSample, WarmupOutcome


def memory_of(store=None, bound=10, longest_rest_ms=3_600_000):
    store = store or MemoryMapStore()
    rests = ScopeRests(longest_rest_ms, Section(store, "z"))
    return TargetMemory(bound, Section(store, "t"), rests, longest_rest_ms)


def told(command_id, status, reason, warmed=0, apply_ms=0.0):
    return WarmupOutcome(
        outcome_id="1" * 32,
        command_id=command_id,
        target_key="k",
        scope="s",
        pool="p",
        replica="r",
        unit="u",
        status=status,
        reason=OutcomeReason(reason),
        finished_at_ms=150,
        apply_ms=apply_ms,
        tokens_warmed=warmed,
    )


def test_targets_are_forgotten_when_nothing_of_them_matters():
    store = MemoryMapStore()
    memory = memory_of(store)
    memory.issued("s", "k", "c", 1, 1, 100, 200, 180, 1.0, ("r",))
    memory.on_residency("s", "k", "r", 1, 150, 500)
    memory.forget(499)
    assert memory.get("s", "k") is not None
    memory.forget(500)
    assert memory.get("s", "k") is None
    assert not store.records


def test_beyond_the_bound_those_go_first_that_would_go_next():
    memory = memory_of(bound=3)
    for i in range(6):
        memory.issued("s", f"k{i}", "c", 1, 1, 0, 1000 - i, 0, 1.0, ())
    memory.forget(1)
    assert [f"k{i}" for i in range(6) if memory.get("s", f"k{i}")] == ["k0", "k1", "k2"]


def test_who_watches_is_told_of_every_change_and_of_what_had_to_go_too_early():
    memory, changed = memory_of(bound=2), []
    memory.watch(lambda scope, key: changed.append((scope, key)))
    for number in range(3):
        memory.issued("s", f"k{number}", "c", 1, 1, 0, 1000 - number, 0, 1.0, ("r",))
    memory.on_residency("s", "k0", "r", 1, 150, 990)
    memory.on_residency("s", "k0", "r", 1, 140, 0)  # no news
    assert changed == [("s", "k0"), ("s", "k1"), ("s", "k2"), ("s", "k0")]
    changed.clear()
    memory.forget(1)
    assert changed == [("s", "k2")], "beyond the bound"
    memory.forget(2_000)
    assert changed == [("s", "k2")], "the others no longer matter"
    assert not len(memory)


def test_a_residency_of_another_incarnation_does_not_count():
    target = Target("s", "k")
    memory = memory_of()
    memory.on_residency("s", "k", "r1", 7, 10, 100)
    target = memory.get("s", "k")
    assert target.missing(Ready(("r1", "r2"), (7, 8), (16, 16)), 50) == ("r2",)
    assert target.missing(Ready(("r1", "r2"), (9, 8), (16, 16)), 50) == ("r1", "r2")
    assert target.missing(Ready(("r1",), (7,), (16,)), 100) == ("r1",)


@pytest.mark.parametrize("action", ["unload", "invalidate"])
@pytest.mark.parametrize(("status", "reason"), [("applied", "done"), ("skipped", "already_absent")])
def test_what_was_taken_away_is_not_there_any_more(action, status, reason):
    memory = memory_of()
    memory.issued("s", "k", "0" * 32, 1, 1, 100, 200, 180, 1.0, ("r",))
    memory.on_outcome(told("0" * 32, "applied", "done"), 7, 1_000)
    assert memory.get("s", "k").resident_until("r", 7) == 1_150
    gone = msgspec.structs.replace(told("2" * 32, status, reason), action=action, finished_at_ms=160)
    memory.on_outcome(gone, 7, 1_000)
    assert memory.get("s", "k").resident_until("r", 7) == 0


@pytest.mark.parametrize(
    ("status", "reason", "stays", "failed"),
    [
        ("failed", "engine_refused", True, False),
        ("rejected", "unsupported", True, False),
        ("applied", "unverified", True, False),
        ("failed", "engine_unavailable", False, True),
        ("failed", "unverified", False, True),  # its executor died: the next one may well do it
    ],
)
def test_a_lasting_refusal_counts_as_served_and_a_passing_failure_does_not(status, reason, stays, failed):
    memory = memory_of()
    memory.issued("s", "k", "0" * 32, 1, 1, 100, 200, 180, 1.0, ("r",))
    memory.on_outcome(told("0" * 32, status, reason), 7, 1_000)
    target = memory.get("s", "k")
    assert target.failed_by(150) == failed
    assert target.resident_until("r", 7) == (1_150 if stays else 0)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("skipped", "text_withheld"),
        ("skipped", "content_missing"),
        ("skipped", "content_mismatch"),
        ("skipped", "answer_missing"),
        ("skipped", "below_reward_floor"),
        ("rejected", "index_mismatch"),
        ("skipped", "value_missing"),
        ("rejected", "loader_unknown"),
        ("failed", "loader_failed"),
    ],
)
def test_a_target_without_content_rests_on_all_replicas_twice_as_long_each_time_up_to_a_bound(status, reason):
    store = MemoryMapStore()
    memory = memory_of(store, longest_rest_ms=6_000)
    ready = Ready(("r", "r2"), (7, 8), (16, 16))
    at, rests = 0, []
    for turn in range(6):
        memory.issued("s", "k", f"{turn:032x}", turn, 1, at, at + 50, at + 40, 1.0, ("r", "r2"))
        for replica in ("r", "r2"):  # both of one command count once
            outcome = told(f"{turn:032x}", status, reason)
            memory.on_outcome(msgspec.structs.replace(outcome, replica=replica, finished_at_ms=at), 0, 1_000)
        target = memory.get("s", "k")
        assert not target.failed_by(at)
        rests.append(target.rests_until_ms - at)
        at = target.rests_until_ms
        assert target.missing(ready, at - 1) == ()
        assert target.first_lapse(ready, at - 1) == at
        assert target.missing(ready, at) == ("r", "r2")
        memory.forget(at)
        rebuilt = memory_of(store, longest_rest_ms=6_000)
        for _, blob in store.copy().items():
            rebuilt.restore(blob)
        memory = rebuilt
    assert rests == [1_000, 2_000, 4_000, 6_000, 6_000, 6_000]
    assert len(memory) == 1
    memory.forget(at + 6_000)
    assert len(memory) == 0


def test_content_that_is_there_again_ends_the_doubling():
    memory = memory_of()
    for turn, (status, reason) in enumerate([("skipped", "content_missing"), ("applied", "done")] * 2):
        memory.issued("s", "k", f"{turn:032x}", turn, 1, 100, 200, 180, 1.0, ("r",))
        memory.on_outcome(told(f"{turn:032x}", status, reason), 7, 1_000)
        target = memory.get("s", "k")
        assert target.rest_ms == (1_000 if status == "skipped" else 0)
        assert target.missing(Ready(("r",), (7,), (16,)), 160) == ()


def answered(memory, replica, reason="no_replica", status="rejected", warmed=0):
    """What an outcome of command 0 on a replica leaves of its charge."""
    outcome = msgspec.structs.replace(told("0" * 32, status, reason, warmed), replica=replica)
    return memory.on_outcome(outcome, 7, 1_000)


def test_a_replica_that_an_executor_does_not_know_answers_for_itself_alone():
    memory = memory_of()
    memory.issued("s", "k", "0" * 32, 1, 1, 100, 200, 180, 50.0, ("r", "r2", "r3"))
    assert answered(memory, "r2") == 50.0
    target = memory.get("s", "k")
    assert (target.waiting, target.live(150), target.failed_by(150)) == (("r", "r3"), True, True)
    assert answered(memory, "r2") == 0.0, "a repetition is charged back once"
    assert answered(memory, "r", "done", "applied", 40) == 10.0
    assert answered(memory, "r3", "done", "applied", 50) == 0.0
    assert (target.waiting, target.live(150)) == ((), False)
    assert target.missing(Ready(("r", "r2", "r3"), (7, 7, 7), (16, 16, 16)), 160) == ("r2",)


@pytest.mark.parametrize("names", [("r", "r2"), ()])
def test_an_executor_without_any_replica_of_a_pool_answers_for_all_of_them(names):
    memory = memory_of()
    memory.issued("s", "k", "0" * 32, 1, 1, 100, 200, 180, 50.0, names)
    assert answered(memory, "p") == 50.0 * max(1, len(names))
    target = memory.get("s", "k")
    assert (target.waiting, target.failed_by(150)) == ((), True)


@pytest.mark.parametrize("reason", ["expired_on_arrival", "frozen"])
def test_the_pool_s_name_speaks_for_all_only_where_no_replica_is_known(reason):
    memory = memory_of()
    memory.issued("s", "k", "0" * 32, 1, 1, 100, 200, 180, 50.0, ("r", "r2"))
    assert answered(memory, "p", reason) == 0.0
    assert memory.get("s", "k").waiting == ("r", "r2")


def test_a_replica_that_is_called_as_its_pool_is_speaks_for_itself():
    memory = memory_of()
    memory.issued("s", "k", "0" * 32, 1, 1, 100, 200, 180, 50.0, ("p", "r2"))
    assert answered(memory, "p") == 50.0
    assert memory.get("s", "k").waiting == ("r2",)


def test_a_later_version_of_state_is_refused():
    record = TargetRecord(2, "s", "k", "c", 1, 1, 0, 0, 0, 0.0, (), False, ())
    with pytest.raises(BrokenConfiguration, match="version 2"):
        unpack(pack(record), TargetRecord)


def test_readers_of_records_ignore_what_later_minor_versions_add():
    class Wider(Record, frozen=True, array_like=True):
        scope: str
        queries: int
        added: str

    class Narrow(Record, frozen=True, array_like=True):
        scope: str
        queries: int

    assert unpack(pack(Wider(1, "s", 2, "new")), Narrow) == Narrow(1, "s", 2)


def test_paths_of_different_names_differ():
    assert path("a", "bc") != path("ab", "c")
    assert path("1:a", "b") != path("1", "a1:b")


def sample(at, state="ready", incarnation="i", replica="r"):
    return ReplicaSample(replica=replica, pool="p", incarnation=incarnation, sampled_at_ms=at, state=state)


def test_a_fleet_takes_the_latest_sample_and_forgets_the_dead():
    store = MemoryMapStore()
    fleet = Fleet(10_000, Decay.half_life(300_000), Section(store, "p"))
    fleet.on_sample(sample(5_000))
    fleet.on_sample(sample(4_000, state="lost"))
    assert fleet.ready(15_000).names == ("r",)
    assert fleet.ready(15_001).names == ()
    fleet.on_sample(sample(6_000, incarnation="j"))
    assert fleet.ready(6_000).mark_of("r") == fleet.mark("r") != 0
    fleet.on_sample(sample(6_000 + 3_600_001, replica="q"))
    assert list(store.records) == ["pq"]


def test_who_came_beside_others_is_cold_for_a_while():
    store = MemoryMapStore()
    fleet = Fleet(10_000, Decay.half_life(300_000), Section(store, "p"), 60_000)

    def cold_after(*samples):
        for each in samples:
            fleet.on_sample(each)
        return fleet.ready(samples[-1].sampled_at_ms).cold

    assert cold_after(sample(1_000, replica="a"), sample(1_500, replica="b")) == 0, "nobody is warmer than they"
    assert cold_after(sample(100_000, replica="a"), sample(100_000, replica="b")) == 0
    assert cold_after(sample(100_500, state="lost", replica="b"), sample(101_000, replica="a")) == 0
    assert (
        cold_after(sample(102_000, incarnation="j", replica="b", state="starting"), sample(150_000, replica="a")) == 0
    )
    assert cold_after(sample(150_000, incarnation="j", replica="b")) == 1, "time begins when it is ready"
    assert cold_after(sample(151_000, replica="c")) == 2, "a new one too"
    again = Fleet(10_000, Decay.half_life(300_000), Section(store.copy(), "p"), 60_000)
    for blob in store.copy().records.values():
        again.restore(blob)
    assert again.ready(151_000) == fleet.ready(151_000)
    assert cold_after(sample(209_999, replica="a"), sample(209_999, incarnation="j", replica="b")) == 1, "c is gone"
    assert cold_after(sample(211_000, replica="a"), sample(211_000, incarnation="j", replica="b")) == 0


def test_arms_follow_their_share_and_change_with_the_day():
    policy = ExperimentPolicy(hold_share=0.2, salt="x")
    units = [f"unit{i}" for i in range(2000)]
    day = {unit: assign(unit, 1_790_000_000_000, policy) for unit in units}
    held = [unit for unit in units if day[unit].arm == "hold"]
    assert 330 < len(held) < 470
    assert {day[unit].propensity for unit in held} == {0.2}
    assert assign("u", 0, ExperimentPolicy(hold_share=0)).arm == "warm"
    assert assign("u", 0, ExperimentPolicy(hold_share=1)).arm == "hold"
    tomorrow = [unit for unit in held if assign(unit, 1_790_086_400_000, policy).arm == "hold"]
    assert 0.1 < len(tomorrow) / len(held) < 0.3


def test_only_query_totals_are_copied_to_the_redis_pool():
    def envelope(dimension):
        return seal(Tag.PARTIAL, "p", Partial("s", "p", dimension, 0, 0, 10, 1, 1.0, 0.0, 1, 1, ()))

    copy = for_redis(envelope("query"), "redis:main")
    assert (tag_of(copy), key_of(copy)) == (Tag.PARTIAL, "redis:main")
    assert body_of(copy) == body_of(envelope("query"))
    assert for_redis(envelope("template"), "redis:main") is None
    assert for_redis(seal(Tag.DELTA, "s", b""), "redis:main") is None
    assert is_redis("redis:main")
    assert not is_redis("chat")


def test_keys_of_long_names_are_digests():
    assert envelope_key("é" * 127) == "é" * 127
    assert len(envelope_key("é" * 200)) == 32
    assert command_key("p", "prefix:x") == "p prefix:x"


def test_priorities_span_their_range():
    assert [priority_of(rank, 4) for rank in range(4)] == [999, 749, 499, 249]
    assert priority_of(0, 1) == 999
    assert all(0 <= priority_of(rank, 5000) <= 999 for rank in range(5000))


def test_time_scale_divides_and_never_reaches_zero():
    assert [scaled(10_000, s) for s in (1, 10, 7, 1e9)] == [10_000, 1_000, 1_429, 1]
