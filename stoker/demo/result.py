"""The figures of a demo: at any moment for the live table, at the end for the summary and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.demo.board import Board
from stoker.demo.effect import Groups, Sample, enough, ratio_interval

TOLERABLE_MS = 1_000
"""A load generator that falls further behind measures a busy machine."""


@dataclass(frozen=True)
class Figures:
    """One moment of a run.

    Attributes:
        seconds: since the traffic began, or of traffic when it has ended.
        records: sent to llm.requests.
        requests: that the gateway has finished.
        errors: how many of them failed how.
        events_per_s: over the last seconds, or over the whole traffic.
        behind_ms: largest delay of the load generator against its own timetable.
        prefilled_tokens: that requests made the engines compute.
        restarts: of the job.
    """

    seconds: float
    records: int
    requests: int
    errors: Mapping[str, int]
    events_per_s: float
    behind_ms: float
    prefilled_tokens: int
    restarts: int
    groups: Groups
    board: Board

    @property
    def unaccounted(self) -> int:
        """Records that the job's accounting does not show yet; negative when it shows too many."""
        return self.records - self.board.read

    @property
    def open_commands(self) -> int:
        """Commands without any outcome."""
        done = {outcome.command_id for outcome in self.board.outcomes.values()}
        return sum(command_id not in done for command_id in self.board.commands)

    def mean_ratio(self) -> float | None:
        """Mean time to first token of warmed over held-out touches; None where one of them is empty."""
        warmed, held = self.groups.warmed.mean_ms, self.groups.held_out.mean_ms
        return warmed / held if warmed is not None and held else None

    def as_json(self, seed: int) -> dict[str, Any]:
        """The document of DESIGN §8."""
        account, interval = self.board.account, ratio_interval(self.groups, seed)
        return {
            "events_in": self.records,
            "events_counted": account.counted,
            "second_phase": account.second_phase,
            "not_demand": account.not_demand,
            "dead_letters": account.dead,
            "duplicates": account.duplicate,
            "late": account.late,
            "commands": dict(sorted(self.board.commands_by_kind().items())),
            "outcomes": dict(sorted(self.board.outcomes_by_status().items())),
            "ttft_ms": {
                "warmed": _quantiles(self.groups.warmed),
                "held_out": _quantiles(self.groups.held_out),
                "rest": _quantiles(self.groups.rest),
                "lru_only": None,
                "ratio_ci": None if interval is None else list(interval),
            },
            "seconds": round(self.seconds, 1),
        }

    def verdict(self, seed: int) -> str:
        """What this run shows, in a few sentences, whichever way it went."""
        return self._finding(seed) + self._doubt()

    def _doubt(self) -> str:
        if self.behind_ms <= TOLERABLE_MS:
            return ""
        return (
            f" The load generator fell {self.behind_ms / 1000:.0f} s behind: this machine was too busy, so times are "
            "the machine's and not the model's; hit rates hold."
        )

    def _finding(self, seed: int) -> str:
        warmed, held = self.groups.warmed, self.groups.held_out
        seen = (
            f"{warmed.count} eligible first touches of {warmed.distinct_units} warmed units and {held.count} of "
            f"{held.distinct_units} held-out ones"
        )
        interval, ratio = ratio_interval(self.groups, seed), self.mean_ratio()
        if interval is None or ratio is None:
            why = "too few" if not enough(self.groups) else "without a ratio"
            return f"{seen}: {why}, this run proves nothing either way. --minutes 10 sees more."
        low, high = interval
        measured = (
            f"mean TTFT warmed / held out = {ratio:.2f} (95 % interval {low:.2f} to {high:.2f}); {seen}.{self._price()}"
        )
        if high < 1:
            return f"Warming helped here: {measured}"
        if low > 1:
            return f"Warming did harm here: {measured}"
        return f"No effect is shown: the interval includes 1. {measured}"

    def _price(self) -> str:
        found, without = self.groups.rest.hit_rate, self.groups.rest.lru_hit_rate
        if found is None or without is None:
            return ""
        return f" The rest found {found:.0%} of its tokens cached; plain LRU would have had {without:.0%}."


def _quantiles(sample: Sample) -> dict[str, Any]:
    values = {f"p{share}": sample.quantile_ms(share / 100) for share in (50, 95, 99)}
    return {"n": sample.count, **{name: None if value is None else round(value, 2) for name, value in values.items()}}
