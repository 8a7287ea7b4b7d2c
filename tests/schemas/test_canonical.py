"""Worked examples of every canonical form; docs/contracts.md shows the same ones."""

from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import canonical as c
from schemas.announcement import announcement_id

ROOT = c.root_hash("llama-3-8b", None, "chatml-3", "")
SYSTEM = c.segment_hash(ROOT, "system", "You are the support desk.")
INTERVAL = c.bucket(1_795_994_873_000, 60_000)
COMMAND = c.command_id("acme", "gpu-a", c.prefix_key(SYSTEM), "warm", "1", INTERVAL, 0)
UNIT = ("unit-1", "salt", "2026-11-30")
DRAWN = c.h64(*UNIT) / 2**64

WORKED = {
    "h128('a', 'b')": (c.h128("a", "b"), "59b271ae1bbcb1d31d41929817f4b16f"),
    "h64('a', 'b')": (str(c.h64("a", "b")), "6463353407833682387"),
    "h64 of a unit in a period": (f"{DRAWN:.6f}", "0.093350"),
    "arm": (
        f"{c.arm(*UNIT, 0.1)} at a share of 0.1, {c.arm(*UNIT, 0.09)} at 0.09",
        "hold at a share of 0.1, warm at 0.09",
    ),
    "query_sha256": (c.query_sha256("  Where is\n my   card? "), "12a8471ab6c6aa8075b57f76e11609a8"),
    "root_hash": (ROOT, "f5f47da3339958c51becf461ac41762c"),
    "segment_hash of a message": (SYSTEM, "e5bfe12f690112db0ca2ce2e1eab3b9f"),
    "segment_hash of a token block": (
        c.segment_hash(ROOT, "block", c.token_block_content([1, 2, 3])),
        "212ea3a1e4dd1d0f325f63bf067c0e43",
    ),
    "bucket": (str(INTERVAL), "29933247"),
    "command_id": (COMMAND, "11c73f6aa48a5eef690c6c756faba2ef"),
    "outcome_id": (c.outcome_id(COMMAND, "r0"), "e4afcf26886d2b20bcd13f871e126ff5"),
    "cancel_key": (c.cancel_key([COMMAND]), "cancel:2743967def4e4c02bc605ae37218a26c"),
    "dead_id": (c.dead_id("llm.requests", b"not json", 1_795_994_873_000), "c1998e6be7b857cd9daa947ec396c6d6"),
    "announcement_id": (
        announcement_id("acme", "gpu-a", "prompt", "support", "8", 1_795_994_933_000),
        "80cbdb9815daa728f0a20692fc92088a",
    ),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name: str) -> None:
    computed, written_down = WORKED[name]
    assert computed == written_down


@pytest.mark.parametrize("name", WORKED)
def test_the_documentation_works_the_same_example(name: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text()
    assert WORKED[name][1] in text


def test_h128_is_the_head_of_sha256_over_zero_joined_fields() -> None:
    assert c.h128("a", "b") == hashlib.sha256(b"a\0b").hexdigest()[:32]
    assert c.h128("ab") != c.h128("a", "b")


@given(st.text())
def test_a_query_s_identity_ignores_form_and_blanks(text: str) -> None:
    spread = "\n " + unicodedata.normalize("NFD", text).replace(" ", " \t ") + "  "
    assert c.query_sha256(spread) == c.query_sha256(text)


def test_the_adapter_and_the_tools_separate_trees() -> None:
    roots = {c.root_hash("m", adapter, "t", tools) for adapter in (None, "a", "b") for tools in ("", "x")}
    assert len(roots) == 6


@given(st.floats(0, 1), st.text(min_size=1, max_size=20))
def test_an_arm_never_changes_within_its_period(share: float, unit: str) -> None:
    assert c.arm(unit, "salt", "2026-11-30", share) == c.arm(unit, "salt", "2026-11-30", share)


def test_the_hold_share_is_kept_over_units() -> None:
    held = sum(c.arm(f"unit-{i}", "salt", "2026-11-30", 0.2) == "hold" for i in range(20_000))
    assert 0.19 < held / 20_000 < 0.21


def test_no_unit_is_held_at_share_zero_and_every_unit_at_one() -> None:
    assert all(c.arm(f"u{i}", "s", "p", 0.0) == "warm" for i in range(100))
    assert all(c.arm(f"u{i}", "s", "p", 1.0) == "hold" for i in range(100))


def test_a_cancel_names_a_set() -> None:
    assert c.cancel_key(["b", "a"]) == c.cancel_key(["a", "b"])


@given(name=st.text(min_size=1, max_size=20), version=st.text(min_size=1, max_size=9).filter(lambda it: "@" not in it))
def test_an_adapter_s_name_in_an_engine_tells_name_and_version(name: str, version: str) -> None:
    written = c.adapter_name(name, version)
    if version != c.UNVERSIONED:
        assert c.adapter_parts(written) == (name, version)
    assert c.adapter_name(*c.adapter_parts(written)) == written


def test_an_adapter_without_a_version_is_one_all_the_same() -> None:
    assert c.adapter_parts("german") == ("german", c.UNVERSIONED)
    assert c.adapter_parts("german@") == ("german@", c.UNVERSIONED)
    assert c.adapter_parts("german@7") == ("german", "7")
