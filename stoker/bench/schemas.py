"""Bench `schemas`: how fast a RequestEvent of 8 segments is decoded and validated.

The baseline is msgspec on the same fields without a single limit, in the same run, interleaved.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import msgspec

from schemas import Render, RequestEvent, RewardEvent, Segment, encode
from schemas import canonical as c
from schemas.codec import Reader
from stoker.bench.figures import Figure, Report, at_least

ROUNDS = 9


def run(events: int = 20_000) -> Report:
    """Figures decode_per_s and event_bytes.

    Args:
        events: decodes in each of the nine rounds.
    """
    record = encode(example())
    checked = Reader(RequestEvent, RewardEvent).decode
    unchecked = msgspec.json.Decoder(without_limits(RequestEvent)).decode
    rates: dict[str, list[float]] = {"checked": [], "unchecked": []}
    for _ in range(ROUNDS):
        rates["checked"].append(_per_s(checked, record, events))
        rates["unchecked"].append(_per_s(unchecked, record, events))
    report = Report("schemas")
    rate, baseline = statistics.median(rates["checked"]), statistics.median(rates["unchecked"])
    report.add(Figure("decode_per_s", rate, "events/s", goal=at_least(150_000)))
    report.add(Figure("decode_ratio", rate, "events/s", baseline=baseline, goal=at_least(0.6, of="ratio")))
    report.add(Figure("event_bytes", len(record), "bytes"))
    return report


def example() -> RequestEvent:
    """A chat of 8 segments as a gateway reports it, about 1.1 kB."""
    render = Render(template_sha=c.h128("template"), tools_sha=c.h128("tools"))
    parent, segments = c.root_hash("llama-3-8b", None, render.template_sha, render.tools_sha), []
    for index in range(8):
        parent = c.segment_hash(parent, "user" if index else "system", f"turn {index}")
        segments.append(Segment(hash=parent, tokens=64 + 32 * index, role="user" if index else "system"))
    query = "I was charged twice for the same transfer, can you tell me when I will get my money back?"
    return RequestEvent(
        event_id=c.h128("event"),
        request_id=c.h128("request"),
        phase="started",
        occurred_at_ms=1_795_994_873_000,
        tenant="acme-de",
        user=c.h128("user"),
        session=c.h128("session"),
        pool="gpu-a",
        model="llama-3-8b",
        query=query,
        query_sha256=c.query_sha256(query),
        segments=tuple(segments),
        render=render,
        input_tokens=sum(segment.tokens for segment in segments),
    )


def without_limits(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same struct with every `Meta` taken out of its types, its inner structs too."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind):
        plain = _plain(field.type)
        if field.required:
            fields.append((field.name, plain))
        elif field.default_factory is not msgspec.NODEFAULT:
            fields.append((field.name, plain, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, plain, field.default))
    config = kind.__struct_config__
    return msgspec.defstruct(
        kind.__name__, fields, frozen=True, kw_only=True, tag_field=config.tag_field, tag=config.tag
    )


def _plain(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return without_limits(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _plain(arguments[0])
    if origin is tuple:
        return tuple.__class_getitem__((_plain(arguments[0]), ...))
    if arguments and type(None) in arguments:
        return _plain(next(a for a in arguments if a is not type(None))) | None
    return kind


def _per_s(decode: Callable[[bytes], object], record: bytes, times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        decode(record)
    return times / (time.perf_counter() - began)
