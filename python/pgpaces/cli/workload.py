"""`pgpaces workload`: what there is to run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import options
from pgpaces.cli.main import put

if TYPE_CHECKING:
    from pgpaces.capture import Captured
    from pgpaces.workload import Workload


@click.group(cls=options.Group, epilog="\b\nExample:\n  pgpaces workload new ./my-workload")
def workload() -> None:
    """List, show and make workloads."""


@workload.command("list")
def list_() -> None:
    """List the workloads that come with pgpaces."""
    from pgpaces import workload as workloads
    from pgpaces.report.escape import lines

    for name in workloads.shipped():
        put(lines(f"{name:15} {workloads.find(name).description}\n"))


@workload.command()
@options.argument("name", metavar="WORKLOAD")
def show(name: str) -> None:
    """Show a workload: its data, scripts or tasks, default load, and all that it would execute.

    Executes none of it.
    """
    from pgpaces import workload as workloads
    from pgpaces.report.escape import line, lines

    found = workloads.find(name)
    if found.trusted:
        found = workloads.performed(found)

    def tell(text: str) -> None:
        put(f"{line(text)}\n")

    tell(f"{found.name}: {found.description}")
    tell(f"folder {found.folder}")
    writes = "each trial gets a fresh copy" if found.writes else "trials share the data"
    tell(f"scale {found.scale} by default; {writes}")
    defaults = ", ".join(f"{key} {value}" for key, value in found.load.items())
    if found.command is None:
        tell(f"load {defaults or 'one client, closed'}")
    else:
        tell("a command, timed once or as often as is asked")
    if found.variants:
        tell(f"variants {', '.join(found.variants)}")
    for step in found.init:
        tell(f"init {step.name if step.run is None else step.text}")
    for variable, value in found.variables.items():
        tell(f"variable {variable} {value}; -D {variable}=VALUE for another")
    for file in found.files:
        named = f"-D {file.name}=PATH for another"
        tell(f"file {Path(file.path).name} of PyPI's {file.package}; {named}")
    for text in _executed(found):
        click.echo(text)
    for text in _work(found):
        click.echo(lines(text))


def _executed(found: Workload) -> Iterator[str]:
    """Everything that it and its variants would execute."""
    from pgpaces import actions
    from pgpaces.cli import consent

    executed = actions.of_folder(found)
    if executed:
        yield "executes, as far as its files tell:"
        yield from consent.lines(executed)
    elif not found.trusted:
        yield "executes nothing but SQL and scripts, as far as its files tell"


def _work(found: Workload) -> Iterator[str]:
    """What a workload does: its users' file, its scripts, or its command."""
    from msgspec.structs import replace

    if found.users_file is not None:
        # All of it: what each user has, and what is imported, stand beside the tasks.
        text = found.users_file.read_text(encoding="utf-8", errors="replace")
        yield f"\n# {found.users_file.name}\n{text.rstrip()}"
    elif found.command is None:
        for script in found.scripts:
            yield f"\n-- {script.name}, weight {script.weight}\n{script.text.rstrip()}"
    else:
        if found.command.before is not None:
            yield f"before {replace(found.command, run=found.command.before)}"
        yield f"command {found.command}"


@workload.command()
@options.argument("folder", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Write a small workload to start from into FOLDER."""
    from pgpaces import trust
    from pgpaces import workload as workloads

    made = workloads.create(folder)
    trust.confirm_made(made)
    click.echo(f"wrote {made}; try: pgpaces run {made if '/' in str(made) else f'./{made}'}")


@workload.command("from-statements")
@options.option(
    "--target",
    group="Target",
    required=True,
    metavar="DSN",
    help="The database: anything libpq reads.",
)
@options.argument("folder", required=False, type=click.Path(path_type=Path))
@options.options(options.of("log", "top", "no_values"))
def from_statements(
    target: str, folder: Path | None, logs: tuple[str, ...], top: int, no_values: bool
) -> None:
    """Make a workload of the statements that pg_stat_statements has of a database, into FOLDER.

    It only reads, and executes none of them. FOLDER is from-DATABASE by default.
    """
    from pgpaces.capture import CaptureOptions, capture
    from pgpaces.cli.progress import Teller
    from pgpaces.errors import PlanError

    if no_values and logs:
        raise PlanError("--no-values leaves out what --log would bring", "choose one")
    teller = Teller()
    wanted = CaptureOptions(target, folder, tuple(map(Path, logs)), top, not no_values)
    try:
        found = capture(wanted, lambda text: teller.tell(text, rewrite=True))
    finally:
        teller.done()
    _tell(found, target)


def _tell(found: Captured, target: str) -> None:
    """What was taken and what was not, and how to go on."""
    from rich.console import Console

    from pgpaces.capture import words
    from pgpaces.report import escape

    console = Console(highlight=False, markup=False)
    with console.capture() as text:
        for part in words.captured(found):
            console.print(part)
    put(text.get())
    for note in found.notes:
        click.echo(escape.lines(f"note: {note}"), err=True)
    click.echo(escape.lines(f"wrote {found.folder}; try: {words.command(found, target)}"), err=True)
