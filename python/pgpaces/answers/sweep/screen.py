"""The first screen of an experiment: its verdict, cells, chart, findings, and what is next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from pgpaces.analysis import crossing, goal, validity
from pgpaces.analysis.cells import Row, sound, trial_estimate
from pgpaces.answers import bulk
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import (
    cell_name,
    factor_name,
    level_cells,
    levels_text,
    longer,
    metric_cells,
)
from pgpaces.core.findings import Finding, finding, length, weight
from pgpaces.core.messages import message
from pgpaces.core.metrics import axis, header, metric, number, title
from pgpaces.show.charts import SERIES_MAX, Datum, amounts, names, scaled, series
from pgpaces.show.escape import line as shown
from pgpaces.show.number_text import NOT_KNOWN, capital, metric_cell, quantile, share_in_words
from pgpaces.show.screen import Cells, Screen, table_of
from pgpaces.show.section import Figure, Headline, Mark, Next, Section, Table, TableCell, figure

SCREEN = Screen(first=("fastest", "slowest", "compared", "failed"))
_NAMES_MAX = 3
_REASONS_MAX = 2
# Longer times are not recommended.
_LONG_S = 24 * 3600
# The columns that a narrow terminal omits, in this order.
SPARE = (
    *map(header, ("sd", "skipped", "unfinished", "failed", "late")),
    "trials",
    *map(header, ("throughput", "mean", "p95", "p99")),
)
PANELS_MAX = 6
# Factors whose levels have panels rather than lines in one panel.
_SIDE = ("server", "target", "variant")
# Times that differ by more than this have a logarithmic axis.
_LOG_FROM = 20
# The distance between the lines at a level, and between the first and the last, in pixels.
_SHIFT, _SHIFTS = 8.0, 40.0


def section(page: Page) -> Section:
    ran = [row for row in page.rows if row.trials]
    values = [*bulk.values(ran)] if page.commands is not None and ran else []
    return SCREEN.section(
        headline(page),
        # Without a limit, the first of them is the headline.
        values[0 if page.limits else 1 :],
        key="sweep",
        title=page.title,
        findings=sorted(findings(page), key=weight),
        steps=steps(page),
        aside=aside(page),
        note=page.question or _about(page),
        tables=(brief(page),),
        figures=chart(page),
        facts_first=0,
        value=page.rows,
        trials=tuple(digest.trial.id for digest in page.digests),
    )


def aside(page: Page) -> str:
    """How to see more of it."""
    id_ = page.about.id[-8:]
    return message("experiment-report", id=id_) if id_ else message("runs-report")


def headline(page: Page) -> Headline:
    ran = [row for row in page.rows if row.trials]
    word = "" if len(ran) == 1 else "SWEEP"
    if not ran:
        return Headline("SWEEP", "unknown", message("sweep-not-run"))
    if page.failure is not None:
        return Headline("FAIL", "fail", page.failure.sentence)
    if not page.limits and page.commands is not None:
        (name, first), *_ = bulk.values(ran)
        text = message("sweep-fastest", text=str(first)) if name == "fastest" else str(first)
        return Headline(word, "", text)
    if not page.limits:
        text, unknown = _highest_throughput(ran), message("sweep-throughput-unknown")
        return Headline(word, "", text) if text else Headline("SWEEP", "unknown", unknown)
    verdicts = Counter(crossing.verdict(row, page.missed_max) for row in ran)
    verdict = next(iter(verdicts))
    if len(page.rows) > 1:
        mark: Mark = verdict if len(verdicts) == 1 else ""
        counts = {name: verdicts[name] for name in goal.WORDS}
        return Headline("SWEEP", mark, message("sweep-cells", **counts))
    missed = ran[0].estimate("missed")
    share = share_in_words(missed) if missed else None
    values = {"missed": share, "due": ran[0].counts.due}
    one = message("cell-missed", limit=page.limit, **values) if page.limit else None
    return Headline(goal.WORDS[verdict], verdict, one or message("cell-missed-limits", **values))


def _highest_throughput(ran: Sequence[Row]) -> str:
    """The highest throughput; of several cells with its cell. Empty if it is unknown."""
    every = ((row.estimate("throughput"), row) for row in ran if row.sound or len(ran) == 1)
    able = [(throughput, row) for throughput, row in every if throughput]
    if not able:
        return ""
    best, row = max(able, key=lambda pair: pair[0].value)
    cell = metric_cell("throughput", best)
    text = f"{cell.text} tx/s" + (f" ({cell.ends})" if best.estimable else "")
    if len(ran) == 1:
        return text
    near = sum(each.high >= best.low for each, _ in able) - 1
    name = "sweep-throughput-near" if near else "sweep-throughput"
    return message(name, throughput=text, cell=cell_name(row.cell), near=near)


def _about(page: Page) -> str:
    """The number of trials, their time together, and the limit."""
    if len(page.rows) < 2 or not page.digests:
        return ""
    seconds = sum(digest.summary.seconds for digest in page.digests)
    name = "sweep-about-limit" if page.limits else "sweep-about"
    return message(name, trials=len(page.digests), seconds=seconds, limit=page.limits)


def cells(page: Page) -> Table:
    """Every number of every cell."""
    commands, limited = page.commands, bool(page.limits)
    lost = [n for n in ("failed", "unfinished") if any(getattr(r.counts, n) for r in page.rows)]
    if commands is None:
        of_limit = ["late", "skipped"] if limited else []
        shares = [*of_limit, *lost, "missed"]
        names = ["throughput", "mean", "sd", *shares, "p95", "p99"]
    else:
        shares = ["late", "missed"] if limited else ["missed"] if lost else []
        alone = all(
            digest.trial.workload.command_alone for row in page.rows for digest in row.trials
        )
        names = [*commands, *shares, *([] if alone and not limited else ["p95"])]
    note = "table-cells-auto" if page.about.chosen else "table-cells"
    if note == "table-cells" and any(len(row.trials) == 1 for row in page.rows):
        note = "table-cells-alone"
    # Without a limit the answer is the cell with the highest throughput.
    last = header("throughput")
    spare = (
        *(() if commands is None else bulk.SPARE),
        *sorted(SPARE, key=lambda n: not limited and n == last),
    )
    return _of_cells(
        page,
        lambda row: [
            ("trials", _trials(row)),
            *metric_cells(names, row.estimate, page.above),
            *([("verdict", verdict(page, row))] if limited else []),
        ],
        note=message(note),
        spare=spare,
    )


def brief(page: Page) -> Table:
    """The cells on the first screen."""
    if page.commands is not None:
        return replace(cells(page), brief=True)

    first = ["missed" if page.limits else "throughput"]

    def numbers(row: Row) -> Cells:
        yield from metric_cells(first, row.estimate, page.above)
        yield header("p95"), quantile(row.estimate("p95"), page.above)
        if page.limits:
            yield "verdict", verdict(page, row)
        else:
            yield header("failed"), metric_cell("failed", row.estimate("failed")).text

    return _of_cells(page, numbers, spare=(header("p95"),), brief=True)


def _of_cells(page: Page, numbers: Callable[[Row], Cells], **more: Any) -> Table:
    """A table of the cells. The only cell has no levels, so its workload stands for them."""
    names = ", ".join(dict.fromkeys(digest.trial.workload.name for digest in page.digests))
    alone = [] if page.factors else [("workload", names or page.title)]
    rows = (
        [*level_cells(page.factors, row.cell.levels), *alone, *numbers(row)] for row in page.rows
    )
    absent = tuple(at for at, row in enumerate(page.rows) if not row.trials)
    count = len(page.factors) or 1
    return table_of("title-cells", rows, labels=count, absent=absent, **more)


def _trials(row: Row) -> TableCell:
    left = f"of {len(row.trials) + len(row.left_out)}" if row.left_out and row.trials else ""
    mark: Mark = "" if row.sound or not row.trials else "invalid"
    return TableCell(str(len(row.trials)), left, mark)


def verdict(page: Page, row: Row) -> TableCell:
    if not row.trials:
        return TableCell("not run", "", "unknown")
    if not row.sound:
        failed = validity.no_trial(row.every) is not None
        return TableCell("failed" if failed else row.defect, "", "invalid")
    mark = crossing.verdict(row, page.missed_max)
    return TableCell(mark, "", mark)


def _answering(page: Page) -> str:
    """The best of the metrics that can answer; empty if they are all 0 or unknown."""
    transactions = ("missed", "p95", "throughput")
    able = [name for name in bulk.CHARTS if name in (page.commands or ())]
    for name in (*able, *(transactions if page.limits else transactions[::-1])):
        if any(one and one.value for one in (row.estimate(name) for row in page.rows)):
            return name
    return ""


def _threshold(page: Page, name: str) -> tuple[float | None, str]:
    """The limit of a metric in the unit of its axis, if it has one, and its label."""
    allowed, limits_ns = 100 * page.missed_max, {each.trial.plan.limit_ns for each in page.digests}
    if name == "missed":
        return allowed, message("chart-allowed", percent=allowed)
    limit_ns = limits_ns.pop() if name == "p95" and len(limits_ns) == 1 else None
    return (limit_ns / 1e6, message("chart-limit")) if limit_ns else (None, "")


def chart(page: Page) -> tuple[Figure, ...]:
    """The metric that answers, over the main factor. None for a single cell, or if all are 0."""
    answer = _answering(page)
    if len(page.rows) < 2 or not answer:
        return ()
    # One factor is along the axis, one has lines, and the others have panels.
    along = page.main or max(page.factors, key=lambda each: len(each.levels))
    others = [each for each in page.factors if each != along]
    few = [each for each in others if each.name not in _SIDE and len(each.levels) <= SERIES_MAX]
    beside = max(few or others, key=lambda each: len(each.levels), default=along)
    sides = {each.name for each in others if each != beside}
    places = [
        {
            "x": shown(crossing.shown_level(row, along.name)) or "all",
            "series": shown(crossing.shown_level(row, beside.name)) or "all" if others else "all",
            "panel": shown(levels_text(pair for pair in row.cell.levels if pair[0] in sides)),
        }
        for row in page.rows
    ]
    panels = list(dict.fromkeys(each["panel"] for each in places))[:PANELS_MAX]
    lines = list(dict.fromkeys(each["series"] for each in places))[:SERIES_MAX]
    pairs = zip(page.rows, places, strict=True)
    drawn = [(row, at) for row, at in pairs if at["panel"] in panels and at["series"] in lines]
    if page.main is not None:
        drawn.sort(key=lambda each: crossing.quantity(crossing.level_of(each[0], along.name)) or 0)
    data = [each for row, place in drawn for each in _points(row, place, lines, answer=answer)]
    limit, label = _threshold(page, answer)
    data += [{"limit": limit, "series": label, "panel": each} for each in panels if label]
    ends = [row[n] for row in data for n in ("value", "low", "high", "trial", "limit") if n in row]
    finite = [each for each in ends if math.isfinite(each)] or [1.0]
    top = (1.0 if len(finite) == len(ends) else 1.1) * max(finite)
    least = min((each for each in finite if each > 0), default=top)
    for row in data:
        if row.get("value") == math.inf:  # above every measured time, at the top of the chart
            for end in ("low", "high"):
                row.pop(end, None)
            row.update(value=top, above="above")
        elif "high" in row:
            row["high"] = min(row["high"], top)
    left = len(page.rows) - len(drawn)
    several = any(row.trials[1:] for row, _ in drawn)
    about = [metric(answer).about, message("chart-dots" if several else "chart-dots-alone")]
    about += [message("chart-cells-left-out", count=left)] if left else []
    name = shown(factor_name(along.name))
    return (
        figure(
            answer.replace("_", "-"),
            message("chart-by-factor", metric=capital(title(answer)), factor=name),
            " ".join(about),
            columns=("cell", header(answer), "95% interval", "trials", "valid"),
            data=data,
            template="factor",
            x=names(name, list(dict.fromkeys(place["x"] for _, place in drawn))),
            y=amounts(
                axis(answer),
                log=metric(answer).format == "ms" and top > _LOG_FROM * least,
                short=True,
            ),
            panels=panels,
            **series(lines, shown(factor_name(beside.name)) if others else "", limit=label),
            joined=page.main is not None,
            limit=bool(label),
            above=any("above" in row for row in data),
        ),
    )


def _points(row: Row, place: Datum, lines: Sequence[str], *, answer: str) -> Iterator[Datum]:
    """The cell, and each of its trials. shift: of the line, in pixels."""
    name, count = shown(cell_name(row.cell)), len(lines)
    shift = (lines.index(place["series"]) - (count - 1) / 2) * min(_SHIFT, _SHIFTS / count)
    place = {**place, "shift": shift}
    estimate = row.estimate(answer)
    cell = metric_cell(answer, estimate, ">")
    valid = "yes" if row.sound else "no" if row.trials else NOT_KNOWN
    texts = (name, cell.text, cell.ends or NOT_KNOWN, str(len(row.trials)), valid)
    yield {**place, **scaled(answer, estimate), "valid": row.sound, "texts": texts}
    for digest in row.every:
        found = trial_estimate(digest, answer)
        if found is not None and math.isfinite(found.value):
            counted = digest in row.trials and sound(digest)
            said = (name, number(answer, found.value, ">"), None, "1")
            value = scaled(answer, found)["value"]
            yield {**place, "trial": value, "valid": counted, "texts": said}


def findings(page: Page) -> Iterator[Finding]:
    ran = [row for row in page.rows if row.trials]
    if page.failures:
        cell, error = page.failures[0]
        yield finding("trial-not-started", count=len(page.failures), cell=cell, error=error)
    if page.missing:
        name = "trials-to-run" if page.about.state == "running" else "trials-missing"
        yield finding(name, count=page.missing)
    if not ran or page.failure is not None:
        return
    yield from _of_verdicts(page)
    if unsound := [row for row in ran if not row.sound]:
        values = {"cells": len(unsound), "total": len(ran), "names": _names(unsound)}
        yield finding("no-valid-trial", reasons=_reasons(unsound), **values)
    if left_out := sum(not sound(d) for row in ran if row.sound for d in row.left_out):
        yield finding("trials-left-out", count=left_out)
    alone = sum(len(row.trials) == 1 for row in ran)
    if alone and len(ran) > 1 and page.limits:
        yield finding("one-trial-each", cells=alone, total=len(ran))
    yield from _of_builds(page)


def _of_verdicts(page: Page) -> Iterator[Finding]:
    """Verdicts that contradict each other, what would decide unknown ones, and their goals."""
    if page.main is not None and page.main.name in crossing.LOADS:
        for levels in crossing.out_of_order(page.rows, page.main.name, page.missed_max):
            yield finding("not-monotonic", levels_text(levels, " and "))
    if not page.limits or page.about.chosen:
        return  # more of the trials that were chosen would not pay
    needs = _needs(page)
    finite = sorted(need for need in needs if need <= _LONG_S)
    if finite:
        least, most = length(finite[0]), length(finite[-1])
        if least == most:
            yield finding("more-time-decides", cells=len(finite), time=least)
        else:
            yield finding("more-times-decide", cells=len(finite), least=least, most=most)
    if near := len(needs) - len(finite):
        yield finding("on-the-threshold", cells=near, allowed_percent=100 * page.missed_max)
    allowed = {goal.allowed(digest.trial) for row in page.rows for digest in row.trials}
    if len(allowed) > 1 and page.missed_max == min(allowed):
        shares = [f"{100 * share:g}%" for share in sorted(allowed)]
        yield finding("goals-differ", shares=shares, least=shares[0])


def _of_builds(page: Page) -> Iterator[Finding]:
    versions_of: dict[str, dict[str, None]] = {}
    for server in (digest.trial.server for digest in page.digests):
        if server.build:
            versions_of.setdefault(server.build, {})[server.version] = None
    # Of a single version, builds are what is compared.
    if len(versions_of) > 1 and len(set().union(*versions_of.values())) > 1:
        builds = [f"{build} ({', '.join(own)})" for build, own in versions_of.items()]
        yield finding("server-builds-differ", builds=builds)


def _needs(page: Page) -> list[float]:
    """The seconds of trials that would decide each cell that is unknown; infinite: no number."""
    needs = []
    for row in (row for row in page.rows if row.sound):
        ran_s = sum(digest.summary.seconds for digest in row.trials)
        needs.append(goal.needed_s(row.estimate("missed"), ran_s, page.missed_max))
    return [need for need in needs if need is not None]


def _names(rows: Sequence[Row]) -> list[str]:
    names = [cell_name(row.cell) for row in rows]
    return names if len(names) <= _NAMES_MAX else [*names[:_NAMES_MAX], "…"]


def _reasons(rows: Sequence[Row]) -> list[str]:
    found: dict[str, None] = {}
    for digest in (digest for row in rows for digest in row.every):
        trial = digest.trial
        ended = () if trial.state == "finished" else (trial.error or trial.state,)
        found |= dict.fromkeys((*digest.summary.validity.reasons, *ended))
    return list(found)[:_REASONS_MAX]


def steps(page: Page) -> tuple[Next, ...]:
    """What to do next: longer trials, if they would decide; while trials follow, only wait."""
    id_ = page.about.id
    if page.about.state == "running" or not id_:
        return ()
    if page.limits and not page.about.chosen:
        finite = [need for need in _needs(page) if need <= _LONG_S]
        if finite and all(factor.name != "duration" for factor in page.factors):
            return (longer(id_, max(finite)),)
    verdicts = [crossing.verdict(row, page.missed_max) for row in page.rows]
    if page.limits and "fail" in verdicts:
        return (Next(f"pgpaces why {id_[-8:]}", "next-why"),)
    return (Next(f"pgpaces show {id_[-8:]}"),)


def unmeasured(page: Page) -> tuple[str, str] | None:
    """Why no trial, or none of a cell, is a measurement, and what to do; None if each cell has one.

    A load of a search is no cell: that nothing succeeds there is a result.
    """
    if page.failure is not None:
        return page.failure.sentence, page.failure.advice
    each = ((row, validity.no_trial(row.every)) for row in page.rows if not page.searched)
    failed = [(row, failure) for row, failure in each if failure is not None]
    if not failed:
        return None
    first, names = failed[0][1], _names([row for row, _ in failed])
    values = {"cells": len(failed), "total": len(page.rows), "why": first.sentence}
    return message("no-measurement-in", names=names, **values), first.advice
