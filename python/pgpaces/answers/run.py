"""The section of one trial: a verdict, a few facts, one sparkline, and then every table.

A trial and its summary in, a section out. Texts are unescaped; the forms of output escape them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from pgpaces.analysis import bulk, cells, goal, next_step, waits
from pgpaces.analysis.accumulator import by_functions
from pgpaces.analysis.digest import Bucket
from pgpaces.analysis.outcome import all_gave_up, no_measurement
from pgpaces.analysis.spread import Spread
from pgpaces.analysis.stats import quantile_ranks
from pgpaces.analysis.summary import Summary
from pgpaces.analysis.summary import as_json as summary_json
from pgpaces.analysis.volume import as_json as volume_json
from pgpaces.analysis.volume import of as queries_of
from pgpaces.answers import costs, servers
from pgpaces.answers.again import length
from pgpaces.answers.bulk import words as commands
from pgpaces.answers.trials import (
    above,
    clients,
    copied,
    judgment,
    layout,
    limits,
    outages,
    queries_text,
)
from pgpaces.core.findings import Finding, as_json
from pgpaces.core.metrics import TIMES, header, shown
from pgpaces.core.units import duration_text, measured_text
from pgpaces.show.numbers import (
    NOT_KNOWN,
    ci,
    in_words,
    metric_cell,
    milliseconds,
    ms,
    percent,
    plural,
    quantile,
    rate,
    sparkline,
)
from pgpaces.show.section import Headline, Section, Sentence, Table, TableCell
from pgpaces.spec.result import Estimate, Trial

_SHOWN = ("p50", "p95", "p99")
_TIMES = (*TIMES, "max")
# Columns that a narrow terminal leaves out, in this order.
_SPARE = ("mean", "p99.9", "p95", "p50", "retries", "due")
_STATEMENT_MAX = 36
_FAILURES_SHOWN = 2
# No longer load is recommended.
_LONG_S = 86_400
_WAITS_SHOWN = 3
# With fewer observations, the shares of the wait events mean nothing.
_WAITS_MIN = 10
# The next commands that read the run from the store.
_READS_IT = ("pgpaces show ", "pgpaces why ")
# Notes that nearly every run has, those on cost only if it is low.
_ROUTINE = ("io-timing-off", "statements-uncounted", "store-on-disk")
_COSTS, _LOW_PERCENT = ("monitor-cost", "machine-monitor-cost"), 0.95


def section(
    trial: Trial,
    summary: Summary,
    series: Sequence[Bucket] = (),
    *,
    whole: bool = False,
    in_store: bool = True,
) -> Section:
    """The answer of a trial. series: its buckets, for the sparkline over time.

    whole: all of it is shown, without commands that would show the same again. in_store: commands
    can read it from the store.
    """
    useless = _READS_IT if not in_store else _READS_IT[:1] if whole else ()
    return Section(
        key="run",
        title=f"Run {trial.id}",
        sentences=tuple(_sentences(trial, summary, whole=whole)),
        headline=headline(trial, summary),
        note=_context(trial, summary),
        facts=tuple(_facts(trial, summary, series)),
        next=tuple(each for each in next_steps(trial, summary) if not each.startswith(useless)),
        tables=tuple(_tables(trial, summary)),
        parts=(Section("details", "Details", facts=tuple(_details(trial, summary, in_store))),),
        value=summary,
        trials=(trial.id,),
        aside=() if whole else ("details: pgpaces show", "page: pgpaces report -o run.html"),
    )


def document(trial: Trial, summary: Summary) -> dict[str, Any]:
    """The answer of a trial as plain values; the verdict's outcome is null without a limit."""
    command, queries = bulk.of(trial, summary), queries_of(trial, summary)
    top, economy = headline(trial, summary), costs.of_run(trial, summary)
    return {
        "run": trial.id,
        "state": trial.state,
        "verdict": {
            "outcome": top.word or None, "text": top.text, "allowed": goal.allowed(trial),
        },
        "workload": trial.workload.name,
        "scale": trial.workload.scale,
        "server": trial.server.version,
        "plan": to_builtins(trial.plan),
        "notes": [as_json(note) for note in trial.notes],
        **({} if command is None else {bulk.SOURCE: bulk.as_json(command)}),
        **({} if queries is None else {"queries": volume_json(queries)}),
        **summary_json(summary),
        **({} if economy is None else {"costs": costs.as_json(economy)}),
    }  # fmt: skip


def headline(trial: Trial, summary: Summary) -> Headline:
    """The verdict where there is a latency limit, else the throughput or the command's result."""
    command = bulk.of(trial, summary)
    if command and not goal.limited(trial) and (head := commands.headline(command)) is not None:
        return head
    if trial.state == "finished" and (failure := no_measurement(summary)) is not None:
        return Headline("FAIL", "fail", failure.sentence)
    if summary.missed is None:
        text = f"nothing was due; the trial is {cells.defect(trial, summary)}"
        return Headline(goal.WORDS["unknown"] if goal.limited(trial) else "", "unknown", text)
    if not goal.limited(trial):
        done = summary.throughput
        return Headline("", "", f"{shown('throughput', done.value)}{ci(done, rate)}")
    share = goal.allowed(trial)
    defect = cells.defect(trial, summary)
    mark = "unknown" if defect else goal.verdict(summary.missed, share)
    text = f"{_missed(summary.missed)}, allowed {100 * share:.4g}%"
    if defect:
        text += f"; the trial is {defect}"
    elif (needed := goal.needed_s(summary.missed, summary.seconds, share)) is not None:
        text += f": {_deciding(needed, trial)}"
    return Headline(goal.WORDS[mark], mark, text)


def _missed(missed: Estimate) -> str:
    return f"{percent(missed.value)}% missed{ci(missed, percent, '%')}"


def _deciding(needed: float, trial: Trial) -> str:
    """How long a trial would have to be for a verdict, as an option."""
    if needed > _LONG_S:
        return "no reasonable time can decide"
    if trial.plan.transactions:
        count, unit = length(needed)
        return f"about {count} {unit} of load can decide"
    return f"-T {_length(needed)} can decide"


def _length(value: float) -> str:
    """Seconds as a round duration, as an option takes it: 90s, 20min."""
    count, unit = length(value)
    return f"{count}{unit}"


def _context(trial: Trial, summary: Summary) -> str:
    plan, server = trial.plan, trial.server
    if trial.workload.command_alone and bulk.of(trial, summary) is not None:
        parts = [trial.workload.name, commands.load_text(trial)]
    else:
        load = plan.load_text.replace("open, ", "open ")
        parts = [trial.workload.name, load]
        if plan.model != "open":
            parts.append(plural(plan.own_clients, "client"))
        parts[-1] += f" for {measured_text(summary.seconds * 1e9)}"
    limit = limits(plan)
    host = server.target.get("host", "")
    where = "managed" if server.ours else "" if host.startswith(("/", "@")) else host
    version = f"PostgreSQL {server.version}{layout(server)}" + (f" ({where})" if where else "")
    return ", ".join([*parts, *([f"limit {limit}"] if limit else []), version])


def _facts(trial: Trial, summary: Summary, series: Sequence[Bucket]) -> Iterator[tuple[str, str]]:
    if not trial.workload.command_alone:
        yield from _of_load(trial, summary)
    command = bulk.of(trial, summary)
    if command is not None and command.main and goal.limited(trial):
        yield "command", commands.sentence(command)
    states = sorted(summary.failures.items(), key=lambda pair: -pair[1])
    for state, count in states[:_FAILURES_SHOWN]:
        lines = summary.messages.get(state, "").splitlines()
        more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
        yield "failed", f"{count:,} with {state}: {lines[0] if lines else 'no message'}{more}"
    if len(states) > _FAILURES_SHOWN:
        rest = states[_FAILURES_SHOWN:]
        yield "failed", f"{sum(count for _, count in rest):,} in {len(rest)} other ways"
    if summary.retried:
        yield "tried again", f"{summary.retried} transactions, {summary.retries} times in all"
    if summary.disconnects or summary.outages.down:
        yield "connections", outages(summary, trial.notes)
    yield from (("background", text) for text in _background(trial, summary))
    if text := _waited(trial, summary):
        yield "waits", text
    economy = costs.of_run(trial, summary)
    yield from () if economy is None else costs.facts(economy, summary)
    if (drawn := _over_time(series, above(trial.plan))) and not trial.workload.command_alone:
        yield "over time", drawn


def _of_load(trial: Trial, summary: Summary) -> Iterator[tuple[str, str]]:
    counts, limit = summary.counts, goal.limited(trial)
    if limit or trial.plan.model != "closed":
        text = shown("throughput", summary.throughput.value)
        if trial.plan.model != "closed" and summary.seconds:
            text += f" of {rate(counts.due / summary.seconds)} offered"
        yield "throughput", text
    parts = [f"{counts.on_time:,} on time" if limit else f"{counts.on_time:,} succeeded"]
    for name in ("late", "skipped", "failed", "unfinished"):
        count = getattr(counts, name)
        if count or name == "failed" or (name == "late" and limit):
            parts.append(f"{count:,} {name}")
    yield "outcomes", f"{counts.due:,} due: {', '.join(parts)}"
    if no_measurement(summary) is None:
        spread, beyond = summary.latency, above(trial.plan)
        numbers: list[str] = []
        dashes: list[str] = []
        for name in _SHOWN:
            value = quantile(spread.estimate(name), beyond)
            (dashes if value == NOT_KNOWN else numbers).append(f"{name} {value}")
        numbers.append(f"max {milliseconds(spread.max, beyond if spread.p50 else NOT_KNOWN)} ms")
        yield "latency", "   ".join([*numbers, *dashes])
    if slowest := _slowest(trial, summary):
        yield "slowest", slowest


def _slowest(trial: Trial, summary: Summary) -> str:
    """The script with the largest missed share, or else the longest median, of several."""
    background = tuple(f"{each.name}/" for each in summary.background)
    own = [each for each in summary.scripts if not each.name.startswith(background)]
    able = [each for each in own if each.missed and each.latency.p50]
    if len(able) < 2:
        return ""
    worst = max(able, key=lambda s: (s.missed.value if s.missed else 0, _p50(s.latency)))
    lost = worst.missed.value if worst.missed else 0.0
    missed = f"{percent(lost)}% missed, " if lost else ""
    beyond = above(trial.plan, worst.name)
    return f"{worst.name}: {missed}p50 {milliseconds(_p50(worst.latency), beyond)} ms"


def _p50(spread: Spread) -> float:
    return spread.p50.value if spread.p50 else 0.0


def _background(trial: Trial, summary: Summary) -> Iterator[str]:
    command, workload = bulk.of(trial, summary), ""
    if command is not None and not command.main:
        workload = command.label.partition("/")[0]
        yield f"{command.label}: {commands.sentence(command)}"
    for each in summary.background:
        if each.name == workload:
            continue
        components = [one for one in trial.plan.components if one.of == each.name]
        text = "nothing was due"
        if each.missed is not None:
            limit = limits(components[0])
            text = f"{_missed(each.missed)} of {each.counts.due:,} due"
            text += f", limit {limit}" if limit else ""
        yield f"{each.name} on {', '.join(one.node for one in components)}: {text}"


def _waited(trial: Trial, summary: Summary) -> str:
    shares = ""
    able = [(waits.observations(observed.waits), observed) for observed in trial.observed]
    observations, busiest = max(able, key=lambda pair: pair[0], default=(0, None))
    if busiest is not None and observations >= _WAITS_MIN:
        top = waits.top(busiest.waits, most=_WAITS_SHOWN)
        where = f"{busiest.node}: " if busiest.node not in ("", "primary") else ""
        listed = (f"{name} {100 * share:.0f}%" for name, _, share in top if share >= 0.005)
        shares = f"{where}{', '.join(listed)}"
    start, end = summary.cut_s, summary.cut_s + summary.seconds
    busy = [
        value
        for each in trial.samples
        if each.source == "host" and each.name == "cpu_busy"
        for value in each.between(start, end)
    ]
    cpu = f"host CPU {math.fsum(busy) / len(busy):.0f}%" if busy else ""
    return "; ".join(filter(None, (shares, cpu)))


def _over_time(series: Sequence[Bucket], beyond: str) -> str:
    values = [bucket.p95_ms for bucket in series]
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return ""
    ends = dict.fromkeys(milliseconds(end, beyond) for end in (min(numbers), max(numbers)))
    return f"{sparkline(values)}  p95, {' to '.join(ends)} ms"


def _sentences(trial: Trial, summary: Summary, *, whole: bool) -> Iterator[Sentence]:
    """Why the trial is not valid, else its first warning; why a percentile has no interval."""
    failure = no_measurement(summary) if trial.state == "finished" else None
    reasons = [f for f in summary.validity.findings if f.severity == "invalid"]
    if failure is not None:  # the first line says it
        same = {failure.name, "nothing-due", "background-failed"}
        reasons = [each for each in reasons if each.name not in same]
    cautions = summary.validity.warnings
    for each in reasons:
        yield Sentence(str(each), "warning")
    if cautions and not reasons:
        more = len(cautions) - 1
        rest = f" ({plural(more, 'more warning')}: pgpaces show {trial.id[-8:]})"
        yield Sentence(cautions[0] + (rest if more and not whole else ""), "warning")
    if not trial.workload.command_alone and (footnote := _too_few(trial, summary)):
        yield Sentence(footnote, "note")


def _too_few(trial: Trial, summary: Summary) -> str:
    """The first percentile without an interval, and how many transactions would give it one."""
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        time = summary.latency.estimate(name)
        if time is None or time.estimable or math.isinf(time.value) or not time.n:
            continue
        if quantile_ranks(q, time.n) is not None:
            return f"transactions came in bursts: too few independent ones for a {name}"
        enough = next(n for n in range(time.n, 100_000) if quantile_ranks(q, n) is not None)
        count = summary.counts.due * enough / time.n
        due = summary.counts.due
        text = f"{due:,} transactions are" if due != 1 else "1 transaction is"
        text += f" too few for a {name}"
        if trial.plan.duration_ns and summary.counts.due > 1:
            needed = _length(summary.seconds * count / due)
            return f"{text}; about {_round(count)} give one: -T {needed}"
        return f"{text}; about {_round(count)} give one"
    return ""


def _round(count: float) -> str:
    size = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return f"{math.ceil(count / size) * size:,}"


def next_steps(trial: Trial, summary: Summary) -> Iterator[str]:
    """The command to continue with, unless the load cannot be repeated from a command line."""
    run, top = trial.id[-8:], headline(trial, summary)
    alone = trial.workload.command_alone
    repeatable = next_step.repeatable(trial) and not alone
    needed = goal.needed_s(summary.missed, summary.seconds, goal.allowed(trial))
    failed = trial.state == "finished" and no_measurement(summary) is not None
    if failed or all_gave_up(summary.validity.findings):
        yield f"pgpaces show {run}"
    elif summary.generator.limited and repeatable:
        # More threads of a process that stood still do so, too.
        more = f" -j {2 * next_step.threads(trial.plan)}"
        yield f"pgpaces run --like {run}{'' if summary.generator.still_s else more}"
    elif summary.counts.missed >= next_step.MISSED_MIN and top.mark != "pass" and not alone:
        yield f"pgpaces why {run}"
    elif trial.state == "failed":
        yield f"pgpaces show {run}"
    elif trial.state == "interrupted":
        if repeatable:
            yield f"pgpaces run --like {run}"
    elif repeatable and top.mark == "unknown" and needed and needed <= _LONG_S:
        yield f"pgpaces run --like {run} -T {_length(needed)}"
    elif repeatable and next_step.in_sweep(trial):
        yield _onward(trial)


def _onward(trial: Trial) -> str:
    if trial.plan.model == "closed" or not goal.limited(trial):
        levels = f"{next_step.clients(trial)} {next_step.multiples(trial, 1, 2, 4)}"
        return f"pgpaces sweep --like {trial.id[-8:]} {levels}"
    return f"pgpaces capacity --like {trial.id[-8:]}"


def _details(trial: Trial, summary: Summary, in_store: bool) -> Iterator[tuple[str, str]]:
    workload, plan = trial.workload, trial.plan
    yield "run", f"{trial.id}, scale {workload.scale}, seed {plan.seed}"
    yield from (("data", text) for text in copied(workload.prepared))
    if (command := bulk.of(trial, summary)) is not None:
        yield from (("command", text) for text in commands.lines(trial, command))
    if not trial.workload.command_alone:
        plan, generator = trial.plan, summary.generator
        functions = by_functions(trial)
        how = "Python functions" if functions else f"{plan.protocol} protocol"
        warmup_ns = plan.warmup_ns + summary.cut_s * 1_000_000_000
        warmup = f" after {duration_text(warmup_ns)} warm-up" if warmup_ns else ""
        yield "load", f"{plan.load_text}; {clients(plan)}, {how}, policy {plan.policy}{warmup}"
        if (queries := queries_of(trial, summary)) is not None:
            yield "queries", queries_text(queries)
        if plan.imported is None:
            lag = generator.dispatch_p99
            dispatch = in_words(lag, ms, " ms") if lag else NOT_KNOWN
            unit = "process" if functions else "thread"
            by = f"by {plan.poll}, " if plan.poll else ""
            busy = f"{by}busiest {unit} {100 * generator.cpu:.0f}% CPU"
            yield "generator", f"{busy}, p99 dispatch lag {dispatch}"
    for state, count in sorted(summary.failures.items()):
        yield f"failed with {state}", f"{count:,} ({summary.messages.get(state) or 'no message'})"
    yield from (("validity", text) for text in judgment(summary.validity))
    yield from (("note", text) for text in _notes(trial, summary, in_store))
    yield from (("server", text) for text in servers.lines(trial))


def _notes(trial: Trial, summary: Summary, in_store: bool) -> Iterator[str]:
    """The notes of a trial; those that nearly every run has are only counted if it is stored."""
    notes = [
        *trial.notes,
        *(f for f in summary.validity.findings if f.severity == "nothing" and f.name != bulk.WORK),
    ]
    routine = [note for note in notes if in_store and _is_routine(note)]
    yield from (str(note) for note in notes if note not in routine)
    if count := len(routine):
        yield (
            f"{count} more on the cost of monitoring and storing, and on settings that would show"
            f" more: pgpaces show {trial.id[-8:]} --json"
        )


def _is_routine(note: Finding) -> bool:
    costs = [value for value in note.values.values() if isinstance(value, float)]
    cheap = max(costs, default=0) < _LOW_PERCENT
    return note.name in _ROUTINE or (note.name in _COSTS and cheap)


def _tables(trial: Trial, summary: Summary) -> Iterator[Table]:
    if trial.workload.command_alone:
        return
    plan = trial.plan
    ends = {"latency": above(plan), "lag": NOT_KNOWN, "service": NOT_KNOWN}
    rows = tuple(
        (TableCell(name), *_times(getattr(summary, name), text)) for name, text in ends.items()
    )
    yield _table("times", "Times", ("ms", *_TIMES), rows=rows)
    if len(summary.scripts) > 1:
        kind = "task" if by_functions(trial) else "script"
        rows = tuple(
            (
                TableCell(each.name),
                TableCell(str(each.counts.due)),
                metric_cell("missed", each.missed),
                *_times(each.latency, above(plan, each.name)),
            )
            for each in summary.scripts
        )
        names = (kind, "due", header("missed"), *_TIMES)
        yield _table("scripts", f"Each {kind}", names, rows=rows, unit="Latency in ms.")
    if not summary.statements:
        return
    counted = [n for n in ("failed", "retries") if any(getattr(s, n) for s in summary.statements)]
    lines = []
    for statement in summary.statements:
        text = f"{statement.script}:{statement.line} {' '.join(statement.text.split())}"
        text = text if len(text) <= _STATEMENT_MAX else f"{text[: _STATEMENT_MAX - 1]}…"
        numbers = (statement.times.count, *(getattr(statement, name) for name in counted))
        lines.append((
            *(TableCell(str(each)) for each in (text, *numbers)),
            *_times(statement.times, NOT_KNOWN),
        ))  # fmt: skip
    columns = ("statement", "done", *counted, *_TIMES)
    yield _table("statements", "Each statement", columns, rows=tuple(lines), unit="Times in ms.")


def _table(
    key: str,
    title: str,
    columns: tuple[str, ...],
    *,
    rows: tuple[tuple[TableCell, ...], ...],
    unit: str = "",
) -> Table:
    dashes = any(cell.ends == NOT_KNOWN for row in rows for cell in row)
    few = f"{NOT_KNOWN}: too few transactions for an interval." if dashes else ""
    note = " ".join(filter(None, (unit, few)))
    return Table(f"run-{key}", title, columns, 1, rows, note, spare=_SPARE)


def _times(spread: Spread, beyond: str) -> Iterator[TableCell]:
    """Values with their intervals; the maximum is an observed value and has none."""
    for name in TIMES:
        yield metric_cell(name, spread.estimate(name), beyond)
    yield TableCell(milliseconds(spread.max, beyond if spread.p50 else NOT_KNOWN))
