"""The environment of a workload's program: words, variables, folders and connection.

The same for a program that makes data as for one that is timed. Runs nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import ClassVar

from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.home import home, make_folder
from pgpaces.core.redaction import Redacted
from pgpaces.core.texts import Say
from pgpaces.database import psql
from pgpaces.database.programs.files import located
from pgpaces.database.programs.runner import CommandOrder
from pgpaces.spec.workload import Workload

_SHELL = "/bin/sh"
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_VARIABLE = re.compile(r"PGPACES_([A-Z_][A-Z0-9_]*)")
# Keywords that every libpq understands; the others are in variables, which old versions ignore.
_DSN = ("host", "hostaddr", "port", "user", "dbname")


class ProgramEnvironment(Redacted, frozen=True):
    """The environment of programs, valid within `program_environment`.

    values: by the names that words have in braces. variables: of the environment, without those
    that repeat the values. scratch: an empty folder. files: open descriptors that they inherit.
    """

    REDACTED: ClassVar = ("variables", "secret")
    folder: Path
    scratch: Path
    values: Mapping[str, str]
    variables: Mapping[str, str]
    files: tuple[int, ...] = ()
    secret: str | None = None

    def order(
        self, name: str, run: tuple[str, ...] | str, hidden: Set[str] = frozenset()
    ) -> CommandOrder:
        """The order to run a program, called `name`.

        hidden: values without an environment variable. Raises PlanError for an unknown placeholder,
        RunError for a missing program.
        """
        shown = {f"PGPACES_{k.upper()}": v for k, v in self.values.items() if k not in hidden}
        variables = {**self.variables, **shown}
        words = (
            (_SHELL, "-c", run)
            if isinstance(run, str)
            else tuple(filled(word, self.values) for word in run)
        )
        at = str(self.folder / words[0]) if "/" in words[0] else words[0]
        if shutil.which(at, path=variables["PATH"]) is None:
            raise RunError("program-not-found", program=words[0])
        if "cache" in named(run):
            _make_cache(Path(self.values["cache"]))
        return CommandOrder(name, words, variables, self.folder, self.files, secret=self.secret)


def _make_cache(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise RunError("home-unusable", path=folder, why=error.strerror) from None


@contextlib.contextmanager
def program_environment(
    way: psql.ClientProgram, workload: Workload, values: Mapping[str, str], *, say: Say
) -> Iterator[ProgramEnvironment]:
    """The environment of a workload's programs for a database. values: scale and so on.

    Fetches the files that they read. Raises RunError for a missing program, PrepareError for a
    missing file.
    """
    from psycopg.conninfo import make_conninfo

    keywords = {**way.keywords, "dbname": way.dbname}
    dsn = make_conninfo(**{name: keywords[name] for name in _DSN if keywords.get(name)})
    cache = home() / "cache" / "workloads" / workload.folder.resolve().name
    with contextlib.ExitStack() as stack:
        environment = stack.enter_context(psql.environment(way))
        path = environment.variables.get("PATH", os.defpath)
        path = f"{way.program.parent}{os.pathsep}{path}"
        for name, package in workload.needs.programs.items():
            if shutil.which(name, path=path) is None:
                raise RunError(
                    "workload-program-missing",
                    program=name,
                    workload=workload.name,
                    package=package,
                )
        files = located(workload, values, say)
        # After the slow steps: the watchdog, which always removes it, starts soon after.
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgpaces-")))
        yield ProgramEnvironment(
            workload.folder.resolve(),
            scratch,
            {
                **values,
                **files,
                "dsn": dsn,
                "dbname": way.dbname,
                "scratch": str(scratch),
                "cache": str(cache),
                "python": sys.executable,
            },
            {
                **environment.variables,
                "PGAPPNAME": keywords.get("application_name") or "pgpaces",
                "PATH": path,
            },
            environment.files,
            keywords.get("password"),
        )


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
