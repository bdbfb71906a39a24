"""What follows a load: the live page of `--live`, the metrics of `--metrics`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from pgpaces.cli.streams import announce
from pgpaces.core.errors import PlanError, similar
from pgpaces.core.locality import is_loopback
from pgpaces.core.units import digits

if TYPE_CHECKING:
    from pgpaces.web.companion import Outputs

_LOOPBACK = "127.0.0.1"
_PORT_MAX = 65535
# Next to that of `pgpaces serve`; no exporter of the list of Prometheus has it.
PORT = 8433
_KINDS = ("prometheus", "otlp")


@contextlib.contextmanager
def followed(params: Mapping[str, Any], warn: Callable[[str], None]) -> Iterator[None]:
    """With --live and --metrics: what follows the load runs, and its links were printed.

    warn: prints a warning. Raises PlanError, RunError.
    """
    outputs = outputs_of(params["live"], params["metrics"])
    if not outputs or params["dry_run"]:
        yield
        return
    from pgpaces.store import address as addresses
    from pgpaces.web.companion import Companion

    store = params["store_path"]
    if store is not None and isinstance(addresses.located(store), Path):
        store = str(Path(store).resolve())
    companion = Companion(store, outputs, warn)
    if companion.live:
        click.echo(f"live: {companion.live}", err=True)
    if url := companion.prometheus:
        click.echo(f"metrics: {url}", err=True)
        if outputs.prometheus and not is_loopback(outputs.prometheus[0]):
            announce("metrics-readable", url=url)
    try:
        yield
    finally:
        companion.close()


def outputs_of(live: bool, metrics: tuple[str, ...]) -> Outputs:
    from pgpaces.web.companion import Outputs

    values: dict[str, Any] = {}
    for text in metrics:
        kind, equals, value = text.partition("=")
        if kind not in _KINDS:
            near, choices = similar(kind, _KINDS), ["prometheus", "otlp=http://HOST:4318"]
            raise PlanError(
                "not-a-choice", what="--metrics", value=text, choices=choices, near=near
            )
        if kind in values:
            raise PlanError("given-twice", what=f"--metrics {kind}")
        where = value if equals else str(PORT)
        values[kind] = (
            address(where, "--metrics prometheus") if kind == "prometheus" else _url(value)
        )
    return Outputs(live, **values)


def address(text: str, option: str) -> tuple[str, int]:
    """ADDRESS:PORT, [ADDRESS]:PORT or PORT. Raises PlanError."""
    host, colon, port = text.rpartition(":")
    number = digits(port)
    if number is None or number > _PORT_MAX:
        raise PlanError("not-a-port", option=option, value=text, most=_PORT_MAX)
    return host.strip("[]") if colon else _LOOPBACK, number


def _url(text: str) -> str:
    """The URL of a receiver of OTLP. Raises PlanError."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            if "@" not in parts.netloc:
                return text
            raise PlanError("password-in-url")
    raise PlanError("not-an-otlp-url", url=text)
