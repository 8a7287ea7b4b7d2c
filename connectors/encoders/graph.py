"""A BERT sentence encoder as one ONNX graph: embeddings, layers, mean pooling and normalisation.

Follows the equations of BERT (Devlin et al. 2019, arXiv 1810.04805) in its post-norm form, and Sentence-BERT (Reimers
and Gurevych 2019, arXiv 1908.10084) for the pooling. The three projections of an attention are one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.encoders.builder import Builder
from connectors.encoders.int8 import affine_int8
from connectors.settings import Precision

OPSET = 20
"""First operator set with Gelu."""
IR_VERSION = 10
MASKED = np.float32(-1e9)
"""Added to the score of a padding token: its weight underflows to exactly zero."""
SHORTEST = np.float32(1e-12)
"""Floor of a length that is divided by."""

Weights = Mapping[str, NDArray[Any]]
Affine = Callable[[Builder, str, NDArray[Any], NDArray[Any], str], str]
"""Writes x · matrixᵀ + bias down, for x of batch × token × number; the last argument begins its names."""


@dataclass(frozen=True)
class BertShape:
    """The numbers of a BERT that its weights do not tell."""

    layers: int
    heads: int
    width: int
    epsilon: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> BertShape:
        """From a config.json.

        Raises:
            ValueError: not the kind of BERT that this graph computes.
        """
        wanted = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
        wrong = {key: config.get(key) for key, value in wanted.items() if config.get(key, value) != value}
        if wrong:
            raise ValueError(f"this BERT is of another kind: {wrong}")
        return cls(
            int(config["num_hidden_layers"]),
            int(config["num_attention_heads"]),
            int(config["hidden_size"]),
            float(config["layer_norm_eps"]),
        )


def _affine_fp32(b: Builder, x: str, matrix: NDArray[Any], bias: NDArray[Any], name: str) -> str:
    product = b.node("MatMul", x, b.constant(matrix.T, f"{name}/weight"), name=f"{name}/matmul")
    return b.node("Add", product, b.constant(bias, f"{name}/bias"), name=f"{name}/out")


AFFINE: Mapping[Precision, Affine] = {"fp32": _affine_fp32, "int8": affine_int8}
"""The products of x with the weights, nine tenths of the work, by precision. Everything else is fp32."""


def _norm(b: Builder, x: str, w: Weights, key: str, shape: BertShape) -> str:
    scale, bias = b.constant(w[f"{key}.weight"], f"{key}/scale"), b.constant(w[f"{key}.bias"], f"{key}/bias")
    return b.node("LayerNormalization", x, scale, bias, name=f"{key}/out", axis=-1, epsilon=shape.epsilon)


def _embedded(b: Builder, w: Weights, shape: BertShape) -> str:
    words = b.node("Gather", b.constant(w["embeddings.word_embeddings.weight"], "words"), "input_ids", name="word_rows")
    length = b.node("Shape", "input_ids", name="length", start=1, end=2)
    # Every text is one segment, so the first segment's row is part of every position's.
    table = w["embeddings.position_embeddings.weight"] + w["embeddings.token_type_embeddings.weight"][0]
    rows = b.node("Slice", b.constant(table, "positions"), b.axes(0), length, b.axes(0), name="position_rows")
    return _norm(b, b.node("Add", words, rows, name="embedded"), w, "embeddings.LayerNorm", shape)


def _attention(b: Builder, x: str, mask: str, w: Weights, key: str, shape: BertShape, affine: Affine) -> str:
    parts = [f"{key}.attention.self.{part}" for part in ("query", "key", "value")]
    matrix = np.concatenate([w[f"{part}.weight"] for part in parts])
    bias = np.concatenate([w[f"{part}.bias"] for part in parts])
    joined = affine(b, x, matrix, bias, f"{key}/qkv")
    size = shape.width // shape.heads
    split = b.constant(np.array([0, 0, 3, shape.heads, size], np.int64), "split_shape")
    # (batch, token, 3, head, size) → (3, batch, head, token, size)
    stacked = b.node("Reshape", joined, split, name=f"{key}/split")
    turned = b.node("Transpose", stacked, name=f"{key}/turned", perm=[2, 0, 3, 1, 4])
    query, keys, values = (
        b.node("Gather", turned, b.constant(np.array(n, np.int64), f"index_{n}"), name=f"{key}/{part}")
        for n, part in enumerate(("query", "key", "value"))
    )
    across = b.node("Transpose", keys, name=f"{key}/key_turned", perm=[0, 1, 3, 2])
    scores = b.node("MatMul", query, across, name=f"{key}/scores")
    scale = b.constant(np.float32(size**-0.5), "scale")
    scores = b.node("Mul", scores, scale, name=f"{key}/scaled")
    weights = b.node("Softmax", b.node("Add", scores, mask, name=f"{key}/masked"), name=f"{key}/weights", axis=-1)
    mixed = b.node("MatMul", weights, values, name=f"{key}/mixed")
    merge = b.constant(np.array([0, 0, shape.width], np.int64), "merge_shape")
    merged = b.node(
        "Reshape", b.node("Transpose", mixed, name=f"{key}/back", perm=[0, 2, 1, 3]), merge, name=f"{key}/m"
    )
    output = f"{key}.attention.output.dense"
    return affine(b, merged, w[f"{output}.weight"], w[f"{output}.bias"], f"{key}/attended")


def _layer(b: Builder, x: str, mask: str, w: Weights, key: str, shape: BertShape, affine: Affine) -> str:
    attended = b.node("Add", x, _attention(b, x, mask, w, key, shape, affine), name=f"{key}/residual_1")
    x = _norm(b, attended, w, f"{key}.attention.output.LayerNorm", shape)
    wide = affine(b, x, w[f"{key}.intermediate.dense.weight"], w[f"{key}.intermediate.dense.bias"], f"{key}/wide")
    bent = b.node("Gelu", wide, name=f"{key}/gelu")
    narrow = affine(b, bent, w[f"{key}.output.dense.weight"], w[f"{key}.output.dense.bias"], f"{key}/narrow")
    return _norm(b, b.node("Add", x, narrow, name=f"{key}/residual_2"), w, f"{key}.output.LayerNorm", shape)


def _pooled(b: Builder, x: str, present: str) -> str:
    """Mean over the text's tokens, then length one.

    Both sums are products of one row with one matrix for each text: ONNX Runtime's own reductions add in another order
    when the batch holds one text than when it holds several, and a vector must not depend on its batch.
    """
    row = b.node("Unsqueeze", present, b.axes(1), name="present_row")
    total = b.node("MatMul", row, x, name="total")
    count = b.node("MatMul", row, b.node("Unsqueeze", present, b.axes(2), name="present_column"), name="count")
    mean = b.node("Div", total, count, name="mean")
    column = b.node("Transpose", mean, name="mean_column", perm=[0, 2, 1])
    length = b.node("Sqrt", b.node("MatMul", mean, column, name="mean_square"), name="mean_length")
    floor = b.node("Max", length, b.constant(SHORTEST, "shortest"), name="mean_length_floored")
    unit = b.node("Div", mean, floor, name="unit")
    return b.node("Squeeze", unit, b.axes(1), name="sentence_embedding")


def sentence_encoder(weights: Weights, shape: BertShape, precision: Precision) -> Any:
    """The model: inputs `input_ids` and `attention_mask` (int64, batch × token), output `sentence_embedding`.

    Args:
        weights: float32 arrays by their Hugging Face names, without the `bert.` prefix.

    Returns:
        an `onnx.ModelProto`, checked.
    """
    import onnx
    from onnx import TensorProto, helper

    b = Builder()
    present = b.node("Cast", "attention_mask", name="present", to=TensorProto.FLOAT)
    absent = b.node("Sub", b.constant(np.float32(1), "one"), present, name="absent")
    lowered = b.node("Mul", absent, b.constant(MASKED, "masked"), name="lowered")
    mask = b.node("Unsqueeze", lowered, b.axes(1, 2), name="mask")
    x = _embedded(b, weights, shape)
    for layer in range(shape.layers):
        x = _layer(b, x, mask, weights, f"encoder.layer.{layer}", shape, AFFINE[precision])
    _pooled(b, x, present)

    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "token"])
        for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", shape.width])
    graph = helper.make_graph(b.nodes, "sentence_encoder", inputs, [output], list(b.constants.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model
