"""How long replicas keep what nobody asks for: what is expected, put right by what warm-ups found there (D11).

A replica keeps a prefix for its characteristic time after the last use (Che's approximation of LRU). Where replicas
tell their capacity, their shadow says how long that should be (analytics.cache_shadow), else policy does. Each warm-up
that was applied found its prefix absent, each that was resident found it there: the likelihood of these findings over a
grid of factors tells by how much the expectation is wrong. What was seen fades, so that the factor may change. Of
replicas that tell what they hold nothing need be guessed.
"""

from __future__ import annotations

import math

from analytics.records import Record, Section, pack, unpack
from analytics.worth import p_absent_by_age

FACTORS = tuple(2 ** (step / 2) for step in range(-14, 15))
"""From a hundredth of what is expected to a hundred times as long."""
MEMORY_FOUND = 512.0
"""After so many findings one counts half."""
LEAST_CHANCE = 1e-3
"""No finding is impossible: rates are estimates, and others may have asked."""
SETTLED = 1.5
"""A cache is judged by what it lacks when it is so many times as old as the time that it should keep things."""
DOUBT = 4.0
"""Log likelihood that an octave away from the expected time costs: a few findings do not overthrow it."""
TOLERANCE = 0.1
"""Relative change below which the time in force stays, so that what follows from it need not be looked at again."""
LEAST_MARGIN_PER_S = 1e-5
"""Once a day: what is asked for more rarely makes no difference."""


class StayRecord(Record, frozen=True, array_like=True):
    """Log likelihood of each factor of the grid, the time in force, and what the shadow said when it was set.

    `margin_per_s` is in force where what is resident is renewed.
    """

    log_likelihood: tuple[float, ...]
    ms: float | None
    shadow_ms: float | None = None
    margin_per_s: float | None = None


class StayTime:
    """The characteristic time of a pool's replicas.

    Args:
        first_ms: what is expected where no shadow is.
        store: of one record, key "".
        rule: `spec` leaves the time to policy, whatever is heard.

    Attributes:
        ms: the time in force; None as long as only policy says something.
        shadow_ms: what is expected of replicas of known capacity; None where none told it.
        margin_per_s: at most at which rate that is asked for which replicas are about to let go of; None where nobody
            wants to know, or no shadow says it.
    """

    def __init__(self, first_ms: float, store: Section, rule: str = "tuned") -> None:
        self._first_ms = first_ms
        self._store = store
        self._fixed = rule == "spec"
        self.ms: float | None = None
        self.shadow_ms: float | None = None
        self.margin_per_s: float | None = None
        self._log_likelihood = _unlearned()

    def expect(self, shadow_ms: float | None) -> bool:
        """What the shadow says by now; None where there is none.

        Returns:
            whether the time in force has changed.
        """
        if self._fixed:
            return False
        if (shadow_ms is None) != (self.shadow_ms is None):
            # By how much the one was wrong says nothing of the other.
            before_ms = self.ms
            self.forget()
            self.shadow_ms = shadow_ms
            return before_ms is not None if shadow_ms is None else self._renew()
        if shadow_ms is None or self.shadow_ms is None or not _differ(shadow_ms, self.shadow_ms):
            return False
        self.shadow_ms = shadow_ms
        return self._renew()

    def expect_margin(self, margin_per_s: float | None) -> bool:
        """What the shadow says of what goes next, after `expect`; None where there is none.

        Returns:
            whether the rate in force has changed.
        """
        if self.shadow_ms is None:
            margin_per_s = None
        held = self.margin_per_s
        if margin_per_s is None or held is None:
            if margin_per_s is held:
                return False
        elif abs(margin_per_s - held) <= TOLERANCE * max(held, LEAST_MARGIN_PER_S):
            return False
        self.margin_per_s = margin_per_s
        self._write()
        return True

    def learn_by_age(self, age_ms: float, absent: bool) -> bool:
        """A warm-up found its prefix absent, or there, so long after its last use on this replica.

        Returns:
            whether the time in force has changed.
        """
        if self._fixed or age_ms <= 0:
            return False
        return self._heard([p_absent_by_age(age_ms, self._expected_ms * factor) for factor in FACTORS], absent)

    def learn(self, rate_per_s: float, absent: bool) -> bool:
        """A warm-up found its prefix absent, or there, where nothing had been known of it.

        Args:
            rate_per_s: of requests that meet this replica.

        Returns:
            whether the time in force has changed.
        """
        if self._fixed:
            return False
        expected_uses = rate_per_s * self._expected_ms / 1000
        return self._heard([math.exp(-expected_uses * factor) for factor in FACTORS], absent)

    def _heard(self, chances: list[float], absent: bool) -> bool:
        """Takes a finding; by each factor it was absent with such a chance."""
        fade = 2.0 ** (-1.0 / MEMORY_FOUND)
        for step, chance in enumerate(chances):
            likelihood = chance if absent else 1.0 - chance
            self._log_likelihood[step] = fade * self._log_likelihood[step] + math.log(max(LEAST_CHANCE, likelihood))
        return self._renew()

    @property
    def learns_after_ms(self) -> float | None:
        """At the least so old must a cache be for what it lacks to tell anything; None where any may.

        A replica that takes in next to nothing is expected to keep all since it began, however long ago: that must not
        keep the findings that say otherwise from being heard.
        """
        return None if self.ms is None else SETTLED * min(self.ms, self._first_ms)

    def evidence(self, stay_ms: float) -> dict[str, float]:
        """For a command's reason: the time that held, and what the shadow had said where there is one."""
        return (
            {"stay_ms": stay_ms} if self.shadow_ms is None else {"stay_ms": stay_ms, "stay_shadow_ms": self.shadow_ms}
        )

    def forget(self) -> None:
        """Knows nothing any more, and leaves nothing behind."""
        if self.ms is not None:
            self.ms, self.shadow_ms, self.margin_per_s, self._log_likelihood = None, None, None, _unlearned()
            self._store.remove("")

    def restore(self, blob: bytes) -> None:
        """Takes back what was learned; by a rule that leaves all to policy, drops it."""
        if self._fixed:
            self._store.remove("")
            return
        record = unpack(blob, StayRecord)
        self._log_likelihood, self.ms, self.shadow_ms = list(record.log_likelihood), record.ms, record.shadow_ms
        self.margin_per_s = record.margin_per_s

    @property
    def _expected_ms(self) -> float:
        return self._first_ms if self.shadow_ms is None else self.shadow_ms

    def _renew(self) -> bool:
        likely_ms = self._expected_ms * self._likely_factor()
        changed = self.ms is None or _differ(likely_ms, self.ms)
        if changed:
            self.ms = likely_ms
        self._write()
        return changed

    def _write(self) -> None:
        record = StayRecord(1, tuple(self._log_likelihood), self.ms, self.shadow_ms, self.margin_per_s)
        self._store.put("", pack(record))

    def _likely_factor(self) -> float:
        """The mean of the logarithm, by likelihood."""
        most = max(self._log_likelihood)
        weights = [math.exp(each - most) for each in self._log_likelihood]
        logs = [weight * math.log(factor) for weight, factor in zip(weights, FACTORS, strict=True)]
        return math.exp(math.fsum(logs) / math.fsum(weights))


def _unlearned() -> list[float]:
    return [-DOUBT * abs(math.log2(factor)) for factor in FACTORS]


def _differ(wanted_ms: float, held_ms: float) -> bool:
    return abs(wanted_ms / held_ms - 1) > TOLERANCE
