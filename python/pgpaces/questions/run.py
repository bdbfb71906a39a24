"""A trial's answer as text: the verdict in a sentence first, then the tables behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pgpaces.answers.accumulator import by_functions
from pgpaces.answers.bulk import SOURCE, alone
from pgpaces.answers.bulk import of as of_command
from pgpaces.answers.outcome import no_measurement
from pgpaces.answers.spread import Spread
from pgpaces.answers.summary import Summary
from pgpaces.answers.validity import Validity
from pgpaces.answers.volume import of as queries_of
from pgpaces.report.escape import line
from pgpaces.report.grid import cell, table
from pgpaces.report.numbers import in_words, interval, milliseconds, ms, percent, rate, seconds
from pgpaces.result import CLASSES, Counts, Estimate, Trial
from pgpaces.units import duration_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_WIDE = ("mean", "p50", "p95", "p99", "p99.9", "max")
# Choices of columns, and what a column of an estimate and the maximum take.
_COLUMNS = (_WIDE, _WIDE[1:], ("p50", "p99", "max"), ("p99", "max"))
# Notes that are the same for nearly every run. Of hidden sessions and of dear looks all are told.
_ROUTINE = re.compile(
    r"(host|sensor( of \S+)?): (looking at (it|the server) took 0\.\d % of one core here"
    r"(, (0\.\d %|not seen) on the server)?|more would be seen with (?!.*\bGRANT\b).*)$"
)
_ESTIMATE_WIDTH, _MAX_WIDTH = len("not estimable") + 1, 8


def classes(counts: Counts) -> str:
    """The five outcomes, each with its number."""
    return ", ".join(f"{name.replace('_', ' ')} {getattr(counts, name)}" for name in CLASSES)


def verdict(summary: Summary, plan: Mapping[str, Any], *, complete: bool = True) -> str:
    """The answer in one sentence; complete: the trial ran to its end."""
    within = _within(plan)
    if summary.missed is None:
        if complete:
            waits = plan.get("model") in ("closed", "paced")
            why = (
                "no client was free after the warm-up"
                if waits
                else "the trial was too short for its rate"
            )
            return f"FAIL: nothing was due: {why}"
        return "nothing was due before the trial ended early"
    if complete and (found := no_measurement(summary)) is not None:
        return f"FAIL: {found[0]}"
    return f"missed {_missed(summary.missed, summary.counts, within, plan['policy'])}"


def _missed(missed: Estimate, counts: Counts, within: str, policy: str) -> str:
    share = f"{percent(missed.value)} % ({percent(missed.low)} to {percent(missed.high)})"
    return f"{share} of {counts.due} due{within}, policy {policy}: {classes(counts)}"


def beside(summary: Summary, plan: Mapping[str, Any], told: str = "") -> Iterable[str]:
    """The answer of each workload beside the trial's own, as lines.

    told: a command of which all is said already, unless it has a limit.
    """
    for each in summary.beside:
        components = [component for component in plan["lanes"] if component["of"] == each.name]
        if each.name == told and not components[0]["limit_ns"]:
            continue
        where = ", ".join(component["node"] for component in components)
        said = f"beside it {each.name} on {where}: "
        if each.missed is None:
            yield f"{said}nothing was due"
        else:
            within, policy = _within(components[0]), components[0]["policy"]
            yield f"{said}missed {_missed(each.missed, each.counts, within, policy)}"


def _within(plan: Mapping[str, Any]) -> str:
    """The latency limits, that of all scripts first."""
    general = [duration_text(plan["limit_ns"])] if plan["limit_ns"] else []
    own = ", ".join(
        f"{line(name)} {duration_text(ns)}" for name, ns in plan.get("limits", ()) if ns
    )
    if general and own:
        own = f"({own})"
    return f" within {' '.join(filter(None, (*general, own)))}" if general or own else ""


def _above(plan: Mapping[str, Any], script: str | None = None) -> str:
    """How a quantile is shown that falls among what did not succeed: of all scripts or of one."""
    components = (
        component for component in plan.get("lanes", ()) if script in component["scripts"]
    )
    plan = next(components, plan)
    own = dict(plan.get("limits", ()))
    if script is None and plan["limit_ns"]:
        limit_ns = min(plan["limit_ns"], *own.values()) if own else plan["limit_ns"]
    else:
        limit_ns = own.get(script, plan["limit_ns"])
    return f"> {limit_ns / 1e6:g}" if limit_ns else "none"


def _columns(width: int, fixed: int) -> Sequence[str]:
    """As many columns of times as fit beside `fixed` characters."""

    def needed(names: Sequence[str]) -> int:
        return _ESTIMATE_WIDTH * (len(names) - 1) + _MAX_WIDTH + fixed

    return next((names for names in _COLUMNS if needed(names) <= width), _COLUMNS[-1])


def _two_lines(value: str, ends: str) -> Text:
    from rich.text import Text

    return Text.assemble(value, "\n", (ends, "dim"))


def _row(spread: Spread, columns: Sequence[str], above: str) -> list[Text]:
    """Values with their intervals below them; the maximum is one that was seen and has none."""
    cells = []
    for name in columns:
        estimate = None if name == "max" else spread.estimate(name)
        if estimate is None:
            shown = milliseconds(spread.max, above if spread.p50 else "-")
            cells.append(_two_lines(shown if name == "max" else "-", ""))
        else:
            value = milliseconds(estimate.value, above)
            cells.append(_two_lines(value, interval(estimate, lambda ms: milliseconds(ms, above))))
    return cells


def times_table(summary: Summary, plan: Mapping[str, Any], width: int = 100) -> Table:
    """Latency, lag and service in milliseconds."""
    every = {"latency": _above(plan), "lag": "-", "service": "-"}

    def rows(columns: Sequence[str]) -> list[list[Text]]:
        return [_row(getattr(summary, name), columns, above) for name, above in every.items()]

    # Ends of small numbers are longer than most: a name that gives way to them is no name.
    able = _COLUMNS[_COLUMNS.index(_columns(width, 8)) :]
    fits = (each for each in able if max(map(len, every)) + _wide(each, rows(each)) <= width)
    columns = next(fits, _COLUMNS[-1])
    made = table("ms", columns)
    for name, cells in zip(every, rows(columns), strict=True):
        made.add_row(name, *cells)
    return made


def _wide(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    """How wide these columns are, with what is between them."""
    cells = zip(columns, *([cell.plain for cell in row] for row in rows), strict=True)
    return sum(2 + max(len(part) for text in each for part in text.split("\n")) for each in cells)


def scripts_table(
    summary: Summary, plan: Mapping[str, Any], width: int = 100, *, kind: str = "script"
) -> Table:
    """One row a script, or what else they are of that kind: due, missed and latency."""
    from rich.text import Text

    columns = _columns(width, 32)
    made = table(f"{kind}, latency in ms", ("due", "missed %", *columns))
    for script in summary.scripts:
        missed = script.missed
        share = (
            Text("-")
            if missed is None
            else _two_lines(percent(missed.value), f"{percent(missed.low)}-{percent(missed.high)}")
        )
        times = _row(script.latency, columns, _above(plan, script.name))
        made.add_row(cell(script.name), str(script.counts.due), share, *times)
    return made


def statements_table(summary: Summary, width: int = 100) -> Table:
    """One row an SQL command: how often, and its times in milliseconds."""
    shown = [n for n in ("failed", "retries") if any(getattr(s, n) for s in summary.statements)]
    columns = _columns(width, 32 + 8 * len(shown))
    made = table("statement, ms", ("done", *shown, *columns))
    for statement in summary.statements:
        text = " ".join(statement.text.split())
        counts = (str(statement.times.count), *(str(getattr(statement, n)) for n in shown))
        where = f"{statement.script}:{statement.line} {text}"
        made.add_row(cell(where), *counts, *_row(statement.times, columns, "-"))
    return made


def outages(summary: Summary) -> str:
    """What became of the connections that were lost."""
    found = summary.outages
    parts = [f"connections lost: {summary.disconnects}"]
    if found.longest_s:
        parts.append(f"longest outage {seconds(found.longest_s)}")
    if found.all_down_s:
        parts.append(f"no client connected for {seconds(found.all_down_s)}")
    if found.down:
        parts.append(f"clients not back at the end: {found.down}")
    elif found.some_down_s:
        parts.append(f"all back after {seconds(found.some_down_s)}")
    return ", ".join(parts)


def copied(prepared: Mapping[str, Any]) -> Iterable[str]:
    """What the copy that a trial got for itself took, as a line; nothing where there was none."""
    if prepared.get("cloned_from") and prepared.get("clone_seconds"):
        size = prepared["size_bytes"] / 2**20
        yield (
            f"data: {size:.0f} MiB copied in {seconds(prepared['clone_seconds'])},"
            f" settled in {seconds(prepared.get('settle_seconds', 0.0))}"
        )


def facts(trial: Trial, summary: Summary) -> Iterable[str]:
    """What was measured, as lines."""
    from pgpaces.questions.bulk import words as bulk

    workload, server = trial.workload, trial.server
    yield (
        f"run {trial.id}: {workload['name']} at scale {workload['scale']}"
        f" on PostgreSQL {server['version']}{layout(server)}"
    )
    yield from copied(workload.get("prepared", {}))
    if (found := of_command(trial, summary)) is not None:
        yield from bulk.lines(trial, found)
    if not alone(trial):
        yield from _load(trial, summary)
    for state, count in sorted(summary.failures.items()):
        yield from _failed(state, count, summary.messages.get(state, ""))
    if summary.retried:
        yield f"tried again: {summary.retried} transactions, {summary.retries} times in all"
    if summary.disconnects or summary.outages.down:
        yield outages(summary)


def notes(trial: Trial, summary: Summary) -> Iterable[str]:
    """What else there is to know, as lines: what every run says of itself is only counted."""
    found = [(note, bool(_ROUTINE.match(note))) for note in trial.notes]
    for finding in summary.validity.findings:
        if finding.severity == "info" and finding.source != SOURCE:
            found.append((finding.text, finding.source == "store"))
    yield from (f"note: {text}" for text, routine in found if not routine)
    if left := sum(routine for _, routine in found):
        yield (
            f"note: {left} more say what looking and storing took, and what more settings would"
            " show: pgpaces show RUN --json"
        )


def _failed(state: str, count: int, message: str) -> Iterable[str]:
    """How many failed that way, and what one of them said; in lines of its own, if it is long."""
    lines = message.splitlines()
    if len(lines) < 2:
        yield f"failed with {state}: {count} ({message or 'no message'})"
        return
    yield f"failed with {state}: {count}"
    yield from (f"  | {text}" for text in lines)


def _load(trial: Trial, summary: Summary) -> Iterable[str]:
    """The load, what came of it, and what the generator says of itself."""
    from pgpaces.questions import volume

    plan = trial.plan
    warmup_ns = plan["warmup_ns"] + summary.cut_s * 1_000_000_000
    warmup = f" after {duration_text(warmup_ns)} warm-up" if warmup_ns else ""
    functions = by_functions(trial)
    how = "Python functions" if functions else f"{plan['protocol']} protocol"
    yield (
        f"load {plan['load_text']}; {_clients(plan)}, {how},"
        f" {duration_text(summary.seconds * 1e9)}{warmup}, seed {plan['seed']}"
    )
    yield f"rate {in_words(summary.rate, rate, '/s')} succeeded"
    if (queries := queries_of(trial, summary)) is not None:
        yield f"queries {volume.text(queries)}"
    lag = summary.generator.dispatch_p99
    dispatch = in_words(lag, ms, " ms") if lag else "-"
    busy = f"{100 * summary.generator.cpu:.0f} % CPU"
    by = f" by {plan['poll']}" if "poll" in plan else ""
    if "imported" not in plan:
        unit = "process" if functions else "thread"
        yield f"generator{by}: busiest {unit} {busy}, p99 dispatch lag {dispatch}"
    if summary.latency.p50 is None and (mean := summary.latency.mean):
        spread = milliseconds(summary.latency.stddev, "-")
        yield f"latency {in_words(mean, ms, ' ms')} on average, standard deviation {spread} ms"


def own_clients(plan: Mapping[str, Any]) -> int:
    """The clients of a trial's own load: those of workloads beside it are in the plan's number."""
    own = [component["clients"] for component in plan.get("lanes", ()) if not component["of"]]
    return sum(own) if own else int(plan["clients"])


def at_nodes(plan: Mapping[str, Any]) -> str:
    """Where the clients are, as words in brackets; nothing where all are at the primary."""
    return _where(plan.get("lanes", ()))


def _clients(plan: Mapping[str, Any]) -> str:
    """How many clients a trial has, and those beside them; where, unless all are at the primary."""
    components = plan.get("lanes", ())
    beside = [component for component in components if component["of"]]
    own = [component for component in components if not component["of"]]
    text = f"{own_clients(plan)} clients{_where(own)}"
    if every_ns := plan.get("start_every_ns"):
        text += f", one every {duration_text(every_ns)}"
    count = sum(component["clients"] for component in beside)
    return f"{text} and {count} beside them{_where(beside)}" if beside else text


def _where(components: Sequence[Mapping[str, Any]]) -> str:
    if {component["node"] for component in components} <= {"primary"}:
        return ""
    each = ", ".join(f"{component['clients']} at {component['node']}" for component in components)
    return f" ({each})"


def layout(server: Mapping[str, Any]) -> str:
    """What belongs to the server, as words behind its version."""
    count, pool = server.get("standbys", 0), server.get("pool") or {}
    parts = [f"{count} standby{'s' * (count > 1)}"] if count else []
    if pool:
        mode = f" in {pool['mode']} mode" if pool["pooler"] == "pgbouncer" else ""
        size = f"{pool['size']} connection{'s' * (pool['size'] > 1)}"
        parts.append(f"{pool['pooler']} {pool['version']}{mode} with {size}")
    return f" with {' and '.join(parts)}" if parts else ""


def judgement(validity: Validity) -> Iterable[str]:
    """Whether the trial is valid, why not, and what to know before one believes it, as lines."""
    yield "valid" if validity.state == "valid" else f"not valid: {'; '.join(validity.reasons)}"
    for text in validity.warnings:
        yield f"warning: {text}"


def _judged(validity: Validity, *, failed: bool) -> Iterable[str]:
    """The judgement of a trial; why it failed, the verdict has said already."""
    if not failed:
        return judgement(validity)
    rest = tuple(finding for finding in validity.findings if finding.source != "outcome")
    said = list(judgement(replace(validity, findings=rest)))
    return said if any(finding.severity == "invalid" for finding in rest) else said[1:]


def _said(trial: Trial, summary: Summary) -> Iterable[str]:
    """The verdict, and what a command did; of a command alone that, unless it has a limit."""
    from pgpaces.questions.bulk import words as bulk

    found = of_command(trial, summary)
    if found is not None and found.main:
        yield bulk.sentence(found)
    if not alone(trial) or trial.plan["limit_ns"]:
        yield verdict(summary, trial.plan, complete=trial.state == "finished")
    if found is not None and not found.main:
        yield f"beside it {found.label}: {bulk.sentence(found)}"
    told = found.label.partition("/")[0] if found is not None and not found.main else ""
    yield from beside(summary, trial.plan, told)


def answer(
    trial: Trial, summary: Summary, width: int = 80, more: Iterable[str] = ()
) -> list[RenderableType]:
    """The whole answer, to be printed one after the other; width in characters.

    more: lines behind the facts. What to know beside the numbers comes behind their tables.
    """
    from rich.text import Text

    from pgpaces.questions import servers

    failed = trial.state == "finished" and no_measurement(summary) is not None
    style = "bold red" if failed else "bold"
    parts: list[RenderableType] = [Text(line(said), style=style) for said in _said(trial, summary)]
    parts += [Text(line(said), style="bold") for said in _judged(summary.validity, failed=failed)]
    parts += [Text(line(fact)) for fact in (*facts(trial, summary), *more)]
    tables = [] if alone(trial) else list(_tables(trial, summary, width))
    for each in tables:
        parts += [Text(""), each]
    last = [Text(line(said)) for said in (*notes(trial, summary), *servers.lines(trial))]
    return [*parts, *([Text("")] if tables and last else []), *last]


def _tables(trial: Trial, summary: Summary, width: int) -> Iterable[Table]:
    yield times_table(summary, trial.plan, width)
    if len(summary.scripts) > 1:
        kind = "task" if by_functions(trial) else "script"
        yield scripts_table(summary, trial.plan, width, kind=kind)
    if summary.statements:
        yield statements_table(summary, width)
