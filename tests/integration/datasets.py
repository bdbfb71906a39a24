"""Data of tests: what is asked for, and the databases that there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers import Postgres

from pgpaces.database import data
from pgpaces.database.access import Access, connect
from pgpaces.database.data import DatasetSpec
from pgpaces.database.ownership import Ownership, set_ownership
from pgpaces.spec import workload


def silent(_: str) -> None:
    pass


def spec(name: str = "select-only", **more: Any) -> DatasetSpec:
    return DatasetSpec(workload.find(name), **{"scale": 1, "seed": 1} | more)


def prepared(access: Access, name: str = "select-only", **more: Any) -> Any:
    """The data of a workload, for as long as this is entered."""
    return data.prepare(access, spec(name, **more), silent)


def names(server: Postgres) -> set[str]:
    return {name for (name,) in server.execute("SELECT datname FROM pg_database")}


def owned(access: Access, name: str, state: str, *, fingerprint: str = "f", **more: Any) -> None:
    """Marks a database as one of ours."""
    with connect(access) as admin:
        set_ownership(admin, name, Ownership("tpcb-like", fingerprint, state, **more))


@contextmanager
def altered(access: Access, *statements: str, undo: tuple[str, ...]) -> Iterator[None]:
    """What these statements do, for as long as this is entered."""
    with connect(access) as admin:
        for statement in statements:
            admin.execute(statement.encode())
    try:
        yield
    finally:
        with connect(access) as admin:
            for statement in undo:
                admin.execute(statement.encode())
