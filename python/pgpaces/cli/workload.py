"""`pgpaces workload`: what there is to run."""

from __future__ import annotations

from pathlib import Path

import click


@click.group(epilog="\b\nExample:\n  pgpaces workload new ./my-workload")
def workload() -> None:
    """List, show and make workloads."""


@workload.command("list")
def list_() -> None:
    """List the workloads that come with pgpaces."""
    from pgpaces import workload as workloads
    from pgpaces.report.escape import lines

    for name in workloads.shipped():
        click.echo(lines(f"{name:15} {workloads.find(name).description}"))


@workload.command()
@click.argument("name")
def show(name: str) -> None:
    """Show a workload: its data, scripts and default load."""
    from pgpaces import workload as workloads
    from pgpaces.report.escape import lines

    found = workloads.find(name)

    def tell(text: str) -> None:
        click.echo(lines(text))

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
    for file in found.files:
        named = f"-D {file.name}=PATH for another"
        tell(f"file {Path(file.path).name} of PyPI's {file.package}; {named}")
    for script in found.scripts if found.command is None else ():
        mark = "#" if found.users else "--"
        tell(f"\n{mark} {script.name}, weight {script.weight}\n{script.text.rstrip()}")
    if found.command is not None:
        if found.command.before is not None:
            tell(f"before {found.command.before}")
        tell(f"command {found.command}")


@workload.command()
@click.argument("folder", type=click.Path(path_type=Path))
def new(folder: Path) -> None:
    """Write a small workload to start from into FOLDER."""
    from pgpaces import workload as workloads

    made = workloads.create(folder)
    click.echo(f"wrote {made}; try: pgpaces run {made if '/' in str(made) else f'./{made}'}")
