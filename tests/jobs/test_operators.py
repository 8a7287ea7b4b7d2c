"""Operators over an in-memory stand-in of Flink: keys do not mix, and a new object goes on from the state."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import chain
from typing import Any

import msgspec
import pytest

from analytics.bundles import pack, pack_record, unpack
from analytics.clustered import QueryVector
from analytics.demand import Demand
from analytics.envelopes import Embedded, EmbedRequest, Partial, PrefixDelta, Tag, key_of, open_as, seal, tag_of
from analytics.facts import shard_of
from analytics.ingest import Ingest
from connectors.encoders.fake import FakeEncoder
from connectors.redis.fake import MemoryBlobs, MemoryStore, MemoryVectors
from jobs import embedding, metrics
from jobs.operators import embed as embed_module
from jobs.operators.demand import DemandOperator
from jobs.operators.embed import EmbedOperator
from jobs.operators.exits import Exits
from jobs.operators.ingest import IngestOperator
from jobs.operators.plan import PlanOperator
from jobs.operators.policy import PolicyGate
from jobs.operators.prefix import PrefixOperator
from jobs.operators.route import Route
from jobs.operators.tags import CONTROL, COUNTS, DEAD, DELTAS, EMBEDS, INSIGHTS, VECTORS
from jobs.placement import shard_keys
from jobs.settings import JobSettings
from jobs.state import open_log_store
from jobs.tallies import Tallies
from jobs.timers import Alarms, event_time_ms
from schemas import Accounting, DeadLetter, Policy, ReplicaSample, decode, encode
from stoker.bench.workload import Workload
from tests.jobs.flink_stand_in import AtOnce, Backend, Context, Plain

START_MS = 1_796_000_000_000
SETTINGS = JobSettings()
CONFIG = SETTINGS.to_json()
SINGLY = JobSettings.model_validate({"warmup": {"bundle_records": 1}}).to_json()
"""Records come to ingest as they lie on their topic."""
SIXTEEN = JobSettings.model_validate({"warmup": {"embed_batch": 16}}).to_json()
"""Texts in a model call."""
POOL = SETTINGS.redis.pool_key


def facts(count: int) -> list[bytes]:
    """Facts of a workload, 10 ms apart."""
    ingest, workload = Ingest(SETTINGS.ingest()), Workload()
    made = [ingest.on_record(workload.record(START_MS + i * 10), START_MS + i * 10).fact for i in range(count)]
    return [fact for fact in made if fact is not None]


def key(shard: int) -> int:
    """By which the stream of facts is keyed."""
    return shard_keys(SETTINGS.warmup.shards)[shard]


def is_side(out: Any) -> bool:
    """Whether an output leaves by a tag."""
    return isinstance(out, tuple)


def opened(operator: Any, backend: Backend) -> Any:
    """The operator, as Flink has it after a start."""
    operator.open(backend)
    return Plain(operator)


def test_ingest_splits_facts_control_and_dead_letters() -> None:
    backend = Backend()
    operator = opened(IngestOperator(SINGLY), backend)
    context = Context(backend, watermark_ms=START_MS)
    (fact,) = operator.process_element(Workload().record(START_MS), context)
    assert isinstance(fact, bytes)
    sample = ReplicaSample(replica="r", pool="gpu", incarnation="1", sampled_at_ms=START_MS, state="ready")
    ((tag, control),) = operator.process_element(encode(sample), context)
    assert tag is CONTROL
    assert key_of(control) == "gpu"
    (tag, row), counted = operator.process_element(b"{", context)
    assert isinstance(counted, bytes)
    assert tag is DEAD
    assert row[0] == b"malformed_json"
    assert decode(row[1], DeadLetter).source_topic == "llm.requests"
    assert backend.counters["stoker_dead_letters"].count == 1


def test_a_bundle_of_records_gives_what_its_records_give_and_one_row_a_shard() -> None:
    workload = Workload()
    records = [(START_MS + i * 10, workload.record(START_MS + i * 10)) for i in range(100)]
    records[3:3] = [(START_MS + 30, b"{"), (START_MS + 60_000 + 30, records[4][1]), (START_MS, b"")]
    singly, bundled = opened(IngestOperator(SINGLY), Backend()), opened(IngestOperator(CONFIG), Backend())
    expected = [out for at, record in records for out in singly.process_element(record, Context(Backend(), None, at))]
    bundle = b"".join(pack_record(*each) for each in records)
    found = bundled.process_element(bundle, Context(Backend(), None, START_MS + 100_000))
    assert [row[1] for tag, row in filter(is_side, found)] == [row[1] for tag, row in filter(is_side, expected)]
    rows = [unpack(row) for row in found if isinstance(row, bytes)]
    assert len(rows) == SETTINGS.warmup.shards
    assert sorted(chain.from_iterable(rows)) == sorted(
        fact for row in expected if isinstance(row, bytes) for fact in unpack(row)
    )
    for row in rows:
        assert len({shard_of(fact) for fact in row}) == 1


def test_demand_takes_a_bundle_as_it_takes_its_facts_and_dies_well_between_two() -> None:
    def outputs(size: int, die: bool) -> list[bytes]:
        backend, out, due = Backend(), [], {}
        operator = opened(DemandOperator(CONFIG), backend)
        mine = [fact for fact in facts(600) if shard_of(fact) == 3] * 2
        for at in range(0, len(mine), size):
            if die:
                operator = opened(DemandOperator(CONFIG), backend)
            context = Context(backend, key(3), START_MS)
            out += operator.process_element(pack(mine[at : at + size]), context)
            due |= dict.fromkeys(context.event_timers)
        assert die or backend.counters["stoker_facts"].count == len(mine)
        return out + [each for at in due for each in operator.on_timer(at, Context(backend, key(3), at))]

    alone = outputs(1, die=False)
    assert {tag_of(envelope) for envelope in alone} >= {Tag.PARTIAL, Tag.DELTA, Tag.INSIGHT}
    assert outputs(16, die=False) == outputs(16, die=True) == outputs(10_000, die=False) == alone


def test_entries_written_before_bundles_are_still_read() -> None:
    backend = Backend()
    backend.key = 0
    store = open_log_store(backend, 2)
    store._logs[1].add(b"\x00old")
    store.append(1, b"\x00new")
    store.append(1, b"")
    assert store.read(1) == [b"\x00old", b"\x00new", b""]
    store.flush()
    store.flush()
    assert open_log_store(backend, 2).read(1) == [b"\x00old", b"\x00new", b""]
    store.append(1, b"gone")
    store.clear(1)
    store.flush()
    assert open_log_store(backend, 2).read(1) == []


def test_demand_restored_at_any_point_says_the_same_as_one_that_never_died() -> None:
    def outputs(die_at: int | None) -> list[bytes]:
        backend, out, timers = Backend(), [], {}
        operator = opened(DemandOperator(CONFIG), backend)
        for index, fact in enumerate(facts(300)):
            if index == die_at:
                operator = opened(DemandOperator(CONFIG), backend)
            context = Context(backend, key(shard_of(fact)), START_MS)
            out += operator.process_element(pack([fact]), context)
            timers.update(dict.fromkeys((at, shard_of(fact)) for at in context.event_timers))
        for at, shard in sorted(timers):
            out += operator.on_timer(at, Context(backend, key(shard), at))
        return out

    steady = outputs(None)
    assert {tag_of(envelope) for envelope in steady} >= {Tag.PARTIAL, Tag.DELTA, Tag.INSIGHT}
    assert outputs(150) == steady
    accounts = [msgspec.json.decode(e[2 + e[1] :]) for e in steady if tag_of(e) == Tag.INSIGHT and b"accounting" in e]
    assert sum(account["counted"] for account in accounts) == 300


def test_every_counter_of_a_shard_is_a_documented_metric() -> None:
    backend = Backend()
    backend.key = 0
    shard = Demand(SETTINGS.demand(), 0, open_log_store(backend, SETTINGS.demand().logs))
    assert {f"{metrics.DEMAND}_{name}" for name in shard.counters} <= set(metrics.METRICS)


def test_counters_of_a_restored_shard_tell_only_what_is_new() -> None:
    backend = Backend()
    tallies = Tallies(backend, "stoker_demand")
    tallies.begin(1, {"late": 5})
    tallies.tell(1, {"late": 7, "duplicate": 0})
    tallies.tell(2, {"late": 1})
    tallies.tell(1, {"late": 7})
    assert {name: counter.count for name, counter in backend.counters.items()} == {"stoker_demand_late": 3}


def test_demand_registers_its_timer_once_and_ignores_one_that_was_moved() -> None:
    backend = Backend()
    operator = opened(DemandOperator(CONFIG), backend)
    registered = []
    for fact in [fact for fact in facts(400) if shard_of(fact) == shard_of(facts(1)[0])]:
        context = Context(backend, key(shard_of(fact)), START_MS)
        operator.process_element(pack([fact]), context)
        registered += context.event_timers
    assert len(registered) == 1
    assert operator.on_timer(registered[0] - 1, Context(backend, key(shard_of(facts(1)[0])), registered[0])) == []


def test_demand_refuses_a_state_of_another_number_of_shards() -> None:
    from schemas import BrokenConfiguration

    backend = Backend()
    fact = facts(1)[0]
    opened(DemandOperator(CONFIG), backend).process_element(
        pack([fact]), Context(backend, key(shard_of(fact)), START_MS)
    )
    other = JobSettings.model_validate({"warmup": {"shards": 64}}).to_json()
    with pytest.raises(BrokenConfiguration, match="shards=8"):
        opened(DemandOperator(other), backend).process_element(
            pack([fact]), Context(backend, key(shard_of(fact)), START_MS)
        )


def test_policy_survives_in_broadcast_state() -> None:
    backend = Backend()
    operator = opened(DemandOperator(CONFIG), backend)
    off = Policy(
        scope="*", section="plan", writer="w", version=3, at_ms=START_MS, body={"second_sight": False}
    )  # fmt: skip
    assert operator.process_broadcast_element(encode(off), Context(backend)) == ()
    older = Policy(scope="*", section="plan", writer="w", version=2, at_ms=START_MS, body={"second_sight": True})
    operator.process_broadcast_element(encode(older), Context(backend))
    assert list(backend.broadcast) == ["*/plan/w"]
    restored = opened(DemandOperator(CONFIG), backend)
    sent = []
    for fact in facts(200) + facts(200):
        sent += restored.process_element(pack([fact]), Context(backend, key(shard_of(fact)), START_MS))
    assert sent == []


def test_route_sends_each_envelope_where_its_tag_says() -> None:
    operator = opened(Route(POOL, 4), Backend())
    partial = seal(Tag.PARTIAL, "gpu", Partial("s", "gpu", "query", 0, 0, 0, 1, 1.0, 0.0, 1, 1, ()))
    adapters = seal(Tag.PARTIAL, "gpu", Partial("s", "gpu", "adapter", 0, 0, 0, 1, 1.0, 0.0, 1, 1, ()))
    delta = seal(Tag.DELTA, "s", PrefixDelta("s", "gpu", 0, 0, (), (), 0.0))
    request = seal(Tag.EMBED, "s", EmbedRequest("s", "q" * 32, "text", 0, "second_sight"))
    insight = seal(Tag.INSIGHT, "s", b"{}")

    def routed(envelope: bytes) -> list[Any]:
        return list(operator.process_element(envelope, None))

    query, (counts, copy) = routed(partial)
    assert key_of(query) == POOL
    assert open_as(query, Partial).pool == "gpu"
    assert (counts, key_of(copy), open_as(copy, Partial)) == (COUNTS, "s", open_as(partial, Partial))
    assert routed(adapters) == [adapters]
    assert routed(delta) == [(DELTAS, delta)]
    assert routed(request) == [(EMBEDS, request)]
    ((tag, row),) = routed(insight)
    assert tag is INSIGHTS
    assert (row[0], row[1]) == (b"s", b"{}")


def embedder_on(monkeypatch: pytest.MonkeyPatch) -> FakeEncoder:
    """The embed operator's port, without Redis and model."""
    store, encoder = MemoryStore(), FakeEncoder()
    made = embedding.Embedder(SETTINGS.embedding(), encoder, MemoryVectors(store), MemoryBlobs(store))
    monkeypatch.setattr(embed_module, "open_embedder", lambda *_: made)
    monkeypatch.setattr(embed_module, "ThreadPoolExecutor", AtOnce)
    return encoder


def wanted(index: int) -> bytes:
    """An embedding request."""
    return seal(Tag.EMBED, "s", EmbedRequest("s", f"{index:032x}", f"text {index}", START_MS, "second_sight"))


def test_embed_waits_for_company_and_flushes_a_full_batch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder_on(monkeypatch)
    backend = Backend()
    operator = opened(EmbedOperator(SIXTEEN), backend)
    timers: list[int] = []
    for index in range(15):
        context = Context(backend, 0, wall_ms=START_MS)
        assert operator.process_element(wanted(index), context) == []
        timers += context.processing_timers
    assert timers == [START_MS + 10]
    done = operator.process_element(wanted(15), Context(backend, 0, wall_ms=START_MS + 5))
    told = [envelope for envelope in done if isinstance(envelope, bytes)]
    assert {key_of(envelope) for envelope in told} == {POOL}
    assert [open_as(envelope, Embedded).query for envelope in told] == [f"{index:032x}" for index in range(16)]
    vectors = [envelope for envelope in done if not isinstance(envelope, bytes)]
    assert {(tag, key_of(envelope)) for tag, envelope in vectors} == {(VECTORS, "s")}
    assert [open_as(envelope, QueryVector).query for _, envelope in vectors] == [f"{index:032x}" for index in range(16)]
    assert operator.on_timer(timers[0], Context(backend, 0, wall_ms=timers[0])) == []


def test_embed_fills_its_batches_from_a_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder_on(monkeypatch)
    operator, timers = opened(EmbedOperator(SIXTEEN), Backend()), []
    for index, age_ms in enumerate((2_000, 2_001)):
        context = Context(Backend(), 0, wall_ms=START_MS + age_ms)
        assert operator.process_element(wanted(index), context) == []
        timers += context.processing_timers
    assert timers == [START_MS + 2_000 + 200]
    done = operator.on_timer(timers[0], Context(Backend(), 0, wall_ms=timers[0]))
    assert sum(isinstance(envelope, bytes) for envelope in done) == 2


def test_embed_finds_its_waiting_requests_again_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = embedder_on(monkeypatch)
    backend = Backend()
    opened(EmbedOperator(SIXTEEN), backend).process_element(wanted(1), Context(backend, 0, wall_ms=START_MS))
    restored = opened(EmbedOperator(SIXTEEN), backend)
    context = Context(backend, 0, wall_ms=START_MS + 5)
    assert restored.process_element(wanted(2), context) == []
    assert context.processing_timers == []  # Flink has restored the first one's
    done = restored.on_timer(START_MS + 10, Context(backend, 0, wall_ms=START_MS + 10))
    assert sum(isinstance(envelope, bytes) for envelope in done) == 2
    assert encoder.texts_encoded == 2
    assert backend.counters["stoker_embedded"].count == 2


class Model(AtOnce):
    """A model's thread that is done when the test says so."""

    def __init__(self, **names: Any) -> None:
        del names
        self.given: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, task: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        self.given.append((Future(), lambda: task(*args, **named)))
        return self.given[-1][0]

    def finish(self) -> None:
        done, task = self.given.pop(0)
        done.set_result(task())


def test_embed_goes_on_while_the_model_works_and_forgets_only_what_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, backend = embedder_on(monkeypatch), Backend()
    monkeypatch.setattr(embed_module, "ThreadPoolExecutor", Model)
    operator = opened(EmbedOperator(SIXTEEN), backend)

    def asked(first: int, last: int) -> list[Any]:
        out: list[Any] = []
        for index in range(first, last):
            out += operator.process_element(wanted(index), Context(backend, 0, wall_ms=START_MS))
        return out

    def timer() -> tuple[list[Any], list[int]]:
        context = Context(backend, 0, wall_ms=START_MS + 10)
        return operator.on_timer(START_MS + 10, context), context.processing_timers

    def queries(out: list[Any]) -> list[int]:
        return [int(open_as(each, Embedded).query, 16) for each in out if isinstance(each, bytes)]

    assert asked(0, 40) == []  # the model has the first sixteen, and nobody waits for it
    assert timer() == ([], [START_MS + 20])
    operator._model.finish()
    out, timers = timer()
    assert (queries(out), timers) == (list(range(16)), [START_MS + 20])
    operator = opened(EmbedOperator(SIXTEEN), backend)
    assert (timer()[0], len(operator._model.given)) == ([], 1)  # what it had when it died, it gets again
    operator._model.finish()
    assert queries(timer()[0]) == list(range(16, 32))
    assert encoder.texts_encoded == 32


def test_embed_drops_what_finds_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder_on(monkeypatch)
    monkeypatch.setattr(embed_module, "ThreadPoolExecutor", Model)
    monkeypatch.setattr(embed_module, "MAX_WAITING", 20)
    backend = Backend()
    operator = opened(EmbedOperator(SIXTEEN), backend)
    for index in range(40):
        assert not operator.process_element(wanted(index), Context(backend, 0, wall_ms=START_MS))
    assert backend.counters["stoker_embeds_dropped"].count == 40 - 16 - 20
    assert len(list(operator._state.items())) == 36


def test_prefix_and_plan_go_on_from_their_state() -> None:
    def outputs(die: bool) -> list[bytes]:
        backend, out = Backend(), []
        demand = opened(DemandOperator(CONFIG), Backend())
        timers = {}
        for fact in facts(500):
            context = Context(demand._marker_state._backend, key(shard_of(fact)), START_MS)
            demand.process_element(pack([fact]), context)
            timers.update(dict.fromkeys((at, shard_of(fact)) for at in context.event_timers))
        slid = [
            envelope
            for at, shard in sorted(timers)
            for envelope in demand.on_timer(at, Context(demand._marker_state._backend, key(shard), at))
        ]
        prefix = opened(PrefixOperator(CONFIG), backend)
        due: set[int] = set()
        deltas = [envelope for envelope in slid if tag_of(envelope) == Tag.DELTA]
        for index, delta in enumerate(deltas):
            if die and index == len(deltas) // 2:
                prefix = opened(PrefixOperator(CONFIG), backend)
            context = Context(backend, key_of(delta), START_MS + 10_000)
            assert prefix.process_element(delta, context) == []
            due |= set(context.event_timers)
        for at in sorted(due):
            out += prefix.on_timer(at, Context(backend, "default", at))
        planner_state = Backend()
        plan = opened(PlanOperator(CONFIG), planner_state)
        now_ms = START_MS + 20_000
        sample = ReplicaSample(replica="r0", pool="gpu", incarnation="1", sampled_at_ms=now_ms, state="ready")
        ticks: set[int] = set()
        for envelope in [seal(Tag.CONTROL, "gpu", encode(sample)), *out]:
            context = Context(planner_state, key_of(envelope), now_ms, now_ms)
            out += plan.process_element(envelope, context)
            ticks |= set(context.event_timers)
            if die:
                plan = opened(PlanOperator(CONFIG), planner_state)
        for at in sorted(ticks):
            out += plan.on_timer(at, Context(planner_state, "gpu", at, at))
        return out

    steady = outputs(die=False)
    assert {tag_of(envelope) for envelope in steady} >= {Tag.CANDIDATES, Tag.COMMAND}
    assert outputs(die=True) == steady


def test_plan_lets_go_of_a_pool_that_only_a_producer_has_named() -> None:
    backend = Backend()
    plan = opened(PlanOperator(CONFIG), backend)
    partial = Partial("s", "made up", "template", 0, START_MS, START_MS + 10_000, 1, 1.0, 0.0, 1, 1, ())
    context = Context(backend, "made up", START_MS, START_MS)
    plan.process_element(seal(Tag.PARTIAL, "made up", partial), context)
    due = context.event_timers
    assert list(plan._live) == ["made up"]
    while due:
        context = Context(backend, "made up", due[0], due[0])
        plan.on_timer(due[0], context)
        due = context.event_timers
    plan.on_timer(START_MS, Context(backend, "made up", START_MS, START_MS))
    assert plan._live == {}
    assert plan._live.marker_state.keys() == []
    assert plan._live._store.items() == []


def test_exits_count_commands_by_kind_and_turn_envelopes_into_rows() -> None:
    backend = Backend()
    operator = opened(Exits(), backend)
    command = b'{"target":{"kind":"prefix"},"more":1}'
    (row,) = operator.process_element(seal(Tag.COMMAND, "gpu prefix:1", command), None)
    assert (row[0], row[1]) == (b"gpu prefix:1", command)
    ((tag, insight),) = operator.process_element(seal(Tag.INSIGHT, "gpu", b"{}"), None)
    assert tag is INSIGHTS
    assert insight[1] == b"{}"
    assert backend.counters["stoker_commands"].count == 1


def test_a_policy_that_cannot_be_read_is_a_dead_letter() -> None:
    backend = Backend()
    operator = opened(PolicyGate("staging-warmup.policy"), backend)
    good = encode(Policy(scope="*", section="plan", writer="w", version=1, at_ms=START_MS))
    context = Context(backend, watermark_ms=START_MS)
    assert list(operator.process_element(good, context)) == [good]
    ((tag, row),) = operator.process_element(good.replace(b'"plan"', b'"plans"'), context)
    assert tag is DEAD
    letter = decode(row[1], DeadLetter)
    assert (letter.source_topic, letter.path) == ("staging-warmup.policy", "$.section")


def test_accounting_of_a_shard_that_only_saw_dead_records_is_published() -> None:
    backend = Backend()
    ingest, operator = opened(IngestOperator(SINGLY), Backend()), opened(DemandOperator(CONFIG), backend)
    _, counted = ingest.process_element(b"{", Context(Backend(), watermark_ms=START_MS))
    shard_key = key(shard_of(unpack(counted)[0]))
    context = Context(backend, shard_key, START_MS)
    operator.process_element(counted, context)
    (due,) = context.event_timers
    (insight,) = operator.on_timer(due, Context(backend, shard_key, due))
    assert decode(insight[2 + insight[1] :], Accounting).dead == 1


def test_alarms_set_a_timer_once_and_again_after_it_changed() -> None:
    alarms, context = Alarms(), Context(Backend())
    for due in (10, 10, 20, None, 20):
        alarms.arm("k", due, context)
    assert context.event_timers == [10, 20, 20]
    assert Alarms.due(20, 20)
    assert not Alarms.due(10, 20)
    assert not Alarms.due(10, None)


def test_event_time_before_the_first_watermark_is_zero() -> None:
    assert event_time_ms(Context(Backend(), watermark_ms=-(2**63))) == 0


def test_shards_end_a_slide_one_after_the_other_and_the_prefix_trees_after_all_of_them() -> None:
    backend, due = Backend(), {}
    operator = opened(DemandOperator(CONFIG), backend)
    deltas = []
    for fact in facts(300):
        context = Context(backend, key(shard_of(fact)), START_MS)
        operator.process_element(pack([fact]), context)
        due.update((shard_of(fact), at) for at in context.event_timers)
    slide_ms, spread_ms = SETTINGS.warmup.pane_ms, SETTINGS.slide_spread_ms
    assert 0 < spread_ms < SETTINGS.planning().scaled_tick_ms
    assert {at // slide_ms for at in due.values()} == {START_MS // slide_ms + 1}
    assert due == {shard: due[0] + spread_ms * shard // SETTINGS.warmup.shards for shard in sorted(due)}
    assert due[0] % slide_ms == 0
    for shard, at in due.items():
        assert operator.on_timer(at - 1, Context(backend, key(shard), at - 1)) == []
        deltas += [e for e in operator.on_timer(at, Context(backend, key(shard), at)) if tag_of(e) == Tag.DELTA]
    assert {open_as(each, PrefixDelta).at_ms for each in deltas} == {due[0]}
    context = Context(backend, "default", max(due.values()))
    opened(PrefixOperator(CONFIG), Backend()).process_element(deltas[0], context)
    assert context.event_timers == [due[0] + spread_ms]
