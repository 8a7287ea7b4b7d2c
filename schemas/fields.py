"""Field types shared by the messages: limits of DESIGN §3.2 and the class of each field.

A field's class says what it may give away. `text` is a person's words or derived from them reversibly, `id` names a
person, tenant or thing, and everything else is `none`. The class travels in the exported JSON Schema as `x-class`, so
that a log, a dead letter or an export can strip by class instead of by a list of names.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_STRING_CHARS = 256
MAX_QUERY_BYTES = 64 * 1024
MAX_SEGMENTS = 1024
MAX_TOKENS = 1 << 24
LAST_MS = 4_102_444_800_000
"""The first millisecond of the year 2100: later times are a mistake of the producer's clock or unit."""

_ID = {"x-class": "id"}
_TEXT = {"x-class": "text"}

Id = Annotated[str, Meta(min_length=1, max_length=MAX_STRING_CHARS, extra_json_schema=_ID)]
"""A name or identity, 1 to 256 characters."""

Hash = Annotated[str, Meta(min_length=32, max_length=32, extra_json_schema=_ID)]
"""32 lower-case hex digits, see `schemas.canonical`. The digits themselves are checked after decoding."""

Name = Annotated[str, Meta(min_length=1, max_length=MAX_STRING_CHARS)]
"""A word of the system's own vocabulary: a reason, a version, a section."""

Label = Annotated[str, Meta(max_length=MAX_STRING_CHARS)]
"""A free word that may be empty."""

Text = Annotated[str, Meta(max_length=MAX_QUERY_BYTES, extra_json_schema=_TEXT)]
"""A person's words. The limit in bytes is checked after decoding."""

Ms = Annotated[int, Meta(ge=0, lt=LAST_MS)]
"""Milliseconds since 1970, event time unless the name says otherwise."""

DurationMs = Annotated[float, Meta(ge=0, le=86_400_000)]
"""A span of up to a day in milliseconds."""

Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Rank = Annotated[int, Meta(ge=1, le=4096)]
"""Rank of a LoRA adapter: `r` of its `adapter_config.json`."""

Alpha = Annotated[float, Meta(gt=0, le=1e6)]
"""Scaling of a LoRA adapter: its `lora_alpha`."""

Dropout = Annotated[float, Meta(ge=0, lt=1)]
"""Dropout that a LoRA adapter was trained with: its `lora_dropout`."""

MAX_TARGET_MODULES = 256
TargetModules = Annotated[tuple[Name, ...], Meta(max_length=MAX_TARGET_MODULES)]
"""Modules of the base model that a LoRA adapter changes: its `target_modules`."""

Amount = Annotated[float, Meta(ge=0, le=1e18)]
"""A finite, non-negative quantity in the unit that its name gives."""
