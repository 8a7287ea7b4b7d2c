"""Every notebook runs from top to bottom, and is committed without outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PATIENCE_S = 600
"""For one cell, on a machine that is busy with other tests."""


def test_there_is_a_tour_and_a_notebook_of_policies() -> None:
    assert {"1-tour.ipynb", "2-policies.ipynb"} <= {file.name for file in NOTEBOOKS}


def test_the_notebook_s_own_policy_is_the_example() -> None:
    notebook = nbformat.read(FOLDER / "2-policies.ipynb", as_version=4)
    (cell,) = (cell.source for cell in notebook.cells if cell.source.startswith("%%writefile own_policy.py\n"))
    assert cell.partition("\n")[2] + "\n" == (FOLDER.parent / "examples" / "own_policy.py").read_text()


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_is_committed_without_outputs_and_paths(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (cell.outputs == [] and cell.execution_count is None)
    assert re.findall(r"[\"' ](?:/(?:home|root|tmp|work|Users)/[^\"' ]*)", json.dumps(notebook)) == []


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.name)
def test_a_notebook_runs_from_top_to_bottom(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("STOKER_TOUR", raising=False)
    notebook = nbformat.read(file, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=PATIENCE_S,
        startup_timeout=PATIENCE_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    shown = [output for cell in code for output in cell.outputs]
    assert all(output.output_type != "error" for output in shown)
    assert any(
        "application/vnd.plotly.v1+json" in output.data for output in shown if output.output_type == "display_data"
    )
