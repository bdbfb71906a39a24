"""What an experiment will take, in words and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import asdict

from pgpaces.answers.preview import Preview, Span
from pgpaces.design import Experiment
from pgpaces.report.numbers import clock


def lines(
    experiment: Experiment, found: Preview, *, chosen: bool = False, asked: Iterable[str] = ()
) -> Iterator[str]:
    """One line for each thing that it takes.

    chosen: its trials are, as it goes; asked: for what, in words.
    """
    design = experiment.design
    each = "1 trial" if design.trials == 1 else f"{design.trials} trials"
    trials = len(design.cells()) * design.trials
    left = "" if trials == found.trials else f", {found.trials} of them still to be run"
    if chosen:
        less, most = found.trials_least, found.trials
        count = f"about {most}" if less == most else f"{less} to {most}"
        about = f"{count} trials, each chosen by those before it"
        yield f"{experiment.name}: {_count(len(design.cells()), 'cell')}, {about}"
    else:
        yield (
            f"{experiment.name}: {_count(len(design.cells()), 'cell')}, {each} of each:"
            f" {trials} in all{left}"
        )
    for factor in design.factors:
        yield f"  {factor.name}: {', '.join(factor.levels)}"
    excluded = math.prod(len(factor.levels) for factor in design.factors) - len(design.cells())
    if design.exclude and excluded > 0:
        yield f"  {excluded} cells of the grid are excluded"
    yield from (f"  {text}" for text in asked)
    yield f"  time: {_time(found)}"
    yield f"  disk: about {_bytes(found.store_bytes)} in the store{_data(found)}"
    for currency, cost in found.cost.items():
        about = f"about {cost:.2f}" if cost >= 0.005 else "under 0.01"
        yield f"  price: {about} {currency} for the time of the machines"


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _data(found: Preview) -> str:
    """What the data takes beside it, as far as earlier trials tell."""
    if found.data_bytes is None:
        return ", beside the data"
    least = "" if found.data_known else "at least "
    copies = f", {_bytes(found.copy_bytes)} for its copy" if found.copy_bytes else ""
    return f"; {least}{_bytes(found.data_bytes)} for the data{copies}"


def _time(found: Preview) -> str:
    if found.seconds is None:
        return "not known: trials end by count"
    span = found.seconds
    made = ", and making the data where it is not there yet"
    several = f" on {len(found.machines)} machines at a time" if len(found.machines) > 1 else ""
    low, high = clock(span.low), clock(span.high)
    ends = f" ({low} to {high})" if low != high else ""
    return f"about {clock(span.value)}{ends}{several}{made}"


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{max(1, round(count / 1e3))} kB"


def as_json(experiment: Experiment, found: Preview) -> dict[str, Any]:
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
        "trials_to_run": found.trials,
        "trials_to_run_least": found.trials_least,
        "trials_by_machine": {name or "here": n for name, n in found.machines.items()},
        "seconds": span(found.seconds),
        "store_bytes": round(found.store_bytes),
        "data_bytes": found.data_bytes,
        "copy_bytes": found.copy_bytes,
        "data_known": found.data_known,
        "cost": dict(found.cost),
    }
