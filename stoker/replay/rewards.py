"""Judgements on answers, as a reward model would give them: most are good, those to some questions are not."""

from __future__ import annotations

import random

from schemas import RewardEvent
from schemas.canonical import h64
from stoker.replay.gateway import Seen


class Judge:
    """Judges a share of the answered requests.

    Args:
        share: of good answers that are judged at all.
        bad_share: of the questions whose answers are bad, whoever asks.
        seed: of the draws.
    """

    def __init__(self, share: float, bad_share: float, seed: int) -> None:
        self._share = share
        self._bad_share = bad_share
        self._seed = str(seed)
        self._source = random.Random(seed)
        self._number = 0

    def __call__(self, seen: Seen, at_ms: int) -> RewardEvent | None:
        """The judgement on a request that ended; None where nobody gives one."""
        query = seen.start.query_sha256
        if seen.answer.error_type is not None or query is None or self._source.random() >= self._share:
            return None
        self._number += 1
        bad = h64(query, self._seed) / 2**64 < self._bad_share
        return RewardEvent(
            event_id=f"{seen.start.request_id}-judged-{self._number}",
            occurred_at_ms=at_ms,
            tenant=seen.start.tenant,
            query_sha256=query,
            response_sha256=seen.stored,
            request_id=seen.start.request_id,
            reward=round(self._source.uniform(0.0, 0.3) if bad else self._source.uniform(0.7, 1.0), 3),
            source="reward_model",
            reward_model_version="generated-1",
        )
