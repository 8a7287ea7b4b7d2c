"""A policy of our own: a wait that nobody notices is not worth a warm-up, and of the others the longest goes first.

[warmup]
own_policy = "examples/own_policy.py:NoticeableFirst"
"""

from analytics.own_policy import Proposal

NOTICEABLE_MS = 45.0


class NoticeableFirst:
    """Ranks prefixes by the whole wait that they save, not by what they save per token."""

    def density(self, proposal: Proposal) -> float:
        """More is sooner; 0 leaves it out."""
        if proposal.kind != "prefix":
            return proposal.density
        if proposal.worth.saved_ms < NOTICEABLE_MS:
            return 0.0
        return proposal.worth.expected_ms
