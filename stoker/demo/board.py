"""What the topics said so far, folded into the figures of the live table. Pure: records in, figures out."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from analytics.entropy import EntropySums
from schemas import (
    Accounting,
    Cluster,
    Focus,
    Pattern,
    PlannerState,
    PoisonMessage,
    Prefix,
    PrefixState,
    Score,
    WarmupCommand,
    WarmupOutcome,
    WindowStats,
    decode,
)
from stoker.demo.effect import Issued

M = TypeVar("M", bound=msgspec.Struct)
Insight = WindowStats | Accounting | Focus | PlannerState | Cluster | Score | Pattern | PrefixState
PANES_A_MINUTE = 6
INSIGHTS: tuple[Any, ...] = (WindowStats, Accounting, Focus, PlannerState, Cluster, Score, Pattern, PrefixState)


@dataclass
class Board:
    """Reader of warmup.commands, warmup.outcomes, warmup.insights and warmup.dlq.

    Sinks may repeat after a failure: commands and outcomes count once by their ids, insights by their revisions.
    """

    commands: dict[str, WarmupCommand] = field(default_factory=dict)
    outcomes: dict[str, WarmupOutcome] = field(default_factory=dict)
    planners: dict[str, PlannerState] = field(default_factory=dict)
    focuses: list[Focus] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    """Clusters (each once), patterns and scores, by kind."""
    dead_records: int = 0
    unreadable: int = 0
    closed: bool = False
    _clusters: set[tuple[str, str]] = field(default_factory=set)
    _accounts: dict[int, Accounting] = field(default_factory=dict)
    _panes: dict[tuple[str, int], dict[int, WindowStats]] = field(default_factory=lambda: defaultdict(dict))

    def close(self) -> None:
        """Take no further commands: those that came are to be followed to their ends."""
        self.closed = True

    def on_command(self, record: bytes) -> None:
        """A record of warmup.commands."""
        command = self._read(record, WarmupCommand)
        if command is not None and not self.closed:
            self.commands[command.command_id] = command

    def on_outcome(self, record: bytes) -> None:
        """A record of warmup.outcomes; `applied` is never replaced by `resident`."""
        outcome = self._read(record, WarmupOutcome)
        if outcome is None or (self.closed and outcome.command_id not in self.commands):
            return
        before = self.outcomes.get(outcome.outcome_id)
        if before is None or (before.status, outcome.status) != ("applied", "resident"):
            self.outcomes[outcome.outcome_id] = outcome

    def on_insight(self, record: bytes) -> None:
        """A record of warmup.insights."""
        try:
            insight: Insight = decode(record, *INSIGHTS)
        except PoisonMessage:
            self.unreadable += 1
            return
        if isinstance(insight, Accounting):
            before = self._accounts.get(insight.shard)
            if before is None or before.revision <= insight.revision:
                self._accounts[insight.shard] = insight
        elif isinstance(insight, PlannerState):
            self.planners[insight.pool] = insight
        elif isinstance(insight, Focus):
            self.focuses.append(insight)
        elif isinstance(insight, Cluster):
            self._clusters.add((insight.scope, insight.cluster_id))
            self.seen["cluster"] = len(self._clusters)
        elif isinstance(insight, Pattern) and insight.pattern == "request_group":
            pass  # told at every slide, also where nothing has changed
        elif isinstance(insight, Score | Pattern | PrefixState):
            self.seen[type(insight).__name__.lower()] += 1
        elif insight.dimension == "query":
            shards = self._panes[insight.scope, insight.pane_start_ms]
            old = shards.get(insight.shard)
            if old is None or old.revision <= insight.revision:
                shards[insight.shard] = insight

    def on_dead(self, _record: bytes) -> None:
        """A record of warmup.dlq."""
        self.dead_records += 1

    def _read(self, record: bytes, kind: type[M]) -> M | None:
        try:
            return decode(record, kind)
        except PoisonMessage:
            self.unreadable += 1
            return None

    @property
    def account(self) -> Accounting:
        """Where the records of llm.requests went, over all shards."""
        names = ("counted", "second_phase", "not_demand", "late", "duplicate", "dead")
        sums = {name: sum(getattr(one, name) for one in self._accounts.values()) for name in names}
        newest = max((one.at_ms for one in self._accounts.values()), default=0)
        return Accounting(shard=0, revision=0, at_ms=newest, **sums)

    @property
    def read(self) -> int:
        """Records of llm.requests that the job has accounted for."""
        total = self.account
        return total.counted + total.second_phase + total.not_demand + total.late + total.duplicate + total.dead

    def entropy_bits(self) -> dict[str, float]:
        """Entropy of the queries of each scope over its newest six panes, a minute of the rules.

        Panes share keys, so their sums do not merge: it is made of the heaviest keys that each shard names. A rare key
        that is not among them is missing, which makes the figure a little too low.
        """
        panes: dict[str, list[int]] = defaultdict(list)
        for scope, pane in self._panes:
            panes[scope].append(pane)
        found = {}
        for scope, starts in sorted(panes.items()):
            counts: Counter[str] = Counter()
            for pane in sorted(starts)[-PANES_A_MINUTE:]:
                for stats in self._panes[scope, pane].values():
                    counts.update({top.key: top.count for top in stats.top})
            found[scope] = EntropySums.of(counts.values()).entropy_bits
        return found

    def commands_by_kind(self) -> Counter[str]:
        """Commands by what they name, whatever their arm."""
        return Counter(type(command.target).__name__.lower() for command in self.commands.values())

    def commands_by_arm(self) -> Counter[tuple[str, str]]:
        """Commands by (kind, arm); a shadow one counts as `shadow`."""
        return Counter(
            (type(command.target).__name__.lower(), "shadow" if command.shadow else command.arm)
            for command in self.commands.values()
        )

    def outcomes_by_status(self) -> Counter[str]:
        """Outcomes by status."""
        return Counter(outcome.status for outcome in self.outcomes.values())

    def outcomes_by_kind(self) -> Counter[tuple[str, str, str]]:
        """Outcomes by (kind, status, reason); the kind is what stands before the target key's first colon."""
        return Counter(
            (outcome.target_key.partition(":")[0], outcome.status, outcome.reason.value)
            for outcome in self.outcomes.values()
        )

    def warmed_tokens(self) -> int:
        """Tokens that warm-ups made the engines compute."""
        return sum(outcome.tokens_warmed for outcome in self.outcomes.values())

    def issued(self, shadows: bool = False) -> list[Issued]:
        """The prefix commands, for the effect.

        Args:
            shadows: also those that were to be applied in neither arm; between their arms there is no difference.
        """
        return [
            Issued(command.issued_at_ms, command.scope, command.unit, command.arm)
            for command in self.commands.values()
            if isinstance(command.target, Prefix) and (shadows or not command.shadow)
        ]
