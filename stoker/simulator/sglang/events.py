"""KV events as SGLang spells them: hashes of either sign, no adapter, and the salt outright."""

from __future__ import annotations

from typing import Any

_SIGN = 1 << 63


def spelled(event: dict[str, Any]) -> dict[str, Any]:
    """An event of `stoker.simulator.events` as SGLang would send it.

    The salt is on the root block only, where SGLang repeats it on each.
    """
    told = {"type": event["type"]}
    if "block_hashes" in event:
        told["block_hashes"] = [_signed(block_hash) for block_hash in event["block_hashes"]]
    if event["type"] == "BlockStored":
        parent = event["parent_block_hash"]
        told["parent_block_hash"] = None if parent is None else _signed(parent)
        told |= {"token_ids": event["token_ids"], "block_size": event["block_size"], "lora_id": None}
        told["cache_salt"] = _salt(event)
    if "medium" in event:
        told["medium"] = event["medium"]
    return told


def _signed(block_hash: int) -> int:
    return block_hash - 2 * _SIGN if block_hash >= _SIGN else block_hash


def _salt(event: dict[str, Any]) -> str | None:
    keys = [key for key in event["extra_keys"][0] or () if key != event["lora_name"]]
    return keys[-1] if keys else None
