"""Trunk and families of a prefix tree (DESIGN §3.2): what most requests share, and what first tells them apart.

The trunk is every leading segment that at least half of the scope's requests go through. A family is the first segment
below it; it is the unit of the hold-out, because warming one member warms what all members have in common.
"""

from __future__ import annotations

import math

from analytics.prefix_nodes import Node

_ROUNDING = 1e-6


def trunk_level(total_level: float, share: float) -> float:
    """The level from which on a node belongs to the trunk. Levels of one time compare as amounts do."""
    return total_level + math.log(share) - _ROUNDING


def path_of(node: Node) -> list[Node]:
    """From the first segment to this node."""
    path = []
    step: Node | None = node
    while step is not None:
        path.append(step)
        step = step.parent
    path.reverse()
    return path


def family_of(path: list[Node], trunk: float) -> str:
    """Hash of the first segment below the trunk; of the path's last segment where all of it lies in the trunk."""
    for node in path:
        if node.level < trunk:
            return node.hash.hex()
    return path[-1].hash.hex()
