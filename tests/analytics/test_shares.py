"""Static shares: what was named, an equal part of the rest, never more than all, in whatever order scopes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.policy import PolicyBook
from analytics.shares import Shares
from schemas import Policy

NAMED = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1))
SCOPES = st.sampled_from("abcdefgh")


def quota(book: PolicyBook | None = None, version: int = 1, **named: float) -> PolicyBook:
    book = book or PolicyBook()
    for scope, share in named.items():
        body = {"share": share}
        book.apply(Policy(scope=scope, section="quota", writer="t", version=version, at_ms=1, body=body))
    return book


def told(shares: Shares, scopes: set[str] | list[str], policy: PolicyBook) -> dict[str, float]:
    return {scope: shares.of(scope, policy) for scope in scopes}


def test_what_nobody_named_is_divided_equally() -> None:
    assert told(Shares("abc"), ["a", "b", "c"], quota(a=0.5)) == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert told(Shares("ab"), ["a", "b"], quota()) == {"a": 0.5, "b": 0.5}
    assert Shares().of("a", quota(a=0.5)) == 0


def test_who_is_not_there_reserves_nothing() -> None:
    shares, policy = Shares("abc"), quota(a=0.5)
    assert shares.of("b", policy) == 0.25
    shares.leave("a")
    shares.leave("a")
    assert told(shares, ["a", "b", "c"], policy) == {"a": 0, "b": 0.5, "c": 0.5}


def test_another_policy_holds_at_once() -> None:
    shares, policy = Shares("ab"), quota(a=0.5)
    assert shares.of("b", policy) == 0.5
    quota(policy, 2, a=0.75)
    assert shares.of("b", policy) == 0.25
    assert shares.of("b", quota(a=0.25)) == 0.75


@given(NAMED, st.sets(SCOPES, min_size=1))
def test_shares_never_add_up_to_more_than_the_whole(named: dict[str, float], scopes: set[str]) -> None:
    found = told(Shares(scopes), scopes, quota(**named))
    assert sum(found.values()) <= 1 + 1e-9
    assert min(found.values()) >= 0


@given(NAMED, st.lists(st.tuples(st.booleans(), SCOPES), max_size=40))
def test_shares_do_not_depend_on_how_their_scopes_came(named: dict[str, float], moves: list[tuple[bool, str]]) -> None:
    shares, policy, there, versions = Shares(), quota(**named), set[str](), [0]
    for comes, scope in moves:
        changes = comes != (scope in there)
        (shares.join if comes else shares.leave)(scope)
        (there.add if comes else there.discard)(scope)
        assert shares.version == versions[-1] + changes
        versions.append(shares.version)
        asked = sorted(there)[:1]
        assert told(shares, asked, policy) == told(Shares(there), asked, policy)
    assert told(shares, there, policy) == told(Shares(sorted(there)), there, policy)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_more_than_the_whole_is_scaled_down_and_leaves_nothing_for_others(share: float) -> None:
    policy = quota(a=share, b=share, c=share)
    assert told(Shares("abcd"), ["a", "b", "d"], policy) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "d": 0})
