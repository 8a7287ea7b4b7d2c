"""Announcement: a change that somebody knows of beforehand (topic warmup.announcements)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from schemas.canonical import h128
from schemas.fields import MAX_SEGMENTS, Alpha, Dropout, Hash, Id, Label, Ms, Name, Rank, TargetModules
from schemas.request_event import Render, Segment

AnnouncementKind = Literal["prompt", "model", "tokenizer", "template", "adapter", "event"]
Strategy = Literal["full_snapshot", "hot_top_n", "full_model", "template", "sampled"]
MAX_KEYS = 10_000
MAX_TAGS = 32


class Announcement(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="announcement/1"):
    """What changes, for whom, and when. Telling it twice is telling it once: equal changes have the same id.

    Attributes:
        kind: `prompt` a new managed prompt; `model`, `tokenizer`, `template` invalidate what was rendered with the old
            one; `adapter` a new version; `event` a time at which the named keys will be asked for.
        pool: the GPU pool that it concerns; for an event the Redis pool.
        name, version: of what changes. `replaces` is what ends, where something does: the old model, template or
            version. Where that is the name of the new one too, only what was asked for before it took effect ends.
        at_ms: when it takes effect.
        segments, render: of a prompt: what its requests will begin with.
        model: the model that it is for; of a model change the new one, of a tokenizer the one that it belongs to, of a
            template the only one that it is for.
        rank, alpha, dropout, target_modules, sha256, source: of an adapter, as in the target.
        keys, loader, ttl_ms: of an event: business values to have ready, most wanted first.
        tags: of a managed prompt, for people.
        strategy: what to warm of it, where it is not the one usual for its kind (`analytics.strategies`).
    """

    announcement_id: Hash
    scope: Id
    pool: Id
    kind: AnnouncementKind
    name: Id
    version: Name
    replaces: Name | None = None
    announced_at_ms: Ms
    at_ms: Ms
    model: Id | None = None
    segments: Annotated[tuple[Segment, ...], Meta(max_length=MAX_SEGMENTS)] = ()
    render: Render = Render()
    rank: Rank | None = None
    alpha: Alpha | None = None
    dropout: Dropout | None = None
    target_modules: TargetModules = ()
    sha256: Id | None = None
    source: Id | None = None
    keys: Annotated[tuple[Id, ...], Meta(max_length=MAX_KEYS)] = ()
    loader: Label = ""
    ttl_ms: Annotated[int, Meta(ge=1000, le=86_400_000)] = 900_000
    strategy: Strategy | None = None
    tags: Annotated[tuple[Name, ...], Meta(max_length=MAX_TAGS)] = ()
    deleted: bool = False

    @property
    def event_time_ms(self) -> int:
        """When it was announced."""
        return self.announced_at_ms


def announcement_id(scope: str, pool: str, kind: str, name: str, version: str, at_ms: int) -> str:
    """Identity of a change: who, what, which version, and when."""
    return h128(scope, pool, kind, name, version, str(at_ms))
