"""The bench of the encoder, in a short form over encoders without a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import stoker.bench.embed as bench
from connectors.encoders import Matrix
from connectors.encoders.export import PRECISIONS
from connectors.encoders.fake import FakeEncoder

TEXTS = [f"question {number}" for number in range(40)]
INTENTS = [str(number % 2) for number in range(40)]


def test_it_measures_every_figure_and_equal_encoders_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "questions", lambda count: (TEXTS[:count], INTENTS[:count]))
    monkeypatch.setattr(bench, "reference", lambda: FakeEncoder(16).encode)
    monkeypatch.setattr(bench, "exported", lambda _precision: FakeEncoder(16).encode)
    figures = {figure.name: figure for figure in bench.run(events=40).figures}
    assert set(figures) == {
        f"{name}.{precision}{calls}"
        for precision in PRECISIONS
        for names, sizes in (
            (("cosine_mean", "cosine_min", "batch_invariance_min", "p10", "p10_loss"), ("",)),
            (("texts_per_s", "vs_reference"), (".calls_of_1", ".calls_of_8", ".calls_of_16", ".calls_of_160")),
            (("p99_ms",), (".calls_of_1", ".calls_of_8", ".calls_of_16")),
        )
        for name in names
        for calls in sizes
    }
    for precision in PRECISIONS:
        assert figures[f"cosine_mean.{precision}"].value == pytest.approx(1)
        assert figures[f"batch_invariance_min.{precision}"].value == 1.0
        assert figures[f"p10_loss.{precision}"].value == 0.0


def test_a_vector_that_depends_on_its_batch_is_found() -> None:
    def encode(texts: Sequence[str]) -> Matrix:
        vectors = np.zeros((len(texts), 2), dtype=np.float32)
        vectors[:, 0], vectors[:, 1] = (1, 0) if len(texts) == 1 else (0.6, 0.8)
        return vectors

    assert bench.batch_invariance(encode, TEXTS[:20], encode(TEXTS)) == pytest.approx(0.6)


def test_precision_counts_neighbours_of_the_own_intent() -> None:
    angles = np.radians([n + (90 if n % 2 else 0) for n in range(24)])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert bench.precision_at_10(vectors, [str(n % 2) for n in range(24)]) == 1.0
    assert bench.precision_at_10(vectors, [str(n) for n in range(24)]) == 0.0
