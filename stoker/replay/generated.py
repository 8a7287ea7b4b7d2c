"""A workload of our own: tenants whose users talk about documents, favourites that change, and one-off uploads.

A prompt is [system prompt of the tenant][document][question][answer][question]...: the system prompt is the scope's
trunk, the document its prefix family. What makes warming worth a try is real life's: a document that many ask about
comes back every few seconds, and meanwhile uploads that nobody will ask about again have pushed it out (LRU has no
defence against such a scan). What makes it hard is real life's too: favourites change, and most documents are rarely
asked about.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stoker.replay.prose import prose
from stoker.replay.queries import GENERIC
from stoker.replay.turns import Piece, Turn
from stoker.replay.zipf import DriftingZipf


@dataclass(frozen=True)
class TenantPlan:
    """One tenant of a generated workload.

    Attributes:
        share: of all conversations; shares need not sum to 1.
        system_words: length of the system prompt that all of its requests begin with.
        families: documents that users come back to.
        document_words: length of each.
        exponent, drift_ms: popularity of the documents (`DriftingZipf`).
        one_off_share: conversations about a document that is never seen again, of the same length.
        withheld: sends hashes instead of texts.
    """

    name: str
    share: float
    system_words: int = 160
    families: int = 40
    document_words: int = 600
    exponent: float = 0.9
    drift_ms: float = 10_000.0
    one_off_share: float = 0.0
    withheld: bool = False


DEFAULT_TENANTS = (
    TenantPlan("shop", share=0.45, families=40, document_words=640, exponent=0.8, drift_ms=8_000.0),
    TenantPlan("docs", share=0.40, families=30, document_words=800, exponent=0.8, drift_ms=12_000.0, one_off_share=0.5),
    TenantPlan("clinic", share=0.15, families=12, document_words=500, exponent=0.8, withheld=True),
)
"""A shop with product sheets, a document service with many one-off uploads, and a clinic that withholds its texts."""


@dataclass(frozen=True)
class GeneratedConfig:
    """The workload.

    Attributes:
        requests_per_s: mean rate of requests; conversations start as a Poisson process.
        turns: mean number of turns a conversation (geometric), at least 1.
        think_ms: mean time between two turns of a conversation (exponential).
        answer_tokens: length of an answer.
        users: users a tenant.
        query_exponent: of the questions' Zipf law.
        seed: of all that is drawn.
    """

    tenants: Sequence[TenantPlan] = DEFAULT_TENANTS
    requests_per_s: float = 20.0
    turns: float = 1.6
    think_ms: float = 3_000.0
    answer_tokens: int = 12
    users: int = 300
    query_exponent: float = 1.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.requests_per_s <= 0 or self.turns < 1 or not self.tenants:
            raise ValueError("requests_per_s must be positive, turns at least 1, and there must be a tenant")


@dataclass(order=True)
class _Conversation:
    """A conversation that goes on at `at_ms`."""

    at_ms: float
    number: int
    plan: TenantPlan = field(compare=False)
    user: str = field(compare=False)
    pieces: tuple[Piece, ...] = field(compare=False)


def generated(config: GeneratedConfig, queries: Sequence[str] = GENERIC) -> Iterator[Turn]:
    """Turns without end, in order of arrival; the same config gives the same turns."""
    source = random.Random(config.seed)
    laws = {
        plan.name: DriftingZipf(plan.families, plan.exponent, plan.drift_ms, config.seed + index)
        for index, plan in enumerate(config.tenants)
    }
    query_law = DriftingZipf(len(queries), config.query_exponent, 60_000.0, config.seed)
    shares = [plan.share for plan in config.tenants]
    start_gap_ms = 1000.0 * config.turns / config.requests_per_s
    open_: list[_Conversation] = []
    next_start_ms = source.expovariate(1.0) * start_gap_ms
    number = 0
    while True:
        if not open_ or next_start_ms <= open_[0].at_ms:
            plan = source.choices(config.tenants, shares)[0]
            document = _document(plan, laws[plan.name], source, next_start_ms, number)
            user = f"{plan.name}/user-{source.randrange(config.users)}"
            system = Piece("system", prose(f"{plan.name}/system", plan.system_words))
            heapq.heappush(open_, _Conversation(next_start_ms, number, plan, user, (system, document)))
            next_start_ms += source.expovariate(1.0) * start_gap_ms
            number += 1
            continue
        talk = heapq.heappop(open_)
        query = queries[query_law.draw(source, talk.at_ms)]
        pieces = (*talk.pieces, Piece("user", query))
        yield Turn(
            at_ms=int(talk.at_ms),
            tenant=talk.plan.name,
            user=talk.user,
            session=f"{talk.plan.name}/talk-{talk.number}",
            pieces=pieces,
            query=query,
            output_tokens=config.answer_tokens,
            prompt=f"{talk.plan.name}-assistant",
            withheld=talk.plan.withheld,
        )
        if source.random() < 1.0 - 1.0 / config.turns:
            answer = Piece("assistant", prose(f"{talk.number}/answer/{len(pieces)}", config.answer_tokens))
            later_ms = talk.at_ms + source.expovariate(1.0) * config.think_ms
            heapq.heappush(open_, _Conversation(later_ms, talk.number, talk.plan, talk.user, (*pieces, answer)))


def _document(plan: TenantPlan, law: DriftingZipf, source: random.Random, at_ms: float, number: int) -> Piece:
    if source.random() < plan.one_off_share:
        return Piece("user", prose(f"{plan.name}/upload-{number}", plan.document_words))
    return Piece("user", prose(f"{plan.name}/document-{law.draw(source, at_ms)}", plan.document_words))
