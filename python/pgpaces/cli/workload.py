"""`pgpaces workload`: lists, shows and creates workloads."""

from __future__ import annotations

from pathlib import Path

import click

from pgpaces.cli import options
from pgpaces.cli.output import announce, put, rendered
from pgpaces.cli.specs import action_lines
from pgpaces.core.errors import PlanError
from pgpaces.core.messages import message
from pgpaces.show import escape
from pgpaces.spec import trust
from pgpaces.spec import workload as workloads


@options.group()
def workload() -> None:
    """List, show, and create workloads."""


@workload.subcommand(name="list")
def list_() -> None:
    """List the shipped workloads."""
    for name in workloads.shipped():
        put(escape.lines(f"{name:15} {workloads.find(name).description}\n"))


@workload.subcommand()
@options.argument("name", metavar="WORKLOAD")
def show(name: str) -> None:
    """Show a workload: the programs that it would execute, its workload.toml, and its scripts.

    The command does not execute anything.
    """
    workload = workloads.find(name)
    for text in (f"{workload.name}: {workload.description}", f"directory {workload.folder}"):
        put(f"{escape.line(text)}\n")
    if executed := trust.actions_of_folder(workload):
        put("".join(f"{text}\n" for text in (message("executes"), *action_lines(executed))))
    elif not workload.trusted:
        put(f"{message('executes-nothing')}\n")
    files = [workload.folder / workloads.FILE]
    # The whole file of users, because tasks depend on the users' attributes and the imports.
    files += [workload.users_file] if workload.users_file is not None else []
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        put(escape.lines(f"\n# {path.name}\n{text.rstrip()}\n"))
    for script in workload.scripts if workload.users_file is None else ():
        put(escape.lines(f"\n-- {script.name}, weight {script.weight}\n{script.text.rstrip()}\n"))


@workload.subcommand()
@options.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Create a small example workload in DIR."""
    path = workloads.create(folder)
    trust.confirm_made(path)
    command = f"pgpaces run {path if '/' in str(path) else f'./{path}'}"
    click.echo(message("workload-created", path=path, command=command))


@workload.subcommand(
    (options.option("--target", group="Target", required=True, metavar="DSN"),),
    options.of("log", "top", "no_values"),
    name="from-statements",
)
@options.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def from_statements(
    target: str, folder: Path | None, logs: tuple[str, ...], top: int, no_values: bool
) -> None:
    """Create a workload in DIR from a database's pg_stat_statements.

    The command only reads the database and does not execute the statements. The default DIR is
    from-DATABASE.
    """
    from pgpaces.capture import CaptureOptions, capture
    from pgpaces.capture.folder import captured, command_for
    from pgpaces.cli.progress import Teller

    if no_values and logs:
        raise PlanError("cannot-combine", options=["--no-values", "--log"])
    teller = Teller()
    request = CaptureOptions(target, folder, tuple(map(Path, logs)), top, not no_values)
    try:
        workload = capture(request, lambda text: teller.tell(text, rewrite=True))
    finally:
        teller.done()
    put(rendered(lambda _: captured(workload)))
    for each in workload.findings:
        click.echo(escape.lines(f"note: {each}"), err=True)
    command = escape.command(command_for(workload, target))
    announce("workload-created", path=workload.folder, command=command)
