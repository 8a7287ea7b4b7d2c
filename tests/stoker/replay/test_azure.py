"""Azure traces: real arrivals and lengths, prompts of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import BrokenConfiguration
from stoker.replay.azure import Arrival, AzureConfig, azure, read_arrivals
from stoker.replay.queries import load_queries

ARRIVALS = [Arrival(k * 200, 40 + 97 * (k % 40), 20 + k % 7) for k in range(400)]


def test_prompts_have_the_trace_s_lengths() -> None:
    for arrival, turn in zip(ARRIVALS, azure(ARRIVALS, AzureConfig()), strict=True):
        words = sum(len(piece.text.split()) for piece in turn.pieces)
        assert words == max(arrival.context_tokens, len(turn.query.split()))
        assert turn.output_tokens == arrival.generated_tokens
        assert turn.pieces[-1].text == turn.query


def test_requests_of_a_tenant_share_the_longest_system_prompt_that_fits() -> None:
    turns = [turn for turn in azure(ARRIVALS, AzureConfig()) if turn.prompt == "system-1200"]
    assert len(turns) > 20
    systems = {(turn.tenant, turn.pieces[0].text) for turn in turns}
    assert len(systems) == len({turn.tenant for turn in turns})


def test_the_same_seed_gives_the_same_turns() -> None:
    assert list(azure(ARRIVALS, AzureConfig(seed=1))) == list(azure(ARRIVALS, AzureConfig(seed=1)))
    assert list(azure(ARRIVALS, AzureConfig(seed=1))) != list(azure(ARRIVALS, AzureConfig(seed=2)))


def test_a_row_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\nyesterday,1,2\n")
    with pytest.raises(BrokenConfiguration, match="line 3"):
        read_arrivals(path)


def test_the_real_trace_and_the_real_queries_are_read(data_dir: Path) -> None:
    arrivals = read_arrivals(data_dir / "traces" / "azure_llm_2023_conv.csv.gz")
    assert (len(arrivals), arrivals[0]) == (19_366, Arrival(0, 374, 44))
    queries = load_queries(data_dir / "text" / "banking77_train.csv")
    assert len(queries) == 10_003
    assert queries[0] == "I am still waiting on my card?"


@pytest.mark.parametrize("content", ["", "text\n\n"])
def test_a_file_without_queries_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "queries.csv"
    path.write_text(content)
    with pytest.raises(BrokenConfiguration, match="no text"):
        load_queries(path)
