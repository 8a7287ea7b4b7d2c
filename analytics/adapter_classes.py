"""Classes of adapters and what each is promised, whatever rule chooses who goes (D12): slots, residency, hit ratio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

AdapterClass = Literal["gold", "silver", "bronze"]
CLASSES: tuple[AdapterClass, ...] = ("gold", "silver", "bronze")
CLASS_OF_QOS: Mapping[str, AdapterClass] = {"guaranteed": "gold", "burstable": "silver", "best_effort": "bronze"}


@dataclass(frozen=True)
class ClassFloor:
    """What a class is promised.

    Attributes:
        residency_ms: how long an adapter in one of the class's own slots stays after its last use.
        share: of all slots, 0 to 1. The last class has what the others leave.
        hit_ratio: below it the class is reported; 0 reports nothing. Not in D12: our defaults.
    """

    residency_ms: int
    share: float
    hit_ratio: float


FLOORS: Mapping[AdapterClass, ClassFloor] = {
    "gold": ClassFloor(120_000, 0.35, 0.9),
    "silver": ClassFloor(45_000, 0.18, 0.75),
    "bronze": ClassFloor(0, 0.0, 0.0),
}


def own_slots(slots: int, floors: Mapping[AdapterClass, ClassFloor] = FLOORS) -> dict[AdapterClass, int]:
    """Slots of each class: the floor of its share but at least 1, in order of rank, as far as there are any.

    They always add up to `slots`: the last class has the rest.

    >>> own_slots(16)
    {'gold': 5, 'silver': 2, 'bronze': 9}
    """
    found: dict[AdapterClass, int] = {}
    left = slots
    for name in CLASSES[:-1]:
        # 1e-9: 0.35 · 20 is 7 and not 6.999...
        found[name] = min(left, max(1, int(floors[name].share * slots + 1e-9)))
        left -= found[name]
    found[CLASSES[-1]] = left
    return found
