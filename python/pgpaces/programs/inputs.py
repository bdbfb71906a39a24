"""What programs that make data read: files and variables, as a text that changes when they do.

Reads files; runs nothing.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgpaces.errors import PlanError, RunError
from pgpaces.programs.environment import filled, named
from pgpaces.programs.files import given_path, is_file
from pgpaces.workload import InitStep, Workload


def identity(workload: Workload, variables: Mapping[str, str]) -> str:
    """What the programs of `init` read beside the scale and the seed; empty if there are none.

    The variables that they name, and the content of files: those that the workload declares, those
    of `input`, and those of its folder that are words of theirs. Fetches none. Raises RunError
    where one is not there.
    """
    digest = hashlib.sha256()
    steps = [step for step in workload.init if step.run is not None]
    declared = {file.name: file for file in workload.files}
    for step in steps:
        for name in sorted(asked(step)):
            found = [text for key, text in variables.items() if key.lower() == name]
            if name in declared:
                path = given_path(declared[name], variables)
                found = [declared[name].sha256 if path is None else _content(path)]
            digest.update(repr((name, found)).encode(errors="surrogateescape"))
        for path in _files(workload, step, variables):
            digest.update(f"{path.name}\0{_content(path)}\0".encode(errors="surrogateescape"))
    return digest.hexdigest() if steps else ""


def asked(step: InitStep) -> set[str]:
    """The names of values that a program of `init` asks for, in lower case."""
    return named(step.run or ()) | named(step.input)


def matching(patterns: Sequence[str], folder: Path) -> set[Path]:
    """The files that patterns name, from the folder on. Raises RunError where one has none."""
    found: set[Path] = set()
    for pattern in patterns:
        files = {path.resolve() for path in _named(pattern, folder.resolve())}
        files = {path for path in files if is_file(path)}
        if not files:
            raise RunError(
                f"input '{pattern}' names no file", f"patterns begin in {folder}, or with a /"
            )
        found |= files
    return found


def _named(pattern: str, folder: Path) -> list[Path]:
    """What a pattern names; what folders are called outside of it is no part of it."""
    whole = folder / pattern  # as it is, if it is absolute
    if is_file(whole):
        return [whole]
    root = Path(whole.anchor) if Path(pattern).is_absolute() else folder
    try:
        return list(root.glob(str(whole.relative_to(root))))
    except (OSError, ValueError, IndexError):  # no pattern, which each version says in its way
        return []


def _files(workload: Workload, step: InitStep, variables: Mapping[str, str]) -> list[Path]:
    variables = {k: v for k, v in variables.items() if k not in {f.name for f in workload.files}}
    found = matching([filled(pattern, variables) for pattern in step.input], workload.folder)
    for word in () if isinstance(step.run, str) else step.run or ():
        try:
            path = workload.folder / filled(word, variables)
        except PlanError:
            continue  # it names what is there only while it runs
        if is_file(path):
            found.add(path.resolve())
    return sorted(found)


def _content(path: Path) -> str:
    try:
        status = path.stat()
        return _hashed(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None


@functools.lru_cache(maxsize=1000)
def _hashed(path: Path, size: int, changed_ns: int) -> str:
    """Of a file's content: read once as long as it stays as it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
