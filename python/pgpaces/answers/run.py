"""The answer of one trial: its verdict, values with names, findings, and what to do next.

Every sentence is a name of messages.toml with values. The screen says which values are shown where.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import to_builtins

from pgpaces.analysis import bulk, goal, next_step, waits
from pgpaces.analysis.accumulator import by_functions
from pgpaces.analysis.digest import Bucket
from pgpaces.analysis.server_counters import Written, written
from pgpaces.analysis.stopping import level, would_decide
from pgpaces.analysis.summary import Summary
from pgpaces.analysis.summary import as_json as summary_json
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.analysis.validity import all_gave_up, no_measurement
from pgpaces.analysis.volume import volume_of
from pgpaces.answers import bulk as commands
from pgpaces.answers import numbers, servers
from pgpaces.answers.trials import above, explains_nothing, layout, length, limits_of
from pgpaces.core.findings import Finding, as_json
from pgpaces.core.messages import Message, message, said
from pgpaces.core.metrics import TIMES, header
from pgpaces.show.numbers import NOT_KNOWN, metric_cell, milliseconds, quantile, sparkline
from pgpaces.show.screen import Screen, bounds
from pgpaces.show.section import Headline, Next, Section, Table, TableCell, Values
from pgpaces.spec.costs import monthly
from pgpaces.spec.load import CONSTANT
from pgpaces.spec.result import CLASSES, Trial, plain

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
        rows=tuple(numbers.of_summary(summary)),
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
    command, limited = bulk.of(trial, summary), goal.limited(trial)
    if command and not limited and command.main and command.counts.due:
        told = str(commands.result(command))
        return Headline("", "", told) if command.whole else Headline("FAIL", "fail", told)
    if trial.state == "finished" and (failure := no_measurement(summary)) is not None:
        return Headline("FAIL", "fail", failure.sentence)
    mark = verdict(trial, summary)
    word = "" if mark is None else goal.WORDS[mark]
    if summary.missed is None:
        return Headline(word, "unknown", message("nothing-was-due"))
    if mark is None:
        done = summary.throughput
        return Headline("", "", message("run-throughput", throughput=done.value, ci=bounds(done)))
    return Headline(word, mark, str(_missed(trial, summary)))


def verdict(trial: Trial, summary: Summary) -> goal.Verdict | None:
    """None without a latency limit; unknown if the trial is not valid or has not finished."""
    if not goal.limited(trial):
        return None
    if summary.validity.state != "valid" or trial.state != "finished":
        return "unknown"
    return goal.verdict(summary.missed, goal.allowed(trial))


def _missed(trial: Trial, summary: Summary) -> Message:
    missed, plan = summary.missed, trial.plan
    assert missed is not None
    one = plan.limit_ns is not None and not plan.limits
    values = {
        "missed": missed.value,
        "due": summary.counts.due,
        "ci": bounds(missed),
        "allowed": goal.allowed(trial),
    }
    if one:
        return said("run-missed", limit_s=(plan.limit_ns or 0) / 1e9, **values)
    return said("run-missed-limits", **values)


def values(trial: Trial, summary: Summary, series: Sequence[Bucket] = ()) -> Values:
    """What the first screen may show, each after its name."""
    alone, command = trial.workload.command_alone, bulk.of(trial, summary)
    yield "load", commands.load(trial) if alone else _load(trial, summary)
    if trial.setup.imported is None:
        yield "server", _server(trial)
    if not alone:
        yield from _of_load(trial, summary)
    if command is not None:
        if command.main and goal.limited(trial):
            yield "command", commands.result(command)
        if command.main:
            yield from commands.speeds(command)
    yield from (("failed", each) for each in [*_failures(summary)][:_FAILURES_SHOWN])
    if summary.retried:
        counts = {"transactions": summary.retried, "retries": summary.retries}
        yield "tried again", said("run-retried", **counts)
    if summary.disconnects or summary.outages.down:
        yield "connections", _outages(summary)
    yield from (("background", each) for each in _background(trial, summary))
    if (waited := _waited(trial, summary)) is not None:
        yield "waits", waited
    if not alone and (drawn := _over_time(series, above(trial))) is not None:
        yield "over time", drawn


def _failures(summary: Summary) -> Iterator[Message]:
    """The errors, the most frequent first, each with the first line of its text."""
    for state, count in sorted(summary.failures.items(), key=lambda pair: -pair[1]):
        text = summary.messages.get(state, "").partition("\n")[0]
        yield said("run-failed", count=count, state=state, text=text)


def _outages(summary: Summary) -> Message:
    """The connections that were lost, and for how long."""
    outages = summary.outages
    values = {
        "lost": summary.disconnects,
        "longest_s": outages.longest_s,
        "all_down_s": outages.all_down_s,
    }
    if outages.down:
        return said("outage-lasting", down=outages.down, **values)
    return said("outage-over", back_s=outages.some_down_s, **values)


def _load(trial: Trial, summary: Summary) -> Message:
    load, seconds = trial.plan.load, summary.seconds
    rate = load.rate or 0.0
    values: dict[str, Any] = {"clients": trial.setup.own_clients, "measured_s": seconds}
    if load.shape != CONSTANT:
        values["shape"] = str(load.shape)
        return said("run-load-shaped", rate=rate, **values)
    if load.model == "paced":
        return said("run-load-paced", rate=rate, **values)
    if load.model == "open":
        return said("run-load-open", rate=rate, **values)
    if load.think_ns:
        return said("run-load-thinking", pause_s=load.think_ns / 1e9, **values)
    return said("run-load-closed", **values)


def _server(trial: Trial) -> Message:
    server, host = trial.server, trial.server.target.get("host", "")
    # Packages add their own version in parentheses.
    values = {"version": server.version.partition(" ")[0], "layout": layout(server)}
    if server.ours:
        return said("run-server-managed", **values)
    if not host or host.startswith(("/", "@")):
        return said("run-server-local", **values)
    return said("run-server-elsewhere", host=host, **values)


def _of_load(trial: Trial, summary: Summary) -> Values:
    counts, limited = summary.counts, goal.limited(trial)
    throughput = summary.throughput.value
    if trial.plan.load.model != "closed" and summary.seconds:
        offered = counts.due / summary.seconds
        yield "throughput", said("run-offered", throughput=throughput, offered=offered)
    elif limited:
        yield "throughput", said("run-throughput", throughput=throughput, ci=None)
    if no_measurement(summary) is None:
        spread, beyond = summary.latency, above(trial)
        times = {name: quantile(spread.estimate(name), beyond) for name in _SHOWN}
        times["max"] = milliseconds(spread.max, beyond if spread.p50 else NOT_KNOWN)
        known = {name: text for name, text in times.items() if text != NOT_KNOWN}
        if known:
            yield "latency", said("run-latency", times=known)
    if (slowest := _slowest(summary)) is not None:
        yield "slowest", slowest


def _slowest(summary: Summary) -> Message | None:
    """The script with the largest missed share, or else the longest median, of several.

    None if its 95th percentile is unknown.
    """
    background = tuple(f"{each.name}/" for each in summary.background)
    own = [each for each in summary.scripts if not each.name.startswith(background)]
    able = [
        (each.missed.value, each.latency.p50.value, each)
        for each in own
        if each.missed and each.latency.p50
    ]
    if len(able) < 2:
        return None
    *_, worst = max(able, key=lambda each: each[:2])
    p95 = worst.latency.p95
    if p95 is None or not p95.estimable or math.isinf(p95.value):
        return None
    return said("run-slowest", script=worst.name, p95_ms=p95.value, late=worst.counts.late)


def _background(trial: Trial, summary: Summary) -> Iterator[Message]:
    command, workload = bulk.of(trial, summary), ""
    if command is not None and not command.main:
        workload = command.label.partition("/")[0]
        result = str(commands.result(command))
        yield said("background-command", name=command.label, result=result)
    for each in summary.background:
        if each.name == workload:
            continue
        components = [one for one in trial.setup.components if one.of == each.name]
        values: dict[str, Any] = {"name": each.name, "nodes": [one.node for one in components]}
        if each.missed is None:
            yield said("background-idle", **values)
            continue
        values |= {"missed": each.missed.value, "due": each.counts.due, "ci": bounds(each.missed)}
        if limit := ", ".join(limits_of(components[0])):
            yield said("background-missed-limit", limit=limit, **values)
        else:
            yield said("background-missed", **values)


def _waited(trial: Trial, summary: Summary) -> Message | None:
    able = [(waits.observations(observed.waits), observed) for observed in trial.observed]
    observations, most = max(able, key=lambda pair: pair[0], default=(0, None))
    start, end = summary.cut_s, summary.cut_s + summary.seconds
    busy = [
        value
        for each in trial.samples
        if each.source == "host" and each.name == "cpu_busy"
        for value in each.between(start, end)
    ]
    cpu = math.fsum(busy) / len(busy) if busy else None
    if most is None or observations < _WAITS_MIN:
        return None if cpu is None else said("run-machine", cpu_percent=cpu)
    top = waits.top_events(most.waits, most=_WAITS_SHOWN)
    shares = {name: share for name, _, share in top if share >= 0.005}
    if most.node not in ("", "primary"):
        shares = {f"{most.node} {name}": share for name, share in shares.items()}
    if cpu is None:
        return said("run-waits", shares=shares)
    return said("run-waits-machine", shares=shares, cpu_percent=cpu)


def _over_time(series: Sequence[Bucket], beyond: str) -> Message | None:
    values = [bucket.p95_ms for bucket in series]
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return None
    peak = milliseconds(max(numbers), beyond)
    return said("run-over-time", line=sparkline(values), peak=peak)


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
    workload, plan, counts = trial.workload, trial.plan, summary.counts
    yield "run", said("run-of", id=trial.id, at=f"{trial.started_at:%Y-%m-%d %H:%M:%S %Z}")
    values = {"name": workload.name, "scale": workload.scale, "seed": plan.seed}
    yield "workload", said("run-workload", **values)
    if (command := bulk.of(trial, summary)) is not None:
        yield from (("executed", each) for each in commands.lines(trial, command))
    if not workload.command_alone:
        every = {name: getattr(counts, name) for name in CLASSES}
        yield "outcomes", said("run-outcomes", due=counts.due, **every)
        yield from _of_generator(trial, summary)
    yield from (("failed with", each) for each in _failures(summary))
    if plan.auto and trial.state == "finished" and trial.measured_ns:
        ran_s = trial.measured_ns / 1e9
        yield "stopped", said("run-stopped", ran_s=ran_s, level=level(ran_s))
    yield "validity", said("run-validity", state=summary.validity.state)
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


def _of_generator(trial: Trial, summary: Summary) -> Values:
    plan, generator, functions = trial.plan, summary.generator, by_functions(trial)
    warmup_s = plan.warmup / 1e9 + summary.cut_s
    skipped = trial.setup.imported is not None and summary.counts.skipped
    policy = "skip" if skipped else plan.policy
    values = {"policy": policy, "warmup_s": warmup_s, "clients": trial.setup.own_clients}
    how = "Python functions" if functions else plan.protocol
    yield "protocol", said("run-protocol", protocol=how, **values)
    if (own := volume_of(trial, summary)) is not None:
        minute, day = own.per_minute, own.per_day
        sent = {"queries": own.queries, "measured_s": own.seconds}
        a_minute = {"per_minute": minute.value, "per_minute_ci": bounds(minute)}
        a_day = {"per_day": day.value, "per_day_ci": bounds(day)}
        yield "queries", said("run-queries", **sent, **a_minute, **a_day)
    if trial.setup.imported is None:
        lag = generator.dispatch_p99
        yield (
            "generator",
            said(
                "run-generator",
                poll=trial.setup.poll or how,
                cpu_percent=100 * generator.cpu,
                lag_ms=lag.value if lag else None,
            ),
        )


def _tables(trial: Trial, summary: Summary) -> Iterator[Table]:
    if trial.workload.command_alone:
        return
    yield _table(
        "times",
        "Times",
        ("ms",),
        rows=(
            (("latency",), summary.latency, above(trial)),
            (("lag",), summary.lag, NOT_KNOWN),
            (("service",), summary.service, NOT_KNOWN),
        ),
    )
    if len(summary.scripts) > 1:
        kind = "task" if by_functions(trial) else "script"
        scripts = [
            (
                (each.name, str(each.counts.due), metric_cell("missed", each.missed)),
                each.latency,
                above(trial, each.name),
            )
            for each in summary.scripts
        ]
        names = (kind, "due", header("missed"))
        yield _table("scripts", f"Each {kind}", names, rows=scripts, unit="Latency in ms.")
    every = summary.statements
    if every:
        counted = [n for n in ("failed", "retries") if any(getattr(each, n) for each in every)]
        statements = []
        for each in every:
            text = f"{each.script}:{each.line} {' '.join(each.text.split())}"
            text = text if len(text) <= _STATEMENT_MAX else f"{text[: _STATEMENT_MAX - 1]}…"
            numbers = (each.times.count, *(getattr(each, name) for name in counted))
            statements.append(((text, *map(str, numbers)), each.times, NOT_KNOWN))
        columns = ("statement", "done", *counted)
        yield _table("statements", "Each statement", columns, rows=statements, unit="Times in ms.")


def _table(
    key: str,
    title: str,
    columns: tuple[str, ...],
    *,
    rows: Iterable[tuple[tuple[TableCell | str, ...], Distribution, str]],
    unit: str = "",
) -> Table:
    """A table of distributions: the first cells of each, and what stands for infinity in it."""
    cells = tuple(
        (
            *(TableCell(each) if isinstance(each, str) else each for each in first),
            *(metric_cell(name, spread.estimate(name), beyond) for name in TIMES),
            TableCell(milliseconds(spread.max, beyond if spread.p50 else NOT_KNOWN)),
        )
        for first, spread, beyond in rows
    )
    dashes = any(cell.ends == NOT_KNOWN for row in cells for cell in row)
    few = f"{NOT_KNOWN}: too few transactions for an interval." if dashes else ""
    note = " ".join(filter(None, (unit, few)))
    return Table(f"run-{key}", title, (*columns, *TIMES, "max"), 1, cells, note, spare=_SPARE)
