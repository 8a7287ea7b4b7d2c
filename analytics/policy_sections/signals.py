"""How demand is read: crowds, scores of queries, sessions that repeat themselves."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.knobs import knob


@dataclass(frozen=True)
class FocusPolicy:
    """Section `focus`: when a crowd has gathered (D2)."""

    enabled: bool = knob(True, "Whether focus is looked for at all.")
    rule: str = knob(
        "tuned",
        "tuned: who asks, by share and rate, once a pane; spec: entropies of minutes, with the keys below but boost.",
        choices=("spec", "tuned"),
    )
    entropy_max_bits: float = knob(2.1, "Below this entropy a minute counts as focused.", unit="bits", low=0, high=32)
    fall_share: float = knob(0.15, "entropy_only: by how much entropy must fall, twice running.", low=0, high=1)
    fall_bits: float = knob(
        0.08, "should_preheat: by how much entropy must fall a minute, on average.", unit="bits/min", low=0, high=32
    )
    keys: int = knob(50, "How many of the hottest keys a focus names.", unit="keys", low=1, high=1000)
    boost: float = knob(
        2.0, "Factor on the demand of embeddings, adapters and prefixes that a focus names.", low=1, high=100
    )

    @property
    def tuned(self) -> bool:
        """Whether the demand shards tell who asked for what."""
        return self.enabled and self.rule == "tuned"


@dataclass(frozen=True)
class ScorePolicy:
    """Section `score`: the dynamic score of a query (D6)."""

    rule: str = knob(
        "spec",
        "spec: rewards count by their mean; tuned: by a posterior with weights by source and a prior from the cluster: "
        "an answer is served by its lower bound, and `judgements` is not asked for.",
        choices=("spec", "tuned"),
    )
    decay_ms: int = knob(
        300_000,
        "Time after which an arrival counts 1/e.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    queue: int = knob(1000, "How many queries a scope's queue keeps.", unit="queries", low=1, high=100_000)
    sort_ms: int = knob(30_000, "How often the queue is sorted again.", unit="ms", low=1000, high=3_600_000)
    drop_below: float = knob(0.25, "A score below this leaves the queue.", low=0, high=1)
    alpha: float = knob(0.7, "Weight of the reward in the score of a query that was judged.", low=0, high=1)
    alpha_ecommerce: float = knob(0.85, "The same where the request's domain is e-commerce.", low=0, high=1)
    alpha_news: float = knob(0.6, "The same where the request's domain is news.", low=0, high=1)
    reward_floor: float = knob(
        0.5, "An answer whose mean reward is below this is not served again, and taken back if it was.", low=0, high=1
    )
    judgements: int = knob(
        1, "How many rewards an answer needs before its mean counts, either way.", unit="rewards", low=1, high=1000
    )
    answer_score: float = knob(
        0.5, "An answer that scores below this, by its own reward, is not put into the response cache.", low=0, high=1
    )


@dataclass(frozen=True)
class PatternPolicy:
    """Section `pattern`: consecutive prompts of a session that resemble each other (D10)."""

    rule: str = knob(
        "tuned",
        "Priority of a pattern's command: `tuned` by its worth, `spec` by hash and rate.",
        choices=("tuned", "spec"),
    )
    enabled: bool = knob(
        True, "Whether such a session's prefix is warmed at once; `warmup.pattern_scopes` says whose are looked for."
    )
