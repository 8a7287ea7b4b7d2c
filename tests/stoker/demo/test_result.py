"""The summary and its JSON: the shape of DESIGN §8, and sentences that claim no more than was seen."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace

import pytest
from rich.console import Console

from schemas import Accounting, encode
from stoker.demo.board import Board
from stoker.demo.config import DemoConfig
from stoker.demo.effect import Groups, Sample, Shadowed, Touch
from stoker.demo.gain import Gain
from stoker.demo.idle import Idle
from stoker.demo.page import page
from stoker.demo.profile import generated_profile
from stoker.demo.result import Figures
from stoker.demo.show import line, live_view, summary
from stoker.demo.statistics import Control
from stoker.demo.timeline import timeline


def sample(mean_ms: float, units: int = 8, each: int = 6) -> Sample:
    source = random.Random(int(mean_ms))
    names = tuple(f"u{unit}" for unit in range(units) for _ in range(each))
    return Sample(names, tuple(source.gauss(mean_ms, 5) for _ in names), 40 * len(names), 100 * len(names))


def figures(warmed: Sample, held: Sample) -> Figures:
    board = Board()
    board.on_insight(encode(Accounting(shard=0, revision=1, at_ms=1, counted=90, second_phase=8, dead=2)))
    groups = Groups(warmed, held, sample(20.0))
    return Figures(120.04, 100, 50, {}, 33.3, 12.0, 5_000, 0, groups, board)


def shown(what: object) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_json_has_the_shape_of_the_design() -> None:
    document = json.loads(json.dumps(figures(sample(50), sample(100)).as_json(seed=1)))
    assert set(document) == {
        *("events_in", "events_counted", "second_phase", "not_demand", "dead_letters", "duplicates", "late"),
        *("commands", "outcomes", "ttft_ms", "effect", "idle", "seconds"),
    }
    assert set(document["ttft_ms"]) == {"warmed", "held_out", "rest", "lru_only", "ratio_ci"}
    for group in ("warmed", "held_out", "rest"):
        assert set(document["ttft_ms"][group]) == {"n", "p50", "p95", "p99"}
    assert document["ttft_ms"]["lru_only"] is None
    low, high = document["ttft_ms"]["ratio_ci"]
    assert low < 0.5 < high
    assert document["seconds"] == 120.0
    names = ("events_counted", "second_phase", "not_demand", "late", "duplicates", "dead_letters")
    assert document["events_in"] == sum(document[name] for name in names)


def test_without_enough_touches_there_is_no_interval_and_no_claim() -> None:
    few = figures(sample(50, units=2), Sample())
    document = few.as_json(seed=1)["ttft_ms"]
    assert document["ratio_ci"] is None
    assert document["held_out"] == {"n": 0, "p50": None, "p95": None, "p99": None}
    assert "proves nothing" in few.verdict(1)
    assert "12 eligible first touches of 2 warmed units" in few.verdict(1)


@pytest.mark.parametrize(
    ("warmed", "held", "told"), [(50, 100, "helped"), (100, 50, "harm"), (100, 100.4, "No effect is shown")]
)
def test_the_verdict_says_what_the_interval_says(warmed: float, held: float, told: str) -> None:
    assert told in figures(sample(warmed), sample(held)).verdict(1)


def test_a_run_on_a_machine_that_was_too_busy_says_so() -> None:
    good = figures(sample(50), sample(100))
    assert "too busy" not in good.verdict(1)
    assert "fell 9 s behind" in replace(good, behind_ms=9_000.0).verdict(1)


def test_the_summary_prints_capacity_load_and_balance() -> None:
    config = DemoConfig(generated_profile(1), minutes=2)
    good = figures(sample(50), sample(100))
    text = shown(summary(good, config))
    for word in ("31,984 tokens of KV", "prefill 5,000 tokens/s", "balances", "held out", "intention to treat"):
        assert word in text.replace("\n", " ")
    assert "DOES NOT BALANCE by 1" in shown(summary(replace(good, records=101), config))


def test_the_live_view_and_the_line_draw_an_empty_run_too() -> None:
    config = DemoConfig(generated_profile(1), minutes=2)
    empty = Figures(0.0, 0, 0, {}, 0.0, 0.0, 0, 0, Groups(Sample(), Sample(), Sample()), Board())
    assert "no word yet" in shown(live_view(empty, config))
    assert "commands none" in line(empty)
    assert "hit warmed 40%" in line(figures(sample(50), sample(100)))


def test_the_page_is_one_file_that_needs_no_network_and_claims_what_the_summary_claims() -> None:
    found = figures(sample(50), sample(100))
    touches = [Shadowed(Touch(at, "s", "r", ("t", "u"), (1, 1), 5.0, 1, 2), 0) for at in range(0, 1_000, 10)]
    whole_ = replace(
        found,
        lru_only=sample(60),
        in_its_place=sample(55),
        control=Control(0.8, 1.0, 1.2, 0.4, 200),
        timeline=timeline(touches, []),
    )
    document = page(whole_, DemoConfig(generated_profile(1), seed=1))
    assert "<script src" not in document
    assert 'rel="stylesheet"' not in document
    for claim in ("Warming helped here", "mean wait, warmed / held out", "control: arms shuffled", "balances"):
        assert claim in document
    empty = page(figures(Sample(), Sample()), DemoConfig(generated_profile(1)))
    assert "too few touches to say" in empty


def test_a_run_whose_generator_fell_behind_says_nothing_of_the_service() -> None:
    slow = replace(figures(sample(50), sample(100)), lru_only=sample(20), in_its_place=sample(90))
    assert "got slower" in slow.verdict(1)
    late = replace(slow, behind_ms=5_000.0)
    assert "got slower" not in late.verdict(1)
    assert "5 s behind" in late.verdict(1)


HELP, HARM, NOTHING = Gain(0.05, 0.03, 0.07), Gain(-0.05, -0.07, -0.03), Gain(-0.004, -0.009, 0.001)


@pytest.mark.parametrize(
    ("found", "told"), [(HELP, "warming helped:"), (HARM, "warming did harm:"), (NOTHING, "neither helped nor harmed")]
)
def test_tokens_say_what_the_machine_cannot(found: Gain, told: str) -> None:
    run = replace(figures(sample(100), sample(100.4)), gain=found)
    assert told in run.verdict(1)
    assert run.as_json(1)["effect"]["tokens"]["verdict"] == found.verdict


def test_who_gained_at_the_cost_of_all_is_not_called_help() -> None:
    run = replace(figures(sample(50), sample(100)), gain=HARM, mode="bad")
    assert "helped" not in run.verdict(1)
    assert "at the cost of all" in run.verdict(1)
    assert run.verdict(1).startswith("By tokens, which do not depend on the machine, warming did harm"), (
        "harm comes first"
    )


@pytest.mark.parametrize(("warmed", "held"), [(50, 100), (100, 50), (100, 100.4)])
def test_with_warming_off_no_effect_is_claimed_and_a_slower_service_is_the_machine_s(
    warmed: float, held: float
) -> None:
    off = replace(
        figures(sample(warmed), sample(held)), gain=NOTHING, mode="off", lru_only=sample(20), in_its_place=sample(90)
    )
    said = off.verdict(1)
    assert "no effect" in said.lower()
    for claim in ("helped", "did harm", "distrust"):
        assert claim not in said
    assert "got slower" in said
    assert "Nothing was warmed: a difference is the machine and the stack beside it, not warming." in said
    assert "distrust this" in replace(off, gain=HARM).verdict(1)


def test_a_service_that_got_slower_without_losing_tokens_did_not_because_of_what_was_displaced() -> None:
    slow = replace(figures(sample(50), sample(100)), lru_only=sample(20), in_its_place=sample(90), gain=NOTHING)
    assert "displaced nothing" in slow.verdict(1)
    assert "displaced nothing" not in replace(slow, gain=HARM).verdict(1)


def test_idle_gaps_of_every_replica_are_in_the_terminal_the_page_and_the_json() -> None:
    config = DemoConfig(generated_profile(1), minutes=2)
    run = replace(figures(sample(50), sample(100)), idle=(Idle("r0", 0.41, 118.0), Idle("r1", 0.0, None)))
    told = "r0 41% of the time without a request, gaps of 118 ms in the median"
    assert told in " ".join(shown(summary(run, config)).split())
    assert told in page(run, config)
    assert run.as_json(1)["idle"][0] == {"replica": "r0", "share": 0.41, "median_gap_ms": 118.0}


def test_a_control_that_finds_something_says_distrust_this() -> None:
    odd = replace(figures(sample(50), sample(100)), control=Control(0.5, 0.6, 0.7, 0.5, 200))
    assert "distrust this" in odd.verdict(1)
