"""Uses of managed prompts and what became of them, per demand shard: an adopted answer finds its prompt by its query.

A use and the judgement of its answer meet in the shard of their query, in either order, within `wait_ms`. Once a slide
what was counted goes to the planner of each pool. Records are small and written once; what waited too long is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from analytics.envelopes import Root, Tag, seal
from analytics.facts import ROLE_INDEX, SEGMENT_BYTES, unpack_chain, unpack_names
from analytics.knobs import knob
from analytics.records import Record, Section, pack, path, unpack
from analytics.stores import MapStore
from analytics.timescale import scaled
from schemas.canonical import h128
from schemas.fields import MAX_STRING_CHARS
from schemas.request_event import RequestEvent

_LEADING = frozenset({ROLE_INDEX["system"], ROLE_INDEX["developer"], ROLE_INDEX["tool"]})
_GOOD = frozenset({"stop", "tool_calls"})


class Prompted(Struct, frozen=True, array_like=True):
    """ingest → prompts: a managed prompt was answered, or (without a prompt) the answer to a query was adopted.

    Attributes:
        query: 16 bytes. identity: of the request or of the judgement.
        answered: as expected and not cut short.
        names, chain: as in `analytics.facts`; of the chain what stands before a user's own words.
    """

    scope: str
    prompt: str
    query: bytes
    at_ms: int
    identity: int
    answered: bool
    adopted: bool
    names: bytes
    chain: bytes


class PromptUse(Struct, frozen=True, array_like=True):
    """prompts → plan: what became of a managed prompt in one shard and slide.

    Attributes:
        at_ms: event time of the last use.
        uses, answered, adopted: requests, those answered as expected, and answers adopted.
        hashes, tokens, roles: its prefix, as in `envelopes.Chain`; empty where no request has shown one.
    """

    scope: str
    pool: str
    prompt: str
    at_ms: int
    uses: int
    answered: int
    adopted: int
    root: Root
    hashes: bytes
    tokens: tuple[int, ...]
    roles: bytes


@dataclass(frozen=True)
class PromptUsageConfig:
    """Settings. Durations are unscaled; `time_scale` shortens them together."""

    slide_ms: int = knob(10_000, "How often uses go to the planner.", unit="ms", low=100, high=600_000)
    wait_ms: int = knob(
        1_800_000, "How long a use waits for its judgement, and a judgement for its use.", unit="ms", low=1000
    )
    max_waiting: int = knob(20_000, "Uses and judgements that a shard keeps waiting.", unit="records", low=1)
    time_scale: float = knob(1.0, "How much faster than the calendar event time runs.", low=0.01, high=10_000)


class WaitingRecord(Record, frozen=True, array_like=True):
    """The last use of a query's managed prompt, or judgements that came before it.

    Attributes:
        prompt: empty where only judgements are known, `early` of them.
        request, judgement: identities of what was counted last, so that a repetition is not.
    """

    scope: str
    query: bytes
    at_ms: int
    prompt: str
    pool: str
    request: int
    judgement: int
    early: int


class TallyRecord(Record, frozen=True, array_like=True):
    """Counts of a prompt since the last slide."""

    scope: str
    pool: str
    prompt: str
    at_ms: int
    uses: int
    answered: int
    adopted: int
    names: bytes
    chain: bytes


class StandRecord(Record, frozen=True, array_like=True):
    """Where the shard stands."""

    next_timer_ms: int | None


class PromptUsage:
    """One shard. Any call may be the last before a crash: a new object over the same store goes on."""

    def __init__(self, config: PromptUsageConfig, store: MapStore) -> None:
        self._config = config
        self._slide_ms = scaled(config.slide_ms, config.time_scale)
        self._wait_ms = scaled(config.wait_ms, config.time_scale)
        self._store = store
        self._kept, self._counted = Section(store, "w"), Section(store, "t")
        self._waiting: dict[tuple[str, bytes], WaitingRecord] = {}
        self._tallies: dict[tuple[str, str, str], TallyRecord] = {}
        self._next_timer_ms: int | None = None
        for key, blob in store.items():
            if key[0] == "s":
                self._next_timer_ms = unpack(blob, StandRecord).next_timer_ms
            elif key[0] == "w":
                waiting = unpack(blob, WaitingRecord)
                self._waiting[waiting.scope, waiting.query] = waiting
            else:
                tally = unpack(blob, TallyRecord)
                self._tallies[tally.scope, tally.pool, tally.prompt] = tally

    @property
    def next_timer_ms(self) -> int | None:
        """When `on_timer` wants to be called, in event time; None while nothing is held."""
        return self._next_timer_ms

    @property
    def blank(self) -> bool:
        """Whether it holds nothing: a new one over the same store is the same, so this one need not be kept."""
        return self._next_timer_ms is None

    def on_prompted(self, message: Prompted, watermark_ms: int) -> None:
        """Counts a use or an adopted answer; a repetition of the last one is not counted again."""
        held = self._waiting.get((message.scope, message.query))
        if message.adopted:
            self._adopt(message, held)
        elif held is None or held.request != message.identity:
            pool = unpack_names(message.names).pool
            early = held.early if held is not None else 0
            judgement = held.judgement if held is not None else 0
            self._wait(
                WaitingRecord(
                    1, message.scope, message.query, message.at_ms, message.prompt, pool, message.identity, judgement, 0
                )
            )
            self._count(
                TallyRecord(
                    1,
                    message.scope,
                    pool,
                    message.prompt,
                    message.at_ms,
                    1,
                    int(message.answered),
                    early,
                    message.names,
                    message.chain,
                )
            )
        if self._next_timer_ms is None:
            self._next_timer_ms = (max(message.at_ms, watermark_ms) // self._slide_ms + 1) * self._slide_ms
            self._store.put("s", pack(StandRecord(1, self._next_timer_ms)))

    def on_timer(self, at_ms: int) -> list[bytes]:
        """Ends a slide: PROMPTS envelopes of what was counted, by pool and prompt."""
        if self._next_timer_ms is None or at_ms < self._next_timer_ms:
            return []
        out = [self._told(tally) for _, tally in sorted(self._tallies.items())]
        for name in self._tallies:
            self._counted.remove(path(*name))
        self._tallies.clear()
        waiting = sorted(self._waiting.items(), key=lambda item: (item[1].at_ms, item[0]))
        surplus = len(waiting) - self._config.max_waiting
        for index, ((scope, query), record) in enumerate(waiting):
            if index >= surplus and record.at_ms + self._wait_ms > at_ms:
                break
            del self._waiting[scope, query]
            self._kept.remove(path(scope, query.hex()))
        self._next_timer_ms = (at_ms // self._slide_ms + 1) * self._slide_ms if self._waiting else None
        if self._next_timer_ms is None:
            self._store.remove("s")
        else:
            self._store.put("s", pack(StandRecord(1, self._next_timer_ms)))
        return out

    def _adopt(self, message: Prompted, held: WaitingRecord | None) -> None:
        if held is None:
            self._wait(WaitingRecord(1, message.scope, message.query, message.at_ms, "", "", 0, message.identity, 1))
        elif held.judgement != message.identity:
            early = 0 if held.prompt else held.early + 1
            self._wait(
                WaitingRecord(
                    1,
                    held.scope,
                    held.query,
                    max(held.at_ms, message.at_ms),
                    held.prompt,
                    held.pool,
                    held.request,
                    message.identity,
                    early,
                )
            )
            if held.prompt:
                self._count(TallyRecord(1, held.scope, held.pool, held.prompt, message.at_ms, 0, 0, 1, b"", b""))

    def _wait(self, record: WaitingRecord) -> None:
        self._waiting[record.scope, record.query] = record
        self._kept.put(path(record.scope, record.query.hex()), pack(record))

    def _count(self, more: TallyRecord) -> None:
        name = (more.scope, more.pool, more.prompt)
        held = self._tallies.get(name)
        if held is not None:
            names, chain = held.names, held.chain
            if more.names and (not names or names == more.names):
                names, chain = more.names, shared_lead(chain, more.chain) if names else more.chain
            more = TallyRecord(
                1,
                *name,
                max(held.at_ms, more.at_ms),
                held.uses + more.uses,
                held.answered + more.answered,
                held.adopted + more.adopted,
                names,
                chain,
            )
        self._tallies[name] = more
        self._counted.put(path(*name), pack(more))

    @staticmethod
    def _told(tally: TallyRecord) -> bytes:
        root = Root("", "", "", "", "")
        if tally.names:
            names = unpack_names(tally.names)
            root = Root(names.model, names.adapter, names.template_sha, names.tools_sha, names.salt_ref)
        use = PromptUse(
            tally.scope,
            tally.pool,
            tally.prompt,
            tally.at_ms,
            tally.uses,
            tally.answered,
            tally.adopted,
            root,
            *unpack_chain(tally.chain),
        )
        return seal(Tag.PROMPTS, tally.pool, use)


def prompt_id(name: str, version: str) -> str:
    """Identity of a managed prompt: `name@version`, or its h128 where that would be too long."""
    found = f"{name}@{version}"
    return found if len(found) <= MAX_STRING_CHARS else h128(name, version)


def answered(event: RequestEvent) -> bool:
    """Whether a finished request was answered as expected and not cut short (D7)."""
    refused = event.status >= 400 or event.error_type is not None
    return event.phase == "finished" and not refused and event.finish_reason in _GOOD


def lead_of(chain: bytes) -> bytes:
    """The packed part of a chain before a user's own words: what a managed prompt can be made of."""
    hashes, tokens, roles = unpack_chain(chain)
    count = next((index for index, role in enumerate(roles) if role not in _LEADING), len(roles))
    return cut(chain, count) if tokens and hashes else b""


def cut(chain: bytes, count: int) -> bytes:
    """The first segments of a packed chain."""
    held = len(chain) // SEGMENT_BYTES
    tokens_at, roles_at = held * 16, held * 20
    return chain[: count * 16] + chain[tokens_at : tokens_at + count * 4] + chain[roles_at : roles_at + count]


def shared_lead(a: bytes, b: bytes) -> bytes:
    """The segments that two packed chains begin with."""
    left, right = unpack_chain(a)[0], unpack_chain(b)[0]
    count = 0
    while count * 16 < min(len(left), len(right)) and left[count * 16 :][:16] == right[count * 16 :][:16]:
        count += 1
    return cut(a, count)
