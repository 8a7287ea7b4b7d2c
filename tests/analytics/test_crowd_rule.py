"""The tuned focus rule over the windows of a scope: what triggers, what does not, and why."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from analytics.crowd_config import CrowdConfig
from analytics.crowd_finding import Finding
from analytics.scope_focus import FocusConfig, ScopeFocus
from analytics.stores import MemoryMapStore
from schemas import Focus, decode, encode
from tests.analytics.asking import key, numbered, told

PANE_MS = 10_000
Event = tuple[int, int, int]
"""Time in ms, key, user."""

STARTS_MS = 200_000
ENDS_MS = 260_000
PROMOTED = 999


def usual(chance: random.Random, per_s: float, start_ms: int = 0, end_ms: int = ENDS_MS) -> Iterator[Event]:
    """Requests of many users for keys of which some are liked better."""
    for _ in range(int(per_s * (end_ms - start_ms) / 1000)):
        yield chance.randrange(start_ms, end_ms), int(chance.paretovariate(0.8)) % 300, 1 + chance.randrange(2_000)


def crowd(chance: random.Random, per_s: float, users: int = 10_000) -> Iterator[Event]:
    for _ in range(int(per_s * (ENDS_MS - STARTS_MS) / 1000)):
        yield chance.randrange(STARTS_MS, ENDS_MS), PROMOTED, 10_000 + chance.randrange(users)


def play(events: list[Event], config: CrowdConfig | None = None) -> list[Finding]:
    focus = ScopeFocus(FocusConfig(config or CrowdConfig()), MemoryMapStore())
    by_pane = {asked.pane: asked for asked in told(numbered(events), PANE_MS)}
    found: list[Finding] = []
    for pane in range(ENDS_MS // PANE_MS):
        if pane in by_pane:
            focus.on_asked(by_pane[pane])
        found += [finding for _, finding in focus.slide(pane)]
    return found


def test_a_crowd_is_reported_at_the_next_slide_and_explained() -> None:
    chance = random.Random(1)
    found = play([*usual(chance, 60), *crowd(chance, 12)])
    first = found[0]
    assert (first.verdict, first.why, first.at_ms) == ("crowd", "many_users", STARTS_MS + PANE_MS)
    assert [name for name, _ in first.keys] == [key(PROMOTED)]
    assert first.keys[0][1] == pytest.approx(12, rel=0.3)
    assert 0.1 < first.share < 0.25
    assert 100 < first.users <= first.events
    assert first.user_entropy_bits > 6
    assert all(finding.triggers for finding in found)
    assert f"{first.users} users sent {first.events} requests for 1 keys" in first.sentence()
    assert first.sentence().endswith("a crowd")


def test_a_finding_is_a_focus_insight() -> None:
    chance = random.Random(1)
    first = play([*usual(chance, 60), *crowd(chance, 12)])[0]
    insight = first.insight("acme", "query")
    assert decode(encode(insight), Focus) == insight
    assert insight.keys[0].key == key(PROMOTED).hex()
    assert (insight.rule, insight.verdict, insight.qps) == ("gathered", "crowd", first.qps)
    assert insight.evidence["users"] == first.users
    fields = set(msgspec.to_builtins(first)) - {"verdict", "why", "at_ms", "qps", "keys"}
    assert set(insight.evidence) - {"dropped"} == {name for name in fields if not name.endswith("_bits")}


def one_client(chance: random.Random) -> list[Event]:
    return list(crowd(chance, 30, users=1))


def few_accounts(chance: random.Random) -> list[Event]:
    return list(crowd(chance, 30, users=20))


def one_clock(chance: random.Random) -> list[Event]:
    return [(at, PROMOTED, 10_000 + chance.randrange(10_000)) for at in range(STARTS_MS, ENDS_MS, 80)]


@pytest.mark.parametrize(
    ("more", "why"), [(one_client, "few_users"), (few_accounts, "few_users"), (one_clock, "regular_gaps")]
)
def test_a_crawler_is_named_and_never_triggers(more: Callable[[random.Random], list[Event]], why: str) -> None:
    chance = random.Random(2)
    found = play([*usual(chance, 60), *more(chance)])
    assert {(finding.verdict, finding.why) for finding in found} == {("crawler", why)}


def test_a_crawler_on_its_page_does_not_hide_a_crowd() -> None:
    chance = random.Random(3)
    found = play([*usual(chance, 60), *crowd(chance, 12), *one_client(chance)])
    assert found[0].triggers
    assert found[0].at_ms == STARTS_MS + PANE_MS


def test_more_of_the_same_is_no_focus() -> None:
    chance = random.Random(4)
    assert play([*usual(chance, 60), *usual(chance, 120, STARTS_MS)]) == []


def test_all_texts_equal_is_no_focus_from_the_start_or_later() -> None:
    chance = random.Random(5)
    events = list(usual(chance, 60))
    assert play([(at, PROMOTED, user) for at, _, user in events]) == []
    for begins_ms in (STARTS_MS, STARTS_MS + 9_500):
        later = [(at, PROMOTED if at >= begins_ms else k, user) for at, k, user in events]
        half = [(at, PROMOTED if at >= begins_ms and at % 2 else k, user) for at, k, user in events]
        for found in (play(later), play(half)):
            assert found
            assert {finding.verdict for finding in found} == {"none"}
            assert {finding.why for finding in found} <= {"one_text", "displaced"}


def test_what_is_left_when_a_crowd_goes_has_not_gathered() -> None:
    chance = random.Random(9)
    gone_ms = STARTS_MS - 30_000
    early = [(at - 60_000, k, user) for at, k, user in crowd(chance, 60) if at - 60_000 < gone_ms]
    found = play([*usual(chance, 20), *early])
    assert found[0].triggers
    assert {name for finding in found for name, _ in finding.keys} == {key(PROMOTED)}
    assert all(finding.at_ms <= gone_ms + 6 * PANE_MS for finding in found)


def test_a_topic_that_grows_slowly_is_no_focus() -> None:
    chance = random.Random(6)
    events = [(at, PROMOTED if chance.random() < 0.1 * at / ENDS_MS else k, user) for at, k, user in usual(chance, 120)]
    assert play(events) == []


def test_without_users_everyone_counts_and_the_finding_says_so() -> None:
    chance = random.Random(7)
    events = [(at, k, 0) for at, k, _ in [*usual(chance, 60), *crowd(chance, 12)]]
    first = play(events)[0]
    assert (first.verdict, first.anonymous_share) == ("crowd", 1.0)


def test_a_quiet_scope_has_no_crowd_and_no_past_has_none_either() -> None:
    chance = random.Random(8)
    assert play([*usual(chance, 0.5), *crowd(chance, 0.4)]) == []
    assert play(list(crowd(chance, 50))) == []
