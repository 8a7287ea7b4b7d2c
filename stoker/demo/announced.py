"""What the tenants of a demo know beforehand and announce: a new version of an adapter, and a sale with its prices."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.settings import RedisSettings
from schemas import Announcement
from schemas.announcement import announcement_id
from schemas.canonical import adapter_parts

if TYPE_CHECKING:
    from stoker.demo.config import DemoConfig

LOADER = "prices"
ARTICLES = 60
RANK = 8
_WEIGHTS = "adapter_model.safetensors"


def write_prices(file: Path) -> None:
    """The shop's database: a price for each article."""
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE prices (sku TEXT PRIMARY KEY, price TEXT)")
        rows = [(f"sku:{number}", f"{number}.99") for number in range(ARTICLES)]
        base.executemany("INSERT INTO prices VALUES (?, ?)", rows)
    base.close()


def write_weights(folder: Path) -> None:
    """An adapter as a training run leaves it: the configuration is real, the weights are only their name."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": RANK, "lora_alpha": 16, "peft_type": "LORA"}))
    (folder / _WEIGHTS).write_bytes(folder.name.encode())


def announced(config: DemoConfig, began_ms: int, weights: Mapping[str, str], now_ms: int) -> list[Announcement]:
    """The announcements of a run that begins at a time; a workload without adapters has none.

    Args:
        weights: folder of each adapter.
    """
    half_ms = began_ms + round(config.minutes * 30_000)
    found = []
    for number, (name, folder) in enumerate(weights.items()):
        adapter, version = adapter_parts(name)
        at_ms = began_ms + number * (half_ms - began_ms)
        found.append(
            Announcement(
                announcement_id=announcement_id(adapter, "main", "adapter", adapter, version, at_ms),
                scope=adapter,
                pool="main",
                kind="adapter",
                name=adapter,
                version=version,
                announced_at_ms=now_ms,
                at_ms=at_ms,
                rank=RANK,
                sha256=hashlib.sha256((Path(folder) / _WEIGHTS).read_bytes()).hexdigest(),
                source=folder,
            )
        )
    if found:
        pool = RedisSettings().pool_key
        found.append(
            Announcement(
                announcement_id=announcement_id(found[0].scope, pool, "event", "sale", "1", half_ms),
                scope=found[0].scope,
                pool=pool,
                kind="event",
                name="sale",
                version="1",
                announced_at_ms=now_ms,
                at_ms=half_ms,
                keys=tuple(f"sku:{number}" for number in range(ARTICLES)),
                loader=LOADER,
            )
        )
    return found
