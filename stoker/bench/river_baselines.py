"""river, the baseline of streams of single events: its DBSTREAM beside our groups, its running entropy beside ours.

Both are measured with what favours them: DBSTREAM over its first requests, when it holds few micro-clusters (each one
is compared with every vector, in Python), and the entropy over all that came, since it has none of a window. DBSTREAM
is approximate and names no cores, so that only its speed is compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Sequence
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

ABSENT = "river is not installed, so that nothing was measured against it; `make setup` installs it"


def installed() -> bool:
    """Whether river is there: the benches do without."""
    return find_spec("river") is not None


def dbstream_s(
    vectors: npt.NDArray[np.float32], eps: float, min_samples: int, window: int, stride: int
) -> Sequence[float]:
    """CPU seconds of DBSTREAM for each stride of some vectors, told one at a time.

    Its micro-clusters have our radius, as a distance of unit vectors, and forget by half in half a window; what is weak
    is looked for once a stride. The rest are its defaults.
    """
    from river.cluster import DBSTREAM

    model = DBSTREAM(
        clustering_threshold=math.sqrt(2 * eps),
        fading_factor=2 / window,
        cleanup_interval=stride,
        minimum_weight=min_samples,
    )
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    events = [dict(enumerate(row)) for row in units.tolist()]
    found = []
    for start in range(0, len(events), stride):
        began = time.process_time()
        for event in events[start : start + stride]:
            model.learn_one(event)
        found.append(time.process_time() - began)
    return found


def entropy_us(asked: Iterable[Hashable]) -> float:
    """CPU microseconds an event of river's entropy of all events so far."""
    from river.stats import Entropy

    model, events = Entropy(), list(asked)
    began = time.process_time()
    for event in events:
        model.update(event)
    return (time.process_time() - began) / max(1, len(events)) * 1e6
