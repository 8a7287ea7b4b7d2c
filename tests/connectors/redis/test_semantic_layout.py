"""The layout of answers, and that the page that gateways are told to follow says the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from connectors.redis.semantic import Answer, CacheName
from connectors.redis.semantic_layout import END, TAGS, entry_of, filterable_fields, held_of

PAGE = Path(__file__).parents[3] / "docs" / "executor.md"
NAME = CacheName("acme", "answers", "f" * 32)


def test_the_page_declares_the_fields_of_the_index() -> None:
    (block,) = re.findall(r"```python\n(.*?)cache = SemanticCache", PAGE.read_text(), re.DOTALL)
    told: dict[str, Any] = {}
    exec(block, told)
    assert told["fields"] == filterable_fields()
    assert {field["name"] for field in told["fields"]} == {*TAGS, END}


def test_an_entry_is_read_as_it_was_written() -> None:
    answer = Answer("q", "ü", np.ones(2, np.float32), 1_796_000_000_001, 1_796_000_000_000, "m", labels={"arm": "warm"})
    entry = entry_of(NAME, answer, 1_796_000_000_000)
    held = held_of(entry.key, {k: v if isinstance(v, bytes) else v.encode() for k, v in entry.fields.items()})
    assert (held.prompt, held.response, held.until_ms, held.issued_at_ms) == (
        "q",
        "ü",
        answer.until_ms,
        answer.issued_at_ms,
    )
    assert held.ours
    assert held.same_place(answer)
    assert "template_version" not in entry.fields, "an empty tag would match nothing and belong to the key"


def test_what_a_gateway_wrote_is_read_too() -> None:
    held = held_of(
        "k", {"prompt": b"q", "response": b"\xff", "metadata": b"no json", "expires_at_ms": b"soon", "x": None}
    )
    assert (held.response, held.until_ms, held.issued_at_ms, held.metadata, held.ours) == ("\ufffd", None, 0, {}, False)
    assert held_of("k", {"metadata": b"[1]"}).metadata == {}
