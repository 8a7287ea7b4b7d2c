"""How keys were asked for in the last panes of a window and before them: what the tuned focus rule compares (D2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.running_entropy import Integers

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Counted:
    """How some keys were asked for in a span and, in the same window, before it; by askers or by events.

    Attributes:
        now, before: of each key.
        all_now, all_before: of all keys.
    """

    now: Integers
    before: Integers
    all_now: int
    all_before: int


@dataclass(frozen=True)
class Span:
    """The last panes of a window against those before them.

    Attributes:
        panes, before_panes: how many there are; quiet ones are there too.
        keys: numbers of the keys that were asked for in the span.
        askers, events: their counts.
    """

    panes: int
    before_panes: int
    keys: Integers
    askers: Counted
    events: Counted


def deviations(counted: Counted, span: Span) -> Numbers:
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


def usual(counted: Counted, span: Span, keys: int) -> Numbers:
    """What each key would get of the span at its share or its rate before, whichever is more.

    Half a request more is taken as asked for before, so that one never seen has some share.
    """
    at_share = counted.all_now / (counted.all_before + 0.5 * keys)
    at_rate = span.panes / span.before_panes
    return (counted.before + 0.5) * max(at_share, at_rate)
