"""`pgpaces server`: servers of ours that stay, and the space they take."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.plan import pairs

if TYPE_CHECKING:
    from pgpaces.servers.embedded import Server


@click.group(epilog="\b\nExample:\n  pgpaces server start --version 18\n  pgpaces server list")
def server() -> None:
    """Start, list, stop and clean servers of ours."""


@server.command(epilog="\b\nExample:\n  eval $(pgpaces server start) && psql")
@click.option("--version", "wanted", metavar="VERSION", help="An installed one, e.g. 15.")
@click.option("--name", default="", help="Its name. [default: pg and the major version]")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The disk that holds the data.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Server setting.")
def start(wanted: str | None, name: str, data_dir: Path | None, settings: tuple[str, ...]) -> None:
    """Start a server that stays, and print the PG* variables to use it."""
    from pgpaces.servers import binaries, embedded

    spec = embedded.ServerSpec(
        binaries.find(wanted),
        name=name,
        data_dir=data_dir,
        settings=dict(pairs(settings, "--set")),
    )
    started = embedded.start(spec, stay=True, on_progress=lambda text: click.echo(text, err=True))
    for variable, value in started.environment().items():
        click.echo(f"export {variable}={shlex.quote(value)}")


@server.command("list")
def list_() -> None:
    """List our servers that run, and the PostgreSQL installations that are here."""
    from pgpaces.servers import binaries, embedded

    for found in embedded.running():
        click.echo(_line(found))
    for installation in binaries.installations():
        click.echo(f"installed {installation.version:8} {installation.source:8} {installation.bin}")


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
