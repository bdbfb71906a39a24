"""The headline of an experiment, and the findings about it as a whole. Values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pgpaces.analysis import cells, crossing, goal, validity
from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import Line
from pgpaces.answers.sweep import facts
from pgpaces.answers.trials import cell_name, levels_text
from pgpaces.core.findings import Finding, finding, length
from pgpaces.core.messages import message
from pgpaces.show.numbers import in_words, rate, share_in_words
from pgpaces.show.section import Headline, Mark, Sentence

if TYPE_CHECKING:
    from pgpaces.answers.sweep.page import Page

_NAMES_MAX = 3
_REASONS_MAX = 2
# Longer times are not recommended.
LONG_S = 24 * 3600


def line_name(line: Line) -> str:
    return levels_text(line.levels, " and ")


def headline(page: Page) -> Headline:
    ran = [row for row in page.rows if row.trials]
    if not ran:
        return Headline("SWEEP", "unknown", message("sweep-not-run"))
    if (failure := validity.no_trial(each for row in ran for each in row.every)) is not None:
        return Headline("FAIL", "fail", failure.sentence)
    if not facts.limits(ran):
        return Headline("", "", page.work.answer[0].text) if page.work else _by_throughput(ran)
    verdicts = Counter(crossing.verdict(row, page.missed_max) for row in ran)
    verdict = next(iter(verdicts))
    mark: Mark = verdict if len(verdicts) == 1 else ""
    if len(page.rows) > 1:
        text = message("sweep-cells", **{name: verdicts[name] for name in goal.WORDS})
        return Headline("SWEEP", mark, text)
    missed = share_in_words(ran[0].missed) if ran[0].missed else None
    text = message("cell-missed", missed=missed, due=ran[0].counts.due, limit=page.limit)
    return Headline(goal.WORDS[verdict], mark, text)


def _by_throughput(ran: Sequence[Row]) -> Headline:
    rows = [row for row in ran if row.throughput and (row.sound or len(ran) == 1)]
    if not rows:
        return Headline("SWEEP", "unknown", message("sweep-throughput-unknown"))
    best = max(rows, key=lambda row: row.throughput.value if row.throughput else 0.0)
    assert best.throughput is not None
    text, low = in_words(best.throughput, rate, " tx/s"), best.throughput.low
    if len(ran) == 1:
        return Headline("", "", text)
    near = sum(
        row is not best and row.throughput is not None and row.throughput.high >= low
        for row in rows
    )
    values = {"throughput": text, "cell": cell_name(best.cell)}
    if near:
        return Headline("SWEEP", "", message("sweep-throughput-near", near=near, **values))
    return Headline("SWEEP", "", message("sweep-throughput", **values))


def sentences(page: Page) -> tuple[Sentence, ...]:
    """The headline, what it is about, and every finding about the experiment as a whole."""
    top = headline(page)
    text = f"{top.word}: {top.text}" if top.mark and top.word in goal.WORDS.values() else top.text
    more = () if page.work is None else page.work.answer[bool(not facts.limits(page.rows)) :]
    found = (
        Sentence(str(each), "note" if each.severity == "nothing" else "warning")
        for each in findings(page)
    )
    return (Sentence(text, "main"), *more, *found)


def findings(page: Page) -> Iterator[Finding]:
    ran = [row for row in page.rows if row.trials]
    if page.failures:
        cell, error = page.failures[0]
        yield finding("trial-not-started", count=len(page.failures), cell=cell, error=error)
    if page.missing and page.about.state == "running":
        yield finding("trials-to-run", count=page.missing)
    elif page.missing:
        yield finding("trials-missing", count=page.missing)
    if not ran or validity.no_trial(each for row in ran for each in row.every) is not None:
        return
    yield from _of_verdicts(page, ran)
    yield from _of_trials(ran)
    yield from _of_machines(page)
    if mixed := facts.builds(ran):
        listed = [f"{build} ({', '.join(versions)})" for build, versions in mixed]
        yield finding("server-builds-differ", builds=listed)


def _of_verdicts(page: Page, ran: Sequence[Row]) -> Iterator[Finding]:
    for line in page.lines:
        threshold = crossing.find_crossing(line, page.missed_max)
        if page.main and page.main.name in crossing.LOADS and threshold.irregular:
            yield finding("not-monotonic", line_name(line) if len(page.lines) > 1 else "")
    for row in ran:
        if (uncut := crossing.depends_on_cut(row, page.missed_max)) is not None:
            yield finding("verdict-by-warm-up", cell_name(row.cell), missed=uncut)
    if not facts.limits(ran):
        return
    needs = [crossing.needed_s(row, page.missed_max) for row in ran]
    finite = sorted(need for need in needs if need is not None and need <= LONG_S)
    if finite:
        least, most = length(finite[0]), length(finite[-1])
        if least == most:
            yield finding("more-time-decides", cells=len(finite), time=least)
        else:
            yield finding("more-times-decide", cells=len(finite), least=least, most=most)
    if near := sum(need is not None for need in needs) - len(finite):
        yield finding("on-the-threshold", cells=near, allowed_percent=100 * page.missed_max)
    allowed = {goal.allowed(digest.trial) for row in ran for digest in row.trials}
    if len(allowed) > 1 and page.missed_max == min(allowed):
        shares = [f"{100 * share:g}%" for share in sorted(allowed)]
        yield finding("goals-differ", shares=shares, least=shares[0])


def _of_trials(ran: Sequence[Row]) -> Iterator[Finding]:
    if unsound := [row for row in ran if not row.sound]:
        values = {"cells": len(unsound), "total": len(ran), "names": _names(unsound)}
        yield finding("no-valid-trial", reasons=_reasons(unsound), **values)
    left_out = [d for row in ran if row.sound for d in row.left_out if not cells.sound(d)]
    if left_out:
        yield finding("trials-left-out", count=len(left_out))
    alone = sum(len(row.trials) == 1 for row in ran)
    if alone and len(ran) > 1 and facts.limits(ran):
        yield finding("one-trial-each", cells=alone, total=len(ran))


def _of_machines(page: Page) -> Iterator[Finding]:
    """Machines that stand apart from their kind; of a kind of two only the slower one."""
    for each in page.apart:
        peers = sum(other.kind == each.kind for other in page.apart)
        if each.apart and (peers > 2 or each.ratio.value >= 1):
            low, value, high = (
                100 * (ratio - 1) for ratio in (each.ratio.low, each.ratio.value, each.ratio.high)
            )
            values = {"difference_percent": value, "low_percent": low, "high_percent": high}
            yield finding("machine-stands-apart", each.name, kind=each.kind, **values)


def unmeasured(page: Page) -> tuple[str, str] | None:
    """Why no trial, or none of a cell, is a measurement, and what to do; None where each cell is.

    A load of a search is no cell: that nothing succeeds there is a result.
    """
    failure = validity.no_trial(page.digests)
    if failure is not None or page.searched:
        return (failure.sentence, failure.advice) if failure else None
    each = ((row, validity.no_trial(row.every)) for row in page.rows)
    failed = [(row, failure) for row, failure in each if failure is not None]
    if not failed:
        return None
    values = {"cells": len(failed), "total": len(page.rows), "why": failed[0][1].sentence}
    why = message("no-measurement-in", names=_names([row for row, _ in failed]), **values)
    return why, failed[0][1].advice


def _names(rows: Sequence[Row]) -> list[str]:
    names = [cell_name(row.cell) for row in rows]
    return names if len(names) <= _NAMES_MAX else [*names[:_NAMES_MAX], "…"]


def _reasons(rows: Iterable[Row]) -> list[str]:
    found: dict[str, None] = {}
    for digest in (digest for row in rows for digest in row.every):
        trial = digest.trial
        ended = () if trial.state == "finished" else (trial.error or trial.state,)
        found |= dict.fromkeys((*digest.summary.validity.reasons, *ended))
    return list(found)[:_REASONS_MAX]
