"""Warming a business value: its loader gives it, Redis holds it for its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import Values
from connectors.values import Loader, LoaderSettings
from executor.apply.content import STORE_FAULTS, SourceFault, StoreFault
from executor.apply.value_batches import Batches
from executor.outcomes import Ending
from schemas import OutcomeReason, RefusedCommand, TransientFault, Value, WarmupCommand


@dataclass(frozen=True)
class Source:
    """A loader as the executor uses it: for some scopes, in batches."""

    settings: LoaderSettings
    batches: Batches

    @classmethod
    def of(cls, settings: LoaderSettings, loader: Loader) -> Source:
        """The source that the settings describe."""
        return cls(settings, Batches(loader, settings.batch, settings.gather_ms))


@dataclass(frozen=True)
class ValueApplier:
    """Applies Value commands.

    Attributes:
        sources: by the name that commands ask by.
    """

    sources: Mapping[str, Source]
    values: Values
    metrics: MetricSink = SILENT

    async def apply(self, command: WarmupCommand) -> Ending:
        """Loads the value and stores it for its time, always anew: what is there may be old.

        Raises:
            SourceFault: the source does not answer. StoreFault: Redis does not. Doing it again is harmless.
        """
        target = command.target
        assert isinstance(target, Value)
        source = self.sources.get(target.loader)
        if source is None or not source.settings.serves(command.scope):
            error = f"no loader {target.loader} for this scope in the executor's settings"
            return Ending("rejected", OutcomeReason.LOADER_UNKNOWN, error=error)
        try:
            value = await source.batches.load(command.scope, target.key)
        except TransientFault as fault:
            self._count(target, "unavailable")
            raise SourceFault(str(fault)) from fault
        except RefusedCommand as refusal:
            self._count(target, "failed")
            return Ending("failed", OutcomeReason.LOADER_FAILED, error=str(refusal))
        if not isinstance(value, bytes):
            self._count(target, value)
            return Ending("skipped", OutcomeReason.VALUE_MISSING, error=value)
        try:
            await self.values.put(command.scope, {target.key: value}, target.ttl_ms)
            held = (await self.values.get(command.scope, [target.key])).get(target.key)
        except STORE_FAULTS as fault:
            raise StoreFault(str(fault)) from fault
        if held != value:
            return Ending("applied", OutcomeReason.UNVERIFIED, error="the value could not be read back")
        return Ending("applied", OutcomeReason.DONE, bytes=len(value))

    def _count(self, target: Value, reason: str) -> None:
        self.metrics.count("cache_warmup_key_errors_total", source=target.loader, reason=reason)
