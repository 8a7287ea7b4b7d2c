"""The answers of one query that a planner could serve again, and the one that it has sent to the cache."""

from __future__ import annotations

from msgspec import Struct, structs

from analytics.envelopes import Answered
from analytics.records import Record

MAX_ANSWERS = 4
"""Answers of one query that are remembered; the one in the cache, and those that came last."""


class KnownAnswer(Struct, frozen=True, array_like=True):
    """An answer whose text lies among its scope's blobs; see `envelopes.Answered`."""

    response: str
    ref: str
    model: str
    adapter: str
    template: str
    semantic_version: str
    at_ms: int


class AnswerRecord(Record, frozen=True, array_like=True):
    """One query.

    Attributes:
        answers: the one that came last at the end.
        version: of what the cache was last told; it grows with each other answer and with each withdrawal.
        served: the answer that the cache was told, None where there is none. fingerprint: of its entry's vector.
        until_ms: end of that entry, in the time of its command.
    """

    scope: str
    query: str
    answers: tuple[KnownAnswer, ...] = ()
    version: int = 0
    served: KnownAnswer | None = None
    fingerprint: str = ""
    until_ms: int = 0

    def with_answer(self, answered: Answered) -> AnswerRecord:
        """The record after one more answer."""
        answer = KnownAnswer(
            answered.response,
            answered.ref,
            answered.model,
            answered.adapter,
            answered.template,
            answered.semantic_version,
            answered.at_ms,
        )
        others = [each for each in self.answers if each.response != answer.response]
        while len(others) >= MAX_ANSWERS:
            others.remove(next(each for each in others if each != self.served))
        return structs.replace(self, answers=(*others, answer))

    def serving(self, answer: KnownAnswer, fingerprint: str, version: int, until_ms: int) -> AnswerRecord:
        """The record after an answer was sent to the cache."""
        return structs.replace(self, served=answer, fingerprint=fingerprint, version=version, until_ms=until_ms)

    def without(self, gone: tuple[KnownAnswer, ...]) -> AnswerRecord:
        """The record without some answers, nor the one in the cache if it is among them: that must leave it."""
        left = tuple(each for each in self.answers if each not in gone)
        if self.served is None or all(each.response != self.served.response for each in gone):
            return structs.replace(self, answers=left)
        return structs.replace(self, answers=left, version=self.version + 1, served=None, until_ms=0)

    def refused(self) -> AnswerRecord:
        """The record after the executor did not find or take the answer that it was sent for."""
        left = tuple(each for each in self.answers if each != self.served)
        return structs.replace(self, answers=left, served=None, until_ms=0)

    def next_version(self, answer: KnownAnswer) -> int:
        """Content version of a command that puts an answer into the cache."""
        return self.version if answer.response == self.serves else self.version + 1

    @property
    def serves(self) -> str:
        """Hash of the answer in the cache; empty where there is none."""
        return "" if self.served is None else self.served.response
