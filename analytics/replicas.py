"""The replicas of a pool that can be warmed now, from their samples."""

from __future__ import annotations

import math
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import structs

from analytics.cache_shadow import CacheShadow
from analytics.decay import Decay
from analytics.records import Record, Section, pack, unpack
from schemas.replica_sample import ReplicaSample
from schemas.warmup_outcome import WarmupOutcome

FORGET_AFTER_MS = 3_600_000
"""A replica that was not heard of for an hour of event time is gone."""
COLD_START_MS = 60_000
"""So long after its start a replica is cold, unless all are."""


class ReplicaRecord(Record, frozen=True, array_like=True):
    """A replica as it is kept.

    Attributes:
        adapters: name and version of each adapter that it lists.
        tells: whether it has listed any in this incarnation: an engine that tells none is not one that holds none.
        shadow: of its KV cache, where it tells its capacity.
        zone: where it stands; empty where it does not tell.
        since_ms: when it was ready first in this incarnation, as far as is known; 0 in what an older release kept.
    """

    replica: str
    incarnation: str
    state: str
    sampled_ms: int
    block_tokens: int
    adapters: tuple[tuple[str, str], ...] = ()
    tells: bool = False
    shadow: CacheShadow | None = None
    zone: str = ""
    since_ms: int = 0


@dataclass(frozen=True)
class Ready:
    """Replicas that take warm-ups at a time.

    Attributes:
        names: sorted.
        marks: of each replica's incarnation; what an earlier incarnation held is lost.
        blocks: tokens of a block of each.
        sleeping: those that would be ready if somebody woke them; sorted.
        zones: of each, empty where it does not tell.
        adapters: name and version of those that each lists; None where it does not tell. Not compared: most of what
            depends on replicas does not depend on this.
        cold: how many of them began a short while ago, beside others that did not.
    """

    names: tuple[str, ...]
    marks: tuple[int, ...]
    blocks: tuple[int, ...]
    sleeping: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    adapters: tuple[tuple[tuple[str, str], ...] | None, ...] = field(default=(), compare=False)
    cold: int = 0

    @cached_property
    def zone_of(self) -> Mapping[str, str]:
        """Zones by replica; none where none tells its own."""
        return dict(zip(self.names, self.zones, strict=True)) if any(self.zones) else {}

    def but(self, missing: Container[str]) -> tuple[str, ...]:
        """All of them but some."""
        return tuple([name for name in self.names if name not in missing])

    @cached_property
    def block_tokens(self) -> int:
        """The least block among them: what is shorter fills none anywhere."""
        return min(self.blocks, default=1)

    @cached_property
    def _largest_block(self) -> int:
        return max(self.blocks, default=1)

    def fitting(self, tokens: float) -> Ready:
        """Those of which so many tokens fill a block."""
        if tokens >= self._largest_block:
            return self
        return self._at([place for place, block in enumerate(self.blocks) if tokens >= block])

    def listing(self, adapter: tuple[str, str], loading: Container[str]) -> Ready:
        """Those that list an adapter, do not tell which they have, or are loading it."""
        told = zip(self.names, self.adapters, strict=False)
        lacking = {
            name for name, listed in told if listed is not None and adapter not in listed and name not in loading
        }
        return self._at([place for place, name in enumerate(self.names) if name not in lacking]) if lacking else self

    def _at(self, places: Sequence[int]) -> Ready:
        return Ready(
            tuple([self.names[place] for place in places]),
            tuple([self.marks[place] for place in places]),
            tuple([self.blocks[place] for place in places]),
            zones=tuple([self.zones[place] for place in places if self.zones]),
            adapters=tuple([self.adapters[place] for place in places if self.adapters]),
        )

    def mark_of(self, replica: str) -> int:
        """The mark of a ready replica's incarnation; 0 where it is not ready."""
        for name, mark in zip(self.names, self.marks, strict=True):
            if name == replica:
                return mark
        return 0


class Fleet:
    """What is known of a pool's replicas.

    Args:
        stale_ms: a replica whose last sample is older does not count. Samples come in real seconds, so that this is
            not time-scaled.
        decay: by which their traffic fades.
        cold_ms: so long a replica is cold that began beside others.
    """

    def __init__(self, stale_ms: int, decay: Decay, store: Section, cold_ms: int = COLD_START_MS) -> None:
        self._stale_ms = stale_ms
        self._cold_ms = cold_ms
        self._decay = decay
        self._store = store
        self._replicas: dict[str, ReplicaRecord] = {}

    def __bool__(self) -> bool:
        return bool(self._replicas)

    def on_sample(self, sample: ReplicaSample) -> None:
        """Takes a sample unless a later one is held."""
        held = self._replicas.get(sample.replica)
        if held is not None and sample.sampled_at_ms < held.sampled_ms:
            return
        adapters = tuple(sorted({(adapter.name, adapter.version) for adapter in sample.adapters}))
        same = held is not None and held.incarnation == sample.incarnation
        told = held is not None and same and held.tells
        record = ReplicaRecord(
            1,
            sample.replica,
            sample.incarnation,
            sample.state,
            sample.sampled_at_ms,
            sample.block_tokens,
            adapters,
            told or bool(adapters),
            CacheShadow.after(held.shadow if held else None, sample, self._decay),
            sample.zone or "",
            _since_ms(held if same else None, sample),
        )
        self._replicas[sample.replica] = record
        self._store.put(sample.replica, pack(record))
        for name, other in list(self._replicas.items()):
            if other.sampled_ms < sample.sampled_at_ms - FORGET_AFTER_MS:
                del self._replicas[name]
                self._store.remove(name)

    def ready(self, at_ms: int) -> Ready:
        """Those that can be warmed at a time."""
        fresh = [record for _, record in sorted(self._replicas.items()) if at_ms - record.sampled_ms <= self._stale_ms]
        found = [record for record in fresh if record.state == "ready"]
        cold = sum(at_ms - record.since_ms < self._cold_ms for record in found)
        return Ready(
            tuple(record.replica for record in found),
            tuple(incarnation_mark(record.incarnation) for record in found),
            tuple(record.block_tokens for record in found),
            tuple(record.replica for record in fresh if record.state == "sleeping"),
            tuple(record.zone for record in found),
            tuple(record.adapters if record.tells else None for record in found),
            cold if cold < len(found) else 0,
        )

    def stay_ms(self, names: Iterable[str], at_ms: int) -> float | None:
        """How long some replicas keep what nobody asks for, by their shadows; None where none of them has one.

        The middle of their times, in the log domain: a request may meet any of them.
        """
        shadows = [held.shadow for name in names if (held := self._replicas.get(name)) is not None]
        told = [each.stay_ms(at_ms, self._decay) for each in shadows if each is not None]
        times = [math.log(stay_ms) for stay_ms in told if stay_ms is not None]
        return math.exp(math.fsum(times) / len(times)) if times else None

    def on_warmed(self, outcome: WarmupOutcome) -> None:
        """Takes note of what a warm-up looked up and took in: the counters of its replica hold that as well."""
        held = self._replicas.get(outcome.replica)
        if held is None or held.shadow is None or not outcome.tokens_warmed + outcome.tokens_already_resident:
            return
        looked_up = outcome.tokens_warmed + outcome.tokens_already_resident
        shadow = held.shadow.with_own(looked_up, outcome.tokens_warmed, outcome.finished_at_ms, self._decay)
        self._replicas[outcome.replica] = structs.replace(held, shadow=shadow)
        self._store.put(outcome.replica, pack(self._replicas[outcome.replica]))

    def margin_per_s(self, names: Iterable[str], at_ms: int) -> float | None:
        """At most at which rate that is asked for which some replicas are about to let go of; None where none tells.

        The mean: a request may meet any of them.
        """
        shadows = [held.shadow for name in names if (held := self._replicas.get(name)) is not None]
        margins = [each.margin_per_s(at_ms, self._decay) for each in shadows if each is not None]
        told = [margin for margin in margins if margin is not None]
        return math.fsum(told) / len(told) if told else None

    def settled(self, replica: str, at_ms: int, least_ms: float | None) -> bool:
        """Whether what a replica lacks tells how long it keeps things: a cache that has just begun lacks it anyway.

        Args:
            least_ms: how old its cache has to be; None where it does not matter.
        """
        held = self._replicas.get(replica)
        if held is None or held.shadow is None or least_ms is None:
            return True
        return at_ms - held.shadow.since_ms > least_ms

    def mark(self, replica: str) -> int:
        """Mark of a replica's last known incarnation; 0 where none is."""
        held = self._replicas.get(replica)
        return incarnation_mark(held.incarnation) if held else 0

    def adapters(self, replica: str) -> tuple[tuple[str, str], ...]:
        """Name and version of the adapters that a replica listed last."""
        held = self._replicas.get(replica)
        return held.adapters if held else ()

    def tells_adapters(self, replica: str) -> bool:
        """Whether a replica lists what it holds, so that what is not listed is not there."""
        held = self._replicas.get(replica)
        return held is not None and held.tells

    def sampled_ms(self, replica: str) -> int:
        """Event time of a replica's last sample; 0 where there is none."""
        held = self._replicas.get(replica)
        return held.sampled_ms if held else 0

    def restore(self, blob: bytes) -> None:
        """Takes back one replica."""
        record = unpack(blob, ReplicaRecord)
        self._replicas[record.replica] = record


def _since_ms(before: ReplicaRecord | None, sample: ReplicaSample) -> int:
    """When a replica was started, as far as is known: until it is ready it still starts.

    Args:
        before: what was known of it in this incarnation.
    """
    return sample.sampled_at_ms if before is None or before.state == "starting" else before.since_ms


def incarnation_mark(incarnation: str) -> int:
    """A small number that tells incarnations of one replica apart; never 0."""
    return zlib.crc32(incarnation.encode()) or 1
