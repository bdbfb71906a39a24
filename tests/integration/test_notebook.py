"""The example notebook runs from its first cell to its last, and shows what it says it shows."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from tests.folders import ROOT

pytestmark = pytest.mark.postgres

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
# What each cell of code answers with: the verdict's word, or a row of a table.
ANSWERS = {
    "commits = ": r"<sweep: .+>",
    "frame = commits.frame()": r"\d clients, o(n|ff)\s+[\d,]+ tx/s",
    'commits.plot("throughput")': r"<plot throughput: .+>",
    "better = ": r"<comparison: (BETTER|WORSE|SAME|UNKNOWN) .+>",
    "print(better.verdict": r"(BETTER|WORSE|SAME|UNKNOWN) Estimate\(",
    "holds = ": r"<capacity: CAPACITY .+>",
}


def shown(notebook: Any) -> dict[str, str]:
    """What each cell of code with an output shows as text, by its source."""
    cells = (cell for cell in notebook.cells if cell.get("outputs"))
    return {
        cell.source: "".join(
            out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs
        )
        for cell in cells
    }


def answered(notebook: Any) -> None:
    """Each cell shows an answer of its kind, with a card or a picture where it is a value."""
    texts = shown(notebook)
    for begins, form in ANSWERS.items():
        [text] = [text for source, text in texts.items() if source.startswith(begins)]
        assert re.search(form, text), (begins, text)
    kinds = {kind for cell in notebook.cells for out in cell.get("outputs", ()) for kind in out}
    assert "traceback" not in kinds


def test_the_stored_outputs_are_answers_of_today():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    answered(notebook)
    assert NOTEBOOK.stat().st_size < 100_000
    assert not re.search(r"/(home|root|tmp|work)/", NOTEBOOK.read_text(encoding="utf-8"))


# Alone it takes a minute; beside other tests more.
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_notebook_runs(pgpaces_home, tmp_path):
    import nbclient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    answered(notebook)
