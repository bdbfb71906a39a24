"""A trial's answer as text: the verdict in a sentence first, then the tables behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pgpaces.answers.summary import Spread, Summary
from pgpaces.result import CLASSES, Counts, Trial

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_WIDE = ("mean", "p50", "p95", "p99", "p99.9", "max")
# Columns by the width that they need.
_COLUMNS = ((100, _WIDE), (76, _WIDE[1:]), (0, ("p50", "p99", "max")))


def percent(share: float) -> str:
    """A share as a percentage without its sign: 2 significant digits below ten, else one place."""
    value = 100 * share
    if value and value < 0.095:
        return f"{value:.2g}"
    return f"{value:.1f}"


def duration(ns: float) -> str:
    """A duration as people write it."""
    for unit, size in (("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.4g}{unit}"
    return "0s"


def milliseconds(value: float | None, above: str) -> str:
    """A time of a table, or where it lies if it is above every value."""
    if value is None:
        return above
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def classes(counts: Counts) -> str:
    """The five outcomes, each with its number."""
    return ", ".join(f"{name.replace('_', ' ')} {getattr(counts, name)}" for name in CLASSES)


def rate(per_s: float) -> str:
    """A rate with four significant digits and no exponent."""
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:.4g}"


def verdict(summary: Summary, plan: Mapping[str, Any], *, complete: bool = True) -> str:
    """The answer in one sentence; complete: the trial ran to its end."""
    within = f" within {duration(plan['limit_ns'])}" if plan["limit_ns"] else ""
    if summary.missed is None:
        if complete:
            return "nothing was due: the trial was too short for its rate"
        return "nothing was due before the trial ended early"
    missed = summary.missed
    return (
        f"missed {percent(missed.value)} % ({percent(missed.low)} to {percent(missed.high)})"
        f" of {summary.counts.due} due{within}, policy {plan['policy']}:"
        f" {classes(summary.counts)}"
    )


def _above(plan: Mapping[str, Any]) -> str:
    """How a quantile is shown that falls among what did not succeed."""
    return f"> {plan['limit_ns'] / 1e6:g}" if plan["limit_ns"] else "none"


def table(title: str, names: Sequence[str]) -> Table:
    """An empty table: one column of text that gives way, and numbers to the right of it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    made.add_column(title)
    for name in names:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def cell(text: str) -> Text:
    """A text that is cut where the terminal is too narrow for it."""
    from rich.text import Text

    return Text(text, no_wrap=True, overflow="ellipsis")


def _row(spread: Spread, columns: Sequence[str], above: str) -> list[str]:
    return [
        milliseconds(spread.quantile(name), "-" if name == "mean" else above) for name in columns
    ]


def times_table(summary: Summary, plan: Mapping[str, Any], columns: Sequence[str] = _WIDE) -> Table:
    """Latency, lag and service in milliseconds."""
    made = table("ms", columns)
    for name in ("latency", "lag", "service"):
        above = _above(plan) if name == "latency" else "-"
        made.add_row(name, *_row(getattr(summary, name), columns, above))
    return made


def scripts_table(
    summary: Summary, plan: Mapping[str, Any], columns: Sequence[str] = _WIDE
) -> Table:
    """One row a script: due, missed and latency."""
    made = table("script, latency in ms", ("due", "missed", *columns))
    for script in summary.scripts:
        counts = (str(script.counts.due), str(script.counts.missed))
        made.add_row(cell(script.name), *counts, *_row(script.latency, columns, _above(plan)))
    return made


def statements_table(summary: Summary, columns: Sequence[str] = _WIDE) -> Table:
    """One row an SQL command: how often, and its times in milliseconds."""
    shown = [n for n in ("failed", "retries") if any(getattr(s, n) for s in summary.statements)]
    made = table("statement, ms", ("done", *shown, *columns))
    for statement in summary.statements:
        text = " ".join(statement.text.split())
        counts = (str(statement.times.count), *(str(getattr(statement, n)) for n in shown))
        where = f"{statement.script}:{statement.line} {text}"
        made.add_row(cell(where), *counts, *_row(statement.times, columns, "-"))
    return made


def facts(trial: Trial, summary: Summary) -> Iterable[str]:
    """What was measured, as lines."""
    plan, workload, server = trial.plan, trial.workload, trial.server
    yield (
        f"run {trial.id}: {workload['name']} at scale {workload['scale']}"
        f" on PostgreSQL {server['version']}"
    )
    warmup = f" after {duration(plan['warmup_ns'])} warm-up" if plan["warmup_ns"] else ""
    yield (
        f"load {plan['load_text']}; {plan['clients']} clients, {plan['protocol']} protocol,"
        f" {duration(summary.seconds * 1e9)}{warmup}, seed {plan['seed']}"
    )
    yield f"rate {rate(summary.rate)} succeeded/s"
    generator = summary.generator
    dispatch = milliseconds(generator.dispatch_p99, "-")
    busy = f"{100 * generator.cpu:.0f} % CPU"
    yield f"generator: busiest thread {busy}, p99 dispatch lag {dispatch} ms"
    if generator.limited:
        yield (
            "generator-limited: the generator was late itself, so this result says nothing against"
            " the server; give the generator a CPU of its own, or more --threads"
        )
    if not generator.adds_up:
        yield f"Little's law is off: {generator.little:.3f} instead of 1; please report this run"
    for state, count in sorted(summary.failures.items()):
        yield f"failed with {state}: {count} ({summary.messages.get(state, 'no message')})"
    if summary.retried:
        yield f"tried again: {summary.retried} transactions, {summary.retries} times in all"
    if summary.disconnects:
        yield f"connections lost: {summary.disconnects}"
    for note in trial.notes:
        yield f"note: {note}"
    if trial.error:
        yield f"ended early: {trial.error}"
    elif trial.state == "running":
        yield "still running: this is what has ended so far"
    elif trial.state == "interrupted":
        yield "interrupted: this is what there is"


def answer(trial: Trial, summary: Summary, width: int = 80) -> list[RenderableType]:
    """The whole answer, to be printed one after the other; width in characters."""
    from rich.text import Text

    columns = next(names for least, names in _COLUMNS if width >= least)

    parts: list[RenderableType] = [
        Text(verdict(summary, trial.plan, complete=trial.state == "finished"), style="bold")
    ]
    parts += [Text(line) for line in facts(trial, summary)]
    parts.append(Text(""))
    parts.append(times_table(summary, trial.plan, columns))
    if len(summary.scripts) > 1:
        parts.append(Text(""))
        parts.append(scripts_table(summary, trial.plan, columns))
    if summary.statements:
        parts.append(Text(""))
        parts.append(statements_table(summary, columns))
    return parts
