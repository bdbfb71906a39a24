"""The answer of one trial: its verdict, values with names, findings, and what to do next.

Every sentence is a name of messages.toml with values. The screen says which values are shown where.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces.analysis import bulk, goal, next_step, waits
from pgpaces.analysis.accumulator import by_functions
from pgpaces.analysis.digest import Bucket
from pgpaces.analysis.server_counters import Written, written
from pgpaces.analysis.stopping import level, would_decide
from pgpaces.analysis.summary import Summary, volume_of
from pgpaces.analysis.summary import as_json as summary_json
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.analysis.validity import all_gave_up, no_measurement
from pgpaces.answers import bulk as commands
from pgpaces.answers import servers
from pgpaces.answers.trials import above, explains_nothing, layout, length, limits_of, of_summary
from pgpaces.core.findings import Finding, as_json
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import TIMES, header
from pgpaces.show.number_text import NOT_KNOWN, metric_cell, milliseconds, quantile, sparkline
from pgpaces.show.screen import Cells, Screen, bounds, table_of, told
from pgpaces.show.section import Headline, Next, Section, Table, Values
from pgpaces.spec.costs import monthly
from pgpaces.spec.load import CONSTANT
from pgpaces.spec.result import CLASSES, Trial, fields, plain

SCREEN = Screen(
    first=(
        *("load", "server", "throughput", "latency", "slowest", "input", "WAL", "failed"),
        *("tried again", "connections", "command", "background", "waits", "over time"),
    ),
    spare=("slowest", "tried again", "over time"),
    details=(
        *("run", "outcomes", "workload", "executed", "protocol", "queries", "generator"),
        *("failed with", "stopped", "validity", "note", "costs", "written", "observed"),
    ),
)
# The first cells of each row of a table, the times after them, and what stands for infinity.
Rows = list[tuple[Cells, Distribution, str]]
_SHOWN = ("p50", "p95", "p99")
# Columns that a narrow terminal leaves out, in this order.
_SPARE = ("mean", "p99.9", "p95", "p50", "retries", "due")
_STATEMENT_MAX = 36
_FAILURES_SHOWN = 2
_WAITS_SHOWN = 2
# With fewer observations, the shares of the wait events mean nothing.
_WAITS_MIN = 10


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
    steps = list(next_steps(trial, summary)) if in_store else []
    if whole:
        steps = [each for each in steps if each.question != "next-details"]
    return SCREEN.section(
        key="run",
        title=f"Run {trial.id}",
        headline=headline(trial, summary),
        values=[*values(trial, summary, series), *_details(trial, summary)],
        findings=list(_findings(trial, summary)),
        steps=steps,
        tables=tuple(_tables(trial, summary)),
        rows=tuple(of_summary(summary)),
        value=summary,
        document=partial(document, trial, summary),
        trials=(trial.id,),
        aside="" if whole else message("run-commands", run=trial.id[-8:]),
        whole=whole,
    )


def document(trial: Trial, summary: Summary) -> dict[str, Any]:
    """The setup of a trial and its summary as plain values."""
    command, queries = bulk.of(trial, summary), volume_of(trial, summary)
    cost, wrote = monthly(trial.host.costs), _written(trial, summary)
    return {
        "run": trial.id,
        "state": trial.state,
        "allowed": goal.allowed(trial),
        "workload": trial.workload.name,
        "scale": trial.workload.scale,
        "server": trial.server.version,
        "spec": dict(trial.spec),
        "setup": to_builtins(trial.setup),
        "notes": [as_json(note) for note in trial.notes],
        **({} if command is None else {bulk.SOURCE: bulk.as_json(command)}),
        **({} if queries is None else {"queries": plain(queries)}),
        **summary_json(summary),
        **({} if cost is None else {"costs": {**plain(cost), "year": cost.year}}),
        **({} if wrote is None else {"written": plain(wrote)}),
    }  # fmt: skip


def headline(trial: Trial, summary: Summary) -> Headline:
    """The verdict where there is a latency limit, else the throughput or the command's result."""
    command, limited, missed = bulk.of(trial, summary), goal.limited(trial), summary.missed
    if command and not limited and command.main and command.counts.due:
        result = str(commands.result(command))
        return Headline("", "", result) if command.whole else Headline("FAIL", "fail", result)
    if trial.state == "finished" and (failure := no_measurement(summary)) is not None:
        return Headline("FAIL", "fail", failure.sentence)
    mark, plan, done = verdict(trial, summary), trial.plan, summary.throughput
    word = "" if mark is None else goal.WORDS[mark]
    if missed is None:
        return Headline(word, "unknown", message("nothing-was-due"))
    if mark is None:
        return Headline("", "", message("run-throughput", throughput=done.value, ci=bounds(done)))
    one_ns = None if plan.limits else plan.limit_ns
    text = message(
        "run-missed-limits" if one_ns is None else "run-missed",
        missed=missed.value,
        due=summary.counts.due,
        limit_s=(one_ns or 0) / 1e9,
        ci=bounds(missed),
        allowed=goal.allowed(trial),
    )
    return Headline(word, mark, text)


def verdict(trial: Trial, summary: Summary) -> goal.Verdict | None:
    """None without a latency limit; unknown if the trial is not valid or has not finished."""
    if not goal.limited(trial):
        return None
    if summary.validity.state != "valid" or trial.state != "finished":
        return "unknown"
    return goal.verdict(summary.missed, goal.allowed(trial))


def _facts(trial: Trial, summary: Summary) -> dict[str, Any]:
    """What sentences say of the trial as a whole, by the names in messages.toml."""
    plan, load, counts, setup = trial.plan, trial.plan.load, summary.counts, trial.setup
    server, outages, imported = trial.server, summary.outages, trial.setup.imported is not None
    how = "Python functions" if by_functions(trial) else plan.protocol
    lag, ran_s = summary.generator.dispatch_p99, (trial.measured_ns or 0) / 1e9
    return {
        "rate": load.rate or 0.0,
        "pause_s": load.think_ns / 1e9,
        "protocol": how,
        "policy": "skip" if imported and counts.skipped else plan.policy,
        "warmup_s": plan.warmup / 1e9 + summary.cut_s,
        "clients": setup.own_clients,
        "measured_s": summary.seconds,
        "shape": str(load.shape),
        "host": server.target.get("host", ""),
        # Packages add their own version in parentheses.
        "version": server.version.partition(" ")[0],
        "layout": layout(server),
        "throughput": summary.throughput.value,
        "ci": None,
        "offered": counts.due / summary.seconds if summary.seconds else None,
        "transactions": summary.retried,
        "retries": summary.retries,
        "back_s": outages.some_down_s,
        "lost": summary.disconnects,
        **fields(outages, "down", "longest_s", "all_down_s"),
        **fields(trial.workload, "name", "scale"),
        "seed": plan.seed,
        **fields(counts, "due", *CLASSES),
        "poll": setup.poll or how,
        "cpu_percent": 100 * summary.generator.cpu,
        "lag_ms": lag.value if lag else None,
        "ran_s": ran_s,
        "level": level(ran_s),
        "state": summary.validity.state,
        "id": trial.id,
        "at": f"{trial.started_at:%Y-%m-%d %H:%M:%S %Z}",
    }


def values(trial: Trial, summary: Summary, series: Sequence[Bucket] = ()) -> Values:
    """What the first screen may show, each after its name."""
    alone, command = trial.workload.command_alone, bulk.of(trial, summary)
    facts = _facts(trial, summary)
    yield "load", commands.load(trial) if alone else told(_load(trial), facts)
    if trial.setup.imported is None:
        local = not facts["host"] or facts["host"].startswith(("/", "@"))
        name = "run-server-local" if local else "run-server-elsewhere"
        yield "server", told("run-server-managed" if trial.server.ours else name, facts)
    if not alone:
        yield from _of_load(trial, summary, facts)
    if command is not None and command.main:
        if goal.limited(trial):
            yield "command", commands.result(command)
        yield from commands.speeds(command)
    yield from (("failed", each) for each in [*_failures(summary)][:_FAILURES_SHOWN])
    if summary.retried:
        yield "tried again", told("run-retried", facts)
    if summary.disconnects or summary.outages.down:
        name = "outage-lasting" if summary.outages.down else "outage-over"
        yield "connections", told(name, facts)
    yield from (("background", each) for each in _background(trial, summary))
    if (waited := _waited(trial, summary)) is not None:
        yield "waits", waited
    numbers = [bucket.p95_ms for bucket in series]
    known_ms = [each for each in numbers if each is not None]
    if not alone and len(known_ms) > 1:
        peak = milliseconds(max(known_ms), above(trial))
        yield "over time", said("run-over-time", line=sparkline(numbers), peak=peak)


def _load(trial: Trial) -> str:
    """The name of the sentence about the load."""
    load = trial.plan.load
    if load.shape != CONSTANT:
        return "run-load-shaped"
    if load.model == "closed":
        return "run-load-thinking" if load.think_ns else "run-load-closed"
    return "run-load-open" if load.model == "open" else "run-load-paced"


def _of_load(trial: Trial, summary: Summary, facts: Mapping[str, Any]) -> Values:
    if trial.plan.load.model != "closed" and summary.seconds:
        yield "throughput", told("run-offered", facts)
    elif goal.limited(trial):
        yield "throughput", told("run-throughput", facts)
    if no_measurement(summary) is None:
        spread, beyond = summary.latency, above(trial)
        times = {name: quantile(spread.estimate(name), beyond) for name in _SHOWN}
        times["max"] = milliseconds(spread.max, beyond if spread.p50 else NOT_KNOWN)
        if known := {name: text for name, text in times.items() if text != NOT_KNOWN}:
            yield "latency", said("run-latency", times=known)
    yield from (("slowest", each) for each in _slowest(summary))


def _failures(summary: Summary) -> Iterator[Message]:
    """The errors, the most frequent first, each with the first line of its text."""
    for state, count in sorted(summary.failures.items(), key=lambda pair: -pair[1]):
        text = summary.messages.get(state, "").partition("\n")[0]
        yield said("run-failed", count=count, state=state, text=text)


def _slowest(summary: Summary) -> Iterator[Message]:
    """Of several scripts, that with the largest missed share, or else the longest median."""
    background = tuple(f"{each.name}/" for each in summary.background)
    able = [
        (each.missed.value, each.latency.p50.value, each)
        for each in summary.scripts
        if each.missed and each.latency.p50 and not each.name.startswith(background)
    ]
    *_, worst = max(able, key=lambda each: each[:2], default=(None,))
    p95 = worst and worst.latency.p95
    if worst and p95 and len(able) > 1 and p95.estimable and math.isfinite(p95.value):
        yield said("run-slowest", script=worst.name, p95_ms=p95.value, late=worst.counts.late)


def _background(trial: Trial, summary: Summary) -> Iterator[Message]:
    command, workload = bulk.of(trial, summary), ""
    if command is not None and not command.main:
        workload = command.label.partition("/")[0]
        result = str(commands.result(command))
        yield said("background-command", name=command.label, result=result)
    for each in summary.background:
        components = [one for one in trial.setup.components if one.of == each.name]
        limit = ", ".join(limits_of(components[0]))
        name = "background-missed-limit" if limit else "background-missed"
        facts = {
            "limit": limit,
            "name": each.name,
            "nodes": [one.node for one in components],
            "missed": each.missed and each.missed.value,
            "due": each.counts.due,
            "ci": bounds(each.missed),
        }
        if each.name != workload:
            yield told(name if each.missed else "background-idle", facts)


def _waited(trial: Trial, summary: Summary) -> Message | None:
    able = [(waits.observations(observed.waits), observed) for observed in trial.observed]
    observations, most = max(able, key=lambda pair: pair[0], default=(0, None))
    start, end = summary.cut_s, summary.cut_s + summary.seconds
    tracks = (each for each in trial.samples if (each.source, each.name) == ("host", "cpu_busy"))
    busy = [value for each in tracks for value in each.between(start, end)]
    facts: dict[str, Any] = {}
    if most is not None and observations >= _WAITS_MIN:
        node = "" if most.node in ("", "primary") else f"{most.node} "
        top = waits.top_events(most.waits, most=_WAITS_SHOWN)
        facts["shares"] = {f"{node}{name}": share for name, _, share in top if share >= 0.005}
    if busy:
        facts["cpu_percent"] = math.fsum(busy) / len(busy)
    kinds = {"shares": "run-waits", "cpu_percent": "run-machine"}
    return said(kinds.get(" ".join(facts), "run-waits-machine"), **facts) if facts else None


def _findings(trial: Trial, summary: Summary) -> Iterator[Finding]:
    """Why the trial is not valid, then what weakens it; not what the first line says already."""
    failure = no_measurement(summary) if trial.state == "finished" else None
    same = {failure.name, "nothing-due", "background-failed"} if failure else set()
    reasons = [f for f in summary.validity.findings if f.severity == "invalid"]
    yield from (each for each in reasons if each.name not in same)
    # A late generator makes requests late, so a PASS holds in spite of it.
    passed = verdict(trial, summary) == "pass"
    for each in summary.validity.findings:
        moot = explains_nothing(each) or (passed and each.name == "generator-late")
        if each.severity == "caution" and not moot:
            yield each


def next_steps(trial: Trial, summary: Summary) -> Iterator[Next]:
    """The command to continue with, unless the load cannot be repeated from a command line."""
    run, mark = trial.id[-8:], verdict(trial, summary)
    alone = trial.workload.command_alone
    repeatable = next_step.repeatable(trial) and not alone
    ran_s = (trial.measured_ns or 0) / 1e9 if trial.plan.auto else None
    needed = would_decide(summary.missed, summary.seconds, goal.allowed(trial), ran_s=ran_s)
    failed = trial.state == "finished" and no_measurement(summary) is not None
    if failed or all_gave_up(summary.validity.findings):
        yield Next(f"pgpaces show {run}", "next-details")
    elif summary.generator.limited and repeatable:
        # More threads of a process that stood still do so, too.
        more = f" -j {2 * next_step.threads(trial.setup)}"
        still = bool(summary.generator.still_s)
        yield Next(f"pgpaces run --like {run}{'' if still else more}", "next-generator")
    elif repeatable and mark == "unknown" and needed and trial.state == "finished":
        count, unit = length(needed)
        yield Next(f"pgpaces run --like {run} -T {count}{unit}", "next-longer")
    elif mark == "fail" and 2 * summary.counts.failed > summary.counts.missed:
        yield Next(f"pgpaces show {run}", "next-details")
    elif summary.counts.missed >= next_step.MISSED_MIN and mark != "pass" and not alone:
        close = mark == "unknown" and summary.validity.state == "valid"
        yield Next(f"pgpaces why {run}", "next-too-close" if close else "next-why")
    elif trial.state == "failed":
        yield Next(f"pgpaces show {run}", "next-details")
    elif trial.state == "interrupted":
        if repeatable:
            yield Next(f"pgpaces run --like {run}", "next-again")
    elif repeatable and next_step.in_sweep(trial):
        yield _onward(trial)


def _onward(trial: Trial) -> Next:
    if trial.plan.load.model == "closed" or not goal.limited(trial):
        levels = f"{next_step.clients(trial)} {next_step.multiples(trial, 1, 2, 4)}"
        return Next(f"pgpaces sweep --like {trial.id[-8:]} {levels}", "next-sweep")
    name = "next-capacity-users" if trial.plan.load.model == "paced" else "next-capacity"
    return Next(f"pgpaces capacity --like {trial.id[-8:]}", name)


def _details(trial: Trial, summary: Summary) -> Values:
    facts, command = _facts(trial, summary), bulk.of(trial, summary)
    yield "run", told("run-of", facts)
    yield "workload", told("run-workload", facts)
    if command is not None:
        yield from (("executed", each) for each in commands.lines(trial, command))
    if not trial.workload.command_alone:
        yield "outcomes", told("run-outcomes", facts)
        yield "protocol", told("run-protocol", facts)
        if (own := volume_of(trial, summary)) is not None:
            minute, day = own.per_minute, own.per_day
            queries: dict[str, Any] = {"queries": own.queries, "measured_s": own.seconds}
            queries |= {"per_minute": minute.value, "per_minute_ci": bounds(minute)}
            queries |= {"per_day": day.value, "per_day_ci": bounds(day)}
            yield "queries", said("run-queries", **queries)
        if trial.setup.imported is None:
            yield "generator", told("run-generator", facts)
    yield from (("failed with", each) for each in _failures(summary))
    if trial.plan.auto and trial.state == "finished" and trial.measured_ns:
        yield "stopped", told("run-stopped", facts)
    yield "validity", told("run-validity", facts)
    yield from (("note", each) for each in trial.notes)
    for note in summary.validity.findings:
        if note.severity == "nothing" and note.name != bulk.WORK:
            yield "note", note
    if (cost := monthly(trial.host.costs)) is not None:
        yield "costs", said("costs-month", year=cost.year, **to_builtins(cost))
    if (wrote := _written(trial, summary)) is not None:
        name = "written-a-day" if wrote.checkpoints or not wrote.bytes_a_day else "written-at-least"
        yield "written", said(name, bytes_a_day=wrote.bytes_a_day)
    yield from (("observed", each) for each in servers.lines(trial))


def _written(trial: Trial, summary: Summary) -> Written | None:
    return written(trial.samples, summary.cut_s, summary.cut_s + summary.seconds)


def _tables(trial: Trial, summary: Summary) -> Iterator[Table]:
    if trial.workload.command_alone:
        return
    times = {"latency": above(trial), "lag": NOT_KNOWN, "service": NOT_KNOWN}
    rows: Rows = [([("ms", name)], getattr(summary, name), text) for name, text in times.items()]
    yield _table("title-run-times", rows)
    if len(summary.scripts) > 1:
        kind, title = "script", "title-run-scripts"
        if by_functions(trial):
            kind, title = "task", "title-run-tasks"
        rows = []
        for script in summary.scripts:
            missed = (header("missed"), metric_cell("missed", script.missed))
            first: Cells = [(kind, script.name), ("due", str(script.counts.due)), missed]
            rows.append((first, script.latency, above(trial, script.name)))
        yield _table(title, rows, unit="Latency in ms.")
    every = summary.statements
    counted = [n for n in ("failed", "retries") if any(getattr(each, n) for each in every)]
    rows = []
    for each in every:
        text = f"{each.script}:{each.line} {' '.join(each.text.split())}"
        text = text if len(text) <= _STATEMENT_MAX else f"{text[: _STATEMENT_MAX - 1]}…"
        numbers = [(name, str(getattr(each, name))) for name in counted]
        first = [("statement", text), ("done", str(each.times.count)), *numbers]
        rows.append((first, each.times, NOT_KNOWN))
    if rows:
        yield _table("title-run-statements", rows, unit="Times in ms.")


def _table(title: str, rows: Rows, unit: str = "") -> Table:
    """A table of distributions: the first cells of each, and what stands for infinity in it."""
    table = table_of(
        title,
        (
            [
                *first,
                *((name, metric_cell(name, spread.estimate(name), beyond)) for name in TIMES),
                ("max", milliseconds(spread.max, beyond if spread.p50 else NOT_KNOWN)),
            ]
            for first, spread, beyond in rows
        ),
        spare=_SPARE,
    )
    dashes = any(cell.ends == NOT_KNOWN for row in table.rows for cell in row)
    few = f"{NOT_KNOWN}: too few transactions for an interval." if dashes else ""
    return replace(table, note=" ".join(filter(None, (unit, few))))
