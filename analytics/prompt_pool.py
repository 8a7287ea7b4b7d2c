"""The pool of managed prompts (D7, spec): how hot each is, and a draw among them.

A prompt starts at hotness 1. An adopted answer adds 0.3, an answer as expected and not cut short 0.5; every whole 24 h
of event time without a use takes 5 %; there is a ceiling. What idle time takes is worked out when somebody asks, from
the last use on, so that nothing is written while time merely passes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from msgspec import structs

from analytics.records import Record, Section, pack, path, unpack

INITIAL = 1.0
ADOPTED = 0.3
ANSWERED = 0.5
DAILY_FACTOR = 0.95
DAY_MS = 86_400_000


def prompt_hotness(
    hotness: float, idle_ms: int, adopted: int = 0, answered: int = 0, ceiling: float = 10.0, day_ms: int = DAY_MS
) -> float:
    """Hotness after some idle time and then some uses.

    Args:
        hotness: as it was after the last use.
        idle_ms: since the last use.
        adopted, answered: uses now whose answer was adopted, or was as expected and not cut short.
        day_ms: length of a day, where time is scaled.
    """
    faded = hotness * DAILY_FACTOR ** (max(0, idle_ms) // day_ms)
    return min(ceiling, faded + ADOPTED * adopted + ANSWERED * answered)


def prompt_sample(hotness: Sequence[float], u: float) -> int:
    """Cumulative roulette: the first index whose share, added to those before it, exceeds u.

    Args:
        hotness: of each prompt, at least 0; one above 0.
        u: in [0, 1).

    Raises:
        ValueError: there is nothing to draw from, or u is out of range.
    """
    total = sum(hotness)
    if not 0 <= u < 1 or total <= 0 or min(hotness) < 0:
        raise ValueError("a draw needs u in [0, 1) and hotness of at least 0, not all of it 0")
    reached = 0.0
    last = 0
    for index, each in enumerate(hotness):
        if each > 0:
            last = index
            reached += each
            if u * total < reached:
                return index
    return last  # rounding has left u behind the sum


class PromptRecord(Record, frozen=True, array_like=True):
    """A managed prompt as it is kept.

    Attributes:
        prompt: its id, `name@version`.
        ref: hash of its last segment, under which its text lies among the scope's blobs; empty where nobody told.
        tags: for people.
        hotness: after its last use at `used_ms`.
        from_ms: since when it is in use. Its last use is no sign of that: those of a prompt in use each second are
            always ahead of an event time that waits for late events.
        announced_ms: when it takes effect, by the announcement heard last; 0 where none was heard.
    """

    scope: str
    prompt: str
    ref: str
    tags: tuple[str, ...]
    hotness: float
    used_ms: int
    from_ms: int = 0
    announced_ms: int = 0


class PromptPool:
    """Managed prompts of every scope, bounded; the coldest go first.

    Args:
        max_prompts: in one scope.
        day_ms: length of a day, where time is scaled.
    """

    def __init__(self, max_prompts: int, day_ms: int, store: Section) -> None:
        self._max_prompts = max_prompts
        self._day_ms = day_ms
        self._store = store
        self._held: dict[str, dict[str, PromptRecord]] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def scopes(self) -> list[str]:
        """Scopes with managed prompts, sorted."""
        return sorted(self._held)

    def get(self, scope: str, prompt: str) -> PromptRecord | None:
        """A prompt as it was after its last use."""
        return self._held.get(scope, {}).get(prompt)

    def add(self, scope: str, prompt: str, at_ms: int, ref: str = "", tags: tuple[str, ...] = ()) -> list[str]:
        """Takes a prompt into the pool, or tells of one what was not known; returns the prompts that had to go.

        Args:
            at_ms: event time from which it is in use.
        """
        held = self.get(scope, prompt)
        if held is None:
            self._put(PromptRecord(1, scope, prompt, ref, tags, INITIAL, at_ms, at_ms))
            return self._shrink(scope, at_ms)
        if (ref or held.ref, tags or held.tags) != (held.ref, held.tags):
            self._put(structs.replace(held, ref=ref or held.ref, tags=tags or held.tags))
        return []

    def announced(self, scope: str, prompt: str, at_ms: int) -> None:
        """An announcement says when a prompt takes effect; harmless where the pool did not take it."""
        held = self.get(scope, prompt)
        if held is not None:
            self._put(structs.replace(held, announced_ms=at_ms))

    def used(self, scope: str, prompt: str, at_ms: int, adopted: int, answered: int, ceiling: float) -> None:
        """Counts uses of a prompt of the pool."""
        held = self._held[scope][prompt]
        hotness = prompt_hotness(held.hotness, at_ms - held.used_ms, adopted, answered, ceiling, self._day_ms)
        used_ms, from_ms = max(at_ms, held.used_ms), min(at_ms, held.from_ms)
        self._put(structs.replace(held, hotness=hotness, used_ms=used_ms, from_ms=from_ms))

    def hotness(self, scope: str, prompt: str, at_ms: int) -> float:
        """How hot a prompt of the pool is at a time."""
        held = self._held[scope][prompt]
        return prompt_hotness(held.hotness, at_ms - held.used_ms, ceiling=max(held.hotness, 0.0), day_ms=self._day_ms)

    def hottest(self, scope: str, count: int, at_ms: int) -> list[tuple[str, float]]:
        """The hottest prompts of a scope that are in use by a time, hottest first."""
        in_use = [prompt for prompt, record in self._held.get(scope, {}).items() if record.from_ms <= at_ms]
        found = [(self.hotness(scope, prompt, at_ms), prompt) for prompt in in_use]
        best = heapq.nsmallest(count, ((-hotness, prompt) for hotness, prompt in found))
        return [(prompt, -minus) for minus, prompt in best]

    def unused_since(self, before_ms: int) -> list[tuple[str, str]]:
        """Scope and id of the prompts whose last use was before a time."""
        return [
            (scope, prompt)
            for scope, prompts in self._held.items()
            for prompt, record in prompts.items()
            if record.used_ms < before_ms
        ]

    def remove(self, scope: str, prompt: str) -> None:
        """Takes a prompt out of the pool; harmless when it is not there."""
        held = self._held.get(scope, {})
        if held.pop(prompt, None) is not None:
            self._store.remove(path(scope, prompt))
            if not held:
                del self._held[scope]

    def restore(self, blob: bytes) -> None:
        """Takes back one prompt."""
        record = unpack(blob, PromptRecord)
        self._held.setdefault(record.scope, {})[record.prompt] = record

    def _put(self, record: PromptRecord) -> None:
        self._held.setdefault(record.scope, {})[record.prompt] = record
        self._store.put(path(record.scope, record.prompt), pack(record))

    def _shrink(self, scope: str, at_ms: int) -> list[str]:
        surplus = len(self._held[scope]) - self._max_prompts
        if surplus <= 0:
            return []
        everything = ((self.hotness(scope, prompt, at_ms), prompt) for prompt in self._held[scope])
        gone = [prompt for _, prompt in heapq.nsmallest(surplus, everything)]
        for prompt in gone:
            self.remove(scope, prompt)
        return gone
