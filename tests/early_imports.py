"""Imports the test modules in another order in each worker of pytest-xdist.

The first import of a test module rewrites its assertions, which takes 15 s of a CPU for all of
them and is kept on the disk. If all workers went in one order, each would do all of that work at
the same time. Now each worker rewrites its share first and then finds those of the others.
"""

import contextlib
import importlib
import os
import sys
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in _modules(session.config)[number::count]:
        folder, name = _place(path)
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        # Whatever fails here fails again in the collection, which reports it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _modules(config: pytest.Config) -> list[Path]:
    given = [config.invocation_params.dir / word.partition("::")[0] for word in config.args]
    folders = [path for each in given for path in each.rglob("test_*.py")]
    return sorted([*folders, *(each for each in given if each.is_file())])


def _place(path: Path) -> tuple[Path, str]:
    """The folder in which Python finds the module, and its name, as pytest imports it."""
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").exists():
        folder, name = folder.parent, f"{folder.name}.{name}"
    return folder, name
