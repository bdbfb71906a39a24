"""The content of a report as values: computed from trials once, then rendered in any form.

Knows no HTML, no charts, no store. Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis import (
    cells,
    crossing,
    differences,
    goal,
)
from pgpaces.analysis.cells import MachineRatio, Row
from pgpaces.analysis.costs import Economy, Priced, volume_of
from pgpaces.analysis.crossing import Line
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import (
    BackgroundRow,
    StatementPlans,
    StatementRow,
    background_rows,
    plans_of,
    statements_of,
)
from pgpaces.answers import costs
from pgpaces.answers.bulk import words as commands
from pgpaces.answers.bulk.work import CellsWork, of_cells
from pgpaces.answers.sweep import facts, words
from pgpaces.answers.sweep.facts import ServerFacts
from pgpaces.answers.trials import queries as queries_of
from pgpaces.show.section import Headline, Section, Sentence
from pgpaces.spec.design import Cell, Experiment, Factor
from pgpaces.spec.result import Observed

if TYPE_CHECKING:
    from pgpaces.store.disks import DiskRow


class About(Struct, frozen=True):
    """What the caller knows in addition to the trials. The module reads no clock.

    rerun: the command that repeats the experiment. id, started_at: of the experiment. failures:
    cell key, block and error of each trial that never began. disks: measured disks, the newest
    first. chosen: the trials were chosen one after another, so none of the design is missing.
    state: of the experiment.
    """

    made_at: datetime
    version: str
    rerun: str = ""
    id: str = ""
    started_at: datetime | None = None
    failures: tuple[tuple[str, int, str], ...] = ()
    disks: tuple[DiskRow, ...] = ()
    chosen: bool = False
    state: str = ""


class Page(Struct, frozen=True):
    """The content of a report. factors: those with several levels; main: the axis of the charts.

    lines: rows that share all levels but that of the main factor. places: servers with their
    machines. missing: the number of planned trials that did not run. failures: cell and block of
    trials that never began, and why. limit: the common latency limit, if any. options: those that
    all trials share. machines: with their costs. economies: of cells, by their keys. work: what all
    trials are about, if it is not transactions. sections: answers to further questions. searched:
    the kind of load that a search chose, if one did: the first section is the answer then, and
    there are no tables and charts over cells.
    observed: server observations by trial id, for the trials shown in detail.
    """

    title: str
    question: str
    about: About
    factors: tuple[Factor, ...]
    main: Factor | None
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    missed_max: float
    limits: tuple[str, ...]
    limit: str | None
    options: tuple[tuple[str, str], ...]
    headline: Headline | None = None
    answer: tuple[Sentence, ...] = ()
    statements: tuple[StatementRow, ...] = ()
    plans: tuple[StatementPlans, ...] = ()
    differences: tuple[Difference, ...] = ()
    places: tuple[ServerFacts, ...] = ()
    apart: tuple[MachineRatio, ...] = ()
    missing: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    background: tuple[BackgroundRow, ...] = ()
    machines: tuple[Priced, ...] = ()
    economies: Mapping[str, Economy] = field(default_factory=dict)
    work: CellsWork | None = None
    sections: tuple[Section, ...] = ()
    of_why: bool = False
    searched: str = ""
    observed: Mapping[str, tuple[Observed, ...]] = field(default_factory=dict)

    @property
    def digests(self) -> tuple[Digest, ...]:
        return tuple(digest for row in self.rows for digest in row.every)


def gather(digests: Sequence[Digest], about: About, experiment: Experiment | None = None) -> Page:
    if experiment is None:
        factors, digests = differences.place_runs(digests, about.id)
        order = {f.name: {level: n for n, level in enumerate(f.levels)} for f in factors}
        design = differences.cells_of(
            digests, lambda cell: tuple(order[n][at] for n, at in cell.levels)
        )
        kinds: dict[str, str] = {}
        title = ", ".join(dict.fromkeys(each.trial.workload.name for each in digests)) or "no runs"
        missing = 0
        missed_max = min((goal.allowed(each.trial) for each in digests), default=goal.ALLOWED)
    else:
        factors, design = experiment.design.factors, list(experiment.design.cells())
        kinds = {target.name: target.kind for target in experiment.targets if target.kind}
        title, missed_max = experiment.name, experiment.missed_max
        missing = 0 if about.chosen else _missing(experiment, digests)
    untrimmed = cells.rows(
        design, digests, kinds, numbers={each.key: each.of_trial for each in commands.NUMBERS}
    )
    shown = _shown(factors, untrimmed)
    main = crossing.main_factor(shown)
    names = {factor.name for factor in shown}
    rows = tuple(
        replace(row, cell=Cell(tuple(pair for pair in row.cell.levels if pair[0] in names)))
        for row in untrimmed
    )
    named = {cell.key: cell for cell in design}
    lines = crossing.lines(rows, main.name) if main else (Line((), rows),)
    limits = facts.limits(rows)
    machines, economies = costs.of_cells(
        rows, experiment, shown, missed_max=missed_max, limited=bool(limits)
    )
    page = Page(
        title=title,
        question=experiment.question if experiment else "",
        about=about,
        factors=shown,
        main=main,
        rows=rows,
        lines=lines,
        missed_max=missed_max,
        limits=limits,
        limit=facts.one_limit(rows),
        options=facts.options(digests, experiment),
        statements=statements_of(rows),
        plans=plans_of(rows),
        differences=differences.of_cells(rows, shown),
        places=facts.places(digests, about.disks),
        apart=cells.machine_ratios(digests, kinds),
        missing=missing,
        failures=tuple(
            (f"{named.get(key, key)}, trial {block}", error) for key, block, error in about.failures
        ),
        background=background_rows(rows),
        machines=machines,
        economies=economies,
        work=of_cells(rows),
    )
    answer = (
        *words.sentences(page),
        *_queries(rows),
        *costs.sentences(machines),
    )
    return replace(page, headline=words.headline(page), answer=answer)


def _queries(rows: Sequence[Row]) -> Iterator[Sentence]:
    trials = [digest for row in rows for digest in row.trials]
    if len(trials) == 1 and (queries := volume_of(trials[0].trial, trials[0].summary)) is not None:
        yield Sentence(str(queries_of(queries)))


def _missing(experiment: Experiment, digests: Sequence[Digest]) -> int:
    done = {
        (digest.trial.place.block, digest.trial.place.cell)
        for digest in digests
        if digest.trial.place and digest.trial.state == "finished"
    }
    return sum((ask.block, ask.cell.key) not in done for ask in experiment.design.asks())


def _shown(factors: Sequence[Factor], rows: Sequence[Row]) -> tuple[Factor, ...]:
    """The factors with several levels among the rows, in which targets are machine kinds."""
    shown = []
    names = list(
        dict.fromkeys([*(f.name for f in factors), *(n for r in rows for n, _ in r.cell.levels)])
    )
    order = {factor.name: factor.levels for factor in factors}
    for name in names:
        present = dict.fromkeys(crossing.level_of(row, name) for row in rows)
        levels = [level for level in order.get(name, ()) if level in present]
        levels += [level for level in present if level not in levels]
        if len(levels) > 1:
            shown.append(Factor(name, tuple(levels)))
    return tuple(shown)
