"""The charts of a whole experiment over its main factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import sound, trial_estimate
from pgpaces.answers.bulk import work as bulk
from pgpaces.answers.measure import Measure
from pgpaces.answers.sweep.axes import (
    MainAxis,
    Panel,
    axis_of,
    line_label,
    panels,
    upright,
)
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import factor_name, levels_alone
from pgpaces.core import metrics
from pgpaces.show.charts import Datum, names, series
from pgpaces.show.escape import line as shown
from pgpaces.show.numbers import NOT_KNOWN, capital, estimate_texts
from pgpaces.show.section import Figure, figure
from pgpaces.show.style import WIDTH
from pgpaces.spec.design import Factor

# The measures shown in addition to those of other work, if there are queries or a limit.
_ADDITIONAL = ("missed", "p95")
# The distance between the lines at a level, and of all of them, in pixels.
_SHIFT, _SHIFTS = 8.0, 40.0
_HEAT_ROWS_MAX = 40
# The number of colors of a map.
_HEAT = 6
_WIDE_FROM = 7


def measures(page: Page) -> tuple[Measure, ...]:
    return (*(page.work.numbers if page.work else ()), *_of_scripts(page))


def _of_scripts(page: Page) -> tuple[Measure, ...]:
    """The measures of transactions; a few where other work has its own."""
    if page.work is not None:
        every = () if page.work.only else _of_transactions(page)
        return tuple(each for each in every if each.key in _ADDITIONAL)
    return _of_transactions(page)


def _of_transactions(page: Page) -> tuple[Measure, ...]:
    limits = {digest.trial.plan.limit_ns for digest in page.digests}
    limit_ns = limits.pop() if len(limits) == 1 else None
    limit = (limit_ns / 1e6, "latency limit") if limit_ns else None
    # Parts of missed have a chart of their own if several occurred.
    occurred = [
        name
        for name in ("late", "skipped", "failed", "unfinished")
        if any(getattr(row.counts, name) for row in page.rows)
    ]
    apart = {"late", "skipped"} & {*occurred} if len(occurred) > 1 and page.limits else ()
    allowed = (100 * page.missed_max, f"allowed: {100 * page.missed_max:g}%")
    bounds = {"missed": allowed, "throughput": None, **dict.fromkeys(apart)}
    first, last = ("missed", "throughput") if page.limits else ("throughput", "mean")
    names = dict.fromkeys((first, "missed", *sorted(apart), "p95", "p99", last))
    return tuple(
        Measure(name, partial(trial_estimate, name=name), bounds.get(name, limit)) for name in names
    )


def overview(page: Page) -> Iterator[Figure]:
    if len(page.rows) < 2:
        return
    if page.work is not None:
        yield from bulk.figures(page.rows, page.work.numbers)
    axis, every = axis_of(page), panels(page)[0]
    for measure in _of_scripts(page):
        estimates = (row.estimate(measure.key) for row in page.rows)
        # A chart of nothing but zeros is left out.
        if any(each and each.value for each in estimates):
            yield from _over(page, axis, every, measure=measure)
    if page.work is not None:
        return
    zeros = page.limits and not any(row.missed and row.missed.value for row in page.rows)
    if len(page.factors) > 1 and len(page.lines) > 1 and page.main is not None and not zeros:
        yield _heat_map(page, page.main)


def _over(
    page: Page, axis: MainAxis, every: Sequence[Panel], *, measure: Measure
) -> Iterator[Figure]:
    key = measure.key.replace(".", "")
    end = 100.0 if metrics.is_share(measure.key) else math.inf
    y, contents = upright(measure.key, [list(_rows(axis, p, measure)) for p in every], end=end)
    limit, main = measure.bound[1] if measure.bound else "", shown(axis.title.partition(",")[0])
    for number, (panel, data) in enumerate(zip(every, contents, strict=True)):
        where = f", {shown(panel.name)}" if panel.name else ""
        legend = shown(factor_name(panel.legend)) if panel.legend else ""
        number_of, name = metrics.header(measure.key), legend or "cell"
        yield figure(
            f"{key}-{number + 1}" if number else key,
            f"{capital(metrics.title(measure.key))} by {main}{where}",
            f"{metrics.metric(measure.key).about} {capital(_legend(panel, measure))}.",
            columns=(shown(axis.title), name, number_of, "95% interval", "trials", "valid"),
            data=data,
            template="factor",
            group=key if len(every) > 1 else "",
            x=axis.encoding(page.rows),
            y=y,
            **series([line_label(line, panel) for line in panel.lines], legend, limit=limit),
            joined=bool(axis.unit),
            limit=limit,
            above=any("above" in row for row in data),
        )


def _rows(axis: MainAxis, panel: Panel, measure: Measure) -> Iterator[Datum]:
    """A row for each cell and each trial. shift: of the line, in pixels."""
    count = len(panel.lines)
    for number, line in enumerate(panel.lines):
        shift = (number - (count - 1) / 2) * min(_SHIFT, _SHIFTS / count)
        for row in line.rows:
            own = axis.label(row), line_label(line, panel)
            place = {"x": axis.place(row), "series": own[1], "shift": shift}
            estimate = row.estimate(measure.key)
            valid = "yes" if row.sound else "no" if row.trials else NOT_KNOWN
            texts = *estimate_texts(estimate, measure.form), str(len(row.trials)), valid
            numbers = measure.numbers(estimate)
            yield {**place, **numbers, "valid": row.sound, "texts": (*own, *texts)}
            for digest in row.every:
                found = measure.of_trial(digest)
                if found is not None and math.isfinite(found.value):
                    yield {
                        **place,
                        "trial": found.value * measure.scale,
                        "valid": digest in row.trials and sound(digest),
                        "texts": (*own, measure.form(found.value), None, "1"),
                    }
    if measure.bound is not None:
        yield {"limit": measure.bound[0], "series": measure.bound[1]}


def _legend(panel: Panel, measure: Measure) -> str:
    estimates = [row.estimate(measure.key) for line in panel.lines for row in line.rows]
    estimable = [estimate.estimable for estimate in estimates if estimate is not None]
    if not any(estimable):
        return "small dots are single trials; there is no 95% interval"
    bare = "" if all(estimable) else " (cells without one have too few data)"
    return f"bars are 95% intervals{bare}, small dots single trials"


def _heat_map(page: Page, main: Factor) -> Figure:
    """The missed share of every cell (p95 without a limit) as a map of two factors."""
    name = "missed" if page.limits else "p95"
    lines = page.lines[:_HEAT_ROWS_MAX]
    cells = [(shown(levels_alone(line.levels)), row) for line in lines for row in line.rows]
    estimates = [row.estimate(name) for _, row in cells]
    values = [None if each is None else each.value for each in estimates]
    known = sorted(value for value in values if value is not None)
    data: list[Datum] = []
    for (line, row), value in zip(cells, values, strict=True):
        verdict = crossing.verdict(row, page.missed_max) if page.limits else NOT_KNOWN
        shade = None if value is None else _HEAT * known.index(value) // len(known)
        if value is not None and page.limits:
            far = not page.missed_max / 10 <= value <= 4 * page.missed_max
            pale = 3 if value > page.missed_max else 2
            shade = {"pass": 1 - far, "fail": 4 + far}.get(verdict, pale)
        level, text = shown(crossing.level_of(row, main.name)), metrics.number(name, value, ">")
        data.append({"x": level, "y": line, "text": text, "shade": shade, "valid": row.sound,
                     "texts": (level, line, text, verdict)})  # fmt: skip
    title = shown(factor_name(main.name))
    aside = shown(", ".join(factor_name(each.name) for each in page.factors if each != main))
    levels = [shown(level) for level in main.levels]
    more = len(page.lines) - len(lines)
    left = f"; {more} more combinations are in the table" if more else ""
    rule = f", blue up to {100 * page.missed_max:g}%, red above, pale where the verdict is unknown"
    rule = rule if page.limits else ""
    return figure(
        "heat-map",
        f"{capital(metrics.title(name))} in all cells",
        f"{metrics.axis(name)}, of every cell{rule}; outlined cells have no valid trial{left}",
        columns=(title, aside, metrics.header(name), "verdict"),
        data=data,
        template="heat-map",
        above=aside,
        x=names(title, levels),
        y=names("", list(dict.fromkeys(line for line, _ in cells)), down=True),
        width=2 * WIDTH if len(levels) > _WIDE_FROM else WIDTH,
    )
