"""Where data is looked for, and what is said when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import BrokenConfiguration
from stoker.backtests.data import CONVERSATION, data_file


def test_the_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_DATA", str(tmp_path))
    (tmp_path / "traces").mkdir()
    (tmp_path / CONVERSATION).touch()
    assert data_file(CONVERSATION) == tmp_path / CONVERSATION


def test_a_missing_file_is_named_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_DATA", str(tmp_path))
    with pytest.raises(BrokenConfiguration, match=f"{CONVERSATION} is missing in .*set STOKER_DATA"):
        data_file(CONVERSATION)
