"""CONTRIBUTING, ARCHITECTURE and the page of faults name what exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATH = re.compile(
    r"(?<![\w./-])(?:python/pgpaces|crates|tests|docs|\.ci)/[\w./-]*\w/?|\b[A-Z]+\.md"
)


def paths(text):
    short = re.findall(r"`((?:[a-z_]+/)+(?:\w+\.(?:py|toml))?)`", text)
    return sorted({*PATH.findall(text), *short})


def exists(path):
    """Whether a path exists from the root, from the Python package, or from the engine."""
    bases = (ROOT, ROOT / "python/pgpaces", ROOT / "crates/engine/src")
    pattern = path.replace("NAME", "*").rstrip("/")
    return any(any(base.glob(pattern)) for base in bases)


@pytest.mark.parametrize(
    ("page", "text"), [("CONTRIBUTING.md", CONTRIBUTING), ("map", ARCHITECTURE)]
)
def test_every_path_and_link_leads_somewhere(page, text):
    named = [p for p in paths(text) if page != "map" or Path(p).suffix or p.endswith("/")]
    assert len(named) > 10
    assert [path for path in named if not exists(path)] == []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_the_files_of_a_room_are_in_it():
    """A row of the map has a room and its files, or files of other rooms with their paths."""
    rows = re.findall(r"^\| (`[^|]+) \|[^|]*\| (.*) \|$", ARCHITECTURE, re.MULTILINE)
    assert len(rows) > 20
    for rooms, files in rows:
        folders = [
            base / room
            for base in (ROOT, ROOT / "python/pgpaces")
            for room in re.findall(r"`([^`]+/)`", rooms)
        ]
        named = re.findall(r"`(\w+\.(?:py|rs|toml|txt|html|css|js))`", files) if folders else []
        for name in named:
            assert any(any(folder.rglob(name)) for folder in folders), f"{name} in {rooms}"


FAULTS = (ROOT / "docs" / "internals" / "faults.md").read_text(encoding="utf-8")
# Each fault with its promise and its tests.
ROWS = re.findall(r"^- \*\*(.*?)\*\*: (.*)\. (`.*`)$", FAULTS, re.MULTILINE)


def defined():
    """The names of all tests, in Python and in the engine."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    for path in (ROOT / "crates" / "engine" / "tests").glob("*.rs"):
        found |= set(re.findall(r"#\[test\]\s+fn (\w+)\(", path.read_text()))
    return found


def test_no_row_is_empty():
    assert len(ROWS) > 40
    assert len(ROWS) == FAULTS.partition("\n## ")[2].count("\n- ")
    assert all(all(row) for row in ROWS)


def test_the_tests_that_rows_name_exist():
    assert all("`" in row[2] for row in ROWS)
    assert {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])} <= defined()


def test_every_test_of_faults_is_on_the_page():
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE):
            assert f"`{name}`" in FAULTS, name
