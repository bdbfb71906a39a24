"""Commands about this machine: doctor, disk (by fio), and observe."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pgpaces.cli import options, output
from pgpaces.cli.output import announce, put, silence
from pgpaces.core import units
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.messages import message
from pgpaces.show import escape

if TYPE_CHECKING:
    from pgpaces.store.listing import DiskRow

_NOT_WORKING_EXIT = 5
_ACTIONS = {"list": (0, 0), "show": (1, 1), "compare": (2, 9)}  # the numbers of disks


@options.command(options.of("json"))
def doctor(as_json: bool) -> int:
    """Show what pgpaces finds on this machine, and what each missing component would enable.

    The command does not start a server, download anything, or create a store. The exit code is 0
    unless pgpaces itself cannot run.
    """
    from pgpaces.answers import doctor as question

    section = question.section(question.diagnose())
    output.show(section, as_json=as_json)
    return _NOT_WORKING_EXIT if section.headline and section.headline.mark == "fail" else 0


@options.command(options.of("count"))
def observe(count: int | None) -> None:
    """Print measurements of this machine as one line of JSON per second, until interrupted.

    Each line contains the time from two clocks and, for each measurement, its mean over the last
    second and its unit. Values that cannot be read are omitted. The command needs no special
    privileges.
    """
    from pgpaces.monitor import host

    source = host.ThisMachine(host.postmasters())
    looks = source.observe(threading.Event(), time.monotonic())
    for number, look in enumerate(itertools.islice(looks, count)):
        try:
            click.echo(host.line(look, () if number else source.notes), nl=False)
        except BrokenPipeError:  # the reader has gone, so nothing may be flushed to it
            silence(sys.stdout)
            return


# One command and not a group: what follows `disk` is a folder, and a folder may be called `list`.
@options.command(
    options.of("quick", "size", "runs", "yes", "name"),
    tuple(
        options.option(f"--{name}", "action", group="General", flag_value=name) for name in _ACTIONS
    ),
    options.of("output", "json", "verbose", "dry_run", "store"),
)
@options.argument("names", nargs=-1, metavar="PATH|DISK...")
def disk(names: Sequence[str], action: str | None, **params: Any) -> int:
    """Use fio to measure the disk that holds PATH: its SD card class and its speed.

    pgpaces writes to a new directory in PATH, and always removes that directory. pgpaces asks for
    confirmation before writing more than 1 GB. pgpaces stores the result and includes it in reports
    on runs whose server uses the same disk.
    """
    output.check(params)
    least, most = (1, 1) if action is None else _ACTIONS[action]
    if not least <= len(names) <= most:
        if action is None:
            raise PlanError("disk-needs-folder", count=len(names))
        expected, word = (least if least == most else f"{least} to {most}"), f"--{action}"
        raise PlanError("number-of-disks", option=word, expected=expected, count=len(names))
    if action is None:
        return _measure(Path(names[0]), **params)
    from pgpaces.answers import disk as words
    from pgpaces.show.number_text import STARTED, moment

    store = options.open_store(params["store_path"])
    if action != "list":
        _print([store.disk(name) for name in names], action=action, **params)
        return 0
    rows = store.disks()
    if params["as_json"]:
        put(escape.json_text([words.plain(row) for row in rows]))
    elif rows:
        lines = [
            (
                f"{row.name} {row.disk.path}".strip(),
                row.id[-8:],
                moment(row.started_at, "%m-%d %H:%M"),
                row.host.hostname or "",
                words.class_of(row.disk),
            )
            for row in rows
        ]
        output.put_table(("disk", "id", STARTED, "machine", "class"), lines)
    else:
        announce("no-disks")
    return 0


def _measure(path: Path, **params: Any) -> int:
    """Measures, stores and prints; an error of the store does not suppress the result."""
    from importlib.metadata import version

    from pgpaces.cli.progress import Teller
    from pgpaces.disk import fio, measure
    from pgpaces.monitor import machine
    from pgpaces.store.listing import DiskRow
    from pgpaces.store.store import Store, new_id

    quick, size = params["quick"], params["size"]
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
    teller, said = Teller(), ""

    def report(name: str, seconds: float) -> None:
        nonlocal said
        if (text := f"{name}: {seconds:.0f} s" if teller.terminal else name) != said:
            teller.tell(text, rewrite=True)
        said = text

    try:
        measured = measure.measure(path, request, report)
    finally:
        teller.done()
    if not measured.measured:
        raise RunError("no-job-completed")
    name = params["name"] or ""
    row = DiskRow(new_id(), name, started, version("pgpaces"), machine.facts(), measured)
    try:
        store.add_disk(row)
    finally:
        _print([row], **params)
    if not params["as_json"]:
        announce("disk-stored", id=row.id)
    return output.INTERRUPTED_EXIT if measured.missing else 0


def _print(rows: Sequence[DiskRow], *, action: str = "", **params: Any) -> None:
    from pgpaces.answers import disk as words

    section = words.comparison(rows) if action == "compare" else words.section(rows[0])
    if params["output"]:
        output.write_report(words.report(rows, section), params["output"])
    if action == "show":
        section = replace(section, next=())
    verbose = params["verbose"] or action == "show"
    output.show(section, as_json=params["as_json"], verbose=verbose)
