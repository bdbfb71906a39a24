"""The charts of a whole experiment over its main factor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.answers.bulk import bars
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
from pgpaces.show.charts import Datum, names, names_down, series
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
        yield from bars.figures(page.rows, page.work.numbers)
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
        columns = (
            (shown(axis.title), "level"),
            (legend or "cell", "series"),
            (metrics.header(measure.key), "text"),
            ("95% interval", "interval"),
            ("trials", "trials"),
            ("valid", "sound"),
        )
        yield figure(
            f"{key}-{number + 1}" if number else key,
            f"{capital(metrics.title(measure.key))} by {main}{where}",
            f"{metrics.metric(measure.key).about} {capital(_legend(panel, measure))}.",
            columns=columns,
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
            place = {"x": axis.place(row), "level": axis.label(row), "shift": shift,
                     "series": line_label(line, panel)}  # fmt: skip
            estimate = row.estimate(measure.key)
            text, ends = estimate_texts(estimate, measure.form)
            yield {
                **place,
                **measure.numbers(estimate),
                "text": text,
                "interval": ends,
                "trials": str(len(row.trials)),
                "sound": "yes" if row.sound else "no" if row.trials else NOT_KNOWN,
                "valid": row.sound,
            }
            for digest in row.every:
                own = measure.of_trial(digest)
                if own is not None and math.isfinite(own.value):
                    yield {
                        **place,
                        "trial": own.value * measure.scale,
                        "text": measure.form(own.value),
                        "trials": "1",
                        "valid": digest in row.trials and sound(digest),
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
    by_limit = bool(page.limits)
    name = "missed" if by_limit else "p95"
    lines = page.lines[:_HEAT_ROWS_MAX]
    cells = [(shown(levels_alone(line.levels)), row) for line in lines for row in line.rows]
    estimates = [row.estimate(name) for _, row in cells]
    numbers = [None if each is None else each.value for each in estimates]
    texts = [metrics.number(name, value, ">") for value in numbers]
    middle = page.missed_max if by_limit else None
    steps = _heat_steps(numbers, middle)
    data: list[Datum] = []
    for (line, row), value, text in zip(cells, numbers, texts, strict=True):
        verdict = crossing.verdict(row, page.missed_max) if by_limit else NOT_KNOWN
        shade = _shade(row, value, steps, missed_max=middle)
        level = shown(crossing.level_of(row, main.name))
        data.append({"x": level, "y": line, "text": text, "verdict": verdict, "shade": shade,
                     "valid": row.sound})  # fmt: skip
    title = shown(factor_name(main.name))
    aside = shown(", ".join(factor_name(each.name) for each in page.factors if each != main))
    levels = [shown(level) for level in main.levels]
    more = len(page.lines) - len(lines)
    left = f"; {more} more combinations are in the table" if more else ""
    rule = f", blue up to {100 * page.missed_max:g}%, red above, pale where the verdict is unknown"
    rule = rule if by_limit else ""
    return figure(
        "heat-map",
        f"{capital(metrics.title(name))} in all cells",
        f"{metrics.axis(name)}, of every cell{rule}; outlined cells have no valid trial{left}",
        columns=(
            (title, "x"),
            (aside, "y"),
            (metrics.header(name), "text"),
            ("verdict", "verdict"),
        ),
        data=data,
        template="heat-map",
        above=aside,
        x=names(title, levels),
        y=names_down("", list(dict.fromkeys(line for line, _ in cells))),
        width=2 * WIDTH if len(levels) > _WIDE_FROM else WIDTH,
    )


def _shade(
    row: Row, value: float | None, steps: Sequence[float], *, missed_max: float | None
) -> int | None:
    """The class of a value; of a share the two in the middle, which are pale, are unknown."""
    if value is None:
        return None
    shade = sum(value > step for step in steps)
    if missed_max is None:
        return shade
    match crossing.verdict(row, missed_max):
        case "pass":
            return min(shade, 1)
        case "fail":
            return max(shade, 4)
        case "unknown":
            return min(max(shade, 2), 3)


def _heat_steps(values: Sequence[float | None], middle: float | None) -> list[float]:
    """The five bounds of six classes: around the allowed share, else by the range of the values."""
    if middle is not None:
        return [middle * factor for factor in (0.1, 0.5, 1.0, 2.0, 4.0)]
    finite = [value for value in values if value is not None and 0 < value < math.inf]
    if not finite:
        return [1.0] * 5
    low, high = math.log(min(finite)), math.log(max(finite))
    return [math.exp(low + (high - low) * part / 6) for part in range(1, 6)]
