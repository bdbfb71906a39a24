"""Errors of pgpaces. Imports no other module of pgpaces.

Each class has an exit code (docs/reference/exit-codes.md). A failed transaction is data and never
one of these.
"""

from __future__ import annotations

import contextlib
import functools
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

CATALOG = Path(__file__).with_name("errors.toml")


class PgpacesError(Exception):
    """A name of the catalog, errors.toml, and values, from which `message` and `hint` are filled.

    about: the file, option, or generator that the error is about; empty if the sentence names it.
    `exit_code` is the exit code of the command line (docs/reference/exit-codes.md).
    """

    exit_code = 1

    def __init__(self, name: str, /, **values: Any) -> None:
        super().__init__(name)
        self.name = name
        self.values = values
        self.about = ""

    def at(self, about: str) -> Self:
        """The same error, with what it is about in front of the sentence."""
        self.about = f"{about}: {self.about}" if self.about else about
        return self

    @property
    def message(self) -> str:
        """What happened, in one sentence; of an unknown name, the name and the values."""
        from pgpaces.core.findings import filled, labels

        if self.name in catalog():
            sentence = filled(catalog()[self.name]["sentence"][0], self.values)
        else:
            sentence = f"{self.name} {labels(self.values)}".rstrip()
        return f"{self.about}: {sentence}" if self.about else sentence

    @property
    def hint(self) -> str | None:
        """What to do: the first hint whose values are all known; None if there is none."""
        from pgpaces.core.findings import filled, placeholders

        for hint in catalog().get(self.name, {}).get("hint", ()):
            if all(self.values.get(name) not in (None, "") for name in placeholders(hint)):
                return filled(hint, self.values)
        return None

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Any:
        return functools.partial(type(self), self.name, **self.values), (), self.__dict__


@functools.cache
def catalog() -> Mapping[str, Mapping[str, list[str]]]:
    """The sentence and the hints of each error, by its name."""
    entries = tomllib.loads(CATALOG.read_text("utf-8"))
    return {
        name: {key: [text] if isinstance(text, str) else text for key, text in entry.items()}
        for name, entry in entries.items()
    }


class PlanError(PgpacesError):
    """An option, duration, rate or combination that cannot be."""

    exit_code = 2


class WorkloadError(PgpacesError):
    """No such workload, or its directory is not as it should be."""

    exit_code = 3


class TrustError(WorkloadError):
    """A workload would execute programs, and its directory was not confirmed."""

    exit_code = 6


class ScriptError(PgpacesError):
    """A script does not parse, or cannot run as written."""

    exit_code = 4


class RunError(PgpacesError):
    """The load could not start or continue, no transaction succeeded, or the result could not be
    written.
    """

    exit_code = 5


class HopelessError(RunError):
    """A script cannot work: the server rejects a statement, or all first transactions failed."""


class LogError(RunError):
    """The log of transactions could not be written to its end."""


class ServerError(PgpacesError):
    """No server answers at the target, or it cannot be started."""

    exit_code = 10


class AuthError(ServerError):
    """The server does not let us in: password, role, pg_hba.conf."""

    exit_code = 11


class DatabaseAbsentError(ServerError):
    """The database named in the target does not exist."""

    exit_code = 12


class ConnectionsError(ServerError):
    """The server has fewer free connections than the load needs."""

    exit_code = 13


class TlsError(ServerError):
    """TLS cannot be set up, or the server's certificate cannot be verified."""

    exit_code = 14


class ConsentError(ServerError):
    """A database that is not ours would have to be changed."""

    exit_code = 15


class PrepareError(ServerError):
    """Making the workload's data failed."""

    exit_code = 16


class StoreError(PgpacesError):
    """Results cannot be kept or read: full disk, no permission, not a store."""

    exit_code = 20


class StoreVersionError(StoreError):
    """Another version of pgpaces wrote the store, and this one cannot read it."""

    exit_code = 21


def from_engine(kind: str, name: str, values: Mapping[str, Any]) -> PgpacesError:
    """The error of a class of this module for an error of the engine."""
    if kind == "HopelessError":
        name = hopeless_name(values["sqlstate"])
    error: type[PgpacesError] = globals()[kind]
    return error(name, **values)


def hopeless_name(sqlstate: str) -> str:
    """The name of a HopelessError with this SQLSTATE."""
    if sqlstate in ("42P01", "3F000", "42883"):
        return "script-needs-other-database"
    if sqlstate in ("42501", "28000"):
        return "script-lacks-right"
    return "script-fails"


def similar(name: str, candidates: Iterable[str], most: int = 1) -> str:
    """The most similar candidates, joined by " or "; empty if none is similar."""
    from difflib import get_close_matches

    return " or ".join(get_close_matches(name, list(candidates), n=most))


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Raises RunError where the libraries of an extra, which something needs, are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgpaces"):
            raise
        raise RunError("extra-missing", what=what, module=error.name, extra=name) from None
