"""The backtest of focus: what counts as right and late, its scenarios, and two of them over invented arrivals."""

from __future__ import annotations

import numpy as np
import pytest

from stoker.backtests import focus
from stoker.backtests.focus import Score, Trigger, spec_triggers, tuned_findings
from stoker.backtests.focus_families import READ, SCENARIOS, generate
from stoker.backtests.focus_scenarios import (
    BEGINS_MS,
    FAMILY,
    LENGTH_MS,
    PROMOTED,
    Crowd,
    Events,
    Scenario,
    truth,
)
from stoker.replay.azure import Arrival

ARRIVALS = [Arrival(at_ms, 400, 100 + at_ms % 300) for at_ms in range(0, LENGTH_MS + 60_000, 600)]
"""1.7 a second: a third of the trace's rate."""

NOTHING = np.zeros(0, dtype=np.int64)
CROWD = Crowd(tenant=3, queries=frozenset({7, 8}), begins_ms=600_000, ends_ms=700_000, hundredth_ms=612_000)


def score(*triggers: Trigger, crowd: Crowd | None = CROWD) -> Score:
    found = Score()
    found.add(Scenario("any", Events(NOTHING, NOTHING, NOTHING, NOTHING), crowd), list(triggers))
    return found


def test_a_delay_is_counted_from_the_hundredth_user() -> None:
    found = score(Trigger(630_000, 3, frozenset({8, 9})), Trigger(620_000, 3, frozenset({7})))
    assert (found.delays, found.false, found.unreported, found.triggers) == ([0.8], 0, 0, 2)
    assert score(Trigger(610_000, 3, frozenset({7}))).delays == [0]


@pytest.mark.parametrize(
    "wrong",
    [
        Trigger(620_000, 4, frozenset({7})),
        Trigger(620_000, 3, frozenset({9})),
        Trigger(600_000, 3, frozenset({7})),
        Trigger(770_000, 3, frozenset({7})),
    ],
    ids=["scope", "query", "early", "late"],
)
def test_a_trigger_that_is_wrong_is_false_and_reports_nothing(wrong: Trigger) -> None:
    found = score(wrong)
    assert (found.false, found.unreported, found.delays) == (1, 1, [(LENGTH_MS - 612_000) / 10_000])
    assert score(wrong, crowd=None).false == 1
    assert score(crowd=None).delays == []


def test_the_hundredth_user_is_found_among_repetitions() -> None:
    users = np.repeat(np.arange(150), 2)
    events = Events(np.arange(300) * 10, np.zeros(300, dtype=np.int64), np.full(300, PROMOTED), users)
    assert truth(events, 0, (PROMOTED,)).hundredth_ms == 1_980


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_drawn_the_same_again_and_disturbs_late_enough(name: str) -> None:
    one, other = generate(name, ARRIVALS, 5), generate(name, ARRIVALS, 5)
    assert all((a == b).all() for a, b in zip(one.events.columns, other.events.columns, strict=True))
    at_ms = one.events.at_ms
    assert len(at_ms) > 10_000
    assert (np.diff(at_ms) >= 0).all()
    if one.crowd is not None:
        assert one.crowd.begins_ms >= BEGINS_MS
        asked = one.events.queries[(one.events.tenants == one.crowd.tenant) & (at_ms >= one.crowd.begins_ms)]
        assert np.isin(np.where(asked < FAMILY, asked, asked // FAMILY * FAMILY), list(one.crowd.queries)).sum() >= 100


def test_the_spec_rules_fire_on_minutes_that_fall_below_their_bar() -> None:
    # Minutes of 8, then 4, then 1 query, asked for evenly: 3, 2 and 0 bits.
    queries = np.concatenate([np.arange(64) % 8, np.arange(64) % 4, np.zeros(64, dtype=np.int64)])
    at_ms = np.concatenate([60_000 * minute + 900 * np.arange(64) for minute in range(3)])
    events = Events(at_ms, np.full(192, 2), queries, np.arange(192))
    assert list(spec_triggers(events)) == [Trigger(180_000, 2, frozenset({0}))]


def test_ours_finds_the_crowd_and_the_report_has_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus, "read_arrivals", lambda _: ARRIVALS)
    monkeypatch.setattr(focus, "data_file", lambda name: name)
    monkeypatch.setattr(focus, "SCENARIOS", {name: SCENARIOS[name] for name in ("promotion", "bot_net")})
    figures = {figure.name: figure for figure in focus.run(seeds=(7,)).figures}
    assert {"promotion.delay_slides.stoker", "promotion.unreported.spec", "bot_net.triggers.stoker"} < set(figures)
    assert {f"{name}.{rule}" for name in ("delay_slides", "false_triggers") for rule in ("spec", "stoker")} < set(
        figures
    )
    assert figures["promotion.unreported.stoker"].value == 0
    assert figures["promotion.unreported.spec"].value == 1
    assert figures["bot_net.told_apart_slides.stoker"].value < 8
    finding = next(finding for _, finding in tuned_findings(generate("bot_net", ARRIVALS, 7).events))
    assert finding.keys[0][0] == PROMOTED.to_bytes(16, "big")


@pytest.mark.parametrize(("name", "verdicts"), [("document_crowd", {"crowd"}), ("document_crawler", {"crawler"})])
def test_what_gathers_on_a_document_is_seen_though_no_question_repeats(name: str, verdicts: set[str]) -> None:
    found = list(tuned_findings(generate(name, ARRIVALS, 7).events))
    assert {finding.verdict for _, finding in found} == verdicts
    assert {trigger.queries for trigger, _ in found if trigger} <= {frozenset({READ * FAMILY})}
    assert found[0][1].at_ms <= BEGINS_MS + 60_000


def test_a_new_system_prompt_is_no_crowd_on_its_families() -> None:
    assert not [trigger for trigger, _ in tuned_findings(generate("system_rollout", ARRIVALS, 7).events) if trigger]
