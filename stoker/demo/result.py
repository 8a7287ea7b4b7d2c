"""The figures of a demo: at any moment for the live table, at the end for the summary and for `--json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.demo.board import Board
from stoker.demo.config import Mode
from stoker.demo.effect import Groups, Sample
from stoker.demo.gain import Gain
from stoker.demo.idle import Idle
from stoker.demo.statistics import Control, Ratio, enough, ratio
from stoker.demo.timeline import Span

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
        lru_only: all requests of the run before, without any warm-up, and `in_its_place` the same requests of this run.
        control: what the analysis finds where arms and times mean nothing; made at the end.
        adapter_misses: requests that had to load their adapter, in this run and in the one before.
        judged: rewards that were sent.
        timeline: the run in short spans; made at the end.
        idle: how much room each replica had; made at the end.
        gain: tokens that all requests found beyond plain LRU; made at the end.
        mode: of the demo; with `off` nothing is warmed, and whatever differs is chance or the machine.
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
    lru_only: Sample | None = None
    in_its_place: Sample | None = None
    control: Control | None = None
    adapter_misses: tuple[int, int] = (0, 0)
    judged: int = 0
    timeline: tuple[Span, ...] = ()
    idle: tuple[Idle, ...] = ()
    gain: Gain | None = None
    mode: Mode = "full"

    @property
    def unaccounted(self) -> int:
        """Records that the job's accounting does not show yet; negative when it shows too many."""
        return self.records - self.board.read

    @property
    def open_commands(self) -> int:
        """Commands without any outcome."""
        done = {outcome.command_id for outcome in self.board.outcomes.values()}
        return sum(command_id not in done for command_id in self.board.commands)

    def effect(self, seed: int) -> Ratio | None:
        """Mean time to first token of warmed over held-out touches."""
        return ratio(self.groups.warmed, self.groups.held_out, "mean", seed)

    def tail_effect(self, seed: int) -> Ratio | None:
        """The same of the 95th percentile."""
        return ratio(self.groups.warmed, self.groups.held_out, "p95", seed)

    def service_effect(self, seed: int) -> Ratio | None:
        """Mean time to first token of all requests over that of the same requests without warm-ups."""
        if self.lru_only is None or self.in_its_place is None:
            return None
        return ratio(self.in_its_place, self.lru_only, "mean", seed)

    def as_json(self, seed: int) -> dict[str, Any]:
        """The document of DESIGN §8, and the effect in full."""
        account, effect = self.board.account, self.effect(seed)
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
                "lru_only": None if self.lru_only is None else _quantiles(self.lru_only),
                "ratio_ci": None if effect is None else [effect.low, effect.high],
            },
            "effect": {
                "mean": _ratio(effect),
                "p95": _ratio(self.tail_effect(seed)),
                "service": _ratio(self.service_effect(seed)),
                "tokens": None if self.gain is None else dataclasses.asdict(self.gain) | {"verdict": self.gain.verdict},
                "control": None if self.control is None else dataclasses.asdict(self.control),
            },
            "idle": [dataclasses.asdict(replica) for replica in self.idle],
            "seconds": round(self.seconds, 1),
        }

    def verdict(self, seed: int) -> str:
        """What this run shows, in a few sentences, whichever way it went."""
        found = [self._finding(seed), self._tokens()]
        if self.mode != "off" and self.gain is not None and self.gain.verdict == "harm":
            found.reverse()  # what all of them lost comes first, whoever gained
        sentences = (*found, self._service(seed), self._price(), self._control(), self._doubt())
        return " ".join(sentence for sentence in sentences if sentence)

    def _finding(self, seed: int) -> str:
        warmed, held = self.groups.warmed, self.groups.held_out
        seen = (
            f"{warmed.count} eligible first touches of {warmed.distinct_units} warmed units and {held.count} of "
            f"{held.distinct_units} held-out ones"
        )
        effect, tail = self.effect(seed), self.tail_effect(seed)
        if effect is None or tail is None:
            why = "too few" if not enough(warmed, held) else "without a ratio"
            return f"{seen}: {why}, this run proves nothing either way. --minutes 10 sees more."
        opening = self._opening(effect)
        return f"{opening}: TTFT warmed / held out = {effect} in the mean and {tail} at p95; {seen}."

    def _opening(self, effect: Ratio) -> str:
        if effect.verdict == "none":
            return "No effect is shown, the interval includes 1"
        if self.mode == "off":
            return "The arms differ although nothing was warmed, which is chance: no effect"
        if effect.verdict == "more":
            return "Warming did harm here"
        if self.gain is not None and self.gain.verdict == "harm":
            return "What was warmed got faster, at the cost of all"
        return "Warming helped here"

    def _tokens(self) -> str:
        """Help or harm as the machine cannot make it."""
        found, whole = self.gain, self.groups.everything
        if found is None:
            return ""
        if self.mode == "off":
            opening = (
                "By tokens nothing was gained or lost, as it must be"
                if found.verdict == "none"
                else "By tokens something was gained or lost although nothing was warmed: distrust this"
            )
        else:
            did = {"help": "helped", "harm": "did harm", "none": "neither helped nor harmed the service as a whole"}
            opening = f"By tokens, which do not depend on the machine, warming {did[found.verdict]}"
        return (
            f"{opening}: {_percent(whole)} of all prompt tokens were found cached, {found} against plain LRU of the "
            "same capacity."
        )

    def _service(self, seed: int) -> str:
        effect = self.service_effect(seed)
        if effect is None or self.behind_ms > TOLERABLE_MS:
            return ""  # two runs on a machine that is too busy differ by the machine
        opening = {
            "less": "The service as a whole got faster",
            "more": "The service as a whole got slower",
            "none": "The service as a whole is about as fast",
        }[effect.verdict]
        machine = "That run had the machine to itself; here Flink and the executor share it with the engines."
        if self.mode == "off":
            machine += " Nothing was warmed: a difference is the machine and the stack beside it, not warming."
        elif effect.verdict == "more" and self.gain is not None and self.gain.verdict != "harm":
            machine += " By tokens no harm is shown: warm-ups displaced nothing that counts."
        return (
            f"{opening}: mean TTFT of all requests is {effect} of the same requests without Stoker, which found "
            f"{_percent(self.lru_only)} of their tokens cached, and {_percent(self.in_its_place)} with it. {machine}"
        )

    def _price(self) -> str:
        found, without = self.groups.rest.hit_rate, self.groups.rest.lru_hit_rate
        if found is None or without is None:
            return ""
        return f"The rest found {found:.0%} of its tokens cached; plain LRU would have had {without:.0%}."

    def _control(self) -> str:
        chance = self.control
        if chance is None:
            return ""
        shows = (
            "no effect, as it must" if chance.low <= 1 <= chance.high else "an effect, which it must not: distrust this"
        )
        return (
            f"Control, arms and command times shuffled {chance.shuffles} times: {chance.median:.2f} "
            f"({chance.low:.2f} to {chance.high:.2f}), {shows}."
        )

    def _doubt(self) -> str:
        if self.behind_ms <= TOLERABLE_MS:
            return ""
        return (
            f"The load generator fell {self.behind_ms / 1000:.0f} s behind: this machine was too busy, so times are "
            "the machine's and not the model's; hit rates hold."
        )


def _percent(sample: Sample | None) -> str:
    rate = None if sample is None else sample.hit_rate
    return "-" if rate is None else f"{rate:.0%}"


def _ratio(found: Ratio | None) -> list[float] | None:
    return None if found is None else [found.value, found.low, found.high]


def _quantiles(sample: Sample) -> dict[str, Any]:
    values = {f"p{share}": sample.quantile_ms(share / 100) for share in (50, 95, 99)}
    return {"n": sample.count, **{name: None if value is None else round(value, 2) for name, value in values.items()}}
