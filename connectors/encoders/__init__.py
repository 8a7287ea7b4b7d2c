"""Sentence encoders behind one port: ONNX Runtime for jobs, sentence-transformers to compare with, a fake for tests.

`export` makes the ONNX model from the MiniLM package that is installed with Stoker; nothing is fetched from anywhere.
"""

from connectors.encoders.base import Encoder, Matrix
from connectors.encoders.build import build_encoder

__all__ = ["Encoder", "Matrix", "build_encoder"]
