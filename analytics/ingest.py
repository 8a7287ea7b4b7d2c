"""One record in, one fact, control message or dead letter out: the only place where the job reads JSON of others.

The record's topic is told by its `schema` tag, because a Flink source hands over values alone. What shows no readable
tag counts as a record of llm.requests, so that the accounting of that topic (DESIGN §3.2) balances to the record.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
import zlib
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import Struct

from analytics import facts
from analytics.envelopes import Tag, seal
from analytics.scopes import ScopeMap
from analytics.watching import Watch, WatchConfig
from schemas import (
    Announcement,
    DeadReason,
    PoisonMessage,
    PromptRef,
    Render,
    ReplicaSample,
    RequestEvent,
    Residency,
    RewardEvent,
    WarmupOutcome,
    canonical,
    encode,
    letter_of,
)
from schemas.codec import Reader
from schemas.fields import LAST_MS, MAX_STRING_CHARS
from schemas.hashes import is_hex
from schemas.topics import (
    ANNOUNCEMENTS,
    MAX_RECORD_BYTES,
    OUTCOMES,
    REQUESTS,
    RESIDENCY,
    REWARDS,
    TELEMETRY,
    Topic,
    topic_name,
)

Source = RequestEvent | RewardEvent | ReplicaSample | WarmupOutcome | Residency | Announcement
_decode = Reader[Source](RequestEvent, RewardEvent, ReplicaSample, WarmupOutcome, Residency, Announcement).decode_hashed
_TOPIC_OF_TAG: dict[bytes, Topic] = {
    b"reward_event": REWARDS,
    b"replica_sample": TELEMETRY,
    b"warmup_outcome": OUTCOMES,
    b"residency": RESIDENCY,
    b"announcement": ANNOUNCEMENTS,
}
_TAG = re.compile(rb'"schema"\s*:\s*"([a-z_]{1,64})/')
_MAX_KEY_BYTES = 255
_MAX_PAYLOAD_BYTES = MAX_RECORD_BYTES * 3 // 4 - 4096
"""What fits into a dead letter of at most MAX_RECORD_BYTES as base64."""
_NO_RENDER = ("", "", "")

PLACEHOLDERS = frozenset(
    {"[redacted]", "<redacted>", "(redacted)", "redacted", "***", "****", "*****", "[removed]", "[filtered]", "<pii>"}
)
"""Texts that stand for a withheld one, in lower case and normal form."""


@dataclass(frozen=True)
class IngestConfig:
    """How records are read.

    Attributes:
        shards: number of demand shards, fixed for the life of a state. 1 to 65,535.
        scopes: which tenant belongs to which scope.
        max_skew_ms: largest difference between a value's event time and its record's time (DESIGN §3.4).
        keep_payload: whether dead letters carry the record itself, which may hold prompts, where it fits.
        placeholders: texts that mean "withheld", compared in lower case.
        topic_prefix: of the topics' names, for dead letters.
        redis_pool: whose planner hears of every announcement.
        watch: scopes whose sessions and managed prompts are looked at.
    """

    shards: int = 8
    scopes: ScopeMap = field(default_factory=ScopeMap)
    max_skew_ms: int = 30_000
    keep_payload: bool = False
    placeholders: frozenset[str] = PLACEHOLDERS
    topic_prefix: str = ""
    redis_pool: str = ""
    watch: WatchConfig = field(default_factory=WatchConfig)


class Ingested(Struct, frozen=True):
    """What became of a record; a dead record of llm.requests is both `dead` and a `fact`, so that it is counted.

    Attributes:
        fact: for demand, see `analytics.facts`.
        control: envelopes for the planners that it concerns.
        dead: a DeadLetter in JSON.
        watched: TURN and PROMPTED envelopes, of scopes that are watched.
    """

    fact: bytes | None = None
    control: tuple[bytes, ...] = ()
    dead: bytes | None = None
    watched: tuple[bytes, ...] = ()


class Ingest:
    """Reads records; keeps nothing between them."""

    def __init__(self, config: IngestConfig) -> None:
        self.config = config
        self._longest_placeholder = max(map(len, config.placeholders), default=0)
        self._watch = Watch(config.watch) if config.watch else None

    def on_record(self, value: bytes, record_ms: int) -> Ingested:
        """Reads one record of any of the job's topics. Never raises on bytes."""
        message: Source | None = None
        try:
            message, hashes = _decode(value)
            at_ms = message.event_time_ms
            if not -self.config.max_skew_ms <= at_ms - record_ms <= self.config.max_skew_ms:
                raise PoisonMessage(
                    DeadReason.TIME_SKEW, "$", f"more than {self.config.max_skew_ms} ms from its record"
                )
            if isinstance(message, RequestEvent):
                scope = self.config.scopes.scope_of(message.tenant)
                fact = self._request(message, scope, at_ms, hashes)
                return Ingested(fact, watched=() if self._watch is None else self._watch.request(message, scope, fact))
            if isinstance(message, RewardEvent):
                scope = self.config.scopes.scope_of(message.tenant)
                fact = self._reward(message, scope)
                return Ingested(fact, watched=() if self._watch is None else self._watch.reward(message, scope, fact))
            return Ingested(None, self._control(message, value))
        except PoisonMessage as poison:
            return self._dead(value, record_ms, message, poison)

    def _request(self, event: RequestEvent, scope: str, at_ms: int, hashes: bytes) -> bytes:
        config = self.config
        tenant = event.tenant
        request = hashlib.sha256(f"{tenant}\0{event.request_id}\0{event.attempt}".encode()).digest()
        flags = (_FINISHED if event.phase == "finished" else 0) | (_DEMAND if event.origin == "user" else 0)
        text = b""
        query: bytes | None = None
        if event.query is not None:
            normal = self._shown(event.query)
            if normal is not None:
                encoded = normal.encode()
                # The text decides, not the producer's own hash: a vector must never lie under another text's key.
                query = hashlib.sha256(encoded).digest()[:16]
                if len(encoded) <= facts.MAX_TEXT_BYTES:
                    text = encoded
                    flags |= _TEXT
                else:
                    flags |= _TEXT_TOO_LONG
        if query is None:
            query = _query_without_text(event, request)
        answer = b""
        # A started request has no answer yet, and most finished ones say nothing of it.
        if event.phase == "finished" and flags & _DEMAND and (event.response_sha256 or event.domain):
            answer = _answer(event)
            flags |= _ANSWER
        user = event.user
        if user is not None:
            person = _person(tenant, "user", user)
        elif event.session is not None:
            person = _person(tenant, "session", event.session)
        else:
            person = 0
        render, weight = event.render, event.sample_weight
        # The rendering template's hash decides: then the prompt's name is not asked for.
        prompt = None if render is not None and render.template_sha else event.prompt
        return facts.pack_request(
            facts.shard_for(scope, query, config.shards, scope in config.scopes.small),
            flags,
            at_ms,
            int.from_bytes(request[:8], "big"),
            person,
            query,
            facts.MICRO if weight == 1 else max(1, round(weight * facts.MICRO)),
            _names(scope, event.pool, event.model, event.adapter, render, prompt),
            facts.pack_chain(event.segments, hashes),
            text,
            answer,
        )

    def _shown(self, text: str) -> str | None:
        """Normal form of a text, None where it is withheld or empty."""
        normal = " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())
        if not normal or (len(normal) <= self._longest_placeholder and normal.lower() in self.config.placeholders):
            return None
        return normal

    def _reward(self, event: RewardEvent, scope: str) -> bytes:
        _require_key("$.tenant", scope)
        query = bytes.fromhex(event.query_sha256)
        return facts.pack_reward(
            facts.shard_for(scope, query, self.config.shards, scope in self.config.scopes.small),
            event.occurred_at_ms,
            _h64(f"{event.tenant}\0{event.event_id}"),
            query,
            round(event.reward * facts.MICRO),
            facts.pack_names(scope, ""),
            event.source,
            b"" if event.response_sha256 is None else bytes.fromhex(event.response_sha256),
        )

    def _control(
        self, message: ReplicaSample | WarmupOutcome | Residency | Announcement, value: bytes
    ) -> tuple[bytes, ...]:
        _require_key("$.pool", message.pool)
        body = value[5:] if value[:1] == b"\0" else value
        redis_pool = self.config.redis_pool
        if isinstance(message, Announcement) and redis_pool not in ("", message.pool):
            # A new model ends the answers of the old one, which lie in Redis.
            return seal(Tag.CONTROL, message.pool, body), seal(Tag.CONTROL, redis_pool, body)
        return (seal(Tag.CONTROL, message.pool, body),)

    def _dead(self, value: bytes, record_ms: int, message: Source | None, poison: PoisonMessage) -> Ingested:
        topic = _topic_of(value)
        at_ms = min(max(record_ms, 0), LAST_MS - 1)
        name = topic_name(topic, self.config.topic_prefix)
        kept = self.config.keep_payload and len(value) <= _MAX_PAYLOAD_BYTES
        letter = letter_of(
            name, value, at_ms, poison, payload=value if kept else None, event_id=getattr(message, "event_id", None)
        )
        fact = facts.pack_dead(zlib.crc32(value) % self.config.shards, at_ms) if topic is REQUESTS else None
        return Ingested(fact, (), encode(letter))


_FINISHED = facts.Flag.FINISHED.value
_DEMAND = facts.Flag.DEMAND.value
_TEXT = facts.Flag.TEXT.value
_TEXT_TOO_LONG = facts.Flag.TEXT_TOO_LONG.value
_ANSWER = facts.Flag.ANSWER.value


def _h64(field: str) -> int:
    return int.from_bytes(hashlib.sha256(field.encode()).digest()[:8], "big")


@lru_cache(maxsize=65_536)
def _person(tenant: str, kind: str, name: str) -> int:
    return _h64(f"{tenant}\0{kind}\0{name}") or 1


def _query_without_text(event: RequestEvent, request: bytes) -> bytes:
    """Identity of a withheld query: the producer's, else that of the whole prompt, else of the request alone.

    A placeholder's own hash would make all withheld queries one, and a crowd of it.
    """
    if event.query_sha256 is not None:
        return bytes.fromhex(event.query_sha256)
    if event.segments:
        return bytes.fromhex(event.segments[-1].hash)
    return request[:16]


def _answer(event: RequestEvent) -> bytes:
    ref = event.response_ref or ""
    return facts.pack_answer(
        facts.Answer(
            response=b"" if event.response_sha256 is None else bytes.fromhex(event.response_sha256),
            # Other references than those to a blob are the producer's business: no executor could read them.
            ref=ref if len(ref) == canonical.HASH_HEX_DIGITS and is_hex(ref) else "",
            domain=event.domain or "",
            finish_reason=event.finish_reason or "",
            status=event.status,
            semantic_version="" if event.cache is None else event.cache.semantic_version or "",
        )
    )


@lru_cache(maxsize=2048)
def _names(
    scope: str, pool: str, model: str, adapter: str | None, render: Render | None, prompt: PromptRef | None
) -> bytes:
    template_sha, tools_sha, salt_ref = (
        _NO_RENDER if render is None else (render.template_sha, render.tools_sha, render.salt_ref or "")
    )
    template = template_sha
    if not template and prompt is not None:
        template = f"{prompt.name}@{prompt.version}"
        if len(template) > MAX_STRING_CHARS:
            template = canonical.h128(prompt.name, prompt.version)
    names = facts.pack_names(scope, pool, model, adapter or "", template_sha, tools_sha, salt_ref, template)
    # Only longer names can break a key's limit of 255 bytes: the common case costs one comparison.
    if len(names) > _MAX_KEY_BYTES:
        _require_key("$.tenant", scope)
        _require_key("$.pool", pool)
    return names


def _require_key(path: str, key: str) -> None:
    if len(key.encode()) > _MAX_KEY_BYTES:
        raise PoisonMessage(DeadReason.OUT_OF_RANGE, path, f"more than {_MAX_KEY_BYTES} bytes")


def _topic_of(value: bytes) -> Topic:
    found = _TAG.search(value)
    return REQUESTS if found is None else _TOPIC_OF_TAG.get(found.group(1), REQUESTS)
