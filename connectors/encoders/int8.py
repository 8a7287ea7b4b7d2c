"""A product with weights in 8-bit integers, about twice as fast as in fp32.

Weights have one scale for each column, activations one for each token, found from that token alone: a text's vector
depends on no other text of its batch, where ONNX Runtime's own dynamic quantisation has one scale for all of them
(install.md: cosine down to 0.984). The sums are exact, in 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.encoders.builder import Builder

WEIGHT_PEAK = 63
"""Weights are -63 to 63, not -127 to 127. Processors without VNNI multiply bytes with an instruction that adds two
products in 16 bits and saturates there; at most 2 · 255 · 63 = 32,130 fits, so that the sums are the same numbers on
every processor. With full weights they are other, wrong ones on AVX2 (algorithms.md 4: cosine 0.961)."""
TOKEN_PEAK = 127
ZERO = 128
"""Activations are 1 to 255 and this one is zero: ONNX Runtime has fast kernels for unsigned times signed bytes; signed
times signed takes ten times as long."""
SMALLEST = np.float32(1e-12)
"""Floor of a scale, which is divided by."""


def affine_int8(b: Builder, x: str, matrix: NDArray[Any], bias: NDArray[Any], name: str) -> str:
    """Writes x · matrixᵀ + bias down; x and the result are fp32, of batch × token × number."""
    from onnx import TensorProto, helper

    weights = matrix.T.astype(np.float32)
    scale = np.maximum(np.abs(weights).max(axis=0) / WEIGHT_PEAK, SMALLEST)
    weights = np.rint(weights / scale).astype(np.int8)

    # One row for each token of the batch: rows may have scales of their own, tokens of several texts may not.
    texts = b.node("Shape", x, name=f"{name}/texts", start=0, end=2)
    rest = b.constant(np.array([-1], np.int64), "rest")
    rows = b.node(
        "Reshape", x, b.constant(np.array([-1, len(weights)], np.int64), f"rows_{len(weights)}"), name=f"{name}/rows"
    )
    peak = b.node("ReduceMax", b.node("Abs", rows, name=f"{name}/sizes"), b.axes(1), name=f"{name}/peak", keepdims=0)
    step = b.node("Mul", peak, b.constant(np.float32(1 / TOKEN_PEAK), "step_share"), name=f"{name}/step_or_zero")
    step = b.node("Max", step, b.constant(SMALLEST, "smallest"), name=f"{name}/step")
    zero = helper.make_tensor("zero", TensorProto.UINT8, [1], [ZERO])
    zeros = b.node("ConstantOfShape", b.node("Shape", step, name=f"{name}/count"), name=f"{name}/zeros", value=zero)
    quantised = b.node("QuantizeLinear", rows, step, zeros, name=f"{name}/quantised", axis=0)

    factors = b.constant(weights, f"{name}/weight")
    sums = b.node("MatMulInteger", quantised, factors, b.constant(np.uint8(ZERO), "zero"), name=f"{name}/sums")
    product = b.node("Cast", sums, name=f"{name}/sums_fp32", to=TensorProto.FLOAT)
    product = b.node("Mul", product, b.node("Unsqueeze", step, b.axes(1), name=f"{name}/steps"), name=f"{name}/stepped")
    product = b.node("Mul", product, b.constant(scale, f"{name}/scale"), name=f"{name}/matmul")
    moved = b.node("Add", product, b.constant(bias, f"{name}/bias"), name=f"{name}/moved")
    return b.node("Reshape", moved, b.node("Concat", texts, rest, name=f"{name}/shape", axis=0), name=f"{name}/out")
