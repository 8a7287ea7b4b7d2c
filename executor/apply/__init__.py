"""Applying a command on one replica: what is sent, and how the answer is judged.

An applier returns an `Ending` for whatever it understood, and raises `TransientFault` for what may pass: the worker
decides whether there is time for another call.
"""

from typing import Protocol

from connectors.engines.base import Engine
from executor.apply.adapter import AdapterApplier
from executor.apply.content import SourceFault, StoreFault
from executor.apply.embedding import EmbeddingApplier
from executor.apply.generated import GeneratedApplier
from executor.apply.model import ModelApplier
from executor.apply.prefix import PrefixApplier
from executor.apply.response import ResponseApplier
from executor.apply.salts import SaltStore
from executor.apply.value import Source, ValueApplier
from executor.outcomes import Ending
from schemas import WarmupCommand


class EngineApplier(Protocol):
    """Applies the commands of one kind of target on an engine; each documents what it raises."""

    async def apply(self, command: WarmupCommand, engine: Engine, timeout_s: float) -> Ending:
        """One attempt within so many seconds."""
        ...


class StoreApplier(Protocol):
    """Applies the commands of one kind of target in Redis."""

    async def apply(self, command: WarmupCommand) -> Ending:
        """One attempt.

        Raises:
            StoreFault: Redis or a source does not answer.
        """
        ...


__all__ = [
    "AdapterApplier",
    "EmbeddingApplier",
    "EngineApplier",
    "GeneratedApplier",
    "ModelApplier",
    "PrefixApplier",
    "ResponseApplier",
    "SaltStore",
    "Source",
    "SourceFault",
    "StoreApplier",
    "StoreFault",
    "ValueApplier",
]
