"""The page of an experiment for programs: all of it as plain values; a row a cell and a trial.

In the rows the column `row` says what a row is of, so that no sum counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgpaces.answers import crossing
from pgpaces.answers.background import BackgroundRow
from pgpaces.answers.bulk import as_json as plain
from pgpaces.answers.bulk import number
from pgpaces.answers.cells import SHARES, Row, sound, trial_share
from pgpaces.answers.contrasts import Ratio
from pgpaces.answers.costs import Priced
from pgpaces.answers.digest import Digest
from pgpaces.answers.summary import as_json
from pgpaces.questions import costs
from pgpaces.questions.bulk import words as bulk
from pgpaces.questions.sweep.page import Page
from pgpaces.result import Counts, Estimate
from pgpaces.section import Records

_COUNTS = ("due", "on_time", "late", "skipped", "failed", "unfinished")
_TIMES = ("mean", "p50", "p95", "p99", "p99.9")
_TEXTS = ("row", "experiment", "cell", "run", "state", "verdict", "started_at", "currency")
_WHOLE = ("trials", "block", "attempt", "users", *_COUNTS)


def records(page: Page) -> Records:
    """A row for each cell and for each of its trials; columns are the same for both.

    Shares from 0 to 1, times in ms, rates a second, each with `_low` and `_high` (None where they
    cannot be estimated). Infinity is above every time. What its machines cost stands beside a cell
    where that is known of any.
    """
    texts = {*_TEXTS, *(f"factor_{factor.name}" for factor in page.factors)}
    found = tuple(each for row in page.rows for each in _rows(page, row))
    return Records(found, frozenset(texts), frozenset(_WHOLE))


def _costs(page: Page, row: Row | None) -> dict[str, Any]:
    """Of a cell; of a trial (None) nothing is said of it."""
    known = next((found for priced, found in page.economies if priced is row), None)
    return costs.row_values(known) if page.economies else {}


def _rows(page: Page, row: Row) -> Iterator[dict[str, Any]]:
    verdict = crossing.verdict(row, page.missed_max) if page.limits else None
    did = [column.key for column in bulk.columns(page.rows)]
    levels = {f"factor_{name}": level for name, level in row.cell.levels}
    base = {
        "experiment": page.about.id,
        "cell": row.cell.key,
        **{f"factor_{factor.name}": None for factor in page.factors},
        **levels,
    }
    yield {
        "row": "cell",
        **base,
        "run": None,
        "block": None,
        "attempt": None,
        "started_at": None,
        "state": None,
        "valid": row.sound,
        "counted": True,
        "trials": len(row.trials),
        "verdict": verdict,
        **_counts(row.counts),
        **_spread(row),
        **_ends_of({name: row.estimate(name) for name in did}),
        **_costs(page, row),
    }
    for digest in row.every:
        yield {**_trial(base, row, digest), **_did(digest, did), **_costs(page, None)}


def _trial(base: Mapping[str, Any], row: Row, digest: Digest) -> dict[str, Any]:
    trial, place = digest.trial, digest.trial.place
    summary = digest.summary
    return {
        "row": "trial",
        **base,
        "run": trial.id,
        "block": place.block if place else None,
        "attempt": place.attempt if place else None,
        "started_at": trial.started_at.isoformat(),
        "state": trial.state,
        "valid": sound(digest),
        "counted": digest in row.trials,
        "trials": 1,
        "verdict": None,
        **_counts(summary.counts),
        **_ends_of({f"{name}_share": trial_share(digest, name) for name in SHARES}),
        **_ends_of({"rate": summary.rate}),
        **_ends_of({_ms(name): summary.latency.estimate(name) for name in _TIMES}),
        "stddev_ms": summary.latency.stddev,
        **_ends_of({"lag_p99_ms": summary.lag.p99}),
    }


def _did(digest: Digest, names: Sequence[str]) -> dict[str, float | None]:
    """What the command of a trial did."""
    found = bulk.of_digest(digest)
    return _ends_of({name: None if found is None else number(found, name) for name in names})


def _ms(name: str) -> str:
    return f"{name.replace('.', '')}_ms"


def _counts(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS}


def _spread(row: Row) -> dict[str, float | None]:
    return {
        **_ends_of({f"{name}_share": row.estimate(name) for name in SHARES}),
        **_ends_of({"rate": row.rate}),
        **_ends_of({_ms(name): row.estimate(name) for name in _TIMES}),
        "stddev_ms": row.stddev.value if row.stddev else None,
        **_ends_of({"lag_p99_ms": row.lag_p99}),
    }


def _ends_of(estimates: Mapping[str, Estimate | None]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, estimate in estimates.items():
        known = estimate is not None and estimate.estimable
        found[name] = estimate.value if estimate else None
        found[f"{name}_low"] = estimate.low if known and estimate else None
        found[f"{name}_high"] = estimate.high if known and estimate else None
    return found


def _ratio(found: Ratio) -> dict[str, Any]:
    return {
        "factor": found.factor,
        "level": found.level,
        "against": found.base,
        "at": dict(found.at),
        "rate": _estimate(found.rate),
        "mean_latency": _estimate(found.latency),
    }


def _beside(found: BackgroundRow) -> dict[str, Any]:
    return {
        "cell": found.row.cell.key,
        "workload": found.name,
        "due": found.due,
        "missed": _estimate(found.missed),
        "rate": _estimate(found.rate),
        "mean_ms": _estimate(found.mean),
        "p95_ms": _estimate(found.p95),
        "p99_ms": _estimate(found.p99),
    }


def document(page: Page) -> dict[str, Any]:
    """All of it but its answers. An end of an estimate is null above all, or where not known."""
    return {
        "missed_max": page.missed_max,
        "limits": page.limits,
        "main": page.main.name if page.main else None,
        "factors": {factor.name: factor.levels for factor in page.factors},
        "asked": dict(page.options),
        "cells": [_cell(page, row) for row in page.rows],
        "failures": [{"trial": where, "error": why} for where, why in page.failures],
        "costs": [_machine(one) for one in page.costs],
        "statements": [
            {
                "cell": each.row.cell.key,
                "script": each.script,
                "line": each.line,
                "text": each.text,
                "done": each.done,
                "failed": each.failed,
                "retries": each.retries,
                "mean_ms": _estimate(each.mean),
                "p95_ms": _estimate(each.p95),
            }
            for each in page.statements
        ],
        "ratios": [_ratio(each) for each in page.ratios],
        "beside": [_beside(each) for each in page.background],
        "plans": [_plan(page, each) for each in _seen(page)],
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
        "machines_apart": [
            {
                "name": each.name,
                "kind": each.kind,
                "apart": each.apart,
                "ratio": _estimate(each.ratio),
            }
            for each in page.apart
        ],
        "places": [
            {
                "name": place.name,
                "trials": place.trials,
                "server": dict(place.server),
                "settings": dict(place.settings),
                "generator": dict(place.generator),
            }
            for place in page.places
        ],
    }


def _machine(one: Priced) -> dict[str, Any]:
    """What a machine costs, and what that buys at its largest cell."""
    about = {"machine": one.name, "cell": one.row.cell.key, "held": one.held}
    return {**about, **costs.as_json(one.economy)}


def _seen(page: Page) -> Sequence[tuple[Any, Any]]:
    return [(plan, seen) for plan in page.plans for seen in plan.plans]


def _plan(page: Page, found: tuple[Any, Any]) -> dict[str, Any]:
    plan, seen = found
    return {
        "cell": seen.row.cell.key,
        "script": plan.script,
        "line": plan.line,
        "shape": seen.plan.shape,
        "summary": seen.plan.summary,
        "workers_planned": seen.plan.workers_planned,
        "workers_launched": seen.plan.workers_launched,
        "spilled_bytes": seen.plan.spilled_bytes,
        "analyzed": seen.plan.analyzed,
        "trials": seen.trials,
        "plan": seen.plan.plan,
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    ends = {
        name: value if math.isfinite(value) else None
        for name, value in (
            ("value", estimate.value),
            ("low", estimate.low),
            ("high", estimate.high),
        )
    }
    return {**ends, "n": estimate.n, "estimable": estimate.estimable}


def _cell(page: Page, row: Row) -> dict[str, Any]:
    numbers = (*SHARES, "rate", *_TIMES, "stddev", "lag_p99")
    return {
        "cell": row.cell.key,
        "levels": dict(row.cell.levels),
        "valid": row.sound,
        "verdict": crossing.verdict(row, page.missed_max) if page.limits else None,
        "counts": _counts(row.counts),
        **{name: _estimate(row.estimate(name)) for name in numbers},
        **(
            {"bulk": {name: _estimate(each) for name, each in row.bulk.items()}} if row.bulk else {}
        ),
        "trials": [
            {
                "run": digest.trial.id,
                "state": digest.trial.state,
                "started_at": digest.trial.started_at.isoformat(),
                "block": digest.trial.place.block if digest.trial.place else None,
                "attempt": digest.trial.place.attempt if digest.trial.place else None,
                "counted": digest in row.trials,
                "summary": as_json(digest.summary),
                **({} if (did := bulk.of_digest(digest)) is None else {"bulk": plain(did)}),
            }
            for digest in row.every
        ],
    }
