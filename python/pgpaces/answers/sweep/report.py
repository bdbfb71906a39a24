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
from pgpaces.analysis.plan_text import as_text
from pgpaces.analysis.summary import Summary, as_json
from pgpaces.answers.bulk import NUMBERS, of_digest
from pgpaces.answers.numbers import known, of_summary, with_names
from pgpaces.answers.sweep import screen, tables
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import explains_nothing
from pgpaces.core.messages import message
from pgpaces.show.section import (
    Block,
    Facts,
    Number,
    Report,
    Section,
    Table,
)
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


def report(page: Page) -> Report:
    top = page.first or screen.section(page)
    sections, questions = tuple(_sections(page)), _QUESTIONS.get(top.key.partition("-")[0], ())
    # Without a chart of the answer, a run is shown over time.
    leading = (top, *(each for each in page.sections if not each.folded))
    return Report(
        title=page.title,
        question=page.question,
        made_at=page.about.made_at,
        version=page.about.version,
        id=page.about.id,
        headline=tuple(_measured(page)),
        sections=sections,
        top=top,
        lead=next((figure for each in leading for figure in each.figures), None),
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
    """The answer, then what it rests on. The page of a single run has its numbers already."""
    alone = page.first is not None and len(page.digests) == 1
    if page.first is not None:
        in_screen = any(table.brief for table in page.first.tables)
        yield replace(page.first, facts=(), note="", folded=not in_screen)
    yield from (each for each in page.sections if not each.folded)
    if not page.searched and not alone:
        yield _of_table(tables.cells(page), "numbers")
        if page.background:
            note = message("background-of-cells")
            yield _of_table(tables.background(page), "numbers", note=note, folded=True)
    details = [*(each for each in page.sections if each.folded), *_details(page, alone=alone)]
    yield from (replace(each, folded=True) for each in details)


def _of_table(table: Table, rank: Any, **more: Any) -> Section:
    return Section(table.key, table.title, tables=(table,), rank=rank, **more)


def _details(page: Page, *, alone: bool) -> Iterator[Section]:
    if page.statements and not page.searched and not alone:
        texts = {name: one.text for one, name in with_names(page.statements)}
        blocks = tuple(Block(text, name) for name, text in texts.items())
        yield _of_table(tables.statements(page), "details", blocks=blocks)
    if page.plans and not page.searched:
        plans = tuple(
            Block(f"{each.text}\n\n{as_text(each.plan.plan)}", tables.plan_name(each))
            for each in page.plans
        )
        yield _of_table(tables.plans(page), "details", blocks=plans)
    if page.failures:
        title, facts = message("title-failures"), tables.failures(page)
        yield Section("failures", title, facts=facts, rank="numbers")
    if page.differences:
        note = message("differences-not-asked")
        yield _of_table(tables.differences(page), "details", note=note)
    if not alone:
        yield _of_table(tables.trials(page), "details", facts=_remarks(page))
    yield _where(page)
    if page.about.rerun:
        again = (Block(page.about.rerun),)
        yield Section("rerun", message("title-rerun"), blocks=again, rank="details")


def _remarks(page: Page) -> Facts:
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
    return tuple(
        ("all trials" if len(ids) == every > 1 else ", ".join(ids), text)
        for text, ids in trials.items()
    )


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
    `numbers.of_summary`; where a key does not apply it is None.
    """
    parts = [("background", each, each.script) for each in page.background]
    parts += [("statement", each, name) for each, name in with_names(page.statements)]
    for row in page.rows:
        of = {**(dict(row.cell.levels) or {"cell": row.cell.key}), **dict.fromkeys(_KEYS)}
        due = Estimate.alone(float(row.counts.due), row.counts.due)
        yield from known(of, {"due": due, **row.estimates})
        for kind, each, name in parts:
            if each.row is row:
                yield from known(of | {kind: name}, each.estimates)
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
            {"cell": each.row.cell.key, **fields(each, "script", "line", "text"), **each.counts}
            for each in page.statements
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
