"""docs/structure.md tells the executor's steps by their fail-points, in order, and names every package."""

from __future__ import annotations

import re
from pathlib import Path

from executor.failpoints import FAIL_POINTS

PAGE = (Path(__file__).parents[1] / "docs" / "structure.md").read_text()


def test_the_numbered_steps_are_the_fail_points() -> None:
    assert re.findall(r"^\d+\. `([a-z_]+)`:", PAGE, re.MULTILINE) == list(FAIL_POINTS)


def test_every_package_is_explained() -> None:
    for package in ("schemas", "analytics", "connectors", "jobs", "executor", "stoker"):
        assert f"| `{package}` |" in PAGE
