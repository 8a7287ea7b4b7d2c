"""One suite for the encoder port, run on the fake, on ONNX Runtime in both precisions and on sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from analytics.cluster_radius import MINILM_FP32_FINGERPRINT, MINILM_INT8_FINGERPRINT
from connectors.encoders import Encoder, build_encoder
from connectors.encoders.export import PRECISIONS, export
from connectors.encoders.fake import FakeEncoder
from connectors.encoders.onnx import OnnxEncoder
from connectors.metrics import MetricName, SilentMetrics
from connectors.settings import EncoderSettings, Precision

TEXTS = [
    "",
    " ",
    "a",
    "How do I reset my PIN?",
    "how do i reset my pin",
    "My card was charged twice for the same hotel booking in Lisbon, what should I do now?",
    "Wie setze ich meine PIN zurück? Größe, Maß, naïve café",
    "私のカードはまだ届いていません。",
    "🙂🙃 emoji \u200b and zero width \ufeff",
    "line\nbreaks\tand\0controls\x7f",
    "x" * 2_000,
    "Why is the transfer still pending? " * 40,
    *[f"question number {n} about topic {n % 7} with {'more ' * (n % 23)}words" for n in range(30)],
]


@cache
def onnx_folder(precision: Precision) -> Path:
    """The project's own export, made once: `.cache` is kept between runs."""
    folder = Path(__file__).parents[2] / EncoderSettings().model
    export(folder, precision)
    return folder


@cache
def onnx_encoder(precision: Precision) -> Encoder:
    return build_encoder(EncoderSettings(model=onnx_folder(precision), precision=precision))


@cache
def reference_encoder() -> Encoder:
    return build_encoder(EncoderSettings(backend="reference"))


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "fake": FakeEncoder,
    "fp32": lambda: onnx_encoder("fp32"),
    "int8": lambda: onnx_encoder("int8"),
    "reference": reference_encoder,
}


@pytest.fixture(
    params=[*(name for name in ENCODERS if name != "reference"), pytest.param("reference", marks=pytest.mark.slow)]
)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return ENCODERS[request.param]()


def test_vectors_are_float32_rows_of_length_one(encoder: Encoder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_no_text_gives_no_row(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dimension)


@pytest.mark.slow
def test_vector_depends_on_its_text_alone_bit_by_bit(encoder: Encoder) -> None:
    together = encoder.encode(TEXTS)
    assert np.array_equal(together, np.vstack([encoder.encode([text]) for text in TEXTS]))
    assert np.array_equal(together[::-1], encoder.encode(TEXTS[::-1]))
    shuffled = np.random.default_rng(1).permutation(len(TEXTS))
    for size in (3, 7):
        for start in range(0, len(TEXTS), size):
            part = shuffled[start : start + size]
            assert np.array_equal(together[part], encoder.encode([TEXTS[n] for n in part]))


def test_order_of_rows_is_the_order_of_texts(encoder: Encoder) -> None:
    first, second = encoder.encode(["a card", "a much longer text about transfers"])
    second_again, first_again = encoder.encode(["a much longer text about transfers", "a card"])
    assert np.array_equal(first, first_again)
    assert np.array_equal(second, second_again)
    assert float(first @ second) < 0.9


def test_text_beyond_the_limit_is_cut_at_its_end(encoder: Encoder) -> None:
    start = "transfer " * 300
    first, second = encoder.encode([start, start + "hotel " * 300])
    assert np.array_equal(first, second)


def test_lone_surrogate_is_a_text_too(encoder: Encoder) -> None:
    vectors = encoder.encode(["\ud800 broken", "? broken"])
    assert np.array_equal(vectors[0], vectors[1])


def test_what_is_no_text_is_refused(encoder: Encoder) -> None:
    with pytest.raises(TypeError, match="strings"):
        encoder.encode([None])  # type: ignore[list-item]


def test_fingerprint_is_32_hex_digits(encoder: Encoder) -> None:
    assert len(encoder.fingerprint) == 32
    assert int(encoder.fingerprint, 16) >= 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_paraphrase_is_nearer_than_another_question(precision: Precision) -> None:
    pin, same, other = onnx_encoder(precision).encode(
        ["How do I reset my PIN?", "I need to change my PIN", "What is the exchange rate today?"]
    )
    assert pin @ same > 0.6 > 0.4 > pin @ other


@pytest.mark.parametrize(
    ("precision", "fingerprint"), [("fp32", MINILM_FP32_FINGERPRINT), ("int8", MINILM_INT8_FINGERPRINT)]
)
def test_onnx_fingerprint_is_the_same_on_every_machine(precision: Precision, fingerprint: str) -> None:
    encoder = onnx_encoder(precision)
    assert encoder.fingerprint == fingerprint
    assert OnnxEncoder(onnx_folder(precision), precision, max_tokens=128).fingerprint != fingerprint


class CountedCalls(SilentMetrics):
    """How often the model was called."""

    def __init__(self) -> None:
        self.calls = 0

    def observe(self, name: MetricName, seconds: float, /, **labels: str) -> None:
        super().observe(name, seconds, **labels)
        self.calls += name == "stoker_encoder_batch_seconds"


def test_texts_of_like_length_share_a_model_call() -> None:
    metrics = CountedCalls()
    encoder = OnnxEncoder(onnx_folder("int8"), "int8", batch=4, metrics=metrics)
    encoder.encode(["a card", "a fee", "transfer " * 20, "two cards", "the fees", "my card"])
    assert metrics.calls == 3


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("batch", [1, 64])
def test_batch_size_and_threads_change_no_bit(batch: int, precision: Precision) -> None:
    other = OnnxEncoder(onnx_folder(precision), precision, batch=batch, threads=2)
    assert np.array_equal(other.encode(TEXTS), onnx_encoder(precision).encode(TEXTS))


def test_int8_is_near_fp32() -> None:
    cosines = (onnx_encoder("int8").encode(TEXTS) * onnx_encoder("fp32").encode(TEXTS)).sum(axis=1)
    assert cosines.mean() >= 0.99
    assert cosines.min() >= 0.97  # the empty text
    assert cosines[3:].min() >= 0.98


@pytest.mark.slow
def test_onnx_agrees_with_sentence_transformers() -> None:
    cosines = (onnx_encoder("fp32").encode(TEXTS) * reference_encoder().encode(TEXTS)).sum(axis=1)
    assert cosines.min() >= 0.999
    assert onnx_encoder("fp32").fingerprint == reference_encoder().fingerprint
