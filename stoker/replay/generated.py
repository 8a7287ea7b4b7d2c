"""A workload of our own: tenants whose users talk about documents, favourites that change, and one-off uploads.

A prompt is [system prompt of the tenant][document][question][answer][question]...: the system prompt is the scope's
trunk, the document its prefix family. What makes warming worth a try is real life's: a document that many ask about
comes back every few seconds, and meanwhile uploads that nobody will ask about again have pushed it out (LRU has no
defence against such a scan). What makes it hard is real life's too: favourites change, and most documents are rarely
asked about.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stoker.replay.prose import prose
from stoker.replay.queries import GENERIC
from stoker.replay.turns import Piece, Turn
from stoker.replay.zipf import DriftingZipf


@dataclass(frozen=True)
class Promotion:
    """A crowd: for a while a share of a tenant's conversations is about one document that was not among the liked.

    Attributes:
        queries: how few different questions the crowd has.
    """

    at_ms: float
    for_ms: float
    share: float = 0.5
    queries: int = 3

    def on(self, at_ms: float) -> bool:
        """Whether it goes on at a time."""
        return self.at_ms <= at_ms < self.at_ms + self.for_ms


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
        adapters, rotation_ms: adapters that take turns, each for so long; none for the base model.
        promotion: a time when many ask about one document.
        crawl_ms: a robot asks about one document after the other at such a regular gap; 0 for none.
        domain: of all its requests.
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
    adapters: tuple[str, ...] = ()
    rotation_ms: float = 30_000.0
    promotion: Promotion | None = None
    crawl_ms: float = 0.0
    domain: str | None = None

    def adapter_at(self, at_ms: float) -> str | None:
        """The adapter whose turn it is."""
        return self.adapters[int(at_ms // self.rotation_ms) % len(self.adapters)] if self.adapters else None


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
        limited: whether a request asks for just this length; else the model ends by itself.
        users: users a tenant.
        query_exponent: of the questions' Zipf law.
        seed: of all that is drawn.
    """

    tenants: Sequence[TenantPlan] = DEFAULT_TENANTS
    requests_per_s: float = 20.0
    turns: float = 1.6
    think_ms: float = 3_000.0
    answer_tokens: int = 12
    limited: bool = True
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
    few: int = field(compare=False)
    """How few different questions it draws from; 0 for all."""


def generated(config: GeneratedConfig, queries: Sequence[str] = GENERIC) -> Iterator[Turn]:
    """Turns without end, in order of arrival; the same config gives the same turns."""
    robots = [_crawl(plan, queries, config) for plan in config.tenants if plan.crawl_ms]
    return heapq.merge(_people(config, queries), *robots, key=lambda turn: turn.at_ms)


def _people(config: GeneratedConfig, queries: Sequence[str]) -> Iterator[Turn]:
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
            crowd = plan.promotion
            joins = crowd is not None and crowd.on(next_start_ms) and source.random() < crowd.share
            document = _promoted(plan) if joins else _document(plan, laws[plan.name], source, next_start_ms, number)
            user = f"{plan.name}/user-{source.randrange(config.users)}"
            few = crowd.queries if joins and crowd is not None else 0
            pieces = (_system(plan), document)
            heapq.heappush(open_, _Conversation(next_start_ms, number, plan, user, pieces, few))
            next_start_ms += source.expovariate(1.0) * start_gap_ms
            number += 1
            continue
        talk = heapq.heappop(open_)
        query = queries[source.randrange(talk.few) if talk.few else query_law.draw(source, talk.at_ms)]
        asked = (*talk.pieces, Piece("user", query))
        yield _turn(talk.plan, talk.at_ms, talk.user, f"{talk.plan.name}/talk-{talk.number}", asked, query, config)
        if source.random() < 1.0 - 1.0 / config.turns:
            answer = Piece("assistant", prose(f"{talk.number}/answer/{len(asked)}", config.answer_tokens))
            later_ms = talk.at_ms + source.expovariate(1.0) * config.think_ms
            heapq.heappush(
                open_, _Conversation(later_ms, talk.number, talk.plan, talk.user, (*asked, answer), talk.few)
            )


def _crawl(plan: TenantPlan, queries: Sequence[str], config: GeneratedConfig) -> Iterator[Turn]:
    """One robot under one name, at machine-regular times, through documents that no person asks for."""
    for number in itertools.count():
        page = Piece("user", prose(f"{plan.name}/page-{number}", plan.document_words))
        pieces = (_system(plan), page, Piece("user", queries[0]))
        at_ms = number * plan.crawl_ms
        yield _turn(plan, at_ms, f"{plan.name}/robot", f"{plan.name}/crawl-{number}", pieces, queries[0], config)


def _turn(
    plan: TenantPlan,
    at_ms: float,
    user: str,
    session: str,
    pieces: tuple[Piece, ...],
    query: str,
    config: GeneratedConfig,
) -> Turn:
    return Turn(
        at_ms=int(at_ms),
        tenant=plan.name,
        user=user,
        session=session,
        pieces=pieces,
        query=query,
        output_tokens=config.answer_tokens if config.limited else None,
        prompt=f"{plan.name}-assistant",
        withheld=plan.withheld,
        adapter=plan.adapter_at(at_ms),
        domain=plan.domain,
    )


def _system(plan: TenantPlan) -> Piece:
    return Piece("system", prose(f"{plan.name}/system", plan.system_words))


def _promoted(plan: TenantPlan) -> Piece:
    return Piece("user", prose(f"{plan.name}/promoted", plan.document_words))


def _document(plan: TenantPlan, law: DriftingZipf, source: random.Random, at_ms: float, number: int) -> Piece:
    if source.random() < plan.one_off_share:
        return Piece("user", prose(f"{plan.name}/upload-{number}", plan.document_words))
    return Piece("user", prose(f"{plan.name}/document-{law.draw(source, at_ms)}", plan.document_words))
