"""Static shares of a pool: what its scopes may spend of it, without a walk over all of them when one comes (D15)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from analytics.policy import PolicyBook

_UNREAD: tuple[object, ...] = ()


class Shares:
    """The static share of each scope. What no policy has named is divided equally; more than the whole is scaled down.

    The sum of what is named is kept exactly, so that shares do not depend on the order in which scopes came.

    Args:
        scopes: those that may spend. A scope that is not among them has no share and reserves none.
    """

    def __init__(self, scopes: Iterable[str] = ()) -> None:
        self._scopes = set(scopes)
        self._named: dict[str, float] = {}
        self._total = Fraction()
        self._read: tuple[object, ...] = _UNREAD
        self._fresh: set[str] = set()
        self.version = 0
        """Grows when a scope comes or goes."""

    def join(self, scope: str) -> None:
        """A scope may spend from now on; harmless when it may already."""
        if scope not in self._scopes:
            self._scopes.add(scope)
            self._fresh.add(scope)
            self.version += 1

    def leave(self, scope: str) -> None:
        """A scope may spend no more; harmless when it may not."""
        if scope in self._scopes:
            self._scopes.remove(scope)
            self._fresh.discard(scope)
            self._total -= Fraction(self._named.pop(scope, 0))
            self.version += 1

    def of(self, scope: str, policy: PolicyBook) -> float:
        """The share of a scope under a policy."""
        self._bring_up_to_date(policy)
        if scope not in self._scopes:
            return 0.0
        named = self._named.get(scope)
        if self._total > 1:
            return 0.0 if named is None else named / float(self._total)
        return float(1 - self._total) / (len(self._scopes) - len(self._named)) if named is None else named

    def _bring_up_to_date(self, policy: PolicyBook) -> None:
        read = (policy, policy.revision)
        if read != self._read:
            self._read = read
            self._named, self._total, self._fresh = {}, Fraction(), set(self._scopes)
        for scope in self._fresh:
            share = policy.quota(scope).share
            if share >= 0:
                self._named[scope] = share
                self._total += Fraction(share)
        self._fresh.clear()
