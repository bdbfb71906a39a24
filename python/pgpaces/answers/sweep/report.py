"""The page of an experiment as a report: the answer, its chart and its cells; details are folded.

Values in, values out: sections, which every form of output shows, rows of numbers, and JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis import bulk, crossing
from pgpaces.analysis.cells import Row, sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import StatementPlans
from pgpaces.analysis.plan_text import as_text
from pgpaces.analysis.summary import Summary, as_json
from pgpaces.answers import servers
from pgpaces.answers.bulk import NUMBERS, of_digest
from pgpaces.answers.numbers import known, of_summary, with_names
from pgpaces.answers.sweep import charts, closeups, screen, tables
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name, explains_nothing
from pgpaces.core.messages import message
from pgpaces.core.metrics import SHARES, TIMES
from pgpaces.show.section import TOPICS, Block, Number, Report, Section, Sentence
from pgpaces.spec.result import Estimate, fields, plain

# The question in words, with and without a latency limit.
_QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "run": ("question-run", "question-speed"),
    "sweep": ("question-sweep", "question-fastest"),
    "capacity": ("question-capacity",),
    "comparison": ("question-comparison",),
    "why": ("question-why",),
    "trend": ("question-trend",),
}
_KEYS = ("run", "counted", "script", "statement", "background", "time")
# What the rows of a trial, a script, a statement, and a background workload have of its summary.
_IN_ROWS = ("counts", "missed", "throughput", "latency", "lag", "service", "times")
_PARTS = ("scripts", "statements", "background")
_OF_CELL = (*SHARES, "throughput", *TIMES, "sd", "lag_p99")


def report(page: Page) -> Report:
    top = page.first or screen.section(page)
    sections, questions = tuple(_sections(page)), _QUESTIONS.get(top.key.partition("-")[0], ())
    leading = (each for each in sections if each.key in (top.key, "charts", "details"))
    figures = (figure for each in leading for figure in each.every_figure())
    sentences = top.sentences
    if top.headline is not None and not any(each.weight == "main" for each in sentences):
        word = "" if top.headline.word in TOPICS else top.headline.word
        text = ": ".join(filter(None, (word, top.headline.text)))
        sentences = (Sentence(text, "main"), *sentences)
    return Report(
        title=page.title,
        question=page.question,
        made_at=page.about.made_at,
        version=page.about.version,
        id=page.about.id,
        sentences=sentences,
        headline=tuple(_measured(page)),
        sections=sections,
        top=top,
        # The first chart that is not one of a group side by side.
        lead=next((each for each in figures if not each.group), None),
        rerun=page.about.rerun,
        kind_question=message(questions[0 if page.limits else -1]) if questions else "",
        document=partial(document, page),
        rows=lambda: (*numbers(page), *top.rows),
    )


def _measured(page: Page) -> Iterator[tuple[str, str]]:
    if starts := sorted(digest.trial.started_at for digest in page.digests):
        first, last = (f"{each:%Y-%m-%d %H:%M}" for each in (starts[0], starts[-1]))
        yield "measured", f"{first}{'' if first == last else f' to {last}'} {starts[-1]:%Z}"


def _sections(page: Page) -> Iterator[Section]:
    """The answer, then what it rests on. Cells are only in a page about several trials."""
    if page.first is not None:
        in_screen = any(table.brief for table in page.first.tables)
        yield replace(page.first, sentences=(), facts=(), note="", folded=not in_screen)
    yield from (each for each in page.sections if not each.folded)
    in_cells = not page.searched and not (page.first is not None and len(page.digests) == 1)
    if in_cells:
        title = message("title-cells")
        yield Section("cells", title, tables=(tables.cells(page),), rank="numbers")
    details = [*_details(page, in_cells=in_cells)]
    yield from (replace(each, folded=True) for each in details)


def _details(page: Page, *, in_cells: bool) -> Iterator[Section]:
    if in_cells and (figures := tuple(charts.overview(page))):
        left = charts.panels(page)[1]
        left_out = (message("charts-left-out", count=left),) if left else ()
        note = " ".join((message("charts-join-cells"), *left_out))
        title = message("title-charts")
        yield Section("charts", title, figures=figures, note=note, rank="page")
    yield from (each for each in page.sections if each.folded)
    if page.background and in_cells:
        note, table = message("background-of-cells"), tables.background(page)
        yield Section("background", table.title, tables=(table,), note=note, rank="numbers")
    if not page.searched:
        yield from _statements(page)
    yield _closeups(page)
    if page.failures:
        title, facts = message("title-failures"), tables.failures(page)
        yield Section("failures", title, facts=facts, rank="numbers")
    if page.differences:
        note, table = message("differences-not-asked"), tables.differences(page)
        yield Section("differences", table.title, tables=(table,), note=note, rank="details")
    if not page.searched:
        every = tables.trials(page, page.rows)
        yield Section("trials", every.title, tables=(every,), rank="text")
    yield _where(page)
    if page.about.rerun:
        again = (Block(page.about.rerun),)
        yield Section("rerun", message("title-rerun"), blocks=again, rank="details")


def _statements(page: Page) -> Iterator[Section]:
    named = with_names(page.statements)
    if page.statements:
        yield Section(
            "by-statement",
            message("title-by-statement"),
            tables=(tables.statements(page),),
            figures=tuple(charts.statements(page)),
            blocks=tuple(
                Block(text, name) for name, text in {name: one.text for one, name in named}.items()
            ),
            rank="details",
        )
    if page.plans:
        parts = tuple(_plan(page, plan, number) for number, plan in enumerate(page.plans, 1))
        yield Section("plans", message("title-plans"), parts=parts, rank="details")


def _plan(page: Page, plan: StatementPlans, number: int) -> Section:
    count = len(plan.shapes)
    how = message("plans-differ" if count > 1 else "plans-same", count=count)
    full = {plan.letter(each.plan.shape): each.plan for each in reversed(plan.plans)}
    blocks = (
        Block(as_text(one.plan), message("title-plan", letter=letter, plan=one.summary))
        for letter, one in sorted(full.items())
    )
    return Section(
        f"plan-{number}",
        f"{plan.script}:{plan.line}",
        sentences=(Sentence(how),),
        tables=(tables.plans(page, plan),),
        blocks=(Block(plan.text), *blocks),
    )


def _closeups(page: Page) -> Section:
    rows = closeups.chosen(page)
    left = sum(bool(row.trials) for row in page.rows) - len(rows)
    near = "cells-in-detail" if page.limits else "cells-in-detail-unlimited"
    note = message(near, shown=len(rows), left=left) if left > 0 else ""
    several = "title-loads" if page.searched else "title-each-cell"
    title = message(several if len(rows) > 1 else "title-over-time")
    parts = tuple(_cell(page, row, alone=len(rows) == 1) for row in rows)
    return Section("details", title, note=note, parts=parts, rank="page")


def _cell(page: Page, row: Row, *, alone: bool) -> Section:
    number = page.rows.index(row) + 1
    missed = (f"missed {100 * row.missed.value:.1f}%",) if row.missed and page.limits else ()
    observed = servers.tables(page.observed.get(closeups.middle(row).trial.id, ()))
    return Section(
        f"cell-{number}",
        cell_name(row.cell),
        sentences=tuple(Sentence(text) for text in _remarks(row)),
        tables=(tables.trials(page, [row]), *observed),
        figures=tuple(closeups.figures(row, number)),
        aside=missed,
        mark=tables.verdict(page, row) if page.limits or row.defect else None,
        folded=True,
        open=alone,
    )


def _remarks(row: Row) -> Iterator[str]:
    """The findings and notes of the trials of a cell, each once."""
    trials: dict[str, list[str]] = {}
    for digest in row.every:
        trial, summary = digest.trial, digest.summary
        found = (f for f in summary.validity.findings if f.severity != "nothing")
        texts = [str(each) for each in found if not explains_nothing(each)]
        texts += (f"ended with: {trial.error}",) if trial.error else ()
        for state, count in sorted(summary.failures.items()):
            text = summary.messages.get(state, "no message")
            texts.append(f"failed with {state}: {count} ({text})")
        texts += (f"note: {note}" for note in trial.notes)
        for text in texts:
            trials.setdefault(text, []).append(closeups.trial_name(digest))
    for text, names in trials.items():
        of = "all trials" if len(names) == len(row.every) > 1 else ", ".join(names)
        yield f"{of}: {text}"


def _where(page: Page) -> Section:
    parts = [Section("asked", message("title-asked"), facts=page.options)]
    for number, place in enumerate(page.places, 1):
        of = f" ({place.trials} trials)" if len(page.places) > 1 else ""
        title = message("settings-not-default", count=len(place.settings))
        settings = Section(f"settings-{number}", title, facts=place.settings, folded=True)
        machine = message("title-generator")
        inner = (Section(f"generator-{number}", machine, facts=place.generator), settings)
        name = f"{place.name}{of}"
        parts.append(Section(f"place-{number}", name, facts=place.server, parts=inner))
    return Section("where", message("title-where"), parts=tuple(parts), rank="details")


def numbers(page: Page) -> Iterator[Number]:
    """Those of each cell, by its levels, and of each trial, by the key `run` too.

    Cells without levels have the key `cell`. counted: whether a trial is in the numbers of its
    cell. A cell's statements, background workloads, and trials have the keys of
    `numbers.of_summary`; where a key does not apply it is None.
    """
    statements = [*with_names(page.statements)]
    for row in page.rows:
        of = {**(dict(row.cell.levels) or {"cell": row.cell.key}), **dict.fromkeys(_KEYS)}
        due = Estimate.alone(float(row.counts.due), row.counts.due)
        yield from known(of, {"due": due, **{name: row.estimate(name) for name in _OF_CELL}})
        yield from known(of, dict(row.more))
        for each in page.background:
            if each.row is row:
                names = ("missed", "throughput", "mean", "p95", "p99")
                key = of | {"background": each.name}
                yield from known(key, {name: getattr(each, name) for name in names})
        for statement, name in statements:
            if statement.row is row:
                times = {"mean": statement.mean, "p95": statement.p95}
                yield from known(of | {"statement": name}, times)
        for digest in row.every:
            key = of | {"run": digest.trial.id, "counted": "yes" if digest in row.trials else "no"}
            yield from of_summary(digest.summary, key)
            yield from known(key, {each.key: each.of_trial(digest) for each in NUMBERS})


def document(page: Page) -> dict[str, Any]:
    """What is not in its numbers, with the keys and states of cells and trials."""
    return {
        "missed_max": page.missed_max,
        "limits": page.limits,
        "main": page.main.name if page.main else None,
        "factors": {factor.name: factor.levels for factor in page.factors},
        "asked": dict(page.options),
        "cells": [_cell_json(page, row) for row in page.rows],
        "failures": [{"trial": where, "error": why} for where, why in page.failures],
        "statements": [
            {
                "cell": each.row.cell.key,
                **fields(each, "script", "line", "text", "done", "failed", "retries"),
            }
            for each in page.statements
        ],
        "plans": [
            {
                "cell": each.row.cell.key,
                **fields(statement, "script", "line"),
                **fields(each.plan, "shape", "summary", "workers_planned", "workers_launched"),
                **fields(each.plan, "spilled_bytes", "analyzed"),
                "trials": each.trials,
                "plan": each.plan.plan,
            }
            for statement in page.plans
            for each in statement.plans
        ],
        "differences": [
            {
                "what": each.name,
                "within_cells": each.within,
                "values": [
                    {"value": value, "cells": [row.cell.key for row in cells]}
                    for value, cells in each.values
                ],
            }
            for each in page.differences
        ],
        "machines_apart": [fields(each, "name", "kind", "apart", "ratio") for each in page.apart],
        "places": [
            {
                **fields(place, "name", "trials"),
                **{of: dict(getattr(place, of)) for of in ("server", "settings", "generator")},
            }
            for place in page.places
        ],
    }


def _cell_json(page: Page, row: Row) -> dict[str, Any]:
    return {
        "cell": row.cell.key,
        "levels": dict(row.cell.levels),
        "valid": row.sound,
        "verdict": crossing.verdict(row, page.missed_max) if page.limits else None,
        "counts": plain(row.counts),
        "trials": [_trial_json(row, digest) for digest in row.every],
    }


def _trial_json(row: Row, digest: Digest) -> dict[str, Any]:
    trial, place, command = digest.trial, digest.trial.place, of_digest(digest)
    return {
        "run": trial.id,
        "state": trial.state,
        "started_at": trial.started_at.isoformat(),
        "block": place.block if place else None,
        "attempt": place.attempt if place else None,
        "counted": digest in row.trials,
        "valid": sound(digest),
        "summary": _beyond_rows(digest.summary),
        **({} if command is None else {bulk.SOURCE: bulk.as_json(command)}),
    }


def _beyond_rows(summary: Summary) -> dict[str, Any]:
    """What the rows of a trial cannot hold."""
    values = as_json(summary)
    for part in (values, *(each for name in _PARTS for each in values[name])):
        for name in _IN_ROWS:
            part.pop(name, None)
    return values
