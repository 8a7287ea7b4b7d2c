"""Prefix linter: templates whose prompts part early although the same text follows (D11).

Segment hashes are chained, so after the first segment that differs nothing is equal any more, whatever follows. What
follows can still be recognised by its shape: a segment of the application that has the same role and exactly as many
tokens in most of the requests that parted is taken as the same text. Moving the segment that differs behind it would
let it be cached.
Token blocks all have one shape, so of them only the place is told.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MIN_REQUESTS = 20
"""Fewer requests of a template say nothing about it."""
MIN_FRESH_SHARE = 0.1
"""Templates part here when at least this share of their requests brings a segment that no other one has."""
ALIKE_SHARE = 0.5
"""What follows is one text when at least this share of the requests that parted has it in one shape."""
MIN_TOKENS = 16
"""Shorter segments are equally long by chance, and fill no block."""
OWN_ROLES = frozenset({"user", "assistant"})
"""Turns of a conversation differ by nature, also those of one length; other roles are the application's."""


class Part(NamedTuple):
    """A segment as the linter sees it."""

    hash: str
    tokens: int
    role: str


@dataclass(frozen=True)
class Divergence:
    """Where a template's prompts part.

    Attributes:
        template: its name.
        requests: of this template.
        at_tokens: tokens before the segment that differs, the median.
        segment, role: which one differs.
        share: of the template's requests.
        within: whether the segment has one length in most requests, so that little of it differs.
        movable_tokens: of the texts that are alike, in all these requests together; None where shapes say nothing.
        freed_tokens_per_h: what would not be prefilled again if the difference stood behind them.
    """

    template: str
    requests: int
    at_tokens: int
    segment: int
    role: str
    share: float
    within: bool
    movable_tokens: int | None
    freed_tokens_per_h: float | None


def lint(prompts: Iterable[tuple[str, Sequence[Part]]], span_ms: int) -> list[Divergence]:
    """Where each template's prompts part, what costs most first.

    Args:
        prompts: template and segments of each request. A prompt's last segment is the question and never counts.
        span_ms: that they were asked in.
    """
    groups: dict[str, list[Sequence[Part]]] = defaultdict(list)
    for template, parts in prompts:
        groups[template].append(parts)
    found = [
        divergence
        for template, group in groups.items()
        if len(group) >= MIN_REQUESTS and (divergence := _divergence(template, group, span_ms)) is not None
    ]
    return sorted(found, key=lambda found: (-(found.freed_tokens_per_h or 0.0), -found.requests, found.template))


def _divergence(template: str, group: list[Sequence[Part]], span_ms: int) -> Divergence | None:
    """The first segment that too many requests have for themselves, if something of use follows it."""
    index = 0
    while True:
        members = [parts for parts in group if len(parts) > index + 1]
        if len(members) < max(MIN_REQUESTS, math.ceil(MIN_FRESH_SHARE * len(group))):
            return None
        seen = Counter(parts[index].hash for parts in members)
        fresh = [parts for parts in members if seen[parts[index].hash] == 1]
        if len(fresh) >= MIN_FRESH_SHARE * len(group):
            break
        index += 1
    before = sorted(sum(part.tokens for part in parts[:index]) for parts in fresh)
    role = Counter(parts[index].role for parts in fresh).most_common(1)[0][0]
    place = (template, len(group), before[len(before) // 2], index, role, len(fresh) / len(group))
    if role == "block":
        return Divergence(*place, within=False, movable_tokens=None, freed_tokens_per_h=None)
    within = _alike(fresh, index) > 0
    movable, step = 0, index if within else index + 1
    while tokens := _alike(fresh, step):
        movable += tokens
        step += 1
    if not movable:
        return None
    return Divergence(
        *place, within=within, movable_tokens=movable, freed_tokens_per_h=movable * 3_600_000 / max(1, span_ms)
    )


def _alike(fresh: list[Sequence[Part]], index: int) -> int:
    """Tokens of the segments at this place that have the most frequent shape, all together; 0 where none is."""
    shapes = Counter((parts[index].role, parts[index].tokens) for parts in fresh if len(parts) > index + 1)
    if not shapes:
        return 0
    (role, tokens), count = shapes.most_common(1)[0]
    same = role not in OWN_ROLES and tokens >= MIN_TOKENS and count >= ALIKE_SHARE * len(fresh)
    return tokens * count if same else 0
