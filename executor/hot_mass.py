"""The hot mass of each replica: tokens of the prefixes that warm-ups keep there, and of those asked for and not there.

It is what every executor can know of every replica, from the commands and outcomes that all of them hear. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from analytics.statements import verdict_of
from executor.memory import Recent
from schemas import Prefix, WarmupCommand, WarmupOutcome
from schemas.canonical import outcome_id

REPLICAS_BOUND = 1_024
"""Replicas of which something is kept: commands may name anything."""


class Entry(NamedTuple):
    """A prefix on a replica: there since a warm-up was done with it, or asked for since a command was issued."""

    tokens: int
    at_ms: int
    until_ms: int


class Mass(NamedTuple):
    """Hot tokens of a replica: those that are there, and those that were asked for there and are not."""

    held: int
    lacking: int


class _Prefixes:
    """One replica's, by scope and target key."""

    def __init__(self, bound: int) -> None:
        self.held: Recent[tuple[str, str], Entry] = Recent(bound)
        self.wanted: Recent[tuple[str, str], Entry] = Recent(bound)


class HotMass:
    """The hot mass of all replicas, in wall time.

    Args:
        stay_ms: for how long a prefix of a scope counts as hot and there, from when a warm-up was done with it.
        ended: whether the outcome of an id is known: topics are heard in no common order.
        bound: prefixes kept of a replica, of each kind; the one heard of longest ago is dropped first.
    """

    def __init__(self, stay_ms: Callable[[str], int], ended: Callable[[str], bool], bound: int) -> None:
        self._stay_ms = stay_ms
        self._ended = ended
        self._bound = bound
        self._replicas: Recent[str, _Prefixes] = Recent(REPLICAS_BOUND)

    def asked(self, command: WarmupCommand) -> None:
        """A command was heard. What names no replica, or is not to be applied, asks for nothing."""
        target = command.target
        if not isinstance(target, Prefix) or command.action != "warm" or command.arm != "warm" or command.shadow:
            return
        wanted = Entry(max(1, target.tokens), command.issued_at_ms, command.expires_at_ms)
        for replica in command.replicas.names or ():
            if not self._ended(outcome_id(command.command_id, replica)):
                self._of(replica).wanted.put((command.scope, command.target_key), wanted)

    def heard(self, outcome: WarmupOutcome) -> None:
        """An outcome was heard. What failed and may be tried again is wanted until its command expires."""
        if not outcome.target_key.startswith("prefix:") or outcome.action != "warm":
            return
        key, present = (outcome.scope, outcome.target_key), outcome.status in ("applied", "resident")
        of, verdict = self._of(outcome.replica), verdict_of(outcome)
        if not (present or verdict.served or verdict.refused or verdict.contentless or outcome.status == "cancelled"):
            return
        wanted = of.wanted.pop(key)
        if present:
            told = outcome.tokens_warmed + outcome.tokens_already_resident
            tokens = told or (1 if wanted is None else wanted.tokens)
            until_ms = outcome.finished_at_ms + self._stay_ms(outcome.scope)
            of.held.put(key, Entry(tokens, outcome.finished_at_ms, until_ms))

    def of(self, replica: str, since_ms: int, now_ms: int) -> Mass:
        """A replica's mass, of what was done and asked for there since a time."""
        prefixes = self._replicas.get(replica)
        if prefixes is None:
            return Mass(0, 0)
        there = {
            key: held.tokens for key, held in prefixes.held.items() if held.at_ms >= since_ms and held.until_ms > now_ms
        }
        lacking = (
            wanted.tokens
            for key, wanted in prefixes.wanted.items()
            if wanted.at_ms >= since_ms and wanted.until_ms > now_ms and key not in there
        )
        return Mass(sum(there.values()), sum(lacking))

    def forget(self, replica: str) -> None:
        """A replica has left."""
        self._replicas.pop(replica)

    def _of(self, replica: str) -> _Prefixes:
        prefixes = self._replicas.get(replica) or _Prefixes(self._bound)
        self._replicas.put(replica, prefixes)
        return prefixes
