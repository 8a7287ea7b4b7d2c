"""No scope, replica or hash can be spelled so that its key is another one's (DESIGN §4)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.redis import keys

CONFUSING = [
    "ledger",
    "lease",
    "fence",
    "bloom",
    "brake",
    "blob",
    "vec",
    "embeddings",
    "responses",
    "value",
    "a:blob:b",
    "{a}",
]
TEXTS = st.text(min_size=1, max_size=40) | st.sampled_from([*CONFUSING, "*", "%6Cedger", ":", "a b"])
IDS = st.from_regex(r"\A[0-9a-f]{32}\Z")
ALL = st.one_of(
    st.tuples(st.just("blob"), TEXTS, TEXTS),
    st.tuples(st.just("vec"), TEXTS, TEXTS, TEXTS),
    st.tuples(st.just("cache"), TEXTS, TEXTS),
    st.tuples(st.just("answers"), TEXTS, TEXTS, TEXTS),
    st.tuples(st.just("revoked"), TEXTS, TEXTS, TEXTS, TEXTS, TEXTS | st.none()),
    st.tuples(st.just("value"), TEXTS, TEXTS),
    st.tuples(st.just("ledger"), IDS, TEXTS),
    st.tuples(st.just("lease"), TEXTS),
    st.tuples(st.just("fence"), TEXTS),
)
BUILDERS = {
    "blob": keys.blob_key,
    "vec": keys.vector_key,
    "cache": lambda scope, fingerprint: f"{keys.embedding_cache_name(scope, fingerprint)}:{'0' * 64}",
    "answers": lambda *parts: f"{keys.semantic_cache_name(*parts)}:{'0' * 64}",
    "revoked": keys.revoked_key,
    "value": keys.cached_value_key,
    "ledger": keys.ledger_key,
    "lease": keys.lease_key,
    "fence": keys.fence_key,
}


@given(ALL, ALL)
def test_different_things_have_different_keys(first: tuple[str, ...], second: tuple[str, ...]) -> None:
    one, other = BUILDERS[first[0]](*first[1:]), BUILDERS[second[0]](*second[1:])
    assert (one == other) == (first == second)


@given(TEXTS)
def test_part_holds_nothing_that_redis_or_a_pattern_understands(text: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", keys.scope_part(text))


@given(TEXTS, TEXTS, TEXTS)
def test_pattern_of_one_scope_matches_no_other_scope(scope: str, other: str, content: str) -> None:
    prefix = f"{keys.ROOT}:{keys.scope_part(scope)}:"
    assert keys.blob_key(other, content).startswith(prefix) == (scope == other)


HASHES = st.from_regex(r"\A[0-9a-f]{32}\Z")


@given(TEXTS, TEXTS, HASHES, TEXTS, TEXTS, HASHES)
def test_no_index_takes_in_the_entries_of_another(
    scope: str, cache: str, fingerprint: str, other_scope: str, other_cache: str, other_fingerprint: str
) -> None:
    name = keys.semantic_cache_name(scope, cache, fingerprint)
    other = keys.semantic_cache_name(other_scope, other_cache, other_fingerprint)
    assert f"{other}:{'0' * 64}".startswith(name) == (name == other)
    assert keys.is_semantic_cache(name)
    assert not keys.is_semantic_cache(keys.embedding_cache_name(scope, fingerprint))


def test_keys_of_the_design() -> None:
    command = "ab" * 16
    assert keys.blob_key("acme", "h") == "stoker:acme:blob:h"
    assert keys.vector_key("acme", "f", "q") == "stoker:acme:vec:f:q"
    assert keys.ledger_key(command, "vllm-0") == f"stoker:ledger:{command}:vllm-0"
    assert keys.lease_key("vllm-0") == "stoker:lease:vllm-0"
    assert keys.embedding_cache_name("acme", "f") == "stoker:acme:embeddings:f"
    assert keys.semantic_cache_name("acme", "faq", "f") == "stoker:acme:responses:faq:f"
    assert keys.cached_value_key("acme", "sku:17") == "stoker:acme:value:sku%3A17"
    assert keys.blob_key("ledger", "h") == "stoker:%6Cedger:blob:h"


def test_lone_surrogate_has_a_key_of_its_own() -> None:
    assert keys.scope_part("\ud800") != keys.scope_part("\ud801")


@pytest.mark.parametrize("wrong", ["", "AB" * 16, "ab", "ab" * 17, "ab" * 16 + "\n"])
def test_what_is_no_command_id_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="command id"):
        keys.ledger_key(wrong, "r")


def test_empty_part_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        keys.blob_key("", "h")
