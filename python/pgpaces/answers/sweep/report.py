"""The page of an experiment as a report: the answer, its chart and its cells; details are folded.

Values in, values out: sections, which every form of output shows, rows of numbers, and JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis import bulk, crossing
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import StatementPlan
from pgpaces.analysis.plan_text import as_text
from pgpaces.analysis.summary import as_json
from pgpaces.answers.sweep import screen
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import (
    cell_name,
    explains_nothing,
    known,
    level_cells,
    metric_cells,
    of_summary,
)
from pgpaces.core.messages import message
from pgpaces.show.number_text import NOT_KNOWN, STARTED, moment
from pgpaces.show.screen import Cells, table_of
from pgpaces.show.section import Block, Facts, Number, Rank, Report, Section, TableCell
from pgpaces.spec.result import Estimate, Place, fields, plain

# The question in words, with and without a latency limit.
_QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "run": ("question-run", "question-speed"),
    "sweep": ("question-sweep", "question-fastest"),
    "capacity": ("question-capacity",),
    "comparison": ("question-comparison",),
    "why": ("question-why",),
    "rehearsal": ("question-rehearsal",),
    "trend": ("question-trend",),
}
_KEYS = ("run", "counted", "script", "statement", "background", "time")
# What the rows of a trial, a script, a statement, and a background workload have of its summary.
_IN_ROWS = ("counts", "missed", "throughput", "latency", "lag", "service", "times")
_OF_TRIAL = ("throughput", "mean", "missed", "p99")
_CELLS_NAMED = 4
_FAILURES_SHOWN = 20


def report(page: Page) -> Report:
    top = page.first or screen.section(page)
    questions = _QUESTIONS.get(top.key.partition("-")[0], ())
    # Without a chart of the answer, a run is shown over time.
    leading = (top, *(each for each in page.sections if not each.folded))
    headline: Facts = ()
    if starts := sorted(digest.trial.started_at for digest in page.digests):
        first, last = (f"{each:%Y-%m-%d %H:%M}" for each in (starts[0], starts[-1]))
        headline = (
            ("measured", f"{first}{'' if first == last else f' to {last}'} {starts[-1]:%Z}"),
        )
    return Report(
        title=page.title,
        question=page.question,
        made_at=page.about.made_at,
        version=page.about.version,
        id=page.about.id,
        headline=headline,
        sections=tuple(_sections(page)),
        top=top,
        lead=next((figure for each in leading for figure in each.figures), None),
        rerun=page.about.rerun,
        kind_question=message(questions[0 if page.limits else -1]) if questions else "",
        document=partial(document, page),
        rows=lambda: (*numbers(page), *top.rows),
    )


def _sections(page: Page) -> Iterator[Section]:
    """The answer, then what it rests on, without empty parts.

    The page of a single run has its numbers already.
    """
    if page.first is not None:
        in_screen = any(table.brief for table in page.first.tables)
        yield replace(page.first, facts=(), note="", folded=not in_screen)
    yield from (each for each in page.sections if not each.folded)
    of_run = page.first is not None and len(page.digests) == 1
    if not page.searched and not of_run:
        cells = screen.cells(page)
        yield Section(cells.key, cells.title, tables=(cells,), rank="numbers")
    yield from (each for each in page.sections if each.folded)
    for each in _details(page, of_run=of_run):
        if each.tables or each.facts or each.blocks or each.parts:
            yield replace(each, folded=True)


def _details(page: Page, *, of_run: bool) -> Iterator[Section]:
    labels = 1 + len(page.factors)
    if not page.searched and not of_run:
        rows, note = _parts(page, "background"), message("background-of-cells")
        more: Any = {"spare": screen.SPARE, "rank": "numbers", "note": note}
        yield _tabled("title-background", rows, labels, **more)
        texts = {each.name: each.text for each in page.parts if each.kind == "statement"}
        blocks = tuple(Block(text, name) for name, text in texts.items())
        more = {"spare": screen.SPARE, "blocks": blocks}
        yield _tabled("title-statement", _parts(page, "statement"), labels, **more)
    if not page.searched:
        blocks = tuple(
            Block(f"{each.text}\n\n{as_text(each.plan.plan)}", _plan_name(each))
            for each in page.plans
        )
        yield _tabled("table-plans", _plans(page), blocks=blocks)
    title = message("title-failures")
    yield Section("failures", title, facts=tuple(_failures(page)), rank="numbers")
    yield _tabled("table-differences", _differences(page), 3, note=message("differences-not-asked"))
    if not of_run:
        yield _tabled("title-trials", _trials(page), 1 + labels, facts=tuple(_remarks(page)))
    yield _where(page)
    again = (Block(page.about.rerun),) if page.about.rerun else ()
    yield Section("rerun", message("title-rerun"), blocks=again, rank="details")


def _tabled(
    name: str,
    rows: Iterable[Cells | Mapping[str, Any]],
    labels: int = 1,
    *,
    rank: Rank = "details",
    spare: tuple[str, ...] = (),
    **more: Any,
) -> Section:
    """A part with a table of these rows, if there are any."""
    table = table_of(name, rows, labels=labels, spare=spare)
    return Section(table.key, table.title, tables=(table,) if table.rows else (), rank=rank, **more)


def _parts(page: Page, kind: str) -> Iterator[Cells]:
    """Statements or background workloads, cell by cell, each with its name."""
    every = [each for each in page.parts if each.kind == kind]
    for part in every:
        shown = [n for n in part.counts if any(each.counts[n] for each in every)]
        yield [
            (kind, part.name),
            *level_cells(page.factors, part.row.cell.levels),
            *((each, f"{part.counts[each]:,}") for each in shown),
            *metric_cells(part.estimates, part.estimates.get),
        ]


def _plan_name(each: StatementPlan) -> str:
    return f"{each.script}:{each.line}: {each.plan.summary}"


def _plans(page: Page) -> Iterator[dict[str, Any]]:
    """How statements were executed."""
    for each in page.plans:
        launched = each.plan.workers_launched if each.plan.analyzed else "not executed"
        run = {"launched": launched, "trials": each.trials, "cells": _cells_text(page, each.cells)}
        plan = fields(each.plan, "workers_planned", "spilled_bytes")
        yield {"plan": _plan_name(each), **plan, **run}


def _failures(page: Page) -> Iterator[tuple[str, str]]:
    """The reasons why trials never began, each with its first trial."""
    reasons: dict[str, list[str]] = {}
    for where, why in page.failures:
        reasons.setdefault(why, []).append(where)
    for why, names in [*reasons.items()][:_FAILURES_SHOWN]:
        yield names[0] + (f", and {len(names) - 1} more" if len(names) > 1 else ""), why
    if (left := len(reasons) - _FAILURES_SHOWN) > 0:
        yield f"and {left} more reasons", "they are in the report as JSON"


def _differences(page: Page) -> Iterator[dict[str, Any]]:
    for each in page.differences:
        where = "within" if each.within else "between"
        for value, rows in page.by_value(each).items():
            cells = _cells_text(page, rows)
            yield {"name": each.name, "value": value, "cells": cells, "where": where}


def _cells_text(page: Page, rows: Sequence[Row]) -> str:
    if len(rows) == len(page.rows):
        return "all cells"
    names = "; ".join(cell_name(row.cell) for row in rows[:_CELLS_NAMED])
    more = len(rows) - _CELLS_NAMED
    return f"{names}; {more} more" if more > 0 else names


def _trials(page: Page) -> Iterator[Cells]:
    """Every trial; `pgpaces report RUN` has the rest of it."""
    names = _OF_TRIAL if page.commands is None else page.commands
    for row, digest in ((each, digest) for each in page.rows for digest in each.every):
        trial = digest.trial
        yield [
            ("run", trial.id[-8:]),
            *level_cells(page.factors, row.cell.levels),
            ("trial", _block(trial.place)),
            (STARTED, moment(trial.started_at)),
            ("due", f"{digest.summary.counts.due:,}"),
            *metric_cells(names, partial(trial_estimate, digest), page.above),
            ("state", _state(row, digest)),
        ]


def _block(place: Place | None) -> str:
    if place is None:
        return NOT_KNOWN
    attempt = f", attempt {place.attempt}" if place.attempt > 1 else ""
    target = f" on {place.levels['target']}" if "target" in place.levels else ""
    return f"{place.block}{attempt}{target}"


def _state(row: Row, digest: Digest) -> TableCell:
    valid = "valid" if digest.summary.validity.state == "valid" else "invalid"
    state = valid if digest.trial.state == "finished" else digest.trial.state
    text = state if digest in row.trials else f"{state}, not counted"
    return TableCell(text, "", "" if sound(digest) else "invalid")


def _remarks(page: Page) -> Iterator[tuple[str, str]]:
    """The findings and notes of trials, each once, with the trials that have it."""
    trials: dict[str, list[str]] = {}
    for digest in page.digests:
        trial, summary = digest.trial, digest.summary
        found = (f for f in summary.validity.findings if f.severity != "nothing")
        texts = [str(each) for each in found if not explains_nothing(each)]
        texts += (f"ended with: {trial.error}",) if trial.error else ()
        for state, count in sorted(summary.failures.items()):
            text = summary.messages.get(state, "no message")
            texts.append(f"failed with {state}: {count} ({text})")
        texts += (f"note: {note}" for note in trial.notes)
        for text in texts:
            trials.setdefault(text, []).append(trial.id[-8:])
    every = len(page.digests)
    for text, ids in trials.items():
        yield "all trials" if len(ids) == every > 1 else ", ".join(ids), text


def _where(page: Page) -> Section:
    parts = [Section("asked", message("title-asked"), facts=page.options)]
    for number, place in enumerate(page.places, 1):
        of = f" ({place.trials} trials)" if len(page.places) > 1 else ""
        title = message("settings-not-default", count=len(place.settings))
        settings = Section(f"settings-{number}", title, facts=place.settings, folded=True)
        name = f"{place.name}{of}"
        parts.append(Section(f"place-{number}", name, facts=place.facts, parts=(settings,)))
    return Section("where", message("title-where"), parts=tuple(parts), rank="details")


def numbers(page: Page) -> Iterator[Number]:
    """Those of each cell, by its levels, and of each trial, by the key `run` too.

    Cells without levels have the key `cell`. counted: whether a trial is in the numbers of its
    cell. A cell's statements, background workloads, and trials have the keys of
    `trials.of_summary`; where a key does not apply it is None.
    """
    for row in page.rows:
        of = {**(dict(row.cell.levels) or {"cell": row.cell.key}), **dict.fromkeys(_KEYS)}
        due = Estimate.alone(float(row.counts.due), row.counts.due)
        yield from known(of, {"due": due, **row.estimates})
        for each in page.parts:
            if each.row is row:
                yield from known(of | {each.kind: each.name}, each.estimates)
        for digest in row.every:
            key = of | {"run": digest.trial.id, "counted": "yes" if digest in row.trials else "no"}
            yield from of_summary(digest.summary, key)
            yield from known(key, {name: trial_estimate(digest, name) for name in bulk.NAMES})


def document(page: Page) -> dict[str, Any]:
    """What is not in its numbers, with the keys and states of cells and trials."""
    return {
        "missed_max": page.missed_max,
        "limits": page.limits,
        "main": page.main.name if page.main else None,
        "factors": {factor.name: factor.levels for factor in page.factors},
        "asked": dict(page.options),
        "cells": [
            {
                "cell": row.cell.key,
                "levels": dict(row.cell.levels),
                "valid": row.sound,
                "verdict": crossing.verdict(row, page.missed_max) if page.limits else None,
                "counts": plain(row.counts),
                "trials": [_trial_json(row, digest) for digest in row.every],
            }
            for row in page.rows
        ],
        "failures": [{"trial": where, "error": why} for where, why in page.failures],
        "statements": [
            {"cell": each.row.cell.key, **fields(each, "script", "line", "text"), **each.counts}
            for each in page.parts
            if each.kind == "statement"
        ],
        "plans": [
            {
                **fields(each, "script", "line", "trials"),
                **fields(each.plan, "shape", "summary", "workers_planned", "workers_launched"),
                **fields(each.plan, "spilled_bytes", "analyzed", "plan"),
                "cells": [row.cell.key for row in each.cells],
            }
            for each in page.plans
        ],
        "differences": [
            {
                "what": each.name,
                "within_cells": each.within,
                "values": [
                    {"value": value, "cells": [row.cell.key for row in rows]}
                    for value, rows in page.by_value(each).items()
                ],
            }
            for each in page.differences
        ],
        "places": [
            {
                **fields(each, "name", "trials"),
                "facts": dict(each.facts),
                "settings": dict(each.settings),
            }
            for each in page.places
        ],
    }


def _trial_json(row: Row, digest: Digest) -> dict[str, Any]:
    """A trial, with what its rows cannot hold of its summary."""
    trial, place, summary = digest.trial, digest.trial.place, as_json(digest.summary)
    command = bulk.of(trial, digest.summary)
    parts = [each for name in ("scripts", "statements", "background") for each in summary[name]]
    for part, name in product((summary, *parts), _IN_ROWS):
        part.pop(name, None)
    return {
        "run": trial.id,
        "state": trial.state,
        "started_at": trial.started_at.isoformat(),
        "block": place.block if place else None,
        "attempt": place.attempt if place else None,
        "counted": digest in row.trials,
        "valid": sound(digest),
        "summary": summary,
        **({} if command is None else {bulk.SOURCE: bulk.as_json(command)}),
    }
