"""Memory pressure of a host: warm-ups give way step by step, and get back step by step what they gave (D16). Pure."""

from __future__ import annotations

from analytics.policy_sections import BreakerPolicy

STEPS = (1.0, 0.5, 0.25, 0.0)
"""Shares of the usual concurrency, one a step."""


class Pressure:
    """The step that a host is at, by its PSI: the share of time in which some task waited for memory (Linux, `some
    avg10` of /proc/pressure/memory, as 0..1).

    Between both bounds the step stays: what was given back at once would be taken again at the next look.
    """

    def __init__(self) -> None:
        self.step = 0
        self._stepped_ms: int | None = None
        self._calm_since_ms: int | None = None

    @property
    def share(self) -> float:
        """Of the usual concurrency."""
        return STEPS[self.step]

    def look(self, at_ms: int, psi: float | None, policy: BreakerPolicy) -> int:
        """The step after a look; None where the host tells nothing, which is no pressure."""
        told = 0.0 if psi is None else psi
        if told >= policy.psi_low:
            self._calm_since_ms = None
        elif self._calm_since_ms is None:
            self._calm_since_ms = at_ms
        if told >= policy.psi_high and self.step + 1 < len(STEPS) and self._rested(at_ms, policy.psi_up_ms):
            self.step, self._stepped_ms = self.step + 1, at_ms
        elif self.step and self._calm_since_ms is not None and at_ms - self._calm_since_ms >= policy.psi_down_ms:
            # Each step back has to be earned by a calm of its own.
            self.step, self._stepped_ms, self._calm_since_ms = self.step - 1, at_ms, at_ms
        return self.step

    def _rested(self, at_ms: int, rest_ms: int) -> bool:
        return self._stepped_ms is None or at_ms - self._stepped_ms >= rest_ms
