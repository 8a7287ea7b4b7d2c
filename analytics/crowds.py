"""Watches the minutes of every scope for a crowd, and remembers the queries of a focus while it lasts (D2)."""

from __future__ import annotations

from analytics.envelopes import Tag, seal
from analytics.focus import entropy_only, focus_keys, hottest, mean, mean_difference, should_preheat
from analytics.minutes import Minute, MinuteWindow
from analytics.policy import FocusPolicy, PolicyBook
from analytics.pools import envelope_key
from analytics.records import Record, Section, pack, path, unpack
from schemas import Focus, KeyRate, encode
from schemas.insights import Dimension

FOCUS_MINUTES = 2
"""How many minutes a focus raises its queries: until the next minute has been judged, and one more."""


class FocusRecord(Record, frozen=True, array_like=True):
    """A focus on queries as it is kept."""

    scope: str
    until_ms: int
    queries: tuple[str, ...]


class CrowdWatch:
    """Judges each minute of each (scope, dimension) once, when it has ended.

    Args:
        window: the minutes.
    """

    def __init__(self, window: MinuteWindow, store: Section) -> None:
        self._window = window
        self._store = store
        self._focus: dict[str, tuple[int, frozenset[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._focus)

    def judge(self, minute: int, ready_replicas: int, reference_replicas: int, policy: PolicyBook) -> list[bytes]:
        """Applies both rules to a minute that has ended.

        Returns:
            a Focus insight for each rule that fired.
        """
        fired: list[bytes] = []
        for scope, dimension in self._window.places():
            settings = policy.focus(scope)
            history = self._window.history(scope, dimension, minute)
            if not settings.enabled or not history:
                continue
            entropies = [each.entropy_bits for each in history]
            seconds = self._window.minute_ms / 1000
            qps = {key: count / seconds for key, count in history[-1].counts.items()}
            keys = focus_keys(settings.keys, ready_replicas, reference_replicas)
            found: list[tuple[str, list[str]]] = []
            preheat = should_preheat(entropies, qps, settings.entropy_max_bits, settings.fall_bits, keys)
            if preheat:
                found.append(("should_preheat", preheat))
            if entropy_only(entropies, settings.entropy_max_bits, settings.fall_share):
                found.append(("entropy_only", hottest(qps, keys)))
            for rule, names in found:
                insight = self._insight(scope, dimension, rule, history, names, qps, settings)
                fired.append(seal(Tag.INSIGHT, envelope_key(scope), encode(insight)))
            if found and dimension == "query":
                until_ms = (minute + 1 + FOCUS_MINUTES) * self._window.minute_ms
                self._set(FocusRecord(1, scope, until_ms, tuple(sorted({key for _, some in found for key in some}))))
        return fired

    def focus(self, at_ms: int) -> dict[str, frozenset[str]]:
        """The queries of each scope's focus at a time."""
        for scope in [scope for scope, (until_ms, _) in self._focus.items() if until_ms <= at_ms]:
            del self._focus[scope]
            self._store.remove(path(scope))
        return {scope: queries for scope, (_, queries) in self._focus.items()}

    def restore(self, blob: bytes) -> None:
        """Takes back one focus."""
        record = unpack(blob, FocusRecord)
        self._focus[record.scope] = (record.until_ms, frozenset(record.queries))

    def _set(self, record: FocusRecord) -> None:
        self._focus[record.scope] = (record.until_ms, frozenset(record.queries))
        self._store.put(path(record.scope), pack(record))

    def _insight(
        self,
        scope: str,
        dimension: str,
        rule: str,
        history: list[Minute],
        names: list[str],
        qps: dict[str, float],
        settings: FocusPolicy,
    ) -> Focus:
        recent = [each.entropy_bits for each in history[-3:]]
        kind: Dimension = dimension  # type: ignore[assignment]
        return Focus(
            scope=scope,
            dimension=kind,
            rule=rule,
            at_ms=history[-1].start_ms + self._window.minute_ms,
            entropy_bits=recent[-1],
            baseline_bits=recent[0],
            qps=sum(qps.values()),
            keys=tuple(KeyRate(name, qps[name]) for name in names),
            verdict="crowd",
            evidence={
                "entropy_bits_two_before": recent[0],
                "entropy_bits_one_before": recent[1],
                "entropy_bits_mean": mean(recent),
                "entropy_bits_mean_step": mean_difference(recent),
                "entropy_bits_bar": settings.entropy_max_bits,
                "minutes": float(len(history)),
                "weight": history[-1].weight,
                "named_share": history[-1].named_share,
            },
        )
