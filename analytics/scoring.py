"""The dynamic score of a query (D6): what it earned and how often it is asked, in [0, 1].

The reference rule takes the mean of its rewards. By `rule = "tuned"` it is the mean of a posterior, which a few
judgements move little and those of its cluster move too; demand is the same by both.

A query that nobody judged scores by demand alone. Weighing it as if it had earned nothing would cap its score at
1 - alpha = 0.3, so that a deployment without a reward model would drop nearly everything: no judgement is no bad one.
"""

from __future__ import annotations

import heapq
import math

from analytics.decay import EMPTY, Decay
from analytics.policy_sections import ScorePolicy
from analytics.records import Record, Section, pack, path, unpack
from analytics.reward_book import Earned, RewardBook
from schemas import Score

SPEC = ScorePolicy()
FADED = 0.01
"""A queue whose 99th percentile is below a hundredth of an arrival is gone."""


def compute_dynamic_score(reward: float | None, demand: float, demand_p99: float, alpha: float = 0.7) -> float:
    """α·reward + (1 − α)·demand, with demand divided by the scope's 99th percentile and cut at 1.

    Args:
        reward: in [0, 1]; None while none is known, then demand alone is the score.
        demand: Σ exp(−age / mean life) over the query's arrivals.
        demand_p99: 99th percentile of the demands of the scope's queries.
        alpha: weight of the reward half.

    >>> compute_dynamic_score(0.5, 3.0, 6.0)
    0.5
    >>> compute_dynamic_score(None, 9.0, 6.0)
    1.0
    """
    share = min(1.0, demand / demand_p99) if demand_p99 > 0 else 0.0
    return share if reward is None else alpha * reward + (1 - alpha) * share


def alpha_of(domain: str, policy: ScorePolicy = SPEC) -> float:
    """Weight of the reward in a request's domain, however that is spelled.

    >>> alpha_of("E-Commerce"), alpha_of("news"), alpha_of("")
    (0.85, 0.6, 0.7)
    """
    if not domain:
        return policy.alpha
    word = "".join(filter(str.isalnum, domain.lower()))
    if word == "ecommerce":
        return policy.alpha_ecommerce
    return policy.alpha_news if word == "news" else policy.alpha


def score_of(share: float, earned: Earned | None, policy: ScorePolicy = SPEC, reward: float | None = None) -> float:
    """The score of a query whose demand is `share` of the 99th percentile, with what it earned, if it was judged.

    Args:
        reward: what it is worth, where that is not the mean of its rewards.
    """
    if earned is None:
        return compute_dynamic_score(None, share, 1.0)
    worth = earned.mean if reward is None else reward
    return compute_dynamic_score(worth, share, 1.0, alpha_of(earned.domain, policy))


def percentile_99(values: list[float]) -> float:
    """The smallest value that at least 99 % of the values do not exceed; 0 of nothing."""
    if not values:
        return 0.0
    return heapq.nlargest(len(values) - math.ceil(0.99 * len(values)) + 1, values)[-1]


class DemandRecord(Record, frozen=True, array_like=True):
    """Demand of one query as it is kept."""

    scope: str
    query: str
    level: float


class QueueRecord(Record, frozen=True, array_like=True):
    """A scope's queue as it is kept: how fast it fades, what its last sorting found, whether another may differ."""

    scope: str
    mean_life_ms: int
    sorted_ms: int | None
    p99_level: float
    touched: bool = True


class _Queue:
    """One scope's queue: a level a query."""

    def __init__(self, scope: str) -> None:
        self._prefix = path(scope)
        self.levels: dict[str, float] = {}
        self.sorted_ms: int | None = None
        self.p99 = EMPTY
        self.touched = True

    @property
    def fades_ms(self) -> int:
        """When what the last sorting found has faded."""
        return math.ceil((self.p99 - math.log(FADED)) * self.mean_life_ms)

    def key(self, query: str) -> str:
        """Where a query is kept: `path(scope, query)`, of which the first half is made once."""
        return f"{self._prefix}{len(query)}:{query}"

    def fade(self, mean_life_ms: int) -> None:
        """Sets how fast it fades; says nothing about the levels that it holds."""
        self.mean_life_ms = mean_life_ms
        self.decay = Decay.mean_life(mean_life_ms)


class DemandQueue:
    """Decayed demand of the queries of every scope; each scope's queue is cut to its best every `sort_ms`.

    Levels do not change while time passes, so only the queues of which something was heard need it; the others wait
    until they have faded. How fast a scope's demand fades may change while it runs: the demand of that moment is kept.

    Args:
        rewards: what queries earned; None where nothing is judged.
    """

    def __init__(self, store: Section, queues: Section, rewards: RewardBook | None = None) -> None:
        self._rewards = rewards
        self._store = store
        self._queue_store = queues
        self._queues: dict[str, _Queue] = {}
        self._unsorted: set[str] = set()
        self._fading: list[tuple[int, str]] = []
        self._fade: set[str] = set()

    def __bool__(self) -> bool:
        return any(queue.levels for queue in self._queues.values())

    def add(self, scope: str, query: str, arrivals: float, at_ms: int, mean_life_ms: int) -> None:
        """Counts arrivals of a query.

        Args:
            mean_life_ms: after which time an arrival counts 1/e, scaled.
        """
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues[scope] = _Queue(scope)
            queue.fade(mean_life_ms)
            self._unsorted.add(scope)
            self._write(scope, queue)
        elif queue.mean_life_ms != mean_life_ms:
            self._rebase(scope, queue, mean_life_ms, at_ms)
        self._touch(scope, queue)
        level = queue.levels[query] = queue.decay.added(queue.levels.get(query, EMPTY), arrivals, at_ms)
        self._put(scope, queue, query, level)

    def sort(
        self, at_ms: int, every_ms: int, scope: str, keep: int, drop_below: float, policy: ScorePolicy = SPEC
    ) -> None:
        """Sorts a scope's queue again if it is due: finds the 99th percentile and drops what scores too low."""
        queue = self._queues.get(scope)
        if queue is None or (queue.sorted_ms is not None and at_ms < queue.sorted_ms + every_ms):
            return
        levels = queue.levels
        p99 = percentile_99(list(levels.values())) if levels else EMPTY
        # A queue that nobody feeds fades.
        if p99 == EMPTY or queue.decay.amount(p99, at_ms) < FADED:
            self._forget(scope)
            return
        for query in self._surplus(scope, queue, p99, keep, drop_below, policy):
            del levels[query]
            self._store.remove(queue.key(query))
        queue.sorted_ms, queue.p99 = at_ms, p99
        # What a judged query scores also depends on its rewards, and those of its cluster.
        queue.touched = self._rewards is not None and bool(self._rewards.of(scope))
        self._hold(scope, queue)
        self._write(scope, queue)

    def unsorted(self, at_ms: int) -> list[str]:
        """Scopes whose queue another sorting may change, sorted by name."""
        while self._fading and self._fading[0][0] <= at_ms:
            scope = heapq.heappop(self._fading)[1]
            self._fade.remove(scope)
            queue = self._queues.get(scope)
            if queue is None or queue.touched:
                continue
            if queue.fades_ms <= at_ms:
                self._unsorted.add(scope)
            else:
                self._await(scope, queue)
        return sorted(self._unsorted)

    def queries(self, scope: str) -> list[str]:
        """The queries of a scope's queue, sorted by name."""
        queue = self._queues.get(scope)
        return [] if queue is None else sorted(queue.levels)

    def rate_per_s(self, scope: str, demand: float) -> float:
        """Rate of a steady query of a scope with such a demand; 0 where the scope has no queue."""
        queue = self._queues.get(scope)
        return 0.0 if queue is None else queue.decay.rate_per_s(demand)

    def demand(self, scope: str, query: str, at_ms: int) -> float:
        """Σ exp(−age / mean life) over the arrivals of a query."""
        queue = self._queues.get(scope)
        return 0.0 if queue is None else queue.decay.amount(queue.levels.get(query, EMPTY), at_ms)

    def holds(self, scope: str, query: str) -> bool:
        """Whether a query is in its scope's queue."""
        queue = self._queues.get(scope)
        return queue is not None and query in queue.levels

    def share(self, scope: str, query: str) -> float:
        """Demand of a query against the percentile of the last sorting (of now where there was none), cut at 1."""
        queue = self._queues.get(scope)
        if queue is None or query not in queue.levels:
            return 0.0
        p99 = queue.p99 if queue.sorted_ms is not None else percentile_99(list(queue.levels.values()))
        return math.exp(min(0.0, queue.levels[query] - p99))

    def score(self, scope: str, query: str, policy: ScorePolicy = SPEC) -> float:
        """The score; 0 of a query that is not in the queue and was not judged."""
        earned = self.earned(scope, query)
        return score_of(self.share(scope, query), earned, policy, self._worth(earned, policy))

    def hope(self, scope: str, query: str, policy: ScorePolicy = SPEC) -> float:
        """The score that a warm-up is tried for: by rule tuned that of the most that the query may be worth."""
        earned = self.earned(scope, query)
        return score_of(self.share(scope, query), earned, policy, self._worth(earned, policy, hopeful=True))

    def earned(self, scope: str, query: str) -> Earned | None:
        """What a query earned; None where nobody judged it."""
        return None if self._rewards is None else self._rewards.of(scope).get(query)

    def judged(self, earned: Earned, at_ms: int, policy: ScorePolicy = SPEC) -> Score:
        """The insight that tells what a judgement has made of a query's score."""
        share, worth = self.share(earned.scope, earned.query), self._worth(earned, policy)
        queue = self._queues.get(earned.scope)
        if queue is not None:
            self._touch(earned.scope, queue)
        return Score(
            scope=earned.scope,
            query_sha256=earned.query,
            rule=policy.rule,
            at_ms=at_ms,
            reward_at_ms=earned.at_ms,
            score=score_of(share, earned, policy, worth),
            reward=earned.mean if worth is None else worth,
            demand=share,
            alpha=alpha_of(earned.domain, policy),
            rewards=earned.total_count,
        )

    def restore(self, blob: bytes) -> None:
        """Takes back one query's demand."""
        record = unpack(blob, DemandRecord)
        self._held(record.scope).levels[record.query] = record.level

    def restore_queue(self, blob: bytes) -> None:
        """Takes back one scope's queue, without its queries."""
        record = unpack(blob, QueueRecord)
        queue = self._held(record.scope)
        queue.fade(record.mean_life_ms)
        queue.sorted_ms, queue.p99, queue.touched = record.sorted_ms, record.p99_level, record.touched
        self._hold(record.scope, queue)

    def _surplus(
        self, scope: str, queue: _Queue, p99: float, keep: int, drop_below: float, policy: ScorePolicy
    ) -> list[str]:
        """What scores too low, and beyond the best `keep` the others. Most queues have room: those are not sorted."""
        levels = queue.levels
        earned = {} if self._rewards is None else self._rewards.of(scope)
        scores = {
            query: score_of(math.exp(min(0.0, levels[query] - p99)), each, policy, self._worth(each, policy))
            for query, each in earned.items()
            if query in levels
        }
        # Of what nobody judged the level decides, so that no exponential is taken of each.
        bar = p99 + math.log(drop_below) if drop_below > 0 else EMPTY
        low = [query for query, level in levels.items() if level < bar and query not in scores]
        low += [query for query, score in scores.items() if score < drop_below]
        if len(levels) - len(low) <= keep:
            return low
        gone = set(low)
        ranked = (
            (-scores.get(query, math.exp(min(0.0, level - p99))), -level, query)
            for query, level in levels.items()
            if query not in gone
        )
        kept = {query for *_, query in heapq.nsmallest(keep, ranked)}
        return [query for query in levels if query not in kept]

    def _worth(self, earned: Earned | None, policy: ScorePolicy, hopeful: bool = False) -> float | None:
        """What a judged query is worth by rule tuned; None by the reference rule, which takes the mean."""
        if earned is None or self._rewards is None or policy.rule == "spec":
            return None
        found = self._rewards.posterior(earned.scope, earned.query)
        return found.upper() if hopeful else found.mean

    def _rebase(self, scope: str, queue: _Queue, mean_life_ms: int, at_ms: int) -> None:
        """Fades at another speed from a time on: every level is written as the one that stands for its demand then."""
        before = queue.decay.per_ms
        queue.fade(mean_life_ms)
        shift = (queue.decay.per_ms - before) * at_ms
        queue.p99 += shift
        for query, level in queue.levels.items():
            queue.levels[query] = level + shift
            self._put(scope, queue, query, level + shift)
        self._write(scope, queue)

    def _touch(self, scope: str, queue: _Queue) -> None:
        if not queue.touched:
            queue.touched = True
            self._unsorted.add(scope)
            self._write(scope, queue)

    def _hold(self, scope: str, queue: _Queue) -> None:
        """Says whether a queue is to be sorted again, or waits until it has faded."""
        if queue.touched:
            self._unsorted.add(scope)
        else:
            self._unsorted.discard(scope)
            self._await(scope, queue)

    def _await(self, scope: str, queue: _Queue) -> None:
        if scope not in self._fade:
            self._fade.add(scope)
            heapq.heappush(self._fading, (queue.fades_ms, scope))

    def _held(self, scope: str) -> _Queue:
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues[scope] = _Queue(scope)
        return queue

    def _put(self, scope: str, queue: _Queue, query: str, level: float) -> None:
        self._store.put(queue.key(query), pack(DemandRecord(1, scope, query, level)))

    def _write(self, scope: str, queue: _Queue) -> None:
        record = QueueRecord(1, scope, queue.mean_life_ms, queue.sorted_ms, queue.p99, queue.touched)
        self._queue_store.put(path(scope), pack(record))

    def _forget(self, scope: str) -> None:
        queue = self._queues.pop(scope, None)
        self._unsorted.discard(scope)
        for query in queue.levels if queue is not None else ():
            self._store.remove(path(scope, query))
        self._queue_store.remove(path(scope))
