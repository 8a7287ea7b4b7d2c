"""What a shard publishes at a slide: partials for the planner, and the same totals as insights for everyone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from analytics.envelopes import Partial, Tag, seal
from analytics.panes import DIMENSIONS, Counts, Pane, Place, Summary
from analytics.shard_log import ACCOUNTED
from schemas import EVERY_SCOPE, Accounting, TopKey, WindowStats, encode


def publish(panes: Iterable[Pane], pane_ms: int, shard: int, at_ms: int, top: int) -> tuple[list[bytes], int]:
    """PARTIAL and INSIGHT envelopes of everything that changed, which then counts as published.

    The revision is the number of requests in the totals: it only grows, also over a recovery, and equal revisions
    have equal totals.

    Returns:
        The envelopes, and how many of them have totals that a cap made inexact.
    """
    out: list[bytes] = []
    capped = 0
    for pane in panes:
        by_scope: dict[tuple[str, int], list[Counts]] = {}
        changed: dict[tuple[str, int], Summary] = {}
        start_ms = pane.index * pane_ms
        for place in sorted(pane.places):
            for position, counts in enumerate(pane.places[place]):
                by_scope.setdefault((place[0], position), []).append(counts)
                if counts.changed:
                    counts.changed = False
                    total = counts.summary(DIMENSIONS[position], top)
                    changed[place[0], position] = total
                    out.append(_partial(place, position, total, shard, start_ms, at_ms))
                    capped += counts.capped
        for (scope, position), total in sorted(changed.items(), key=lambda item: item[0]):
            parts = by_scope[scope, position]
            # Nearly every scope has one pool, whose totals are the scope's.
            out.append(_window_stats(scope, position, parts, total, shard, start_ms, at_ms, top))
    return out, capped


def accounting(counters: Mapping[str, int], shard: int, at_ms: int) -> bytes:
    """INSIGHT envelope of a shard's Accounting; its key is the scope of everything."""
    terms = {fate.name.lower(): counters[fate.name.lower()] for fate in ACCOUNTED}
    message = Accounting(shard=shard, revision=sum(terms.values()), at_ms=at_ms, **terms)
    return seal(Tag.INSIGHT, EVERY_SCOPE, encode(message))


def _partial(place: Place, position: int, total: Summary, shard: int, start_ms: int, at_ms: int) -> bytes:
    scope, pool = place
    partial = Partial(
        scope=scope,
        pool=pool,
        dimension=DIMENSIONS[position],
        shard=shard,
        pane_start_ms=start_ms,
        at_ms=at_ms,
        revision=total.events,
        weight=total.weight,
        sum_clogc=total.sum_clogc,
        distinct=total.distinct,
        users=total.users,
        top=total.top,
    )
    return seal(Tag.PARTIAL, pool, partial)


def _window_stats(
    scope: str, position: int, parts: list[Counts], total: Summary, shard: int, start_ms: int, at_ms: int, top: int
) -> bytes:
    counts = parts[0]
    if len(parts) > 1:
        counts = Counts()
        for part in parts:
            counts.absorb(part)
        total = counts.summary(DIMENSIONS[position], top)
    stats = WindowStats(
        scope=scope,
        dimension=DIMENSIONS[position],
        shard=shard,
        pane_start_ms=start_ms,
        revision=total.events,
        at_ms=at_ms,
        events=total.events,
        weight=total.weight,
        sum_clogc=total.sum_clogc,
        distinct=total.distinct,
        users=total.users,
        top=tuple([TopKey(key=each.key, count=each.count, users=each.users) for each in total.top]),
        capped=counts.capped,
    )
    return seal(Tag.INSIGHT, scope, encode(stats))
