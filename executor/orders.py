"""Orders: a command as this executor holds it, with one piece of work a replica, until all of them are settled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from executor.commits import Place
from schemas import WarmupCommand

Stage = Literal["new", "waiting", "running", "dropped", "settled"]
StopCause = Literal["cancelled", "frozen", "braked", "draining", "departed"]


@dataclass(eq=False)
class Work:
    """One command on one replica.

    Attributes:
        arrived_ms: wall time at which it was admitted; `queued_ms` of its outcome counts from here.
        charged_tokens: what was taken from the scope's quota for it.
        begun: somebody began it before, so that it may be in the engine already.
        stop: why it must not go on; set by whoever stops it, read when it ends.
        task: the running application, while there is one.
    """

    order: Order
    replica: str
    arrived_ms: int
    stage: Stage = "new"
    charged_tokens: int = 0
    begun: bool = False
    stop: StopCause | None = None
    task: asyncio.Task[None] | None = None

    @property
    def command(self) -> WarmupCommand:
        """What is to be done."""
        return self.order.command

    def stop_with(self, cause: StopCause) -> None:
        """Closes it if it runs. The first cause stays, and what is closing already is left to it."""
        if self.stop is None:
            self.stop = cause
            if self.task is not None:
                self.task.cancel()


@dataclass(eq=False)
class Order:
    """A command that was read and is not finished.

    Attributes:
        places: records that carried it: one, or more when it came again while it was still open.
    """

    command: WarmupCommand
    places: list[Place]
    works: list[Work] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Whether every replica's outcome is published."""
        return all(work.stage == "settled" for work in self.works)


class Orders:
    """The open orders of one pool, by command id."""

    def __init__(self) -> None:
        self._open: dict[str, Order] = {}

    def take(self, command: WarmupCommand, place: Place, replicas: Sequence[str], now_ms: int) -> tuple[Order, bool]:
        """The order of this command, and whether it is new. One that is open already only gets a further place."""
        order = self._open.get(command.command_id)
        if order is not None:
            order.places.append(place)
            return order, False
        order = Order(command, [place])
        order.works = [Work(order, replica, now_ms) for replica in replicas]
        self._open[command.command_id] = order
        return order, True

    def close(self, order: Order) -> None:
        """Forget an order: it is finished, or somebody else's now."""
        self._open.pop(order.command.command_id, None)

    def works(self, stages: Iterable[Stage] = ("new", "waiting", "running")) -> list[Work]:
        """All works in these stages."""
        wanted = frozenset(stages)
        return [work for order in self._open.values() for work in order.works if work.stage in wanted]

    def find(self, command_id: str) -> Order | None:
        """The open order of a command."""
        return self._open.get(command_id)

    def __iter__(self) -> Iterator[Order]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)
