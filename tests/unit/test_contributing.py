"""CONTRIBUTING and ARCHITECTURE name what exists, and the map names every module."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATH = re.compile(
    r"(?<![\w./-])(?:python/pgpaces|crates|tests|docs|\.ci)/[\w./-]*\w/?|\b[A-Z]+\.md"
)
MAKE = re.compile(r"(?:`|^)make ([a-z-]+)", re.MULTILINE)
# `PARTS` of `python/pgpaces/monitor/counters.py`: a name, and the module that has it.
NAME_OF = re.compile(r"`(\w+)`\s(?:of|in)\s`([\w/]+\.py)`")
NAMES_IN = re.compile(r"`([\w/]+\.py)`\s\(((?:`\w+`(?:, | or )?)+)\)")


def paths(text: str) -> list[str]:
    return sorted(set(PATH.findall(text)))


@pytest.mark.parametrize("path", paths(CONTRIBUTING))
def test_every_path_that_contributing_names_exists(path: str) -> None:
    assert list(ROOT.glob(path.replace("NAME", "*").rstrip("/"))), path


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / link).exists(), link


def test_paths_are_found() -> None:
    assert len(paths(CONTRIBUTING)) > 40


def test_the_migration_that_contributing_names_exists() -> None:
    [name] = re.findall(r"`(\d{4}_\w+\.py)`", CONTRIBUTING)
    assert (ROOT / "python/pgpaces/store/migrations/versions" / name).exists()


@pytest.mark.parametrize("target", sorted(set(MAKE.findall(CONTRIBUTING + ARCHITECTURE))))
def test_every_target_of_make_that_is_named_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_name_that_contributing_gives_of_a_module_is_in_it() -> None:
    given = [(path, name) for name, path in NAME_OF.findall(CONTRIBUTING)]
    for path, names in NAMES_IN.findall(CONTRIBUTING):
        given += [(path, name) for name in re.findall(r"`(\w+)`", names)]
    assert len(given) > 3
    for path, name in given:
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")), (path, name)


@pytest.mark.parametrize(
    "path", sorted({p for p in paths(ARCHITECTURE) if Path(p).suffix or p.endswith("/")})
)
def test_every_path_that_the_map_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_test_that_guards_an_invariant_exists() -> None:
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"\btest_\w+\.py", ARCHITECTURE)) <= there


def rooms() -> dict[str, set[str]]:
    """The words of the map, by the folder under which they stand; "" for those of no folder."""
    found: dict[str, set[str]] = {}
    under: list[tuple[int, str]] = []
    for line in (
        ARCHITECTURE.partition("python/pgpaces/ ")[2].partition("\ntests/ ")[0].splitlines()
    ):
        indent = len(line) - len(line.lstrip())
        while under and under[-1][0] >= indent:
            under.pop()
        folders = re.findall(r"(\w+)/(?= |$)", line)
        for folder in folders or [under[-1][1] if under else ""]:
            found.setdefault(folder, set()).update(re.findall(r"\w+", line))
        under += [(indent, folder) for folder in folders[:1]]
    return found


def test_the_map_names_every_module_where_it_is() -> None:
    named, engine = rooms(), set(re.findall(r"\w+", ARCHITECTURE))
    folders = {ROOT / "python/pgpaces/store/migrations", ROOT / "python/pgpaces/workloads"}
    modules = [
        path
        for path in (ROOT / "python/pgpaces").rglob("*.py")
        if path.stem != "__main__" and not folders & set(path.parents)
    ]
    modules += (ROOT / "crates/engine/src").glob("*.rs")
    for path in modules:
        if path.suffix == ".rs":
            assert path.stem in engine | {"lib"}, path
        elif path.stem != "__init__":
            folder = "" if path.parent.name == "pgpaces" else path.parent.name
            assert path.stem in named[folder], path


def test_the_map_fits_on_300_lines() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 300


def test_the_modules_of_python_that_contributing_names_can_be_imported() -> None:
    for module in re.findall(r"python -m ([\w.]+)", CONTRIBUTING):
        assert importlib.util.find_spec(module), module
