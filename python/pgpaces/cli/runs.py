"""`pgpaces runs`, `export` and `import`: lists of stored runs, changes to them, other forms."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options
from pgpaces.cli.output import announce, put, put_table, save
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.home import is_there
from pgpaces.core.messages import message
from pgpaces.core.metrics import header
from pgpaces.show import escape
from pgpaces.show.number_text import NOT_KNOWN, STARTED, milliseconds, moment, percent, plural
from pgpaces.spec.result import fields
from pgpaces.store import address
from pgpaces.store.listing import ExperimentRow, TrialRow

if TYPE_CHECKING:
    from pgpaces.store.store import Store

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_FORMS = ("csv", "json", "parquet")


# A group with commands that change the store: an option `--tag` could mean to set or to select.
@options.group(
    options.of("limit", "experiment", "tag", "experiments", "json", "store"),
    invoke_without_command=True,
)
@click.pass_context
def runs(context: click.Context, /, **params: Any) -> None:
    """List the newest runs in the store.

    Subcommands tag, copy, or delete runs, or set a baseline.
    """
    store_path, limit = params["store_path"], params["limit"]
    experiment, tag = params["experiment"], params["tag"]
    if context.invoked_subcommand is not None:
        # Options before a subcommand: `--store` must not be lost on `delete`.
        for option in options.typed().values():
            command = context.invoked_subcommand
            raise PlanError("option-before-command", option=option, command=command)
        return
    selected = experiment is not None or tag is not None
    if params["experiments"] and selected:
        chosen = "--tag" if experiment is None else "--experiment"
        raise PlanError("cannot-combine", options=["--experiments", chosen])
    # Unless runs are selected, those of an experiment are one line.
    folded = not selected and not params["as_json"]
    trials: list[TrialRow] = []
    experiments: list[ExperimentRow] = []
    if not _absent(store_path):
        store = options.open_store(store_path)
        if params["experiments"] or folded:
            experiments = store.experiments(limit, damaged=True)
        if not params["experiments"]:
            of = None if experiment is None else store.find_experiment(experiment)
            trials = store.trials(limit, experiment=of, tag=tag, single=folded)
    found: list[TrialRow | ExperimentRow] = [*trials, *experiments]
    if params["as_json"]:
        put(escape.json_text([_plain(row) for row in found]))
    elif not found:
        absent = "no-experiments" if params["experiments"] else "no-runs"
        announce("no-runs-match" if selected else absent)
    elif params["experiments"]:
        names = ("name", "experiment", STARTED, "runs", "state")
        put_table(names, map(_experiment_line, experiments))
    else:
        found.sort(key=lambda row: row.started_at or _LONG_AGO, reverse=True)
        columns = ("workload", "run", STARTED, header("missed"), header("p99"), "state")
        put_table(columns, map(_line, found[:limit]))


def _absent(path: str | None) -> bool:
    """Whether there are no results yet: no store was named, and the default one does not exist."""
    place = address.default()
    with contextlib.suppress(OSError):  # opening the store raises the error
        return not address.named(path) and isinstance(place, Path) and not place.exists()
    return False


def _plain(row: TrialRow | ExperimentRow) -> dict[str, Any]:
    state = "damaged" if row.damage else row.state
    started = row.started_at and row.started_at.isoformat()
    if isinstance(row, ExperimentRow):
        ended = row.ended_at and row.ended_at.isoformat()
        values = {"name": row.name, "state": state, "started_at": started, "ended_at": ended}
        return {"experiment": row.id, **values, **fields(row, "runs", "names")}
    return {
        "run": row.id,
        "state": state,
        "damage": row.damage,
        "started_at": started,
        **fields(row, "workload", "load", "server", "experiment", "names"),
        **(row.summary or {}),
    }


def _experiment_line(row: ExperimentRow) -> tuple[str, str, str, str, str]:
    names = f" [{', '.join(row.names)}]" if row.names else ""
    started = moment(row.started_at, "%m-%d %H:%M")
    state = "damaged" if row.damage else row.state
    return (row.damage or row.name) + names, row.id[-8:], started, str(row.runs), state


def _line(row: TrialRow | ExperimentRow) -> tuple[str, str, str, str, str, str]:
    if isinstance(row, ExperimentRow):
        title, id_, started, _, state = _experiment_line(row)
        return f"{title}: {plural(row.runs, 'trial')}", id_, started, "", "", state
    paused = any(row.spec.get(name) for name in ("rate", "rate_per_client", "users", "think_time"))
    load = row.load if paused or not row.load else "closed"
    names = f" [{', '.join(row.names)}]" if row.names else ""
    summary = row.summary or {}
    share, p99_ms = summary.get("missed_share"), summary.get("p99_ms")
    marked = row.state == "finished" and summary.get("validity") == "invalid"
    return (
        row.damage or f"{row.workload}, {load}, -c {row.clients}{names}",
        row.id[-8:],
        moment(row.started_at, "%m-%d %H:%M"),
        percent(share[0]) if share else NOT_KNOWN,
        NOT_KNOWN if p99_ms is None or summary.get("p99_low_ms") is None else milliseconds(p99_ms),
        "damaged" if row.damage else "invalid" if marked else row.state,
    )


@runs.subcommand(options.of("dry_run", "store"))
@options.argument("other", metavar="STORE")
@options.argument("names", metavar="[RUN|EXPERIMENT]...", nargs=-1)
def copy(other: str, names: Sequence[str], dry_run: bool, store_path: str | None) -> None:
    """Copy complete runs and experiments to another STORE.

    By default, pgpaces copies everything that STORE does not have.
    """
    from pgpaces.store.store import Store

    store = options.open_store(store_path)
    _check_place(store, other, names)
    ids = [store.find_newest(name) for name in names] if names else None
    there = Store.open(other)
    missing = store.uncopied(there, ids)
    if dry_run:
        put("".join(f"{id_}\n" for id_ in missing))
        return
    damaged: list[str] = []
    with click.progressbar(missing, label="copying", file=sys.stderr) as progress:
        for id_ in progress:
            damage = store.copy(there, id_)
            damaged += [damage] if damage else []
    store.copy_names(there, ids)
    announce("copied", count=len(missing) - len(damaged), store=there.address)
    if damaged:
        count, total = len(damaged), len(missing)
        raise StoreError("not-all-copied", count=count, total=total, why=damaged[0])


def _check_place(store: Store, other: str, names: Sequence[str]) -> None:
    """Raises PlanError for a run in place of a store, lest a file of that name is created."""
    if Path(other).name != other or is_there(other):
        return
    try:
        store.find_any(other)
    except PlanError:
        return
    words = shlex.join([*(names[:1] or ["STORE"]), other])
    raise PlanError("run-instead-of-store", run=other, store=store.address, words=words)


@runs.subcommand(options.of("remove", "store"))
@options.argument("tag", metavar="NAME")
@options.argument("names", metavar="[RUN|EXPERIMENT]...", nargs=-1)
def tag(tag: str, names: Sequence[str], remove: bool, store_path: str | None) -> None:
    """Tag runs and experiments with NAME.

    If a command needs one run, NAME means the newest of these runs.
    """
    if not names and not remove:
        raise PlanError("nothing-to-tag", tag=tag)
    store = options.open_store(store_path)
    ids = [store.find_newest(name) for name in names]
    if not remove:
        for id_ in ids:
            store.tag(tag, id_)
    elif count := store.untag(tag, ids or None):
        announce("untagged", count=count)
    else:
        raise PlanError("tag-not-set", tag=tag)


@runs.subcommand(options.of("store"))
@options.argument("baseline", metavar="NAME")
@options.argument("name", metavar="RUN|EXPERIMENT")
def baseline(baseline: str, name: str, store_path: str | None) -> None:
    """Use a run or experiment as the baseline NAME.

    An earlier baseline with this name is replaced.
    """
    store = options.open_store(store_path)
    store.baseline(baseline, store.find_newest(name))


@runs.subcommand(options.of("yes", "dry_run", "store"))
@options.argument("names", metavar="RUN|EXPERIMENT...", nargs=-1, required=True)
def delete(names: Sequence[str], yes: bool, dry_run: bool, store_path: str | None) -> None:
    """Permanently delete runs, and experiments with their runs, after confirmation."""
    from pgpaces.store.names import NEWEST

    store = options.open_store(store_path)
    ids = list(dict.fromkeys(store.find_newest(name) for name in names))
    runs = {id_: len(store.placed(id_)) for id_ in ids}
    lines = [
        message("experiment-listed", id=id_, runs=count) if count else id_
        for id_, count in runs.items()
    ]
    if dry_run:
        put("".join(f"{line}\n" for line in lines))
        return
    for name in NEWEST & set(names) if yes else ():
        if runs[id_ := store.find_newest(name)]:
            raise PlanError("last-is-experiment", id=id_, runs=runs[id_])
    if not yes:
        if not sys.stdin.isatty():
            raise PlanError("cannot-confirm")
        click.echo("\n".join(lines), err=True)
        click.confirm(message("confirm-delete"), abort=True, err=True)
    for id_ in ids:
        store.delete(id_)
    announce("deleted", count=len(ids))


@options.command(
    (options.option("--format", "form", group="Output", type=click.Choice(_FORMS)),),
    options.of("output", "store"),
)
@options.argument("name", metavar="RUN")
def export(name: str, form: str | None, output: str | None, store_path: str | None) -> None:
    """Export RUN with one row for each combination of second, due second, and script.

    `second` is the second in which the outcomes became known, and `due_second` the one in which the
    transactions were due.
    Times are in ms.
    """
    from msgspec import to_builtins

    from pgpaces.show import data

    store = options.open_store(store_path)
    trial = store.load(store.find(name))
    ending = Path(output or "").suffix[1:]
    chosen = form or (ending if ending in _FORMS else "csv")
    if not output and chosen == "parquet" and sys.stdout.isatty():
        raise PlanError("binary-form", form=chosen)
    rows = [
        {
            "run": trial.id,
            "second": interval.second,
            "due_second": tally.due_second,
            "script": trial.workload.scripts[tally.script].name,
            **fields(tally, "due", "on_time", "late", "skipped"),
            "failed": sum(tally.failed.values()),
            **fields(tally, "unfinished", "retried", "retries"),
            "latency_mean_ms": _ms(tally.latency.mean_ns),
            "latency_max_ms": _ms(tally.latency.max_ns),
            "lag_mean_ms": _ms(tally.lag.mean_ns),
            "service_mean_ms": _ms(tally.service.mean_ns),
        }
        for interval in trial.intervals
        for tally in interval.tallies
    ]
    if chosen == "parquet":
        content = data.parquet(rows)
    elif chosen == "csv":
        content = data.csv(rows).encode()
    else:
        document = {
            "run": trial.id,
            "state": trial.state,
            "started_at": trial.started_at.isoformat(),
            "spec": dict(trial.spec),
            "setup": to_builtins(trial.setup),
            "intervals": rows,
        }
        content = escape.json_text(document).encode()
    if output:
        save(content, Path(output))
        announce("written", path=output)
    else:
        put(content)


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)


@options.command(
    (
        options.option("-L", "--latency-limit", group="Goal", metavar="TIME"),
        options.option("--command", group="General", metavar="TEXT"),
    ),
    options.of("seventh", "tag", "store"),
    name="import",
)
@options.argument("files", metavar="FILE...", nargs=-1, required=True)
def import_(files: Sequence[str], store_path: str | None, **params: Any) -> None:
    """Import a pgbench run from the logs of all its threads (pgbench -l)."""
    from importlib.metadata import version

    from pgpaces.core.units import duration_ns
    from pgpaces.imports import pgbench as imported
    from pgpaces.store.store import Store, new_id
    from pgpaces.trial import record

    limit = params["latency_limit"]
    limit_ns = None if limit is None else duration_ns(limit, "--latency-limit", bare="ms")
    logs = {}
    for path in map(Path, files):
        try:
            name = str(path) if path.name in logs else path.name
            logs[name] = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise PlanError("cannot-read-log", path=path, why=error.strerror) from None
    facts = {name: params[name] for name in ("seventh", "command")}
    version_ = version("pgpaces")
    trial = imported.trial(logs, new_id(), version=version_, limit_ns=limit_ns, **facts)
    store = Store.open(store_path)
    record.store_imported(store, trial)
    if params["tag"] is not None:
        store.tag(params["tag"], trial.id)
    for each in trial.findings:
        click.echo(f"{'invalid' if each.severity == 'invalid' else 'warning'}: {each}", err=True)
    announce("run-imported", id=trial.id, store=store.address)
