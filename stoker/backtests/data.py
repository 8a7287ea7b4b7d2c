"""Where the public data sets lie: `STOKER_DATA`, else `shared/data` beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

from schemas import BrokenConfiguration

VARIABLE = "STOKER_DATA"
CONVERSATION = "traces/mooncake_conversation_trace.jsonl.gz"


def data_file(name: str) -> Path:
    """A file of the data folder.

    Args:
        name: relative to the folder, as in its SOURCES.md, e.g. `traces/azure_llm_2023_conv.csv.gz`.

    Raises:
        BrokenConfiguration: the file is absent; the message says which and what to set.
    """
    folder = Path(os.environ.get(VARIABLE) or Path(__file__).parents[3] / "shared" / "data")
    path = folder / name
    if not path.is_file():
        raise BrokenConfiguration(
            f"the data file {name} is missing in {folder}: set {VARIABLE} to the folder that has it"
        )
    return path
