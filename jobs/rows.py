"""The rows that operators hand on: a key in front, and what it is the key of."""

from __future__ import annotations

from typing import Any

from pyflink.common import Row, RowKind

from analytics.envelopes import key_of


class Pair(Row):  # type: ignore[misc]  # untyped base
    """A row of two fields. One is made for every record: pyflink's own sets each attribute through Python."""

    _row_kind = RowKind.INSERT
    _from_dict = False

    def __init__(self, key: Any, value: bytes) -> None:
        self.__dict__["_values"] = [key, value]


def addressed(envelope: bytes) -> Pair:
    """An envelope with its own key in front, for the operator that is keyed by it."""
    return Pair(key_of(envelope), envelope)


def keyed(key: str, value: bytes) -> Pair:
    """One record for a topic."""
    return Pair(key.encode(), value)
