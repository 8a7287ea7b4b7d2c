"""Settings of the jobs: where they come from and what they become."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.configuration import load
from executor.settings import ExecutorTree
from jobs.settings import JobSettings, load_settings
from schemas import BrokenConfiguration
from stoker.config import read


def test_the_environment_goes_before_the_file_and_other_sections_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text('[warmup]\nshards = 8\n[scopes.tenants]\na = "b"\n[elsewhere]\nx = 1\n')
    monkeypatch.setenv("STOKER_WARMUP__SHARDS", "16")
    settings = load_settings(file)
    assert settings.warmup.shards == 16
    assert settings.ingest().scopes.scope_of("a") == "b"


def test_one_time_scale_is_read_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text("time_scale = 10\n[warmup]\nshards = 8\n")
    assert load_settings(file).time_scale == load(ExecutorTree, file).time_scale == read(file).time_scale == 10
    monkeypatch.setenv("STOKER_TIME_SCALE", "20")
    assert load_settings(file).time_scale == load(ExecutorTree, file).time_scale == read(file).time_scale == 20


def test_a_misspelled_key_is_named_with_the_nearest_known_one(tmp_path: Path) -> None:
    file = tmp_path / "stoker.toml"
    file.write_text("[warmup]\nshrads = 8\n")
    with pytest.raises(BrokenConfiguration, match=r"warmup\.shrads.*warmup\.shards"):
        load_settings(file)


def test_operators_get_the_settings_that_were_submitted_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(None)
    text = settings.to_json()
    monkeypatch.setenv("STOKER_WARMUP__SHARDS", "1")
    assert JobSettings.from_json(text) == settings


def test_what_was_resolved_for_a_submission_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(None)
    file = tmp_path / "settings.json"
    file.write_text(settings.to_json())
    monkeypatch.setenv("STOKER_WARMUP__SHARDS", "1")
    assert load_settings(file) == settings


def test_time_scale_divides_every_duration_of_event_time() -> None:
    slow, fast = JobSettings(), JobSettings.model_validate({"time_scale": 10})
    for name in ("pane_ms", "window_ms", "lateness_ms", "close_after_ms"):
        assert getattr(slow.demand(), name) == 10 * getattr(fast.demand(), name)
    assert slow.timing.out_of_orderness_ms == 10 * fast.timing.out_of_orderness_ms
    assert fast.prefixes().time_scale == fast.planning().time_scale == fast.demand().second_sight.time_scale == 10
    assert fast.timing.idle_ms == slow.timing.idle_ms  # fetching takes its time, however fast the calendar runs
    assert fast.ingest().max_skew_ms == slow.ingest().max_skew_ms


def test_the_rules_of_prefixes_reach_who_decides() -> None:
    rules = {"prefix_rule": "tuned", "prefix_asked_rule": "tuned", "prefix_absent_rule": "spec"}
    rules["prefix_renew_rule"] = "tuned"
    settings = JobSettings.model_validate({"warmup": rules})
    assert (settings.prefixes().rule, settings.prefixes().asked_rule) == ("tuned", "tuned")
    assert (settings.planning().absent_rule, JobSettings().planning().absent_rule) == ("spec", "tuned")
    assert (settings.planning().renew_rule, JobSettings().planning().renew_rule) == ("tuned", "spec")
    assert settings.planning().half_life_ms == settings.prefixes().half_life_ms, "rates and flows are of the same past"


def test_relative_paths_are_made_absolute_because_a_taskmanager_runs_elsewhere() -> None:
    assert load_settings(None).encoder.model.is_absolute()
