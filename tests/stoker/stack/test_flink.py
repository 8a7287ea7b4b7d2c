from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import BrokenConfiguration, StackFault
from stoker.stack.flink import applications, load_application, start_application
from stoker.stack.paths import StateFolder
from stoker.stack.process import marked

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_a_job_that_cannot_be_built_says_why_and_leaves_nothing(flink_state: StateFolder, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('no such pool')\n")
    with pytest.raises(StackFault, match="no such pool"):
        start_application("broken", broken, state=flink_state)
    assert marked(flink_state) == []
    assert [app.name for app in applications(flink_state)] == ["broken"]


def test_starting_needs_a_script_and_a_savepoint_that_exist(flink_state: StateFolder, tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="does not exist"):
        start_application("x", tmp_path / "absent.py", state=flink_state)
    with pytest.raises(BrokenConfiguration, match="no savepoint"):
        start_application("x", Path(__file__), state=flink_state, savepoint=tmp_path)


def test_an_unknown_application_is_named_with_the_known_ones(flink_state: StateFolder) -> None:
    with pytest.raises(BrokenConfiguration, match="no application warmup"):
        load_application("warmup", flink_state)
    assert applications(flink_state) == []
