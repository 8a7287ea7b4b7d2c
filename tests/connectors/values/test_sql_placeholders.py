"""A query is filled with placeholders in the driver's style; a value never becomes SQL."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from connectors.values import SqlLoader, SqlLoaderSettings
from connectors.values.sql_loader import filled
from connectors.values.texts import stored_form
from schemas.errors import BrokenConfiguration

QUERY = "SELECT k, v FROM t WHERE k IN ({keys}) AND s = {scope}"


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("qmark", "SELECT k, v FROM t WHERE k IN (?, ?) AND s = ?"),
        ("format", "SELECT k, v FROM t WHERE k IN (%s, %s) AND s = %s"),
        ("pyformat", "SELECT k, v FROM t WHERE k IN (%s, %s) AND s = %s"),
        ("numeric", "SELECT k, v FROM t WHERE k IN (:1, :2) AND s = :3"),
    ],
)
def test_each_style(style: str, expected: str) -> None:
    assert filled(QUERY, style, "s'; DROP", ["{scope}", "b"]) == (expected, ["{scope}", "b", "s'; DROP"])


def settings(**fields: str) -> SqlLoaderSettings:
    return SqlLoaderSettings(**{"name": "stock", "scopes": ("acme",), "dsn": ":memory:", "query": QUERY, **fields})


def test_placeholders_by_name_cannot_be_used() -> None:
    with pytest.raises(BrokenConfiguration, match="named"):
        filled(QUERY, "named", "s", ["k"])


def test_a_driver_that_is_not_there_is_named() -> None:
    with pytest.raises(BrokenConfiguration, match="no_such_driver"):
        SqlLoader(settings(driver="no_such_driver"))


def test_a_query_asks_for_keys() -> None:
    with pytest.raises(ValidationError, match=r"\{keys\}"):
        settings(query="SELECT 1, 2")


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("ü", "ü".encode()),
        (b"\0", b"\0"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (True, b"true"),
        (None, "not_found"),
        (float("nan"), "unusable"),
        (object(), "unusable"),
        ("\ud800", "unusable"),
    ],
)
def test_what_is_stored(value: object, stored: bytes | str) -> None:
    assert stored_form(value) == stored
