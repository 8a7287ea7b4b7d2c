"""Questions that people really asked, from a csv file such as Banking77's."""

from __future__ import annotations

import csv
from pathlib import Path

from schemas import BrokenConfiguration

_COLUMNS = ("text", "query", "question")

_ASKS = (
    "how do i change {}",
    "what is the deadline for {}",
    "who is responsible for {}",
    "is {} included",
    "why was {} refused",
    "can i cancel {}",
    "what does it say about {}",
    "where do i find {}",
    "how much is {}",
    "summarise what it says on {}",
)
_MATTERS = (
    "the return",
    "my delivery address",
    "the yearly plan",
    "the second invoice",
    "the warranty",
    "an express parcel",
    "the cancellation fee",
    "my refund",
    "the free trial",
    "the loyalty points",
    "a broken item",
    "the opening hours",
    "the price guarantee",
    "a gift card",
    "the data protection notice",
    "the maintenance contract",
    "the missing part",
    "an early renewal",
    "the student discount",
    "the travel insurance",
)
GENERIC = tuple(ask.format(matter) for matter in _MATTERS for ask in _ASKS)
"""Two hundred questions of our own, for a workload without a file."""


def load_queries(path: Path) -> tuple[str, ...]:
    """The texts of a csv file with a header, in order, blank ones left out.

    The column is `text`, `query` or `question`, else the first one.

    Raises:
        BrokenConfiguration: the file cannot be read, or holds no text.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            header = [name.strip().lower() for name in next(rows, [])]
            column = next((header.index(name) for name in _COLUMNS if name in header), 0)
            texts = tuple(row[column].strip() for row in rows if len(row) > column and row[column].strip())
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise BrokenConfiguration(f"queries: {path} cannot be read as csv ({fault})") from None
    if not texts:
        raise BrokenConfiguration(f"queries: {path} holds no text in column {header[column] if header else 1!r}")
    return texts
