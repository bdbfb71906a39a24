"""`pgpaces workload`: lists, shows and creates workloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import options
from pgpaces.cli.streams import put

if TYPE_CHECKING:
    from pgpaces.spec.workload import Workload


@click.group(cls=options.Group, epilog="\b\nExample:\n  pgpaces workload new ./my-workload")
def workload() -> None:
    """List, show and create workloads."""


@workload.command("list")
def list_() -> None:
    """List the workloads that come with pgpaces."""
    from pgpaces.show.escape import lines
    from pgpaces.spec import workload as workloads

    for name in workloads.shipped():
        put(lines(f"{name:15} {workloads.find(name).description}\n"))


@workload.command()
@options.argument("name", metavar="WORKLOAD")
def show(name: str) -> None:
    """Show a workload: its data, scripts or tasks, default load, and all that it would execute.

    Executes none of it.
    """
    from pgpaces.show.escape import line, lines
    from pgpaces.spec import workload as workloads

    workload = workloads.find(name)
    if workload.trusted:
        workload = workloads.performed(workload)

    def tell(text: str) -> None:
        put(f"{line(text)}\n")

    tell(f"{workload.name}: {workload.description}")
    tell(f"folder {workload.folder}")
    writes = "each trial gets a fresh copy" if workload.writes else "trials share the data"
    tell(f"scale {workload.scale} by default; {writes}")
    defaults = ", ".join(f"{key} {value}" for key, value in workload.load.items())
    if workload.command is None:
        tell(f"load {defaults or 'one client, closed'}")
    else:
        tell("a command, timed once or as often as -t and -T say")
    if workload.variants:
        tell(f"variants {', '.join(workload.variants)}")
    for step in workload.init:
        tell(f"init {step.name if step.run is None else step.text}")
    for variable, value in workload.variables.items():
        tell(f"variable {variable} {value}; -D {variable}=VALUE for another")
    for file in workload.files:
        named = f"-D {file.name}=PATH for another"
        tell(f"file {Path(file.path).name} of PyPI's {file.package}; {named}")
    for text in _executed(workload):
        click.echo(text)
    for text in _work(workload):
        click.echo(lines(text))


def _executed(workload: Workload) -> Iterator[str]:
    from pgpaces.cli import consent
    from pgpaces.spec import actions

    executed = actions.of_folder(workload)
    if executed:
        yield "executes, as far as its files tell:"
        yield from consent.lines(executed)
    elif not workload.trusted:
        yield "executes nothing but SQL and scripts, as far as its files tell"


def _work(workload: Workload) -> Iterator[str]:
    from msgspec.structs import replace

    if workload.users_file is not None:
        # The whole file, as tasks depend on the users' attributes and the imports.
        text = workload.users_file.read_text(encoding="utf-8", errors="replace")
        yield f"\n# {workload.users_file.name}\n{text.rstrip()}"
    elif workload.command is None:
        for script in workload.scripts:
            yield f"\n-- {script.name}, weight {script.weight}\n{script.text.rstrip()}"
    else:
        if workload.command.before is not None:
            yield f"before {replace(workload.command, run=workload.command.before)}"
        yield f"command {workload.command}"


@workload.command()
@options.argument("folder", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Write a small workload to start from into FOLDER."""
    from pgpaces.spec import trust
    from pgpaces.spec import workload as workloads

    path = workloads.create(folder)
    trust.confirm_made(path)
    click.echo(f"wrote {path}; try: pgpaces run {path if '/' in str(path) else f'./{path}'}")


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
    """Create a workload in FOLDER from the statements of a database in pg_stat_statements.

    It only reads, and executes none of them. FOLDER is from-DATABASE by default.
    """
    from pgpaces.capture import CaptureOptions, capture, words
    from pgpaces.cli.output import rendered
    from pgpaces.cli.progress import Teller
    from pgpaces.core.errors import PlanError
    from pgpaces.show import escape

    if no_values and logs:
        raise PlanError("cannot-combine", options=["--no-values", "--log"])
    teller = Teller()
    request = CaptureOptions(target, folder, tuple(map(Path, logs)), top, not no_values)
    try:
        workload = capture(request, lambda text: teller.tell(text, rewrite=True))
    finally:
        teller.done()
    put(rendered(lambda _: words.captured(workload)))
    for each in workload.findings:
        click.echo(escape.lines(f"note: {each}"), err=True)
    click.echo(
        escape.lines(f"wrote {workload.folder}; try: {words.command(workload, target)}"), err=True
    )
