"""Telemetry: a sample of each replica that this executor speaks for, every second; also the heartbeat of event time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from executor.adapter_levels import AdapterLevels
from schemas import ReplicaSample
from schemas.replica_sample import ReplicaState

TTFT_SPAN = 30
"""Quantiles of the time to first token are over so many samples: with few requests one second shows nothing."""
_DAY_MS = 86_400_000.0


@dataclass
class Incarnations:
    """Tells one life of an engine from the next, by counters that only grow within one.

    Attributes:
        name: of the life seen last; the wall time at which it was first seen, so later ones sort later.
    """

    name: str | None = None
    _prompt_tokens: int = 0
    _observations: float = 0.0

    def seen(self, metrics: EngineMetrics, now_ms: int) -> bool:
        """Takes a look over; True if this is another life than before (the first look is none)."""
        first = self.name is None
        anew = metrics.prompt_tokens < self._prompt_tokens or metrics.ttft_s.count < self._observations
        if first or anew:
            self.name = f"{now_ms:013d}"
        self._prompt_tokens, self._observations = metrics.prompt_tokens, metrics.ttft_s.count
        return anew and not first


@dataclass
class Sampler:
    """Makes samples of one replica out of what its engine says."""

    replica: str
    pool: str
    zone: str | None = None
    incarnations: Incarnations = field(default_factory=Incarnations)
    levels: AdapterLevels = field(default_factory=AdapterLevels)
    _ttft: deque[Histogram] = field(default_factory=lambda: deque(maxlen=TTFT_SPAN))
    _block_tokens: int = 16
    _blocks_total: int | None = None

    def sample(
        self,
        metrics: EngineMetrics | None,
        now_ms: int,
        allocations_per_s: float | None,
        adapters: Sequence[str] = (),
    ) -> ReplicaSample:
        """One sample. `metrics` is None when the engine did not answer: the sample says lost, and time goes on.

        Args:
            allocations_per_s: blocks stored a second, from KV events; None without them.
            adapters: names that the engine lists.
        """
        if metrics is None:
            return self._bare("lost" if self.incarnations.name is not None else "starting", now_ms)
        anew = self.incarnations.seen(metrics, now_ms)
        if anew:
            self._ttft.clear()
            self.levels.restart()
        self._ttft.append(metrics.ttft_s)
        recent = metrics.ttft_s.since(self._ttft[0]) if len(self._ttft) > 1 else metrics.ttft_s
        self._block_tokens = metrics.block_tokens or self._block_tokens
        self._blocks_total = metrics.blocks_total
        return ReplicaSample(
            replica=self.replica,
            pool=self.pool,
            incarnation=self.incarnations.name or f"{now_ms:013d}",
            sampled_at_ms=now_ms,
            state="sleeping" if metrics.sleeping else "ready",
            running=metrics.running,
            waiting=metrics.waiting,
            kv_usage=min(1.0, max(0.0, metrics.kv_usage)),
            blocks_total=metrics.blocks_total,
            block_tokens=self._block_tokens,
            allocations_per_s=allocations_per_s,
            prefix_query_tokens=metrics.prefix_query_tokens,
            prefix_hit_tokens=metrics.prefix_hit_tokens,
            preemptions=metrics.preemptions,
            ttft_p50_ms=_ms(recent.quantile(0.5)),
            ttft_p99_ms=_ms(recent.quantile(0.99)),
            adapters=self.levels.look(adapters, metrics.adapter_used_s, metrics.adapter_slots),
            zone=self.zone,
        )

    def _bare(self, state: ReplicaState, now_ms: int) -> ReplicaSample:
        return ReplicaSample(
            replica=self.replica,
            pool=self.pool,
            incarnation=self.incarnations.name or f"{now_ms:013d}",
            sampled_at_ms=now_ms,
            state=state,
            blocks_total=self._blocks_total,
            block_tokens=self._block_tokens,
            zone=self.zone,
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else min(_DAY_MS, round(seconds * 1000, 3))
