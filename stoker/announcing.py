"""Announcements as `stoker announce` makes them: read from a person's words, told once, moved and taken back."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.settings import KafkaSettings, RedisSettings
    from schemas import Announcement
    from schemas.request_event import Segment

BYTES_PER_TOKEN = 4
"""What a token is taken for where nobody counted: it only weighs the command and says whether it fills a block."""
TEXT_LIFE_MS = 86_400_000
"""How long the text of an announced prompt lies in Redis beyond the time it takes effect."""

_RELATIVE = re.compile(r"\+(\d+(?:\.\d+)?)(s|m|h|d)")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def time_of(text: str, now_ms: int) -> int:
    """Milliseconds of `now`, `+10m` or an ISO time.

    Raises:
        BrokenConfiguration: it is none of them.
    """
    from schemas import BrokenConfiguration

    relative = _RELATIVE.fullmatch(text)
    if text == "now":
        return now_ms
    if relative is not None:
        return now_ms + round(float(relative[1]) * _UNIT_MS[relative[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BrokenConfiguration(
            f"--at {text}: write now, +90s, +10m, +2h or a time such as 2026-12-01T09:00:00Z"
        ) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def change_of(kind: str, name: str, scope: str, pool: str, version: str, at: str, **more: Any) -> Announcement:
    """The announcement, read back as its readers will read it, so that a mistake is told here."""
    from schemas import Announcement, BrokenConfiguration, PoisonMessage, decode, encode
    from schemas.announcement import announcement_id

    now_ms = time.time_ns() // 1_000_000
    at_ms = time_of(at, now_ms)
    made = Announcement(
        announcement_id=announcement_id(scope, pool, kind, name, version, at_ms),
        scope=scope,
        pool=pool,
        kind=kind,  # type: ignore[arg-type]
        name=name,
        version=version,
        announced_at_ms=now_ms,
        at_ms=at_ms,
        **more,
    )
    try:
        return decode(encode(made), Announcement)
    except PoisonMessage as poison:
        raise BrokenConfiguration(f"this cannot be announced: {poison}") from None


def text_of(file: Path) -> str:
    """A file's text.

    Raises:
        BrokenConfiguration: it cannot be read.
    """
    from schemas import BrokenConfiguration

    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenConfiguration(f"{file}: cannot be read: {error}") from None


def messages_of(file: Path) -> list[tuple[str, str]]:
    """Role and content of each message of a file."""
    from schemas import BrokenConfiguration

    try:
        found = json.loads(text_of(file))
        return [(str(message["role"]), str(message["content"])) for message in found]
    except (ValueError, TypeError, KeyError):
        raise BrokenConfiguration(
            f'{file}: write a JSON list of messages, each {{"role": "…", "content": "…"}}'
        ) from None


def segments_of(texts: list[tuple[str, str]], model: str, template_sha: str) -> tuple[Segment, ...]:
    """The messages as requests that begin with them will name them."""
    from schemas import Render
    from stoker.replay.render import chain
    from stoker.replay.turns import Piece

    pieces = [Piece(role, content) for role, content in texts]  # type: ignore[arg-type]
    tokens = [max(1, len(content.encode()) // BYTES_PER_TOKEN) for _, content in texts]
    return chain(pieces, tokens, model, Render(template_sha=template_sha))


def store_texts(
    settings: RedisSettings, scope: str, segments: tuple[Segment, ...], texts: list[tuple[str, str]], at_ms: int
) -> None:
    """Puts the texts where the executor finds them."""
    from connectors.redis import RedisBlobs, sync_client

    life_ms = max(0, at_ms - time.time_ns() // 1_000_000) + TEXT_LIFE_MS
    blobs = {segment.hash: content.encode() for segment, (_, content) in zip(segments, texts, strict=True)}
    client = sync_client(settings)
    try:
        RedisBlobs(client).put(scope, blobs, life_ms)
    finally:
        client.close()


def tell(kafka: KafkaSettings, change: Announcement, withdraw: bool) -> str:
    """Sends it, and takes back what was said of the same change for another time. Returns what came of it, in words."""
    import msgspec

    from connectors.kafka import KafkaRecordProducer
    from schemas import encode, topics

    before = [told for told in _told(kafka) if _same(told, change)]
    same = [told for told in before if told.announcement_id == change.announcement_id]
    # Announced again for another time is moved; without a time of its own a withdrawal takes back whatever was told.
    over = before if withdraw else [told for told in before if told not in same]
    messages = [msgspec.structs.replace(told, deleted=True, announced_at_ms=change.announced_at_ms) for told in over]
    if not withdraw and not same:
        messages.append(change)
    topic = kafka.topic(topics.ANNOUNCEMENTS)
    with KafkaRecordProducer(kafka, client_id="stoker-announce") as producer:
        for message in messages:
            sent = producer.send(
                topic, encode(message), key=message.scope.encode(), timestamp_ms=message.announced_at_ms
            )
            sent.wait()
    named = f"{change.kind} {change.name}@{change.version} of {change.scope}"
    when = datetime.fromtimestamp(change.at_ms / 1000, tz=UTC).isoformat(timespec="seconds")
    if withdraw:
        return f"{named}: taken back" if over else f"{named}: was not announced"
    if same:
        return f"{named}: announced already for {when}"
    return f"{named}: announced for {when}" + (", moved" if over else "")


def _same(told: Announcement, change: Announcement) -> bool:
    fields = ("scope", "pool", "kind", "name", "version")
    return all(getattr(told, field) == getattr(change, field) for field in fields)


def _told(kafka: KafkaSettings) -> list[Announcement]:
    """What stands announced; records that cannot be read are passed over."""
    from connectors.kafka import KafkaRecordConsumer
    from schemas import Announcement, PoisonMessage, decode, topics

    standing: dict[str, Announcement] = {}
    with KafkaRecordConsumer(kafka, client_id="stoker-announce") as consumer:
        for record in consumer.read_to_end(kafka.topic(topics.ANNOUNCEMENTS)):
            if record.value is None:
                continue
            try:
                message = decode(record.value, Announcement)
            except PoisonMessage:
                continue
            if message.deleted:
                standing.pop(message.announcement_id, None)
            else:
                standing[message.announcement_id] = message
    return list(standing.values())
