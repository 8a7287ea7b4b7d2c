"""Replicas that come, drain, move and leave while an executor runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.discovery import DiscoverySettings, DnsSettings, Endpoint
from connectors.discovery.clock import Clock
from connectors.discovery.fake import FakeDiscovery
from connectors.engines.fake import FakeEngine
from connectors.metrics import PrometheusMetrics
from connectors.redis import fake
from executor.ports import ReplicaSource, wall_clock_ms
from executor.service import Executor
from schemas import Cancel, Replicas, ReplicaSample, WarmupCommand, decode, encode, topics

LONG = " ".join(f"word{i}" for i in range(40))
DNS = DnsSettings(host="vllm.internal", port=8000, pool="gpu")
HOUR_S = 3_600.0


class Cluster:
    """A world whose replicas are found by a fake, each an engine of its own at its own address."""

    def __init__(self, world: Any, **discovery: Any) -> None:
        self.world = world
        world.engines.clear()
        self.metrics = PrometheusMetrics()
        self.source = FakeDiscovery(metrics=self.metrics, **discovery)
        self.at: dict[str, FakeEngine] = {}

    async def start(self, **settings: Any) -> Executor:
        # What is not heard of after `await_s` is turned away.
        values = {"discovery": DiscoverySettings(dns=(DNS,), await_s=0.2), "concurrency": 1, **settings}
        # The world starts what has its settings; a second one beside it, with metrics, is what is tested.
        seed = await self.world.start(**values)
        await seed.drain()
        ports = self.world.ports(sources=(ReplicaSource(DNS, self.source),), engine=self._engine)
        executor = Executor(seed.tree, ports, self.metrics)
        self.world.executors.append(executor)
        await executor.begin()
        return executor

    def _engine(self, settings: Any) -> FakeEngine:
        return self.at.setdefault(settings.url, FakeEngine())

    def come(self, name: str, url: str | None = None, **fields: Any) -> FakeEngine:
        url = url or f"http://{name}"
        engine = self.at.setdefault(url, FakeEngine(**fields))
        self.source.put(Endpoint(name, url))
        return engine

    def drain(self, name: str, draining: bool = True) -> None:
        self.source.put(Endpoint(name, f"http://{name}", draining=draining))

    def warm(self, text: str, replica: str = "a", **fields: Any) -> WarmupCommand:
        fields = {"replicas": Replicas(names=(replica,)), **fields}
        command: WarmupCommand = self.world.warm(self.world.prefix(f"{text} {LONG}"), **fields)
        self.world.send(command)
        return command

    def samples(self, name: str) -> list[ReplicaSample]:
        found = [decode(value, ReplicaSample) for value in self.world.records(topics.TELEMETRY)]
        return [sample for sample in found if sample.replica == name]

    async def seen(self, name: str, state: str) -> ReplicaSample:
        await self.world.until(lambda: [s for s in self.samples(name) if s.state == state])
        return [s for s in self.samples(name) if s.state == state][-1]

    async def busy(self, executor: Executor, waiting: int) -> None:
        """One work runs and so many wait."""
        department = executor._departments[0]
        await self.world.until(lambda: department.workers.running == 1 and len(department.pool._line) == waiting)

    def known(self) -> float | None:
        return self.metrics.registry.get_sample_value("stoker_executor_replicas_known_count", {"pool": "gpu"})

    def page(self) -> str:
        return self.metrics.exposition().decode()


async def test_a_replica_that_comes_is_probed_watched_and_warmed(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    await cluster.start(readiness_probe=True)
    assert (await world.outcome(cluster.warm("one"))).status == "applied"
    engine = cluster.come("b")
    first = await cluster.seen("b", "ready")
    assert (first.pool, first.incarnation != "") == ("gpu", True)
    await world.until(lambda: [r for r in engine.requests if r.request_id.startswith("probe-b")])
    assert ((await world.outcome(cluster.warm("two", "b"))).status, cluster.known()) == ("applied", 2)
    assert 'stoker_executor_replica_ready_count{replica="b"} 1.0' in cluster.page()


async def test_what_waits_for_a_replica_that_leaves_is_turned_away_and_what_runs_there_is_closed(world) -> None:
    cluster = Cluster(world)
    engine = cluster.come("a", delay_s=HOUR_S)
    cluster.come("b")
    executor = await cluster.start()
    await cluster.seen("a", "ready")
    works = [cluster.warm(f"text {number}") for number in range(3)]
    await cluster.busy(executor, waiting=2)
    cluster.source.remove("a")
    outcomes = [await world.outcome(work) for work in works]
    assert sorted((o.status, o.reason) for o in outcomes) == [
        ("failed", "engine_unavailable"),
        ("rejected", "no_replica"),
        ("rejected", "no_replica"),
    ]
    assert (await cluster.seen("a", "lost")).sampled_at_ms >= outcomes[0].finished_at_ms - 60_000
    await world.until(lambda: 'replica="a"' not in cluster.page())
    assert (engine._closed, cluster.known(), "a" in executor._shared.engines) == (True, 1, False)
    assert await fake.MemoryLeases(world.store, life_ms=1_000).holder("a") is None
    after = cluster.warm("after")
    assert ((await world.outcome(after)).reason, executor.broken()) == ("no_replica", [])
    assert (await world.outcome(cluster.warm("there", "b"))).status == "applied"


async def test_a_replica_that_drains_ends_what_it_has_in_hand_and_takes_nothing_more(world) -> None:
    cluster = Cluster(world)
    cluster.come("a", delay_s=0.5)
    executor = await cluster.start()
    await cluster.seen("a", "ready")
    works = [cluster.warm(f"text {number}") for number in range(2)]
    await cluster.busy(executor, waiting=1)
    cluster.drain("a")
    assert sorted([(await world.outcome(work)).status for work in works]) == ["applied", "rejected"]
    await cluster.seen("a", "draining")
    assert ((await world.outcome(cluster.warm("late"))).reason, cluster.known()) == ("no_replica", 0)
    cluster.drain("a", draining=False)
    await world.until(lambda: cluster.known() == 1)
    assert (await world.outcome(cluster.warm("again"))).status == "applied"


async def test_a_replica_that_comes_back_elsewhere_is_another_life_of_it(world) -> None:
    cluster = Cluster(world)
    old = cluster.come("a", delay_s=HOUR_S)
    executor = await cluster.start()
    before = await cluster.seen("a", "ready")
    works = [cluster.warm(f"text {number}") for number in range(2)]
    await cluster.busy(executor, waiting=1)
    new = cluster.come("a", "http://elsewhere")
    assert sorted([(await world.outcome(work)).status for work in works]) == ["applied", "failed"]
    await world.until(lambda: cluster.samples("a")[-1].incarnation > before.incarnation)
    await world.until(lambda: old._closed)
    assert (len(new.requests), executor.broken()) == (1, [])


async def test_commands_wait_until_it_is_known_which_replicas_there_are(world) -> None:
    cluster = Cluster(world)
    cluster.source.away(None)
    hours = [0.0]

    async def pause(seconds: float) -> None:
        hours[0] += seconds
        await asyncio.sleep(0.01)

    cluster.source._clock = Clock(pause, lambda: hours[0])
    cluster.source._keep_s = 1e9
    executor = await cluster.start()
    command = cluster.warm("early")
    assert executor.unready() == ["gpu: its replicas have not been found yet"]
    assert executor.broken() == []
    cluster.come("a")
    cluster.source.away(0)
    assert (await world.outcome(command)).status == "applied"
    await world.until(lambda: executor.unready() == [])


@pytest.mark.parametrize("fault", ["away", "names nobody"])
async def test_nobody_is_dropped_because_the_source_fails_until_its_word_is_old(world, fault: str) -> None:
    now_s, step = [0.0], [0.0]

    async def pause(_: float) -> None:
        now_s[0] += step[0]
        await asyncio.sleep(0.01)

    cluster = Cluster(world, keep_s=60.0, clock=Clock(pause, lambda: now_s[0]))
    cluster.come("a")
    await cluster.start()
    await cluster.seen("a", "ready")
    if fault == "away":
        cluster.source.away(None)
    else:
        cluster.source.remove("a")
    faults = "stoker_executor_discovery_faults_total"
    await world.until(lambda: (cluster.metrics.registry.get_sample_value(faults, {"source": "fake"}) or 0) > 3)
    assert ((await world.outcome(cluster.warm("meanwhile"))).status, cluster.known()) == ("applied", 1)
    step[0] = 20.0
    await world.until(lambda: cluster.known() == 0)
    assert ((await world.outcome(cluster.warm("later"))).reason, now_s[0] >= 60) == ("no_replica", True)


async def test_work_that_was_begun_on_a_replica_which_is_gone_has_an_outcome(world) -> None:
    cluster = Cluster(world)
    cluster.come("b")
    leases, ledger = fake.MemoryLeases(world.store, life_ms=HOUR_S * 1000), fake.MemoryLedger(world.store)
    other = await leases.acquire("executor-other", "executor-other")
    assert other is not None
    command = world.warm(world.prefix(LONG), replicas=Replicas(names=("a",)))
    await ledger.begin(command.command_id, "a", "executor-other")
    executor = await cluster.start()
    world.send(command)
    department = executor._departments[0]
    await world.until(lambda: department.pool.orders.find(command.command_id))
    await asyncio.sleep(0.6)  # longer than the pause between two looks
    assert world.outcomes() == [], "its holder lives, and may be at work"
    await leases.release(other)
    outcome = await world.outcome(command)
    assert (outcome.status, outcome.reason, outcome.replica) == ("failed", "unverified", "a")
    await world.until(lambda: len(department.pool.orders) == 0)
    await world.until(lambda: not department.workers._winding)


async def test_without_a_replica_a_command_for_any_is_turned_away(world) -> None:
    cluster = Cluster(world)
    await cluster.start()
    named_none = cluster.warm("any", replicas=Replicas(max=2))
    assert ((o := await world.outcome(named_none)).reason, o.replica) == ("no_replica", "gpu")
    cluster.come("a")
    await world.until(lambda: cluster.known() == 1)
    assert (await world.outcome(cluster.warm("any again", replicas=Replicas(max=2)))).replica == "a"


PATIENT = {"discovery": DiscoverySettings(dns=(DNS,), await_s=60)}


async def test_a_command_for_a_replica_that_is_not_heard_of_yet_waits_for_it_and_holds_nobody_back(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    executor = await cluster.start(**PATIENT)
    early = cluster.warm("early", replicas=Replicas(names=("a", "b")))
    assert (await world.outcome(cluster.warm("meanwhile"))).status == "applied"
    assert (await world.outcome(early, "a")).status == "applied"
    assert (len(executor._departments[0].entrance._expected), len(world.outcomes())) == (1, 2)
    assert sum(world.committed("stoker-executor-gpu").values()) < 2
    engine = cluster.come("b")
    assert (await world.outcome(early, "b")).status == "applied"
    assert len(engine.requests) == 1
    await world.until(lambda: sum(world.committed("stoker-executor-gpu").values()) == 2)
    await world.until(lambda: len(executor._departments[0].pool.orders) == 0)


async def test_what_waits_for_a_replica_to_be_heard_of_can_be_cancelled_and_expires(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    executor = await cluster.start(**PATIENT)
    brief = cluster.warm("brief", "b", expires_at_ms=wall_clock_ms() + 500)
    late = cluster.warm("late", "b")
    frozen = cluster.warm("frozen", "b", scope="globex")
    assert (await world.outcome(brief)).reason == "expired_on_arrival"
    world.send(world.command(Cancel(command_ids=(late.command_id,)), "cancel:x", pool="gpu", action="cancel"))
    world.policy("freeze", 1, scope="globex", frozen=True)
    await world.until(lambda: [o for o in world.outcomes() if o.action == "cancel"])
    await world.until(lambda: executor._shared.book.frozen("globex"))
    engine = cluster.come("b")
    assert (await world.outcome(late)).reason == "cancelled"
    assert (await world.outcome(frozen)).reason == "frozen"
    assert engine.requests == []


async def test_what_waits_for_a_replica_to_be_heard_of_goes_to_another_executor_when_this_one_ends(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    first = await cluster.start(**PATIENT)
    command = cluster.warm("early", "b")
    await world.until(lambda: len(first._departments[0].entrance._expected))
    await first.drain()
    assert world.outcomes() == []
    engine = cluster.come("b")
    await cluster.start(**PATIENT)
    assert (await world.outcome(command)).status == "applied"
    assert len(engine.requests) == 1


async def test_what_breaks_on_a_command_that_waited_ends_that_one_alone(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    executor = await cluster.start(**PATIENT)
    command = cluster.warm("early", "b")
    entrance = executor._departments[0].entrance
    await world.until(lambda: len(entrance._expected))
    admitted = entrance._admit

    async def broken(work: Any) -> None:
        if work.replica == "b":
            raise ValueError("a mistake of ours")
        await admitted(work)

    entrance._admit = broken  # type: ignore[method-assign]
    cluster.come("b")
    assert ((o := await world.outcome(command)).status, o.error) == ("failed", "ValueError")
    assert (await world.outcome(cluster.warm("after"))).status == "applied"
    await world.until(lambda: len(executor._departments[0].pool.orders) == 0)
    assert executor.broken() == []


async def test_what_breaks_on_one_replica_leaves_what_waits_for_another(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    executor = await cluster.start(**PATIENT)
    entrance = executor._departments[0].entrance
    admitted = entrance._admit

    async def broken(work: Any) -> None:
        await admitted(work)
        if work.replica == "b" and len(entrance._expected):
            raise ValueError("a mistake of ours")

    entrance._admit = broken  # type: ignore[method-assign]
    command, after = (
        world.warm(world.prefix(f"{text} {LONG}"), replicas=Replicas(names=names))
        for text, names in (("early", ("b", "a")), ("after", ("a",)))
    )
    world.producer.send(topics.COMMANDS.name, encode(command), partition=0)
    await world.until(lambda: world.records(topics.DEAD_LETTERS))
    world.producer.send(topics.COMMANDS.name, encode(after), partition=0)
    await world.outcome(after)
    await world.until(lambda: len(executor._departments[0].pool.orders) == 1)
    assert world.committed("stoker-executor-gpu").get(0, 0) == 0, "the first command is still to be done"
    engine = cluster.come("b")
    assert (await world.outcome(command, "b")).status == "applied"
    assert len(engine.requests) == 1
    await world.until(lambda: world.committed("stoker-executor-gpu").get(0, 0) == 2)


async def test_who_comes_and_goes_for_hours_leaves_nothing_behind(world) -> None:
    cluster = Cluster(world)
    cluster.come("a")
    executor = await cluster.start()
    await cluster.seen("a", "ready")
    await world.outcome(cluster.warm("first"))
    tasks = len(asyncio.all_tasks())
    for number in range(20):
        name = f"pod-{number}"
        cluster.come(name)
        await world.until(lambda: cluster.known() == 2)
        assert (await world.outcome(cluster.warm(name, name))).status == "applied"
        cluster.source.remove(name)
        await world.until(lambda name=name: name not in executor._shared.engines)
    department = executor._departments[0]
    await world.until(lambda: len(asyncio.all_tasks()) <= tasks + 3)
    assert (sorted(executor._shared.engines), list(executor._speaker._watches)) == (["a"], ["a"])
    await world.until(lambda: not any(name.startswith("pod-") for name in department.pool._line._lines))
    assert "pod-" not in cluster.page()
