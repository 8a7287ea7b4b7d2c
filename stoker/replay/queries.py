"""Questions that people really asked, from a csv file such as Banking77's."""

from __future__ import annotations

import csv
from pathlib import Path

from schemas import BrokenConfiguration

_COLUMNS = ("text", "query", "question")

GENERIC = (
    "what does this say about returns",
    "how long does delivery take",
    "which plan is the cheapest",
    "can i change my address",
    "why was i charged twice",
    "how do i reset my password",
    "is there a warranty",
    "who do i call about an outage",
    "summarise this in two sentences",
    "what changed since last week",
    "does this apply to my contract",
    "where do i find the invoice",
)
"""Questions of our own, for a workload without a file."""


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
