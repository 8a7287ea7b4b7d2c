"""What a request to TensorRT-LLM says of who asks, in which tree, and how urgently; which adapters it may name. Pure.

Its requests forbid what they do not know: a field too many is a 400.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from connectors.engines.base import TOP_PRIORITY, LoadedAdapter, Salt
from schemas.errors import RefusedCommand

USERS_PRIORITY = 0.5
"""What the engine gives a request that names none, of 0 to 1, higher first."""


def adapter_id(name: str) -> int:
    """The `lora_int_id` under which an adapter is asked for: the CRC-32 of its name, without the top bit.

    The engine knows weights, and the prefixes computed with them, by this number alone. So a gateway has to send the
    same one, and it has to follow from the name.
    """
    return crc32(name.encode()) & 0x7FFF_FFFF


def addressed(
    model: str,
    lora: Mapping[str, Any] | None,
    salt: Salt | None = None,
    priority: int | None = None,
    max_tokens: int = 1,
) -> dict[str, Any]:
    """Who is asked, with which adapter, in which tree, how urgently.

    Args:
        lora: as `KnownAdapters` gives it.
        priority: None where the engine takes none. No warm-up comes before a user's request.
    """
    body: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "temperature": 0}
    if lora is not None:
        body["lora_request"] = dict(lora)
    if salt is not None:
        body["cache_salt"] = salt.value
    if priority is not None:
        body["priority"] = USERS_PRIORITY * priority / TOP_PRIORITY
    return body


class KnownAdapters:
    """Adapters that this side has sent to one engine since it began. The engine lists none, and forgets none by a call.

    Args:
        url: of the engine, for the words of a refusal.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._listed: dict[str, str] = {}
        self._weights: dict[int, tuple[str, str]] = {}

    def listed(self, model: str) -> tuple[LoadedAdapter, ...]:
        """Those that requests may name."""
        return tuple(LoadedAdapter(name, path, model) for name, path in self._listed.items())

    def claim(self, name: str, path: str) -> dict[str, Any]:
        """The adapter as its first request carries it.

        Raises:
            RefusedCommand: the engine has, or may have, other weights under its number.
        """
        number = adapter_id(name)
        holder = self._weights.setdefault(number, (name, path))
        if holder == (name, path):
            return _lora_request(name, path)
        why = "another path" if holder[0] == name else f"{holder[0]}, whose lora_int_id is the same"
        raise RefusedCommand(f"adapter {name}: {self._url} holds weights of {why}: give it a new name")

    def accept(self, name: str, path: str) -> None:
        """The engine answered with it."""
        self._listed[name] = path

    def refused(self, name: str) -> None:
        """The engine could not load it: its number stands for nothing."""
        if name not in self._listed:
            self._weights.pop(adapter_id(name), None)

    def drop(self, name: str) -> None:
        """Requests may name it no more. Its weights stay at the engine, under its number."""
        self._listed.pop(name, None)

    def request_of(self, name: str) -> dict[str, Any]:
        """The adapter as each further request carries it.

        Raises:
            RefusedCommand: it is not listed.
        """
        if name not in self._listed:
            raise RefusedCommand(f"adapter {name} was not loaded at {self._url} from here")
        return _lora_request(name, self._listed[name])

    def clear(self) -> None:
        """The engine lives anew."""
        self._listed.clear()
        self._weights.clear()


def _lora_request(name: str, path: str) -> dict[str, Any]:
    return {"lora_name": name, "lora_int_id": adapter_id(name), "lora_path": path}
