"""The requests of a file, one each, whatever it was written by: RequestEvents as JSON lines, or a Mooncake trace.

Both phases of a request are one request: it arrived when the first says so, and the later one adds replica, measured
cached tokens and status. What was Stoker's own (warm-ups, probes) and what failed is left out.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analytics.cache_models import Run, cut
from schemas import BrokenConfiguration, PoisonMessage, RequestEvent, Segment
from schemas.canonical import h128
from schemas.codec import Reader
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, Line

LEFT_OUT = frozenset({"warmup", "probe"})
ANY_REPLICA = "r0"
"""Stands for the replica where events name none: the pool is one cache then."""
TRACE_POOL = "mooncake"


@dataclass(slots=True)
class Asked:
    """One request.

    Attributes:
        event: one of its events, with all that its segments say.
        arrived_ms: when it came.
        replica: that served it.
        prompt_tokens: of the whole prompt.
        cached_tokens: that its engine found cached, where it was measured.
    """

    event: RequestEvent
    arrived_ms: int
    replica: str
    prompt_tokens: int
    cached_tokens: int | None = None

    @property
    def cache(self) -> tuple[str, str]:
        """Pool and replica: what shares blocks."""
        return self.event.pool, self.replica

    def runs(self, block_tokens: int) -> tuple[Run, ...]:
        """Its full blocks. Two salts never share any."""
        return runs_of(self.event.segments, self.event.render.salt_ref if self.event.render else None, block_tokens)


@dataclass
class Traffic:
    """All requests of a file by arrival.

    Attributes:
        trace: whether it is a Mooncake trace: blocks without texts, roles or measured tokens.
        left_out: requests of Stoker's own or failed.
        unreadable: lines that are no event; `first_fault` says what is wrong with the first of them.
    """

    requests: list[Asked] = field(default_factory=list)
    trace: bool = False
    left_out: int = 0
    unreadable: int = 0
    first_fault: str = ""

    @property
    def prompt_tokens(self) -> int:
        """Of all requests."""
        return sum([request.prompt_tokens for request in self.requests])

    @property
    def span_ms(self) -> int:
        """From the first arrival to the last, at least a minute."""
        return max(60_000, self.requests[-1].arrived_ms - self.requests[0].arrived_ms)

    @property
    def measured(self) -> tuple[int, int] | None:
        """Cached and prompt tokens of those requests whose engine told it; None where none did."""
        told = [request for request in self.requests if request.cached_tokens is not None]
        if not told:
            return None
        return sum([request.cached_tokens or 0 for request in told]), sum([request.prompt_tokens for request in told])


def runs_of(segments: Iterable[Segment], salt_ref: str | None, block_tokens: int) -> tuple[Run, ...]:
    """The full blocks of a prompt."""
    if salt_ref:
        return cut([((salt_ref, segment.hash), segment.tokens) for segment in segments], block_tokens)
    return cut([(segment.hash, segment.tokens) for segment in segments], block_tokens)


def read_traffic(path: Path) -> Traffic:
    """All requests of a file, plain or gzipped.

    Raises:
        BrokenConfiguration: the file cannot be read or no line of it is a request with segments.
    """
    traffic = Traffic()
    try:
        lines = _lines(path)
        first = next(lines, None)
        if first is None:
            raise BrokenConfiguration(f"{path} is empty")
        traffic.trace = b'"hash_ids"' in first[1]
        everything = _chained(first, lines)
        if traffic.trace:
            _read_trace(everything, traffic)
        else:
            _read_events(everything, traffic)
    except (OSError, EOFError) as fault:
        raise BrokenConfiguration(f"{path} cannot be read ({fault})") from None
    if not traffic.requests:
        why = f"; {traffic.first_fault}" if traffic.first_fault else ""
        raise BrokenConfiguration(
            f"{path}: no request in it{why}. It must hold RequestEvents as JSON lines (docs/contracts.md) "
            "or be a Mooncake trace"
        )
    if not any(request.event.segments for request in traffic.requests):
        raise BrokenConfiguration(
            f"{path}: no request names its segments, so nothing says what prompts have in common; "
            "send `segments` with hash and tokens, or ask the engines with --metrics"
        )
    traffic.requests.sort(key=lambda request: request.arrived_ms)
    return traffic


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line.strip()


def _chained(first: tuple[int, bytes], rest: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    yield first
    yield from rest


def _read_events(lines: Iterator[tuple[int, bytes]], traffic: Traffic) -> None:
    decode = Reader(RequestEvent).decode
    known: dict[tuple[str, str, int], Asked] = {}
    kept: dict[Segment, Segment] = {}
    failed: set[tuple[str, str, int]] = set()
    for number, line in lines:
        try:
            event = decode(line)
        except PoisonMessage as poison:
            _unreadable(traffic, number, str(poison))
            continue
        name = (event.tenant, event.request_id, event.attempt)
        if event.origin in LEFT_OUT or event.status >= 400:
            failed.add(name)
            continue
        # Texts are of no use here, and what prompts share is held once.
        segments = tuple(kept.setdefault(segment, segment) for segment in event.segments)
        event = msgspec.structs.replace(event, query=None, segments=segments)
        asked = known.get(name)
        if asked is None:
            asked = known[name] = Asked(event, event.occurred_at_ms, event.replica or ANY_REPLICA, 0)
        elif event.segments and not asked.event.segments:
            asked.event = event
        if event.replica is not None:
            asked.replica = event.replica
        asked.prompt_tokens = max(
            asked.prompt_tokens, event.input_tokens, sum([segment.tokens for segment in event.segments])
        )
        if event.cache is not None and event.cache.kv_cached_tokens is not None:
            asked.cached_tokens = event.cache.kv_cached_tokens
    traffic.left_out = len(failed)
    traffic.requests = [asked for name, asked in known.items() if name not in failed]


def _read_trace(lines: Iterator[tuple[int, bytes]], traffic: Traffic) -> None:
    """Blocks count as full ones, the last too, as in all published figures of this trace."""
    decode = msgspec.json.Decoder(Line).decode
    for number, text in lines:
        try:
            line = decode(text)
        except msgspec.MsgspecError as fault:
            _unreadable(traffic, number, str(fault))
            continue
        segments = tuple(Segment(h128(f"block {block}"), TRACE_BLOCK_TOKENS, "block") for block in line.hash_ids)
        event = RequestEvent(
            event_id=f"line-{number}",
            request_id=f"line-{number}",
            phase="started",
            occurred_at_ms=line.timestamp,
            tenant="trace",
            pool=TRACE_POOL,
            model=TRACE_POOL,
            api="completion",
            segments=segments,
            input_tokens=len(segments) * TRACE_BLOCK_TOKENS,
        )
        traffic.requests.append(Asked(event, line.timestamp, ANY_REPLICA, event.input_tokens))


def _unreadable(traffic: Traffic, number: int, fault: str) -> None:
    traffic.unreadable += 1
    traffic.first_fault = traffic.first_fault or f"line {number} is unreadable ({fault})"
