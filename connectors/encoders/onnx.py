"""The encoder of the jobs: ONNX Runtime on the CPU, no torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from connectors.encoders.base import Matrix, encoder_fingerprint
from connectors.encoders.manifest import MODEL_FILE, TOKENIZER_FILE, read_manifest
from connectors.encoders.text import clean
from connectors.metrics import SILENT, MetricSink
from connectors.settings import Precision
from schemas.errors import BrokenConfiguration

PADDED_TO = 4
"""Token sequences are padded to a multiple of this. The pooling product adds tokens in groups of four, so a text's
vector is then the same bits whatever its neighbours' lengths; padded to the longest neighbour one in five was not."""


class OnnxEncoder:
    """`Encoder` on an exported model. Loading checks the files against their manifest.

    Args:
        model: the folder that `connectors.encoders.export` filled.
        precision: which of its models.
        max_tokens: where longer texts are cut.
        threads: of ONNX Runtime; they sleep instead of spinning while there is nothing to do (install.md).
        batch: largest number of texts in one model call.
        metrics: counts texts and times model calls.

    Raises:
        BrokenConfiguration: no complete export of this precision lies there, or the model takes fewer tokens.
    """

    def __init__(
        self,
        model: Path,
        precision: Precision,
        *,
        max_tokens: int = 256,
        threads: int = 1,
        batch: int = 16,
        metrics: MetricSink = SILENT,
    ) -> None:
        manifest = read_manifest(model, precision)
        if max_tokens > manifest.positions:
            raise BrokenConfiguration(f"encoder.max_tokens: {max_tokens}, but the model takes {manifest.positions}")

        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        folder = model / precision
        self._session: Any = onnxruntime.InferenceSession(
            str(folder / MODEL_FILE), options, providers=["CPUExecutionProvider"]
        )
        self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._batch = batch
        self._metrics = metrics
        self._dimension = manifest.dimension
        self._fingerprint = encoder_fingerprint(
            manifest.weights_sha256, manifest.tokenizer_sha256, manifest.pooling, manifest.precision, max_tokens
        )

    @property
    def fingerprint(self) -> str:
        """Names the model; see `Encoder.fingerprint`."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Numbers in one vector."""
        return self._dimension

    def encode(self, texts: Sequence[str]) -> Matrix:
        """One row for each text; see `Encoder.encode`. Texts of like length share a model call.

        Padding costs what text costs, a call of its own about four tokens: sixteen questions as users asked them take
        half as long as in one call that is as wide as the longest.
        """
        # One by one: the tokenizer's own batch call would start a thread pool beside the one we were given.
        tokens = [self._tokenizer.encode(clean(text)).ids for text in texts]
        by_width: dict[int, list[int]] = {}
        for n, row in enumerate(tokens):
            by_width.setdefault(-(-len(row) // PADDED_TO) * PADDED_TO, []).append(n)
        vectors = np.empty((len(tokens), self._dimension), dtype=np.float32)
        for width, alike in by_width.items():
            for start in range(0, len(alike), self._batch):
                rows = alike[start : start + self._batch]
                vectors[rows] = self._run([tokens[n] for n in rows], width)
        self._metrics.count("stoker_encoder_texts_total", len(tokens))
        return vectors

    def _run(self, rows: Sequence[Sequence[int]], width: int) -> Matrix:
        ids = np.zeros((len(rows), width), dtype=np.int64)
        mask = np.zeros_like(ids)
        for n, row in enumerate(rows):
            ids[n, : len(row)] = row
            mask[n, : len(row)] = 1
        began = time.perf_counter()
        (vectors,) = self._session.run(None, {"input_ids": ids, "attention_mask": mask})
        self._metrics.observe("stoker_encoder_batch_seconds", time.perf_counter() - began)
        result: Matrix = vectors
        return result
