"""Errors of pgpaces. Imports no other module of pgpaces.

PgpacesError                        exit code
├── PlanError                       2   an option, duration, rate or combination that cannot be
├── WorkloadError                   3   no such workload, or its folder is not as it should be
│   └── TrustError                  6   it executes programs, and its folder was not confirmed
├── ScriptError                     4   a script does not parse: file, line, caret
├── ServerError                     10  the target cannot be used
│   ├── AuthError                   11  it rejects the login
│   ├── DatabaseAbsentError         12  the database does not exist
│   ├── ConnectionsError            13  too few free connections
│   ├── TlsError                    14  TLS cannot be set up or verified
│   ├── ConsentError                15  a change of an external database is not allowed
│   └── PrepareError                16  making the data failed
├── StoreError                      20  results cannot be stored or read
│   └── StoreVersionError           21  another version of pgpaces wrote the store
└── RunError                        5   the load could not start, continue or succeed once
    ├── HopelessError               5   its scripts cannot work
    └── LogError                    5   the log of its transactions could not be written

A failed transaction is data and never one of these.
"""

import contextlib
from collections.abc import Iterable, Iterator


class PgpacesError(Exception):
    """The defect and the expectation, in one sentence; `hint` says what to do.

    `exit_code` is that of the command line (docs/reference/exit-codes.md).
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class PlanError(PgpacesError):
    """An option, duration, rate or combination that cannot be."""

    exit_code = 2


class WorkloadError(PgpacesError):
    """No such workload, or its folder is not as it should be."""

    exit_code = 3


class TrustError(WorkloadError):
    """A workload would execute programs, and its folder was not confirmed."""

    exit_code = 6


class ScriptError(PgpacesError):
    """A script does not parse, or cannot run as written."""

    exit_code = 4


class RunError(PgpacesError):
    """The load could not start or go on, none of it succeeded, or its answer was not written."""

    exit_code = 5


class HopelessError(RunError):
    """A script cannot work: its statements are refused, or its first transactions all failed."""

    def __init__(self, message: str, hint: str | None = None, sqlstate: str = "") -> None:
        own = "run the script by itself with psql; --keep-going runs the load all the same"
        if sqlstate in ("42P01", "3F000", "42883"):
            own = (
                "name the database that has it with --target or --from-database, or set search_path"
                " (--set search_path=...); --keep-going runs the load all the same"
            )
        elif sqlstate in ("42501", "28000"):
            own = "grant the role this right, or use another role in --target"
        super().__init__(message, hint or own)


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

    def __init__(self, message: str, hint: str | None = None) -> None:
        # Of these limits the server's words tell; max_connections does not raise them.
        for kind in ("role", "database"):
            if f"too many connections for {kind} " in message:
                hint = f"use fewer --clients, or raise its limit: ALTER {kind.upper()}"
                hint += " ... CONNECTION LIMIT"
        super().__init__(message, hint)


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


def nearest(name: str, candidates: Iterable[str], most: int = 1) -> str:
    """`did you mean X?` with the most similar candidates; empty if none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(candidates), n=most)
    return f"did you mean {' or '.join(near)}?" if near else ""


@contextlib.contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Raises RunError where the libraries of an extra, which something needs, are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgpaces"):
            raise
        raise RunError(
            f"{what} need {error.name}, which is not installed",
            f"install the extra: pip install 'pgpaces[{name}]'",
        ) from None
