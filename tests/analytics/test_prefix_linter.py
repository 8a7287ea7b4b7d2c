"""What the linter says of templates that part too early, and what it leaves alone."""

from __future__ import annotations

import pytest

from analytics.prefix_linter import Part, lint
from schemas.canonical import h128, segment_hash

HOUR_MS = 3_600_000


def prompt(*pieces: tuple[str, str, int]) -> list[Part]:
    """Parts of (role, text, tokens), chained."""
    parent, parts = h128("root"), []
    for role, text, tokens in pieces:
        parent = segment_hash(parent, role, text)
        parts.append(Part(parent, tokens, role))
    return parts


def stamped(number: int, stamp: str | None = None) -> list[Part]:
    """A short greeting, the time, long rules, and a question."""
    return prompt(
        ("system", "greeting", 14),
        ("system", stamp or f"now {number}", 9),
        ("system", "rules", 700),
        ("user", f"question {number}", 20 + number % 7),
    )


def test_a_template_with_the_time_in_it_is_named_with_place_share_and_cost() -> None:
    group = [stamped(number) for number in range(63)] + [stamped(number, "today") for number in range(37)]
    [found] = lint([("shop@1", parts) for parts in group], 2 * HOUR_MS)
    assert (found.template, found.requests, found.at_tokens, found.segment) == ("shop@1", 100, 14, 1)
    assert found.share == 0.63
    assert not found.within
    assert found.movable_tokens == 63 * 700
    assert found.freed_tokens_per_h == pytest.approx(63 * 700 / 2)


def test_a_system_prompt_that_changes_within_is_found_by_its_constant_length() -> None:
    group = [
        ("docs@2", prompt(("system", f"rules as of {number}", 812), ("user", f"question {number}", 9)))
        for number in range(50)
    ]
    [found] = lint(group, HOUR_MS)
    assert (found.at_tokens, found.role, found.share, found.within) == (0, "system", 1.0, True)
    assert found.freed_tokens_per_h == 50 * 812


def test_conversations_that_part_at_the_persons_own_words_are_as_they_should_be() -> None:
    group = [
        ("chat@1", prompt(("system", "rules", 500), ("user", f"hello {number}", 10 + number), ("user", "and", 3)))
        for number in range(50)
    ]
    assert lint(group, HOUR_MS) == []


def test_documents_of_different_lengths_are_not_one_text() -> None:
    group = [
        ("rag@1", prompt(("system", "rules", 500), ("tool", f"page {number}", 300 + number), ("user", "why", 3)))
        for number in range(50)
    ]
    assert lint(group, HOUR_MS) == []


def test_what_follows_a_document_and_is_always_the_same_could_stand_before_it() -> None:
    group = [
        (
            "rag@1",
            prompt(
                ("system", "rules", 500),
                ("tool", f"page {number}", 300 + number),
                ("system", "answer like this", 120),
                ("user", "why", 3),
            ),
        )
        for number in range(50)
    ]
    [found] = lint(group, HOUR_MS)
    assert (found.at_tokens, found.role, found.movable_tokens) == (500, "tool", 50 * 120)


def test_different_documents_of_one_length_are_not_taken_for_the_same_text() -> None:
    group = [
        ("shop@1", [*stamped(number)[:3], *prompt(("user", f"page {number}", 1500), ("user", "why", 3))])
        for number in range(40)
    ]
    [found] = lint(group, HOUR_MS)
    assert found.movable_tokens == 40 * 700


def test_few_requests_say_nothing() -> None:
    assert lint([("shop@1", stamped(number)) for number in range(19)], HOUR_MS) == []


def test_blocks_tell_the_place_only() -> None:
    group = [
        ("trace", prompt(("block", "shared", 512), ("block", f"own {number}", 512), ("block", "more", 512)))
        for number in range(40)
    ]
    [found] = lint(group, HOUR_MS)
    assert (found.at_tokens, found.share) == (512, 1.0)
    assert found.freed_tokens_per_h is None


def test_what_costs_most_comes_first() -> None:
    group = [("small@1", stamped(number)) for number in range(30)] + [("large@1", stamped(n)) for n in range(90)]
    assert [found.template for found in lint(group, HOUR_MS)] == ["large@1", "small@1"]
