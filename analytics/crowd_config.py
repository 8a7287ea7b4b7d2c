"""When a gathering is a crowd: the bounds of the tuned rule of D2."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CrowdConfig:
    """When a gathering is a crowd.

    Attributes:
        pane_ms: length of a pane.
        panes: length of the window, in panes.
        max_pane_events: requests that one pane takes; further ones are only counted, as dropped.
        spans: over how many of the last panes a rise is looked for.
        min_before_panes, min_before_askers: what the window must hold before a span for it to be judged.
        min_share: smallest excess of a gathering, as a part of all askers; a burst of 5 % that has just begun is less.
        min_users: smallest number of distinct users in a crowd's span.
        max_keys: greatest perplexity of the excess; also how many keys are named.
        z: a key has risen when chance would do that no more often than so many standard deviations are exceeded.
        jump: and when its share is so many times what it was; the rate of all that rose must be too: what merely lost
            less than the rest is no crowd.
        trend_z: the same for the group beyond its own trend, which a model so simple does not know exactly.
        slack, bar: of the CUSUM, in standard deviations: what each slide takes off, and what raises the alarm.
        floor: smallest standard deviation of the share.
        history: slides that make a scope's own baseline.
        one_text_share: a single key that rose to this part of all requests is a redacted text.
        displaced_from: a group's part of the requests since it began from which the others' loss is looked at; below
            it a loss could be chance.
        displaced: a rest that lost so much of what was gained was displaced: the total did not jump.
        variation: below this, gaps are a machine's.
        regular_share: part of a group's requests from machines that makes it one.
        trunk_share: part of the requests from which on a leading segment is in the trunk, below which families begin.
        trunk_kept: part below which it is no more.
        family_z: what `z` is for families of one hashed bin; where none of them rose, nobody looks who asked.
        repeats: requests of one user for a group, a pane, above which he is a machine and no part of a crowd; and
            requests a user from which a rise of requests alone is a crawler's.
    """

    pane_ms: int = 10_000
    panes: int = 30
    max_pane_events: int = 200_000
    spans: tuple[int, ...] = (1, 3, 6)
    min_before_panes: int = 6
    min_before_askers: int = 100
    min_share: float = 0.02
    min_users: int = 30
    max_keys: int = 50
    z: float = 5.0
    jump: float = 1.3
    trend_z: float = 6.0
    slack: float = 1.0
    bar: float = 4.0
    floor: float = 0.004
    history: int = 30
    one_text_share: float = 0.9
    displaced_from: float = 0.15
    displaced: float = 0.5
    variation: float = 0.3
    regular_share: float = 0.5
    repeats: float = 3.0
    trunk_share: float = 0.5
    trunk_kept: float = 0.4
    family_z: float = 4.0

    @property
    def quiet_events(self) -> int:
        """With fewer requests in the window nothing is looked at: they are no crowd and the past that it needs."""
        return self.min_before_askers + self.min_users
