"""The response half of a Redis pool's plan: answers that earned their place in the semantic cache, and lost it.

A whole answer is put into the cache while its mean reward is at the floor or above, its query is hot, and the query's
vector is there. One whose mean falls below the floor, or whose model or template has been replaced, is taken out at
once, and sent for again where that fails: that is no warm-up, so neither budget nor hold-out nor freeze keeps it back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from analytics.answer_drafts import warming, withdrawing
from analytics.commands import Draft, Offer
from analytics.demand_queue import DemandQueue
from analytics.embedding_planning import EmbeddingPlanner
from analytics.endings import ended_before
from analytics.envelopes import Answered
from analytics.known_answers import AnswerRecord, KnownAnswer
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PlanPolicy, PolicyBook, ScorePolicy
from analytics.records import Section, pack, path, unpack
from analytics.reward_book import RewardBook
from analytics.reward_posterior import PRIOR, posterior
from analytics.scoring import alpha_of, compute_dynamic_score
from analytics.withdrawals import WithdrawalRecord, Withdrawals
from schemas import Announcement, OutcomeReason, Response, WarmupOutcome
from schemas.canonical import bucket, response_key
from schemas.warmup_command import QOS_RANK

TRIGGER_BAD_REWARD = "bad_reward"
TRIGGER_REPLACED = "replaced"
RESPONSE = "response:"
"""Beginning of every target key of a response."""
_NOT_SERVED = frozenset({OutcomeReason.ANSWER_MISSING, OutcomeReason.BELOW_REWARD_FLOOR, OutcomeReason.DIGEST_MISMATCH})


class _Best(NamedTuple):
    """The answer to have in the cache, and what it earned as the rule counts it."""

    answer: KnownAnswer
    reward: float


class AnswerPlanner:
    """Judged answers of every scope, and which of them are worth an entry of the response cache.

    Args:
        rewards: what they earned.
        embeddings: knows which queries have a vector.
        withdrawals: answers on their way out of the cache; nothing else is put there for their queries meanwhile.
    """

    def __init__(
        self,
        config: PlanConfig,
        memory: TargetMemory,
        queue: DemandQueue,
        rewards: RewardBook,
        embeddings: EmbeddingPlanner,
        withdrawals: Withdrawals,
        store: Section,
    ) -> None:
        self._config = config
        self._memory = memory
        self._queue = queue
        self._rewards = rewards
        self._embeddings = embeddings
        self._withdrawals = withdrawals
        self._store = store
        self._known: dict[str, dict[str, AnswerRecord]] = {}

    def __len__(self) -> int:
        return sum(len(known) for known in self._known.values())

    def on_answer(self, answered: Answered) -> None:
        """Remembers an answer that was judged."""
        record = self._get(answered.scope, answered.query) or AnswerRecord(1, answered.scope, answered.query)
        self._put(record.with_answer(answered))

    def on_judged(self, scope: str, query: str, policy: PolicyBook) -> None:
        """Looks whether the answer in the cache has lost its place."""
        record = self._get(scope, query)
        if record is not None and record.served is not None and self._bad(record, record.served, policy.score(scope)):
            self._end(record, (record.served,), TRIGGER_BAD_REWARD)

    def on_outcome(self, outcome: WarmupOutcome) -> None:
        """Forgets the answer that a command was for if no executor can serve it, so that another may take its place.

        It comes back when it is given and judged again.
        """
        query = outcome.target_key.rpartition(":")[2]
        self._withdrawals.on_outcome(outcome.scope, query, outcome)
        record = self._get(outcome.scope, query)
        if record is None or record.served is None or outcome.reason not in _NOT_SERVED or outcome.action != "warm":
            return
        target = self._memory.get(outcome.scope, outcome.target_key)
        if target is not None and target.command_id == outcome.command_id:
            self._put(record.refused())

    def replaced(self, changes: Iterable[Announcement]) -> None:
        """Forgets the answers of models, tokenizers and templates that changes in effect have replaced."""
        for change in changes:
            for record in list(self._known.get(change.scope, {}).values()):
                held = record.answers if record.served is None else {*record.answers, record.served}
                gone = tuple(each for each in held if each.at_ms < ended_before((change,), each.model, each.template))
                if gone:
                    self._end(record, gone, TRIGGER_REPLACED)

    def withdrawals(self, at_ms: int, policy: PolicyBook) -> list[Draft]:
        """Commands that take answers out of the cache: of a frozen scope too, for a freeze is there to end harm."""
        return [self._withdrawal(each, at_ms, policy) for each in self._withdrawals.due(at_ms)]

    def review(self, at_ms: int, policy: PolicyBook) -> tuple[list[Offer], int, int]:
        """Looks at the judged answers of every scope's hot queries, and whether policy still likes what is served.

        Returns:
            offers, how many answers were looked at, and how many of them are live or in the cache.
        """
        offers: list[Offer] = []
        looked = suppressed = 0
        for scope, known in sorted(self._known.items()):
            score, plan = policy.score(scope), policy.plan(scope)
            for query in [query for query, record in known.items() if record.served is not None]:
                self.on_judged(scope, query, policy)
            if not plan.responses or policy.frozen(scope):
                continue
            for query in self._queue.queries(scope):
                record, embedded = known.get(query), self._embeddings.lookup(scope, query)
                best = self._best(record, score) if record is not None else None
                if record is None or best is None or embedded is None:
                    continue
                value = self._score(record, best, score)
                if value < score.answer_score:
                    continue
                looked += 1
                kept = best.answer.response == record.serves and embedded.fingerprint == record.fingerprint
                offer = self._offer(record, kept, at_ms, plan, value)
                if offer is None:
                    suppressed += 1
                else:
                    offers.append(offer)
        return offers, looked, suppressed

    def draft(self, offer: Offer, at_ms: int, policy: PolicyBook) -> Draft | None:
        """An offer of `review` in full; None where it is somebody else's."""
        if not offer.key.startswith(RESPONSE):
            return None
        scope, query = offer.scope, offer.key.rpartition(":")[2]
        record = self._known[scope][query]
        best, embedded = self._best(record, policy.score(scope)), self._embeddings.lookup(scope, query)
        assert best is not None
        assert embedded is not None
        reward, judgements = self._rewards.of(scope)[query].of_answer(best.answer.response)
        demand = self._queue.demand(scope, query, at_ms)
        rate_per_s = self._queue.rate_per_s(scope, demand)
        evidence = {
            "score": self._score(record, best, policy.score(scope)),
            "reward": reward,
            "judgements": float(judgements),
            "demand": demand,
            "rate_per_s": rate_per_s,
        }
        return warming(
            self._config,
            policy.plan(scope),
            at_ms,
            scope,
            query,
            best.answer,
            embedded.fingerprint,
            embedded.bytes,
            attempt=offer.attempt,
            version=record.next_version(best.answer),
            reward=reward,
            p_asked=-math.expm1(-rate_per_s * self._config.scaled(self._config.horizon_ms) / 1000),
            evidence=evidence,
        )

    def issued(self, draft: Draft) -> None:
        """Says that a draft went out; those of others are not looked at."""
        target = draft.source
        if not isinstance(target, Response):
            return
        if draft.action == "invalidate":
            sent = self._memory.get(draft.scope, draft.key)
            assert sent is not None
            self._withdrawals.sent(draft.scope, draft.unit, sent.command_id, sent.attempt, sent.expires_ms)
            return
        record = self._known[draft.scope][draft.unit]
        answer = next(each for each in record.answers if each.ref == target.response_ref)
        self._put(record.serving(answer, target.fingerprint, int(draft.content_version), target.until_ms))

    def expire(self, at_ms: int) -> None:
        """Forgets the answers of queries whose judgements are forgotten, when the cache holds none of them."""
        for scope, known in list(self._known.items()):
            judged = self._rewards.of(scope)
            for query, record in list(known.items()):
                leaving = (scope, query) in self._withdrawals
                if query not in judged and record.until_ms <= at_ms and not leaving:
                    self._drop(scope, query)

    def restore(self, blob: bytes) -> None:
        """Takes back one query."""
        self._hold(unpack(blob, AnswerRecord))

    def _bad(self, record: AnswerRecord, answer: KnownAnswer, score: ScorePolicy) -> bool:
        """Whether an answer was judged often enough, and badly."""
        earned = self._rewards.of(record.scope).get(record.query)
        if score.rule == "tuned":
            if earned is None or earned.evidence_of(answer.response).weight <= 0:
                return False
            return self._rewards.posterior(record.scope, record.query, answer.response).mean < score.reward_floor
        mean, count = earned.of_answer(answer.response) if earned is not None else (0.0, 0)
        return count >= score.judgements and mean < score.reward_floor

    def _best(self, record: AnswerRecord, score: ScorePolicy) -> _Best | None:
        """The answer to have in the cache: the one that is there as long as it is good, else the best of the good."""
        earned = self._rewards.of(record.scope).get(record.query)
        if earned is None or (record.scope, record.query) in self._withdrawals:
            return None
        tuned = score.rule == "tuned"
        prior = self._rewards.prior(record.scope, record.query) if tuned else PRIOR
        good = []
        for answer in record.answers:
            reward, count = earned.of_answer(answer.response)
            enough = count >= score.judgements
            if tuned:
                reward, enough = posterior(earned.evidence_of(answer.response), prior).lower(), count > 0
            if enough and reward >= score.reward_floor:
                order = (answer.response == record.serves, reward, count, answer.at_ms, answer.response)
                good.append((order, _Best(answer, reward)))
        return max(good, key=lambda each: each[0])[1] if good else None

    def _score(self, record: AnswerRecord, best: _Best, policy: ScorePolicy) -> float:
        """The score with what this answer earned: what others to the same query did is no reason against it."""
        earned = self._rewards.of(record.scope)[record.query]
        share = self._queue.share(record.scope, record.query)
        return compute_dynamic_score(best.reward, share, 1.0, alpha_of(earned.domain, policy))

    def _offer(self, record: AnswerRecord, kept: bool, at_ms: int, plan: PlanPolicy, value: float) -> Offer | None:
        """An offer, unless its command is under way or, for an entry to be `kept` as it is, not needed yet."""
        config, key = self._config, response_key(self._config.response_cache, record.query)
        now, attempt = bucket(at_ms, config.scaled(plan.response_repeat_ms)), 1
        target = self._memory.get(record.scope, key)
        if target is not None:
            rests = target.rests_until_ms > at_ms
            lasts = min(target.anywhere_until(), record.until_ms) > at_ms + config.scaled(plan.lead_ms)
            if target.live(at_ms) or rests or (kept and (lasts or target.bucket >= now)):
                return None
            attempt = target.next_attempt(now, at_ms)
        return Offer(QOS_RANK[plan.qos], -value, record.scope, key, (), attempt)

    def _end(self, record: AnswerRecord, gone: tuple[KnownAnswer, ...], trigger: str) -> None:
        """Forgets some answers; one that is in the cache must leave it."""
        left = record.without(gone)
        self._put(left)
        if record.served is not None and left.served is None:
            names = (record.scope, record.query, record.served, record.fingerprint)
            self._withdrawals.add(WithdrawalRecord(1, *names, left.version, record.until_ms, trigger))

    def _withdrawal(self, leaving: WithdrawalRecord, at_ms: int, policy: PolicyBook) -> Draft:
        plan = policy.plan(leaving.scope)
        earned = self._rewards.of(leaving.scope).get(leaving.query)
        target = self._memory.get(leaving.scope, response_key(self._config.response_cache, leaving.query))
        now = bucket(at_ms, self._config.scaled(plan.response_repeat_ms))
        further = 1 if target is None else target.next_attempt(now, at_ms)
        return withdrawing(
            self._config,
            plan,
            at_ms,
            leaving,
            # Its executor does nothing twice under one id: the number grows though the target may be forgotten.
            max(leaving.attempt + 1, further),
            earned.of_answer(leaving.answer.response) if earned is not None else (0.0, 0),
        )

    def _get(self, scope: str, query: str) -> AnswerRecord | None:
        return self._known.get(scope, {}).get(query)

    def _put(self, record: AnswerRecord) -> None:
        self._hold(record)
        self._store.put(path(record.scope, record.query), pack(record))

    def _hold(self, record: AnswerRecord) -> None:
        self._known.setdefault(record.scope, {})[record.query] = record

    def _drop(self, scope: str, query: str) -> None:
        del self._known[scope][query]
        if not self._known[scope]:
            del self._known[scope]
        self._store.remove(path(scope, query))
