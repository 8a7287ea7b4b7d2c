"""A Kubernetes API server as far as EndpointSlices go: list by pages, watch by versions, bookmarks, 410 and refusals.

The objects have the shape that a cluster's EndpointSlice controller writes (discovery.k8s.io/v1).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

SERVICE = "vllm"


def endpoint(number: int, **fields: Any) -> dict[str, Any]:
    """One endpoint of a slice: pod `vllm-N` on 10.0.0.N, ready unless `fields` say otherwise."""
    conditions = {"ready": True, "serving": True, "terminating": False, **fields.pop("conditions", {})}
    return {
        "addresses": [f"10.0.0.{number}"],
        "conditions": conditions,
        "nodeName": f"node-{number}",
        "targetRef": {"kind": "Pod", "namespace": "serving", "name": f"vllm-{number}", "uid": f"0-{number}"},
        "zone": "zone-a",
        **fields,
    }


def slice_of(name: str, *endpoints: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A slice of the service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "generateName": f"{SERVICE}-",
            "namespace": "serving",
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": SERVICE,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": SERVICE, "controller": True}],
        },
        "addressType": "IPv4",
        "endpoints": list(endpoints) or None,
        "ports": [
            {"name": "metrics", "port": 9000, "protocol": "TCP"},
            {"name": "http", "port": 8000, "protocol": "TCP"},
        ],
        **fields,
    }


class KubernetesApi:
    """The server; what a test does to it is heard by whoever watches.

    Attributes:
        page: most items of one answer to a list.
        requests: queries of all requests, in order.
    """

    namespace = "serving"

    def __init__(self) -> None:
        self.token = "s3cret-token"
        self.url = ""
        self.page = 500
        self.requests: list[dict[str, str]] = []
        self.bookmarks_sent = 0
        self._slices: dict[str, dict[str, Any]] = {}
        self._version = 100
        self._history: list[tuple[int, dict[str, Any]]] = []
        self._floor = 0
        self._failures = 0
        self._watches: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Condition()
        self._told: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def served(cls, tls: ssl.SSLContext | None = None) -> AsyncIterator[KubernetesApi]:
        api = cls()
        server = await asyncio.start_server(api._connected, "127.0.0.1", 0, ssl=tls)
        api.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield api
        server.close()
        api.break_watches()

    # -- what happens in the cluster -----------------------------------------------------------------------------------

    def put(self, *numbers: int, **fields: Any) -> None:
        """These pods are in the service, each in a slice of its own."""
        for number in numbers:
            self.put_slice(slice_of(f"vllm-s{number}", endpoint(number, **fields)))

    def put_slice(self, one: dict[str, Any]) -> None:
        name = one["metadata"]["name"]
        self._happens("MODIFIED" if name in self._slices else "ADDED", one)
        self._slices[name] = one

    def remove(self, number: int) -> None:
        self._happens("DELETED", self._slices.pop(f"vllm-s{number}"))

    def bookmark(self) -> None:
        metadata = {"resourceVersion": str(self._version), "creationTimestamp": None}
        one = {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata}
        self._history.append((self._version, {"type": "BOOKMARK", "object": one}))
        self._notify()

    def forget_history(self) -> None:
        """Versions of before are too old from now on, as after a compaction of etcd."""
        self._version += 1
        self._floor = self._version
        self._history.clear()

    def fail(self, requests: int) -> None:
        """The next so many requests are answered by 503, and watches break off."""
        self._failures = requests
        if requests:
            self.break_watches()

    def end_watches(self) -> None:
        """As a server does when their time is over."""
        for writer in list(self._watches):
            writer.write(b"0\r\n\r\n")
            self._watches.discard(writer)

    def break_watches(self) -> None:
        """As a network does."""
        for writer in list(self._watches):
            writer.close()

    def _happens(self, kind: str, one: dict[str, Any]) -> None:
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        self._history.append((self._version, {"type": kind, "object": json.loads(json.dumps(one))}))
        self._notify()

    def _notify(self) -> None:
        async def told() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(told())
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                await self._answer(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._watches.discard(writer)
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        first, *headers = head.splitlines()
        url = urlsplit(first.split()[1])
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self.requests.append(query)
        if f"authorization: bearer {self.token}" not in [line.lower() for line in headers]:
            return self._send(writer, 401, self._status(401, "Unauthorized"))
        if url.path != f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices":
            return self._send(writer, 403, self._status(403, "Forbidden"))
        assert query["labelSelector"] == f"kubernetes.io/service-name={SERVICE}"
        if self._failures:
            self._failures -= 1
            return self._send(writer, 503, self._status(503, "ServiceUnavailable"))
        if query.get("watch") == "1":
            await self._watch(int(query["resourceVersion"]), writer)
        else:
            self._send(writer, *self._list(query))

    def _list(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        begun, _, place = query.get("continue", "").partition("/")
        if begun and int(begun) < self._floor:
            return 410, self._status(410, "Expired")
        start = int(place or 0)
        names = sorted(self._slices)
        metadata = {"resourceVersion": begun or str(self._version)}
        end = start + min(self.page, int(query["limit"]))
        if end < len(names):
            metadata |= {"continue": f"{metadata['resourceVersion']}/{end}", "remainingItemCount": len(names) - end}
        items = [
            {k: v for k, v in self._slices[n].items() if k not in ("kind", "apiVersion")} for n in names[start:end]
        ]
        return 200, {
            "kind": "EndpointSliceList",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": metadata,
            "items": items,
        }

    async def _watch(self, since: int, writer: asyncio.StreamWriter) -> None:
        if since < self._floor:
            # The API server answers 200 and tells it as an event where the watch cache noticed.
            self._begin(writer)
            self._line(writer, {"type": "ERROR", "object": self._status(410, "Expired")})
            writer.write(b"0\r\n\r\n")
            return
        self._begin(writer)
        self._watches.add(writer)
        sent: list[int] = []
        while writer in self._watches and not writer.is_closing():
            for number, (version, event) in enumerate(list(self._history)):
                news = version > since or (event["type"] == "BOOKMARK" and version == since)
                if news and number not in sent:
                    sent.append(number)
                    self._line(writer, event)
                    self.bookmarks_sent += event["type"] == "BOOKMARK"
            await writer.drain()
            async with self._changed:
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.02)
                except TimeoutError:
                    continue

    def _begin(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    def _line(self, writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
        body = json.dumps(event).encode() + b"\n"
        writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n")

    def _send(self, writer: asyncio.StreamWriter, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)

    def _status(self, code: int, reason: str) -> dict[str, Any]:
        return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
