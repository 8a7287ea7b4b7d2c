"""Readiness: when a replica has just become ready, so that Stoker asks for its first token and no user waits for it.

Pure.
"""

from __future__ import annotations

from schemas import ReplicaSample


class Readiness:
    """Follows the samples of one replica."""

    def __init__(self) -> None:
        self._before: ReplicaSample | None = None

    def became(self, sample: ReplicaSample, served: float) -> bool:
        """Whether it is ready now and was not before.

        An engine that was merely out of reach, or that was ready long before this executor looked, has had its first
        request: then nobody has to pay for one.

        Args:
            served: first tokens that the engine has given in this life.
        """
        before, self._before = self._before, sample
        if sample.state != "ready":
            return False
        if before is not None and before.state == "ready":
            return before.incarnation != sample.incarnation
        if before is not None and before.state == "sleeping":
            return True
        return served == 0 or (before is not None and before.incarnation != sample.incarnation)
