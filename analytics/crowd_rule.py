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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analytics.crowd_finding import Finding, Why
from analytics.crowd_window import Counted, CrowdWindow, CrowdWindowConfig, Key, Span
from analytics.records import Record, Section, pack, unpack
from analytics.regularity import Regularity, regularity
from analytics.running_entropy import Integers, distinct
from analytics.stores import MapStore
from schemas.insights import Verdict

Numbers = NDArray[np.float64]

_MAD_TO_DEVIATION = 1.4826
_BASELINE, _WINDOW = "b", "w"


@dataclass(frozen=True)
class CrowdConfig:
    """When a gathering is a crowd.

    Attributes:
        pane_ms: length of a pane.
        window: what is remembered.
        spans: over how many of the last panes a rise is looked for.
        min_before_panes, min_before_askers: what the window must hold before a span for it to be judged.
        min_share: smallest excess of a gathering, as a part of all askers; a burst of 5 % that has just begun is less.
        min_users: smallest number of distinct users in a crowd's span.
        max_keys: greatest perplexity of the excess; also how many keys are named.
        z: a key has risen when chance would do that no more often than so many standard deviations are exceeded.
        jump: and when its share is so many times what it was; the rate of all that rose must be too: what merely lost
            less than the rest is no crowd.
        trend_z: the same for the group beyond its own trend, which a model so simple does not know exactly.
        slack, bar: of the CUSUM, in standard deviations: what each slide takes off, and what raises the alarm.
        floor: smallest standard deviation of the share.
        history: slides that make a scope's own baseline.
        one_text_share: a single key with this part of all requests is a redacted text.
        displaced_from: a group's part of the requests since it began from which the others' loss is looked at; below
            it a loss could be chance.
        displaced: a rest that lost so much of what was gained was displaced: the total did not jump.
        variation: below this, gaps are a machine's.
        regular_share: part of a group's requests from machines that makes it one.
        repeats: requests of one user for a group, a pane, above which he is a machine and no part of a crowd; and
            requests a user from which a rise of requests alone is a crawler's.
    """

    pane_ms: int = 10_000
    window: CrowdWindowConfig = field(default_factory=CrowdWindowConfig)
    spans: tuple[int, ...] = (1, 3, 6)
    min_before_panes: int = 6
    min_before_askers: int = 100
    min_share: float = 0.02
    min_users: int = 30
    max_keys: int = 50
    z: float = 5.0
    jump: float = 1.3
    trend_z: float = 6.0
    slack: float = 1.0
    bar: float = 4.0
    floor: float = 0.004
    history: int = 30
    one_text_share: float = 0.9
    displaced_from: float = 0.15
    displaced: float = 0.5
    variation: float = 0.3
    regular_share: float = 0.5
    repeats: float = 3.0


class BaselineRecord(Record, frozen=True, array_like=True):
    """A scope's last slides: excess shares, entropies, and the CUSUM."""

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
    """One scope and dimension: takes events by pane, and judges each slide once.

    Any call may be the last one before a crash: a new object over the same store goes on with the same findings.

    Args:
        store: rebuilt from, and written: one record a batch of events, one small one a slide.
    """

    def __init__(self, config: CrowdConfig, store: MapStore) -> None:
        self.config = config
        self.window = CrowdWindow(config.window, Section(store, _WINDOW))
        self._store = store
        self._baseline = BaselineRecord(1)
        for name, blob in store.items():
            if name == _BASELINE:
                self._baseline = unpack(blob, BaselineRecord)
            elif name.startswith(_WINDOW):
                self.window.restore(name.removeprefix(_WINDOW), blob)
        self.window.restored()

    def add(self, pane: int, keys: Sequence[Key], users: Sequence[int], at_ms: Sequence[int]) -> int:
        """Takes events of one pane; see `CrowdWindow.add`."""
        return self.window.add(pane, keys, users, at_ms)

    def slide(self, pane: int) -> Finding | None:
        """Judges the window that ends with this pane, once; an earlier pane gives nothing.

        Returns:
            what gathered, if anything did; a trigger only where its verdict is `crowd`.
        """
        if not self.window.slide(pane):
            return None
        spans = [self.window.span(panes) for panes in self.config.spans]
        crowds = [rise for span in spans if (rise := self._rise(span)) and rise.users >= self.config.min_users]
        best = max(crowds, key=lambda rise: (rise.share, -rise.span.panes), default=None)
        share = best.share if best else 0.0
        deviation = self._deviate(share)
        finding = None
        if best and share >= self.config.min_share and self._baseline.alarm >= self.config.bar:
            finding = self._judged(best, deviation, crowd=True)
        elif raw := self._crawled(spans):
            finding = self._judged(raw, deviation, crowd=False)
        self._remember(share)
        return finding

    def _rise(self, span: Span, raw: bool = False) -> _Rise | None:
        """The keys that rose in a span, by requests or by askers; None where nothing can be said or did."""
        config = self.config
        counted = span.events if raw else span.askers
        if span.before_panes < config.min_before_panes or counted.all_before < config.min_before_askers:
            return None
        if counted.all_now < config.min_users:
            return None
        usual = _usual(counted, span, self.window.distinct_keys())
        excess = counted.now - usual
        rose = (counted.now >= config.jump * usual) & (_deviations(counted, span) > config.z)
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
        people, machines = self._people(keys, span)
        # A machine's askings are no part of the excess, nor is what a trend that was there before would bring.
        share = min(share - machines / counted.all_now, self._beyond_trend(keys, span))
        return _Rise(span, keys, tuple(gained.tolist()), share, jump, people)

    def _people(self, keys: Integers, span: Span) -> tuple[int, int]:
        """Distinct users of a group that are no machines, and how often the machines are counted as askers."""
        asked, users, at_ms = self.window.events_of(keys, span.panes)
        names, times = distinct(users)
        machines = names[times > self.config.repeats * span.panes]
        if not len(machines):
            return len(names), 0
        theirs = np.isin(users, machines)
        rows = np.stack((asked[theirs], users[theirs], at_ms[theirs] // self.config.pane_ms))
        return len(names) - len(machines), np.unique(rows, axis=1).shape[1]

    def _beyond_trend(self, keys: Integers, span: Span) -> float:
        """The group's share of the span's askers beyond what its rise before the span leads to expect.

        The slope is Theil and Sen's, the median over all pairs of panes, which one burst does not bend; a falling
        trend is taken as none. What chance or the usual spread about the trend explains is nothing.
        """
        panes = self.window.askers_by_pane(keys, span.before_panes + span.panes)
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

    def _crawled(self, spans: Sequence[Span]) -> _Rise | None:
        """The greatest rise by requests that few users made by repeating themselves."""
        found = None
        for span in spans:
            rise = self._rise(span, raw=True)
            if rise and rise.share >= self.config.min_share and (found is None or rise.share > found.share):
                _, users, _ = self.window.events_of(rise.keys, span.panes)
                if len(users) >= self.config.repeats * len(distinct(users)[0]):
                    found = rise
        return found

    def _deviate(self, share: float) -> float:
        """Adds a slide to the CUSUM; returns its deviation from the scope's own median."""
        config, held = self.config, self._baseline
        usual = statistics.median(held.shares) if held.shares else 0.0
        spread = statistics.median([abs(each - usual) for each in held.shares]) if held.shares else 0.0
        deviation = (share - usual) / max(config.floor, _MAD_TO_DEVIATION * spread)
        alarm = min(3 * config.bar, max(0.0, held.alarm + deviation - config.slack))
        self._baseline = BaselineRecord(1, held.shares, held.entropies, alarm)
        return deviation

    def _remember(self, share: float) -> None:
        held, kept = self._baseline, self.config.history
        entropies = (*held.entropies, self.window.sums.corrected_bits)[-kept:]
        self._baseline = BaselineRecord(1, (*held.shares, share)[-kept:], entropies, held.alarm)
        self._store.put(_BASELINE, pack(self._baseline))

    def _judged(self, rise: _Rise, deviation: float, crowd: bool) -> Finding | None:
        config, window, span = self.config, self.window, rise.span
        gained = np.array(rise.excess) / sum(rise.excess)
        perplexity = float(2 ** -(gained * np.log2(gained)).sum())
        if perplexity > config.max_keys:
            return None
        asked, users, at_ms = window.events_of(rise.keys, span.panes)
        user_bits = _once_a_pane_bits(users, at_ms // config.pane_ms)
        _, all_users, all_ms = window.events_of(rise.keys, config.window.panes)
        even = regularity(all_users, all_ms, config.variation)
        seconds = span.panes * config.pane_ms / 1000
        numbers, times = distinct(asked)
        rates = dict(zip(numbers.tolist(), (times / seconds).tolist(), strict=True))
        ranked = [
            (-gain, window.key(number), rates[number])
            for gain, number in zip(rise.excess, rise.keys.tolist(), strict=True)
        ]
        raw = _usual(span.events, span, window.distinct_keys())
        chosen = np.isin(span.keys, rise.keys)
        raw_share = math.fsum((span.events.now - raw)[chosen]) / span.events.all_now
        gathered, displaced = self._displaced(rise)
        largest = int(span.events.now.max()) / span.events.all_now
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

    def _displaced(self, rise: _Rise) -> tuple[float, float]:
        """The group's part of all requests since it began to gather, and by how much the others' rate is lower since.

        A tenth of the group's requests is passed over, so that a few that came before do not blur the beginning.
        """
        span, pane_ms = rise.span, self.config.pane_ms
        _, _, at_ms = self.window.events_of(rise.keys, span.panes)
        onset = int(np.sort(at_ms)[len(at_ms) // 10])
        group = int((at_ms >= onset).sum())
        rest = self.window.events_since(onset, span.panes) - group
        lasted_ms = max(1, (self.window.last_pane + 1) * pane_ms - onset)
        counted = span.events
        group_before = int(counted.before[np.isin(span.keys, rise.keys)].sum())
        before = (counted.all_before - group_before) / (span.before_panes * pane_ms)
        usual = group_before / counted.all_before if counted.all_before else 0.0
        fall = 1 - rest / lasted_ms / before if before else 0.0
        return group / (group + rest) - usual, fall


def _deviations(counted: Counted, span: Span) -> Numbers:
    """By how many standard deviations each key's count is above chance: the signed root of the binomial deviance.

    Of all requests of a key a part falls into the span that is the same for every key where shares do not change. That
    holds at small counts too, and knows how little a short past says. Where the traffic fell, the part is that of the
    time: when one burst ends, all other shares rise, but no rate does.
    """
    share = max(counted.all_now / (counted.all_now + counted.all_before), span.panes / (span.panes + span.before_panes))
    both = counted.now + counted.before
    now, before = both * share, both * (1 - share)
    past = np.where(counted.before > 0, counted.before * np.log(np.maximum(counted.before, 1) / before), 0.0)
    deviance = 2 * (counted.now * np.log(counted.now / now) + past)
    found: Numbers = np.sqrt(np.maximum(deviance, 0)) * np.sign(counted.now - now)
    return found


def _usual(counted: Counted, span: Span, keys: int) -> Numbers:
    """What each key would get of the span at its share or its rate before, whichever is more.

    Half a request more is taken as asked for before, so that one never seen has some share.
    """
    at_share = counted.all_now / (counted.all_before + 0.5 * keys)
    at_rate = span.panes / span.before_panes
    return (counted.before + 0.5) * max(at_share, at_rate)


def _once_a_pane_bits(users: Integers, panes: Integers) -> float:
    """Entropy over users, each counted once a pane."""
    _, numbers = np.unique(users, return_inverse=True)
    pairs, _ = distinct(numbers.astype(np.int64) << 32 | (panes - panes.min()))
    times = np.sort(distinct(pairs >> 32)[1])
    shares = times / times.sum()
    return max(0.0, -float((shares * np.log2(shares)).sum())) if len(times) > 1 else 0.0
