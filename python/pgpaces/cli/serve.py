"""`pgpaces serve`: the results of a store in a browser, and what runs."""

from __future__ import annotations

import click

from pgpaces.cli import options
from pgpaces.cli.followed import address
from pgpaces.cli.streams import announce
from pgpaces.core.errors import extra


@options.command()
@options.option(
    "--listen",
    group="Output",
    metavar="[ADDRESS:]PORT",
    default="127.0.0.1:8432",
    show_default=True,
)
@options.options(options.of("store"))
def serve(listen: str, store_path: str | None) -> None:
    """Serve stored runs, stored experiments, and current runs as web pages.

    The server only reads the store. By default, it listens on this machine only. With another
    address, the printed link contains a token, which every request needs. The connection is not
    encrypted.
    """
    with extra("web", "pages"):
        from pgpaces.core.locality import is_loopback
        from pgpaces.web import serve as server
        from pgpaces.web.app import Site
        from pgpaces.web.guard import new_token
        from pgpaces.web.listening import listen as open_port

    host, port = address(listen, "--listen")
    site = Site(store_path)
    site.store()
    token = None if is_loopback(host) else new_token()
    listening = open_port(host, port, token)
    query = f"?token={token}" if token else ""
    click.echo(f"{listening.url}{query}", err=True)
    if token:
        announce("token-readable", url=listening.url)
    announce("stop-with-ctrl-c")
    server.serve(site, listening)
