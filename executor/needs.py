"""What a command waits for: `after` names commands whose targets come first (D15). Pure.

The planner names what is under way: model → adapter → prefix, embedding → response. A work is held back until each
named command has its outcome on the same replica. Then it goes, or ends here if what it needs is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from executor.memory import Recent
from executor.orders import Work
from executor.outcomes import Ending
from schemas import OutcomeReason, Response, WarmupCommand
from schemas.warmup_outcome import Status

HEARD_BOUND = 20_000
"""Commands remembered by id, with their replicas: 8 MB."""
UNHEARD_MS = 3_000
"""So long a named command may take to be heard of. The planner sends it first or at the same time, and every executor
reads all commands within a second, so what is not heard by then has left the topic or never was in it."""

MET: frozenset[Status] = frozenset({"applied", "resident", "held_out", "shadow"})
"""Ends of a named command after which the one that needs it goes. What is held out or in shadow was left undone on
purpose; it must not change what another experiment does."""

State = Literal["met", "unheard", "waits", "unmet"]


class Look(NamedTuple):
    """What a look at a command's needs found.

    Attributes:
        state: it may go; it may, though a named command was never heard of; it waits; it is not to be applied.
        command_id: the named command that decided; empty where all is met.
        status: how that one ended, where it has.
    """

    state: State
    command_id: str = ""
    status: Status | None = None


class Needs:
    """The needs of one pool's works, and whether they are met.

    It keeps nothing of the works themselves: each look asks what is known now. So a work may leave the waiting line in
    any way, and nothing is left behind. What a look found to be under way stays so until `ended` is told: a line of
    thousands that wait for one command is passed over at 1 µs each.

    Args:
        status: how a command ended on a replica, as far as it is known; where that changes, `ended` is to be called.
        bound: how many commands are remembered (≥ 1). One that is forgotten counts as never heard of.
    """

    def __init__(self, status: Callable[[str, str], Status | None], bound: int = HEARD_BOUND) -> None:
        self._status = status
        self._heard: Recent[str, tuple[str, ...]] = Recent(bound)
        self._awaited: Recent[tuple[str, str], None] = Recent(bound)

    def hear(self, command: WarmupCommand, replicas: Sequence[str]) -> None:
        """A command of this pool is under way, for these replicas."""
        self._heard.put(command.command_id, tuple(replicas))

    def ended(self, command_id: str, replica: str) -> bool:
        """A command has an outcome on a replica: whether somebody waits for that, so that its line is to be looked at
        again."""
        awaited = (command_id, replica) in self._awaited
        self._awaited.pop((command_id, replica))
        return awaited

    def look(self, command: WarmupCommand, replica: str, arrived_ms: int, now_ms: int) -> Look:
        """What holds for a command on a replica now.

        Only outcomes on the same replica count: a named command that is not for that one is not waited for. One need
        that cannot be met decides at once, whatever the others do.

        Args:
            arrived_ms: wall time at which this executor read it.
        """
        if command.action == "invalidate":
            return Look("met")  # a bad answer does harm for as long as it is served
        found = Look("met")
        for needed in command.after:
            if needed == command.command_id:
                continue
            if (needed, replica) in self._awaited:
                found = Look("waits", needed)
                continue
            status = self._status(needed, replica)
            if status is not None:
                if not _opens(command, status):
                    return Look("unmet", needed, status)
                continue
            named = self._heard.get(needed)
            if named is None and found.state != "waits":
                found = Look("waits" if now_ms < arrived_ms + UNHEARD_MS else "unheard", needed)
            elif named is not None and replica in named:
                self._awaited.put((needed, replica), None)
                found = Look("waits", needed)
        return found

    def admits(self, work: Work, now_ms: int) -> bool:
        """Whether a work that waits may be taken. What somebody began may, and what has expired or cannot be met: it
        is only told so."""
        command = work.command
        if not command.after or work.begun or now_ms >= command.expires_at_ms:
            return True
        for needed in command.after:
            if (needed, work.replica) not in self._awaited:
                break
        else:
            return False
        return self.look(command, work.replica, work.arrived_ms, now_ms).state != "waits"


def unmet(look: Look, command: WarmupCommand, now_ms: int) -> Ending | None:
    """How a command ends whose needs are not met; None where it is to be applied, or may still be."""
    expired = now_ms >= command.expires_at_ms
    if look.state == "unmet":
        error = f"needs {look.command_id}, which is {look.status}"
        return Ending("expired" if expired else "skipped", OutcomeReason.NEEDED_MISSING, error=error)
    if look.state == "waits" and expired:
        error = f"needs {look.command_id}, which has not ended"
        return Ending("expired", OutcomeReason.NEEDED_MISSING, error=error)
    return None


def _opens(command: WarmupCommand, status: Status) -> bool:
    """Whether a named command that ended so lets another go.

    An answer is found by its query's vector, which lies elsewhere: the embedding's cache entry comes first for users'
    sake, and its failure is no reason against the answer. A prefix without its adapter, or either without its engine,
    is refused by the engine at best; at worst the engine fetches by itself what was refused for a reason.
    """
    return status in MET or isinstance(command.target, Response)
