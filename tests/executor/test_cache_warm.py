"""`GET /replicas/NAME/cache-warm` of whole executors, over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from connectors.discovery import DiscoverySettings, DnsSettings, Endpoint
from connectors.discovery.fake import FakeDiscovery
from connectors.engines.fake import FakeEngine
from connectors.metrics import PrometheusMetrics
from executor.admin import admin
from executor.ports import ReplicaSource, wall_clock_ms
from schemas import Replicas, TransientFault

LONG = " ".join(f"word{i}" for i in range(40))
SETTLED_MS = 16_000


class Street:
    """Two replicas, a clock that can be moved on, and executors that are asked over HTTP."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return wall_clock_ms() + self.ahead_ms

    async def start(self, **settings: Any) -> Any:
        ports = self.world.ports(now_ms=self.now_ms, **settings.pop("ports", {}))
        return await self.world.start(ports, cache_warm_patience_s=60, **settings)

    async def ask(self, executor: Any, path: str = "r1", method: str = "GET") -> tuple[int, Any]:
        async with (
            admin(executor, PrometheusMetrics(), "127.0.0.1", 0) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        ):
            answer = await client.request(method, f"/replicas/{path}/cache-warm")
        plain = not answer.headers["content-type"].startswith("application/json")
        return answer.status_code, answer.text if plain else answer.json()

    async def told(self, executor: Any, status: int, why: str, path: str = "r1") -> None:
        """It answers so, at the latest after a look."""
        said: Any = None
        for _ in range(30):
            said = await self.ask(executor, path)
            if said == (status, {"warm": status == 200, "why": why}):
                return
            # What was seen a second ago may be answered.
            self.ahead_ms += 100
        raise AssertionError(said)

    async def warm(self, replica: str, texts: range) -> None:
        commands = [
            self.world.warm(
                self.world.prefix(f"{text} {LONG}"),
                replicas=Replicas(names=(replica,)),
                issued_at_ms=self.now_ms(),
                not_before_ms=0,
                expires_at_ms=self.now_ms() + 60_000,
            )
            for text in texts
        ]
        self.world.send(*commands)
        for command in commands:
            assert (await self.world.outcome(command)).status == "applied"

    def settle(self) -> None:
        self.ahead_ms += SETTLED_MS


def load(engine: FakeEngine) -> Any:
    """It does not answer yet; returns what ends that."""
    metrics = engine.metrics

    async def refused() -> Any:
        raise TransientFault("connection refused")

    engine.metrics = refused  # type: ignore[method-assign]

    def loaded() -> None:
        engine.metrics = metrics  # type: ignore[method-assign]

    return loaded


def restart(engine: FakeEngine) -> None:
    engine.requests.clear()
    engine._blocks.clear()
    engine._query_tokens = engine._hit_tokens = 0


async def test_a_replica_is_cold_until_its_siblings_hot_mass_is_there_and_again_after_a_restart(world) -> None:
    street, loaded = Street(world), load(world.engines["r1"])
    executor = await street.start(readiness_probe=True)
    await street.told(executor, 503, "its engine does not answer")
    await street.warm("r0", range(5))
    loaded()
    await street.told(executor, 503, "it is not known yet what is hot")
    street.settle()
    await street.told(executor, 503, "0 of 160 hot tokens are there")
    await street.warm("r1", range(3))
    await street.told(executor, 503, "96 of 160 hot tokens are there")
    await street.warm("r1", range(3, 4))
    await street.told(executor, 200, "128 of 160 hot tokens are there")
    street.ahead_ms += 2_000  # it is asked every few seconds, and looked at then
    await street.told(executor, 200, "128 of 160 hot tokens are there")
    restart(world.engines["r1"])
    await street.told(executor, 503, "it is not known yet what is hot")
    street.settle()
    await street.told(executor, 503, "0 of 160 hot tokens are there")
    street.ahead_ms += 60_000 - SETTLED_MS
    await street.told(executor, 200, "waited for 60 s: 0 of 160 hot tokens are there")


async def test_two_executors_answer_alike_whoever_holds_the_lease(world) -> None:
    street, loaded = Street(world), load(world.engines["r1"])
    executors = [await street.start(readiness_probe=True) for _ in range(2)]
    await street.warm("r0", range(5))
    for executor in executors:
        await street.told(executor, 503, "its engine does not answer")
    loaded()
    for executor in executors:
        await street.told(executor, 503, "it is not known yet what is hot")
    street.settle()
    for executor in executors:
        await street.told(executor, 503, "0 of 160 hot tokens are there")
    await street.warm("r1", range(4))
    for executor in executors:
        await street.told(executor, 200, "128 of 160 hot tokens are there")


async def test_an_executor_that_is_started_again_takes_no_replica_out_of_its_traffic(world) -> None:
    street = Street(world)
    first = await street.start()
    await street.warm("r0", range(5))
    await street.warm("r1", range(1))
    await first.drain()
    second = await street.start()
    await street.told(second, 200, "it was serving before this executor looked")


async def test_where_nothing_is_hot_a_replica_is_warm_after_a_short_while(world) -> None:
    street = Street(world)
    executor = await street.start()
    await street.told(executor, 503, "it is not known yet what is hot")
    street.settle()
    await street.told(executor, 200, "nothing is hot")


HOSTILE = ["r9", "..%2f..%2fetc%2fpasswd", "r1%00", "%3Cscript%3E", "r1%2f", "R1", "x" * 4_000, "%ff%fe"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_name_that_is_no_replica_s_is_not_found_and_leaves_nothing_behind(world, name: str) -> None:
    street = Street(world)
    executor = await street.start()
    known = {"warm": None, "why": "no replica of this name is known here"}
    assert await street.ask(executor, name) == (404, known)
    assert executor.cache_warm._warmth._lives.keys() <= {"r0", "r1"}


async def test_only_questions_are_answered(world) -> None:
    executor = await Street(world).start()
    assert (await Street(world).ask(executor, method="POST"))[0] == 405


async def test_a_replica_that_is_found_is_known_for_as_long_as_it_is_there_whatever_its_name_is_made_of(world) -> None:
    world.engines.clear()
    source = FakeDiscovery()
    settings = DnsSettings(host="vllm.internal", port=8000, pool="gpu")
    engines: dict[str, FakeEngine] = {}
    sources = (ReplicaSource(settings, source),)
    ports = {"sources": sources, "engine": lambda found: engines.setdefault(found.url, FakeEngine())}
    street = Street(world)
    executor = await street.start(ports=ports, discovery=DiscoverySettings(dns=(settings,)))
    assert (await street.ask(executor, "rack/a"))[0] == 404
    source.put(Endpoint("rack/a", "http://a"))
    await world.until(lambda: engines)
    await street.told(executor, 503, "it is not known yet what is hot", "rack%2Fa")
    street.settle()
    await street.told(executor, 200, "nothing is hot", "rack%2Fa")
    source.put(Endpoint("rack/a", "http://elsewhere"))
    await world.until(lambda: "http://elsewhere" in engines)
    await street.told(executor, 503, "it is not known yet what is hot", "rack%2Fa")
    source.put(Endpoint("rack/a", "http://elsewhere", draining=True))
    await street.told(executor, 200, "it drains, so that nothing is warmed there", "rack%2Fa")
    source.remove("rack/a")
    await world.until(lambda: not executor._shared.engines)
    assert (await street.ask(executor, "rack%2Fa"))[0] == 404
    assert not executor.cache_warm._warmth._lives
