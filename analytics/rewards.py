"""Rewards and the answers that they judge, joined by scope, query and answer in a demand shard (D6).

Either may come first. A reward whose request has not been seen waits for it for a bounded time; a request's answer is
remembered for rewards to come. What is known is a function of the entries that are retained: answers and judgements in
the order in which they came, in one small blob a slide, written once. The oldest slides go first, by age or for want of
room, and take their judgements out of the sums. So a shard that is rebuilt from its store knows what the lost one knew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from analytics.envelopes import Answered, Rewarded, Tag, seal
from analytics.reward_entries import Answering, Entry, Judging, Lost, Repeated, pack_entries, read_entries
from analytics.reward_sums import JudgedQuery, RewardSum
from analytics.stores import LogStore

LAST_KEY = -(1 << 61)
"""The blobs of rewards have keys below it, those of panes and of asks above."""
_FIRST_KEY = -(1 << 62)
MAX_TOLD = 4
"""A judgement that names no answer tells of so many of the latest answers of its query."""

MAX_WAITING = 64
"""Rewards of one query that may wait: each of its requests looks at all of them."""

COUNTERS = ("reward_joined", "reward_unmatched", "reward_repeated", "reward_lost", "answers_kept", "answers_lost")
"""Rewards by what came of them (joined, given up after waiting, seen before, no room), and answers."""

Kept = Answering | Judging
Subject = tuple[str, bytes]
"""Scope and query."""


@dataclass(frozen=True)
class RewardConfig:
    """Bounds of the join. Durations are event time, already divided by the time scale.

    Attributes:
        wait_ms: how long a reward waits for its request.
        memory_ms: how long answers and judgements are remembered; a mean is over the judgements of this time.
        max_entries: answers and judgements that a shard remembers; the oldest go first.
    """

    wait_ms: int = 120_000
    memory_ms: int = 3_600_000
    max_entries: int = 20_000

    @property
    def refresh_ms(self) -> int:
        """An answer that is given again and again is written down again this often, so that it is not forgotten."""
        return self.memory_ms // 8


class RewardJoin:
    """The join of one shard.

    Args:
        config: bounds.
        pane_ms: length of a slide.
        store: of the shard.
        log: the log that is its own.
        counters: of the shard; `COUNTERS` are added to it.
    """

    def __init__(self, config: RewardConfig, pane_ms: int, store: LogStore, log: int, counters: dict[str, int]) -> None:
        self._config = config
        self._pane_ms = pane_ms
        self._store = store
        self._log = log
        self._counters = counters
        counters.update(dict.fromkeys(COUNTERS, 0))
        self._queries: dict[Subject, JudgedQuery] = {}
        self._ids: dict[int, bool] = {}
        self._fresh: list[Kept] = []
        self._logged = False
        self._slides: deque[tuple[int, list[Kept]]] = deque()
        self._retained = 0
        self.waiting: set[Subject] = set()
        """Queries with rewards that wait: a request looks here before anything else."""

    def on_reward(self, reward: Judging, asked: bool) -> list[bytes]:
        """A judgement; `due_ms` says how long it waits if it must.

        Args:
            asked: whether a request for its query has been counted in the window.

        Returns:
            ANSWER and REWARDED envelopes, where the request that it judges is known.
        """
        if reward.identity in self._ids:
            self._log_entry(Repeated())
            self._counters["reward_repeated"] += 1
            return []
        subject = (reward.scope, reward.query)
        held = self._queries.get(subject)
        joined = (asked and not reward.response) or (held is not None and held.knows(reward.response))
        crowded = not joined and held is not None and len(held.waiting) >= MAX_WAITING
        if not self._room(answer=False, crowded=crowded):
            return []
        entry = msgspec.structs.replace(reward, due_ms=0) if joined else reward
        self._write(entry)
        self._take_reward(entry)
        return self._told(subject, reward.response, reward.at_ms) if joined else []

    def on_answer(self, answer: Answering) -> list[bytes]:
        """The answer of a request that counts; one without a hash only says that its query was asked.

        Returns:
            ANSWER and REWARDED envelopes, where rewards for it are known.
        """
        subject = (answer.scope, answer.query)
        held = self._queries.get(subject)
        waited = held is not None and bool(held.waiting_for(answer))
        if not (waited or self._news(held, answer)) or not self._room(answer=True):
            return []
        self._write(answer)
        joined = self._take_answer(answer)
        if joined:
            return self._told(subject, answer.response, max(reward.at_ms for reward in joined))
        return _served(self._queries[subject], answer)

    def slide(self, slide: int, at_ms: int) -> None:
        """Gives up rewards that waited too long, lays what came since the last slide, forgets the oldest slides."""
        self._counters["reward_unmatched"] += self._give_up(at_ms)
        if self._fresh:
            self._store.put(_FIRST_KEY + slide, pack_entries(self._fresh))
            self._slides.append((slide, self._fresh))
            self._fresh = []
        if self._logged:
            self._store.clear(self._log)
            self._logged = False
        while self._slides and (self._oldest_due_ms <= at_ms or self._retained > self._config.max_entries):
            self._forget(*self._slides.popleft())

    def next_due_ms(self) -> int | None:
        """When a slide has something to give up or to forget; None while nothing is known."""
        due = [reward.due_ms for subject in self.waiting for reward in self._queries[subject].waiting]
        if self._slides:
            due.append(self._oldest_due_ms)
        return min(due, default=None)

    def restore(self, blobs: Iterable[tuple[int, bytes]], clock_ms: int) -> None:
        """Reads back the blobs of slides, and then the log.

        Args:
            clock_ms: the last slide.
        """
        counted = dict(self._counters)
        for key, blob in sorted(blobs):
            kept = [entry for entry in read_entries(blob) if isinstance(entry, Answering | Judging)]
            self._slides.append((key - _FIRST_KEY, kept))
            for entry in kept:
                self._take(entry)
        self._give_up(clock_ms)
        self._counters.update(counted)
        for blob in self._store.read(self._log):
            self._logged = True
            for each in read_entries(blob):
                if isinstance(each, Answering | Judging):
                    self._fresh.append(each)
                self._take(each)

    @property
    def _oldest_due_ms(self) -> int:
        return self._slides[0][0] * self._pane_ms + self._config.memory_ms

    # What an entry does

    def _news(self, held: JudgedQuery | None, answer: Answering) -> bool:
        """Whether an answer is to be written down although no reward waits for it."""
        before = held.answers.get(answer.response) if held is not None else None
        if before is None:
            return bool(answer.response or answer.domain)
        return answer.now_ms >= before.now_ms + self._config.refresh_ms or (answer.usable and not before.usable)

    def _room(self, answer: bool, crowded: bool = False) -> bool:
        """Whether one more entry may come before the next slide; counts it as lost where not."""
        if len(self._fresh) < self._config.max_entries and not crowded:
            return True
        self._log_entry(Lost(answer))
        self._counters["answers_lost" if answer else "reward_lost"] += 1
        return False

    def _log_entry(self, entry: Entry) -> None:
        self._store.append(self._log, pack_entries([entry]))
        self._logged = True

    def _write(self, entry: Kept) -> None:
        self._log_entry(entry)
        self._fresh.append(entry)

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, Judging):
            self._take_reward(entry)
        elif isinstance(entry, Answering):
            self._take_answer(entry)
        elif isinstance(entry, Repeated):
            self._counters["reward_repeated"] += 1
        else:
            self._counters["answers_lost" if entry.answer else "reward_lost"] += 1

    def _take_reward(self, reward: Judging) -> None:
        self._retained += 1
        subject = (reward.scope, reward.query)
        held = self._query(subject)
        self._ids[reward.identity] = not reward.due_ms
        if reward.due_ms:
            held.waiting.append(reward)
            self.waiting.add(subject)
        else:
            held.add(reward)
            self._counters["reward_joined"] += 1

    def _take_answer(self, answer: Answering) -> list[Judging]:
        self._retained += 1
        self._counters["answers_kept"] += 1
        subject = (answer.scope, answer.query)
        held = self._query(subject)
        held.answers.pop(answer.response, None)
        held.answers[answer.response] = answer
        joined = held.waiting_for(answer)
        for reward in joined:
            held.waiting.remove(reward)
            held.add(reward)
            self._ids[reward.identity] = True
        self._counters["reward_joined"] += len(joined)
        self._settle(subject, held)
        return joined

    def _query(self, subject: Subject) -> JudgedQuery:
        held = self._queries.get(subject)
        if held is None:
            held = self._queries[subject] = JudgedQuery()
        return held

    # What time does

    def _give_up(self, at_ms: int) -> int:
        given_up = 0
        for subject in list(self.waiting):
            held = self._queries[subject]
            left = [reward for reward in held.waiting if reward.due_ms > at_ms]
            given_up += len(held.waiting) - len(left)
            held.waiting = left
            self._settle(subject, held)
        return given_up

    def _forget(self, slide: int, entries: list[Kept]) -> None:
        self._store.remove(_FIRST_KEY + slide)
        self._retained -= len(entries)
        for entry in entries:
            if isinstance(entry, Answering):
                subject = (entry.scope, entry.query)
                held = self._queries.get(subject)
                if held is not None and held.answers.get(entry.response) is entry:
                    del held.answers[entry.response]
                    self._settle(subject, held)
            else:
                self._forget_reward(entry)

    def _forget_reward(self, reward: Judging) -> None:
        subject = (reward.scope, reward.query)
        joined = self._ids.pop(reward.identity)
        held = self._queries.get(subject)
        if held is None:
            return
        if joined:
            held.add(reward, -1)
        elif reward in held.waiting:
            held.waiting.remove(reward)
            self._counters["reward_unmatched"] += 1
        self._settle(subject, held)

    def _settle(self, subject: Subject, held: JudgedQuery) -> None:
        """Takes a query off the list of those that wait, and out of memory, where nothing keeps it."""
        if not held.waiting:
            self.waiting.discard(subject)
            if held.empty:
                del self._queries[subject]

    def _told(self, subject: Subject, response: bytes, at_ms: int) -> list[bytes]:
        scope, query = subject
        held = self._queries[subject]
        answers = [held.answers[response]] if response else list(held.answers.values())[-MAX_TOLD:]
        named = held.named.get(response) or RewardSum()
        rewarded = Rewarded(
            scope=scope,
            query=query.hex(),
            response=response.hex(),
            domain=answers[-1].domain if answers else "",
            at_ms=at_ms,
            total=held.total.micro,
            total_count=held.total.count,
            unnamed=held.unnamed.micro,
            unnamed_count=held.unnamed.count,
            named=named.micro,
            named_count=named.count,
            total_weighted=held.total.weighted,
            total_quarters=held.total.quarters,
            unnamed_weighted=held.unnamed.weighted,
            unnamed_quarters=held.unnamed.quarters,
            named_weighted=named.weighted,
            named_quarters=named.quarters,
        )
        return [
            *(envelope for answer in answers for envelope in _served(held, answer)),
            seal(Tag.REWARDED, scope, rewarded),
        ]


def _served(held: JudgedQuery, answer: Answering) -> list[bytes]:
    """ANSWER of one that was judged and may be served again."""
    if not answer.usable or not held.judged(answer.response):
        return []
    told = Answered(
        scope=answer.scope,
        query=answer.query.hex(),
        response=answer.response.hex(),
        ref=answer.ref,
        model=answer.model,
        adapter=answer.adapter,
        template=answer.template,
        semantic_version=answer.semantic_version,
        at_ms=answer.at_ms,
    )
    return [seal(Tag.ANSWER, answer.scope, told)]
