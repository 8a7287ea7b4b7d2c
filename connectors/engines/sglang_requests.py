"""What a request to SGLang says of who asks, in which tree, and how urgently; and what continued chats share. Pure, but
for the random end of a request's id.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

from connectors.engines.base import TOP_PRIORITY, ChatMessage, Salt
from connectors.engines.sglang_answers import ServerInfo


def addressed(
    info: ServerInfo, adapter: str | None, salt: Salt | None, request_id: str, priority: int | None
) -> dict[str, Any]:
    """Who asks, with which adapter, in which tree, how urgently.

    A second request under the id of one in flight is refused, and an abort reaches every id that begins with its own:
    so each request gets an id that no other begins with.
    """
    body: dict[str, Any] = {"rid": f"{request_id}.{secrets.token_hex(6)}"}
    if adapter is not None:
        body["lora_path"] = adapter
    if salt is not None:
        body["cache_salt"] = salt.value
    told = _priority(info, priority)
    if told is not None:
        body["priority"] = told
    return body


def _priority(info: ServerInfo, priority: int | None) -> int | None:
    """A priority that never comes before a user's request; None to send none.

    A request without a priority gets `--default-priority-value`, or without that flag comes after every other
    (`_set_or_validate_priority` in managers/scheduler.py): then any number at all would overtake users. With
    `--radix-eviction-policy priority` the same number orders eviction, the lowest first, so that what was warmed goes
    before what users asked for, and less urgent warm-ups go first. Where low values are scheduled first, no number does
    both.
    """
    if priority is None or not info.enable_priority_scheduling or info.default_priority_value is None:
        return None
    behind = TOP_PRIORITY - priority
    if not info.schedule_low_priority_values_first:
        return info.default_priority_value - behind
    return None if info.radix_eviction_policy == "priority" else info.default_priority_value + behind


def continued(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The chat with two different continuations, roles in the order that templates demand."""
    if messages and messages[-1]["role"] == "user":
        return [*messages], [*messages, {"role": "assistant", "content": "0"}]
    return [*messages, {"role": "user", "content": "0"}], [*messages, {"role": "user", "content": "1"}]


def common_start(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """What both begin with."""
    length = next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), None)
    return tuple(one[: min(len(one), len(other)) if length is None else length])


def events_tell_salts(version: str) -> bool:
    """Whether KV events of this version name the salt of a block: without it one tenant's blocks pass for another's.
    Read in 0.5.23; older ones and those that do not tell their version are not trusted with it."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return found is not None and tuple(int(part) for part in found.groups()) >= (0, 5, 23)
