"""How long a replica of known capacity keeps what nobody asks for, by what it tells of its traffic (D11).

A cache of C tokens keeps a prefix for the time T after its last use in which C other tokens came in. A replica counts
the tokens that were looked up and those that were found; what was not found is taken in. Between two uses of a token
lie times of unknown distribution; with q tokens looked up a second and m taken in, C = ∫ q·P(gap > t) dt from 0 to T,
where the integrand falls from q to m (Denning and Schwartz 1972; Hu et al., ATC 2016). It is longest if all that is
found comes back at once, T = C / m, and shorter by ln(q/m) · m / (q - m) if everything comes back at one rate. Traffic
lies between; the middle of the two, in the log domain, is the shadow's answer. No block is held.

Both flows fade with the half-life of hotness: a rate and the time that it is multiplied with are then of the same past,
and where traffic doubles both are wrong by the same factor, so that their product is right. A cache that has just begun
keeps nothing from before: of what was not asked for since then it has nothing, however long it will keep things.
"""

from __future__ import annotations

import math

from msgspec import structs

from analytics.decay import EMPTY, Decay
from analytics.records import Record
from schemas.replica_sample import ReplicaSample

SHORTEST_MS, LONGEST_MS = 1_000.0, 86_400_000.0
"""A replica that takes in next to nothing keeps everything; a day is long enough to say so."""


class CacheShadow(Record, frozen=True, array_like=True):
    """What is known of one replica's cache; `after` gives what is known after another sample.

    Attributes:
        incarnation: whose counters these are.
        capacity_tokens: of the cache.
        since_ms: when it was ready first, as far as is known.
        queried_tokens, found_tokens: the counters of the last sample.
        queried_level, taken_level: decayed tokens looked up, and taken in.
        own_queried_level, own_taken_level: of them those of warm-ups.
    """

    incarnation: str
    since_ms: int
    capacity_tokens: int
    queried_tokens: int
    found_tokens: int
    queried_level: float = EMPTY
    taken_level: float = EMPTY
    own_queried_level: float = EMPTY
    own_taken_level: float = EMPTY

    @classmethod
    def after(cls, before: CacheShadow | None, sample: ReplicaSample, decay: Decay) -> CacheShadow | None:
        """What is known after a later sample; None where capacity was never told.

        Counters say nothing while a replica is not ready. They begin anew with each incarnation, the traffic does not.
        """
        if sample.state != "ready" or sample.blocks_total is None:
            return before
        queried, found = sample.prefix_query_tokens, sample.prefix_hit_tokens
        since_ms = sample.sampled_at_ms
        queried_level, taken_level = (before.queried_level, before.taken_level) if before else (EMPTY, EMPTY)
        own = (before.own_queried_level, before.own_taken_level) if before else (EMPTY, EMPTY)
        if before is not None and before.incarnation == sample.incarnation:
            since_ms = before.since_ms
            more, more_found = queried - before.queried_tokens, found - before.found_tokens
            if 0 <= more_found <= more:
                queried_level = _added(queried_level, more, sample.sampled_at_ms, decay)
                taken_level = _added(taken_level, more - more_found, sample.sampled_at_ms, decay)
        capacity = sample.blocks_total * sample.block_tokens
        return cls(1, sample.incarnation, since_ms, capacity, queried, found, queried_level, taken_level, *own)

    def with_own(self, queried_tokens: int, taken_tokens: int, at_ms: int, decay: Decay) -> CacheShadow:
        """What is known after a warm-up: the counters hold what it looked up and took in as well."""
        return structs.replace(
            self,
            own_queried_level=_added(self.own_queried_level, queried_tokens, at_ms, decay),
            own_taken_level=_added(self.own_taken_level, taken_tokens, at_ms, decay),
        )

    def stay_ms(self, at_ms: int, decay: Decay) -> float | None:
        """For how long what nobody asked for is still there; None where nothing came in yet."""
        if self.taken_level == EMPTY:
            return None
        taken_per_ms = decay.rate_per_s(decay.amount(self.taken_level, at_ms)) / 1000
        longest_ms = LONGEST_MS
        if taken_per_ms * LONGEST_MS > self.capacity_tokens:
            longest_ms = self.capacity_tokens / taken_per_ms
        # Of flows that fade alike the ratio does not.
        log_ratio = self.queried_level - self.taken_level
        shorter = log_ratio / math.expm1(log_ratio) if log_ratio > 0 else 1.0
        return min(longest_ms * math.sqrt(shorter), max(SHORTEST_MS, float(at_ms - self.since_ms)))

    def margin_per_s(self, at_ms: int, decay: Decay) -> float | None:
        """At most at which rate that is asked for which the cache is about to let go of; None where nothing came in.

        All that lies there earns the tokens that requests find in the mean, f / C for each token and second. Where some
        come back often and others never, what has waited for its whole stay earns less than the mean. At one rate it
        earns the mean. Warm-ups are not among the requests.
        """
        if self.taken_level == EMPTY:
            return None
        found = [
            decay.amount(level, at_ms) - decay.amount(own, at_ms)
            for level, own in ((self.queried_level, self.own_queried_level), (self.taken_level, self.own_taken_level))
        ]
        # A sample may be older than a warm-up.
        return max(0.0, decay.rate_per_s(found[0] - found[1])) / self.capacity_tokens


def _added(level: float, tokens: int, at_ms: int, decay: Decay) -> float:
    return decay.added(level, float(tokens), at_ms) if tokens else level
