"""Watching one replica: its KV events, its metrics, its residency. Only the holder of the replica's lease does this."""

from __future__ import annotations

import asyncio
import logging
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import structs

from connectors.engines.base import Engine, EngineMetrics, Messages, Tokens
from connectors.metrics import SILENT, MetricSink
from connectors.redis.base import AsyncBlobs
from executor.apply.content import Unusable, prompt_of
from executor.apply.salts import SaltStore
from executor.braking import Braking
from executor.publisher import Publisher
from executor.readiness import Readiness
from executor.residency import ResidencyBook, Watched
from executor.settings import ExecutorSettings
from executor.tasks import side_by_side
from executor.telemetry import Sampler
from schemas import (
    Prefix,
    RefusedCommand,
    ReplicaSample,
    Residency,
    StokerError,
    TransientFault,
    WarmupCommand,
    WarmupOutcome,
)
from schemas.canonical import adapter_name, adapter_parts

log = logging.getLogger(__name__)

PAUSE_AFTER_FAULT_S = 0.5
LOOK_AGAIN_S = 30.0
PROBES = 5
"""Attempts at the first token of a replica that has just become ready."""
BUSY_SHARE = 0.1
"""At most this share of the loop's time goes into looking watched prefixes up."""


@dataclass(frozen=True)
class Prefixed:
    """A prefix that some executor warmed on this replica, or found there."""

    command: WarmupCommand
    outcome: WarmupOutcome


class ReplicaWatch:
    """Everything that the lease-holder of a replica says about it, and the first token that it asks of a new one.

    Attributes:
        draining: the replica is about to go, as its source says.

    Args:
        may_probe: whether that token may be asked for now.
        now_ms: wall clock.
        braking: told of each look and event.
    """

    def __init__(
        self,
        replica: str,
        pool: str,
        engine: Engine,
        blobs: AsyncBlobs,
        salts: SaltStore,
        publisher: Publisher,
        settings: ExecutorSettings,
        follow_events: bool,
        may_probe: Callable[[], bool],
        now_ms: Callable[[], int],
        braking: Braking,
        metrics: MetricSink = SILENT,
        zone: str | None = None,
    ) -> None:
        self.replica = replica
        self.draining = False
        self._engine = engine
        self._blobs = blobs
        self._salts = salts
        self._publisher = publisher
        self._settings = settings
        self._follow_events = follow_events
        self._may_probe = may_probe
        self._now_ms = now_ms
        self._braking = braking
        self._metrics = metrics
        self._sampler = Sampler(replica, pool, zone)
        self._book = ResidencyBook(replica, pool, settings.watched_prefixes, lambda: time.time_ns() // 1_000)
        self._changed = asyncio.Event()
        self._prefixes: asyncio.Queue[Prefixed] = asyncio.Queue(settings.watched_prefixes)
        self._began_ms = now_ms()
        self._stored_before = (0, time.monotonic())
        self._readiness = Readiness()
        self._new = asyncio.Event()
        self._adapters: tuple[str, ...] = ()
        self._refusal: str | None = None

    def offer(self, prefixed: Prefixed) -> None:
        """A prefix to watch. When too many wait, this one is left out: it is an estimate, not an account."""
        if not self._prefixes.full():
            self._prefixes.put_nowait(prefixed)

    def touched(self, outcome: WarmupOutcome) -> None:
        """An adapter that some executor loaded here, or found: its slot was used at that time."""
        name = adapter_name(*adapter_parts(outcome.target_key.removeprefix("adapter:")))
        self._sampler.levels.touched(name, outcome.finished_at_ms / 1000)

    async def run(self) -> None:
        """Works until cancelled."""
        works = [self._sample_forever(), self._probe_forever(), self._learn_forever(), self._tell_forever()]
        await side_by_side([*works, *([self._follow_forever()] if self._follow_events else [])])

    async def _sample_forever(self) -> None:
        while True:
            begun = time.monotonic()
            try:
                await self._publisher.sample(await self._sample())
            except StokerError as fault:
                log.warning("sample of %s not published: %s", self.replica, fault)
            pause = self._settings.telemetry_ms / 1000 - (time.monotonic() - begun)
            await asyncio.sleep(max(0.05, pause))

    async def _sample(self) -> ReplicaSample:
        metrics = await self._looked()
        before = self._sampler.incarnations.name
        sample = self._sampler.sample(metrics, self._now_ms(), self._allocations_per_s(), self._adapters)
        if before is not None and sample.incarnation != before:
            log.warning("engine %s lives anew: everything it held counts as lost", self.replica)
            self._book.on_restart()
            self._changed.set()
        self._braking.looked(self.replica, metrics, sample)
        if self.draining and sample.state == "ready":
            sample = structs.replace(sample, state="draining")
        if self._readiness.became(sample, 0.0 if metrics is None else metrics.ttft_s.count):
            self._new.set()
        self._metrics.level("stoker_executor_replica_ready_count", float(sample.state == "ready"), replica=self.replica)
        return sample

    async def farewell(self) -> None:
        """The replica has left: its last sample says so, so that nobody plans for it until its samples are old."""
        if self._sampler.incarnations.name is None:
            return
        try:
            await self._publisher.sample(self._sampler.sample(None, self._now_ms(), None))
        except StokerError as fault:
            log.warning("last sample of %s not published: %s", self.replica, fault)

    async def _looked(self) -> EngineMetrics | None:
        """The engine's metrics, and beside them what it lists; None if it did not answer."""
        try:
            async with asyncio.timeout(max(1.0, self._settings.telemetry_ms / 1000)):
                metrics, listed = await asyncio.gather(
                    self._engine.metrics(), self._engine.adapters(), return_exceptions=True
                )
        except TimeoutError:
            return None
        for answer in (metrics, listed):
            if isinstance(answer, BaseException) and not isinstance(answer, StokerError):
                raise answer
        if not isinstance(listed, BaseException):
            self._adapters = tuple(adapter.name for adapter in listed)
        refusal = str(metrics) if isinstance(metrics, RefusedCommand) else None
        if refusal is not None and refusal != self._refusal:
            log.warning("%s cannot be watched: %s", self.replica, refusal)
        self._refusal = refusal
        return None if isinstance(metrics, BaseException) else metrics

    async def _probe_forever(self) -> None:
        while True:
            await self._new.wait()
            self._new.clear()
            if self._may_probe():
                await self._probe()

    async def _probe(self) -> None:
        """Asks for one token, so that what an engine builds at its first request is built. It is no user's request: it
        goes past the gateway, so no event tells of it, and its name begins with `probe`."""
        begun, request_id = time.monotonic(), f"probe-{self.replica}-{self._now_ms()}"
        result = "failed"
        for _ in range(PROBES):
            try:
                timeout_s = self._settings.request_timeout_ms / 1000
                await self._engine.probe(None, request_id=request_id, timeout_s=timeout_s)
                result = "answered"
                break
            except TransientFault as fault:
                log.warning("probe of %s: %s", self.replica, fault)
                await asyncio.sleep(PAUSE_AFTER_FAULT_S)
            except StokerError as refusal:
                log.warning("probe of %s: %s", self.replica, refusal)
                break
        self._metrics.count("stoker_executor_probes_total", replica=self.replica, result=result)
        self._metrics.observe("stoker_executor_probe_seconds", time.monotonic() - begun, replica=self.replica)

    def _allocations_per_s(self) -> float | None:
        if not self._follow_events:
            return None
        (stored, at), now = self._stored_before, time.monotonic()
        self._stored_before = (self._book.blocks_stored, now)
        return round((self._book.blocks_stored - stored) / max(now - at, 1e-3), 3)

    async def _follow_forever(self) -> None:
        while True:
            try:
                able = await self._engine.capabilities()
                self._book.expect(source.rank for source in able.event_sources)
                async for event in self._engine.kv_events():
                    self._book.on_event(event)
                    self._braking.event(self.replica, event)
                    self._changed.set()
                # The engine has no events, or does not yet know that it has.
                await asyncio.sleep(LOOK_AGAIN_S)
            except StokerError as fault:
                log.warning("KV events of %s: %s", self.replica, fault)
                await asyncio.sleep(LOOK_AGAIN_S if isinstance(fault, RefusedCommand) else PAUSE_AFTER_FAULT_S)

    async def _learn_forever(self) -> None:
        while True:
            prefixed = await self._prefixes.get()
            try:
                watched = await self._watched(prefixed)
            except (StokerError, Unusable) as fault:
                log.warning("%s on %s is not watched: %s", prefixed.command.target_key, self.replica, fault)
                continue
            except Exception:
                log.exception("%s on %s is not watched", prefixed.command.target_key, self.replica)
                continue
            self._book.watch(watched)
            self._metrics.level("stoker_executor_watched_prefixes", len(self._book), replica=self.replica)
            self._changed.set()

    async def _watched(self, prefixed: Prefixed) -> Watched:
        command, outcome = prefixed.command, prefixed.outcome
        target = command.target
        assert isinstance(target, Prefix)
        prompt = await prompt_of(self._blobs, command.scope, target)
        if isinstance(prompt, Messages):
            ids = await self._ids(target.model, prompt)
        else:
            assert isinstance(prompt, Tokens)
            ids = tuple(prompt.ids)
        salt = None
        if target.render.salt_ref is not None:
            salt = self._salts.find(command.scope, target.render.salt_ref)
            if salt is None:
                raise RefusedCommand("its salt_ref is not one of its scope in executor.salts")
        inherited = outcome.finished_at_ms < self._began_ms
        reported = 0 if inherited else outcome.tokens_warmed + outcome.tokens_already_resident
        return Watched(
            scope=command.scope,
            target_key=command.target_key,
            ids=array("I", ids),
            adapter=target.adapter,
            salt=None if salt is None else salt.value,
            reported_tokens=reported,
            inherited=inherited,
        )

    async def _ids(self, model: str, prompt: Messages) -> tuple[int, ...]:
        """Its tokens, to find its blocks in the events; none where the engine tells neither: then the account of its
        warm-up is all that is known."""
        try:
            return await self._engine.tokenize(model, prompt)
        except RefusedCommand:
            if (await self._engine.capabilities()).event_sources:
                raise
            return ()

    async def _tell_forever(self) -> None:
        """Deltas, never closer together than the settings say, nor so close that looking up takes the loop's time."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            begun = time.monotonic()
            incarnation = self._sampler.incarnations.name
            if incarnation is not None:
                states = list(self._book.statements(incarnation, self._now_ms()))
                spent = time.monotonic() - begun
                await self._tell(states)
            else:
                spent = 0.0
                self._changed.set()
            await asyncio.sleep(max(self._settings.residency_gap_ms / 1000, spent / BUSY_SHARE))

    async def _tell(self, states: list[Residency]) -> None:
        if not states:
            return
        self._metrics.count("stoker_executor_residency_total", len(states), replica=self.replica)
        try:
            await self._publisher.residency(states)
        except StokerError as fault:
            log.warning("residency of %s not published: %s", self.replica, fault)
