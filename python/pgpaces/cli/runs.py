"""`pgpaces runs`, `show` and `export`: what the store holds."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgpaces.cli import options
from pgpaces.cli.main import put
from pgpaces.report import escape

if TYPE_CHECKING:
    from pgpaces.store import Store, TrialRow


_WIDE_FROM = 76


def _open(path: str | None) -> Store:
    from pgpaces.store import Store

    return Store.open(Path(path) if path else None)


@click.command(epilog="\b\nExample:\n  pgpaces runs --limit 5")
@click.option("--limit", "-n", type=click.IntRange(1), default=20, help="At most. [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@options.options((options.STORE,))
def runs(limit: int, as_json: bool, store_path: str | None) -> None:
    """List the newest runs in the store."""
    rows = _open(store_path).trials(limit)
    if as_json:
        put(escape.json_text([_plain(row) for row in rows]))
        return
    if not rows:
        click.echo("no runs yet; try: pgpaces run reporting", err=True)
        return
    from rich.console import Console

    from pgpaces.report.text import cell, table

    console = Console(highlight=False)
    names = ["run", "started", "due", "missed %", "p99 ms", "state"]
    if console.width < _WIDE_FROM:
        names = ["run", "missed %", "p99 ms", "state"]
    listed = table("workload", names)
    for row in rows:
        cells = _cells(row)
        listed.add_row(cell(f"{row.workload}, {row.load}"), *(cells[name] for name in names))
    with console.capture() as text:
        console.print(listed)
    put(text.get())


def _plain(row: TrialRow) -> dict[str, Any]:
    return {
        "run": row.id,
        "state": row.state,
        "started_at": row.started_at and row.started_at.isoformat(),
        "workload": row.workload,
        "load": row.load,
        "server": row.server,
        **(row.summary or {}),
    }


def _cells(row: TrialRow) -> dict[str, str]:
    from pgpaces.report.text import milliseconds, percent

    summary = row.summary or {}
    share = summary.get("missed_share")
    missed = f"{percent(share[0])} ({percent(share[1])}-{percent(share[2])})" if share else "-"
    started = row.started_at.astimezone().strftime("%m-%d %H:%M") if row.started_at else "-"
    due = str(summary.get("due", "-"))
    p99, ends = milliseconds(summary.get("p99_ms"), "-"), []
    for name in ("p99_low_ms", "p99_high_ms"):
        ends += [milliseconds(summary[name], "-")] if summary.get(name) is not None else []
    marked = row.state == "finished" and summary.get("validity") == "invalid"
    return {
        "run": row.id[-8:],
        "started": started,
        "due": due,
        "missed %": missed,
        "p99 ms": f"{p99} ({'-'.join(ends)})" if len(ends) == 2 else p99,
        "state": "damaged" if row.damage else "not valid" if marked else row.state,
    }


@click.command(epilog="\b\nExample:\n  pgpaces show last")
@click.argument("name", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@options.options((options.STORE,))
def show(name: str, as_json: bool, store_path: str | None) -> None:
    """Show the answer of RUN: `last`, an id, or the end of one."""
    from pgpaces.answers.summary import summarize
    from pgpaces.cli.run import _print
    from pgpaces.experiment import Outcome

    store = _open(store_path)
    trial = store.load(store.find(name))
    _print(Outcome(trial, summarize(trial)), as_json=as_json)


@click.command(epilog="\b\nExample:\n  pgpaces export last --format csv > run.csv")
@click.argument("name", metavar="RUN")
@click.option(
    "--format", "form", type=click.Choice(["csv", "json"]), default="csv", show_default=True
)
@options.options((options.STORE,))
def export(name: str, form: str, store_path: str | None) -> None:
    """Write RUN to stdout: one row for each second, due second and script; times in ms."""
    store = _open(store_path)
    trial = store.load(store.find(name))
    rows = [
        {
            "run": trial.id,
            "second": interval.second,
            "due_second": tally.due_second,
            "script": trial.workload["scripts"][tally.script]["name"],
            "due": tally.due,
            "on_time": tally.on_time,
            "late": tally.late,
            "skipped": tally.skipped,
            "failed": sum(tally.failed.values()),
            "unfinished": tally.unfinished,
            "retried": tally.retried,
            "retries": tally.retries,
            "latency_mean_ms": _ms(tally.latency.mean_ns),
            "latency_max_ms": _ms(tally.latency.max_ns),
            "lag_mean_ms": _ms(tally.lag.mean_ns),
            "service_mean_ms": _ms(tally.service.mean_ns),
        }
        for interval in trial.intervals
        for tally in interval.tallies
    ]
    if form == "csv":
        if rows:
            table = io.StringIO()
            writer = csv.DictWriter(table, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows({k: escape.csv_cell(v) for k, v in row.items()} for row in rows)
            put(table.getvalue())
        return
    document = {
        "run": trial.id,
        "state": trial.state,
        "started_at": trial.started_at.isoformat(),
        "plan": dict(trial.plan),
        "workload": dict(trial.workload),
        "server": dict(trial.server),
        "host": dict(trial.host),
        "intervals": rows,
    }
    put(escape.json_text(document))


def _ms(ns: float | None) -> float | None:
    return None if ns is None else round(ns / 1e6, 6)
