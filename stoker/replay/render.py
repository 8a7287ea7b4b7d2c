"""From pieces to segments: the hash chain of DESIGN §3.2, token counts as the engine counts, and the texts to store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from schemas import Render, Segment
from schemas.canonical import root_hash, segment_hash
from stoker.replay.turns import Piece

CountTokens = Callable[[Piece], Awaitable[int]]
"""Asks an engine for the tokens of one message, its template marks included."""
_COUNTS_KEPT = 65_536


@dataclass(frozen=True)
class Rendered:
    """A prompt as an event names it.

    Attributes:
        segments: oldest first, chained.
        render: what was put into the root of the chain.
    """

    segments: tuple[Segment, ...]
    render: Render

    @property
    def tokens(self) -> int:
        """Length of the prompt without the marks that open an answer."""
        return sum(segment.tokens for segment in self.segments)


@dataclass
class TokenCounts:
    """Token counts of pieces, asked for once per distinct text and then remembered (the last 65,536).

    Blocks count themselves. Where the engine cannot be asked the count is an estimate, four characters a token, and is
    not remembered, so that it gets right as soon as the engine answers; `estimated` tells how often that was.
    """

    ask: CountTokens
    estimated: int = 0
    _known: OrderedDict[Piece, int] = field(default_factory=OrderedDict, repr=False)

    async def of(self, piece: Piece) -> int:
        """Tokens of one piece."""
        if piece.role == "block":
            return piece.text.count(" ") + 1 if piece.text else 0
        known = self._known.get(piece)
        if known is not None:
            self._known.move_to_end(piece)
            return known
        try:
            count = await self.ask(piece)
        except (OSError, ValueError):  # not reachable, or no such route: a count is not worth a request
            self.estimated += 1
            return max(1, len(piece.text) // 4)
        self._known[piece] = count
        if len(self._known) > _COUNTS_KEPT:
            self._known.popitem(last=False)
        return count


def chain(
    pieces: Sequence[Piece], tokens: Sequence[int], model: str, render: Render, adapter: str | None = None
) -> tuple[Segment, ...]:
    """Segments of a prompt; `tokens` counts each piece alone."""
    parent = root_hash(model, adapter, render.template_sha, render.tools_sha)
    segments = []
    for piece, count in zip(pieces, tokens, strict=True):
        parent = segment_hash(parent, piece.role, piece.text)
        segments.append(Segment(parent, count, piece.role))
    return tuple(segments)


async def rendered(
    pieces: Sequence[Piece], counts: TokenCounts, model: str, render: Render, adapter: str | None = None
) -> Rendered:
    """A prompt with its token counts."""
    tokens = [await counts.of(piece) for piece in pieces]
    return Rendered(chain(pieces, tokens, model, render, adapter), render)
