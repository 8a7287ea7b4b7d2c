"""Replicas from Kubernetes: the EndpointSlices of a service, listed once and then watched."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import msgspec

from connectors.discovery.base import Endpoint
from connectors.discovery.clock import REAL, Clock
from connectors.discovery.endpoint_slices import EndpointSlice, Metadata, SliceBook
from connectors.discovery.kept import Kept
from connectors.discovery.settings import KubernetesSettings
from connectors.metrics import SILENT, MetricSink
from schemas.errors import BrokenConfiguration, TransientFault

log = logging.getLogger(__name__)

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds token, ca.crt and namespace of its service account."""

PAGE = 500
ANSWER_S = 10.0
WATCH_S = 60
"""A watch ends after so long and goes on with the next one: so the token stays fresh, and a connection that has died
without a word is noticed."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
EXPIRED = 410

T = TypeVar("T")


class _Expired(Exception):
    """The API server no longer knows the version that we go on from: only a new list helps."""


class _SliceList(msgspec.Struct, frozen=True):
    metadata: Metadata
    items: tuple[EndpointSlice, ...] | None = None


class _WatchEvent(msgspec.Struct, frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: Metadata


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""


class KubernetesDiscovery:
    """`Discovery` by list and watch of EndpointSlices.

    Args:
        keep_s: how long what is known stays known while the API server does not answer.
        account: folder of the service account.
        transport: another httpx transport, for tests.

    Raises:
        BrokenConfiguration: a file of the service account that is needed is not there.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        keep_s: float,
        clock: Clock = REAL,
        metrics: MetricSink = SILENT,
        account: Path = ACCOUNT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._settings = settings
        self._keep_s = keep_s
        self._clock = clock
        self._metrics = metrics
        secure = settings.api_url.startswith("https:")
        self._token_file = settings.token_file or (account / "token" if secure else None)
        namespace = settings.namespace or _text(account / "namespace", "namespace")
        if self._token_file is not None:
            _text(self._token_file, "token_file")
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._client = httpx.AsyncClient(
            base_url=settings.api_url.rstrip("/"),
            verify=_authorities(settings.ca_file or account / "ca.crt") if secure else False,
            timeout=httpx.Timeout(ANSWER_S),
            transport=transport,
            trust_env=False,
        )

    async def lists(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """See `Discovery.lists`."""
        kept, pause_s = Kept(self._settings.service, self._keep_s, self._clock, self._metrics), FIRST_PAUSE_S
        book = SliceBook(self._settings.port, self._settings.scheme)
        while True:
            changed = False
            try:
                async with aclosing(self._followed(book)) as words:
                    async for _ in words:
                        changed = kept.answered(book.endpoints())
                        if kept.doubted:
                            break  # a new list has to say so too
                        pause_s = FIRST_PAUSE_S
                        if changed and kept.told is not None:
                            yield kept.told
            except _Expired:
                log.info("service %s: its slices are listed anew", self._settings.service)
            except TransientFault as fault:
                changed = kept.failed(str(fault))
            if kept.doubted and changed and kept.told is not None:
                yield kept.told
            await self._clock.pause(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    async def _followed(self, book: SliceBook) -> AsyncGenerator[None, None]:
        """Keeps the book true; yields after the list, and then after each word of the server.

        Raises:
            _Expired: a new list is needed.
            TransientFault: the server does not answer, or not as agreed.
        """
        slices, version = await self._listed()
        book.replace(slices)
        yield
        while True:
            async with aclosing(self._watched(version)) as events:
                async for event in events:
                    version = self._taken(event, book)
                    yield
            yield
            # A server that ends watches at once must not be asked without end.
            await self._clock.pause(FIRST_PAUSE_S)

    async def _listed(self) -> tuple[list[EndpointSlice], str]:
        """All slices, page by page, and the version that they are of."""
        slices: list[EndpointSlice] = []
        page = ""
        while True:
            more = {"continue": page} if page else {}
            try:
                answer = await self._client.get(
                    self._path, params={**self._selected, "limit": PAGE, **more}, headers=self._headers()
                )
            except httpx.HTTPError as fault:
                raise TransientFault(f"the API server does not answer ({type(fault).__name__})") from None
            _check(answer.status_code)
            found = _shaped(answer.content, _SliceList)
            slices += found.items or ()
            page = found.metadata.continue_
            if not page:
                return slices, found.metadata.resource_version

    async def _watched(self, version: str) -> AsyncGenerator[_WatchEvent, None]:
        """What happens after a version, until the server ends the watch."""
        asked = {**self._selected, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S}
        timeout = httpx.Timeout(ANSWER_S, read=WATCH_S + ANSWER_S)
        try:
            async with self._client.stream(
                "GET",
                self._path,
                params={**asked, "resourceVersion": version},
                headers=self._headers(),
                timeout=timeout,
            ) as answer:
                _check(answer.status_code)
                async for line in answer.aiter_lines():
                    yield _shaped(line.encode(), _WatchEvent)
        except httpx.HTTPError as fault:
            raise TransientFault(f"the watch broke off ({type(fault).__name__})") from None

    def _taken(self, event: _WatchEvent, book: SliceBook) -> str:
        """Takes an event over; the version to go on from."""
        match event.type:
            case "ERROR":
                status = _shaped(event.object, _Status)
                _check(status.code)
                raise TransientFault(f"the watch ended with {status.reason or status.code}")
            case "BOOKMARK":
                return _shaped(event.object, _Bookmark).metadata.resource_version
            case "DELETED":
                gone = _shaped(event.object, EndpointSlice)
                book.remove(gone.metadata.name)
                return gone.metadata.resource_version
            case _:
                changed = _shaped(event.object, EndpointSlice)
                book.put(changed)
                return changed.metadata.resource_version

    @property
    def _selected(self) -> dict[str, Any]:
        return {"labelSelector": f"kubernetes.io/service-name={self._settings.service}"}

    def _headers(self) -> dict[str, str]:
        """With the token as it is now: Kubernetes renews it within the hour."""
        if self._token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {_text(self._token_file, 'token_file')}"}
        except BrokenConfiguration as gone:
            raise TransientFault(str(gone)) from None

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()


def _check(status: int) -> None:
    """
    Raises:
        _Expired, TransientFault: what a status other than 200 means.
    """
    if status == EXPIRED:
        raise _Expired
    if status in (401, 403):
        raise TransientFault(
            f"the API server refuses us ({status}): the service account may get, list and watch endpointslices of"
            " discovery.k8s.io (see docs/deployment.md)"
        )
    if status >= 300:
        raise TransientFault(f"the API server answers with status {status}")


def _shaped(body: bytes | msgspec.Raw, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise TransientFault(f"the API server's answer is not readable: {fault}") from None


def _text(file: Path, what: str) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise BrokenConfiguration(
            f"executor.discovery.kubernetes: {file} cannot be read ({type(fault).__name__}); set {what}, or run with a"
            " service account"
        ) from None
    if not text or len(text.split()) != 1:
        raise BrokenConfiguration(f"executor.discovery.kubernetes: {file} does not hold one word; set {what}")
    return text


def _authorities(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as fault:
        raise BrokenConfiguration(
            f"executor.discovery.kubernetes: {file} is no usable PEM file ({type(fault).__name__}); set ca_file"
        ) from None
