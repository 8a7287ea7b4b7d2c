"""The port of discovery: which replicas there are. tests/contracts/test_discovery.py holds every source to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, order=True)
class Endpoint:
    """A replica as a source tells of it. Whether its engine answers is not the source's to say.

    Attributes:
        name: the same for as long as it is the same replica, and no other replica's of this source.
        url: base URL of its API.
        zone: what fails together with it; None where the source does not know.
        draining: it takes no new traffic and will go; nothing is to be warmed there any more.
    """

    name: str
    url: str
    zone: str | None = None
    draining: bool = False


class Discovery(Protocol):
    """One source of replicas."""

    def lists(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        """Whole lists, sorted by name: the first as soon as one is known, then one whenever it is another.

        It does not end. Whatever the source answers, it is asked again: faults are logged and counted here, and what
        was known stays known meanwhile, but only for the source's `keep_s`. Then the list is empty, because an address
        may belong to somebody else by now, who must not be sent a tenant's prompts. The same holds for a source that
        names nobody any more, unless all that it named were draining.
        """

    async def close(self) -> None:
        """Let connections go. Nothing may be asked for afterwards."""
