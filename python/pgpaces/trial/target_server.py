"""Where the load goes: an external server, or a managed server while it is needed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.errors import PgpacesError, ServerError
from pgpaces.core.messages import message
from pgpaces.core.texts import Say, Warned
from pgpaces.database import psql, streaming
from pgpaces.database.access import Access, connect, is_dsn, keywords_of
from pgpaces.load import engine as generator
from pgpaces.server import binaries, managed_server, managed_standbys, packages, profiles
from pgpaces.server.folder import Transport, quoted
from pgpaces.spec.target import TargetPlan, without_secrets

_BACK_S = 120.0

# Keywords of the address of a database, and those that `resolve` has already applied.
_PLACE = frozenset(("host", "hostaddr", "port", "user", "dbname"))
_SPENT = frozenset(("service", "servicefile", "fallback_application_name"))


class Site(Struct, frozen=True):
    """Where the load goes: administrative access, and whether pgpaces manages the server.

    server: facts of a managed server. start_settings: those it was started with. nodes: access to
    its standbys and to an external pooler, by name. servers: managed ones, the primary first.
    """

    access: Access
    managed: bool
    server: dict[str, Any] = field(default_factory=dict)
    start_settings: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Access] = field(default_factory=dict)
    servers: tuple[managed_server.Server, ...] = ()

    @property
    def standbys(self) -> dict[str, Access]:
        return {name: way for name, way in self.nodes.items() if name.startswith("standby")}


@contextlib.contextmanager
def site(target: TargetPlan, say: Say, name: str = "") -> Iterator[Site]:
    """A running server: external, or managed within this context. Raises ServerError.

    name: of a managed server; that of its version by default.
    """
    folders = tuple(i.bin for i in binaries.installations())
    candidates = [folder / "psql" for folder in folders]
    if target.dsn is not None:
        connection = generator.resolve(target.dsn, **dict(target.overrides))
        for warning in (*connection.warnings, *generator.probe(connection)):
            say(Warned(warning))
        program = psql.find(None, candidates)
        access = Access(generator.for_driver(connection), program, folders)
        nodes = {name: _node(access, dsn) for name, dsn in target.nodes}
        where = Site(access, managed=False, nodes=nodes)
        if where.standbys:
            streaming.check_version(access)
        yield where
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_pg_variables())
        server = stack.enter_context(_managed_server(target, say, name))
        data_dir = Path(target.data_dir) if target.data_dir else None
        managed_standbys.remove_lost(server.name, data_dir)
        others = stack.enter_context(
            managed_standbys.standbys(server, target.standbys, data_dir, say=say)
        )
        way = Transport.SOCKET if target.tls is None else Transport.TCP
        keywords = generator.for_driver(generator.resolve(server.dsn(transport=way)))
        own = server.bin / "psql"
        program = psql.find(own if own.is_file() else None, candidates)
        about = {
            "name": server.name,
            "stays": server.stays,
            "tls": target.tls,
            "requested": target.server,
            "build": packages.family(server.bin),
        }
        access = Access(keywords, program, folders)
        nodes = {
            f"standby{number}": _node(access, other.dsn(transport=way))
            for number, other in enumerate(others, 1)
        }
        settings = dict(target.server_settings)
        yield Site(access, True, about, settings, nodes, (server, *others))


def _node(primary: Access, dsn: str) -> Access:
    """Access to another server of the same layout. Raises ServerError if it is not reachable."""
    connection = generator.resolve(dsn)
    generator.probe(connection)
    return replace(primary, keywords=generator.for_driver(connection))


@contextlib.contextmanager
def _managed_server(target: TargetPlan, say: Say, name: str) -> Iterator[managed_server.Server]:
    """A managed server: the running one of this name, else a new one."""
    staying = {each.name: each for each in managed_server.running() if each.stays}
    if running := staying.get(name or target.server or ""):
        _check_running(running, target)
        yield running
        return
    installation = packages.locate(target.server, say)
    settings = dict(target.server_settings)
    if not settings and (same := staying.get(name or installation.server_name)):
        settings = dict(same.settings)
    if target.standbys:
        managed_standbys.check_streaming(settings, installation.major)
    spec = managed_server.ServerSpec(
        installation,
        name=name,
        data_dir=Path(target.data_dir) if target.data_dir else None,
        settings=profiles.known(settings, installation.major),
        tcp=target.tls is not None,
        tls=target.tls is True,
    )
    what = "server-reused" if spec.name in staying else "server-starts"
    say(message(what, server=spec.name, version=installation.version))
    try:
        started = managed_server.start(spec, on_progress=say)
    except ServerError as error:
        if near := [
            f"{b} (not {a})" for a, b in binaries.misspelled_settings(installation, settings)
        ]:
            raise ServerError("misspelled-settings", why=error.message, near=near) from None
        raise
    with started as server:
        yield server


def _check_running(running: managed_server.Server, target: TargetPlan) -> None:
    """Raises ServerError if a permanent server's data, settings or way differ from the request."""
    if target.data_dir and not running.data_dir.is_relative_to(Path(target.data_dir).absolute()):
        raise ServerError(
            "server-has-other-data",
            server=running.name,
            data_dir=running.data_dir,
            requested=target.data_dir,
        )
    other = [n for n, v in target.server_settings if running.settings.get(n) != v]
    if other:
        raise ServerError("server-lacks-settings", server=running.name, settings=other)
    if target.tls is None:
        return
    if running.tcp_host is None or (running.certificate is not None) is not target.tls:
        raise ServerError(
            "server-without-tls" if target.tls else "server-without-plain-tcp", server=running.name
        )


@contextlib.contextmanager
def without_pg_variables() -> Iterator[None]:
    """Hides PG* variables: they are for an external server, not for a managed one.

    Except PGPACES_*, which other threads may be reading, and PGDATA, by which a restart command
    finds the data.
    """
    names = [name for name in os.environ if name.startswith("PG")]
    libpq = [name for name in names if not name.startswith("PGPACES_") and name != "PGDATA"]
    hidden = {name: os.environ.pop(name) for name in libpq}
    try:
        yield
    finally:
        os.environ.update(hidden)


def source_database(text: str | None) -> str | None:
    """A database to copy, its DSN completed from the environment; a name stays a name.

    To be called before `site`, which hides the PG* variables.
    """
    if text is None or not is_dsn(text):
        return text
    from psycopg.conninfo import make_conninfo

    return make_conninfo(**generator.for_driver(generator.resolve(text)))


def shown_source(from_database: str | None) -> str | None:
    """A database to copy, as its name or a DSN without a password."""
    if from_database is None or not is_dsn(from_database):
        return from_database
    return shown_target(from_database)


def shown_target(written: str, **overrides: str) -> str:
    """A DSN that reaches the same database from here, without a password.

    With the address from the DSN and the environment, the keywords that it names, whatever the
    environment has, and others that it changes.
    """
    keywords = without_secrets(generator.resolve(written, **overrides).keywords)
    named = keywords_of(written) if is_dsn(written) else {}
    if "service" in named:
        named = keywords
    try:
        usual = generator.resolve("").keywords
    except PgpacesError:  # the environment is only usable with this DSN
        usual = {}
    words = {k: v for k, v in keywords.items() if k in _PLACE or k in named or usual.get(k) != v}
    return " ".join(f"{k}={quoted(v)}" for k, v in words.items() if k not in _SPENT)


def restarting(command: str, access: Access) -> Callable[[], None]:
    """A function that restarts a server by the owner's shell command, and waits until it is up."""

    def restart() -> None:
        # A file and no pipe: a server that inherits it would keep a pipe open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
            output.seek(0)
            words = output.read().decode(errors="replace") if done.returncode != 0 else ""
        if done.returncode != 0:
            last = (words.strip().splitlines() or [""])[-1]
            raise ServerError("restart-failed", command=command, code=done.returncode, output=last)
        deadline = time.monotonic() + _BACK_S
        while True:
            try:
                with connect(access):
                    return
            except ServerError as error:
                if time.monotonic() > deadline:
                    raise ServerError(
                        "server-not-back", wait_s=_BACK_S, why=error.message
                    ) from None
            time.sleep(0.2)

    return restart
