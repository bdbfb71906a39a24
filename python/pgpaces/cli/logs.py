"""`pgpaces import`: runs of real pgbench, stored like runs of pgpaces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from pgpaces.cli import options
from pgpaces.cli.streams import announce
from pgpaces.core.errors import PlanError


@options.command("import")
@options.argument("files", metavar="FILE...", nargs=-1, required=True)
@options.option("-L", "--latency-limit", group="Goal", metavar="TIME")
@options.option("--command", group="Workload", metavar="TEXT")
@options.options(options.of("seventh", "tag", "store"))
def import_(files: Sequence[str], store_path: str | None, **params: str | None) -> None:
    """Import a pgbench run from the logs of all its threads (pgbench -l)."""
    from importlib.metadata import version

    from pgpaces.core.units import duration_ns
    from pgpaces.imports import pgbench as imported
    from pgpaces.store.store import Store, new_id
    from pgpaces.trial import recorder

    limit = params["latency_limit"]
    run_options = imported.ImportOptions(
        None if limit is None else duration_ns(limit, "--latency-limit", bare="ms"),
        params["seventh"],  # type: ignore[arg-type]
        params["command"],
    )
    contents = []
    for path in map(Path, files):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise PlanError("cannot-read-log", path=path, why=error.strerror) from None
        contents.append(imported.PgbenchFile(path.name, text))
    trial = imported.trial(contents, run_options, new_id(), version=version("pgpaces"))
    store = Store.open(store_path)
    recorder.store_imported(store, trial)
    if params["tag"] is not None:
        store.tag(params["tag"], trial.id)
    for each in trial.findings:
        click.echo(f"{'invalid' if each.severity == 'invalid' else 'warning'}: {each}", err=True)
    announce("run-imported", id=trial.id, store=store.address)
