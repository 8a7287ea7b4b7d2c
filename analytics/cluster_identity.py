"""Which group of now goes on with which group of before: the best overlap first, each only once.

When a group splits, the part that kept most goes on; when groups merge, the one that gave most does. The others end,
and what began gets an id that nobody had before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from schemas.canonical import h128


def continued(before: Mapping[str, Collection[str]], now: Sequence[Collection[str]]) -> list[str | None]:
    """For each group of now the id that it goes on with, None where it is new.

    Args:
        before: members by id, each in one group.
        now: members, each in one group.

    >>> continued({"a": ["p", "q", "r"], "b": ["s", "t"]}, [["p", "s", "t"], ["q", "r"], ["x"]])
    ['b', 'a', None]
    """
    was = {member: name for name, members in before.items() for member in members}
    pairs = []
    for number, members in enumerate(now):
        shared: dict[str, int] = {}
        for member in members:
            name = was.get(member)
            if name is not None:
                shared[name] = shared.get(name, 0) + 1
        for name, common in shared.items():
            union = len(before[name]) + len(members) - common
            pairs.append((-common, union, name, number))
    found: list[str | None] = [None] * len(now)
    taken: set[str] = set()
    for _, _, name, number in sorted(pairs):
        if name not in taken and found[number] is None:
            found[number] = name
            taken.add(name)
    return found


def new_id(scope: str, at_ms: int, medoid: str) -> str:
    """Id of a group that began at a stride. No counter: a scope that was forgotten must not give an id again."""
    return h128("cluster", scope, str(at_ms), medoid)
