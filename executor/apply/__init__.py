"""Applying a command on one replica: what is sent, and how the answer is judged.

An applier returns an `Ending` for whatever it understood, and raises `TransientFault` for what may pass: the worker
decides whether there is time for another call.
"""

from executor.apply.content import StoreFault
from executor.apply.embedding import EmbeddingApplier
from executor.apply.prefix import PrefixApplier
from executor.apply.salts import SaltStore

__all__ = ["EmbeddingApplier", "PrefixApplier", "SaltStore", "StoreFault"]
