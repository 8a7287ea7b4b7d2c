"""The radius of a group belongs to an encoder: how near its vectors of like queries lie (D5).

The reference radius of 0.32 was tuned on a two-tower encoder of 128 numbers. For another encoder it is calibrated: the
distance within which a small share of a reference sample's queries has enough neighbours to be a core. That is the
sorted k-distance plot of DBSCAN's authors (Ester et al. 1996, section 4.2) read at a fixed quantile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analytics.clustering import MIN_SAMPLES, SPEC_EPS, distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

MINILM_FINGERPRINT = "e3922ce0080e78cf71f78aa32e7abfd4"
"""The encoder that comes with Stoker: MiniLM-L6, mean pooling, fp32, 256 tokens."""

CALIBRATED_EPS: Mapping[str, float] = MappingProxyType({MINILM_FINGERPRINT: 0.22})
"""By encoder fingerprint: `calibrate_eps` over the training half of Banking77 (77 intents of bank customers)."""

CORE_SHARE = 0.05
WINDOW = 500


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


def eps_of(fingerprint: str, table: Mapping[str, float] = CALIBRATED_EPS) -> float:
    """The radius for an encoder: the table's, else the calibrated one that is known, else the reference one."""
    return table.get(fingerprint, CALIBRATED_EPS.get(fingerprint, SPEC_EPS))
