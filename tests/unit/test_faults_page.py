"""docs/internals/faults.md: every fault has a promise and a test, and the test exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "internals" / "faults.md").read_text(encoding="utf-8")
# Each fault with its promise and its tests.
ROWS = re.findall(r"^- \*\*(.*?)\*\*: (.*)\. (`.*`)$", PAGE, re.MULTILINE)


def defined() -> set[str]:
    """The names of all tests, in Python and in the engine."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    for path in (ROOT / "crates" / "engine" / "tests").glob("*.rs"):
        found |= set(re.findall(r"#\[test\]\s+fn (\w+)\(", path.read_text()))
    return found


def test_no_row_is_empty() -> None:
    assert len(ROWS) > 40
    assert len(ROWS) == PAGE.partition("\n## ")[2].count("\n- ")
    assert all(all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_test_that_a_row_names_exists(row: tuple[str, str, str]) -> None:
    names = re.findall(r"`(\w+)`", row[2])
    assert names
    assert set(names) <= defined()


def test_every_test_of_faults_is_on_the_page() -> None:
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE):
            assert f"`{name}`" in PAGE, name
