"""The page of an experiment for programs: a document of plain values; a row a cell and a trial.

The column `row` tells cells from trials, so that no sum counts a trial twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from pgpaces.analysis import bulk, crossing
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.summary import as_json
from pgpaces.answers import costs
from pgpaces.answers.bulk.words import NUMBERS, of_digest
from pgpaces.answers.sweep.page import Page
from pgpaces.core import metrics
from pgpaces.core.metrics import SHARES, TIMES
from pgpaces.show.section import Records
from pgpaces.spec.result import Counts, Estimate, fields, plain

_COUNTS = ("due", "on_time", "late", "skipped", "failed", "unfinished")
_NUMBERS = (*SHARES, "throughput", *TIMES, "sd", "lag_p99")
_TEXTS = ("row", "experiment", "cell", "run", "state", "verdict", "started_at", "currency")
_WHOLE = ("trials", "block", "attempt", "users", *_COUNTS)


def records(page: Page) -> Records:
    """A row for each cell and for each of its trials, with the same columns.

    Shares from 0 to 1, times in ms, throughput per second, each with `_low` and `_high` (None if
    they cannot be estimated). Infinity is above every time. Cells have columns of the costs of
    machines.
    """
    texts = {*_TEXTS, *(f"factor_{factor.name}" for factor in page.factors)}
    rows = tuple(each for row in page.rows for each in _rows(page, row))
    return Records(rows, frozenset(texts), frozenset(_WHOLE))


def _rows(page: Page, row: Row) -> Iterator[dict[str, Any]]:
    of_bulk = [each for each in NUMBERS if any(each.key in row.more for row in page.rows)]
    cell = {
        "row": "cell",
        "experiment": page.about.id,
        "cell": row.cell.key,
        **{f"factor_{factor.name}": None for factor in page.factors},
        **{f"factor_{name}": level for name, level in row.cell.levels},
        **dict.fromkeys(("run", "block", "attempt", "started_at", "state")),
        "valid": row.sound,
        "counted": True,
        "trials": len(row.trials),
        "verdict": _verdict(page, row),
        **_counts(row.counts),
        **_numbers(row.estimate),
        **_ends_of({each.key: row.estimate(each.key) for each in of_bulk}),
        **(costs.row_values(page.economies.get(row.cell.key)) if page.economies else {}),
    }
    yield cell
    for digest in row.every:
        # The columns stay in the order of those of the cell.
        yield {
            **cell,
            "row": "trial",
            **_trial(row, digest),
            "valid": sound(digest),
            "trials": 1,
            "verdict": None,
            **_counts(digest.summary.counts),
            **_numbers(partial(trial_estimate, digest)),
            **_ends_of({each.key: each.of_trial(digest) for each in of_bulk}),
            **(costs.row_values(None) if page.economies else {}),
        }


def _verdict(page: Page, row: Row) -> str | None:
    return crossing.verdict(row, page.missed_max) if page.limits else None


def _trial(row: Row, digest: Digest) -> dict[str, Any]:
    trial, place = digest.trial, digest.trial.place
    return {
        "run": trial.id,
        "state": trial.state,
        "started_at": trial.started_at.isoformat(),
        "block": place.block if place else None,
        "attempt": place.attempt if place else None,
        "counted": digest in row.trials,
    }


def _counts(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS}


def _numbers(estimate: Callable[[str], Estimate | None]) -> dict[str, float | None]:
    return _ends_of({metrics.key(name): estimate(name) for name in _NUMBERS})


def _ends_of(estimates: Mapping[str, Estimate | None]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        ends = (estimate.low, estimate.high) if estimate and estimate.estimable else (None, None)
        values[name] = estimate.value if estimate else None
        values[f"{name}_low"], values[f"{name}_high"] = ends
    return values


def document(page: Page) -> dict[str, Any]:
    """The page without its answers. A bound of an estimate is null if infinite or unknown."""
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
                "mean_ms": plain(each.mean),
                "p95_ms": plain(each.p95),
            }
            for each in page.statements
        ],
        "ratios": [
            {
                **fields(each, "factor", "level"),
                "against": each.base,
                "at": dict(each.at),
                "throughput": plain(each.throughput),
                "mean": plain(each.mean),
            }
            for each in page.ratios
        ],
        "background": [
            {
                "cell": each.row.cell.key,
                "workload": each.name,
                **fields(each, "due", "missed", "throughput"),
                **{
                    metrics.key(name): plain(getattr(each, name)) for name in ("mean", "p95", "p99")
                },
            }
            for each in page.background
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
    return {
        "cell": row.cell.key,
        "levels": dict(row.cell.levels),
        "valid": row.sound,
        "verdict": _verdict(page, row),
        "counts": _counts(row.counts),
        **{name: plain(row.estimate(name)) for name in _NUMBERS},
        **({"bulk": {name: plain(each) for name, each in row.more.items()}} if row.more else {}),
        "trials": [
            {
                **_trial(row, digest),
                "summary": as_json(digest.summary),
                **({} if command is None else {bulk.SOURCE: bulk.as_json(command)}),
            }
            for digest in row.every
            for command in (of_digest(digest),)
        ],
    }
