"""The invariants of ARCHITECTURE.md that no linter keeps."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pgpaces.capture import parser
from pgpaces.core.errors import RunError, extra
from pgpaces.show import data
from tests.errors import raises
from tests.unit.stored import keep_experiment, opened

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "crates" / "engine"
PACKAGE = ROOT / "python" / "pgpaces"


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


def test_the_middle_of_the_engine_reads_no_clock_and_touches_no_socket():
    forbidden = (
        r"Instant|SystemTime|std::net|std::os::unix::net|\bmio\b|TcpStream|UnixStream|rustix"
    )
    assert len(PURE) > 25
    assert [path for path in PURE if re.search(forbidden, path.read_text())] == []


def test_only_the_rings_of_io_uring_are_unsafe():
    assert 'unsafe_code = "deny"' in (ROOT / "Cargo.toml").read_text()
    allowing = {
        path.relative_to(ENGINE / "src").as_posix()
        for path in ENGINE.parent.rglob("*.rs")
        if "unsafe_code" in path.read_text()
    }
    assert allowing == {"poll/uring/buffers.rs", "poll/uring/ring.rs"}


def test_every_unsafe_block_says_why_it_is_sound():
    for path in (ENGINE / "src" / "poll" / "uring").glob("*.rs"):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if "unsafe {" in line:
                before = "\n".join(lines[max(0, number - 4) : number])
                assert "// SAFETY:" in before, f"{path.name}:{number + 1}"


def test_only_the_binding_knows_pyo3():
    users = [p for p in ROOT.glob("crates/*/Cargo.toml") if "pyo3" in p.read_text()]
    assert [p.parent.name for p in users] == ["binding"]


def imports(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_only_results_distributions_and_generators_import_the_binding():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if "_engine" in path.read_text()
        and any(name.startswith("pgpaces._engine") for name in imports(path))
    }
    functions = {f"load/python_users/{name}.py" for name in ("load", "process", "virtual_users")}
    assert users == {
        "core/times.py",
        "analysis/stats.py",
        "load/engine.py",
        "spec/workload.py",
        *functions,
    }


def test_one_place_opens_administrative_sessions_and_quotes_names():
    """Elsewhere text would be bytes in SQL_ASCII: use sessions.connect, sessions.Identifier."""
    # The store speaks UTF-8 or is refused; connections of Python users are their load's.
    others = ("core/sessions.py", "store/", "spec/users.py", "load/", "workloads/")
    for path in PACKAGE.rglob("*.py"):
        if not path.relative_to(PACKAGE).as_posix().startswith(others):
            found = re.search(r"psycopg\.connect\(|sql\.Identifier\(", path.read_text())
            assert not found, path


def test_only_trust_reads_the_workloads_that_are_run():
    """Others have them from trust.find, which asks whether they may execute programs."""
    reading = re.compile(r"\bworkloads?\.(find|read|performed)\(")
    users = {
        str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if reading.search(p.read_text())
    }
    assert users == {"spec/trust.py", "cli/workload.py"}


def test_only_the_command_line_prints_or_exits():
    allowed = {"cli", "__main__.py", "server", "workloads"}
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] not in allowed:
            assert not re.search(
                r"\bsys\.exit\(|(?<!console\.)\bprint\(|click\.echo", path.read_text()
            ), path


LIBRARIES = {"psycopg", "rich", "numpy", "scipy", "jinja2"}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("--help", LIBRARIES - {"jinja2"} | {"msgspec", "pgpaces._engine"}),
        ("runs", {"numpy", "psycopg"}),
        ("runs -E", {"numpy", "psycopg"}),
        *((f"complete pgpaces {line}", LIBRARIES) for line in ("show ", "run ", "run --ra")),
    ],
)
def test_what_only_looks_imports_nothing_heavy(words, heavy, tmp_path):
    keep_experiment(opened(tmp_path))
    variables = {**os.environ, "PGPACES_STORE": str(tmp_path / "results.db")}
    if completed := words.partition("complete ")[2]:
        variables |= {"_PGPACES_COMPLETE": "bash_complete", "COMP_WORDS": completed}
        variables |= {"COMP_CWORD": "2"}
    code = (
        "import sys\nfrom pgpaces.cli.main import cli\n"
        f"try:\n    cli.main({[] if completed else words.split()!r}, 'pgpaces')\n"
        "except SystemExit:\n    pass\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert len(done.stdout.splitlines()) > 1


PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("library", "needs_it", "name"),
    [
        ("pgparse", parser.parser, "statements"),
        ("arro3.core", lambda: data.arrow([]), "frames"),
        ("arro3.io", lambda: data.parquet([]), "frames"),
    ],
)
def test_the_extra_of_a_library_that_is_not_installed_is_named(
    library, needs_it, name, monkeypatch
):
    monkeypatch.setitem(sys.modules, library, None)
    with raises(RunError, "extra-missing", module=library, extra=name):
        needs_it()
    assert name in PROJECT["optional-dependencies"]


def test_a_module_of_our_own_that_is_missing_is_no_extra():
    with pytest.raises(ModuleNotFoundError), extra("web", "pages"):
        raise ModuleNotFoundError(name="pgpaces.web.app")
