"""What the tuned focus rule found at a slide, in the numbers that made it say so (D2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from schemas import Focus, KeyRate
from schemas.insights import Dimension, Verdict

RULE = "gathered"
"""Name of the tuned rule in insights."""

Why = Literal["many_users", "few_users", "regular_gaps", "one_text", "displaced"]


@dataclass(frozen=True)
class Finding:
    """A gathering on few keys, and what it is.

    Attributes:
        verdict: only `crowd` is a trigger; `crawler` warns of one client or machine; `none` is a gathering that
            explains itself otherwise.
        why: what decided: `many_users` for a crowd; `few_users` repeat themselves; their `regular_gaps` are a
            machine's; `one_text` for everything (redaction); the other keys were `displaced` by as much as gathered.
        at_ms: end of the slide.
        span_panes: over how many panes it shows best.
        entropy_bits, baseline_bits: corrected entropy of the window, each user once per key; now, and its median over
            the scope's last slides.
        user_entropy_bits: of the group's requests over its users, each user once per pane.
        qps: the scope's rate over the span.
        keys: the group with the rate of each key, the greatest excess first.
        users: distinct users of the group in the span; `events` its requests.
        share: part of the scope's askers that the group has beyond what its past says; `raw_share` the same of
            requests, where each repetition counts.
        jump: the group's rate over its rate before.
        deviation: how far `share` lies above its median over the last slides, in robust standard deviations.
        alarm: CUSUM of these deviations.
        perplexity: to how many equally raised keys the excess amounts, 2 to the power of its entropy.
        displaced_share: by how much the rate of all other keys is lower since the group began to gather.
        gap_variation, own_gap_variation, regular_share: see `regularity.Regularity`.
        anonymous_share: part of the window's requests that name no user; each counts as a user of its own.
    """

    verdict: Verdict
    why: Why
    at_ms: int
    span_panes: int
    entropy_bits: float
    baseline_bits: float
    user_entropy_bits: float
    qps: float
    keys: tuple[tuple[bytes, float], ...]
    users: int
    events: int
    share: float
    raw_share: float
    jump: float
    deviation: float
    alarm: float
    perplexity: float
    displaced_share: float
    gap_variation: float
    own_gap_variation: float
    regular_share: float
    anonymous_share: float

    @property
    def triggers(self) -> bool:
        """Whether something should be warmed for it."""
        return self.verdict == "crowd"

    @property
    def evidence(self) -> dict[str, float]:
        """The numbers behind the verdict, for a Focus insight."""
        return {
            "span_panes": float(self.span_panes),
            "users": float(self.users),
            "events": float(self.events),
            "share": self.share,
            "raw_share": self.raw_share,
            "jump": self.jump,
            "deviation": self.deviation,
            "alarm": self.alarm,
            "perplexity": self.perplexity,
            "displaced_share": self.displaced_share,
            "gap_variation": self.gap_variation,
            "own_gap_variation": self.own_gap_variation,
            "regular_share": self.regular_share,
            "anonymous_share": self.anonymous_share,
        }

    def sentence(self) -> str:
        """The same as a person would say it."""
        what = {
            "many_users": "a crowd",
            "few_users": "a crawler or a replay: few users repeat themselves",
            "regular_gaps": "machines: their gaps are too even",
            "one_text": "no focus: nearly everything is one text, as after redaction",
            "displaced": "no focus: the other keys lost what these gained",
        }[self.why]
        return (
            f"{self.users} users sent {self.events} requests for {len(self.keys)} keys, {self.jump:.1f} times as many "
            f"as before: {self.share:.1%} of the askers beyond what is usual, {self.deviation:.1f} deviations above "
            f"the scope's own (alarm {self.alarm:.1f}); user entropy {self.user_entropy_bits:.2f} bits, "
            f"gaps vary by {self.gap_variation:.2f}, each user's own by {self.own_gap_variation:.2f}: {what}"
        )

    def names(self, dimension: Dimension) -> tuple[str, ...]:
        """The group's keys as they are published: hashes in hex."""
        hashed = dimension in ("query", "prefix_family")
        return tuple(key.hex() if hashed else key.decode() for key, _ in self.keys)

    def insight(self, scope: str, dimension: Dimension, dropped: int = 0) -> Focus:
        """The finding as it is published.

        Args:
            dropped: requests of the window that were not looked at, for want of room.
        """
        rates = [rate for _, rate in self.keys]
        return Focus(
            scope=scope,
            dimension=dimension,
            rule=RULE,
            at_ms=self.at_ms,
            entropy_bits=self.entropy_bits,
            baseline_bits=self.baseline_bits,
            user_entropy_bits=self.user_entropy_bits,
            qps=self.qps,
            keys=tuple(map(KeyRate, self.names(dimension), rates)),
            verdict=self.verdict,
            evidence={**self.evidence, "dropped": float(dropped)},
        )
