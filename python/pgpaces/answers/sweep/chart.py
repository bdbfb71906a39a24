"""The chart of an experiment: the metric that answers it, over the main factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from msgspec import Struct

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.answers import bulk
from pgpaces.answers.numbers import Measure
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name, factor_name, levels_text
from pgpaces.core import metrics
from pgpaces.core.messages import message
from pgpaces.show.charts import SERIES_MAX, Datum, names, of_metric, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, estimate_texts
from pgpaces.show.section import Figure, figure
from pgpaces.spec.design import Factor

PANELS_MAX = 6
# Factors whose levels have panels rather than lines in one panel.
_SIDE = ("server", "target", "variant")
# Times that differ by more than this have a logarithmic axis.
_LOG_FROM = 20
# The distance between the lines at a level, and between the first and the last, in pixels.
_SHIFT, _SHIFTS = 8.0, 40.0


class Layout(Struct, frozen=True):
    """The factor along the axis, that of the lines, and the others, which have panels."""

    along: Factor | None
    lines: str
    panels: tuple[str, ...]

    def label(self, row: Row) -> str:
        return (shown(crossing.shown_level(row, self.along.name)) if self.along else "") or "all"

    def line(self, row: Row) -> str:
        return shown(crossing.shown_level(row, self.lines)) or "all"

    def panel(self, row: Row) -> str:
        return shown(levels_text(p for p in row.cell.levels if p[0] in self.panels))

    def place(self, row: Row) -> float:
        """Numeric levels stand in their order, and others as they come."""
        level = crossing.level_of(row, self.along.name) if self.along else ""
        return crossing.quantity(level) or 0.0 if self.joined else 0.0

    @property
    def joined(self) -> bool:
        return self.along is not None and crossing.main_factor([self.along]) is not None


def layout(factors: Sequence[Factor]) -> Layout:
    along = crossing.main_factor(factors) or max(
        factors, key=lambda each: len(each.levels), default=None
    )
    others = [factor for factor in factors if factor != along]
    able = [f for f in others if f.name not in _SIDE and len(f.levels) <= SERIES_MAX] or others
    lines = max(able, key=lambda each: len(each.levels), default=None)
    if len(others) == 1 and along is not None:
        lines = others[0]
    panels = tuple(factor.name for factor in others if factor != lines)
    return Layout(along, lines.name if lines else "", panels)


def _measures(page: Page) -> Iterator[Measure]:
    """The metrics that can answer, the best first."""
    work, transactions = page.work, ("missed", "p95", "throughput")
    if work is not None:
        yield from (each for key in bulk.CHARTS for each in work.numbers if each.key == key)
    ns = {digest.trial.plan.limit_ns for digest in page.digests}
    limit_ns = ns.pop() if len(ns) == 1 else None
    limit = (limit_ns / 1e6, message("chart-limit")) if limit_ns else None
    allowed = 100 * page.missed_max
    bounds = {"missed": (allowed, message("chart-allowed", percent=allowed)), "p95": limit}
    for name in transactions if page.limits else transactions[::-1]:
        yield Measure(name, partial(trial_estimate, name=name), bounds.get(name))


def chart(page: Page) -> tuple[Figure, ...]:
    """None for a single cell, and where all values are 0."""
    estimates = ((each, [row.estimate(each.key) for row in page.rows]) for each in _measures(page))
    able = (each for each, values in estimates if any(one and one.value for one in values))
    measure = next(able, None)
    if len(page.rows) < 2 or measure is None:
        return ()
    where, metric, limit = layout(page.factors), measure.key, measure.bound
    rows = sorted(page.rows, key=where.place)
    panels = list(dict.fromkeys(map(where.panel, page.rows)))[:PANELS_MAX]
    lines = list(dict.fromkeys(map(where.line, page.rows)))[:SERIES_MAX]
    rows = [row for row in rows if where.panel(row) in panels and where.line(row) in lines]
    data = [each for row in rows for each in _points(row, where, lines, measure=measure)]
    if limit is not None:
        data += [{"limit": limit[0], "series": limit[1], "panel": panel} for panel in panels]
    ends = [row[n] for row in data for n in ("value", "low", "high", "trial", "limit") if n in row]
    finite = [each for each in ends if math.isfinite(each)] or [1.0]
    top = (1.0 if len(finite) == len(ends) else 1.1) * max(finite)
    least = min((each for each in finite if each > 0), default=top)
    log = metrics.metric(metric).format == "ms" and top > _LOG_FROM * least
    along = shown(factor_name(where.along.name)) if where.along else ""
    left = len(page.rows) - len(rows)
    marks = [message("chart-dots" if any(row.trials[1:] for row in rows) else "chart-dots-alone")]
    marks += [message("chart-cells-left-out", count=left)] if left else []
    drawn = figure(
        metric.replace("_", "-"),
        message("chart-by-factor", metric=capital(metrics.title(metric)), factor=along),
        " ".join((metrics.metric(metric).about, *marks)),
        columns=("cell", metrics.header(metric), "95% interval", "trials", "valid"),
        data=[_within(row, top) for row in data],
        template="factor",
        x=names(along, list(dict.fromkeys(map(where.label, rows)))),
        y=of_metric(metric, log=log, short=True),
        panels=panels,
        **series(lines, shown(factor_name(where.lines)), limit=limit[1] if limit else ""),
        joined=where.joined,
        limit=limit is not None,
        above=any(row.get("value") == math.inf for row in data),
    )
    return (drawn,)


def _points(row: Row, where: Layout, lines: Sequence[str], *, measure: Measure) -> Iterator[Datum]:
    """The cell, and each of its trials. shift: of the line, in pixels."""
    line, name, count = where.line(row), shown(cell_name(row.cell)), len(lines)
    shift = (lines.index(line) - (count - 1) / 2) * min(_SHIFT, _SHIFTS / count)
    place = {"x": where.label(row), "series": line, "panel": where.panel(row), "shift": shift}
    estimate = row.estimate(measure.key)
    valid = "yes" if row.sound else "no" if row.trials else NOT_KNOWN
    texts = *estimate_texts(estimate, measure.form), str(len(row.trials)), valid
    yield {**place, **measure.numbers(estimate), "valid": row.sound, "texts": (name, *texts)}
    for digest in row.every:
        found = measure.of_trial(digest)
        if found is not None and math.isfinite(found.value):
            counted = digest in row.trials and sound(digest)
            said = (name, measure.form(found.value), None, "1")
            yield {**place, "trial": found.value * measure.scale, "valid": counted, "texts": said}


def _within(row: Datum, top: float) -> Datum:
    """A value above every measured time stands at the top, and is said to be above."""
    if row.get("value") == math.inf:
        without = {name: each for name, each in row.items() if name not in ("low", "high")}
        return {**without, "value": top, "above": "above"}
    return {**row, "high": min(row["high"], top)} if "high" in row else row
