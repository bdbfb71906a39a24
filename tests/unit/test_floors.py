"""The plan of the house as its imports show it: no circles, and features that can be taken out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import pgpaces

ROOT = Path(pgpaces.__file__).parent
FILES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}
# What belongs to a feature alone, at most a module or a folder a floor.
FEATURES = {
    "trend": ("answers.trend", "questions.trend", "cli.trend"),
    "why": ("answers.attribution", "questions.why", "cli.why"),
    "capacity": (
        *("answers.capacity", "experiment.capacity", "questions.capacity", "cli.capacity"),
    ),
    "disk": ("answers.disks", "disk", "questions.disk", "store.disks", "cli.disk"),
    "capture": ("capture",),
    "imported": ("imported",),
    # What machines cost; the prices themselves (`costs.py`) are facts, stored with each trial.
    "costs": ("answers.costs", "questions.costs"),
    # What starts, waits for and watches standbys and poolers. That a load goes to a node of a site
    # is the pipeline itself.
    "standbys": (
        *("answers.replication", "database.streaming", "observe.replication", "servers.topology"),
    ),
    "poolers": ("servers.pooler",),
    "generators": ("experiment.dealt", "generators.cluster"),
    "bulk": ("answers.bulk", "experiment.bulk", "questions.bulk"),
}
REGISTERING_MAX = 3


def imported(tree: ast.AST, *, when_called: bool) -> Iterator[str]:
    """The modules of ours that a module imports; when_called: also those within functions."""
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
        elif when_called or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported(node, when_called=when_called)


@cache
def imports(name: str, *, when_called: bool) -> tuple[str, ...]:
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    return tuple(imported(tree, when_called=when_called))


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: set(imports(name, when_called=False)) - {name} for name in FILES}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as found:
        pytest.fail(" -> ".join(found.args[1]))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_goes_with_its_own_files_and_a_few_lines(feature: str) -> None:
    own = tuple(f"pgpaces.{each}" for each in FEATURES[feature])

    def is_own(name: str) -> bool:
        return any(name == each or name.startswith(f"{each}.") for each in own)

    assert all(any(is_own(name) for name in FILES if name.startswith(each)) for each in own)
    lines = [
        f"{name}: {target}"
        for name in FILES
        if not is_own(name)
        for target in imports(name, when_called=True)
        if is_own(target)
    ]
    assert len(lines) <= REGISTERING_MAX, lines
