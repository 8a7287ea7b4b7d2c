"""The LoRA trace: who asked for which base model and adapters when (data/SOURCES.md; image generation, not text)."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

TRACE = "traces/lora_requests_first_half.csv.gz"
LOAD_MS = 4_400
"""Median of an adapter's load time in the same trace; it names no adapter's own."""


class Asked(NamedTuple):
    """One request.

    Attributes:
        at_ms: Unix time; the trace has whole seconds.
        adapters: none in five of six requests.
    """

    at_ms: int
    tenant: str
    model: str
    adapters: tuple[str, ...]


class Use(NamedTuple):
    """One adapter of one request."""

    at_ms: int
    adapter: str


def read_lora_trace(path: Path) -> list[Asked]:
    """All requests in their order, also those that failed: they were asked for as well."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return [
            Asked(
                int(datetime.fromisoformat(row["gmt_create"]).replace(tzinfo=UTC).timestamp()) * 1000,
                row["groupId"],
                row["base_model"],
                tuple(name for name in row["lora_ids"].split("|") if name),
            )
            for row in csv.DictReader(file)
        ]


def belady(uses: Sequence[Use], slots: int) -> list[bool]:
    """Which uses hit in a cache that knows the future and may pass by what it will not need (MIN)."""
    again = [len(uses)] * len(uses)
    next_index: dict[str, int] = {}
    for index in range(len(uses) - 1, -1, -1):
        again[index] = next_index.get(uses[index].adapter, len(uses))
        next_index[uses[index].adapter] = index
    held: dict[str, int] = {}
    hits = []
    for index, use in enumerate(uses):
        hits.append(use.adapter in held)
        held[use.adapter] = again[index]
        if len(held) > slots:
            del held[max(held, key=lambda name: (held[name], name))]
    return hits
