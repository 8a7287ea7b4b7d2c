from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from schemas.errors import StackFault
from stoker.stack import java_parts
from stoker.stack.paths import cache_folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with nothing but the compiler."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "compiler").symlink_to((cache_folder() / "jars" / "compiler").absolute())
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_what_of_the_job_is_java_compiles_and_a_mistake_in_it_is_shown(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = java_parts.build()
    assert made == cache / "jars" / "stoker" / java_parts.NAME
    assert "stoker/flink/BundleOperator.class" in zipfile.ZipFile(made).namelist()

    broken = cache / "java"
    broken.mkdir()
    (broken / "Wrong.java").write_text("class Wrong { int number = nothing; }")
    monkeypatch.setattr(java_parts, "SOURCES", broken)
    with pytest.raises(StackFault, match="nothing cannot be resolved"):
        java_parts.build()
    assert made.exists(), "what was there stays"
    assert [path.name for path in made.parent.iterdir()] == [java_parts.NAME]


def test_without_the_compiler_set_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    with pytest.raises(StackFault, match="make setup"):
        java_parts.build()
