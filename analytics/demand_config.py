"""How a demand shard counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from analytics.asked import MAX_LEADS
from analytics.panes import PaneCaps
from analytics.rewards import RewardConfig
from analytics.second_sight import SecondSightConfig
from analytics.windows import PaneTimes
from schemas import BrokenConfiguration


@dataclass(frozen=True)
class DemandConfig:
    """All durations are already divided by the time scale.

    Attributes:
        shards: of the whole job; part of the state's identity, like `pane_ms`.
        pane_ms: length of a pane and of a slide, at least 1.
        window_ms: how long panes are kept after they are closed to late events.
        lateness_ms: how long after its end a pane still takes events.
        close_after_ms: how long after its end a pane moves from its log to a blob; at most lateness + window.
        slots: logs for panes, at least 1.
        top: heaviest keys that are published.
        max_delta_bytes: distinct chains kept between two slides, in bytes of facts.
        max_asked: requests of one scope, pane and slide that the focus rule hears of.
        family_leads: of how many leading segments of each it hears; 0 where prefix families are not looked at.
        rewards: bounds of the join of rewards and answers.
    """

    shards: int = 8
    pane_ms: int = 10_000
    window_ms: int = 300_000
    lateness_ms: int = 30_000
    close_after_ms: int = 10_000
    slots: int = 8
    top: int = 50
    max_delta_bytes: int = 4 << 20
    max_asked: int = 20_000
    family_leads: int = 0
    caps: PaneCaps = field(default_factory=PaneCaps)
    second_sight: SecondSightConfig = field(default_factory=SecondSightConfig)
    rewards: RewardConfig = field(default_factory=RewardConfig)

    def __post_init__(self) -> None:
        if self.pane_ms < 1 or self.slots < 1:
            raise BrokenConfiguration("demand: pane_ms and slots must be at least 1")
        if not 0 <= self.family_leads <= MAX_LEADS:
            raise BrokenConfiguration(f"demand: family_leads must lie between 0 and {MAX_LEADS}")
        if not 0 <= self.close_after_ms <= self.window_ms + self.lateness_ms:
            raise BrokenConfiguration("demand: close_after_ms must lie between 0 and window_ms + lateness_ms")

    @property
    def times(self) -> PaneTimes:
        """Beginning and end of panes."""
        return PaneTimes(self.pane_ms, self.lateness_ms, self.window_ms)

    @property
    def logs(self) -> int:
        """How many logs the store of a shard needs: the panes', that of what only counts, and that of rewards."""
        return self.slots + 2

    @property
    def reward_log(self) -> int:
        """The log of rewards and answers."""
        return self.slots + 1
