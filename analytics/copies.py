"""On which replicas a target is warmed when not all that lack it are (D15: copies)."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.canonical import h64


def spread(names: Sequence[str], copies: int, key: str) -> tuple[str, ...]:
    """At most so many of the replicas, sorted by name; other targets get others.

    Highest random weight (Thaler and Ravishankar 1998): a replica that joins or leaves moves no other target.
    """
    if len(names) <= copies:
        return tuple(names)
    weighed = sorted(names, key=lambda name: (h64(key, name), name))
    return tuple(sorted(weighed[:copies]))
