"""The page of an experiment for programs: its numbers as rows, and the rest as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pgpaces.analysis import bulk, crossing
from pgpaces.analysis.cells import Row, sound
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.summary import as_json
from pgpaces.answers import costs
from pgpaces.answers.bulk.words import NUMBERS, of_digest
from pgpaces.answers.numbers import known, of_summary, statement_names
from pgpaces.answers.sweep.page import Page
from pgpaces.core.metrics import SHARES, TIMES
from pgpaces.show.section import Number
from pgpaces.spec.result import Estimate, fields, plain

_KEYS = ("run", "counted", "script", "statement", "background", "time")
_OF_CELL = (*SHARES, "throughput", *TIMES, "sd", "lag_p99")


def numbers(page: Page) -> Iterator[Number]:
    """Those of each cell, by its levels, and of each trial, by the key `run` too.

    Cells without levels have the key `cell`. counted: whether a trial is in the numbers of its
    cell. A cell's statements, background workloads, and trials have the keys of
    `numbers.of_summary`; where a key does not apply it is None.
    """
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
        own = [each for each in page.statements if each.row is row]
        for statement, name in zip(own, statement_names(own), strict=True):
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
        "cells": [_cell(page, row) for row in page.rows],
        "failures": [{"trial": where, "error": why} for where, why in page.failures],
        "costs": costs.document(page.machines),
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


def _cell(page: Page, row: Row) -> dict[str, Any]:
    economy = page.economies.get(row.cell.key)
    return {
        "cell": row.cell.key,
        "levels": dict(row.cell.levels),
        "valid": row.sound,
        "verdict": crossing.verdict(row, page.missed_max) if page.limits else None,
        "counts": plain(row.counts),
        **({"costs": costs.as_json(economy)} if economy else {}),
        "trials": [_trial(row, digest) for digest in row.every],
    }


def _trial(row: Row, digest: Digest) -> dict[str, Any]:
    trial, place, command = digest.trial, digest.trial.place, of_digest(digest)
    return {
        "run": trial.id,
        "state": trial.state,
        "started_at": trial.started_at.isoformat(),
        "block": place.block if place else None,
        "attempt": place.attempt if place else None,
        "counted": digest in row.trials,
        "valid": sound(digest),
        "summary": as_json(digest.summary),
        **({} if command is None else {bulk.SOURCE: bulk.as_json(command)}),
    }
