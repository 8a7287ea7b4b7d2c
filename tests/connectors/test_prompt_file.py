"""A file of managed prompts, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.prompt_file import PromptMessage, read_prompts
from schemas import BrokenConfiguration


def test_a_text_is_a_system_message_and_messages_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": "faq@3", "content": "Be brief.", "tags": ["help"], "replaces": "2"}\n'
        "\n"
        '{"id": "a@b@1", "content": [{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]}\n'
    )
    first, second = read_prompts(file)
    assert (first.name, first.version, first.tags, first.replaces) == ("faq", "3", ("help",), "2")
    assert first.messages == (PromptMessage("system", "Be brief."),)
    assert (second.name, second.version) == ("a@b", "1")
    assert [message.role for message in second.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"id": "faq", "content": "x"}', "line 1"),
        ('{"id": "faq@1"}', "content"),
        ('{"id": "faq@1", "content": ""}', "line 1"),
        ('{"id": "faq@1", "content": []}', "line 1"),
        ('{"id": "faq@1", "content": "x", "tag": ["y"]}', "tag"),
        ('{"id": "faq@1", "content": "x"}\n{"id": "faq@1", "content": "y"}', "line 2: faq@1 stands in line 1"),
        ('\n{"id"', "line 2"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    with pytest.raises(BrokenConfiguration, match=told):
        list(read_prompts(file))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="nowhere"):
        list(read_prompts(tmp_path / "nowhere.jsonl"))
