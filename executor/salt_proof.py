"""Salts on trial: whether a replica keeps apart what is salted apart, before a scope's salted prompt is sent there.

An engine, or a cache behind it, may drop the salt (SGLang with LMCache: sglang #37160). Then one scope's requests hit
what was warmed for another, and a hit can be told from the time to the first token. Or it may cache nothing under a
salt (LMCache without a quota for it), and warming is in vain. One prompt of random tokens, two blocks long, shows both.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from connectors.engines.base import Capabilities, Engine, Tokens
from connectors.metrics import SILENT, MetricSink
from executor.apply.patience import NotSent, before_sending
from executor.apply.salts import SaltStore
from executor.outcomes import Ending
from schemas import OutcomeReason, Prefix, RefusedCommand, Response, StokerError, WarmupCommand

log = logging.getLogger(__name__)

State = Literal["proven", "crosses", "lost", "refused", "untold"]
STATES: tuple[State, ...] = State.__args__  # type: ignore[attr-defined]
FAILED: frozenset[State] = frozenset({"crosses", "lost", "refused"})
LEAST_TOKENS = 16
"""So many random tokens are never cached by chance."""
UNTOLD_BLOCK = 64
ID_RANGE = (300, 4000)
"""Token ids that every vocabulary has."""
TRIES = 3
"""A prompt may be evicted before it is asked for again: `lost` is believed after so many."""
HOLDS_S = 600.0
AGAIN_S = 30.0
"""How long a proof holds, and after which time a replica that failed is tried again. An engine may be started anew with
other flags."""
LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Proof:
    """What a trial of a replica found.

    Attributes:
        state: `proven`; `crosses`: a prompt hits under another salt, or without one; `lost`: it is not found again
            under its own; `refused`: the engine takes no salts; `untold`: it does not say what it finds.
        why: one line for a person, without any salt.
    """

    state: State
    why: str = ""

    @property
    def failed(self) -> bool:
        """Whether salted prompts are not to be warmed there."""
        return self.state in FAILED


def unit_of(block_tokens: int | None) -> int:
    """Half of the trial's prompt, less its last token: whole blocks, and enough tokens not to be there by chance."""
    block = block_tokens or UNTOLD_BLOCK
    return block * -(-LEAST_TOKENS // block)


def fresh_ids(count: int) -> list[int]:
    """Random token ids."""
    low, high = ID_RANGE
    return [low + secrets.randbelow(high - low) for _ in range(count)]


def judged(first: int | None, other: int | None, bare: int | None, own: int | None, block_tokens: int | None) -> Proof:
    """What four requests with the same fresh prompt say. Pure.

    Args:
        first: cached tokens of the first one, under a salt. other: under another one. bare: without any.
        own: under the first salt again.
        block_tokens: of the engine; None where it does not tell.
    """
    unit = unit_of(block_tokens)
    if first is None or other is None or bare is None or own is None:
        return Proof("untold", "the engine gives no usage details")
    if first >= unit:
        return Proof("untold", f"{first} tokens of a prompt that nobody has sent count as cached")
    if other >= unit:
        return Proof("crosses", f"{other} tokens that were cached under one salt were found under another")
    if bare >= unit:
        return Proof("crosses", f"{bare} tokens that were cached under a salt were found without one")
    if own >= unit:
        return Proof("proven")
    if block_tokens is None:
        return Proof("untold", "nothing was found again, and the engine does not tell how long a block is")
    return Proof("lost", "nothing is found again under the salt that it was cached under")


class SaltProofs:
    """The proofs of all replicas, as this executor has them.

    Args:
        engines: of each replica that is there, by name.
        replicas: names of those that take warm-ups now.
        may_ask: whether trials may be sent ahead of any command.
        clock_s: monotonic.
        draw: so many random token ids.
        timeout_s: of one request.
    """

    def __init__(
        self,
        salts: SaltStore,
        engines: Mapping[str, Engine],
        replicas: Callable[[], Iterable[str]],
        may_ask: Callable[[], bool],
        clock_s: Callable[[], float],
        draw: Callable[[int], Sequence[int]],
        timeout_s: float,
        metrics: MetricSink = SILENT,
    ) -> None:
        self._salts = salts
        self._engines = engines
        self._replicas = replicas
        self._may_ask = may_ask
        self._clock_s = clock_s
        self._draw = draw
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._held: dict[str, tuple[Engine, Proof, float]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._asked = 0

    async def run(self) -> None:
        """Tries each replica when it comes, and again when its proof is old, until cancelled."""
        while True:
            self._forget_gone()
            if self._salts and self._may_ask():
                stale = [replica for replica in self._replicas() if self._fresh(replica) is None]
                await asyncio.gather(*(self._ahead(replica) for replica in stale))
            await asyncio.sleep(LOOK_EVERY_S)

    async def refusal(self, command: WarmupCommand, replica: str) -> Ending | None:
        """How a command ends that must not be applied on a replica because of its salt; None where it may be.

        A replica without a fresh proof is tried now. One that sleeps is not, and the applier says so.

        Raises:
            NotSent: the engine did not answer; asking again may help.
        """
        salt_ref = _salt_ref(command)
        if salt_ref is None or self._salts.find(command.scope, salt_ref) is None:
            return None
        try:
            with before_sending():
                proof = await self._proof(replica)
        except NotSent as fault:
            raise NotSent(f"how it keeps salts could not be tried: {fault}") from fault
        except StokerError as fault:
            error = f"how it keeps salts could not be tried: {fault}"
            return Ending("failed", OutcomeReason.ENGINE_UNAVAILABLE, error=error)
        if proof is None or not proof.failed:
            return None
        return Ending("rejected", OutcomeReason.SALT_MISMATCH, error=f"{proof.state}: {proof.why}")

    @property
    def failing(self) -> list[str]:
        """Replicas where nothing salted is warmed, and why."""
        return [f"{name}: salts: {proof.why}" for name, (_, proof, _) in sorted(self._held.items()) if proof.failed]

    async def _ahead(self, replica: str) -> None:
        try:
            await self._proof(replica)
        except StokerError as fault:
            log.info("salts on %s not tried yet: %s", replica, fault)

    def _fresh(self, replica: str) -> Proof | None:
        engine, proof, until_s = self._held.get(replica, (None, None, 0.0))
        return proof if engine is self._engines.get(replica) and self._clock_s() < until_s else None

    def _forget_gone(self) -> None:
        for replica in [name for name in self._locks if name not in self._engines]:
            self._held.pop(replica, None)
            del self._locks[replica]

    async def _proof(self, replica: str) -> Proof | None:
        """The proof of a replica, made now if there is no fresh one; None where it sleeps or has left.

        Raises:
            TransientFault: the engine did not answer.
        """
        async with self._locks.setdefault(replica, asyncio.Lock()):
            engine, held = self._engines.get(replica), self._fresh(replica)
            if held is not None or engine is None or await engine.is_sleeping():
                return held
            proof = await self._tried(replica, engine)
            if self._engines.get(replica) is engine:
                self._keep(replica, engine, proof)
            return proof

    def _keep(self, replica: str, engine: Engine, proof: Proof) -> None:
        before = self._held.get(replica)
        self._held[replica] = (engine, proof, self._clock_s() + (AGAIN_S if proof.failed else HOLDS_S))
        for state in STATES:
            level = float(state == proof.state)
            self._metrics.level("stoker_executor_salts_state_count", level, replica=replica, state=state)
        if before is None or before[1] != proof:
            tell = log.warning if proof.state != "proven" else log.info
            tell("salts on %s: %s %s", replica, proof.state, proof.why)

    async def _tried(self, replica: str, engine: Engine) -> Proof:
        able = await engine.capabilities()
        proof = Proof("untold")
        for _ in range(TRIES):
            try:
                proof = await self._one_trial(replica, engine, able)
            except RefusedCommand as refusal:
                return Proof("refused", f"the engine refuses a salted prompt: {refusal}")
            if proof.state != "lost":
                break
        return proof

    async def _one_trial(self, replica: str, engine: Engine, able: Capabilities) -> Proof:
        """Asks for the other salts before its own: each request leaves the prompt behind under its salt."""
        one, another = self._salts.pair()
        length = 2 * unit_of(able.block_tokens) + 1
        if not able.models or (able.max_prompt_tokens or length) < length:
            return Proof("untold", f"no prompt of {length} tokens can be sent")
        ids = tuple(self._draw(length))
        found: list[int | None] = []
        for salt in (one, another, None, one):
            self._asked += 1
            warmed = await engine.resident(
                able.models[0],
                Tokens(ids),
                salt=salt,
                request_id=f"probe-salt-{replica}-{self._asked}",
                timeout_s=self._timeout_s,
            )
            found.append(warmed.cached_tokens)
        first, other, bare, own = found
        return judged(first, other, bare, own, able.block_tokens)


def _salt_ref(command: WarmupCommand) -> str | None:
    target = command.target
    prompt = target.prompt if isinstance(target, Response) else target
    return prompt.render.salt_ref if isinstance(prompt, Prefix) else None
