"""The first screen of an experiment: verdicts of its cells, values, findings, and what is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pgpaces.analysis import cells, crossing, goal, validity
from pgpaces.analysis.cells import Row
from pgpaces.answers import bulk
from pgpaces.answers.sweep import tables
from pgpaces.answers.sweep.chart import chart
from pgpaces.answers.sweep.page import Page, limits_of_row
from pgpaces.answers.trials import cell_name, levels_text, longer
from pgpaces.core.findings import Finding, finding, length, weight
from pgpaces.core.messages import message
from pgpaces.show.numbers import metric_cell, share_in_words
from pgpaces.show.screen import Screen
from pgpaces.show.section import Headline, Mark, Next, Section, Values

SCREEN = Screen(first=("fastest", "slowest", "compared", "failed"))
_NAMES_MAX = 3
_REASONS_MAX = 2
# Longer times are not recommended.
_LONG_S = 24 * 3600


def section(page: Page) -> Section:
    top = headline(page)
    found = sorted(findings(page), key=weight)
    return SCREEN.section(
        top,
        _values(page),
        key="sweep",
        title=page.title,
        findings=found,
        main=f"{top.word}: {top.text}" if top.word in goal.WORDS.values() else top.text,
        steps=steps(page),
        aside=aside(page),
        note=page.question or _about(page),
        whole=True,
        tables=(tables.brief(page),),
        figures=chart(page),
        tables_first=True,
        value=page.rows,
        trials=tuple(digest.trial.id for digest in page.digests),
    )


def aside(page: Page) -> str:
    """How to see more of it."""
    id_ = page.about.id[-8:]
    return message("experiment-report", id=id_) if id_ else message("runs-report")


def headline(page: Page) -> Headline:
    ran = [row for row in page.rows if row.trials]
    if not ran:
        return Headline("SWEEP", "unknown", message("sweep-not-run"))
    if (failure := validity.no_trial(each for row in ran for each in row.every)) is not None:
        return Headline("FAIL", "fail", failure.sentence)
    if not _limited(ran):
        return _by_throughput(ran) if page.work is None else _by_command(ran)
    verdicts = Counter(crossing.verdict(row, page.missed_max) for row in ran)
    verdict = next(iter(verdicts))
    mark: Mark = verdict if len(verdicts) == 1 else ""
    if len(page.rows) > 1:
        text = message("sweep-cells", **{name: verdicts[name] for name in goal.WORDS})
        return Headline("SWEEP", mark, text)
    missed = ran[0].estimate("missed")
    share = share_in_words(missed) if missed else None
    text = message("cell-missed", missed=share, due=ran[0].counts.due, limit=page.limit)
    return Headline(goal.WORDS[verdict], mark, text)


def _limited(rows: Iterable[Row]) -> bool:
    return any(limit for row in rows for limit in limits_of_row(row))


def _by_command(ran: Sequence[Row]) -> Headline:
    (name, first), *_ = bulk.values(ran)
    text = message("sweep-fastest", text=str(first)) if name == "fastest" else str(first)
    return Headline("" if len(ran) == 1 else "SWEEP", "", text)


def _by_throughput(ran: Sequence[Row]) -> Headline:
    every = ((row, row.estimate("throughput")) for row in ran if row.sound or len(ran) == 1)
    rates = [(row, rate) for row, rate in every if rate is not None]
    if not rates:
        return Headline("SWEEP", "unknown", message("sweep-throughput-unknown"))
    best, most = max(rates, key=lambda pair: pair[1].value)
    cell = metric_cell("throughput", most)
    text = f"{cell.text} tx/s" + (f" ({cell.ends})" if most.estimable else "")
    if len(ran) == 1:
        return Headline("", "", text)
    near = sum(row is not best and rate.high >= most.low for row, rate in rates)
    name = "sweep-throughput-near" if near else "sweep-throughput"
    return Headline(
        "SWEEP", "", message(name, throughput=text, cell=cell_name(best.cell), near=near)
    )


def _about(page: Page) -> str:
    """The number of trials, their time together, and the limit."""
    if len(page.rows) < 2 or not page.digests:
        return ""
    seconds = sum(digest.summary.seconds for digest in page.digests)
    name = "sweep-about-limit" if page.limits else "sweep-about"
    return message(name, trials=len(page.digests), seconds=seconds, limit=page.limits)


def _values(page: Page) -> Values:
    ran = [row for row in page.rows if row.trials]
    if page.work is not None and ran:
        # Without a limit, the first of them is the headline.
        yield from [*bulk.values(ran)][0 if page.limits else 1 :]


def findings(page: Page) -> Iterator[Finding]:
    ran = [row for row in page.rows if row.trials]
    if page.failures:
        cell, error = page.failures[0]
        yield finding("trial-not-started", count=len(page.failures), cell=cell, error=error)
    if page.missing:
        name = "trials-to-run" if page.about.state == "running" else "trials-missing"
        yield finding(name, count=page.missing)
    if not ran or validity.no_trial(each for row in ran for each in row.every) is not None:
        return
    yield from _of_verdicts(page, ran)
    yield from _of_trials(page, ran)


def _of_verdicts(page: Page, ran: Sequence[Row]) -> Iterator[Finding]:
    if page.main is not None and page.main.name in crossing.LOADS:
        for levels in crossing.out_of_order(page.rows, page.main.name, page.missed_max):
            yield finding("not-monotonic", levels_text(levels, " and "))
    if not _limited(ran):
        return
    if page.about.chosen:
        return  # its trials end where more of them do not pay
    needs = [crossing.needed_s(row, page.missed_max) for row in ran]
    finite = sorted(need for need in needs if need is not None and need <= _LONG_S)
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


def _of_trials(page: Page, ran: Sequence[Row]) -> Iterator[Finding]:
    if unsound := [row for row in ran if not row.sound]:
        values = {"cells": len(unsound), "total": len(ran), "names": _names(unsound)}
        yield finding("no-valid-trial", reasons=_reasons(unsound), **values)
    left_out = [d for row in ran if row.sound for d in row.left_out if not cells.sound(d)]
    if left_out:
        yield finding("trials-left-out", count=len(left_out))
    alone = sum(len(row.trials) == 1 for row in ran)
    if alone and len(ran) > 1 and _limited(ran):
        yield finding("one-trial-each", cells=alone, total=len(ran))
    # Of a single version, builds are what is compared.
    versions_of: dict[str, dict[str, None]] = {}
    for server in (digest.trial.server for row in ran for digest in row.every):
        if server.build:
            versions_of.setdefault(server.build, {})[server.version] = None
    if len(versions_of) > 1 and len(set().union(*versions_of.values())) > 1:
        listed = [f"{build} ({', '.join(own)})" for build, own in versions_of.items()]
        yield finding("server-builds-differ", builds=listed)


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


def steps(page: Page) -> tuple[Next, ...]:
    """What to do next: longer trials, if they would decide; while trials follow, only wait."""
    id_ = page.about.id
    if page.about.state == "running" or not id_:
        return ()
    needs = [] if page.about.chosen or not page.limits else [
        crossing.needed_s(row, page.missed_max) for row in page.rows
    ]  # fmt: skip
    finite = [need for need in needs if need is not None and need <= _LONG_S]
    if finite and all(factor.name != "duration" for factor in page.factors):
        return (Next(longer(id_, max(finite)), "next-longer"),)
    missed = any(crossing.verdict(row, page.missed_max) == "fail" for row in page.rows)
    late = missed and bool(page.limits)
    return (Next(f"pgpaces {'why' if late else 'show'} {id_[-8:]}", "next-why" if late else ""),)


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
