"""The last prompts of one session, what they are like, and whether they make a pattern (D10, spec).

State is a ring of three records, one a prompt, each written once, and again when its answer's latency is told. A prompt
counts once, by whichever of its phases comes first; one that arrived before the three that are held is over. After a
pause the session starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from msgspec import structs

from analytics.envelopes import Root, Tag, seal
from analytics.facts import unpack_chain, unpack_names
from analytics.knobs import knob
from analytics.patterns import CONSECUTIVE, Sketch, consecutive_prompts, jaccard
from analytics.prefix_nodes import HASH_BYTES
from analytics.records import Record, pack, unpack
from analytics.request_features import SessionFeatures, sliding_features
from analytics.stores import MapStore
from analytics.timescale import scaled
from analytics.turns import SessionPattern, Turn


@dataclass(frozen=True)
class SessionConfig:
    """Settings of the sessions."""

    pause_ms: int = knob(
        600_000,
        "Prompts further apart are not consecutive; a session quiet for so long is forgotten.",
        unit="ms",
        low=1000,
        high=86_400_000,
    )
    time_scale: float = knob(1.0, "How much faster than the calendar event time runs.", low=0.01, high=10_000)


class TurnRecord(Record, frozen=True, array_like=True):
    """A prompt as it is kept; `run` counts the patterns that it and those just before it completed."""

    turn: Turn
    run: int


class AlarmRecord(Record, frozen=True, array_like=True):
    """When the session is looked at."""

    next_timer_ms: int


class Session:
    """One session. Any call may be the last before a crash: a new object over the same store goes on.

    Args:
        config: settings.
        store: where its state survives. Whatever it holds is restored here.
    """

    def __init__(self, config: SessionConfig, store: MapStore) -> None:
        self._pause_ms = scaled(config.pause_ms, config.time_scale)
        self._store = store
        self._held: dict[str, TurnRecord] = {}
        self._next_timer_ms: int | None = None
        for key, blob in store.items():
            if key == _ALARM:
                self._next_timer_ms = unpack(blob, AlarmRecord).next_timer_ms
            else:
                self._held[key] = unpack(blob, TurnRecord)

    @property
    def next_timer_ms(self) -> int | None:
        """When `on_timer` wants to be called, in event time; None for a session of which nothing is held."""
        return self._next_timer_ms

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept."""
        return self._next_timer_ms is None

    def on_turn(self, turn: Turn) -> list[bytes]:
        """Takes a prompt; returns envelopes for its pool's planner: FEATURES, and PATTERN when it completes one."""
        before = self._in_order()
        known = next((slot for slot, record in self._held.items() if record.turn.identity == turn.identity), None)
        if known is not None:
            self._finished(known, turn.latency_ms)
            return []
        if before and turn.arrived_ms - before[-1].turn.arrived_ms > self._pause_ms:
            self._forget()
            before = []
        if len(before) == CONSECUTIVE and _place(turn) < _place(before[0].turn):
            return []
        turns = sorted([*(record.turn for record in before), turn], key=_place)[-CONSECUTIVE:]
        sketches = [Sketch.unpack(held.words, held.distinct) for held in turns]
        found = consecutive_prompts(sketches)
        run = (before[-1].run if before else 0) + 1 if found else 0
        self._put(self._slot(before), TurnRecord(1, turn, run))
        self._arm(turn.arrived_ms)
        last = turns[-1]
        told = SessionFeatures(last.scope, turn.arrived_ms, sliding_features(turns))
        features = seal(Tag.FEATURES, unpack_names(last.names).pool, told)
        return [self._pattern(turns, sketches, run), features] if found else [features]

    def on_timer(self, at_ms: int) -> list[bytes]:
        """Forgets a session that has been quiet; else waits on. Tells nothing."""
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        self._next_timer_ms = None
        held = self._in_order()
        if held and held[-1].turn.arrived_ms + self._pause_ms > at_ms:
            self._arm(held[-1].turn.arrived_ms)
        else:
            self._forget()
            self._store.remove(_ALARM)
        return []

    def _in_order(self) -> list[TurnRecord]:
        return sorted(self._held.values(), key=lambda record: _place(record.turn))

    def _slot(self, before: list[TurnRecord]) -> str:
        """A free slot of the ring, else that of the prompt that arrived first."""
        if len(before) < CONSECUTIVE:
            return next(slot for slot in _SLOTS if slot not in self._held)
        return next(slot for slot, record in self._held.items() if record is before[0])

    def _pattern(self, turns: list[Turn], sketches: list[Sketch], run: int) -> bytes:
        first, _, last = turns
        names = unpack_names(last.names)
        hashes, tokens, roles = unpack_chain(last.chain)
        shared = shared_prefix([(turn.names, unpack_chain(turn.chain)[0]) for turn in turns])
        pattern = SessionPattern(
            scope=last.scope,
            pool=names.pool,
            subject=last.subject,
            at_ms=last.arrived_ms,
            root=Root(names.model, names.adapter, names.template_sha, names.tools_sha, names.salt_ref),
            hashes=hashes[: shared * HASH_BYTES],
            tokens=tokens[:shared],
            roles=roles[:shared],
            known=run > 1,
            similarity=min(jaccard(sketches[0], sketches[1]), jaccard(sketches[1], sketches[2])),
            qps=(CONSECUTIVE - 1) * 1000 / max(1, last.arrived_ms - first.arrived_ms),
        )
        return seal(Tag.PATTERN, names.pool, pattern)

    def _finished(self, slot: str, latency_ms: float) -> None:
        """The answer to a prompt came to its end."""
        held = self._held[slot]
        if latency_ms > 0 and not held.turn.latency_ms:
            self._put(slot, structs.replace(held, turn=structs.replace(held.turn, latency_ms=latency_ms)))

    def _put(self, slot: str, record: TurnRecord) -> None:
        self._held[slot] = record
        self._store.put(slot, pack(record))

    def _arm(self, arrived_ms: int) -> None:
        if self._next_timer_ms is None:
            self._next_timer_ms = arrived_ms + self._pause_ms
            self._store.put(_ALARM, pack(AlarmRecord(1, self._next_timer_ms)))

    def _forget(self) -> None:
        for slot in self._held:
            self._store.remove(slot)
        self._held.clear()


def shared_prefix(prompts: list[tuple[bytes, bytes]]) -> int:
    """How many segments of the last prompt the next one will probably begin with.

    A conversation repeats all of its last prompt and goes on: where each prompt begins with all of the one before, it
    is the whole last one. Else it is what all of them share; prompts of different renderings share nothing.

    Args:
        prompts: rendering and joined segment hashes, oldest first.
    """
    names, last = prompts[-1]
    if any(other != names for other, _ in prompts):
        return 0
    chains = [hashes for _, hashes in prompts]
    if all(later.startswith(earlier) for earlier, later in pairwise(chains)):
        return len(last) // HASH_BYTES
    count = 0
    for at in range(0, min(map(len, chains)), HASH_BYTES):
        if len({hashes[at : at + HASH_BYTES] for hashes in chains}) > 1:
            break
        count += 1
    return count


def _place(turn: Turn) -> tuple[int, int]:
    return turn.arrived_ms, turn.identity


_SLOTS = tuple(str(slot) for slot in range(CONSECUTIVE))
_ALARM = "alarm"
