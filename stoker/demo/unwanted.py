"""What a bad policy warms beside what is asked for: announced prompts that nobody will ever ask for.

They displace what requests come back for, and as the bad policy warms everything again every second, they stay. All
requests lose by it, however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas import Announcement
from schemas.announcement import announcement_id
from stoker.announcing import segments_of
from stoker.demo.config import DemoConfig

PER_S = 1.0
WORDS = 1_600
"""A token each. Those of the last fifteen seconds, hold-out apart, take about half of a replica's pool."""


def unwanted(
    config: DemoConfig, began_ms: int, now_ms: int, pool: str, model: str
) -> Iterator[tuple[Announcement, str]]:
    """Each prompt's announcement and text, in the order of their times; the scopes that keep texts take turns.

    Args:
        began_ms: when the traffic begins.
        pool, model: of the replicas.
    """
    scopes = sorted(set(config.profile.scopes.tenants.values()) - config.profile.withheld)
    for number in range(round(config.minutes * 60 * PER_S)):
        scope, name = scopes[number % len(scopes)], f"unwanted-{config.seed}-{number}"
        text = " ".join([name, *(f"w{word}" for word in range(WORDS))])
        at_ms = began_ms + round(number * 1000 / PER_S)
        yield (
            Announcement(
                announcement_id=announcement_id(scope, pool, "prompt", name, "1", at_ms),
                scope=scope,
                pool=pool,
                kind="prompt",
                name=name,
                version="1",
                announced_at_ms=now_ms,
                at_ms=at_ms,
                model=model,
                segments=segments_of([("system", text)], model, ""),
            ),
            text,
        )
