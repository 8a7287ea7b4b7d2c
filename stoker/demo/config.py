"""A demo's settings, and what follows from them: flags of the simulators, policies, and when replicas are restarted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas import BrokenConfiguration
from schemas.policy import Section
from stoker.demo.profile import ANSWER_TOKENS, BLOCK_TOKENS, Profile
from stoker.stack.paths import DEFAULT_STATE

ADAPTER_LOAD_MS = 400.0
"""As it passes on the clock."""
SHORTEST_ROLLING_MIN = 1.0

Mode = Literal["full", "off", "bad"]


@dataclass(frozen=True)
class DemoConfig:
    """A demo.

    Attributes:
        profile: workload and replicas.
        minutes: of traffic.
        input: folder of the trace that the profile was made of, if any.
        time_scale: how many times faster than the calendar windows, lives and the model run: the minutes that the
            rules of the design speak of then last 60 s / time_scale.
        hold_share: of units that are never warmed.
        prefill_share: of every replica's prefill that warm-ups may use. A fleet's default is 1 %: its prefixes come
            back after minutes and hours; here it is seconds.
        lru_minutes: of traffic without any warm-up before, on caches of their own.
        mode: `full` is Stoker as it is; `off` sends every command as a shadow, so that no effect may show; `bad` warms
            without measure, also what nobody asks for, and no breaker stops it, which must show as harm.
        seed: of workload, disturbances and bootstrap.
        root: folder that gets the demo's own folder.
    """

    profile: Profile
    minutes: float = 2.0
    input: Path | None = None
    time_scale: float = 6.0
    hold_share: float = 0.4
    prefill_share: float = 0.10
    lru_minutes: float = 1.0
    mode: Mode = "full"
    seed: int = 0
    root: Path = DEFAULT_STATE / "demo"

    def __post_init__(self) -> None:
        if not 0 < self.minutes <= 24 * 60:
            raise BrokenConfiguration("--minutes must be above 0 and at most 1,440")
        if not 0 <= self.lru_minutes <= self.minutes:
            raise BrokenConfiguration("--lru-minutes must be from 0 to --minutes")

    @property
    def restarts(self) -> tuple[tuple[float, str], ...]:
        """When each replica is restarted, in seconds from the start; a short run has none."""
        if self.minutes < SHORTEST_ROLLING_MIN or not self.profile.adapters:
            return ()
        return tuple(
            ((0.7 + 0.12 * number) * self.minutes * 60, f"r{number}") for number in range(self.profile.replicas)
        )

    @property
    def engine_flags(self) -> tuple[str, ...]:
        """Flags of every simulator: its times are given at scale 1."""
        profile = self.profile
        return (
            *("--block-tokens", str(BLOCK_TOKENS)),
            *("--num-blocks", str(profile.num_blocks)),
            *("--prefill-ms-per-token", str(profile.prefill_ms_per_token * self.time_scale)),
            *("--decode-ms-per-token", str(profile.decode_ms_per_token * self.time_scale)),
            *("--answer-tokens", str(ANSWER_TOKENS)),
            *("--time-scale", str(self.time_scale)),
            *("--adapter-load-ms", str(ADAPTER_LOAD_MS * self.time_scale)),
            # A warm-up waits while a request does, unless the mode is to do harm.
            *("--scheduling-policy", "fcfs" if self.mode == "bad" else "priority"),
        )

    def policies(self) -> dict[Section, dict[str, str | int | float | bool | None]]:
        """What is written to warmup.policy for every scope before anything runs."""
        bad = self.mode == "bad"
        # Ten times of what there is: a budget that bounds nothing.
        rate = self.profile.prefill_tokens_per_s / self.time_scale * (10 if bad else 1)
        plan = {"prefix_resident_ms": 6_000, "prefix_repeat_ms": 6_000, "lead_ms": 0, "min_saved_ms": 0} if bad else {}
        return {
            "plan": {"shadow": self.mode == "off", **plan},
            "budget": {"prefill_share": 1.0 if bad else self.prefill_share, "prefill_tokens_per_s": rate},
            "breaker": {"enabled": not bad},
            "experiment": {"hold_share": self.hold_share, "salt": f"demo-{self.seed}"},
        }
