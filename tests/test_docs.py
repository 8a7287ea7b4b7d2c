"""A test fails when a config key, metric, topic or command is undocumented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from schemas import TOPICS, DeadReason, OutcomeReason
from stoker import reference
from stoker.cli import build

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", ["configuration", "metrics"])
def test_a_written_page_is_the_code_s(page: str) -> None:
    assert (DOCS / f"{page}.md").read_text() == getattr(reference, page)(), "run `python -m stoker.reference`"


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_every_topic_is_documented(topic) -> None:
    assert f"`{topic.name}`" in (DOCS / "contracts.md").read_text()


@pytest.mark.parametrize("reason", DeadReason)
def test_every_reason_of_a_dead_letter_is_documented(reason: DeadReason) -> None:
    assert f"| `{reason}` |" in (DOCS / "contracts.md").read_text()


@pytest.mark.parametrize("reason", OutcomeReason)
def test_every_reason_of_an_outcome_is_documented(reason: OutcomeReason) -> None:
    assert f"| `{reason}` |" in (DOCS / "executor.md").read_text()


def command_names() -> list[str]:
    root = typer.main.get_command(build())
    names = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        names += [f"{name} {sub}" for sub in inner] if inner else [name]
    return names


@pytest.mark.parametrize("name", command_names())
def test_every_command_is_documented(name: str) -> None:
    assert f"stoker {name}" in (DOCS / "commands.md").read_text()


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []
