"""EndpointSlices of one service (discovery.k8s.io/v1): what they say together about its pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from connectors.discovery.base import Endpoint

FAMILIES = ("IPv4", "IPv6", "FQDN")
"""A service with two address families has a slice for each: the earlier one counts."""


class Metadata(Struct, frozen=True, rename="camel"):
    """Of an object, of a list, or of a bookmark."""

    name: str = ""
    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class Conditions(Struct, frozen=True):
    """Of an endpoint. What is not told is meant well: ready is true, serving is ready, terminating is false."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None

    @property
    def serves(self) -> bool:
        """Whether its pod is ready, terminating or not."""
        return self.serving if self.serving is not None else self.ready is not False


class TargetRef(Struct, frozen=True):
    """The object behind an endpoint."""

    kind: str = ""
    name: str = ""


class SliceEndpoint(Struct, frozen=True, rename="camel"):
    """One endpoint. Its addresses are interchangeable, and only the first is used by anybody."""

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    target_ref: TargetRef | None = None
    zone: str | None = None


class SlicePort(Struct, frozen=True):
    """A port that all endpoints of a slice have."""

    name: str | None = None
    port: int | None = None


class EndpointSlice(Struct, frozen=True, rename="camel"):
    """Some of a service's endpoints."""

    metadata: Metadata
    address_type: str
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None

    def port(self, wanted: int | str | None) -> int | None:
        """The port of a name or number, the first one for None; None where there is none such."""
        if isinstance(wanted, int):
            return wanted
        listed = [port for port in self.ports or () if wanted is None or port.name == wanted]
        return listed[0].port if listed else None


class SliceBook:
    """The slices of one service as they stand now.

    An endpoint that is not ready is one of two things. Before it ever was, its pod starts, and may be waiting for its
    cache to be warm: that is the time to warm it. Afterwards it is out of the traffic, and warming it helps nobody.

    Args:
        port, scheme: of the replicas' API.
    """

    def __init__(self, port: int | str | None, scheme: str) -> None:
        self._port = port
        self._scheme = scheme
        self._slices: dict[str, EndpointSlice] = {}
        self._served: set[str] = set()

    def replace(self, slices: Iterable[EndpointSlice]) -> None:
        """These are all."""
        self._slices = {each.metadata.name: each for each in slices}

    def put(self, one: EndpointSlice) -> None:
        """A slice is new or changed."""
        self._slices[one.metadata.name] = one

    def remove(self, name: str) -> None:
        """A slice is deleted."""
        self._slices.pop(name, None)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The replicas, each once: while one moves between slices it stands in two, and the better account counts."""
        found: dict[str, tuple[bool, int, Endpoint]] = {}
        told = list(self._told())
        serving = {name for name, serves, _, _ in told if serves}
        self._served = {name for name, _, _, _ in told if name in self._served} | serving
        for name, serves, family, endpoint in told:
            draining = endpoint.draining or (not serves and name in self._served)
            account = (draining, family, Endpoint(name, endpoint.url, endpoint.zone, draining))
            if name not in found or account < found[name]:
                found[name] = account
        return tuple(sorted(endpoint for _, _, endpoint in found.values()))

    def _told(self) -> Iterator[tuple[str, bool, int, Endpoint]]:
        for each in self._slices.values():
            port = each.port(self._port)
            if port is None or each.address_type not in FAMILIES:
                continue
            for endpoint in each.endpoints or ():
                if not endpoint.addresses:
                    continue
                address = endpoint.addresses[0]
                place = f"[{address}]:{port}" if each.address_type == "IPv6" else f"{address}:{port}"
                pod = endpoint.target_ref
                name = pod.name if pod is not None and pod.kind == "Pod" and pod.name else place
                told = Endpoint(
                    name, f"{self._scheme}://{place}", endpoint.zone, endpoint.conditions.terminating is True
                )
                yield name, endpoint.conditions.serves, FAMILIES.index(each.address_type), told
