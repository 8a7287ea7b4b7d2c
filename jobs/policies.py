"""Policy in an operator: broadcast state is what survives, the `PolicyBook` is what is asked."""

from __future__ import annotations

from typing import Any

from analytics.policy import PolicyBook, PolicyDefaults, entry_key
from schemas import Policy, decode, encode


class BroadcastPolicies:
    """The policies of one subtask.

    Args:
        descriptor: of the broadcast state, see `jobs.streams.policy_state`.
        defaults: what holds where no policy says otherwise.
    """

    def __init__(self, descriptor: Any, defaults: PolicyDefaults | None = None) -> None:
        self._descriptor = descriptor
        self._defaults = defaults
        self._book: PolicyBook | None = None

    def book(self, context: Any) -> PolicyBook:
        """The book, rebuilt from broadcast state on first touch after a start."""
        if self._book is None:
            held = context.get_broadcast_state(self._descriptor)
            self._book = PolicyBook.of({key: bytes(blob) for key, blob in held.items()}, self._defaults)
        return self._book

    def apply(self, record: bytes, context: Any) -> bool:
        """Takes one valid policy record, if it is newer than the one held; says whether it was."""
        policy = decode(record, Policy)
        taken = self.book(context).apply(policy)
        if taken:
            context.get_broadcast_state(self._descriptor).put(entry_key(policy), encode(policy))
        return taken
