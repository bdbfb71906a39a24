"""The specification of a dataset, as a value, and what a connection string in it says.

Knows no server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.redaction import Redacted
from pgpaces.spec.target import without_secrets
from pgpaces.spec.workload import Workload


class DatasetSpec(Redacted, frozen=True):
    """The data of a workload at a scale, for a seed, in a managed database or in `own`.

    from_database: the source database to copy instead, a name on the same server or the DSN of
    another, complete without the environment; reused for the same `occasion`, which is any text.
    fresh: make the data again in any case. variables: for the programs that make the data.
    """

    REDACTED: ClassVar = ("from_database",)
    workload: Workload
    scale: int
    seed: int
    own: str | None = None
    fresh: bool = False
    # Not in the repr: it may hold a password.
    from_database: str | None = None
    occasion: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises PlanError for options that exclude each other."""
        if self.own is not None and self.from_database is not None:
            raise PlanError("cannot-combine", options=["--own", "--from-database"])


def is_dsn(text: str) -> bool:
    """Whether it is a connection string, by libpq's rule; else it is the name of a database."""
    return "=" in text or text.startswith(("postgresql://", "postgres://"))


def keywords_of(dsn: str) -> dict[str, str]:
    """The keywords of a connection string. Raises ServerError."""
    import psycopg  # reports of stored experiments import this module, and need no psycopg

    try:
        keywords = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.Error:
        # psycopg's message would quote the wrong part, which may be the password.
        raise ServerError("from-database-malformed") from None
    return {word: str(value) for word, value in keywords.items()}


def typed(dsn: str) -> dict[str, str]:
    """The secrets of a connection string, as it has them, and its service.

    Other machines do not find these themselves.
    """
    keywords = keywords_of(dsn) if is_dsn(dsn) else {}
    shown = without_secrets(keywords)
    return {n: value for n, value in keywords.items() if n not in shown or n == "service"}


def name_of(text: str) -> str:
    if not is_dsn(text):
        return text
    keywords = keywords_of(text)
    return keywords.get("dbname") or keywords.get("user", "")


def identity(text: str) -> str:
    if not is_dsn(text):
        return text
    keywords = keywords_of(text)
    return " ".join(keywords.get(w, "") for w in ("host", "hostaddr", "port", "dbname"))
