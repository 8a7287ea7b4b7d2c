"""What EndpointSlices say, and how the API server is asked."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from pydantic import ValidationError

from connectors.discovery import Endpoint, KubernetesDiscovery, KubernetesSettings
from connectors.discovery.clock import Clock
from connectors.discovery.endpoint_slices import EndpointSlice, SliceBook
from schemas import BrokenConfiguration

sys.path.insert(0, str(Path(__file__).parents[2] / "contracts"))
from kubernetes_api import KubernetesApi, endpoint, slice_of

TERMINATING = {"ready": False, "serving": True, "terminating": True}
NOT_READY = {"ready": False, "serving": False, "terminating": False}


def book(*slices: dict[str, Any], port: int | str | None = "http") -> SliceBook:
    it = SliceBook(port, "http")
    it.replace(parsed(each) for each in slices)
    return it


def parsed(one: dict[str, Any]) -> EndpointSlice:
    return msgspec.convert(one, EndpointSlice)


def states(it: SliceBook) -> dict[str, bool]:
    return {endpoint.name: endpoint.draining for endpoint in it.endpoints()}


def test_a_pod_is_a_replica_with_its_zone() -> None:
    assert book(slice_of("s", endpoint(7))).endpoints() == (
        Endpoint("vllm-7", "http://10.0.0.7:8000", "zone-a", draining=False),
    )


@pytest.mark.parametrize(
    ("port", "url"),
    [
        ("http", "http://10.0.0.7:8000"),
        ("metrics", "http://10.0.0.7:9000"),
        (None, "http://10.0.0.7:9000"),
        (8123, "http://10.0.0.7:8123"),
    ],
)
def test_the_port_goes_by_name_or_number_or_is_the_first(port, url) -> None:
    assert book(slice_of("s", endpoint(7)), port=port).endpoints()[0].url == url


def test_a_slice_without_that_port_or_without_endpoints_tells_nothing() -> None:
    assert book(slice_of("s", endpoint(7)), port="grpc").endpoints() == ()
    assert book(slice_of("s", endpoint(7), ports=None)).endpoints() == ()
    assert book(slice_of("s")).endpoints() == ()


def test_an_endpoint_that_is_no_pod_is_called_by_its_address() -> None:
    by_hand = {"addresses": ["10.0.0.9"], "conditions": {}}
    assert book(slice_of("s", by_hand)).endpoints() == (Endpoint("10.0.0.9:8000", "http://10.0.0.9:8000"),)


def test_a_pod_in_two_address_families_is_one_replica() -> None:
    six = slice_of("six", endpoint(7, addresses=["fd00::7"]), addressType="IPv6")
    assert book(six).endpoints()[0].url == "http://[fd00::7]:8000"
    assert [endpoint.url for endpoint in book(six, slice_of("four", endpoint(7))).endpoints()] == [
        "http://10.0.0.7:8000"
    ]


def test_conditions_that_are_not_told_mean_well() -> None:
    bare = {"addresses": ["10.0.0.7"], "conditions": {}, "targetRef": {"kind": "Pod", "name": "vllm-7"}}
    it = book(slice_of("s", bare))
    assert states(it) == {"vllm-7": False}
    it.put(parsed(slice_of("s", {**bare, "conditions": {"ready": False}})))
    assert states(it) == {"vllm-7": True}  # an old server tells no `serving`


def test_a_pod_that_ends_drains_although_it_serves() -> None:
    assert states(book(slice_of("s", endpoint(7, conditions=TERMINATING)))) == {"vllm-7": True}


def test_a_pod_that_is_not_ready_yet_may_be_warmed_and_one_that_no_longer_is_may_not() -> None:
    it = book(slice_of("s", endpoint(7, conditions=NOT_READY)))
    assert states(it) == {"vllm-7": False}
    it.put(parsed(slice_of("s", endpoint(7))))
    assert states(it) == {"vllm-7": False}
    it.put(parsed(slice_of("s", endpoint(7, conditions=NOT_READY))))
    assert states(it) == {"vllm-7": True}
    it.put(parsed(slice_of("s", endpoint(7))))
    assert states(it) == {"vllm-7": False}


def test_a_pod_that_moves_between_slices_is_there_once() -> None:
    it = book(slice_of("old", endpoint(7, conditions=NOT_READY)), slice_of("new", endpoint(7)))
    assert states(it) == {"vllm-7": False}
    it.remove("old")
    assert states(it) == {"vllm-7": False}


def test_a_pod_that_comes_again_under_its_name_starts_anew() -> None:
    it = book(slice_of("s", endpoint(7)))
    it.endpoints()
    it.replace([])
    assert it.endpoints() == ()
    it.replace([parsed(slice_of("s", endpoint(7, conditions=NOT_READY)))])
    assert states(it) == {"vllm-7": False}


# -- the API server --------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def api() -> AsyncIterator[KubernetesApi]:
    async with KubernetesApi.served() as api:
        yield api


def account(folder: Path, api: KubernetesApi) -> Path:
    (folder / "token").write_text(f"{api.token}\n")
    (folder / "namespace").write_text(api.namespace)
    return folder


def discovery(api: KubernetesApi, folder: Path, **fields: Any) -> KubernetesDiscovery:
    values = {"api_url": api.url, "token_file": folder / "token", **fields}
    settings = KubernetesSettings(service="vllm", pool="gpu", port="http", **values)
    return KubernetesDiscovery(settings, 60, Clock(pause=lambda _: asyncio.sleep(0.001)), account=account(folder, api))


class Following:
    """The lists of a source, one by one."""

    def __init__(self, source: KubernetesDiscovery) -> None:
        self._source = source
        self._lists = source.lists()

    async def __aenter__(self) -> Following:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._lists.aclose()
        await self._source.close()

    async def names(self) -> list[str]:
        return [endpoint.name for endpoint in await asyncio.wait_for(anext(self._lists), 60)]


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_long_list_is_read_page_by_page(api: KubernetesApi, tmp_path: Path) -> None:
    api.page = 2
    api.put(1, 2, 3, 4, 5)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == [f"vllm-{n}" for n in range(1, 6)]
    assert [bool(query.get("continue")) for query in api.requests] == [False, True, True]


async def test_a_watch_that_ended_goes_on_where_it_was_and_lists_nothing_anew(
    api: KubernetesApi, tmp_path: Path
) -> None:
    api.put(1)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == ["vllm-1"]
        api.put(2)
        assert await lists.names() == ["vllm-1", "vllm-2"]
        api.end_watches()
        api.put(3)
        assert await lists.names() == ["vllm-1", "vllm-2", "vllm-3"]
    watches = [query for query in api.requests if "watch" in query]
    assert len(api.requests) - len(watches) == 1
    assert [query["resourceVersion"] for query in watches] == ["101", "102"]
    assert {query["allowWatchBookmarks"] for query in watches} == {"true"}


async def test_a_bookmark_moves_on_what_is_watched_from(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(1)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == ["vllm-1"]
        waiting = asyncio.create_task(lists.names())
        await until(lambda: len(api.requests) == 2)
        api.forget_history()  # versions of other objects have passed
        api.bookmark()
        await until(lambda: api.bookmarks_sent == 1)
        api.end_watches()
        await until(lambda: len(api.requests) == 3)
        assert api.requests[-1]["resourceVersion"] == "102"
        api.put(2)
        assert await waiting == ["vllm-1", "vllm-2"]


async def test_a_version_that_is_too_old_makes_it_list_anew(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(1, 2)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == ["vllm-1", "vllm-2"]
        waiting = asyncio.create_task(lists.names())
        await until(lambda: len(api.requests) == 2)
        api.break_watches()
        api.remove(1)
        api.forget_history()  # the removal is nowhere to be heard any more
        assert await waiting == ["vllm-2"]


async def test_an_expired_watch_is_told_by_an_event_and_lists_anew(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(1, 2)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == ["vllm-1", "vllm-2"]
        waiting = asyncio.create_task(lists.names())
        await until(lambda: len(api.requests) == 2)
        api.remove(1)
        assert await waiting == ["vllm-2"]
        waiting = asyncio.create_task(lists.names())
        api.end_watches()
        api.forget_history()
        api.put(3)
        assert await waiting == ["vllm-2", "vllm-3"]
    assert len([query for query in api.requests if "watch" not in query]) == 2


async def test_the_last_pod_that_ended_as_it_should_is_believed_to_be_gone(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(1)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == ["vllm-1"]
        api.put(1, conditions=TERMINATING)
        assert await lists.names() == ["vllm-1"]
        api.remove(1)
        assert await lists.names() == []
    assert len([query for query in api.requests if "watch" not in query]) == 1


async def test_a_token_is_read_anew_and_told_to_nobody_else(
    api: KubernetesApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    api.put(1)
    async with Following(discovery(api, tmp_path)) as lists:
        assert await lists.names() == ["vllm-1"]
        waiting = asyncio.create_task(lists.names())
        old, api.token = api.token, "an0ther-token"
        api.break_watches()
        api.put(2)
        await until(lambda: "refuses us (401)" in caplog.text)
        (tmp_path / "token").unlink()
        await until(lambda: "token cannot be read" in caplog.text)
        (tmp_path / "token").write_text(api.token)
        assert await waiting == ["vllm-1", "vllm-2"]
    assert old not in caplog.text
    assert api.token not in caplog.text


async def test_who_may_not_list_is_told_what_is_missing(
    api: KubernetesApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Following(discovery(api, tmp_path, namespace="other")) as lists:
        waiting = asyncio.create_task(lists.names())
        await until(lambda: "get, list and watch endpointslices" in caplog.text)
        waiting.cancel()
        await asyncio.wait([waiting])


def test_outside_of_a_cluster_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="namespace"):
        KubernetesDiscovery(KubernetesSettings(service="vllm", pool="gpu"), 60, account=tmp_path)
    inside = KubernetesSettings(service="vllm", pool="gpu", namespace="serving")
    with pytest.raises(BrokenConfiguration, match="token_file"):
        KubernetesDiscovery(inside, 60, account=tmp_path)
    (tmp_path / "token").write_text("t")
    with pytest.raises(BrokenConfiguration, match="ca_file"):
        KubernetesDiscovery(inside, 60, account=tmp_path)


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(ValidationError, match="in the clear"):
        KubernetesSettings(service="vllm", pool="gpu", api_url="http://api.example", token_file=Path("t"))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
async def test_only_the_clusters_own_authority_is_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def certificate(name: str) -> tuple[Path, Path]:
        key, cert = tmp_path / f"{name}.key", tmp_path / f"{name}.crt"
        made = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=api -days 2"
        names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
        subprocess.run([*made.split(), *names], check=True, capture_output=True)
        return cert, key

    cert, key = certificate("api")
    other, _ = certificate("other")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    async with KubernetesApi.served(tls) as api:
        api.put(1)
        (account(tmp_path, api) / "ca.crt").write_text(cert.read_text())
        async with Following(discovery(api, tmp_path, token_file=None)) as lists:
            assert await lists.names() == ["vllm-1"]
        heard = len(api.requests)
        async with Following(discovery(api, tmp_path, ca_file=other)) as lists:
            waiting = asyncio.create_task(lists.names())
            await until(lambda: "does not answer (ConnectError)" in caplog.text)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert len(api.requests) == heard
