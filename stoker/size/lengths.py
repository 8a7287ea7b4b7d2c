"""Lengths and overlaps of the requests of a file of RequestEvents."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas import BrokenConfiguration, PoisonMessage, RequestEvent
from schemas.codec import Reader

LEFT_OUT = frozenset({"warmup", "probe"})


@dataclass(slots=True)
class Length:
    """One request: its tokens, and from when to when it held them.

    Attributes:
        tokens: of prompt and answer, as far as they were told.
        until_ms: when it was over; its arrival where nobody told.
    """

    tokens: int
    from_ms: int
    until_ms: int


@dataclass
class Lengths:
    """All requests of a file by arrival, and how many lines of it were none."""

    requests: list[Length]
    unreadable: int = 0

    @property
    def longest_tokens(self) -> int:
        """Of the longest request."""
        return max(request.tokens for request in self.requests)

    @property
    def most_at_once(self) -> int:
        """How many were under way at a time at most; one that ends as another begins is not with it."""
        steps = sorted(
            step
            for request in self.requests
            for step in ((request.from_ms, 1), (max(request.until_ms, request.from_ms + 1), -1))
        )
        most = now = 0
        for _, change in steps:
            now += change
            most = max(most, now)
        return most

    def quantile_tokens(self, share: float) -> int:
        """Length that this share of the requests does not exceed."""
        ordered = sorted(request.tokens for request in self.requests)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def read_lengths(path: Path) -> Lengths:
    """The requests of a file of JSON lines, plain or .gz: users' own that did not fail; both phases of one are one.

    Raises:
        BrokenConfiguration: the file cannot be read or holds no request.
    """
    reader = Reader(RequestEvent)
    found: dict[tuple[str, str, int], Length] = {}
    failed: set[tuple[str, str, int]] = set()
    unreadable = 0
    try:
        for line in _lines(path):
            try:
                event = reader.decode(line)
            except PoisonMessage:
                unreadable += 1
                continue
            name = (event.tenant, event.request_id, event.attempt)
            if event.origin in LEFT_OUT or event.status >= 400:
                failed.add(name)
                continue
            prompt = max(event.input_tokens, sum([segment.tokens for segment in event.segments]))
            tokens, until_ms = prompt + (event.output_tokens or 0), event.completed_at_ms or event.occurred_at_ms
            held = found.get(name)
            if held is None:
                found[name] = Length(tokens, event.occurred_at_ms, until_ms)
            else:
                held.tokens = max(held.tokens, tokens)
                held.from_ms, held.until_ms = min(held.from_ms, event.occurred_at_ms), max(held.until_ms, until_ms)
    except (OSError, EOFError) as fault:
        raise BrokenConfiguration(f"--events {path} cannot be read ({fault})") from None
    requests = [length for name, length in found.items() if name not in failed and length.tokens > 0]
    if not requests:
        raise BrokenConfiguration(f"--events {path}: no request in it; it must hold RequestEvents as JSON lines")
    return Lengths(sorted(requests, key=lambda request: request.from_ms), unreadable)


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            if line.strip():
                yield line.strip()
