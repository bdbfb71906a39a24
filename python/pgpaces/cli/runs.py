"""`pgpaces runs`, `show` and `export`: lists and answers of stored runs."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pgpaces.cli import manage, options
from pgpaces.cli.files import save
from pgpaces.cli.streams import announce, put
from pgpaces.core.errors import PlanError, StoreError
from pgpaces.core.metrics import header
from pgpaces.show import escape
from pgpaces.show.numbers import NOT_KNOWN, STARTED, moment, plural
from pgpaces.spec.result import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgpaces.spec.result import Trial
    from pgpaces.store.listing import ExperimentRow, TrialRow


# The first cell of a row, and the others by the names of their columns.
_Line = tuple[str, dict[str, str]]
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
# Numbers with an interval, which a narrow terminal leaves out.
_ENDED = _MISSED, _P99 = header("missed"), header("p99")
_WIDE_FROM = 76
# Narrower terminals leave out the column `due` and the intervals, to keep the workload readable.
_WHOLE_FROM = 100
_FORMS = ("csv", "json", "parquet")


def _absent(path: str | None) -> bool:
    """Whether there are no results yet: no store was named, and the default one does not exist."""
    from pgpaces.store import address

    place = address.default()
    with contextlib.suppress(OSError):  # opening the store raises the error
        return not address.named(path) and isinstance(place, Path) and not place.exists()
    return False


# A group with commands that change the store: an option `--tag` could mean to set or to select.
@click.group(cls=options.Group, invoke_without_command=True)
@options.options(options.of("limit", "experiment", "tag", "experiments", "json", "store"))
@click.pass_context
def runs(context: click.Context, /, **params: Any) -> None:
    """List the newest runs in the store. The subcommands tag, copy, and delete runs."""
    if context.invoked_subcommand is not None:
        _check_nothing_before(context)
        return
    limit, store_path, as_json = params["limit"], params["store_path"], params["as_json"]
    experiment, tag = params["experiment"], params["tag"]
    if params["experiments"]:
        if experiment or tag:
            chosen = "--experiment" if experiment else "--tag"
            raise PlanError("cannot-combine", options=["--experiments", chosen])
        _list_experiments(_experiments(store_path, limit), as_json)
        return
    folded = experiment is None and tag is None and not as_json
    others: list[ExperimentRow] = []
    damage = ""
    if folded:
        try:
            others = _experiments(store_path, limit)
        except StoreError as error:  # the readable rows are listed all the same
            damage = error.message
    rows = _listed(store_path, limit, experiment, tag=tag, single=folded and not damage)
    if damage:
        announce("runs-despite-damage", why=damage)
    if as_json:
        put(escape.json_text([_plain(row) for row in rows]))
        return
    _print_runs(rows, others, limit)
    if not rows and not others:
        announce("no-runs-match" if experiment or tag else "no-runs")


for _command in (manage.copy, manage.tag, manage.baseline, manage.delete):
    runs.add_command(_command)


def _print_runs(rows: Sequence[TrialRow], experiments: Sequence[ExperimentRow], limit: int) -> None:
    titles = distinct_titles(rows)
    lines = [(row.started_at, (titles[row.id], _cells(row))) for row in rows]
    blank = dict.fromkeys(("due", *_ENDED), "")
    for each in experiments:
        name, cells = _experiment_cells(each)
        title = f"{name}: {plural(each.runs, 'trial')}"
        lines.append((each.started_at, (title, {**blank, **cells, "run": cells["experiment"]})))
    lines.sort(key=lambda each: each[0] or _LONG_AGO, reverse=True)
    if lines:
        names = ["run", STARTED, "due", *_ENDED, "state"]
        narrow = ["run", *_ENDED, "state"]
        _print_table("workload", names, narrow, rows=[line for _, line in lines[:limit]])


def _check_nothing_before(context: click.Context) -> None:
    """Raises PlanError for options before a subcommand: `--store` must not be lost on `delete`."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
            command = context.invoked_subcommand
            raise PlanError("option-before-command", option=parameter.opts[0], command=command)


def _listed(
    store_path: str | None, limit: int, experiment: str | None, *, tag: str | None, single: bool
) -> list[TrialRow]:
    from pgpaces.store import listing

    if _absent(store_path):
        return []
    if experiment is None:
        rows = listing.at_once(store_path, listing.RunFilter(limit, tag=tag, single=single))
        if rows is not None:
            return rows
    store = manage.open_store(store_path)
    chosen = None if experiment is None else store.find_experiment(experiment)
    return store.trials(limit, experiment=chosen, tag=tag, single=single)


def _print_table(
    title: str,
    wide: Sequence[str],
    narrow: Sequence[str],
    *,
    rows: Sequence[_Line],
) -> None:
    from rich.console import Console
    from rich.text import Text

    from pgpaces.show.grid import table

    console = Console(highlight=False)
    names = narrow if console.width < _WIDE_FROM else wide
    short = console.width < _WHOLE_FROM
    names = [name for name in names if not (short and name == "due")]
    grid = table(title, names)
    for first, cells in rows:
        brief = {name: cells[name].partition(" ")[0] for name in _ENDED if short and name in cells}
        grid.add_row(Text(escape.line(first)), *((cells | brief)[name] for name in names))
    with console.capture() as text:
        console.print(grid)
    put("".join(f"{each.rstrip()}\n" for each in text.get().splitlines()))


def distinct_titles(rows: Sequence[TrialRow]) -> dict[str, str]:
    """By the id of a run: workload and load, and how it differs from other runs of the same."""
    alike: dict[str, list[TrialRow]] = {}
    for row in rows:
        alike.setdefault(_title(row), []).append(row)
    titles = {}
    for title, group in alike.items():
        every = [_features(row) for row in group]
        differing = [name for name in every[0] if len({each[name] for each in every}) > 1]
        for row, own in zip(group, every, strict=True):
            more = [own[name] for name in differing]
            names = f" [{', '.join(row.names)}]" if row.names else ""
            titles[row.id] = ", ".join([title, *filter(None, more)]) + names
    return titles


def _title(row: TrialRow) -> str:
    if row.damage:
        return row.damage
    load = "closed" if row.load == "closed, without think time" else row.load
    who = "user" if "users" in row.spec else "client"
    is_open = row.spec.keys() & {"rate", "rate_per_client"}
    count = "" if is_open else f", {row.clients} {who}{'s' * (row.clients != 1)}"
    return f"{row.workload}, {load}{count}"


def _features(row: TrialRow) -> dict[str, str]:
    from pgpaces.spec.load import family

    spec, limit = row.spec, row.spec.get("latency_limit")
    settings = family(spec, "set").items()
    return {
        "limit": f"-L {limit}" if limit else "",
        "length": f"-T {spec['duration']}" if "duration" in spec else "",
        "clients": f"-c {row.clients}",
        "protocol": str(spec.get("protocol", "")),
        "settings": " ".join(f"{name}={value}" for name, value in settings),
        "server": f"PostgreSQL {row.server}",
    }


def _plain(row: TrialRow) -> dict[str, Any]:
    return {
        "run": row.id,
        "state": "damaged" if row.damage else row.state,
        "damage": row.damage,
        "started_at": row.started_at and row.started_at.isoformat(),
        **fields(row, "workload", "load", "server", "experiment", "names"),
        **(row.summary or {}),
    }


def _experiments(store_path: str | None, limit: int) -> list[ExperimentRow]:
    from pgpaces.store import listing

    lines = listing.experiments_at_once(store_path, limit)
    if lines is not None:
        return lines
    if _absent(store_path):
        return []
    store = manage.open_store(store_path)
    store.experiments(limit)  # raises StoreError where one is damaged
    return store.experiment_lines(limit)


def _list_experiments(rows: list[ExperimentRow], as_json: bool) -> None:
    if as_json:
        document = [
            {
                "experiment": row.id,
                **fields(row, "name", "state"),
                "started_at": row.started_at and row.started_at.isoformat(),
                "ended_at": row.ended_at and row.ended_at.isoformat(),
                **fields(row, "runs", "names"),
            }
            for row in rows
        ]
        put(escape.json_text(document))
        return
    if not rows:
        announce("no-experiments")
        return
    columns = ["experiment", STARTED, "runs", "state"]
    _print_table("name", columns, columns, rows=[_experiment_cells(row) for row in rows])


def _experiment_cells(row: ExperimentRow) -> _Line:
    names = f" [{', '.join(row.names)}]" if row.names else ""
    return row.name + names, {
        "experiment": row.id[-8:],
        STARTED: _started(row),
        "runs": str(row.runs),
        "state": row.state,
    }


def _started(row: TrialRow | ExperimentRow) -> str:
    return moment(row.started_at, "%m-%d %H:%M")


def _cells(row: TrialRow) -> dict[str, str]:
    from pgpaces.show.numbers import ms, percent

    summary = row.summary or {}
    share = summary.get("missed_share")
    missed = NOT_KNOWN
    if share:
        missed = f"{percent(share[0])} ({percent(share[1])}–{percent(share[2])})"
    due = str(summary.get("due", NOT_KNOWN))
    p99, low, high = (summary.get(name) for name in ("p99_ms", "p99_low_ms", "p99_high_ms"))
    ends = f"over {ms(low)}" if high is None else f"{ms(low)}–{ms(high)}"
    marked = row.state == "finished" and summary.get("validity") == "invalid"
    return {
        "run": row.id[-8:],
        STARTED: _started(row),
        "due": due,
        _MISSED: missed,
        _P99: NOT_KNOWN if p99 is None or low is None else f"{ms(p99)} ({ends})",
        "state": "damaged" if row.damage else "invalid" if marked else row.state,
    }


@options.command()
@options.argument("name", metavar="[RUN|EXPERIMENT]", default="last")
@options.options(options.of("output", "json", "store"))
def show(name: str, output: str | None, as_json: bool, store_path: str | None) -> None:
    """Show the full result of a run or an experiment; by default, of the newest (`last`).

    Use a tag, the name of an experiment, an id, or the end of an id.
    """
    from pgpaces.analysis.summary import summarize
    from pgpaces.cli import run

    store = manage.open_store(store_path)
    id_ = store.find_newest(name)
    if output:
        from pgpaces.cli import report

        report.write_of(store_path, id_, output)
    if store.is_experiment(id_):
        from pgpaces.cli import report

        report.show(store, id_, as_json=as_json)
        return
    trial = store.load(id_)
    series = store.digests([trial.id])[0].series
    put(run.answer_text(trial, summarize(trial), series, as_json=as_json))


@options.command()
@options.argument("name", metavar="RUN")
@options.option(*("--format", "form"), group="Output", type=click.Choice(_FORMS))
@options.options(options.of("output", "store"))
def export(name: str, form: str | None, output: str | None, store_path: str | None) -> None:
    """Export RUN with one row per second, due second, and script; times are in ms."""

    store = manage.open_store(store_path)
    trial = store.load(store.find(name))
    ending = Path(output or "").suffix[1:]
    chosen = form or (ending if ending in _FORMS else "csv")
    content = _exported(trial, chosen)
    if output:
        announce("written", path=save(content, Path(output)))
    elif chosen == "parquet" and sys.stdout.isatty():
        raise PlanError("binary-form", form=chosen)
    else:
        put(content)


def _exported(trial: Trial, form: str) -> bytes:
    from msgspec import to_builtins

    from pgpaces.show import data

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
    if form == "parquet":
        return data.parquet(rows)
    if form == "csv":
        return data.csv(rows).encode()
    document = {
        "run": trial.id,
        "state": trial.state,
        "started_at": trial.started_at.isoformat(),
        "spec": dict(trial.spec),
        "setup": to_builtins(trial.setup),
        "intervals": rows,
    }
    return escape.json_text(document).encode()


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)
