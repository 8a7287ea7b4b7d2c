"""What outcomes and statements of residency say of a target."""

import pytest

from analytics.statements import kept_share, stays_until, unused_of
from schemas import Residency
from tests.analytics.test_memory import told


def seen(**fields):
    return Residency(
        replica="r",
        pool="p",
        incarnation="i",
        scope="s",
        target_key="k",
        seq=1,
        observed_at_ms=1_000,
        source="events",
        **fields,
    )


@pytest.mark.parametrize(
    ("status", "reason", "warmed", "apply_ms", "unused"),
    [
        ("applied", "done", 60, 5.0, 40),
        ("applied", "unverified", 0, 5.0, 0),
        ("resident", "already_resident", 0, 5.0, 100),
        ("failed", "engine_refused", 0, 5.0, 100),
        ("failed", "store_unavailable", 0, 5.0, 100),
        ("failed", "engine_unavailable", 0, 5.0, 0),
        ("failed", "unverified", 0, 5.0, 0),
        ("failed", "engine_unavailable", 30, 5.0, 70),
        ("cancelled", "cancelled", 0, 0.0, 100),
        ("cancelled", "frozen", 0, 5.0, 0),
        ("applied", "done", 120, 5.0, 0),
    ],
)
def test_only_what_was_surely_not_spent_comes_back(status, reason, warmed, apply_ms, unused):
    assert unused_of(told("c", status, reason, warmed, apply_ms), 100.0) == unused


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, 1.0),
        ({"resident_tokens": 30}, 1.0),  # of how many it does not say
        ({"resident_tokens": 30, "full_tokens": 40}, 0.75),
        ({"resident_tokens": 50, "full_tokens": 40}, 1.0),
        ({"resident_tokens": 0, "full_tokens": 40}, 0.0),
        ({"bytes": 0}, 0.0),
        ({"resident_tokens": 40, "full_tokens": 40, "deleted": True}, 0.0),
    ],
)
def test_a_replica_holds_a_part_of_a_target(fields, kept):
    assert kept_share(seen(**fields)) == kept


@pytest.mark.parametrize(
    ("tokens", "held_until_ms", "until_ms"),
    [
        (100, 0, 1_500),
        (100, 1_200, 1_500),  # seen whole: it stays as long as anything that is seen
        (80, 1_200, 1_200),  # it has begun to go: no longer than was believed
        (80, 9_000, 1_500),
        (80, 0, 1_500),  # nothing was believed of it
        (70, 1_200, 1_200),
        (69, 1_200, 0),  # more than the share has gone: it counts as lost
        (0, 1_200, 0),
    ],
)
def test_what_has_begun_to_go_is_not_promised_for_longer(tokens, held_until_ms, until_ms):
    message = seen(resident_tokens=tokens, full_tokens=100)
    assert stays_until(message, 0.3, 500, held_until_ms) == until_ms
