"""Decayed demand of the queries of every scope: the queues that a Redis pool plans from (D6)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from analytics.decay import EMPTY
from analytics.policy_sections import ScorePolicy
from analytics.records import Section, pack, path, unpack
from analytics.reward_book import Earned, RewardBook
from analytics.scope_queue import FADED, LevelsRecord, QueueRecord, ScopeQueue
from analytics.scoring import SPEC, alpha_of, percentile_99, score_of
from schemas import Score


class DemandQueue:
    """Decayed demand of the queries of every scope; each scope's queue is cut to its best every `sort_ms`.

    Levels do not change while time passes, so only the queues of which something was heard need it; the others wait
    until they have faded. How fast a scope's demand fades may change while it runs: the demand of that moment is kept.

    Args:
        store: of the levels. queues: of what else a queue is.
        rewards: what queries earned; None where nothing is judged.
    """

    def __init__(self, store: Section, queues: Section, rewards: RewardBook | None = None) -> None:
        self._rewards = rewards
        self._store = store
        self._queue_store = queues
        self._queues: dict[str, ScopeQueue] = {}
        self._unsorted: set[str] = set()
        self._fading: list[tuple[int, str]] = []
        self._fade: set[str] = set()

    def __bool__(self) -> bool:
        return any(queue.levels for queue in self._queues.values())

    def add(self, scope: str, arrivals: Mapping[str, float], at_ms: int, mean_life_ms: int) -> None:
        """Counts arrivals of some queries.

        Args:
            mean_life_ms: after which time an arrival counts 1/e, scaled.
        """
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues[scope] = ScopeQueue(scope, self._store)
            queue.fade(mean_life_ms)
            self._unsorted.add(scope)
            self._write(queue)
        elif queue.mean_life_ms != mean_life_ms:
            self._rebase(queue, mean_life_ms, at_ms)
        self._touch(queue)
        levels, added = queue.levels, queue.decay.added
        for query, count in arrivals.items():
            levels[query] = added(levels.get(query, EMPTY), count, at_ms)
        queue.log.write(arrivals, levels)

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
        surplus = self._surplus(queue, p99, keep, drop_below, policy)
        for query in surplus:
            del levels[query]
        if surplus:
            queue.log.write(surplus, levels)
        queue.sorted_ms, queue.p99 = at_ms, p99
        # What a judged query scores also depends on its rewards, and those of its cluster.
        queue.touched = self._rewards is not None and bool(self._rewards.of(scope))
        self._hold(queue)
        self._write(queue)

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
                self._await(queue)
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
            self._touch(queue)
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

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back some levels. Records come in the order of their keys."""
        record = unpack(blob, LevelsRecord)
        self._held(record.scope).restore(key, record)

    def restore_queue(self, blob: bytes) -> None:
        """Takes back one scope's queue, without its levels."""
        record = unpack(blob, QueueRecord)
        queue = self._held(record.scope)
        queue.fade(record.mean_life_ms)
        queue.sorted_ms, queue.p99, queue.touched = record.sorted_ms, record.p99_level, record.touched
        self._hold(queue)

    def _surplus(self, queue: ScopeQueue, p99: float, keep: int, drop_below: float, policy: ScorePolicy) -> list[str]:
        """What scores too low, and beyond the best `keep` the others. Most queues have room: those are not sorted."""
        levels = queue.levels
        earned = {} if self._rewards is None else self._rewards.of(queue.scope)
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

    def _rebase(self, queue: ScopeQueue, mean_life_ms: int, at_ms: int) -> None:
        """Fades at another speed from a time on: every level is written as the one that stands for its demand then."""
        before = queue.decay.per_ms
        queue.fade(mean_life_ms)
        shift = (queue.decay.per_ms - before) * at_ms
        queue.p99 += shift
        for query, level in queue.levels.items():
            queue.levels[query] = level + shift
        queue.log.renew(queue.levels)
        self._write(queue)

    def _touch(self, queue: ScopeQueue) -> None:
        if not queue.touched:
            queue.touched = True
            self._unsorted.add(queue.scope)
            self._write(queue)

    def _hold(self, queue: ScopeQueue) -> None:
        """Says whether a queue is to be sorted again, or waits until it has faded."""
        if queue.touched:
            self._unsorted.add(queue.scope)
        else:
            self._unsorted.discard(queue.scope)
            self._await(queue)

    def _await(self, queue: ScopeQueue) -> None:
        if queue.scope not in self._fade:
            self._fade.add(queue.scope)
            heapq.heappush(self._fading, (queue.fades_ms, queue.scope))

    def _held(self, scope: str) -> ScopeQueue:
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues[scope] = ScopeQueue(scope, self._store)
        return queue

    def _write(self, queue: ScopeQueue) -> None:
        record = QueueRecord(1, queue.scope, queue.mean_life_ms, queue.sorted_ms, queue.p99, queue.touched)
        self._queue_store.put(path(queue.scope), pack(record))

    def _forget(self, scope: str) -> None:
        queue = self._queues.pop(scope)
        self._unsorted.discard(scope)
        queue.log.renew(())
        self._queue_store.remove(path(scope))
