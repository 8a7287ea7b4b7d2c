"""On which replicas a target is warmed when not all that lack it are (D15: copies)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from schemas.canonical import h64

NO_ZONES: Mapping[str, str] = {}


def spread(
    names: Sequence[str], copies: int, key: str, zones: Mapping[str, str] = NO_ZONES, held: Iterable[str] = ()
) -> tuple[str, ...]:
    """At most so many of the replicas, sorted by name; other targets get others.

    Copies are spread over zones as evenly as they can be. Within a zone the highest random weight decides (Thaler and
    Ravishankar 1998): a replica that joins or leaves moves no other target.

    Args:
        zones: of replicas that tell theirs; all others are one zone.
        held: replicas that have a copy already.
    """
    if len(names) <= copies:
        return tuple(names)
    left = sorted(names, key=lambda name: (h64(key, name), name))
    taken = Counter(zones.get(name, "") for name in held)
    found = []
    for _ in range(copies):
        name = min(left, key=lambda name: taken[zones.get(name, "")])
        left.remove(name)
        taken[zones.get(name, "")] += 1
        found.append(name)
    return tuple(sorted(found))
