"""A file of managed prompts (D7): one JSON object a line, {"id", "content", "tags"}.

`id` is the prompt's name and version, `faq@3`. `content` is what its requests begin with: a text (one system message)
or a list of messages. `tags` are for people. Every prompt starts at hotness 1; requests and adopted answers move it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from schemas import BrokenConfiguration
from schemas.announcement import MAX_TAGS
from schemas.fields import Name
from schemas.request_event import Role

_Id = Annotated[str, Meta(pattern="^.+@[^@]+$", max_length=256)]
_Text = Annotated[str, Meta(min_length=1)]


class PromptMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message that requests of a prompt begin with."""

    role: Role
    content: _Text


class ManagedPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the file.

    Attributes:
        replaces: the version that ends when this one takes effect.
    """

    id: _Id
    content: _Text | Annotated[tuple[PromptMessage, ...], Meta(min_length=1)]
    tags: Annotated[tuple[Name, ...], Meta(max_length=MAX_TAGS)] = ()
    replaces: Name | None = None

    @property
    def name(self) -> str:
        """The id without its version."""
        return self.id.rpartition("@")[0]

    @property
    def version(self) -> str:
        """What stands behind the last `@`."""
        return self.id.rpartition("@")[2]

    @property
    def messages(self) -> tuple[PromptMessage, ...]:
        """The content as messages."""
        return (PromptMessage("system", self.content),) if isinstance(self.content, str) else self.content


_decoder = msgspec.json.Decoder(ManagedPrompt)


def read_prompts(file: Path) -> Iterator[ManagedPrompt]:
    """The prompts of a file, in its order; empty lines are passed over.

    Raises:
        BrokenConfiguration: the file or a line cannot be read, or an id comes twice. The message names the line.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise BrokenConfiguration(f"{file}: cannot be read: {error.strerror}") from None
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            prompt = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BrokenConfiguration(
                f'{file}, line {number}: {error}; write {{"id": "faq@3", "content": "…", "tags": ["…"]}}'
            ) from None
        if prompt.id in seen:
            raise BrokenConfiguration(f"{file}, line {number}: {prompt.id} stands in line {seen[prompt.id]} already")
        seen[prompt.id] = number
        yield prompt
