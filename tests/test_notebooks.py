"""The notebooks of the manual run as they stand, and print what they show."""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def texts(notebook: Any) -> list[str]:
    """What the cells print, and the text of the tables that they end with."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    told = [output for output in outputs if output.get("name") != "stderr"]  # where Matplotlib tells of its font cache
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in told]


@pytest.mark.timeout(240)  # cells of commands start processes
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[] if path.stem == "text" else pytest.mark.nightly) for path in NOTEBOOKS],
)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # where mlfs is
    shown = nbformat.read(path, as_version=4)
    run = nbformat.read(path, as_version=4)
    NotebookClient(run, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = [
        output for cell in run.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    for output in pictures:
        del output["data"]["text/plain"]  # the size of the figure
    assert pictures
    assert texts(run) == texts(shown)
