"""How many queries a transaction sends, and so a trial."""

from __future__ import annotations

import pytest

from pgpaces.experiment.cell import queries_of
from pgpaces.generators import engine
from pgpaces.workload import WorkloadScript


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("SELECT 1;", 1),
        ("\\set a 1\nBEGIN;\nSELECT :a; SELECT ';';\nEND;\n", 4),
        ("\\startpipeline\nSELECT 1;\nSELECT 2;\n\\endpipeline\n", 2),
        ("\\if :scale > 1\nSELECT 1;\n\\endif\n", None),
        ("SELECT 1\\; SELECT 2\\; SELECT 3;", None),
        ("\\sleep 1 ms", 0),
    ],
)
def test_queries_are_counted_where_their_number_is_sure(text: str, queries: int | None) -> None:
    script = WorkloadScript("s", 1, text)
    assert queries_of(script, engine.commands("s", text)) == queries


def test_an_author_knows_better() -> None:
    assert queries_of(WorkloadScript("s", 1, "def s(): ...", queries=3), []) == 3
    assert queries_of(WorkloadScript("s", 1, "pg_restore d"), []) is None
