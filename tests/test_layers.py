"""The arrows between packages point one way, and a decision reaches no clock, dice or network (docs/structure.md)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT: dict[str, set[str]] = {
    "schemas": set(),
    "analytics": {"schemas"},
    "connectors": {"schemas", "analytics"},
    "jobs": {"schemas", "analytics", "connectors"},
    "executor": {"schemas", "analytics", "connectors"},
    "stoker": {"schemas", "analytics", "connectors", "jobs", "executor"},
}
OUTSIDE_WORLD = {"pyflink", "kafka", "confluent_kafka", "redis", "redisvl", "httpx", "socket", "zmq", "subprocess"}
CHANCE_AND_CLOCKS = {"time", "random", "secrets", "uuid", "asyncio", "threading", "os"}


def python_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imported(file: Path) -> tuple[tuple[int, str], ...]:
    """Lines and top packages of a file's imports; read once for all tests."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.append((node.lineno, node.module.split(".")[0]))
    return tuple(found)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_an_arrow_never_points_back(package: str) -> None:
    files = python_files(package)
    assert files, f"{package} has no Python files"
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in files
        for line, name in imported(file)
        if name in MAY_IMPORT and name != package and name not in MAY_IMPORT[package]
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["schemas", "analytics"])
def test_a_decision_reaches_nothing_outside(package: str) -> None:
    forbidden = OUTSIDE_WORLD | CHANCE_AND_CLOCKS
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in python_files(package)
        for line, name in imported(file)
        if name in forbidden
    ]
    assert wrong == []


def test_the_executor_needs_no_flink() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}"
        for package in ("executor", "connectors", "schemas", "analytics")
        for file in python_files(package)
        for line, name in imported(file)
        if name == "pyflink"
    ]
    assert wrong == []


def test_no_file_hides_behind_a_name_that_says_nothing() -> None:
    nameless = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [str(file) for package in MAY_IMPORT for file in python_files(package) if file.stem in nameless] == []
