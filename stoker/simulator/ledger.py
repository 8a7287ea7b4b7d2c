"""What every request created: so that a test can see that an apply which is repeated creates nothing a second time."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Entry:
    """One finished or cancelled request.

    Args:
        created_tokens: tokens in blocks that were not findable before; counts real additions, unlike the usage field.
        outcome: `length`, `stop`, `abort` or `error`.
    """

    request_id: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    created_tokens: int
    outcome: str
    salt: str | None = field(repr=False, default=None)


class Ledger:
    """A bounded memory of requests and unbounded sums of them."""

    def __init__(self, entries: int) -> None:
        self.entries: deque[Entry] = deque(maxlen=entries)
        self.requests = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.created_tokens = 0
        self.answer_tokens = 0
        self.outcomes: Counter[str] = Counter()

    def add(self, entry: Entry, answer_tokens: int) -> None:
        """Book one request."""
        self.entries.append(entry)
        self.requests += 1
        self.prompt_tokens += entry.prompt_tokens
        self.cached_tokens += entry.cached_tokens
        self.created_tokens += entry.created_tokens
        self.answer_tokens += answer_tokens
        self.outcomes[entry.outcome] += 1

    def of(self, request_id: str) -> list[Entry]:
        """Remembered entries of one request id, oldest first."""
        return [entry for entry in self.entries if entry.request_id == request_id]
