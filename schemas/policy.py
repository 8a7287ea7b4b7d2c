"""Policy: one section of the running rules of a scope (compacted topic warmup.policy)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from schemas.fields import Count, Id, Ms, Name

Section = Literal[
    "focus",
    "score",
    "plan",
    "quota",
    "budget",
    "breaker",
    "experiment",
    "freeze",
    "schedule",
    "pattern",
    "adapter",
    "prompt",
]
EVERY_SCOPE = "*"
"""The scope of a policy that holds wherever a scope has none of its own."""


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="policy/1"):
    """A section of one writer. Readers apply only a greater version; `frozen` is the OR over all writers' freezes.

    The body's keys are those of the section, listed in `docs/configuration.md`.
    """

    scope: Id
    section: Section
    writer: Name
    version: Count
    at_ms: Ms
    body: dict[str, str | int | float | bool | None] = {}
    deleted: bool = False

    @property
    def event_time_ms(self) -> int:
        """When it was written."""
        return self.at_ms
