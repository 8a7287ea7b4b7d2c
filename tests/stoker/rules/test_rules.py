"""Every rule runs on its own example, and says of a wrong input which field is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from schemas import BrokenConfiguration
from stoker.cli import build
from stoker.rules import RULES, decide, find

RUN = CliRunner()
EXPECTED: dict[str, Any] = {
    "should_preheat": {"preheat": True, "keys": ["returns", "sizes"]},
    "prompt_hotness": {"hotness": pytest.approx(2.0 * 0.95**2 + 0.3 + 0.5)},
    "prompt_sample": {"index": 1},
    "compute_dynamic_score": {"score": pytest.approx(0.6 * 0.9 + 0.4 * 0.5), "alpha": 0.6, "dropped": False},
    "pattern_state": {"state": 202, "segments": [1, 2]},
    "should_keep": {"keep": True},
    "hot_top_n": {"keys": ["c", "a"], "coverage": 1.0, "cost": 2},
    "full_snapshot": {"keys": ["flags", "rates"], "coverage": 1.0, "cost": 2},
    "allocate_kv_cache": {
        "shards": {
            "a": [
                {"base_offset": 0, "valid_len": 512},
                {"base_offset": 8 << 20, "valid_len": 512},
                {"base_offset": 16 << 20, "valid_len": 276},
            ],
            "b": [{"base_offset": 24 << 20, "valid_len": 40}],
        },
        "refused": {"c": "too_long"},
        "weights": {"layer0.attn.q_proj": 32 << 20},
        "weights_refused": [],
        "free_bytes": 24 << 20,
        "fragmentation": pytest.approx(1 / 3),
    },
    "buddy": {
        "offsets": {"b": 4 << 20},
        "refused": ["c"],
        "free_bytes": 14 << 20,
        "largest_free_bytes": 8 << 20,
        "fragmentation": pytest.approx(3 / 7),
    },
    "lora_heat": {"modules": ["q_proj", "v_proj"], "values": [[0.25, 1.0], [0.0, 0.5]], "source": "activity"},
}

OURS = {"consecutive_prompts", "prefix_linter", "request_groups", "hot_top_n", "full_snapshot", "sampled"}
"""Beyond what DECISIONS.md names."""
LATER = {
    "utterance_to_intent",
    "infer_cache_granularity",
    "prompt_space",
    "align",
    "align_and_cache",
    "calc_attribution",
    "semantic_hit_rate",
    "diagnose",
    "index",
}
"""What DECISIONS.md names and is still to come (docs/roadmap.md): D3, D4, D8, D9, D17 to D19, D21."""


def example(name: str) -> bytes:
    return json.dumps(find(name).example).encode()


@pytest.mark.parametrize("name", RULES)
def test_an_example_is_decided_in_jsons_types(name: str) -> None:
    found = decide(name, example(name))
    assert json.loads(json.dumps(found)) == found
    if name in EXPECTED:
        assert found == EXPECTED[name]


@pytest.mark.parametrize("name", RULES)
def test_a_field_that_is_not_known_is_named(name: str) -> None:
    wrong = json.dumps({**find(name).example, "nonsense": 1}).encode()
    with pytest.raises(BrokenConfiguration, match=f"input of {name}: .*nonsense"):
        decide(name, wrong)


@pytest.mark.parametrize("name", RULES)
def test_a_field_of_another_type_is_named(name: str) -> None:
    for field in msgspec.structs.fields(find(name).input):
        wrong = json.dumps({**find(name).example, field.encode_name: {"not": ["this"]}}).encode()
        with pytest.raises(BrokenConfiguration, match=rf"input of {name}: .*\$\.{field.encode_name}"):
            decide(name, wrong)


@pytest.mark.parametrize("name", RULES)
def test_a_field_that_is_missing_is_named(name: str) -> None:
    for field in msgspec.structs.fields(find(name).input):
        if not field.required:
            continue
        wrong = {key: value for key, value in find(name).example.items() if key != field.encode_name}
        with pytest.raises(BrokenConfiguration, match=f"input of {name}: .*`{field.encode_name}`"):
            decide(name, json.dumps(wrong).encode())


def test_focus_tells_the_crowd_by_both_rules_and_their_figures() -> None:
    found: Any = decide("focus", example("focus"))
    assert {insight["rule"] for insight in found["fired"]} == {"should_preheat", "entropy_only"}
    assert found["fired"][0]["keys"][0] == {"key": "a", "qps": 1.0}
    assert found["entropy_bits"][0] == pytest.approx(2.3219, abs=1e-4)


def test_window_counts_like_texts_as_one_and_minutes_apart() -> None:
    found: Any = decide("window", example("window"))
    assert [minute["events"] for minute in found["minutes"]] == [1, 2]
    assert found["sliding"]["distinct"] == 2
    late = json.dumps(
        {"arrivals": [{"at_ms": 100_000, "query": "a"}, {"at_ms": 10_000, "query": "a"}], "now_ms": 100_000}
    )
    assert decide("window", late.encode())["late"] == 1  # type: ignore[index]


def test_clusters_by_requests_need_fewer_queries_and_no_single_one_is_a_group() -> None:
    asked = {"vectors": [[1, 0], [1, 0.1], [0, 1]], "weights": [3, 2, 90], "eps": 0.05}
    spec: Any = decide("cluster", json.dumps(asked).encode())
    tuned: Any = decide("cluster", json.dumps(asked).encode(), "tuned")
    assert spec["labels"] == [-1, -1, -1]
    assert tuned["labels"] == [0, 0, -1]
    assert tuned["groups"] == [{"members": [0, 1], "medoid": 0, "mass": 5.0}]


def test_one_good_reward_is_worth_a_trial_and_ten_are_worth_serving() -> None:
    once: Any = decide("compute_dynamic_score", example("compute_dynamic_score"), "tuned")
    often = json.dumps({**find("compute_dynamic_score").example, "judgements": 10}).encode()
    assert (once["serve"], once["try"]) == (False, True)
    assert decide("compute_dynamic_score", often, "tuned")["serve"]  # type: ignore[index]
    clicked = json.dumps({**find("compute_dynamic_score").example, "judgements": 10, "source": "click"}).encode()
    assert not decide("compute_dynamic_score", clicked, "tuned")["serve"]  # type: ignore[index]
    alike = json.dumps({**find("compute_dynamic_score").example, "cluster_rewards": [1.0] * 20}).encode()
    assert decide("compute_dynamic_score", alike, "tuned")["serve"]  # type: ignore[index]
    unjudged = json.dumps({"demand": 3.0, "demand_p99": 6.0}).encode()
    assert decide("compute_dynamic_score", unjudged, "tuned") == decide("compute_dynamic_score", unjudged)


def test_candidates_are_the_deepest_hot_prefixes() -> None:
    found: Any = decide("prefix_candidates", example("prefix_candidates"))
    assert found["candidates"][0]["segments"] == ["rules", "terms"]
    assert found["candidates"][0]["tokens"] == 1000


def test_the_plan_prefers_what_traffic_does_not_keep_warm_and_spends_no_more_than_it_may() -> None:
    found: Any = decide("plan", example("plan"))
    assert [command["name"] for command in found["commands"]] == ["manual", "terms"]
    absent = [command["benefit"]["p_absent"] for command in found["commands"]]
    assert absent[0] > absent[1]
    assert found["commands"][0]["replicas"] == ["r0", "r1"]
    poor = {**find("plan").example, "prefill_share": 0.0}
    assert decide("plan", json.dumps(poor).encode()) == {"commands": []}


def test_a_model_is_warmed_by_the_forecast_unless_chance_alone_may_have_raised_it() -> None:
    spec: Any = decide("should_preheat_model", example("should_preheat_model"))
    tuned: Any = decide("should_preheat_model", example("should_preheat_model"), "tuned")
    assert spec["forecast"] == tuned["forecast"]
    assert 40 < spec["forecast"]["qps"] < 40 + spec["forecast"]["error_qps"]
    assert spec["verdict"] == {"preheat": True, "against": []}
    assert tuned["verdict"] == {"preheat": False, "against": ["load"]}
    told = {"threshold_qps": 40, "free_gib": 12, "footprint_gib": 10, "cold_start_ms": 35}
    found: Any = decide("should_preheat_model", json.dumps({**told, "predicted_qps": 40.1}).encode())
    assert found["verdict"] == {"preheat": False, "against": ["memory", "quick_start"]}
    with pytest.raises(BrokenConfiguration, match="a forecast needs counts"):
        decide("should_preheat_model", json.dumps(told).encode())


def test_a_changed_rank_blocks_a_release_and_is_named() -> None:
    found: Any = decide("lora_release_check", example("lora_release_check"))
    assert not found["ok"]
    assert "rank: 8 became 16" in found["differences"]


def test_the_schedule_has_waves_and_a_lazy_rest() -> None:
    found: Any = decide("schedule_warmup", example("schedule_warmup"))
    assert [(wave["offset_ms"], wave["keys"]) for wave in found["waves"]] == [
        (0, ["sku:1", "sku:2"]),
        (2000, ["sku:3"]),
        (4000, ["sku:4"]),
    ]
    assert found["lazy"] == ["sku:5"]


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    assert [name for name in RULES if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("text", "sentence"), [(b"{", "is no JSON"), (b"\xff", "is no JSON"), (b"[]", "Expected `object`")]
)
def test_what_is_no_input_is_told_so(text: bytes, sentence: str) -> None:
    with pytest.raises(BrokenConfiguration, match=sentence):
        decide("should_keep", text)


def test_a_value_that_the_function_refuses_is_told_with_its_reason() -> None:
    with pytest.raises(BrokenConfiguration, match="heat needs gradients or activity"):
        decide("lora_heat", b'{"rank": 8, "alpha": 16}')


def test_unknown_names_and_rules_that_do_not_exist_yet() -> None:
    with pytest.raises(BrokenConfiguration, match="did you mean should_preheat"):
        decide("should_prehaet", b"{}")
    untuned = next(name for name, rule in RULES.items() if "tuned" not in rule.variants)
    with pytest.raises(BrokenConfiguration, match="has no tuned rule; there is: spec"):
        decide(untuned, example(untuned), "tuned")


def test_names_are_those_of_the_decisions(data_dir: Path) -> None:
    """What DECISIONS.md names in brackets is a rule or known to come later; ours beyond that are few and known."""
    page = data_dir.parent / "DECISIONS.md"
    if not page.exists():
        pytest.skip(f"no {page.name} beside the data")
    named = {
        name.strip()
        for names in re.findall(r"^## D\d+ .*\[(.+)\]$", page.read_text(), re.MULTILINE)
        for name in names.split(",")
    }
    assert set(RULES) - named == OURS
    assert named - set(RULES) == LATER


def test_the_command_lists_shows_and_decides(tmp_path: Path) -> None:
    listing = RUN.invoke(build(), ["rule"])
    assert listing.exit_code == 0
    assert all(f"{rule.name} " in listing.output and rule.summary in listing.output for rule in RULES.values())
    shown = RUN.invoke(build(), ["rule", "should_keep", "--example"])
    file = tmp_path / "input.json"
    file.write_text(shown.output)
    by_file = RUN.invoke(build(), ["rule", "should_keep", "--input", str(file)])
    by_stdin = RUN.invoke(build(), ["rule", "should_keep", "--rule", "spec", "--input", "-"], input=shown.output)
    assert json.loads(by_file.output) == json.loads(by_stdin.output) == {"keep": True}


@pytest.mark.parametrize(
    "arguments", [["no_such"], ["should_keep"], ["should_keep", "--input", "absent.json"], ["no_such", "--example"]]
)
def test_wrong_use_is_a_sentence(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(RUN.invoke(build(), ["rule", *arguments]).exception, BrokenConfiguration)
