"""The page of an experiment as a report: its sections in their order.

Values in, values out; every form of output shows any section.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from pgpaces.analysis import crossing
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import StatementPlans
from pgpaces.analysis.plan_text import as_text
from pgpaces.answers import costs, run, servers
from pgpaces.answers.again import longer
from pgpaces.answers.bulk import work as bulk
from pgpaces.answers.sweep import axes, charts, closeups, data, tables, words
from pgpaces.answers.sweep.page import Page
from pgpaces.answers.trials import cell_name
from pgpaces.core.messages import message
from pgpaces.show.section import Block, Figure, Headline, Next, Report, Section, Sentence

_MAINS_MAX = 4
# The prefix of the keys of attribution sections.
_LATE = "why"


def report(page: Page) -> Report:
    if (head := _of_run(page)) is not None and page.answer:
        text = ": ".join(filter(None, (head.word, head.text)))
        page = replace(page, headline=head, answer=(Sentence(text, "main"), *page.answer[1:]))
    sections = tuple(_sections(page))
    figures = (figure for each in sections if not each.folded for figure in each.every_figure())
    return Report(
        title=page.title,
        question=page.question,
        made_at=page.about.made_at,
        version=page.about.version,
        id=page.about.id,
        sentences=page.answer,
        headline=tuple(_headline(page)),
        sections=sections,
        top=top(page),
        # The first chart that is neither folded nor one of a group side by side.
        lead=next((each for each in figures if not each.group), None),
        rerun=page.about.rerun,
        document=partial(data.document, page),
        rows=lambda: tuple(data.numbers(page)),
    )


def top(page: Page) -> Section:
    """The answer in one screen: that of a search or of pairs, else that of the cells.

    While trials follow there is nothing to do next but to wait.
    """
    id_ = page.about.id[-8:]
    made = message("experiment-report", id=id_) if id_ else message("runs-report")
    alone = _alone(page)
    own = () if alone is None else run.next_steps(alone.trial, alone.summary)
    running = page.about.state == "running"
    missed = any(crossing.verdict(row, page.missed_max) == "fail" for row in page.rows)
    late = missed and page.limits and page.about.id
    onward: tuple[Next, ...] = ()
    if id_:
        onward = (Next(f"pgpaces {'why' if late else 'show'} {id_}", "next-why" if late else ""),)
    steps = () if running else tuple(own) or _surer(page) or onward
    first = page.sections[0] if page.sections else None
    if (
        first is not None
        and page.about.chosen
        and first.headline is not None
        and not first.sentences
    ):
        steps = (*(() if running else first.next), *steps)
        shown = replace(first, headline=page.headline, sentences=page.answer, next=steps)
        return replace(shown, aside=(made,))
    mains = [each for each in page.answer if each.weight == "main"]
    return Section(
        "sweep",
        page.title,
        sentences=tuple(each for each in page.answer if each.weight in ("warning", "note")),
        headline=_of_run(page) or page.headline,
        note=page.question or _about(page),
        facts=(
            *(("", each.text) for each in mains[1:_MAINS_MAX]),
            *(("costs", each.text) for each in costs.sentences(page.machines)),
        ),
        tables=(tables.brief(page),),
        next=steps,
        aside=(made,),
        value=page.rows,
        findings=tuple(words.findings(page)),
        trials=tuple(digest.trial.id for digest in page.digests),
    )


def _surer(page: Page) -> tuple[Next, ...]:
    """A sweep like this one with trials that are long enough for verdicts."""
    if page.about.chosen or not page.limits:
        return ()
    needs = (crossing.needed_s(row, page.missed_max) for row in page.rows)
    finite = [need for need in needs if need is not None and need <= words.LONG_S]
    if page.about.id and finite and all(factor.name != "duration" for factor in page.factors):
        return (Next(longer(page.about.id, max(finite)), "next-longer"),)
    return ()


def _alone(page: Page) -> Digest | None:
    """The only trial of a page; None of several, also where the others did not run."""
    several = len(page.rows) != 1 or page.missing or page.about.chosen
    if several or len(page.digests) != 1 or page.of_why:
        return None
    return page.digests[0]


def _of_run(page: Page) -> Headline | None:
    alone = _alone(page)
    return None if alone is None else run.headline(alone.trial, alone.summary)


def _about(page: Page) -> str:
    """The number of trials, their time together, and the limit."""
    if len(page.rows) < 2 or not page.digests:
        return ""
    seconds = sum(digest.summary.seconds for digest in page.digests)
    values = {"trials": len(page.digests), "seconds": seconds}
    if not page.limits:
        return message("sweep-about", **values)
    return message("sweep-about-limit", limit=page.limits, **values)


def _sections(page: Page) -> Iterator[Section]:
    late = [each for each in page.sections if each.key.startswith(_LATE)]
    yield from (each for each in page.sections if each not in late)
    if page.of_why:
        yield from late
    if not page.searched:
        yield from _charts(page)
        title = "All cells" if len(page.rows) > 1 else "The numbers"
        yield Section("cells", title, tables=(tables.cells(page),), rank="numbers")
    yield from _comparisons(page)
    if not page.of_why:
        yield from (replace(each, folded=True) for each in late)
    if not page.searched:
        yield from _statements(page)
        if page.plans:
            parts = tuple(_plan(page, plan, number) for number, plan in enumerate(page.plans, 1))
            yield Section("plans", "How statements were executed", parts=parts, rank="details")
    yield _details(page)
    if page.failures:
        yield Section(
            "failures", "Trials that never began", facts=tables.failures(page), rank="numbers"
        )
    if page.differences:
        note, table = message("differences-not-asked"), (tables.differences(page),)
        yield Section("differences", "What else differed", tables=table, note=note, rank="details")
    if not page.searched:
        every = tables.trials(page, page.rows)
        yield Section("trials", "Trials", tables=(every,), rank="text")
    yield _where(page)
    yield Section("method", "How the numbers are made", sentences=tuple(_method(page)), rank="page")
    if page.about.rerun:
        again = (Block(page.about.rerun),)
        yield Section("rerun", "Run it again", blocks=again, rank="details")


def _charts(page: Page) -> Iterator[Section]:
    every = tuple(charts.overview(page))
    figures = tuple(each for each in every if each.key != "heat-map")
    if figures:
        left = axes.panels(page)[1]
        note = message(bulk.NOTE if page.work is not None else "charts-join-cells")
        if page.work is None and left:
            note = " ".join((note, message("charts-left-out", count=left)))
        yield Section("charts", "At a glance", figures=figures, note=note, rank="page")
    if heat := tuple(each for each in every if each.key == "heat-map"):
        yield Section("map", "The whole grid", figures=heat, rank="page")


def _comparisons(page: Page) -> Iterator[Section]:
    if page.background:
        note, table = message("background-of-cells"), tables.background(page)
        yield Section("background", "At the same time", tables=(table,), note=note, rank="numbers")
    if not page.searched and page.machines:
        yield costs.section(page.machines, limited=bool(page.limits))


def _statements(page: Page) -> Iterator[Section]:
    if page.statements:
        texts = {each.name: each.text for each in page.statements}
        yield Section(
            "by-statement",
            "What each statement took",
            tables=(tables.statements(page),),
            figures=tuple(closeups.statements(page)),
            blocks=tuple(Block(text, name) for name, text in texts.items()),
            rank="details",
        )


def _plan(page: Page, plan: StatementPlans, number: int) -> Section:
    count = len(plan.shapes)
    how = message("plans-differ" if count > 1 else "plans-same", count=count)
    full = {plan.letter(each.plan.shape): each.plan for each in reversed(plan.plans)}
    return Section(
        f"plan-{number}",
        f"{plan.script}:{plan.line}",
        sentences=(Sentence(how),),
        tables=(tables.plans(page, plan),),
        blocks=(
            Block(plan.text),
            *(
                Block(as_text(one.plan), f"Plan {letter}: {one.summary}")
                for letter, one in sorted(full.items())
            ),
        ),
    )


def _details(page: Page) -> Section:
    details = list(closeups.closeups(page))
    left = sum(bool(row.trials) for row in page.rows) - len(details)
    note = message("cells-in-detail", shown=len(details), left=left) if left > 0 else ""
    title = "Load by load" if page.searched else "Cell by cell" if len(details) > 1 else "Over time"
    return Section(
        "details",
        title,
        note=note,
        parts=tuple(_cell(page, *each, alone=len(details) == 1) for each in details),
        rank="page",
    )


def _cell(page: Page, row: Row, figures: tuple[Figure, ...], *, alone: bool) -> Section:
    verdict = tables.verdict(page, row)
    missed = (f"missed {100 * row.missed.value:.1f}%",) if row.missed and page.limits else ()
    observed = servers.tables(page.observed.get(closeups.middle(row).trial.id, ()))
    return Section(
        f"cell-{page.rows.index(row) + 1}",
        cell_name(row.cell),
        sentences=tuple(Sentence(text) for text in _remarks(row)),
        tables=(tables.trials(page, [row]), *observed),
        figures=figures,
        aside=missed,
        mark=verdict if page.limits or row.defect else None,
        folded=True,
        open=alone,
    )


def _remarks(row: Row) -> Iterator[str]:
    trials: dict[str, list[str]] = {}
    for digest in row.every:
        trial, summary = digest.trial, digest.summary
        texts = [str(f) for f in summary.validity.findings if f.severity != "nothing"]
        texts += (f"ended with: {trial.error}",) if trial.error else ()
        for state, count in sorted(summary.failures.items()):
            message = summary.messages.get(state, "no message")
            texts.append(f"failed with {state}: {count} ({message})")
        texts += (f"note: {note}" for note in trial.notes)
        for text in texts:
            trials.setdefault(text, []).append(closeups.trial_name(digest))
    for text, names in trials.items():
        of = "all trials" if len(names) == len(row.every) > 1 else ", ".join(names)
        yield f"{of}: {text}"


def _where(page: Page) -> Section:
    parts = [Section("asked", "Asked for", facts=page.options)]
    for number, place in enumerate(page.places, 1):
        of = f" ({place.trials} trials)" if len(page.places) > 1 else ""
        settings = message("settings-not-default", count=len(place.settings))
        inner = (
            Section(f"generator-{number}", "Load generator", facts=place.generator),
            Section(f"settings-{number}", settings, facts=place.settings, folded=True),
        )
        name = f"{place.name}{of}"
        parts.append(Section(f"place-{number}", name, facts=place.server, parts=inner))
    return Section("where", "What was run, and where", parts=tuple(parts), rank="details")


def _method(page: Page) -> Iterator[Sentence]:
    allowed = {"allowed_percent": 100 * page.missed_max}
    if page.work is not None:
        yield from map(Sentence, map(message, bulk.METHOD))
    if page.limits or page.work is None:
        yield Sentence(message("method-latency", above=tables.above(page)))
        yield Sentence(message("method-missed"))
    yield Sentence(message("method-intervals"))
    if page.searched:
        yield Sentence(message("method-search", **allowed))
    elif page.limits or page.work is None:
        yield Sentence(message("method-verdict", **allowed))
    yield Sentence(message("method-invalid"))


def _headline(page: Page) -> Iterator[tuple[str, str]]:
    ran = {
        (digest.trial.place.block, digest.trial.place.cell) if digest.trial.place else id(digest)
        for digest in page.digests
        if digest.trial.state == "finished" or not page.missing
    }
    planned = f" of {len(ran) + page.missing}" if page.missing else ""
    yield "trials", f"{len(ran)}{planned}"
    if len(page.rows) > 1 and not page.searched:
        yield "cells", str(len(page.rows))
    if page.limits:
        yield "latency limit", ", ".join(page.limits)
    due = sum(row.counts.due for row in page.rows)
    alone = page.work and all(digest.trial.workload.command_alone for digest in page.digests)
    yield "executions" if alone else "transactions due", f"{due:,}"
    if starts := [digest.trial.started_at for digest in page.digests]:
        first, last = min(starts), max(starts)
        end = f"to {last:%Y-%m-%d %H:%M %Z}"
        if first.date() == last.date():
            end = f"to {last:%H:%M %Z}" if first != last else f"{last:%Z}"
        yield "measured", f"{first:%Y-%m-%d %H:%M} {end}"
