"""`pgpaces disk`: measures a disk by fio; stores, lists and compares the results."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pgpaces.cli import options
from pgpaces.cli.files import write_report
from pgpaces.cli.streams import announce, put
from pgpaces.core.errors import PlanError, RunError

if TYPE_CHECKING:
    from pgpaces.analysis.disks import Disk
    from pgpaces.disk.fio import DiskRequest
    from pgpaces.store.disks import DiskRow
    from pgpaces.store.store import Store

INTERRUPTED_EXIT = 130

_ACTIONS = {"list": (0, 0), "show": (1, 1), "compare": (2, 9)}  # the numbers of disks


# One command and not a group: what follows `disk` is a folder, and a folder may be called `list`.
@options.command()
@options.argument("names", nargs=-1, metavar="PATH|DISK...")
@options.options(
    tuple(
        options.option(f"--{name}", "action", group="Store", flag_value=name) for name in _ACTIONS
    )
)
@options.options(
    options.of("size", "runs", "quick", "yes", "name"),
    options.of("output", "json", "verbose", "dry_run", "store"),
)
def disk(**params: Any) -> int:
    """Measure the disk of the directory PATH with fio: its class and its speed for PostgreSQL.

    pgpaces writes to a new directory in PATH and always removes it. It asks for confirmation before
    it writes more than 1 GB. It stores the result, and reports of servers on the same disk use it.
    """
    from pgpaces.cli import output

    output.check(params)
    names, action = params["names"], params["action"]
    if action is None:
        return _measure(names, params)
    least, most = _ACTIONS[action]
    if not least <= len(names) <= most:
        expected = least if least == most else f"{least} to {most}"
        raise PlanError(
            "number-of-disks", option=f"--{action}", expected=expected, count=len(names)
        )
    from pgpaces.store.store import Store

    store = Store.existing(params["store_path"])
    if action == "list":
        _list(store, as_json=params["as_json"])
    else:
        rows = [store.disk(name) for name in names]
        _print(rows, params, action=action)
    return 0


def _measure(names: Sequence[str], params: Mapping[str, Any]) -> int:
    """Measures, stores and prints; an error of the store does not suppress the result."""
    if len(names) != 1:
        raise PlanError("disk-needs-folder", count=len(names))
    from importlib.metadata import version

    from pgpaces.core import units
    from pgpaces.core.messages import message
    from pgpaces.disk import fio, measure
    from pgpaces.monitor import machine
    from pgpaces.show import escape
    from pgpaces.store.disks import DiskRow
    from pgpaces.store.store import Store, new_id

    path, quick, size = Path(names[0]), params["quick"], params["size"]
    default = fio.QUICK_SIZE if quick else fio.SIZE
    request = fio.DiskRequest(
        units.size_bytes(size, "--size") if size else default,
        params["runs"],
        fio.QUICK if quick else fio.FULL,
    )
    most = fio.written_max(request)
    writes = escape.line(message("disk-writes", gb=most / 1e9, path=path))
    if params["dry_run"]:
        put(f"{writes}\n")
        return 0
    measure.prepare(path, request)
    store = Store.open(params["store_path"])
    if most > fio.CONSENT_BYTES and not params["yes"]:
        if not sys.stdin.isatty():
            raise PlanError("disk-needs-consent", bytes=most, path=path)
        click.echo(writes, err=True)
        click.confirm(message("confirm-continue"), abort=True, err=True)
    started = datetime.now(UTC)
    measured = _with_progress(path, request)
    row = DiskRow(
        new_id(), params["name"] or "", started, version("pgpaces"), machine.facts(), measured
    )
    if not row.disk.measured:
        raise RunError("no-job-completed")
    try:
        store.add_disk(row)
    finally:
        _print([row], params)
    if not params["as_json"]:
        announce("disk-stored", id=row.id)
    return INTERRUPTED_EXIT if row.disk.missing else 0


def _with_progress(path: Path, request: DiskRequest) -> Disk:
    from pgpaces.cli.progress import Teller
    from pgpaces.disk import measure

    teller, last = Teller(), ""

    def report(name: str, seconds: float) -> None:
        nonlocal last
        if teller.terminal:
            teller.tell(f"{name}: {seconds:.0f} s", rewrite=True)
        elif name != last:
            teller.tell(name)
        last = name

    try:
        return measure.measure(path, request, report)
    finally:
        teller.done()


def _print(rows: Sequence[DiskRow], params: Mapping[str, Any], *, action: str = "") -> None:
    from pgpaces.answers import disk as words
    from pgpaces.cli.output import show

    side_by_side = action == "compare"
    section = words.comparison(rows) if side_by_side else words.section(rows[0])
    if params["output"]:
        write_report(words.report(rows, section), params["output"])
    if action == "show":
        section = replace(section, next=())
    show(section, as_json=params["as_json"], verbose=params["verbose"] or action == "show")


def _list(store: Store, *, as_json: bool) -> None:
    from pgpaces.answers import disk as words
    from pgpaces.cli.output import rendered
    from pgpaces.show import escape
    from pgpaces.show.grid import cell, table
    from pgpaces.show.numbers import STARTED, moment

    rows = store.disks()
    if as_json:
        put(escape.json_text([words.plain(row) for row in rows]))
        return
    if not rows:
        announce("no-disks")
        return
    grid = table("disk", ["id", STARTED, "machine", "class"])
    for row in rows:
        grid.add_row(
            cell(f"{row.name} {row.disk.path}".strip()),
            row.id[-8:],
            moment(row.started_at, "%m-%d %H:%M"),
            cell(row.host.hostname or ""),
            words.class_of(row.disk),
        )
    put(rendered(lambda _: [grid]))
