"""Figures about our own code by room: lines, prose in code, tests of our own texts, files read.

python bench/house.py           the table
python bench/house.py --check   the limits of functions and files (`make lint`)
python bench/house.py --run     also the modules that `pgpaces run reporting` loads, by running it
"""

from __future__ import annotations

import ast
import functools
import io
import re
import shlex
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
PACKAGE = TOP / "python" / "pgpaces"
FUNCTION_LINES_MAX, FILE_LINES_MAX = 100, 800
PROSE_MIN = 25
# The start of SQL, of a regular expression or of a path.
_NOT_PROSE = re.compile(
    r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|COPY|SET|SHOW|BEGIN|VALUES|FROM|JOIN"
    r"|WHERE|ORDER|GROUP|UNION|LEFT|CASE|COMMENT|REVOKE|GRANT|VACUUM|ANALYZE|EXPLAIN|LOCK|CHECKPOINT"
    r"|AND|PRAGMA|RESET|TABLE)\b|.*(\(\?|\\[dsbw]|://)"
)
_TESTS_OF_TEXT = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "count"}
_PATTERNS = {"search", "match", "fullmatch", "sub", "compile", "findall", "split"}
# What a child process prints at its end: the files of our own that it has loaded.
_LOADED = """
import atexit, sys
def told():
    names = [n for n in sys.modules if n == "pgpaces" or n.startswith("pgpaces.")]
    print(len(names), file=sys.__stderr__)
atexit.register(told)
from pgpaces.__main__ import main
main()
"""


class Counts(NamedTuple):
    """The figures of one file, or the sums of a room."""

    lines: int = 0
    code: int = 0
    data: int = 0
    prose_functions: int = 0
    prose_literals: int = 0
    text_tests: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


def tracked(pattern: str) -> list[Path]:
    """The files that git tracks below the top, and those that it would track."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    done = subprocess.run(words, cwd=TOP, check=True, capture_output=True, text=True)
    return [path for each in done.stdout.split() if (path := TOP / each).exists()]


def lines_of_code(text: str) -> int:
    """Lines with a token other than a comment or a docstring."""
    lines: set[int] = set()
    before = tokenize.NEWLINE
    skipped = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENCODING, tokenize.ENDMARKER,
    }  # fmt: skip
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        alone = token.type == tokenize.STRING and before in (
            tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        )  # fmt: skip
        if token.type not in skipped and not alone:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type
    return len(lines)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a tree, itself included; no expression has any."""
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        yield tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from functions(node)


def _docstrings(tree: ast.AST) -> set[int]:
    return {
        id(each.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for each in node.body[:1]
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    }


def prose(node: ast.AST, skipped: set[int]) -> Iterator[ast.AST]:
    """String literals, formatted ones too, that read like a sentence or a part of one."""
    parts: set[int] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.JoinedStr):
            constants = [part for part in each.values if isinstance(part, ast.Constant)]
            parts.update(id(part) for part in constants)
            text = "".join(str(part.value) for part in constants)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            if id(each) in parts or id(each) in skipped:
                continue
            text = each.value
        else:
            continue
        if len(text) >= PROSE_MIN and " " in text.strip() and not _NOT_PROSE.match(text):
            yield each


def text_tests(tree: ast.AST) -> int:
    """Comparisons with a literal of two words or more, and searches for one."""

    def words(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and bool(re.search(r"[a-z]{2,}:? [a-z(]{2,}", node.value))
            and not _NOT_PROSE.match(node.value)
        )

    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            count += any(words(each) for each in (node.left, *node.comparators))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            count += node.func.attr in _TESTS_OF_TEXT | _PATTERNS and words(node.args[0])
    return count


def counts(path: Path) -> Counts:
    """The figures of a file; all lines of another language count as data."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if path.suffix != ".py":
        return Counts(data=lines)
    tree = ast.parse(text)
    docstrings = _docstrings(tree)
    nested = {id(n) for f in functions(tree) for n in functions(f) if n is not f}
    building = sum(
        any(True for _ in prose(each, docstrings))
        for each in functions(tree)
        if id(each) not in nested
    )
    literals = sum(1 for _ in prose(tree, docstrings))
    return Counts(lines, lines_of_code(text), 0, building, literals, text_tests(tree))


def over(path: Path) -> Iterator[str]:
    """What of a file is longer than it may be."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(TOP)
    if len(text.splitlines()) > FILE_LINES_MAX:
        yield f"{name}: {len(text.splitlines())} lines, at most {FILE_LINES_MAX}"
    for each in functions(ast.parse(text)):
        length = (each.end_lineno or each.lineno) - each.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{name}:{each.lineno}: {each.name}: {length} lines, at most {FUNCTION_LINES_MAX}"


def imported(node: ast.AST, known: set[str]) -> Iterator[str]:
    """The modules of ours that a module imports when it is loaded."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ImportFrom) and each.module:
            full = {f"{each.module}.{name.name}" for name in each.names}
            yield from {name if name in known else each.module for name in full} & known
        elif isinstance(each, ast.Import):
            yield from {name.name for name in each.names} & known
        elif isinstance(each, ast.If) and "TYPE_CHECKING" in ast.dump(each.test):
            continue
        elif not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported(each, known)


def cycles() -> Iterator[str]:
    """A module that imports itself by way of others, if there is one."""
    paths = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in tracked("python/pgpaces/*.py")
    }
    trees = {
        name.removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
    }
    graph = {name: set(imported(tree, {*trees})) - {name} for name, tree in trees.items()}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as found:
        yield f"imports in a circle: {' -> '.join(found.args[1])}"


def loaded() -> int:
    """How many of our modules a run of reporting has loaded when it ends."""
    line = "run reporting -s 1 --users 1 --pace 5/s -L 500ms -T 1s --warmup 0s -P 0"
    with tempfile.TemporaryDirectory() as folder:
        words = [*shlex.split(line), "--store", f"{folder}/results.db"]
        done = subprocess.run(
            [sys.executable, "-c", _LOADED, *words], check=True, capture_output=True, text=True
        )
    return int(done.stderr.split()[-1])


def main(words: list[str]) -> int:
    """Prints the table, or what is over a limit."""
    if words == ["--check"]:
        found = [*(text for path in tracked("*.py") for text in over(path)), *cycles()]
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    rooms: dict[str, Counts] = {}
    for path in tracked("python/pgpaces"):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0] if len(parts) > 1 else "(top)"
        known = path.suffix in (".py", ".toml", ".html", ".css", ".js", ".json")
        if known and not path.name.startswith("uPlot"):
            rooms[room] = rooms.get(room, Counts()).plus(counts(path))
    ordered = sorted(rooms.items(), key=lambda item: -item[1].lines)
    total = functools.reduce(Counts.plus, rooms.values())
    print("room            lines    code    data  prose in functions  literals  tests of texts")
    for room, each in [*ordered, ("all", total)]:
        print(f"{room:12} {each.lines:8,} {each.code:7,} {each.data:7,} {each.prose_functions:19,}"
              f" {each.prose_literals:9,} {each.text_tests:15,}")  # fmt: skip
    lines = [len(path.read_text(encoding="utf-8").splitlines()) for path in tracked("tests/*.py")]
    print(f"{'tests':12} {sum(lines):8,}")
    if words == ["--run"]:
        print(f"modules loaded by `run reporting`: {loaded()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
