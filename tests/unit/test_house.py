"""The invariants of ARCHITECTURE.md that no linter keeps."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "crates" / "engine"
PACKAGE = ROOT / "python" / "pgpaces"


def named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


PURE_FILES = (
    *("pace.rs", "shape.rs", "rehearsal.rs", "record.rs", "interval.rs", "times.rs"),
    *("backlog.rs", "plan.rs"),
)
PURE = [
    *(ENGINE / "src").glob("script/*.rs"),
    *(ENGINE / "src").glob("wire/*.rs"),
    *(ENGINE / "src").glob("client/*.rs"),
    *((ENGINE / "src") / name for name in PURE_FILES),
]


@pytest.mark.parametrize("path", named(PURE))
def test_the_middle_of_the_engine_reads_no_clock_and_touches_no_socket(path: Path) -> None:
    forbidden = (
        r"Instant|SystemTime|std::net|std::os::unix::net|\bmio\b|TcpStream|UnixStream|rustix"
    )
    assert not re.search(forbidden, path.read_text())


def test_the_engine_knows_no_python_no_store_and_no_configuration_format() -> None:
    manifest = (ENGINE / "Cargo.toml").read_text()
    assert not re.search(r"^(pyo3|rusqlite|sqlx|toml|serde_yaml|clap)\b", manifest, re.M)


def test_only_the_rings_of_io_uring_are_unsafe() -> None:
    assert 'unsafe_code = "deny"' in (ROOT / "Cargo.toml").read_text()
    allowing = {
        path.relative_to(ENGINE / "src").as_posix()
        for path in ENGINE.parent.rglob("*.rs")
        if "unsafe_code" in path.read_text()
    }
    assert allowing == {"poll/uring/buffers.rs", "poll/uring/ring.rs"}


def test_every_unsafe_block_says_why_it_is_sound() -> None:
    for path in (ENGINE / "src" / "poll" / "uring").glob("*.rs"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if "unsafe {" in line:
                before = "\n".join(lines[max(0, number - 4) : number])
                assert "// SAFETY:" in before, f"{path.name}:{number + 1}"


def test_only_the_binding_knows_pyo3() -> None:
    users = [p for p in ROOT.glob("crates/*/Cargo.toml") if "pyo3" in p.read_text()]
    assert [p.parent.name for p in users] == ["binding"]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_only_results_distributions_and_generators_import_the_binding() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "_engine" in path.read_text()
        and any(name.startswith("pgpaces._engine") for name in imports(path))
    }
    functions = {f"load/python_users/{name}.py" for name in ("load", "process", "virtual_users")}
    assert users == {
        "core/times.py",
        "analysis/distributions.py",
        "load/engine.py",
        *functions,
    }


def test_one_place_opens_administrative_sessions_and_quotes_names() -> None:
    """Elsewhere text would be bytes in SQL_ASCII: use sessions.connect, sessions.Identifier."""
    # The store speaks UTF-8 or is refused; connections of Python users are their load's.
    others = ("core/sessions.py", "store/", "spec/users.py", "load/", "workloads/")
    for path in PACKAGE.rglob("*.py"):
        if not path.relative_to(PACKAGE).as_posix().startswith(others):
            found = re.search(r"psycopg\.connect\(|sql\.Identifier\(", path.read_text())
            assert not found, path


def test_only_trust_reads_the_workloads_that_are_run() -> None:
    """Others have them from trust.find, which asks whether they may execute programs."""
    reading = re.compile(r"\bworkloads?\.(find|read|performed)\(")
    users = {
        str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if reading.search(p.read_text())
    }
    assert users == {"spec/actions.py", "spec/trust.py", "cli/workload.py"}


def test_only_the_command_line_prints_or_exits() -> None:
    allowed = {"cli", "__main__.py", "server", "workloads"}
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] not in allowed:
            assert not re.search(
                r"\bsys\.exit\(|(?<!console\.)\bprint\(|click\.echo", path.read_text()
            ), path


def test_help_imports_nothing_heavy() -> None:
    heavy = (
        "sqlalchemy",
        "psycopg",
        "msgspec",
        "rich",
        "numpy",
        "scipy",
        "pgpaces._engine",
    )
    code = (
        "import sys, contextlib, io\n"
        "from pgpaces.cli.main import cli\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    cli.main(['--help'], standalone_mode=False)\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
