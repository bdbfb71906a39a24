"""No module imports itself by way of others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pgpaces

ROOT = Path(pgpaces.__file__).parent
FILES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of ours that a module imports when it is loaded."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield from (each for each in (full if full in FILES else node.module,)
                            if each in FILES)  # fmt: skip
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in FILES)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported(node)


def test_no_module_imports_itself_by_way_of_others() -> None:
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
    graph = {name: set(imported(tree)) - {name} for name, tree in trees.items()}
    assert len(graph) > 200
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as found:
        pytest.fail(" -> ".join(found.args[1]))
