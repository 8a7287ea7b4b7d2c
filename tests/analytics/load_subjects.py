"""The forecast of load under the laws of `test_laws.py`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from analytics.load_forecast import LoadForecast
from tests.analytics.lives import Life, Subject
from tests.analytics.subjects import Make, snapshotted, stream


def arrival(most: int) -> Make:
    """Some requests, and a look at what is forecast."""

    def make(chance: random.Random, at_ms: int, _number: int) -> Callable[[Life], Any]:
        count = chance.randint(1, most)

        def hear(life: Life) -> Any:
            life.object.arrived(at_ms, count)
            return [life.object.look(life.now_ms)]

        return hear

    return make


forecast = Subject(
    LoadForecast,
    snapshotted(LoadForecast),
    lambda live, _: live.snapshot(),
    stream(arrival(3), 300, 400),
    stream(arrival(1_000), 5_000),
    lambda said, left: (said, left),
)
