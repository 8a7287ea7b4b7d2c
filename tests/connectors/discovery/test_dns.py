"""Replicas by the addresses of a name."""

from __future__ import annotations

import asyncio

import pytest

from connectors.discovery import DnsDiscovery, DnsSettings, Endpoint
from connectors.discovery.clock import Clock


def discovery(*answers: list[str] | OSError, **fields) -> DnsDiscovery:
    left = list(answers)

    async def resolve(_host: str) -> list[str]:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, OSError):
            raise answer
        return answer

    settings = DnsSettings(host="vllm.internal", port=8000, pool="gpu", **fields)
    return DnsDiscovery(settings, 60, resolve, Clock(pause=lambda _: asyncio.sleep(0.001)))


async def first(source: DnsDiscovery) -> tuple[Endpoint, ...]:
    lists = source.lists()
    try:
        return await asyncio.wait_for(anext(lists), 60)
    finally:
        await lists.aclose()


async def test_a_replica_with_two_kinds_of_address_is_one() -> None:
    assert await first(discovery(["fd00::1", "10.0.0.1", "fd00::2"])) == (
        Endpoint("10.0.0.1:8000", "http://10.0.0.1:8000"),
    )


async def test_without_ipv4_the_others_count() -> None:
    assert await first(discovery(["fd00:0::1"], zone="rack 7", scheme="https")) == (
        Endpoint("[fd00::1]:8000", "https://[fd00::1]:8000", "rack 7"),
    )


@pytest.mark.parametrize("fault", [OSError("no such name"), ["not an address"]])
async def test_nothing_is_told_before_an_answer_makes_sense(fault) -> None:
    assert [endpoint.name for endpoint in await first(discovery(fault, fault, ["10.0.0.1"]))] == ["10.0.0.1:8000"]


async def test_the_systems_resolver_is_asked_for_addresses() -> None:
    settings = DnsSettings(host="localhost", port=8000, pool="gpu")
    assert [endpoint.name for endpoint in await first(DnsDiscovery(settings, 60))] in (
        ["127.0.0.1:8000"],
        ["[::1]:8000"],
    )
