"""The time and cost of a planned experiment, in words and as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict

from pgpaces.analysis.preview import Preview
from pgpaces.answers.trials import levels_listed
from pgpaces.core.messages import message
from pgpaces.show.number_text import clock
from pgpaces.spec.design import Experiment


def lines(experiment: Experiment, preview: Preview, terms: Sequence[str] = ()) -> Iterator[str]:
    """Lines about cells, time and cost. terms: the goal by which trials are chosen, in words."""
    design, trials = experiment.design, preview.trials
    about = {"name": experiment.name, "cells": len(design.cells()), "each": design.trials}
    if terms:
        few = "" if preview.trials_least == trials else f"{preview.trials_least} to "
        yield message("preview-chosen", few=few, most=trials, **about)
    else:
        every = len(design.cells()) * int(design.trials)
        left = "" if every == trials else message("preview-left", left=trials)
        yield message("preview-cells", trials=every, left=left, **about)
    for factor in design.factors:
        yield f"  {levels_listed({factor.name: factor.levels})}"
    excluded = math.prod(len(factor.levels) for factor in design.factors) - len(design.cells())
    if design.exclude and excluded > 0:
        yield message("preview-excluded", count=excluded)
    yield from (f"  {text}" for text in terms)
    if (span := preview.seconds) is None:
        yield message("preview-time-unknown")
    else:
        low, high = clock(span.low), clock(span.high)
        ends = f" ({low} to {high})" if low != high else ""
        machines = len(preview.machines)
        at = message("preview-machines", machines=machines) if machines > 1 else ""
        yield message("preview-time", time=clock(span.value), ends=ends, machines=at)


def as_json(experiment: Experiment, preview: Preview) -> dict[str, Any]:
    """The same as plain values; seconds."""
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
        "seconds": None if preview.seconds is None else asdict(preview.seconds),
    }
