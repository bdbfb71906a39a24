"""Where the load goes: somebody's server, or one of ours for as long as it is needed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pgpaces import database, psql
from pgpaces.generators import engine as generator
from pgpaces.plan import TargetPlan
from pgpaces.servers import binaries, embedded

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Site:
    """Where the load goes: the way to administer it, and whether the server is ours."""

    access: database.Access
    ours: bool
    server: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def site(target: TargetPlan, say: Say) -> Iterator[Site]:
    """A server that runs: somebody's, or ours for as long as this lasts. Raises ServerError."""
    folders = tuple(i.bin for i in binaries.installations())
    candidates = [folder / "psql" for folder in folders]
    if target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        for warning in connection.warnings:
            say(f"warning: {warning}")
        generator.probe(connection)
        program = psql.find(None, candidates)
        yield Site(database.Access(for_driver(connection), program, folders), ours=False)
        return
    with _without_pg_variables(), _our_server(target, say) as server:
        keywords = for_driver(generator.resolve(server.dsn()))
        program = psql.find(_existing(server.bin / "psql"), candidates)
        about = {"name": server.name, "stays": server.stays}
        yield Site(database.Access(keywords, program, folders), ours=True, server=about)


@contextlib.contextmanager
def _our_server(target: TargetPlan, say: Say) -> Iterator[embedded.Server]:
    """A server of ours: one that runs under the name given, else one that is started."""
    for running in embedded.running():
        if running.stays and running.name == target.server:
            yield running
            return
    installation = binaries.find(target.server)
    spec = embedded.ServerSpec(
        installation,
        data_dir=Path(target.data_dir) if target.data_dir else None,
        settings=_server_settings(target, f"pg{installation.major}"),
    )
    say(f"starting PostgreSQL {installation.version}")
    with embedded.start(spec, on_progress=say) as server:
        yield server


@contextlib.contextmanager
def _without_pg_variables() -> Iterator[None]:
    """Hides PG* from libpq and us: they are meant for somebody's server, not for ours."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("PG")}
    kept = {name: value for name, value in hidden.items() if name.startswith("PGPACES_")}
    os.environ.update(kept)
    try:
        yield
    finally:
        os.environ.update(hidden)


def for_driver(connection: generator.Connection) -> dict[str, str]:
    """The keywords for Python's driver, with the password; what they came from left out."""
    spent = {"service", "servicefile", "fallback_application_name"}
    keywords = {k: v for k, v in connection.keywords.items() if k not in spent}
    return keywords | ({} if connection.password is None else {"password": connection.password})


def _server_settings(target: TargetPlan, name: str) -> dict[str, str]:
    """The settings asked for; those of a staying server of this name where none are."""
    if not target.server_settings:
        for server in embedded.running():
            if server.name == name and server.stays:
                return dict(server.settings)
    return dict(target.server_settings)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None
