"""What a planner knows of crowds (D2): the spec rules over its minutes, and what the tuned rule tells it.

Either way the keys of a focus are remembered while it lasts: its queries, adapters and families of prefixes are raised,
and what is warmed for its keys anyhow says so. Of the spec rules' templates nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field, structs

from analytics.asked import LEAD_BYTES, MAX_LEADS
from analytics.commands import Draft
from analytics.envelopes import Tag, seal
from analytics.focus import entropy_only, focus_keys, hottest, mean, mean_difference, should_preheat
from analytics.focused import Focused
from analytics.minutes import Minute, MinuteWindow
from analytics.policy import FocusPolicy, PolicyBook
from analytics.pools import envelope_key
from analytics.records import Record, Section, pack, path, unpack
from schemas import Embedding, Focus, KeyRate, Response, encode
from schemas.insights import Dimension

TRIGGER_FOCUS = "focus"
FAMILY: Dimension = "prefix_family"

FOCUS_MINUTES = 2
"""How many minutes a focus of the spec rules raises its keys: until the next minute has been judged, and one more."""
RAISED = ("query", "adapter")
"""Dimensions whose keys the spec rules raise."""


class FocusRecord(Record, frozen=True, array_like=True):
    """A focus as it is kept: the keys of one dimension, and the numbers behind it."""

    scope: str
    dimension: str
    until_ms: int
    keys: tuple[str, ...]
    evidence: dict[str, float] = field(default_factory=dict)


class CrowdWatch:
    """Judges each minute of each (scope, dimension) once, when it has ended, where the spec rules hold.

    Args:
        window: the minutes.
    """

    def __init__(self, window: MinuteWindow, store: Section) -> None:
        self._window = window
        self._store = store
        self._focus: dict[tuple[str, str], FocusRecord] = {}

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
            if not settings.enabled or settings.tuned:
                continue
            history = self._window.history(scope, dimension, minute)
            if not history:
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
            if found and dimension in RAISED:
                until_ms = (minute + 1 + FOCUS_MINUTES) * self._window.minute_ms
                named = tuple(sorted({key for _, some in found for key in some}))
                self._set(FocusRecord(1, scope, dimension, until_ms, named))
        return fired

    def on_focused(self, focused: Focused) -> None:
        """Remembers what the tuned rule found, unless something newer is known."""
        held = self._focus.get((focused.scope, focused.dimension))
        if held is None or held.until_ms <= focused.until_ms:
            evidence = {f"focus_{name}": value for name, value in focused.evidence.items()}
            self._set(FocusRecord(1, focused.scope, focused.dimension, focused.until_ms, focused.keys, evidence))

    def focus(self, at_ms: int, dimension: Dimension = "query") -> dict[str, frozenset[str]]:
        """The keys of each scope's focus in a dimension at a time; forgets every focus that is over."""
        for place in [place for place, record in self._focus.items() if record.until_ms <= at_ms]:
            del self._focus[place]
            self._store.remove(path(*place))
        return {scope: frozenset(record.keys) for (scope, kind), record in self._focus.items() if kind == dimension}

    def on(self, scope: str, dimension: str, keys: tuple[str, ...], at_ms: int) -> Mapping[str, float] | None:
        """The numbers behind a crowd on any of these keys at a time; None where none has gathered."""
        record = self._focus.get((scope, dimension))
        if record is None or record.until_ms <= at_ms or not any(key in record.keys for key in keys):
            return None
        return record.evidence

    def told(self, draft: Draft, at_ms: int, policy: PolicyBook) -> Draft:
        """A draft that says so, with the numbers of the rule, where a crowd has gathered on what it is for.

        That of a family has been raised: it is asked for so many times as likely.
        """
        for dimension, keys in _keys(draft) if self._focus else ():
            numbers = self.on(draft.scope, dimension, keys, at_ms)
            if numbers is None:
                continue
            worth, evidence = draft.worth, {**draft.evidence, **numbers}
            if dimension == FAMILY:
                boost = policy.focus(draft.scope).boost
                worth = structs.replace(worth, p_asked=min(1.0, worth.p_asked * boost))
                evidence["boost"] = boost
            return structs.replace(draft, trigger=TRIGGER_FOCUS, worth=worth, evidence=evidence)
        return draft

    def restore(self, blob: bytes) -> None:
        """Takes back one focus."""
        record = unpack(blob, FocusRecord)
        self._focus[record.scope, record.dimension] = record

    def _set(self, record: FocusRecord) -> None:
        self._focus[record.scope, record.dimension] = record
        self._store.put(path(record.scope, record.dimension), pack(record))

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


def _keys(draft: Draft) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Dimensions and keys under which requests asked for what is warmed."""
    if isinstance(draft.source, tuple):
        candidate, root = draft.source
        families = leading(candidate.hashes)
        return (FAMILY, families), ("template", (root.template_sha,)), ("adapter", (root.adapter,))
    return (("query", (draft.source.query_sha256,)),) if isinstance(draft.source, Embedding | Response) else ()


def leading(hashes: bytes) -> tuple[str, ...]:
    """The segments of a path of which one may be its family, in hex."""
    return tuple(
        [hashes[at : at + LEAD_BYTES].hex() for at in range(0, min(len(hashes), MAX_LEADS * LEAD_BYTES), LEAD_BYTES)]
    )
