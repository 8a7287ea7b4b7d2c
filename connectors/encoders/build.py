"""From settings to an encoder."""

from __future__ import annotations

from connectors.encoders.base import Encoder
from connectors.metrics import SILENT, MetricSink
from connectors.settings import EncoderSettings


def build_encoder(settings: EncoderSettings, metrics: MetricSink = SILENT) -> Encoder:
    """The encoder that the settings ask for; loads the model, which takes about a second (reference: ten).

    Raises:
        BrokenConfiguration: no exported model of that precision lies at `settings.model`, or max_tokens is beyond it.
        StackFault: the package with the original model is missing (reference).
    """
    if settings.backend == "reference":
        from connectors.encoders.reference import ReferenceEncoder

        return ReferenceEncoder(max_tokens=settings.max_tokens, threads=settings.threads)
    from connectors.encoders.onnx import OnnxEncoder

    return OnnxEncoder(
        settings.model,
        settings.precision,
        max_tokens=settings.max_tokens,
        threads=settings.threads,
        batch=settings.batch,
        metrics=metrics,
    )
