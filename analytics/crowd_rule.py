"""Has a crowd gathered on few keys? The tuned rule of D2: what rose, who asked for it, and whether that is unusual.

A burst of 5 % moves the entropy of five minutes by less than its noise, and where few keys were asked for before it
even raises it. So the rule looks at the change itself. In the last panes, over spans of one to six, it takes the keys
whose share of askers rose beyond chance over what the window before them says; a doubled rate raises no share. Their
excess is a crowd where it is a large enough part of all askers, comes from many users, lies on few keys (low entropy of
the excess) and is unusual for this scope: a CUSUM over its deviation from its own median, in robust standard deviations
(Page 1954). The same computed over requests instead of askers shows a crawler, which askers are blind to.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analytics.crowd_config import CrowdConfig
from analytics.crowd_finding import Finding, Why
from analytics.crowd_span import Span, deviations, usual
from analytics.crowd_window import CrowdWindow
from analytics.records import Record, Section, pack, unpack
from analytics.regularity import Regularity, regularity
from analytics.running_entropy import Integers, distinct
from schemas.insights import Verdict

_MAD_TO_DEVIATION = 1.4826


class BaselineRecord(Record, frozen=True, array_like=True):
    """A scope's last slides: excess shares, entropies of those with a window, and the CUSUM."""

    shares: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    alarm: float = 0.0


@dataclass(frozen=True)
class _Rise:
    """Keys that rose in a span; `share` and `users` without machines."""

    span: Span
    keys: Integers
    excess: tuple[float, ...]
    share: float
    jump: float
    users: int


class CrowdRule:
    """One scope and dimension: judges each slide once, by the window and by what the last slides were like.

    Args:
        name: of its one record in the store.
    """

    def __init__(self, config: CrowdConfig, name: str, store: Section) -> None:
        self.config = config
        self._name = name
        self._store = store
        self._baseline = self._written = BaselineRecord(1)

    def judge(self, window: CrowdWindow) -> Finding | None:
        """Judges a window that has just slid.

        Returns:
            what gathered, if anything did; a trigger only where its verdict is `crowd`.
        """
        config = self.config
        # What has fewer events than a crowd has users need not be counted.
        spans = [window.span(panes) for panes in config.spans if window.events_in(panes) >= config.min_users]
        crowds = [rise for span in spans if (rise := self._rise(window, span)) and rise.users >= config.min_users]
        best = max(crowds, key=lambda rise: (rise.share, -rise.span.panes), default=None)
        share = best.share if best else 0.0
        deviation = self._deviate(share)
        finding = None
        if best and share >= config.min_share and self._baseline.alarm >= config.bar:
            finding = self._judged(window, best, deviation, crowd=True)
        elif raw := self._crawled(window, spans):
            finding = self._judged(window, raw, deviation, crowd=False)
        self._remember(share, window.sums.corrected_bits)
        return finding

    def pass_by(self) -> None:
        """A slide at which nothing can have risen, so that there is no window to judge."""
        self._deviate(0.0)
        self._remember(0.0)

    def forget(self) -> None:
        """Nothing was asked for lately: the next slide is the first one."""
        if self._baseline != BaselineRecord(1):
            self._baseline = self._written = BaselineRecord(1)
            self._store.remove(self._name)

    def restore(self, blob: bytes) -> None:
        """Takes its record back."""
        self._baseline = self._written = unpack(blob, BaselineRecord)

    def _rise(self, window: CrowdWindow, span: Span, raw: bool = False) -> _Rise | None:
        """The keys that rose in a span, by requests or by askers; None where nothing can be said or did."""
        config = self.config
        counted = span.events if raw else span.askers
        if span.before_panes < config.min_before_panes or counted.all_before < config.min_before_askers:
            return None
        if counted.all_now < config.min_users:
            return None
        expected = usual(counted, span, window.distinct_keys())
        excess = counted.now - expected
        rose = (counted.now >= config.jump * expected) & (deviations(counted, span) > config.z)
        if not rose.any():
            return None
        order = np.argsort(-excess[rose], kind="stable")
        keys, gained = span.keys[rose][order], excess[rose][order]
        before = float(counted.before[rose].sum()) / span.before_panes
        jump = float(counted.now[rose].sum()) / span.panes / max(before, 1 / span.before_panes)
        if jump < config.jump:
            return None
        share = float(gained.sum()) / counted.all_now
        if raw:
            return _Rise(span, keys, tuple(gained.tolist()), share, jump, 0)
        people, machines = self._people(window, keys, span)
        # A machine's askings are no part of the excess, nor is what a trend that was there before would bring.
        share = min(share - machines / counted.all_now, self._beyond_trend(window, keys, span))
        return _Rise(span, keys, tuple(gained.tolist()), share, jump, people)

    def _people(self, window: CrowdWindow, keys: Integers, span: Span) -> tuple[int, int]:
        """Distinct users of a group that are no machines, and how often the machines are counted as askers."""
        asked, users, at_ms = window.events_of(keys, span.panes)
        names, times = distinct(users)
        machines = names[times > self.config.repeats * span.panes]
        if not len(machines):
            return len(names), 0
        theirs = np.isin(users, machines)
        rows = np.stack((asked[theirs], users[theirs], at_ms[theirs] // self.config.pane_ms))
        return len(names) - len(machines), np.unique(rows, axis=1).shape[1]

    def _beyond_trend(self, window: CrowdWindow, keys: Integers, span: Span) -> float:
        """The group's share of the span's askers beyond what its rise before the span leads to expect.

        The slope is Theil and Sen's, the median over all pairs of panes, which one burst does not bend; a falling
        trend is taken as none. What chance or the usual spread about the trend explains is nothing.
        """
        panes = window.askers_by_pane(keys, span.before_panes + span.panes)
        past, now = panes[: span.before_panes], panes[span.before_panes :].sum(axis=0)
        shares = past[:, 0] / np.maximum(past[:, 1], 1)
        place = np.arange(span.before_panes)
        first, second = np.triu_indices(span.before_panes, 1)
        slope = max(0.0, float(np.median((shares[second] - shares[first]) / (second - first)))) if len(first) else 0.0
        level = float(np.median(shares - slope * place))
        expected = level + slope * (span.before_panes + (span.panes - 1) / 2)
        beyond = float(now[0] / now[1]) - expected
        chance = math.sqrt(max(0.0, expected * (1 - expected)) / float(now[1]))
        spread = float(np.median(np.abs(shares - slope * place - level))) / math.sqrt(span.panes)
        return beyond if beyond > self.config.trend_z * max(chance, _MAD_TO_DEVIATION * spread) else 0.0

    def _crawled(self, window: CrowdWindow, spans: Sequence[Span]) -> _Rise | None:
        """The greatest rise by requests that few users made by repeating themselves."""
        found = None
        for span in spans:
            rise = self._rise(window, span, raw=True)
            if rise and rise.share >= self.config.min_share and (found is None or rise.share > found.share):
                _, users, _ = window.events_of(rise.keys, span.panes)
                if len(users) >= self.config.repeats * len(distinct(users)[0]):
                    found = rise
        return found

    def _deviate(self, share: float) -> float:
        """Adds a slide to the CUSUM; returns its deviation from the scope's own median."""
        config, held = self.config, self._baseline
        level = statistics.median(held.shares) if held.shares else 0.0
        spread = statistics.median([abs(each - level) for each in held.shares]) if held.shares else 0.0
        deviation = (share - level) / max(config.floor, _MAD_TO_DEVIATION * spread)
        alarm = min(3 * config.bar, max(0.0, held.alarm + deviation - config.slack))
        self._baseline = BaselineRecord(1, held.shares, held.entropies, alarm)
        return deviation

    def _remember(self, share: float, *entropies: float) -> None:
        held, kept = self._baseline, self.config.history
        bits = (*held.entropies, *entropies)[-kept:]
        self._baseline = BaselineRecord(1, (*held.shares, share)[-kept:], bits, held.alarm)
        if self._baseline != self._written:
            self._written = self._baseline
            self._store.put(self._name, pack(self._baseline))

    def _judged(self, window: CrowdWindow, rise: _Rise, deviation: float, crowd: bool) -> Finding | None:
        config, span = self.config, rise.span
        gained = np.array(rise.excess) / sum(rise.excess)
        perplexity = float(2 ** -(gained * np.log2(gained)).sum())
        if perplexity > config.max_keys:
            return None
        asked, users, at_ms = window.events_of(rise.keys, span.panes)
        user_bits = _once_a_pane_bits(users, at_ms // config.pane_ms)
        _, all_users, all_ms = window.events_of(rise.keys, config.panes)
        even = regularity(all_users, all_ms, config.variation)
        seconds = span.panes * config.pane_ms / 1000
        numbers, times = distinct(asked)
        rates = dict(zip(numbers.tolist(), (times / seconds).tolist(), strict=True))
        ranked = [
            (-gain, window.key(number), rates[number])
            for gain, number in zip(rise.excess, rise.keys.tolist(), strict=True)
        ]
        raw = usual(span.events, span, window.distinct_keys())
        chosen = np.isin(span.keys, rise.keys)
        raw_share = math.fsum((span.events.now - raw)[chosen]) / span.events.all_now
        gathered, displaced = self._displaced(window, rise)
        largest = int(span.events.now[chosen].max()) / span.events.all_now
        verdict, why = self._verdict(crowd, even, user_bits, gathered, displaced, largest)
        entropies = self._baseline.entropies
        return Finding(
            verdict=verdict,
            why=why,
            at_ms=(window.last_pane + 1) * config.pane_ms,
            span_panes=span.panes,
            entropy_bits=window.sums.corrected_bits,
            baseline_bits=statistics.median(entropies) if entropies else window.sums.corrected_bits,
            user_entropy_bits=user_bits,
            qps=span.events.all_now / seconds,
            keys=tuple((key, rate) for _, key, rate in sorted(ranked)[: config.max_keys]),
            users=len(distinct(users)[0]),
            events=len(users),
            share=rise.share if crowd else 0.0,
            raw_share=raw_share,
            jump=rise.jump,
            deviation=deviation,
            alarm=self._baseline.alarm,
            perplexity=perplexity,
            displaced_share=displaced,
            gap_variation=even.variation,
            own_gap_variation=even.own_variation,
            regular_share=even.regular_share,
            anonymous_share=window.anonymous_share,
        )

    def _verdict(
        self, crowd: bool, even: Regularity, user_bits: float, gathered: float, displaced: float, largest: float
    ) -> tuple[Verdict, Why]:
        config = self.config
        if largest >= config.one_text_share:
            return "none", "one_text"
        if not crowd or 2**user_bits < config.min_users / 2:
            return "crawler", "few_users"
        same_clock = even.own_variation < config.variation and even.repeating_share >= config.regular_share
        if same_clock or even.variation < config.variation or even.regular_share >= config.regular_share:
            return "crawler", "regular_gaps"
        if gathered >= config.displaced_from and displaced >= config.displaced * gathered:
            return "none", "displaced"
        return "crowd", "many_users"

    def _displaced(self, window: CrowdWindow, rise: _Rise) -> tuple[float, float]:
        """The group's part of all requests since it began to gather, and by how much the others' rate is lower since.

        A tenth of the group's requests is passed over, so that a few that came before do not blur the beginning.
        """
        span, pane_ms = rise.span, self.config.pane_ms
        _, _, at_ms = window.events_of(rise.keys, span.panes)
        onset = int(np.sort(at_ms)[len(at_ms) // 10])
        group = int((at_ms >= onset).sum())
        rest = window.events_since(onset, span.panes) - group
        lasted_ms = max(1, (window.last_pane + 1) * pane_ms - onset)
        counted = span.events
        group_before = int(counted.before[np.isin(span.keys, rise.keys)].sum())
        before = (counted.all_before - group_before) / (span.before_panes * pane_ms)
        share_before = group_before / counted.all_before if counted.all_before else 0.0
        fall = 1 - rest / lasted_ms / before if before else 0.0
        return group / (group + rest) - share_before, fall


def _once_a_pane_bits(users: Integers, panes: Integers) -> float:
    """Entropy over users, each counted once a pane."""
    _, numbers = np.unique(users, return_inverse=True)
    pairs, _ = distinct(numbers.astype(np.int64) << 32 | (panes - panes.min()))
    times = np.sort(distinct(pairs >> 32)[1])
    shares = times / times.sum()
    return max(0.0, -float((shares * np.log2(shares)).sum())) if len(times) > 1 else 0.0
