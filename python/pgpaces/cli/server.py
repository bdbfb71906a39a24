"""`pgpaces server`: managed servers that keep running, their settings and their data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from pgpaces.cli import options
from pgpaces.cli.output import announce, put
from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.server import binaries, managed_server, packages
from pgpaces.server import profiles as known
from pgpaces.server.folder import Transport, data_series, server_folder
from pgpaces.show import escape
from pgpaces.spec.load import family
from pgpaces.spec.spec import named


@options.group()
def server() -> None:
    """Start, list, stop, and clean managed servers; fetch PostgreSQL versions."""


@server.subcommand(
    options.of("version"),
    options.of_trial("data_dir", "server_set", "profile"),
    (
        options.option("--name", group="Server", metavar="NAME"),
        options.option("--tls", group="Server", is_flag=True),
    ),
)
def start(**params: Any) -> None:
    """Start a server that keeps running, and print its PG* environment variables."""
    installation = packages.locate(params["wanted"], _say)
    profile, tls = params["profile"], params["tls"]
    settings = dict(known.find(profile).settings) if profile else {}
    settings |= family(named({"server_set": params["server_set"]}), "server_set")
    spec = managed_server.ServerSpec(
        installation,
        name=params["name"] or "",
        data_dir=Path(params["data_dir"]) if params["data_dir"] else None,
        settings=known.known(settings, installation.major),
        tcp=tls,
        tls=tls,
    )
    started = managed_server.start(spec, stay=True, on_progress=_say)
    transport = Transport.TCP if tls else Transport.SOCKET
    for variable, value in started.environment(transport=transport).items():
        put(f"export {variable}={shlex.quote(value)}\n")


@server.subcommand(name="list")
def list_() -> None:
    """List running managed servers, installed PostgreSQL versions, and versions that you can
    fetch.
    """
    for each in managed_server.running():
        name = "server-running" if each.stays else "server-running-for"
        values = {"version": each.version, "name": each.name, "folder": each.socket_dir}
        text = message(name, **values, port=each.port, pid=each.owner_pid)
        put(f"{text}\n")
    for installation in binaries.installations():
        what = "fetched" if installation.source in binaries.PACKAGES else "installed"
        version, source = installation.version, installation.source
        put(f"{what:9} {version:8} {source:8} {installation.bin}\n")
    for registry, is_here in packages.available():
        versions = f"{registry.series[0]} to {registry.series[-1]}"
        name = "server-can-fetch" if is_here else "server-can-fetch-later"
        text = message(name, versions=versions, tool=registry.tool, source=registry.source)
        put(f"{text}\n")


@server.subcommand()
@options.argument("versions", nargs=-1, required=True, metavar="VERSION...")
def fetch(versions: tuple[str, ...]) -> None:
    """Fetch the newest PostgreSQL package of each VERSION, for offline use.

    VERSION is a major version (14), an exact version (14.23), or a version from one registry
    (pypi:14, maven:11).
    """
    for version in versions:
        put(f"{packages.fetch(packages.checked(version), _say)}\n")


def _say(text: str) -> None:
    click.echo(text, err=True)


@server.subcommand()
def profiles() -> None:
    """List all profiles.

    Your own profiles are the files in profiles/ in the data directory of pgpaces.
    """
    for name in known.names():
        profile = known.find(name)
        put(escape.line(f"{name:12} {profile.about}") + "\n")
        for setting, value in profile.settings.items():
            put(escape.line(f"{'':12} {setting} = {value}") + "\n")


@server.subcommand()
@options.argument("name")
def stop(name: str) -> None:
    """Stop the server NAME."""
    managed_server.stop(name)
    announce("stopped", server=name)


@server.subcommand(options.of_trial("data_dir", "target"))
@options.argument("name", default="")
def clean(name: str, data_dir: str | None, target: str | None) -> None:
    """Drop the prepared data on the managed server NAME (by default, pg18)."""
    from pgpaces.database import ownership
    from pgpaces.spec.target import TargetPlan
    from pgpaces.trial.target_server import site

    if target is not None and (name or data_dir):
        raise PlanError("cannot-combine", options=["NAME" if name else "--data-dir", "--target"])
    name, version = "" if target is not None else name or "pg18", None
    if name:
        folder = server_folder(name)
        running = folder.running()
        home = folder.data_home(Path(data_dir) if data_dir else None)
        series = data_series(running.data_dir if running else home / "data")
        packages = (
            f"{each}:{series}" for each in binaries.PACKAGES if name == f"pg{series}-{each}"
        )
        version = next(packages, series)
        if version is None:
            announce("nothing-to-clean", server=name)
            return
    plan = TargetPlan(dsn=target, server=version, data_dir=data_dir)
    with site(plan, lambda _: None, name) as where:
        freed = ownership.clean(where.access)
    announce("freed", mib=freed / 2**20)
