"""What every workload source yields: one request as a person meant it, before anything is hashed or sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from schemas.request_event import Role


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment of a prompt.

    Attributes:
        role: of the message, or `block` for a token block.
        text: the message, or the block's token ids in decimal joined by blanks (DESIGN §3.2).
    """

    role: Role
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request.

    Attributes:
        at_ms: arrival, counted from the start of the workload.
        pieces: the prompt, oldest first; either messages or token blocks, never both.
        query: the last user turn.
        output_tokens: length of the answer that it asks for, at least 1; None lets the model end by itself.
        prompt: name of the managed prompt that it was built from, if any.
        adapter: that it asks for in place of the base model.
        domain: what it is about, as the score's weights know it.
        withheld: its producer keeps texts to itself: the event carries hashes and a redaction mark only.
    """

    at_ms: int
    tenant: str
    user: str
    session: str
    pieces: tuple[Piece, ...]
    query: str = field(repr=False)
    output_tokens: int | None
    prompt: str | None = None
    withheld: bool = False
    adapter: str | None = None
    domain: str | None = None

    @property
    def is_blocks(self) -> bool:
        """Whether the prompt consists of token blocks (completions) instead of messages (chat)."""
        return bool(self.pieces) and self.pieces[0].role == "block"


def until(turns: Iterable[Turn], end_ms: float) -> Iterator[Turn]:
    """The turns that arrive before `end_ms`, of a source that yields them in order of arrival."""
    for turn in turns:
        if turn.at_ms >= end_ms:
            return
        yield turn


def faster(turns: Iterable[Turn], speed: float) -> Iterator[Turn]:
    """The same turns with arrivals `speed` times as dense.

    Raises:
        ValueError: speed is not positive.
    """
    if speed <= 0:
        raise ValueError(f"speed must be positive, not {speed}")
    for turn in turns:
        yield replace(turn, at_ms=int(turn.at_ms / speed))
