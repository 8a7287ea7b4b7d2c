"""What executors tell each other of brakes: who speaks for a replica says what holds there, the others read it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from analytics.breaker import Brake, State
from connectors.redis.base import Brakes
from executor.braking import FREE, Braking
from schemas import StackFault, TransientFault

log = logging.getLogger(__name__)

LIVES = 5
"""Turns after which a word has ended that was not said again."""
LEAST_LIFE_S = 3.0


class _Word(Struct, frozen=True, tag_field="schema", tag="brake/1"):
    state: State
    share: float
    pressed: bool
    reasons: tuple[str, ...]


def spoken(brake: Brake) -> bytes:
    """A brake as others read it."""
    return msgspec.json.encode(_Word(brake.state, brake.share, brake.pressed, brake.reasons))


def understood(word: bytes) -> Brake:
    """What another executor says. A half-open breaker's one probe is the speaker's: to all others it is open. What
    cannot be read holds nothing back."""
    try:
        said = msgspec.json.decode(word, type=_Word)
    except msgspec.DecodeError:
        return FREE
    state: State = "open" if said.state == "half_open" else said.state
    return Brake(state, 0.0 if state == "open" else said.share, said.pressed, reasons=said.reasons)


class BrakeWords:
    """Tells and hears, turn by turn.

    Args:
        replicas: those of this executor's pools, now.
        turn_ms: pause between two turns, as between two looks at a replica.
    """

    def __init__(self, brakes: Brakes, braking: Braking, replicas: Callable[[], Iterable[str]], turn_ms: int) -> None:
        self._brakes = brakes
        self._braking = braking
        self._replicas = replicas
        self._turn_s = turn_ms / 1000
        self._life_s = max(LEAST_LIFE_S, LIVES * self._turn_s)
        self._held: set[str] = set()
        self._heard_s = time.monotonic()

    async def run(self) -> None:
        """Works until cancelled. While Redis is away what was heard last counts, for as long as a word lives."""
        while True:
            try:
                await self.turn()
                self._heard_s = time.monotonic()
            except (TransientFault, StackFault) as fault:
                log.warning("brakes are neither told nor heard: %s", fault)
                if time.monotonic() - self._heard_s >= self._life_s:
                    self._braking.tell({})
            await asyncio.sleep(self._turn_s)

    async def turn(self) -> None:
        """Says what holds, and once that nothing holds any more; reads what others say.

        Raises:
            TransientFault, StackFault: Redis does not answer.
        """
        watched = self._braking.watched
        held = {replica for replica, brake in watched.items() if brake != FREE}
        said = {replica: spoken(watched[replica]) for replica in held | (self._held & watched.keys())}
        await self._brakes.tell(said, round(self._life_s * 1000))
        self._held = held
        others = [replica for replica in self._replicas() if replica not in watched]
        heard = await self._brakes.told(others)
        self._braking.tell({replica: understood(word) for replica, word in heard.items()})
