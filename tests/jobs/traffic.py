"""What producers send in the tests of the jobs: good events, and every kind of bad one."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Protocol

from schemas import DeadReason, RequestEvent, encode
from stoker.bench.workload import Workload, WorkloadConfig

LATE_BY_MS = 7_200_000
"""Far beyond the lateness of any test, and the time that a job may need to come back."""


class Records(Protocol):
    """Makes records of llm.requests."""

    def record(self, at_ms: int) -> bytes:
        """The next one, with this arrival time."""


@dataclass
class Mix:
    """Events of a fault test: 2 % duplicates, 2 % late and 2 % malformed ones among good ones, seeded.

    Attributes:
        workload: makes the good ones.
    """

    seed: int
    workload: Records | None = None
    recent: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.workload = self.workload or Workload(WorkloadConfig(seed=self.seed, tenants=5))

    def record(self, now_ms: int) -> tuple[bytes, int]:
        """One record and its time."""
        luck = self.random.random()
        if luck < 0.02 and self.recent:
            return self.random.choice(self.recent), now_ms
        if luck < 0.04:
            return self.workload.record(now_ms - LATE_BY_MS), now_ms - LATE_BY_MS
        if luck < 0.06:
            return self.random.choice((b"{", b"\xff\xfe", b"[]", b'{"schema":"request_event/9"}')), now_ms
        record = self.workload.record(now_ms)
        self.recent = [*self.recent[-200:], record]
        return record, now_ms


def changed(event: RequestEvent, **fields: object) -> bytes:
    """The event's JSON with fields set to what no encoder of ours would write."""
    return json.dumps({**json.loads(encode(event)), **fields}).encode()


def without(event: RequestEvent, name: str) -> bytes:
    """The event's JSON without a field."""
    document = json.loads(encode(event))
    del document[name]
    return json.dumps(document).encode()


def bad_requests(event: RequestEvent) -> dict[str, tuple[bytes, DeadReason, str]]:
    """Bad records of llm.requests by name: bytes, and the reason and path that their dead letters must have."""
    good = encode(event)
    segment = {"hash": "0" * 32, "tokens": 1}
    return {
        "truncated": (good[: len(good) // 2], DeadReason.MALFORMED_JSON, "$"),
        "empty": (b"", DeadReason.MALFORMED_JSON, "$"),
        "wrong type": (changed(event, tenant=5), DeadReason.WRONG_TYPE, "$.tenant"),
        "missing field": (without(event, "pool"), DeadReason.MISSING_FIELD, "$.pool"),
        "unknown schema": (changed(event, schema="request_event/99"), DeadReason.UNKNOWN_SCHEMA, "$.schema"),
        "no schema": (without(event, "schema"), DeadReason.UNKNOWN_SCHEMA, "$.schema"),
        "1.5 MB": (changed(event, query="x" * 1_500_000), DeadReason.TOO_LARGE, "$"),
        "100k characters": (changed(event, query="x" * 100_000), DeadReason.OUT_OF_RANGE, "$.query"),
        "64k characters of four bytes": (changed(event, query="\U0001f525" * 60_000), DeadReason.TOO_LARGE, "$.query"),
        "2,000 segments": (changed(event, segments=[segment] * 2_000), DeadReason.OUT_OF_RANGE, "$.segments"),
        "NaN": (changed(event, sample_weight=float("nan")), DeadReason.MALFORMED_JSON, "$"),
        "negative time": (changed(event, occurred_at_ms=-1), DeadReason.OUT_OF_RANGE, "$.occurred_at_ms"),
        "far future": (
            changed(event, occurred_at_ms=event.occurred_at_ms + 3_600_000),
            DeadReason.TIME_SKEW,
            "$",
        ),
        "beyond 2100": (changed(event, occurred_at_ms=10**15), DeadReason.OUT_OF_RANGE, "$.occurred_at_ms"),
        "a time of 40 digits": (
            good.replace(str(event.occurred_at_ms).encode(), b"9" * 40, 1),
            DeadReason.OUT_OF_RANGE,
            "$.occurred_at_ms",
        ),
        "not UTF-8": (b'{"schema":"request_event/1","tenant":"\xff\xfe"}', DeadReason.NOT_UTF8, "$"),
        "a hash that is none": (changed(event, query_sha256="z" * 32), DeadReason.BAD_HASH, "$.query_sha256"),
        "nested 100,000 deep": (
            b'{"schema":"request_event/1","x":' + b"[" * 100_000,
            DeadReason.MALFORMED_JSON,
            "$",
        ),
    }
