"""LoRA adapters on an engine: loaded in one exact version after a look at its files, verified, and touched once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from connectors.engines.base import Engine, LoadedAdapter
from executor.apply.adapter_files import CONFIG_FILE, AdapterFiles, AdapterLibrary, NoAdapter
from executor.apply.patience import before_sending
from executor.outcomes import Ending
from schemas import Adapter, OutcomeReason, WarmupCommand
from schemas.canonical import adapter_name
from schemas.fields import MAX_STRING_CHARS

DRAIN_S = 5.0
"""How long an unload waits for requests with the adapter: to take its name away under them makes them fail."""
LOOK_AGAIN_S = 0.2


@dataclass(frozen=True)
class AdapterApplier:
    """Applies Adapter commands: load, pin, unload."""

    library: AdapterLibrary = field(default_factory=AdapterLibrary)

    async def apply(self, command: WarmupCommand, engine: Engine, timeout_s: float) -> Ending:
        """Does what the command asks on one replica. Asking again is harmless.

        Raises:
            TransientFault: the engine did not answer; asking again may help.
            RefusedCommand: the engine said no: no slot, a rank above its limit, another path under the same name.
        """
        target = command.target
        assert isinstance(target, Adapter)
        with before_sending():
            # Asked before anything else: a sleeping engine lets every request wait, the probe of capabilities too.
            if await engine.is_sleeping():
                return Ending("skipped", OutcomeReason.ENGINE_SLEEPING)
            able = await engine.capabilities()
        if not able.runtime_adapters:
            told = "this engine loads no adapters by a call: switched off by its operator, or unsafe in its version"
            return _unsupported(told)
        if command.action == "unload":
            return await _unload(target, engine, timeout_s)
        if command.action == "pin" and not able.adapter_pins:
            return _unsupported("this engine cannot pin an adapter")
        ending = await self._load(command, target, engine, timeout_s)
        if command.action == "pin" and ending.present:
            await engine.pin_adapter(adapter_name(target.name, target.version), timeout_s=timeout_s)
            return Ending("applied", OutcomeReason.DONE, bytes=ending.bytes)
        return ending

    async def _load(self, command: WarmupCommand, target: Adapter, engine: Engine, timeout_s: float) -> Ending:
        name = adapter_name(target.name, target.version)
        with before_sending():
            listed = await _listed(engine, name)
        source = target.source or (None if listed is None else listed.path)
        if source is None:
            return _failed(OutcomeReason.ADAPTER_MISSING, "the command names no source and the engine does not have it")
        try:
            files = await self.library.look(source, with_digest=target.sha256 is not None)
        except NoAdapter as missing:
            return _failed(OutcomeReason.ADAPTER_MISSING, str(missing))
        wrong = files and mismatch(target, files)
        if wrong:
            return wrong
        await engine.load_adapter(name, source, pinned=command.action == "pin", timeout_s=timeout_s)
        if listed is None and await _listed(engine, name) is None:
            return _failed(OutcomeReason.ENGINE_REFUSED, "the engine said that it loaded it and does not list it")
        if files is not None and listed is None and await self._replaced(source, files):
            await engine.unload_adapter(name, timeout_s=timeout_s)
            return _failed(OutcomeReason.DIGEST_MISMATCH, "the weights were replaced while they were loaded; unloaded")
        # Loading builds no kernels, and one that is listed may have left its slot: one token brings both.
        await engine.probe(name, request_id=f"warmup-{command.command_id}", timeout_s=timeout_s)
        size = 0 if files is None else files.bytes
        if listed is not None:
            return Ending("resident", OutcomeReason.ALREADY_RESIDENT, bytes=size)
        if files is None and _tells_more(target):
            unseen = "its source cannot be read from here, so what was announced of it was not compared"
            return Ending("applied", OutcomeReason.UNVERIFIED, error=unseen)
        return Ending("applied", OutcomeReason.DONE, bytes=size)

    async def _replaced(self, source: str, files: AdapterFiles) -> bool:
        try:
            now = await self.library.look(source, with_digest=False)
        except NoAdapter:
            return True
        return now is not None and now.stamp != files.stamp


def mismatch(target: Adapter, files: AdapterFiles) -> Ending | None:
    """What speaks against loading these files for this target; None if nothing does."""
    if target.sha256 is not None:
        wanted = target.sha256.lower().removeprefix("sha256:")
        if files.sha256 != wanted:
            told = f"the weights have sha256 {files.sha256}, announced was {wanted}"
            return _failed(OutcomeReason.DIGEST_MISMATCH, told)
    if target.rank is not None and files.rank is not None and files.rank != target.rank:
        told = f"{CONFIG_FILE} tells rank {files.rank}, announced was {target.rank}"
        return _failed(OutcomeReason.RANK_MISMATCH, told)
    for name, found, announced in (
        ("lora_alpha", files.alpha, target.alpha),
        ("lora_dropout", files.dropout, target.dropout),
        ("target_modules", files.target_modules, tuple(sorted(target.target_modules)) or None),
    ):
        if announced is not None and found is not None and found != announced:
            told = f"{CONFIG_FILE} tells {name} {found}, announced was {announced}"
            return _failed(OutcomeReason.STRUCTURE_MISMATCH, told[:MAX_STRING_CHARS])
    return None


def _tells_more(target: Adapter) -> bool:
    """Whether more was announced than where it lies."""
    told = (target.sha256, target.rank, target.alpha, target.dropout)
    return bool(target.target_modules) or any(each is not None for each in told)


async def _unload(target: Adapter, engine: Engine, timeout_s: float) -> Ending:
    name = adapter_name(target.name, target.version)
    if await _listed(engine, name) is None:
        return Ending("skipped", OutcomeReason.ALREADY_ABSENT)
    if not await _idle(engine, name, min(DRAIN_S, timeout_s / 2)):
        return Ending("skipped", OutcomeReason.ADAPTER_IN_USE, error="requests with it are still in flight")
    await engine.unload_adapter(name, timeout_s=timeout_s)
    if await _listed(engine, name) is not None:
        return _failed(OutcomeReason.ENGINE_REFUSED, "the engine said that it unloaded it and still lists it")
    return Ending("applied", OutcomeReason.DONE)


async def lacking(engine: Engine, adapter: str | None) -> Ending | None:
    """How a prompt ends whose adapter a replica does not list; None where it may be sent.

    Asked right before the prompt: vLLM with a resolver plugin loads an adapter with the first request that names it,
    and would so come by what was held out, or refused by a check or a breaker. Without an adapter nothing is asked.
    """
    if adapter is None or await _listed(engine, adapter) is not None:
        return None
    return Ending("skipped", OutcomeReason.NEEDED_MISSING, error=f"adapter {adapter} is not loaded there")


async def _idle(engine: Engine, name: str, within_s: float) -> bool:
    """Whether no request uses the adapter, now or within some seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        seen = await engine.metrics()
        if name not in seen.busy_adapters or seen.running + seen.waiting == 0:
            return True
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(LOOK_AGAIN_S)


async def _listed(engine: Engine, name: str) -> LoadedAdapter | None:
    return next((adapter for adapter in await engine.adapters() if adapter.name == name), None)


def _failed(reason: OutcomeReason, error: str) -> Ending:
    return Ending("failed", reason, error=error)


def _unsupported(error: str) -> Ending:
    return Ending("rejected", OutcomeReason.UNSUPPORTED, error=error)
