"""`pgpaces workload`: lists, shows and creates workloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgpaces.cli import options
from pgpaces.cli.output import announce, put
from pgpaces.core.messages import message

if TYPE_CHECKING:
    from pgpaces.spec.workload import Workload


@options.group()
def workload() -> None:
    """List, show, and create workloads."""


@workload.subcommand(name="list")
def list_() -> None:
    """List the shipped workloads."""
    from pgpaces.show.escape import lines
    from pgpaces.spec import workload as workloads

    for name in workloads.shipped():
        put(lines(f"{name:15} {workloads.find(name).description}\n"))


@workload.subcommand()
@options.argument("name", metavar="WORKLOAD")
def show(name: str) -> None:
    """Show a workload: data, scripts or tasks, default load, and programs.

    The command lists everything that the workload would execute, but does not execute anything.
    """
    from pgpaces.cli.specs import action_lines
    from pgpaces.show.escape import line, lines
    from pgpaces.spec import trust
    from pgpaces.spec import workload as workloads

    workload = workloads.find(name)
    if workload.trusted:
        workload = workloads.performed(workload)

    def tell(text: str) -> None:
        put(f"{line(text)}\n")

    tell(f"{workload.name}: {workload.description}")
    tell(f"directory {workload.folder}")
    tell(message("workload-copies" if workload.writes else "workload-shared", scale=workload.scale))
    defaults = ", ".join(f"{key} {value}" for key, value in workload.load.items())
    name = "workload-load" if defaults else "workload-load-default"
    tell(message("workload-command" if workload.command else name, load=defaults))
    if workload.variants:
        tell(f"variants {', '.join(workload.variants)}")
    for step in workload.init:
        tell(f"init {step.name if step.run is None else step.text}")
    for variable, value in workload.variables.items():
        tell(message("workload-variable", name=variable, value=value))
    for file in workload.files:
        values = {"file": Path(file.path).name, "package": file.package, "name": file.name}
        tell(message("workload-file", **values))
    executed = trust.actions_of_folder(workload)
    if executed:
        tell(message("executes"))
        put("".join(f"{text}\n" for text in action_lines(executed)))
    elif not workload.trusted:
        tell(message("executes-nothing"))
    for text in _work(workload):
        click.echo(lines(text))


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


@workload.subcommand()
@options.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Create a small example workload in DIR."""
    from pgpaces.spec import trust
    from pgpaces.spec import workload as workloads

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
    put(rendered(lambda _: captured(workload)))
    for each in workload.findings:
        click.echo(escape.lines(f"note: {each}"), err=True)
    command = escape.command(command_for(workload, target))
    announce("workload-created", path=workload.folder, command=command)
