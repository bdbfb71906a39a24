"""CONTRIBUTING and ARCHITECTURE name what exists."""

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


def paths(text: str) -> list[str]:
    short = re.findall(r"`((?:[a-z_]+/)+(?:\w+\.(?:py|toml))?)`", text)
    return sorted({*PATH.findall(text), *short})


def exists(path: str) -> bool:
    """Whether a path exists from the root, from the Python package, or from the engine."""
    bases = (ROOT, ROOT / "python/pgpaces", ROOT / "crates/engine/src")
    pattern = path.replace("NAME", "*").rstrip("/")
    return any(any(base.glob(pattern)) for base in bases)


@pytest.mark.parametrize("path", paths(CONTRIBUTING))
def test_every_path_that_contributing_names_exists(path: str) -> None:
    assert exists(path)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_paths_are_found() -> None:
    assert len(paths(CONTRIBUTING)) > 10


@pytest.mark.parametrize("target", sorted(set(MAKE.findall(CONTRIBUTING + ARCHITECTURE))))
def test_every_target_of_make_that_is_named_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(
    "path", sorted({p for p in paths(ARCHITECTURE) if Path(p).suffix or p.endswith("/")})
)
def test_every_path_that_the_map_names_exists(path: str) -> None:
    assert exists(path)


def test_every_test_that_guards_an_invariant_exists() -> None:
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"\btest_\w+\.py", ARCHITECTURE)) <= there


def test_architecture_fits_on_150_lines_and_names_every_room() -> None:
    assert len(ARCHITECTURE.splitlines()) <= 150
    folders = {path.parent.name for path in (ROOT / "python/pgpaces").glob("*/__init__.py")}
    assert {name for name in folders if f"| `{name}/` |" not in ARCHITECTURE} == {
        "workloads"
    } & folders


def test_the_modules_of_python_that_contributing_names_can_be_imported() -> None:
    for module in re.findall(r"python -m ([\w.]+)", CONTRIBUTING):
        assert importlib.util.find_spec(module), module
