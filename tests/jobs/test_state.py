"""Stores over keyed state, and the marker."""

from __future__ import annotations

import pytest

from jobs.state import Marker, check_marker, open_log_store, open_map_stores, open_marker
from schemas import BrokenConfiguration
from tests.jobs.flink_stand_in import Backend


def test_a_log_store_shows_the_current_key_only() -> None:
    backend = Backend()
    store = open_log_store(backend, 2)
    backend.key = 1
    store.append(0, b"a")
    store.append(1, b"b")
    store.append(0, b"c")
    store.put(-1, b"meta")
    store.flush()
    backend.key = 2
    assert list(store.read(0)) == []
    assert list(store.items()) == []
    store.append(0, b"other")
    store.flush()
    backend.key = 1
    assert list(store.read(0)) == [b"a", b"c"]
    assert list(store.items()) == [(-1, b"meta")]
    store.clear(0)
    store.remove(-1)
    store.remove(-1)
    assert list(store.read(0)) == []
    assert list(store.read(1)) == [b"b"]
    assert list(store.items()) == []


def test_a_map_store_shows_the_current_key_only() -> None:
    backend = Backend()
    store, _ = open_map_stores(backend)
    backend.key = "gpu"
    store.put("a", b"1")
    store.put("b", b"2")
    store.remove("a")
    store.remove("never there")
    backend.key = "redis:main"
    assert list(store.items()) == []
    backend.key = "gpu"
    assert list(store.items()) == [("b", b"2")]


def test_what_is_stored_is_plain_bytes_whatever_came_in() -> None:
    backend = Backend()
    backend.key = 1
    store = open_log_store(backend, 1)
    store.append(0, memoryview(b"entry"))  # type: ignore[arg-type]  # the stand-in refuses anything but bytes
    store.put(0, bytearray(b"blob"))  # type: ignore[arg-type]
    assert list(store.read(0)) == [b"entry"]


def test_a_state_of_another_number_of_shards_is_refused_in_words() -> None:
    backend = Backend()
    backend.key = 7
    state = open_marker(backend)
    assert check_marker(state, Marker(32))
    assert not check_marker(state, Marker(32))
    with pytest.raises(BrokenConfiguration, match=r"shards=32.*shards=16"):
        check_marker(state, Marker(16))
    with pytest.raises(BrokenConfiguration, match="mode=process"):
        check_marker(state, Marker(32, mode="process"))
