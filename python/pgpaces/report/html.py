"""The report as one self-contained HTML page: no network, no script, light and dark, to be printed.

Values and texts go through a template that escapes everything; only drawn charts are put in as they
are, and their texts were escaped when they were drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pgpaces.answers.bulk import alone as of_alone
from pgpaces.answers.cells import Row
from pgpaces.answers.digest import Digest
from pgpaces.answers.plans import PlanOf
from pgpaces.report import (
    bulk,
    charts,
    closeups,
    draw,
    escape,
    figure,
    look,
    servers,
    tables,
    words,
)
from pgpaces.report.page import Page
from pgpaces.report.section import Figure, Section, Table, TableCell
from pgpaces.report.text import judgement
from pgpaces.result import Explained

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Detail:
    """One cell in detail."""

    row: Row
    name: str
    verdict: TableCell
    trials: Table
    said: tuple[str, ...]
    figures: tuple[Figure, ...]
    observed: tuple[Table, ...]


def excerpt(page: Page) -> str:
    """The words and the table of cells alone, for a notebook."""
    template = _environment().get_template("excerpt.html")
    return template.render(page=page, cells=tables.cells(page))


def answered(section: Section) -> str:
    """An answer of its own, for a notebook: its words, charts and tables."""
    environment = _environment()
    return environment.get_template("section.html").render(
        section=section,
        style=_variables(look.LIGHT),
        svg={key: _safe(text) for key, text in draw.drawn(section.figures).items()},
    )


def html(page: Page) -> str:
    """The page."""
    environment = _environment()
    if page.searched:
        page = replace(page, ratios=(), statements=(), plans=(), costs=())
    overview = [] if page.searched else list(charts.overview(page))
    heat = [each for each in overview if each.key == "heat-map"]
    statements = list(closeups.statements(page))
    details = list(_details(page))
    answers = [one for each in page.sections for one in each.figures]
    every = [*answers, *overview, *statements, *(one for each in details for one in each.figures)]
    ran = [row for row in page.rows if row.trials]
    return environment.get_template("page.html").render(
        page=page,
        style=_style(),
        svg={key: _safe(text) for key, text in draw.drawn(every).items()},
        drawn=draw.available(),
        cells=tables.cells(page),
        costs=tables.costs(page),
        failures=tables.failures(page),
        commands=bulk.about_commands(page.rows),
        overview=_side_by_side(each for each in overview if each not in heat),
        heat=heat,
        panels_left=figure.panels(page)[1],
        ratios=tables.ratios(page),
        beside=tables.beside(page),
        statements=tables.statements(page),
        statement_figures=statements,
        plans=[(plan, *tables.plans(page, plan), _one_of_each(plan)) for plan in page.plans],
        details=details,
        details_left=len(ran) - len(details),
        differences=tables.differences(page),
        span=_span(page),
        headline=_headline(page),
    )


def _side_by_side(figures: Iterable[Figure]) -> list[list[Figure]]:
    """Charts in their order, those together that share their axes."""
    return [list(group) for _, group in groupby(figures, lambda each: each.beside or each.key)]


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
    from markupsafe import escape as quoted

    def clean(value: Any) -> Any:
        """No text that does anything gets out, wherever it comes from."""
        return escape.line(value) if type(value) is str else value

    made = Environment(
        loader=PackageLoader("pgpaces.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["block"] = lambda text: Markup(quoted(escape.lines(text)))
    made.filters["soft"] = _soft
    return made


def _soft(text: str) -> Markup:
    """A name that may be broken behind its underscores."""
    from markupsafe import Markup
    from markupsafe import escape as quoted

    return Markup(str(quoted(escape.line(text))).replace("_", "_<wbr>"))


def _safe(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


def _style() -> Markup:
    """The colours of light and dark, then the rest of the style sheet."""
    from importlib import resources

    rest = resources.files("pgpaces.report").joinpath("templates/page.css").read_text("utf-8")
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(look.DARK)}}}}}"
    return _safe(f":root{{{_variables(look.LIGHT)}}}\n{dark}\n{rest}")


def _variables(chosen: look.Look) -> str:
    """The colours as CSS variables."""
    pairs = {**chosen.colours(), "paper": chosen.background}
    return "".join(f"--{name}:{colour};" for name, colour in pairs.items())


def _details(page: Page) -> Iterator[Detail]:
    for closeup in closeups.closeups(page):
        row = closeup.row
        yield Detail(
            row,
            words.cell_name(row),
            tables.verdict(page, row),
            tables.trials(page, [row]),
            tuple(_said(row)),
            closeup.figures,
            servers.tables(page.observed.get(closeups.middle(row).trial.id, ())),
        )


def _said(row: Row) -> Iterator[str]:
    """What is to be known of the trials of a cell, the same thing once."""
    found: dict[str, list[str]] = {}
    for digest in row.every:
        for text in _of_trial(digest):
            found.setdefault(text, []).append(closeups.trial_name(digest))
    for text, names in found.items():
        who = "all trials" if len(names) == len(row.every) > 1 else ", ".join(names)
        yield f"{who}: {text}"


def _of_trial(digest: Digest) -> Iterable[str]:
    trial, summary = digest.trial, digest.summary
    yield from (text for text in judgement(summary.validity) if text != "valid")
    if trial.error:
        yield f"ended with: {trial.error}"
    for state, count in sorted(summary.failures.items()):
        yield f"failed with {state}: {count} ({summary.messages.get(state, 'no message')})"
    for note in trial.notes:
        yield f"note: {note}"


def _one_of_each(plan: PlanOf) -> list[tuple[str, Explained]]:
    """Of each shape of a plan one in full, by its letter."""
    found: dict[str, Explained] = {}
    for seen in plan.seen:
        found.setdefault(plan.letter(seen.plan.shape), seen.plan)
    return sorted(found.items())


def _span(page: Page) -> str:
    """From when to when the trials ran."""
    starts = [digest.trial.started_at for digest in page.digests]
    if not starts:
        return ""
    first, last = min(starts), max(starts)
    if first.date() == last.date():
        return f"{first:%Y-%m-%d %H:%M}" + (
            f" to {last:%H:%M %Z}" if first != last else f" {last:%Z}"
        )
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M %Z}"


def _headline(page: Page) -> list[tuple[str, str]]:
    """A few facts under the title."""
    ran = {
        (digest.trial.place.block, digest.trial.place.cell) if digest.trial.place else id(digest)
        for digest in page.digests
        if digest.trial.state == "finished" or not page.missing
    }
    asked = f" of {len(ran) + page.missing}" if page.missing else ""
    found = [("trials", f"{len(ran)}{asked}")]
    if len(page.rows) > 1 and not page.searched:
        found.append(("cells", str(len(page.rows))))
    if page.limits:
        found.append(("latency limit", ", ".join(page.limits)))
    due = sum(row.counts.due for row in page.rows)
    alone = bulk.about_commands(page.rows) and all(of_alone(d.trial) for d in page.digests)
    what = "executions" if alone else "transactions due"
    found.append((what, f"{due:,}"))
    if span := _span(page):
        found.append(("measured", span))
    return found
