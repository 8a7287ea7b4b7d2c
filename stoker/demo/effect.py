"""What warming was worth in a run: first touches of warmed and held-out units, by intention to treat.

A *unit* is a prefix family; a request touches the unit that is deepest among its segments. A touch is *eligible* when

1. plain LRU would have lost the family by then: the shadow of the replica's pool, fed with the same requests and no
   warm-ups, does not have it (`shadow`); and
2. a prefix command for the unit, of either arm, was issued earlier in the run.

Neither depends on the unit's arm, so both arms are picked alike. An eligible touch counts for the arm of its unit
whatever became of the commands: too late, failed, displaced again, or not needed. All other requests are the rest;
so are those of scopes that withhold their texts, which can be warmed in neither arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schemas import Arm
from stoker.demo.shadow import PatientShadow, ShadowLru


@dataclass(frozen=True, slots=True)
class Touch:
    """A finished request, as far as the effect is concerned.

    Attributes:
        at_ms: arrival.
        scope: of its tenant.
        segments, tokens: chained hashes and lengths, oldest first.
        ttft_ms: None when it failed before its first token.
        cached_tokens, input_tokens: of the prompt; 0 cached where the engine did not tell.
        due_ms: when the workload wanted it, from its start: the same request has the same in every run of a seed.
        answer_tokens: of its answer.
        latency_ms: until its answer ended.
    """

    at_ms: int
    scope: str
    replica: str
    segments: tuple[str, ...]
    tokens: tuple[int, ...]
    ttft_ms: float | None
    cached_tokens: int
    input_tokens: int
    due_ms: int = 0
    answer_tokens: int = 0
    latency_ms: float = 0.0

    @property
    def family(self) -> str:
        """Its prefix family: what stands before the question, or less where there is less."""
        return self.segments[min(1, len(self.segments) - 1)] if self.segments else ""


@dataclass(frozen=True, slots=True)
class Restart:
    """A replica that came back with an empty cache."""

    at_ms: int
    replica: str


@dataclass(frozen=True, slots=True)
class Issued:
    """A prefix command, as far as the effect is concerned."""

    at_ms: int
    scope: str
    unit: str
    arm: Arm


@dataclass(frozen=True)
class Sample:
    """The touches of one group, in parallel sequences."""

    units: tuple[str, ...] = ()
    ttft_ms: tuple[float, ...] = ()
    cached_tokens: int = 0
    input_tokens: int = 0
    lru_tokens: int = 0

    @property
    def count(self) -> int:
        """Touches with a first token."""
        return len(self.ttft_ms)

    @property
    def distinct_units(self) -> int:
        """Units among them."""
        return len(set(self.units))

    @property
    def hit_rate(self) -> float | None:
        """Share of prompt tokens that were cached; None without requests."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    @property
    def lru_hit_rate(self) -> float | None:
        """The same share in the shadow: what plain LRU alone would have had."""
        return self.lru_tokens / self.input_tokens if self.input_tokens else None

    def quantile_ms(self, share: float) -> float | None:
        """Quantile of the time to first token, linear between order statistics; None without touches."""
        return float(np.quantile(np.asarray(self.ttft_ms), share)) if self.ttft_ms else None

    @property
    def mean_ms(self) -> float | None:
        """Mean time to first token."""
        return float(np.mean(np.asarray(self.ttft_ms))) if self.ttft_ms else None


@dataclass(frozen=True)
class Groups:
    """All touches of a run, each in exactly one group."""

    warmed: Sample
    held_out: Sample
    rest: Sample

    @property
    def everything(self) -> Sample:
        """All of them together: what warming did to the service as a whole."""
        parts = (self.warmed, self.held_out, self.rest)
        return Sample(
            units=tuple(unit for part in parts for unit in part.units),
            ttft_ms=tuple(ttft for part in parts for ttft in part.ttft_ms),
            cached_tokens=sum(part.cached_tokens for part in parts),
            input_tokens=sum(part.input_tokens for part in parts),
            lru_tokens=sum(part.lru_tokens for part in parts),
        )


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A touch, and what plain LRU would have held by then.

    Attributes:
        found: how many of its leading segments.
        lru_tokens: leading tokens, if those of a prompt are there once its first token came.
        most_tokens: the same, if they are there at once. Engines lie between: they let requests in after they came, and
            have a prompt's tokens before anybody sees its first one.
    """

    touch: Touch
    found: int
    lru_tokens: int = 0
    most_tokens: int = 0


def shadowed(
    touches: Iterable[Touch], capacity_tokens: int, restarts: Sequence[Restart] = (), block_tokens: int = 1
) -> list[Shadowed]:
    """All touches in order of arrival, with what plain LRU would have found.

    Args:
        capacity_tokens: size of one replica's pool.
        restarts: what empties a shadow as it empties the replica.
        block_tokens: of the engine.
    """
    shadows: dict[str, tuple[ShadowLru, PatientShadow, PatientShadow]] = {}
    coming = sorted(restarts, key=lambda restart: restart.at_ms)
    out = []
    for touch in sorted(touches, key=lambda touch: touch.at_ms):
        while coming and coming[0].at_ms <= touch.at_ms:
            shadows.pop(coming.pop(0).replica, None)
        if touch.replica not in shadows:
            size = (capacity_tokens, block_tokens)
            shadows[touch.replica] = ShadowLru(*size), PatientShadow(*size), PatientShadow(*size)
        timeless, patient, at_once = shadows[touch.replica]
        prompt = (touch.segments, touch.tokens, touch.answer_tokens)
        least, most = patient.request(*prompt, touch.at_ms, touch.ttft_ms), at_once.request(*prompt, touch.at_ms)
        out.append(Shadowed(touch, timeless.request(*prompt), least, most))
    return out


def grouped(touches: Iterable[Shadowed], commands: Iterable[Issued]) -> Groups:
    """Sorts touches into groups; see the module's text for the rule.

    Args:
        touches: all requests of the run, of all replicas.
        commands: prefix commands of the scopes that can be warmed.
    """
    first = first_commands(commands)
    members: Mapping[str, list[_Member]] = {"warm": [], "hold": [], "rest": []}
    for seen in touches:
        depth, command = _deepest(seen.touch, first)
        lost = command is not None and depth >= seen.found
        group = command.arm if command is not None and lost and command.at_ms < seen.touch.at_ms else "rest"
        members[group].append(_Member("" if command is None else command.unit, seen))
    return Groups(*(_sample(members[group]) for group in ("warm", "hold", "rest")))


def first_commands(commands: Iterable[Issued]) -> dict[tuple[str, str], Issued]:
    """The first command of each unit, by scope and unit."""
    first: dict[tuple[str, str], Issued] = {}
    for issued in sorted(commands, key=lambda issued: issued.at_ms):
        first.setdefault((issued.scope, issued.unit), issued)
    return first


def whole(touches: Iterable[Shadowed], until_ms: float = float("inf")) -> Sample:
    """All requests that the workload wanted before a time, as one sample; its units are prefix families or less."""
    return _sample([_Member(seen.touch.family, seen) for seen in touches if seen.touch.due_ms < until_ms])


@dataclass(frozen=True, slots=True)
class _Member:
    unit: str
    seen: Shadowed


def _deepest(touch: Touch, first: Mapping[tuple[str, str], Issued]) -> tuple[int, Issued | None]:
    """Position and first command of the deepest segment that is a unit."""
    for depth in range(len(touch.segments) - 1, -1, -1):
        command = first.get((touch.scope, touch.segments[depth]))
        if command is not None:
            return depth, command
    return -1, None


def _sample(members: Sequence[_Member]) -> Sample:
    timed = [(member.unit, member.seen.touch.ttft_ms) for member in members if member.seen.touch.ttft_ms is not None]
    return Sample(
        units=tuple(unit for unit, _ in timed),
        ttft_ms=tuple(ttft for _, ttft in timed),
        cached_tokens=sum(member.seen.touch.cached_tokens for member in members),
        input_tokens=sum(member.seen.touch.input_tokens for member in members),
        lru_tokens=sum(member.seen.lru_tokens for member in members),
    )
