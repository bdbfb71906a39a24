"""The section of a rehearsal: verdict, statements, safer form, and chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten

from msgspec import to_builtins

from pgpaces.analysis.rehearsal import VERDICTS, shown_mode
from pgpaces.core.findings import Finding, length
from pgpaces.core.messages import Message, message, said
from pgpaces.core.units import duration_words, rate_text
from pgpaces.show.charts import Datum, amounts, seconds, series
from pgpaces.show.number_text import NOT_KNOWN
from pgpaces.show.screen import Cells, Screen, table_of
from pgpaces.show.section import (
    Block,
    Figure,
    Headline,
    Mark,
    Next,
    Number,
    Section,
    Table,
    Values,
    figure,
)
from pgpaces.spec.load import limit_ns
from pgpaces.spec.migration import Pass, Rehearsal, StatementRun
from pgpaces.spec.result import Estimate, Trial

KEY = "rehearsal"
SCREEN = Screen(
    first=(
        *("load", "commits", "latency", "failed", "cost", "scale", "also", "queue", "copy"),
        *("coverage", "safer"),
    ),
    details=("causes",),
)
_MARKS: dict[str, Mark] = {
    "safe": "pass", "blocks": "fail", "fails": "fail", "slows": "fail", "unknown": "unknown",
}  # fmt: skip
_TEXT_MAX, _ROWS_MAX = 30, 6
# What a headline says first of a pass with something in the way, and the titles of charts.
_WHERE = {"alone": "", "open": "rehearsal-behind", "autovacuum": "rehearsal-in-autovacuum"}
_CHARTS = {
    "alone": "chart-rehearsal-alone",
    "open": "chart-rehearsal-open",
    "autovacuum": "chart-rehearsal-autovacuum",
}
# A statement that took less than this is not said to take longer with more rows.
_LONG_NS = 20_000_000
# Statements that only prepare others.
_ASIDE = ("begin", "commit", "set ", "start ")


def section(rehearsal: Rehearsal, trials: Sequence[Trial]) -> Section:
    """The verdict of a rehearsal. trials: of its passes, in their order."""
    first = rehearsal.decisive
    findings = () if first is None else first.findings
    return SCREEN.section(
        _headline(rehearsal),
        tuple(_values(rehearsal, trials)) if trials else (),
        key=KEY,
        title=message("title-rehearsal", name=rehearsal.name),
        findings=[each for each in findings if _weakens(each)],
        steps=[*_steps(rehearsal, trials)],
        tables=(_table(first),) if first and first.statements and not first.outage else (),
        facts_first=1,
        figures=tuple(_timeline(each, trials) for each in rehearsal.passes if each.requests),
        blocks=(Block(rehearsal.safer, message("title-safer")),)
        if rehearsal.safer and rehearsal.proved
        else (),
        rows=tuple(_numbers(rehearsal)),
        value=rehearsal,
        document=lambda: {**to_builtins(rehearsal), **_derived(rehearsal)},
        trials=tuple(trial.id for trial in trials),
    )


def _derived(rehearsal: Rehearsal) -> dict[str, object]:
    own = ("verdict", "safer", "proved")
    return {name: getattr(rehearsal, name) for name in own}


def _weakens(found: Finding) -> bool:
    """Whether it is shown below the values: it leads to no verdict, or to UNKNOWN."""
    return VERDICTS.get(found.name, "unknown") == "unknown"


def _also(rehearsal: Rehearsal) -> Iterator[Finding]:
    """What leads to another verdict than that of the headline, each once."""
    seen = {rehearsal.verdict, "unknown"}
    for found in (f for p in rehearsal.passes if p.form == "asked" for f in p.findings):
        verdict = VERDICTS.get(found.name, "unknown")
        if verdict not in seen:
            seen.add(verdict)
            yield found


def _headline(rehearsal: Rehearsal) -> Headline:
    verdict, found = rehearsal.verdict, rehearsal.decisive
    word, mark = verdict.upper(), _MARKS[verdict]
    if found is None:
        return Headline("UNKNOWN", "unknown", message("rehearsal-not-run"))
    name = _WHERE[found.behind]
    where = message(name) if name else ""
    reason = next((f for f in found.findings if VERDICTS.get(f.name) == verdict), None)
    due, late = found.during.due, sum(each.late for each in found.statements)
    if found.outage is not None:
        failed = sum(found.failed.values())
        values = {"failed": failed, "late": found.during.missed - failed, "lost": found.outage.lost}
        text = message("rehearsal-outage", outage_s=found.outage.length_ns / 1e9, **values)
        return Headline("OUTAGE", mark, text)
    if verdict == "safe":
        text = message("rehearsal-safe", due=due, worst_s=found.during.worst_ns / 1e9)
    elif verdict == "blocks" and reason is not None and not reason.about:
        text = _blocks(found, where=where, late=late, due=due)
    else:
        about = f"{reason.about}: " if reason is not None and reason.about else ""
        text = where + (f"{about}{reason.sentence}" if reason is not None else verdict)
    return Headline(word, mark, text)


def _blocks(found: Pass, *, where: str, late: int, due: int) -> str:
    worst = found.worst
    values = {"where": where, "late": late, "due": due}
    if worst is None or not worst.relation:
        lasted_s = 0.0 if worst is None else (worst.released_ns - worst.began_ns) / 1e9
        return message("rehearsal-rows", lasted_s=lasted_s, **values)
    what = "all access" if worst.mode == "AccessExclusiveLock" else "writes"
    stopped_s = (worst.held_ns + worst.waited_ns) / 1e9
    return message(
        "rehearsal-blocks", what=what, relation=worst.relation, stopped_s=stopped_s, **values
    )


def _values(rehearsal: Rehearsal, trials: Sequence[Trial]) -> Values:
    first, trial = rehearsal.passes[0], trials[0]
    plan, found = trial.plan, rehearsal.decisive or first
    yield (
        "load",
        said(
            "rehearsal-load",
            workload=trial.workload.name,
            rate=rate_text(plan.load.rate or 0.0),
            limit=duration_words(limit_ns(plan)),
            missed=first.before.missed,
            due=first.before.due,
        ),
    )
    yield from _outage(found)
    yield from _cost(first)
    for other in _also(rehearsal):
        word = VERDICTS[other.name].upper()
        what = f"{other.about}: {other.sentence}" if other.about else other.sentence
        yield "also", said("rehearsal-also", verdict=word, what=what)
    for behind in rehearsal.passes:
        if behind.form == "asked" and behind.behind != "alone":
            yield "queue", _queue(rehearsal, behind)
    yield from _scaled(rehearsal, first)
    if first.covered is not None:
        yield "coverage", said("rehearsal-covers", share=first.covered)
    prepared = trial.workload.prepared
    began, ended = trials[0].started_at, trials[-1].ended_at
    yield (
        "copy",
        said(
            "rehearsal-copy",
            database=rehearsal.source,
            size=None if prepared is None else prepared.size_bytes,
            version=trial.server.version.partition(" ")[0],
            passes=len(trials),
            took_s=(ended - began).total_seconds() if ended else None,
        ),
    )
    yield from _safer(rehearsal)
    yield "causes", said("rehearsal-causes", causes=found.causes)


def _queue(rehearsal: Rehearsal, behind: Pass) -> Message:
    late, failed = sum(each.late for each in behind.statements), sum(behind.failed.values())
    where = message("rehearsal-open", open_s=rehearsal.open_s)
    if behind.behind == "autovacuum":
        where = message("rehearsal-autovacuum")
    numbers = [n for n, run in enumerate(behind.statements, 1) if run.late]
    values = {"where": where, "late": late, "due": behind.during.due, "numbers": numbers}
    if failed:
        return said("rehearsal-queue-failed", failed=failed, **values)
    return said("rehearsal-queue" if late else "rehearsal-no-queue", **values)


def _scaled(rehearsal: Rehearsal, found: Pass) -> Values:
    """How long statements would take with as many rows as production has."""
    for number, run in enumerate(found.statements, 1):
        names = (run.table, run.table.rpartition(".")[2])
        rows = next((rehearsal.rows[name] for name in names if name in rehearsal.rows), 0)
        took_ns = run.done_ns - run.tried_ns - run.waited_ns
        if run.rows and rows > run.rows and took_ns >= _LONG_NS:
            took_s = took_ns / 1e9 * rows / run.rows
            values = {"rows": rows, "table": run.table, "took_s": took_s}
            yield "scale", said("rehearsal-scale", number=number, **values)


def _safer(rehearsal: Rehearsal) -> Values:
    """The result of the safer form, or why there is none."""
    passes = [each for each in rehearsal.passes if each.form == "safer"]
    if rehearsal.proved:
        yield (
            "safer",
            said(
                "rehearsal-safer-all"
                if rehearsal.autovacuum
                else "rehearsal-safer"
                if len(passes) > 1
                else "rehearsal-safer-once",
                late=sum(run.late for each in passes for run in each.statements),
                due=sum(each.during.due for each in passes),
                worst_s=max(each.during.worst_ns for each in passes) / 1e9,
            ),
        )
        if rehearsal.separated:
            yield "safer", said("rehearsal-separated")
        return
    bad = next((each for each in passes if each.verdict != "safe"), None)
    if bad is not None:
        wanted = (f for f in bad.findings if VERDICTS.get(f.name) == bad.verdict)
        reason = next((f.sentence for f in wanted), bad.verdict)
        yield "safer", said("rehearsal-no-safer", verdict=bad.verdict.upper(), reason=reason)
    elif passes:
        whole = len(passes) == len(rehearsal.behinds)
        yield "safer", said("rehearsal-other-schema" if whole else "rehearsal-safer-stopped")
    elif rehearsal.verdict in ("blocks", "fails") and not (rehearsal.safer or _failed(rehearsal)):
        yield "safer", said("rehearsal-none-known")


def _failed(rehearsal: Rehearsal) -> bool:
    """Whether the migration itself failed, which no other form of it would help."""
    return any(run.error for each in rehearsal.passes for run in each.statements)


def _outage(found: Pass) -> Values:
    if found.failed:
        yield "failed", said("rehearsal-states", states=found.failed)
    if (outage := found.outage) is not None:
        counts = {"lost": outage.lost, "acknowledged": outage.acknowledged}
        yield "commits", said("rehearsal-ledger", **counts)
        back_s = None if outage.back_ns is None else outage.back_ns / 1e9
        name = "rehearsal-not-back" if back_s is None else "rehearsal-back"
        yield "latency", said(name, **({} if back_s is None else {"back_s": back_s}))


def _cost(found: Pass) -> Values:
    if found.outage is not None:
        return
    built = [(name, size) for run in found.statements for name, size in run.built]
    rewritten = [name for run in found.statements for name in run.rewritten]
    parts = [message("rehearsal-index", name=name, size=size) for name, size in built]
    if found.wal_bytes is not None:
        parts.append(message("rehearsal-wal", wal=found.wal_bytes))
    name = "rehearsal-rewritten" if rewritten else "rehearsal-not-rewritten"
    parts.append(message(name, **({"tables": rewritten} if rewritten else {})))
    yield "cost", said("rehearsal-cost", parts=parts)


def _table(found: Pass) -> Table:
    runs = [*enumerate(found.statements, 1)]
    shown = [(n, run) for n, run in runs if not run.text.lower().startswith(_ASIDE)]
    if len(shown) > _ROWS_MAX:
        worst = sorted(
            shown, key=lambda pair: -(pair[1].late + pair[1].held_ns + pair[1].waited_ns)
        )
        shown = sorted(worst[:_ROWS_MAX], key=lambda pair: pair[0])
    relations = {run.relation for _, run in shown if run.relation}
    lock = f"lock on {next(iter(relations))}" if len(relations) == 1 else "lock"
    waited = any(run.waited_ns for _, run in shown)
    rows = [_row(n, run, lock=lock, waited=waited) for n, run in shown]
    return table_of("title-rehearsed-statements", rows, brief=True, spare=("worst", "waited"))


def _row(number: int, run: StatementRun, *, lock: str, waited: bool) -> Cells:
    most = _TEXT_MAX - 6 * waited
    text = shorten(run.text, 4 * _TEXT_MAX, placeholder="…")
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    mode = shown_mode(run.mode) if run.mode else NOT_KNOWN
    yield "statement", f"{number} {cut}"
    yield lock, mode if lock != "lock" or not run.relation else f"{mode} on {run.relation}"
    yield "held", length(run.held_ns / 1e9) if run.held_ns else NOT_KNOWN
    if waited:
        yield "waited", length(run.waited_ns / 1e9) if run.waited_ns else NOT_KNOWN
    yield "late", f"{run.late:,}"
    yield "worst", length(run.worst_ns / 1e9) if run.late else NOT_KNOWN


def _timeline(found: Pass, trials: Sequence[Trial]) -> Figure:
    """The missed requests of a pass, by when they were due, and when each statement ran."""
    limit_ms = limit_ns(trials[0].plan) / 1e6
    rows: list[Datum] = [
        {"from": run.began_ns / 1e9, "to": run.released_ns / 1e9, "text": f"{number}"}
        for number, run in enumerate(found.statements, 1)
    ]
    for each in found.requests:
        due_s = each.due_ms / 1e3
        texts = (f"{due_s:.3f}", f"{each.took_ms:,}", each.cause)
        rows.append({"x": due_s, "value": each.took_ms, "series": each.cause, "texts": texts})
    limit = message("chart-limit")
    rows.append({"limit": limit_ms, "series": limit})
    causes = sorted({each.cause for each in found.requests})
    ends = [run.released_ns / 1e9 for run in found.statements]
    return figure(
        f"{KEY}-{found.form}-{found.behind}",
        message(_CHARTS[found.behind]),
        message("chart-rehearsal"),
        columns=("due, s", "took, ms", "cause"),
        data=rows,
        template="timeline",
        x=seconds(max([*ends, *(each.due_ms / 1e3 for each in found.requests)]) + 1),
        y=amounts("latency, ms", log=True),
        **series(causes, limit=limit),
    )


def _steps(rehearsal: Rehearsal, trials: Sequence[Trial]) -> Iterator[Next]:
    if rehearsal.verdict == "unknown" and trials:
        yield Next(f"pgpaces why {trials[-1].id[-8:]}", "next-why")


def _numbers(rehearsal: Rehearsal) -> Iterator[Number]:
    """The missed share of each pass from the beginning of the migration on."""
    for each in rehearsal.passes:
        if each.during.due:
            share = 100 * each.during.missed / each.during.due
            of = {"form": each.form, "behind": each.behind}
            yield Number(of, "missed", Estimate.alone(share, each.during.due))
