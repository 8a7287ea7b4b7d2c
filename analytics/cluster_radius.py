"""The radius of a group belongs to an encoder: how near its vectors of like queries lie (D5).

The reference radius of 0.32 was tuned on a two-tower encoder of 128 numbers. For another encoder it is calibrated: the
distance within which a small share of a reference sample's queries has enough neighbours to be a core. That is the
sorted k-distance plot of DBSCAN's authors (Ester et al. 1996, section 4.2) read at a fixed quantile. A window of
requests holds more queries, and dense ones, so that it wants a radius of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analytics.clustering import MIN_SAMPLES, SPEC_EPS, distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

MINILM_FP32_FINGERPRINT = "e3922ce0080e78cf71f78aa32e7abfd4"
MINILM_INT8_FINGERPRINT = "dfdf8c61ea67f62bfb5188d00eef35a2"
"""The encoder that comes with Stoker, in its two precisions: MiniLM-L6, mean pooling, 256 tokens."""

CALIBRATED_EPS: Mapping[str, float] = MappingProxyType({MINILM_FP32_FINGERPRINT: 0.22, MINILM_INT8_FINGERPRINT: 0.22})
"""By encoder fingerprint: `calibrate_eps` over the training half of Banking77 (77 intents of bank customers)."""

WIDEST_EPS: Mapping[str, float] = MappingProxyType({MINILM_FP32_FINGERPRINT: 0.19, MINILM_INT8_FINGERPRINT: 0.19})
"""By encoder fingerprint, for windows of requests: `widest_eps` over the same sample."""

CORE_SHARE = 0.05
WINDOW = 500
LARGEST_SHARE = 0.05
DISTINCT = 2_500
"""Distinct queries that 10,000 requests ask for, or thereabouts: users repeat themselves and each other."""


def calibrate_eps(
    reference: Sequence[Sequence[float]] | NDArray[Any],
    *,
    window: int = WINDOW,
    min_samples: int = MIN_SAMPLES,
    core_share: float = CORE_SHARE,
) -> float:
    """The radius at which this share of a window of everyday queries is a core.

    How near the k-th neighbour lies depends on how many queries there are, so the sample is dealt into windows of the
    size that will be clustered: every n-th row belongs to one window, which mixes a sample that is sorted by topic. The
    median over the windows is taken.

    Args:
        reference: vectors of distinct queries of many topics, at least `window` of them.
        window: queries that are clustered at a time.
        min_samples: as in `cluster`, itself included.
        core_share: share of the queries that shall be cores. More joins more queries, and topics with each other.

    Raises:
        ValueError: the sample is smaller than a window, or a window no larger than `min_samples`.
    """
    import numpy as np

    rows = np.asarray(reference, dtype=np.float64)
    dealt = len(rows) // window if window > 0 else 0
    if not dealt or window <= min_samples:
        raise ValueError(f"a calibration wants at least {window} vectors and a window above {min_samples}")
    radii = []
    for start in range(dealt):
        apart = distances(rows[start::dealt][:window])
        # The query itself is the first of the sorted distances and counts as the first sample.
        reach = np.partition(apart, min_samples - 1, axis=1)[:, min_samples - 1]
        radii.append(float(np.quantile(reach, core_share)))
    return float(np.median(radii))


def widest_eps(
    reference: Sequence[Sequence[float]] | NDArray[Any],
    *,
    window: int = DISTINCT,
    min_samples: int = MIN_SAMPLES,
    largest_share: float = LARGEST_SHARE,
    digits: int = 3,
) -> float:
    """The widest radius at which groups of everyday queries have not yet run together.

    A wider radius groups more queries, until chains join topics: then one group swallows the window within a few
    hundredths. The radius is the last one before the largest group holds more than `largest_share`. The sample is dealt
    into windows as in `calibrate_eps`, and the median over them is taken.

    Args:
        window: distinct queries that are grouped at a time.
        digits: decimals of the radius.

    Raises:
        ValueError: the sample is smaller than a window, or a window no larger than `min_samples`.
    """
    import numpy as np

    from analytics.density_graph import DensityGraph

    rows = np.asarray(reference, dtype=np.float32)
    dealt = len(rows) // window if window > 0 else 0
    if not dealt or window <= min_samples:
        raise ValueError(f"a calibration wants at least {window} vectors and a window above {min_samples}")

    def grown_together(part: NDArray[Any], eps: float) -> bool:
        graph = DensityGraph(eps, min_samples)
        slots = graph.add(part)
        graph.weights[slots] = 1
        labels = graph.density(slots).labels[slots]
        return bool(np.bincount(labels[labels >= 0], minlength=1).max() > largest_share * window)

    radii = []
    for start in range(dealt):
        part, low, high = rows[start::dealt][:window], 0, 10**digits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if grown_together(part, middle / 10**digits) else (middle, high)
        radii.append(low / 10**digits)
    return float(np.median(radii))


def eps_of(
    fingerprint: str, table: Mapping[str, float] = CALIBRATED_EPS, known: Mapping[str, float] = CALIBRATED_EPS
) -> float:
    """The radius for an encoder: the table's, else the calibrated one that is `known`, else the reference one."""
    return table.get(fingerprint, known.get(fingerprint, SPEC_EPS))
