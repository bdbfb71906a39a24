"""The time, disk space and cost of a planned experiment, in words and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import asdict

from pgpaces.analysis.preview import Preview, Span
from pgpaces.answers.trials import levels_listed
from pgpaces.show.numbers import clock, plural
from pgpaces.spec.design import Experiment


def lines(
    experiment: Experiment, preview: Preview, *, chosen: bool = False, goals: Iterable[str] = ()
) -> Iterator[str]:
    """Lines about cells, time, disk space and cost.

    chosen: trials are chosen one after another; goals: for which question, in words.
    """
    design = experiment.design
    each = plural(design.trials, "trial")
    trials = len(design.cells()) * design.trials
    left = "" if trials == preview.trials else f", {preview.trials} of them still to be run"
    if chosen:
        less, most = preview.trials_least, preview.trials
        count = f"about {most}" if less == most else f"{less} to {most}"
        about = f"{count} trials, each chosen by those before it"
        yield f"{experiment.name}: {plural(len(design.cells()), 'cell')}, {about}"
    else:
        yield (
            f"{experiment.name}: {plural(len(design.cells()), 'cell')}, {each} of each:"
            f" {trials} in all{left}"
        )
    for factor in design.factors:
        yield f"  {levels_listed({factor.name: factor.levels})}"
    excluded = math.prod(len(factor.levels) for factor in design.factors) - len(design.cells())
    if design.exclude and excluded > 0:
        yield f"  {excluded} cells of the grid are excluded"
    yield from (f"  {text}" for text in goals)
    yield f"  time: {_time(preview)}"
    yield f"  disk: about {_bytes(preview.store_bytes)} in the store, in addition to the data"
    for currency, cost in preview.cost.items():
        about = f"about {cost:.2f}" if cost >= 0.005 else "under 0.01"
        yield f"  price: {about} {currency} for the time of the machines"


def _time(preview: Preview) -> str:
    if preview.seconds is None:
        return "not known: trials end by count"
    span = preview.seconds
    generation = ", plus connecting and making data that is absent"
    several = f" on {len(preview.machines)} machines at a time" if len(preview.machines) > 1 else ""
    low, high = clock(span.low), clock(span.high)
    ends = f" ({low} to {high})" if low != high else ""
    return f"about {clock(span.value)}{ends}{several}{generation}"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{max(1, round(count / 1e3))} kB"


def as_json(experiment: Experiment, preview: Preview) -> dict[str, Any]:
    """The same as plain values; seconds."""

    def span(value: Span | None) -> dict[str, float] | None:
        return None if value is None else asdict(value)

    design = experiment.design
    return {
        "experiment": experiment.name,
        "factors": {factor.name: list(factor.levels) for factor in design.factors},
        "fixed": dict(design.fixed),
        "cells": [dict(cell.levels) for cell in design.cells()],
        "trials_of_each": design.trials,
        "trials_to_run": preview.trials,
        "trials_to_run_least": preview.trials_least,
        "trials_by_machine": {name or "here": n for name, n in preview.machines.items()},
        "seconds": span(preview.seconds),
        "store_bytes": round(preview.store_bytes),
        "cost": dict(preview.cost),
    }
