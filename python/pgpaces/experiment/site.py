"""Where the load goes: an external server, or one of ours for as long as it is needed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces import psql
from pgpaces.database import identity
from pgpaces.database.access import Access, connect
from pgpaces.database.source import is_dsn
from pgpaces.errors import ServerError
from pgpaces.generators import engine as generator
from pgpaces.plan import TargetPlan
from pgpaces.servers import binaries, describe, embedded, libraries, packages, profiles, topology
from pgpaces.servers.access import Listen
from pgpaces.servers.record import Transport

Say = Callable[[str], None]
_BACK_S = 120.0


class Site(Struct, frozen=True):
    """Where the load goes: the way to administer it, and whether the server is ours.

    given: settings that it was started with. nodes: the ways to others that belong to it, by name:
    standbys, and somebody's pooler. servers: of ours, the primary first.
    """

    access: Access
    ours: bool
    server: dict[str, Any] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Access] = field(default_factory=dict)
    servers: tuple[embedded.Server, ...] = ()

    @property
    def standbys(self) -> dict[str, Access]:
        """The ways to the standbys, by name."""
        return {name: way for name, way in self.nodes.items() if name.startswith("standby")}


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
        access = Access(for_driver(connection), program, folders)
        nodes = {name: _node(access, dsn) for name, dsn in target.nodes}
        yield Site(access, ours=False, nodes=nodes)
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(without_pg_variables())
        server = stack.enter_context(_our_server(target, say))
        data_dir = Path(target.data_dir) if target.data_dir else None
        topology.remove_lost(server.name, data_dir)
        others = stack.enter_context(topology.standbys(server, target.standbys, data_dir, say))
        way = Transport.SOCKET if target.tls is None else Transport.TCP
        keywords = for_driver(generator.resolve(server.dsn(transport=way)))
        program = psql.find(_existing(server.bin / "psql"), candidates)
        about = {"name": server.name, "stays": server.stays, "tls": target.tls}
        about["asked"] = target.server
        about["build"] = packages.family(server.bin)
        access = Access(keywords, program, folders)
        nodes = {
            f"standby{number}": _node(access, other.dsn(transport=way))
            for number, other in enumerate(others, 1)
        }
        given = dict(target.server_settings)
        yield Site(access, True, about, given, nodes, (server, *others))


def _node(primary: Access, dsn: str) -> Access:
    """The way to another server of the same layout. Raises ServerError where there is none."""
    connection = generator.resolve(dsn)
    generator.probe(connection)
    return replace(primary, keywords=for_driver(connection))


@contextlib.contextmanager
def _our_server(target: TargetPlan, say: Say) -> Iterator[embedded.Server]:
    """A managed server: one that runs under the name given, else one that is started."""
    for running in embedded.running():
        if running.stays and running.name == target.server:
            _check_settings(running, target)
            _check_way(running, target)
            yield running
            return
    installation = packages.locate(target.server, say)
    settings = _server_settings(target, installation.server_name)
    if target.standbys:
        settings = topology.settings_for(settings, installation.major)
    spec = embedded.ServerSpec(
        installation,
        data_dir=Path(target.data_dir) if target.data_dir else None,
        settings=profiles.fitting(
            settings,
            installation.major,
            libraries.has_jit(installation.bin.parent),
            say,
        ),
        listen=None if target.tls is None else Listen(),
        tls=target.tls is True,
    )
    runs = any(found.stays and found.name == spec.name for found in embedded.running())
    does = f"using {spec.name}, which runs:" if runs else "starting"
    say(f"{does} PostgreSQL {installation.version}")
    try:
        started = embedded.start(spec, on_progress=say)
    except ServerError as error:
        wrong = dict(describe.misspelled(installation, settings))
        guess = "; ".join(f"{name}: did you mean {near}?" for name, near in wrong.items())
        raise ServerError(error.message, guess or error.hint) from None
    with started as server:
        yield server


def _check_settings(running: embedded.Server, target: TargetPlan) -> None:
    """Raises ServerError where a server that stays was not started with what is asked for."""
    if target.data_dir and not running.data_dir.is_relative_to(Path(target.data_dir).absolute()):
        raise ServerError(
            f"the server {running.name} that runs has its data in {running.data_dir}, not in"
            f" {target.data_dir}",
            f"`pgpaces server stop {running.name}`, and leave its start to this run",
        )
    other = [n for n, v in target.server_settings if running.settings.get(n) != v]
    if other:
        raise ServerError(
            f"the server {running.name} that runs was started without {', '.join(other)} as asked",
            f"`pgpaces server stop {running.name}`, and start it with them",
        )


def _check_way(running: embedded.Server, target: TargetPlan) -> None:
    """Raises ServerError where a server that stays cannot be reached as asked."""
    if target.tls is None:
        return
    if running.tcp_host is None or (running.certificate is not None) is not target.tls:
        asked = "with TLS" if target.tls else "without it"
        raise ServerError(
            f"the server {running.name} that runs cannot be reached by TCP {asked}",
            f"`pgpaces server stop {running.name}`, and leave its start to this run",
        )


@contextlib.contextmanager
def without_pg_variables() -> Iterator[None]:
    """Hides PG* from libpq and us: they are meant for an external server, not for ours.

    Not our own, which other threads may be reading, nor what a command that restarts a server
    finds its data by.
    """
    names = [name for name in os.environ if name.startswith("PG")]
    meant = [name for name in names if not name.startswith("PGPACES_") and name != "PGDATA"]
    hidden = {name: os.environ.pop(name) for name in meant}
    try:
        yield
    finally:
        os.environ.update(hidden)


def source_database(text: str | None) -> str | None:
    """A database to be copied, with all that the environment says of its DSN; a name stays one.

    To be called before `site`, which hides what is not meant for a managed server.
    """
    if text is None or not is_dsn(text):
        return text
    from psycopg.conninfo import make_conninfo

    return make_conninfo(**for_driver(generator.resolve(text)))


def for_driver(connection: generator.Connection) -> dict[str, str]:
    """The keywords for Python's driver, with the password; what they came from left out."""
    spent = {"service", "servicefile", "fallback_application_name"}
    keywords = {k: v for k, v in connection.keywords.items() if k not in spent}
    return keywords | ({} if connection.password is None else {"password": connection.password})


def server_settings(dsn: str) -> dict[str, str]:
    """Every setting of a server that runs. Raises ServerError, PlanError."""
    access = Access(for_driver(generator.resolve(dsn)), Path("psql"))
    return identity.settings_of(access)


def _server_settings(target: TargetPlan, name: str) -> dict[str, str]:
    """The settings asked for; those of a staying server of this name where none are."""
    if not target.server_settings:
        for server in embedded.running():
            if server.name == name and server.stays:
                return dict(server.settings)
    return dict(target.server_settings)


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def restarting(command: str, access: Access) -> Callable[[], None]:
    """Restarts a server by a shell command of its owner's, and waits until it is back."""

    def restart() -> None:
        done = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            why = said[-1] if said else "it said nothing"
            raise ServerError(
                f"the command that restarts the server ended with {done.returncode}: {why}",
                f"it is: {command}",
            )
        deadline = time.monotonic() + _BACK_S
        while True:
            try:
                with connect(access):
                    return
            except ServerError as error:
                if time.monotonic() > deadline:
                    raise ServerError(
                        f"the server is not back {_BACK_S:.0f} s after its restart: {error.message}"
                    ) from None
            time.sleep(0.2)

    return restart
