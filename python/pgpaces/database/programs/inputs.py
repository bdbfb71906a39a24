"""The inputs of programs that make data: a hash of the files and variables that they read.

Reads files; runs nothing.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgpaces.core.errors import PlanError, RunError
from pgpaces.database.programs.environment import filled, named
from pgpaces.database.programs.files import is_file, user_path
from pgpaces.spec.workload import InitStep, Workload


def identity(workload: Workload, variables: Mapping[str, str]) -> str:
    """A hash of the inputs of the `init` programs; empty if there are none.

    Of the variables that they name, and the content of files: those that the workload declares,
    files of `input`, and files of its directory that are words of the programs; not scale and seed.
    Fetches none. Raises RunError for a missing file.
    """
    digest = hashlib.sha256()
    steps = [step for step in workload.init if step.run is not None]
    declared = {file.name: file for file in workload.files}
    for step in steps:
        for name in sorted(used_names(step)):
            texts = [text for key, text in variables.items() if key.lower() == name]
            if name in declared:
                path = user_path(declared[name], variables)
                texts = [declared[name].sha256 if path is None else _content(path)]
            digest.update(repr((name, texts)).encode(errors="surrogateescape"))
        for path in _files(workload, step, variables):
            digest.update(f"{path.name}\0{_content(path)}\0".encode(errors="surrogateescape"))
    return digest.hexdigest() if steps else ""


def used_names(step: InitStep) -> set[str]:
    return named(step.run or ()) | named(step.input)


def matching(patterns: Sequence[str], folder: Path) -> set[Path]:
    """The files that match patterns relative to the folder. Raises RunError if none matches one."""
    matches: set[Path] = set()
    for pattern in patterns:
        files = {path.resolve() for path in _named(pattern, folder.resolve())}
        files = {path for path in files if is_file(path)}
        if not files:
            raise RunError("input-matches-nothing", pattern=pattern, folder=folder)
        matches |= files
    return matches


def _named(pattern: str, folder: Path) -> list[Path]:
    """The paths that a pattern names; the names of the folder and its parents are no pattern."""
    whole = folder / pattern  # the pattern itself, if it is absolute
    if is_file(whole):
        return [whole]
    root = Path(whole.anchor) if Path(pattern).is_absolute() else folder
    try:
        return list(root.glob(str(whole.relative_to(root))))
    except (OSError, ValueError, IndexError):  # an invalid pattern; depends on the Python version
        return []


def _files(workload: Workload, step: InitStep, variables: Mapping[str, str]) -> list[Path]:
    variables = {k: v for k, v in variables.items() if k not in {f.name for f in workload.files}}
    paths = matching([filled(pattern, variables) for pattern in step.input], workload.folder)
    for word in () if isinstance(step.run, str) else step.run or ():
        try:
            path = workload.folder / filled(word, variables)
        except PlanError:
            continue  # it names a file that exists only during the run
        if is_file(path):
            paths.add(path.resolve())
    return sorted(paths)


def _content(path: Path) -> str:
    try:
        status = path.stat()
        return _hashed(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise RunError("cannot-read", path=path, why=error.strerror) from None


@functools.lru_cache(maxsize=1000)
def _hashed(path: Path, size: int, changed_ns: int) -> str:
    """The hash of a file's content, read once while size and time of change stay the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
