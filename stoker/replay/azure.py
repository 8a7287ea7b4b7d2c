"""Azure's LLM inference traces as a workload: real arrivals and lengths; prompts and questions of our own.

A row is TIMESTAMP (seven fractional digits), ContextTokens, GeneratedTokens (Azure/AzurePublicDataset). Nothing in it
tells what requests share, so every tenant gets a few system prompts, and a request takes the longest that fits.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from schemas import BrokenConfiguration
from stoker.replay.prose import prose
from stoker.replay.queries import GENERIC
from stoker.replay.turns import Piece, Turn
from stoker.replay.zipf import DriftingZipf


@dataclass(frozen=True)
class Arrival:
    """One row of a trace: offset from the first row, lengths in tokens."""

    at_ms: int
    context_tokens: int
    generated_tokens: int


@dataclass(frozen=True)
class AzureConfig:
    """How arrivals become requests.

    Attributes:
        tenants, tenant_exponent, tenant_drift_ms: the drifting Zipf law of the tenants, in the trace's time.
        query_exponent, query_drift_ms: of the questions.
        template_words: lengths of each tenant's system prompts, in words.
        question_words: what a request keeps free for its question when it chooses a system prompt.
        length_share: factor on all lengths, to play a trace on a small engine.
        users: users a tenant.
        seed: of all that is drawn.
    """

    tenants: int = 8
    tenant_exponent: float = 1.0
    tenant_drift_ms: float = 300_000.0
    query_exponent: float = 1.1
    query_drift_ms: float = 60_000.0
    template_words: tuple[int, ...] = (100, 400, 1_200, 3_000)
    question_words: int = 32
    length_share: float = 1.0
    users: int = 200
    seed: int = 0


def read_arrivals(path: Path) -> list[Arrival]:
    """All rows of a trace, plain or gzipped, in order of time.

    Raises:
        BrokenConfiguration: the file is missing or a row is not of this form; the message names the row.
    """
    arrivals: list[tuple[datetime, int, int]] = []
    number = 1  # the header
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8", newline="") as file
        ):
            for row in csv.DictReader(file):
                number += 1
                # Python reads six fractional digits; the seventh is a tenth of a microsecond.
                stamp = datetime.fromisoformat(row["TIMESTAMP"][:26])
                arrivals.append((stamp, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
    except (KeyError, ValueError, TypeError) as fault:
        raise BrokenConfiguration(f"{path}, line {number}: not a row of an Azure trace ({fault})") from None
    except (OSError, EOFError) as fault:
        raise BrokenConfiguration(f"the trace {path} cannot be read ({fault})") from None
    if not arrivals:
        raise BrokenConfiguration(f"the trace {path} is empty")
    arrivals.sort(key=lambda row: row[0])
    first = arrivals[0][0]
    return [
        Arrival(int((at - first).total_seconds() * 1000), context, generated) for at, context, generated in arrivals
    ]


def azure(arrivals: Sequence[Arrival], config: AzureConfig, queries: Sequence[str] = GENERIC) -> Iterator[Turn]:
    """The turns of a trace, at its times."""
    source = random.Random(config.seed)
    tenant_law = DriftingZipf(config.tenants, config.tenant_exponent, config.tenant_drift_ms, config.seed)
    query_law = DriftingZipf(len(queries), config.query_exponent, config.query_drift_ms, config.seed + 1)
    lengths = sorted(config.template_words)
    for number, arrival in enumerate(arrivals):
        tenant = f"tenant-{tenant_law.draw(source, arrival.at_ms)}"
        query = queries[query_law.draw(source, arrival.at_ms)]
        context = max(1, round(arrival.context_tokens * config.length_share))
        fitting = [length for length in lengths if length + config.question_words <= context]
        pieces = []
        if fitting:
            pieces.append(Piece("system", prose(f"{tenant}/system/{fitting[-1]}", fitting[-1])))
            context -= fitting[-1]
        spare = context - len(query.split())
        # Material that only this request brings: it is what makes two equal questions differ in length.
        if spare > 0:
            pieces.append(Piece("user", prose(f"{config.seed}/material/{number}", spare)))
        pieces.append(Piece("user", query))
        user = f"user-{source.randrange(config.users)}"
        yield Turn(
            at_ms=arrival.at_ms,
            tenant=tenant,
            user=f"{tenant}/{user}",
            session=f"{tenant}/{user}/{number}",
            pieces=tuple(pieces),
            query=query,
            output_tokens=max(1, round(arrival.generated_tokens * config.length_share)),
            prompt=f"system-{fitting[-1]}" if fitting else None,
        )
