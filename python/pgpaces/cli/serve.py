"""`pgpaces serve`: the results of a store in a browser, and what runs; `--live` of a load."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pgpaces.cli import options
from pgpaces.errors import PlanError, RunError
from pgpaces.units import digits

EXAMPLES = """\b
Examples:
  pgpaces serve
  pgpaces serve --listen 9000 --store results.db
  pgpaces serve --listen 0.0.0.0:8432 --store service=results
"""
_LOOPBACK = "127.0.0.1"
_PORT_MAX = 65535


@options.command(epilog=EXAMPLES)
@options.option(
    "--listen",
    group="Output",
    metavar="[ADDRESS:]PORT",
    default="127.0.0.1:8432",
    show_default=True,
    help="Where to listen; 0: any free port. Beyond this machine a token is required.",
)
@options.options(options.of("store"))
def serve(listen: str, store_path: str | None) -> None:
    """Serve stored runs and experiments, and what runs now, as pages for a browser.

    It only reads, and listens on this machine alone. With another address, the printed link has a
    token, without which nothing is shown; it is not encrypted.
    """
    with _extra():
        from pgpaces.web import serve as server
        from pgpaces.web.app import Site
        from pgpaces.web.guard import is_loopback, new_token

    host, port = _address(listen)
    site = Site(store_path)
    site.store()
    token = None if is_loopback(host) else new_token()
    listening = server.listen(host, port, token)
    query = f"?token={token}" if token else ""
    click.echo(f"{listening.url}{query}", err=True)
    if token:
        text = f"{listening.url} is not encrypted: the token can be read on the network"
        click.echo(f"warning: {text}", err=True)
    click.echo("Ctrl-C ends it", err=True)
    server.serve(site, listening)


@contextlib.contextmanager
def live(params: Mapping[str, Any]) -> Iterator[None]:
    """With --live: the live page runs, and its link was printed. Raises RunError."""
    if not params["live"] or params["dry_run"]:
        yield
        return
    with _extra():
        from pgpaces.web.companion import Companion

    store = params["store_path"]
    companion = Companion(str(Path(store).resolve()) if _is_file(store) else store)
    click.echo(f"live: {companion.url}", err=True)
    try:
        yield
    finally:
        companion.close()


def _is_file(store: str | None) -> bool:
    from pgpaces.store import address

    return store is not None and isinstance(address.located(store), Path)


def _address(text: str) -> tuple[str, int]:
    """ADDRESS:PORT, [ADDRESS]:PORT or PORT. Raises PlanError."""
    host, colon, port = text.rpartition(":")
    number = digits(port)
    if number is None or number > _PORT_MAX:
        raise PlanError(
            f"--listen '{text}': '{port}' is not a port from 0 to {_PORT_MAX}",
            "write PORT, or ADDRESS:PORT",
        )
    return host.strip("[]") if colon else _LOOPBACK, number


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """Raises RunError where the libraries of the extra are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgpaces"):
            raise
        raise RunError(
            f"pages need {error.name}, which is not installed",
            "install the extra: pip install 'pgpaces[web]'",
        ) from None
