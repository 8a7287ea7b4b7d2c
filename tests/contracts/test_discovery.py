"""One suite for sources of replicas: the fake, DNS with a resolver in memory, Kubernetes with an API server on a port.

What only one of them does is tested in tests/connectors/discovery.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from connectors.discovery import (
    Discovery,
    DnsDiscovery,
    DnsSettings,
    Endpoint,
    KubernetesDiscovery,
    KubernetesSettings,
)
from connectors.discovery.clock import Clock
from connectors.discovery.fake import FakeDiscovery

# Test modules are imported one by one without a package (--import-mode=importlib).
sys.path.insert(0, str(Path(__file__).parent))
from kubernetes_api import KubernetesApi

KEEP_S = 60.0
PATIENCE_S = 60.0


@dataclass
class Hours:
    """Time that passes when somebody waits, and hardly any of it."""

    now_s: float = 0.0

    async def pause(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0.001)

    @property
    def clock(self) -> Clock:
        return Clock(self.pause, lambda: self.now_s)


class Place(Protocol):
    """Where replica n is `http://10.0.0.n:8000`, and a source that tells of it."""

    discovery: Discovery

    def come(self, *numbers: int) -> None: ...
    def go(self, number: int) -> None: ...
    def away(self, answers: int | None) -> None:
        """The source fails the next so many times; None for ever."""


class Told:
    """Replicas that a test tells of."""

    def __init__(self, hours: Hours) -> None:
        self.discovery = FakeDiscovery(keep_s=KEEP_S, clock=hours.clock)

    def come(self, *numbers: int) -> None:
        for n in numbers:
            self.discovery.put(Endpoint(f"r{n}", f"http://10.0.0.{n}:8000"))

    def go(self, number: int) -> None:
        self.discovery.remove(f"r{number}")

    def away(self, answers: int | None) -> None:
        self.discovery.away(answers)


class Named:
    """Replicas behind a name."""

    def __init__(self, hours: Hours) -> None:
        self.addresses: set[str] = set()
        self.failures = 0
        settings = DnsSettings(host="vllm.internal", port=8000, pool="gpu")
        self.discovery = DnsDiscovery(settings, KEEP_S, self.resolve, hours.clock)

    async def resolve(self, host: str) -> list[str]:
        assert host == "vllm.internal"
        self.failures -= self.failures > 0
        if self.failures or not self.addresses:
            raise OSError("no answer")
        return [*self.addresses, *self.addresses]  # as getaddrinfo repeats itself

    def come(self, *numbers: int) -> None:
        self.addresses |= {f"10.0.0.{n}" for n in numbers}

    def go(self, number: int) -> None:
        self.addresses.remove(f"10.0.0.{number}")

    def away(self, answers: int | None) -> None:
        self.failures = 1_000_000 if answers is None else answers + 1


class Clustered:
    """Replicas behind a service of Kubernetes."""

    def __init__(self, api: KubernetesApi, hours: Hours, folder: Path) -> None:
        self.api = api
        (folder / "token").write_text(api.token)
        (folder / "namespace").write_text(api.namespace)
        settings = KubernetesSettings(
            service="vllm", pool="gpu", port="http", api_url=api.url, token_file=folder / "token"
        )
        self.discovery = KubernetesDiscovery(settings, KEEP_S, hours.clock, account=folder)

    def come(self, *numbers: int) -> None:
        self.api.put(*numbers)

    def go(self, number: int) -> None:
        self.api.remove(number)

    def away(self, answers: int | None) -> None:
        self.api.fail(1_000_000 if answers is None else answers)


@pytest.fixture
def hours() -> Hours:
    return Hours()


@pytest_asyncio.fixture(params=["fake", "dns", "kubernetes"])
async def place(request: pytest.FixtureRequest, hours: Hours, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "kubernetes":
        async with KubernetesApi.served() as api:
            place = Clustered(api, hours, tmp_path)
            yield place
            await place.discovery.close()
        return
    yield Told(hours) if request.param == "fake" else Named(hours)


@pytest_asyncio.fixture
async def lists(place: Place) -> AsyncIterator[AsyncGenerator[tuple[Endpoint, ...], None]]:
    lists = place.discovery.lists()
    yield lists
    await lists.aclose()


Lists = AsyncGenerator[tuple[Endpoint, ...], None]


async def following(lists: Lists) -> tuple[Endpoint, ...]:
    return await asyncio.wait_for(anext(lists), PATIENCE_S)


async def until(lists: Lists, holds: Callable[[list[int]], bool]) -> tuple[Endpoint, ...]:
    """The first list that is as wanted: a source may tell of several changes one by one."""
    while not holds(numbers(found := await following(lists))):
        pass
    return found


def numbers(found: tuple[Endpoint, ...]) -> list[int]:
    return [int(endpoint.url.removesuffix(":8000").rpartition(".")[2]) for endpoint in found]


async def test_the_first_list_is_whole_and_sorted(place: Place, lists: Lists) -> None:
    place.come(3, 1, 2)
    found = await following(lists)
    assert [endpoint.url for endpoint in found] == [f"http://10.0.0.{n}:8000" for n in (1, 2, 3)]
    assert [endpoint.name for endpoint in found] == sorted({endpoint.name for endpoint in found})
    assert not any(endpoint.draining for endpoint in found)


async def test_who_comes_and_who_goes_is_told(place: Place, lists: Lists) -> None:
    place.come(1, 2)
    assert numbers(await following(lists)) == [1, 2]
    place.come(3)
    assert numbers(await following(lists)) == [1, 2, 3]
    place.go(1)
    assert numbers(await following(lists)) == [2, 3]


async def test_a_replica_keeps_its_name_when_others_come_and_go(place: Place, lists: Lists) -> None:
    place.come(1, 5)
    before = {endpoint.url: endpoint.name for endpoint in await following(lists)}
    place.come(2)
    await until(lists, lambda found: found == [1, 2, 5])
    place.go(1)
    after = {endpoint.url: endpoint.name for endpoint in await until(lists, lambda found: found == [2, 5])}
    assert after["http://10.0.0.5:8000"] == before["http://10.0.0.5:8000"]
    assert after["http://10.0.0.2:8000"] not in before.values()


async def test_a_source_that_is_away_for_a_moment_changes_nothing(place: Place, lists: Lists) -> None:
    place.come(1, 2)
    await following(lists)
    place.away(2)
    place.come(3)
    assert numbers(await following(lists)) == [1, 2, 3]


async def test_what_is_known_is_not_relied_on_for_ever(place: Place, lists: Lists, hours: Hours) -> None:
    place.come(1, 2)
    await following(lists)
    since_s = hours.now_s
    place.away(None)
    assert await following(lists) == ()
    assert hours.now_s - since_s >= KEEP_S


async def test_a_source_that_names_nobody_any_more_is_not_believed_at_once(
    place: Place, lists: Lists, hours: Hours
) -> None:
    place.come(1, 2)
    await following(lists)
    since_s = hours.now_s
    place.go(1)
    assert numbers(await following(lists)) == [2]
    place.go(2)
    assert await following(lists) == ()
    assert hours.now_s - since_s >= KEEP_S


async def test_who_was_missing_for_a_moment_was_never_gone(place: Place, lists: Lists, hours: Hours) -> None:
    place.come(1)
    await following(lists)
    place.go(1)
    waiting = asyncio.create_task(following(lists))
    begun_s = hours.now_s
    while hours.now_s < begun_s + 3:
        await asyncio.sleep(0.001)
    place.come(1, 2)
    assert numbers(await waiting) == [1, 2]


async def test_a_source_that_was_away_for_long_is_heard_again(place: Place, lists: Lists) -> None:
    place.come(1, 2)
    await following(lists)
    place.away(None)
    assert await following(lists) == ()
    place.away(0)
    place.come(1, 2)
    assert numbers(await until(lists, lambda found: len(found) == 2)) == [1, 2]


async def test_each_who_asks_gets_the_whole_list(place: Place) -> None:
    place.come(1)
    one, two = place.discovery.lists(), place.discovery.lists()
    assert await following(one) == await following(two)
    await one.aclose()
    await two.aclose()
