"""How Value commands end, and how keys share calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from connectors.metrics import PrometheusMetrics
from connectors.settings import RedisSettings
from connectors.values import HttpLoaderSettings
from connectors.values.fake import FakeLoader
from executor.apply.value_batches import Batches
from executor.service import Executor
from executor.settings import ExecutorSettings, ExecutorTree
from schemas import TransientFault, Value
from schemas.canonical import value_key

SCOPE = "acme"


def stock(**fields: Any) -> dict[str, Any]:
    return {"name": "stock", "url": "http://unused", "scopes": (SCOPE,), "gather_ms": 50, **fields}


def value(world: Any, key: str, scope: str = SCOPE, loader: str = "stock", ttl_ms: int = 900_000, **fields: Any) -> Any:
    target = Value(key=key, loader=loader, ttl_ms=ttl_ms)
    return world.command(target, value_key(key), pool="redis:main", scope=scope, **fields)


@pytest.fixture
async def shop(world):
    """An executor with one loader, and what it counts."""
    loader, metrics = FakeLoader({(SCOPE, f"sku:{n}"): f"price {n}" for n in range(40)}), PrometheusMetrics()
    settings = ExecutorSettings(
        lease_ms=1_000, backoff_ms=1, drain_s=5, http_loaders=(HttpLoaderSettings(**stock()),), redis_concurrency=64
    )
    tree = ExecutorTree(redis=RedisSettings(pool="main"), executor=settings)
    executor = Executor(tree, world.ports(loaders={"stock": loader}), metrics)
    world.executors.append(executor)
    await executor.begin()
    return loader, metrics


def errors(metrics: PrometheusMetrics, reason: str) -> float:
    labels = {"source": "stock", "reason": reason}
    return metrics.registry.get_sample_value("cache_warmup_key_errors_total", labels) or 0.0


async def test_values_lie_in_redis_for_their_time_and_share_calls(world, shop) -> None:
    loader, metrics = shop
    commands = [value(world, f"sku:{n}") for n in range(40)]
    world.send(*commands)
    for n, command in enumerate(commands):
        outcome = await world.outcome(command)
        assert (outcome.status, outcome.reason, outcome.bytes) == ("applied", "done", len(f"price {n}"))
    held = await world.values.get(SCOPE, [f"sku:{n}" for n in range(40)])
    assert held == {f"sku:{n}": f"price {n}".encode() for n in range(40)}
    left = await world.values.remaining_ms(SCOPE, "sku:7")
    assert 800_000 < left <= 900_000
    assert sum(len(keys) for _, keys in loader.calls) == 40
    assert len(loader.calls) < 40, "keys that come together travel together"
    name = "cache_warmup_duration_seconds_count"
    assert metrics.registry.get_sample_value(name, {"kind": "value"}) == 40


async def test_a_value_is_fetched_anew_each_time(world, shop) -> None:
    loader, _ = shop
    first = value(world, "sku:1")
    world.send(first)
    assert (await world.outcome(first)).status == "applied"
    loader.values[SCOPE, "sku:1"] = "cheaper"
    second = value(world, "sku:1")
    world.send(second)
    assert (await world.outcome(second)).status == "applied"
    assert await world.values.get(SCOPE, ["sku:1"]) == {"sku:1": b"cheaper"}


async def test_a_failing_key_is_skipped_and_counted_and_the_others_go_through(world, shop) -> None:
    loader, metrics = shop
    loader.faults["sku:3"] = "refused"
    commands = {key: value(world, key) for key in ("sku:2", "sku:3", "sku:none", "sku:4")}
    world.send(*commands.values())
    endings = {key: await world.outcome(command) for key, command in commands.items()}
    assert {key: (o.status, o.reason, o.error) for key, o in endings.items()} == {
        "sku:2": ("applied", "done", None),
        "sku:3": ("skipped", "value_missing", "refused"),
        "sku:none": ("skipped", "value_missing", "not_found"),
        "sku:4": ("applied", "done", None),
    }
    assert (errors(metrics, "refused"), errors(metrics, "not_found")) == (1, 1)


async def test_a_source_that_is_down_is_asked_again_and_then_told(world, shop) -> None:
    loader, metrics = shop
    loader.offline = True
    command = value(world, "sku:1")
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("failed", "loader_unavailable")
    assert len(loader.calls) == errors(metrics, "unavailable") == 4
    loader.offline = False
    again = value(world, "sku:1")
    world.send(again)
    assert (await world.outcome(again)).status == "applied"


async def test_a_source_that_says_no_is_not_asked_again(world, shop) -> None:
    loader, metrics = shop
    loader.refuses = True
    command = value(world, "sku:1")
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("failed", "loader_failed")
    assert len(loader.calls) == errors(metrics, "failed") == 1


async def test_a_loader_serves_only_its_scopes(world, shop) -> None:
    loader, _ = shop
    foreign, unknown = value(world, "sku:1", scope="globex"), value(world, "sku:1", loader="other")
    world.send(foreign, unknown)
    for command in (foreign, unknown):
        assert ((o := await world.outcome(command)).status, o.reason) == ("rejected", "loader_unknown")
    assert loader.calls == []


async def test_a_redis_that_is_away_fails_the_write(world, shop) -> None:
    class Away:
        async def put(self, *_: Any) -> None:
            raise TransientFault("away")

    settings = ExecutorSettings(lease_ms=1_000, backoff_ms=1, http_loaders=(HttpLoaderSettings(**stock()),))
    tree = ExecutorTree(redis=RedisSettings(pool="main"), executor=settings)
    for executor in world.executors:
        await executor.drain()
    executor = Executor(tree, world.ports(loaders={"stock": shop[0]}, values=Away()))
    world.executors.append(executor)
    await executor.begin()
    command = value(world, "sku:1")
    world.send(command)
    assert ((o := await world.outcome(command)).status, o.reason) == ("failed", "store_unavailable")


async def test_a_full_batch_does_not_wait_and_one_key_is_asked_for_once() -> None:
    loader = FakeLoader({("s", key): key for key in "abc"})
    batches = Batches(loader, most=2, gather_ms=600_000)
    found = await asyncio.gather(*(batches.load("s", key) for key in "aab"))
    assert found == [b"a", b"a", b"b"]
    assert loader.calls == [("s", ("a", "b"))]


async def test_scopes_never_share_a_call() -> None:
    loader = FakeLoader({("s", "a"): "1", ("t", "a"): "2"})
    batches = Batches(loader, most=9, gather_ms=1)
    assert await asyncio.gather(batches.load("s", "a"), batches.load("t", "a")) == [b"1", b"2"]
    assert sorted(loader.calls) == [("s", ("a",)), ("t", ("a",))]


async def test_who_gives_up_takes_nobody_along() -> None:
    loader = FakeLoader({("s", key): key for key in "ab"}, delay_s=0.05)
    batches = Batches(loader, most=9, gather_ms=1)
    gone, stays = asyncio.create_task(batches.load("s", "a")), asyncio.create_task(batches.load("s", "b"))
    await asyncio.sleep(0.02)
    gone.cancel()
    assert await stays == b"b"
    loader.offline = True
    alone = asyncio.create_task(batches.load("s", "a"))
    await asyncio.sleep(0.02)
    alone.cancel()
    await asyncio.sleep(0.1)


def test_a_loader_has_one_name() -> None:
    loaders = (HttpLoaderSettings(**stock()), HttpLoaderSettings(**stock()))
    with pytest.raises(ValueError, match="'stock' occurs twice"):
        ExecutorSettings(http_loaders=loaders)
