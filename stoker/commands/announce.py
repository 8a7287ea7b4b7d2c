"""`stoker announce prompt|prompts|model|adapter|event`: tell the planners of a change before it takes effect."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.commands.policy import Bootstrap, Config

if TYPE_CHECKING:
    from connectors.settings import KafkaSettings
    from schemas import Announcement
    from schemas.request_event import Segment
    from stoker.config import Settings as Tree

BYTES_PER_TOKEN = 4
"""What a token is taken for where nobody counted: it only weighs the command and says whether it fills a block."""
TEXT_LIFE_MS = 86_400_000
"""How long the text of an announced prompt lies in Redis beyond the time it takes effect."""

_RELATIVE = re.compile(r"\+(\d+(?:\.\d+)?)(s|m|h|d)")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Name = Annotated[str, typer.Argument(help="Name of what changes.")]
Scope = Annotated[str, typer.Option(help="Scope (tenant) that it is for.")]
Pool = Annotated[str, typer.Option(help="GPU pool that serves it.")]
Version = Annotated[str, typer.Option(help="Version that takes effect.")]
Replaces = Annotated[str | None, typer.Option(help="What ends then: the old model, template or version.")]
At = Annotated[str, typer.Option(help="When: now, +90s, +10m, +2h, or a time such as 2026-12-01T09:00:00Z.")]
Withdraw = Annotated[bool, typer.Option("--withdraw", help="Take the announcement back.")]


def register(app: typer.Typer) -> None:
    """Adds the `announce` group."""
    group = typer.Typer(help="Tell the planners of a change before it takes effect.", no_args_is_help=True)
    for command in (prompt, prompts, model, adapter, event):
        group.command(command.__name__)(command)
    app.add_typer(group, name="announce")


def prompt(
    name: Name,
    scope: Scope,
    pool: Pool,
    model: Annotated[str, typer.Option(help="Model that it is written for.")],
    messages: Annotated[Path, typer.Option(help="JSON list of chat messages: what its requests begin with.")],
    version: Version = "1",
    replaces: Replaces = None,
    template_sha: Annotated[str, typer.Option(help="Hash of the chat template, as requests name it.")] = "",
    template_only: Annotated[bool, typer.Option(help="Warm only what stands before the first user message.")] = False,
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A new prompt: its prefix is warm on every replica when the first request comes."""
    from schemas import Render

    tree = _tree(config, bootstrap)
    texts = _messages(messages)
    segments = _segments(texts, model, template_sha)
    change = _change(
        "prompt",
        name,
        scope,
        pool,
        version,
        at,
        replaces=replaces,
        model=model,
        segments=segments,
        render=Render(template_sha=template_sha),
        strategy="template" if template_only else None,
    )
    if not withdraw:
        _store(tree, scope, segments, texts, change.at_ms)
    _tell(tree.kafka, change, withdraw)


def prompts(
    file: Annotated[Path, typer.Argument(help='JSON lines: {"id": "faq@3", "content": "…", "tags": ["…"]}.')],
    scope: Scope,
    pool: Pool,
    model: Annotated[str, typer.Option(help="Model that they are written for.")],
    template_sha: Annotated[str, typer.Option(help="Hash of the chat template, as requests name it.")] = "",
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A file of managed prompts joins the pool of prompts that are warmed by their hotness."""
    from connectors.prompt_file import read_prompts
    from schemas import Render

    tree = _tree(config, bootstrap)
    changes = []
    for told in list(read_prompts(file)):
        texts = [(str(message.role), message.content) for message in told.messages]
        segments = _segments(texts, model, template_sha)
        change = _change(
            "prompt",
            told.name,
            scope,
            pool,
            told.version,
            at,
            replaces=told.replaces,
            model=model,
            segments=segments,
            render=Render(template_sha=template_sha),
            tags=told.tags,
        )
        changes.append((change, segments, texts))
    for change, segments, texts in changes:  # all of them can be announced: now they are
        if not withdraw:
            _store(tree, scope, segments, texts, change.at_ms)
        _tell(tree.kafka, change, withdraw)


def model(
    name: Name,
    scope: Scope,
    pool: Pool,
    version: Version = "1",
    replaces: Replaces = None,
    kind: Annotated[str, typer.Option(help="What of it changes: model, tokenizer or template.")] = "model",
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A new model, tokenizer or template: what the old one rendered is not warmed any more, stale answers go."""
    from schemas import BrokenConfiguration

    if kind not in ("model", "tokenizer", "template"):
        raise BrokenConfiguration(f"--kind {kind}: it is one of model, tokenizer, template")
    change = _change(kind, name, scope, pool, version, at, replaces=replaces, model=name)
    _tell(_tree(config, bootstrap).kafka, change, withdraw)


def adapter(
    name: Name,
    scope: Scope,
    pool: Pool,
    version: Version,
    source: Annotated[str, typer.Option(help="Where replicas read it: a path or an id that the engine resolves.")],
    rank: Annotated[int | None, typer.Option(help="Rank, compared before it is loaded.", min=1, max=4096)] = None,
    sha256: Annotated[str | None, typer.Option(help="Digest of the weights, compared before they are loaded.")] = None,
    replaces: Replaces = None,
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A new version of an adapter: loaded where it will be asked for, checked before."""
    change = _change(
        "adapter", name, scope, pool, version, at, replaces=replaces, source=source, rank=rank, sha256=sha256
    )
    _tell(_tree(config, bootstrap).kafka, change, withdraw)


def event(
    name: Name,
    scope: Scope,
    keys: Annotated[Path, typer.Option(help="File with one key a line, most wanted first.")],
    loader: Annotated[str, typer.Option(help="Loader of the executor that fetches them.")],
    version: Version = "1",
    ttl_s: Annotated[int, typer.Option(help="Life of a value, in seconds.", min=1, max=86_400)] = 900,
    strategy: Annotated[str, typer.Option(help="hot_top_n, full_snapshot or sampled.")] = "hot_top_n",
    at: At = "now",
    withdraw: Withdraw = False,
    config: Config = None,
    bootstrap: Bootstrap = None,
) -> None:
    """A time at which known keys will be asked for: their values lie in Redis before."""
    from schemas import BrokenConfiguration

    if strategy not in ("hot_top_n", "full_snapshot", "sampled"):
        raise BrokenConfiguration(f"--strategy {strategy}: it is one of hot_top_n, full_snapshot, sampled")
    tree = _tree(config, bootstrap)
    names = tuple(line.strip() for line in _text(keys).splitlines() if line.strip())
    change = _change(
        "event",
        name,
        scope,
        tree.redis.pool_key,
        version,
        at,
        keys=names,
        loader=loader,
        ttl_ms=ttl_s * 1000,
        strategy=strategy,
    )
    _tell(tree.kafka, change, withdraw)


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


def _tree(config: Path | None, bootstrap: str | None) -> Tree:
    from stoker.config import read

    tree = read(config)
    if bootstrap is None:
        return tree
    return tree.model_copy(update={"kafka": tree.kafka.model_copy(update={"bootstrap": bootstrap})})


def _change(kind: str, name: str, scope: str, pool: str, version: str, at: str, **more: Any) -> Announcement:
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


def _text(file: Path) -> str:
    from schemas import BrokenConfiguration

    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenConfiguration(f"{file}: cannot be read: {error}") from None


def _messages(file: Path) -> list[tuple[str, str]]:
    from schemas import BrokenConfiguration

    try:
        found = json.loads(_text(file))
        return [(str(message["role"]), str(message["content"])) for message in found]
    except (ValueError, TypeError, KeyError):
        raise BrokenConfiguration(
            f'{file}: write a JSON list of messages, each {{"role": "…", "content": "…"}}'
        ) from None


def _segments(texts: list[tuple[str, str]], model: str, template_sha: str) -> tuple[Segment, ...]:
    from schemas import Segment, canonical

    parent = canonical.root_hash(model, None, template_sha, "")
    segments = []
    for role, content in texts:
        parent = canonical.segment_hash(parent, role, content)
        tokens = max(1, len(content.encode()) // BYTES_PER_TOKEN)
        segments.append(Segment(hash=parent, tokens=tokens, role=role))  # type: ignore[arg-type]
    return tuple(segments)


def _store(tree: Tree, scope: str, segments: tuple[Segment, ...], texts: list[tuple[str, str]], at_ms: int) -> None:
    """Puts the texts where the executor finds them."""
    from connectors.redis import RedisBlobs, sync_client

    life_ms = max(0, at_ms - time.time_ns() // 1_000_000) + TEXT_LIFE_MS
    blobs = {segment.hash: content.encode() for segment, (_, content) in zip(segments, texts, strict=True)}
    client = sync_client(tree.redis)
    try:
        RedisBlobs(client).put(scope, blobs, life_ms)
    finally:
        client.close()


def _tell(kafka: KafkaSettings, change: Announcement, withdraw: bool) -> None:
    """Sends it, and takes back what was said of the same change for another time."""
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
        typer.echo(f"{named}: taken back" if over else f"{named}: was not announced")
    elif same:
        typer.echo(f"{named}: announced already for {when}")
    else:
        typer.echo(f"{named}: announced for {when}" + (", moved" if over else ""))


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
