"""Mooncake's traces as a workload: real prefix structure, token ids made from block ids.

A line is {"timestamp" ms, "input_length", "output_length", "hash_ids"}: one id per block of 512 tokens, equal ids mean
equal prefixes (kvcache-ai/Mooncake, FAST'25). The trace has no tokens, tenants, users or questions: a block's tokens
follow from its id, a session is the first block below what all share, tenants and questions are drawn.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from schemas import BrokenConfiguration
from schemas.canonical import token_block_content
from stoker.replay.queries import GENERIC
from stoker.replay.turns import Piece, Turn
from stoker.replay.zipf import DriftingZipf

TRACE_BLOCK_TOKENS = 512
SHARED_BY = 0.01
"""A block that more than this share of the requests starts with belongs to everybody, not to a session."""
_FIRST_TOKEN = 256
_TOKEN_SPAN = 1 << 16


class Line(msgspec.Struct, frozen=True):
    """One request of a trace file."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True)
class MooncakeConfig:
    """How a trace becomes a workload.

    Attributes:
        block_tokens: tokens of a block; 512 is the trace's own scale, less shrinks every prompt by the same factor.
        answer_share: factor on the length of answers.
        tenants: how many tenants the sessions are dealt to.
        tenant_exponent, tenant_drift_ms: of their drifting Zipf law, in the trace's time.
        query_exponent, query_drift_ms: of the questions' law.
        seed: of all that is drawn.
    """

    block_tokens: int = TRACE_BLOCK_TOKENS
    answer_share: float = 1.0
    tenants: int = 4
    tenant_exponent: float = 1.0
    tenant_drift_ms: float = 600_000.0
    query_exponent: float = 1.1
    query_drift_ms: float = 60_000.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.block_tokens < 1 or self.tenants < 1 or self.answer_share <= 0:
            raise ValueError("block_tokens and tenants must be at least 1, answer_share positive")


def block_ids(block: int, tokens: int) -> tuple[int, ...]:
    """Token ids of a block: a linear congruence that starts at the block's id, so that blocks differ early."""
    state = (block * 2_654_435_761 + 12_345) % (1 << 32)
    ids = []
    for _ in range(tokens):
        state = (state * 1_664_525 + 1_013_904_223) % (1 << 32)
        ids.append(_FIRST_TOKEN + (state >> 16) % _TOKEN_SPAN)
    return tuple(ids)


def read_trace(path: Path) -> list[Line]:
    """All lines of a trace, plain or gzipped.

    Raises:
        BrokenConfiguration: the file is missing or a line is not of this form; the message names the line.
    """
    decoder = msgspec.json.Decoder(Line)
    lines = []
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                number += 1
                if line.strip():
                    lines.append(decoder.decode(line))
    except msgspec.MsgspecError as fault:
        raise BrokenConfiguration(f"{path}, line {number}: not a Mooncake request ({fault})") from None
    except (OSError, EOFError) as fault:
        raise BrokenConfiguration(f"the trace {path} cannot be read ({fault})") from None
    if not lines:
        raise BrokenConfiguration(f"the trace {path} is empty")
    return lines


def mooncake(lines: Sequence[Line], config: MooncakeConfig, queries: Sequence[str] = GENERIC) -> Iterator[Turn]:
    """The turns of a trace, in its order and at its times."""
    uses = Counter(block for line in lines for block in set(line.hash_ids))
    common = {block for block, count in uses.items() if count > SHARED_BY * len(lines)}
    source = random.Random(config.seed)
    tenant_law = DriftingZipf(config.tenants, config.tenant_exponent, config.tenant_drift_ms, config.seed)
    query_law = DriftingZipf(len(queries), config.query_exponent, config.query_drift_ms, config.seed + 1)
    tenant_of: dict[int, int] = {}
    for number, line in enumerate(lines):
        own = next((block for block in line.hash_ids if block not in common), -1 - number)
        if own not in tenant_of:
            tenant_of[own] = tenant_law.draw(source, line.timestamp)
        yield Turn(
            at_ms=line.timestamp,
            tenant=f"tenant-{tenant_of[own]}",
            user=f"user-{own}",
            session=f"session-{own}",
            pieces=_blocks(line, config.block_tokens),
            query=queries[query_law.draw(source, line.timestamp)],
            output_tokens=max(1, round(line.output_length * config.answer_share)),
        )


def _blocks(line: Line, block_tokens: int) -> tuple[Piece, ...]:
    """One piece a block. Only the last one may be short: it is what the trace left over, at least one token."""
    left = max(1, round(line.input_length * block_tokens / TRACE_BLOCK_TOKENS))
    pieces = []
    for block in line.hash_ids:
        tokens = min(block_tokens, left)
        if tokens < 1:
            break
        pieces.append(Piece("block", token_block_content(block_ids(block, tokens))))
        left -= tokens
    return tuple(pieces)
