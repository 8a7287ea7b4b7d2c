"""The roster: which replicas there are, from the settings and from what sources tell of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from connectors.discovery import Endpoint, FoundReplicas
from executor.settings import LONGEST_NAME, EngineSettings


@dataclass(frozen=True)
class Member:
    """A replica that is there.

    Attributes:
        draining: it goes on for a while and takes no further warm-ups.
    """

    engine: EngineSettings
    draining: bool = False


@dataclass(frozen=True)
class Changes:
    """What one word of a source changes.

    Attributes:
        joined: new, or of another pool than before.
        moved: the same name at another address or in another zone: not the same engine any more.
        turned: they begin or cease to drain.
        left: gone, as they were last.
        refused: names that a source tells and nobody can use, with the reason.
    """

    joined: tuple[Member, ...] = ()
    moved: tuple[Member, ...] = ()
    turned: tuple[Member, ...] = ()
    left: tuple[Member, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


class Roster:
    """Every replica by its name. Those in the settings stay, whatever sources say.

    Args:
        listed: in the settings.
        sources: what the replicas of each source have in common, in the order in which they are numbered here.
    """

    def __init__(self, listed: Iterable[EngineSettings], sources: Sequence[FoundReplicas] = ()) -> None:
        self._listed = {engine.name: Member(engine) for engine in listed}
        self._sources = tuple(sources)
        self._found: list[tuple[Endpoint, ...] | None] = [None] * len(self._sources)
        self._members = dict(self._listed)

    def get(self, name: str) -> Member | None:
        """The replica of a name."""
        return self._members.get(name)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def names(self, pool: str) -> tuple[str, ...]:
        """Replicas of a pool that take warm-ups."""
        return tuple(name for name, each in self._members.items() if each.engine.pool == pool and not each.draining)

    def takes(self, name: str) -> bool:
        """Whether a replica takes warm-ups."""
        member = self._members.get(name)
        return member is not None and not member.draining

    def may_come(self, name: str, pool: str) -> bool:
        """Whether a source of this pool may tell of a replica that nobody has told of yet. A command that was meant for
        any replica, where there was none, names its pool."""
        return name not in self._members and name != pool and any(source.pool == pool for source in self._sources)

    def awaited(self, pool: str) -> bool:
        """Whether a source of this pool has not said anything yet."""
        return any(
            found is None and source.pool == pool for source, found in zip(self._sources, self._found, strict=True)
        )

    def heard(self, source: int, endpoints: tuple[Endpoint, ...]) -> Changes:
        """Takes the list of a source over."""
        before = self._members
        self._found[source] = endpoints
        refused: list[tuple[str, str]] = []
        self._members = dict(self._listed)
        for number, found in enumerate(self._found):
            for endpoint in found or ():
                why = self._unusable(endpoint)
                if why is None:
                    self._members[endpoint.name] = _member(self._sources[number], endpoint)
                elif number == source:
                    refused.append((endpoint.name, why))
        return replace(_between(before, self._members), refused=tuple(refused))

    def _unusable(self, endpoint: Endpoint) -> str | None:
        if len(endpoint.name) > LONGEST_NAME:
            return f"its name is longer than {LONGEST_NAME} characters"
        if endpoint.name in self._listed:
            return "executor.engines lists this name, which goes before"
        if endpoint.name in self._members:
            return "another source has told this name before"
        return None


def _member(source: FoundReplicas, endpoint: Endpoint) -> Member:
    engine = EngineSettings(
        name=endpoint.name,
        url=endpoint.url,
        pool=source.pool,
        zone=(endpoint.zone or "")[:LONGEST_NAME] or None,
        kind=source.kind,
        api_key=source.api_key,
        events=source.events,
    )
    return Member(engine, endpoint.draining)


def _between(before: dict[str, Member], now: dict[str, Member]) -> Changes:
    joined, moved, turned = [], [], []
    left = [member for name, member in before.items() if name not in now]
    for name, member in now.items():
        held = before.get(name)
        if held is None or held.engine.pool != member.engine.pool:
            joined.append(member)
            left += [] if held is None else [held]
        elif held.engine != member.engine:
            moved.append(member)
        elif held.draining != member.draining:
            turned.append(member)
    return Changes(tuple(joined), tuple(moved), tuple(turned), tuple(left))
