"""The content of a report as values: computed from trials once, then shown in any form.

Knows no store and reads no clock. Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import cells, crossing, differences, goal
from pgpaces.analysis.cells import Row
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import (
    Part,
    StatementPlan,
    background_of,
    plans_of,
    statements_of,
)
from pgpaces.analysis.stopping import LOOKS_OF_CELL
from pgpaces.answers import bulk
from pgpaces.answers.disk import in_short
from pgpaces.answers.trials import limits_of
from pgpaces.core.units import duration_words
from pgpaces.show.section import Facts, Section
from pgpaces.spec.design import Cell, Experiment, Factor, level_text
from pgpaces.spec.result import Trial

if TYPE_CHECKING:
    from pgpaces.store.listing import DiskRow


class About(Struct, frozen=True):
    """What the caller knows in addition to the trials.

    rerun: the command that repeats the experiment. id, state: of the experiment.
    failures: cell key, block and error of each trial that never began. disks: measured disks, the
    newest first. chosen: the trials were chosen one after another, so none of the design is
    missing.
    """

    made_at: datetime
    version: str
    rerun: str = ""
    id: str = ""
    failures: tuple[tuple[str, int, str], ...] = ()
    disks: tuple[DiskRow, ...] = ()
    chosen: bool = False
    state: str = ""


class Place(Struct, frozen=True):
    """A server with its machine: facts, settings that are not at their default, and trials."""

    name: str
    facts: Facts
    settings: Facts
    trials: int


class Page(Struct, frozen=True):
    """The content of a report. factors: those with several levels; main: the axis of the charts.

    limit: the common latency limit, if any. options: those that all trials share. first: the answer
    to another question than the sweep's, which stands first. sections: further answers. places:
    servers with their machines. missing: the number of planned trials that did not run. failures:
    cell and block of trials that never began, and why. work: what all trials are about, if it is
    not transactions. searched: the kind of load that a search chose, if one did: there are no
    tables and charts over cells.
    """

    title: str
    question: str
    about: About
    factors: tuple[Factor, ...]
    main: Factor | None
    rows: tuple[Row, ...]
    missed_max: float
    limits: tuple[str, ...]
    limit: str | None
    options: Facts
    first: Section | None = None
    sections: tuple[Section, ...] = ()
    statements: tuple[Part, ...] = ()
    plans: tuple[StatementPlan, ...] = ()
    differences: tuple[Difference, ...] = ()
    places: tuple[Place, ...] = ()
    missing: int = 0
    failures: Facts = ()
    background: tuple[Part, ...] = ()
    work: bulk.CellsWork | None = None
    searched: str = ""

    @property
    def digests(self) -> tuple[Digest, ...]:
        return tuple(digest for row in self.rows for digest in row.every)

    def by_value(self, difference: Difference) -> dict[str, list[Row]]:
        """The cells that had each value."""
        found: dict[str, list[Row]] = {}
        for row, values in zip(self.rows, difference.values, strict=True):
            for value in values:
                found.setdefault(value, []).append(row)
        return found


def gather(digests: Sequence[Digest], about: About, experiment: Experiment | None = None) -> Page:
    if experiment is None:
        factors, digests = differences.place_runs(digests, about.id)
        design = differences.cells_of(digests)
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
        design,
        digests,
        kinds,
        numbers={each.key: each.of_trial for each in bulk.NUMBERS},
        looks=LOOKS_OF_CELL if experiment and experiment.design.trials == "auto" else None,
    )
    shown = _shown(factors, untrimmed)
    main = crossing.main_factor(shown)
    names = {factor.name for factor in shown}
    rows = tuple(
        replace(row, cell=Cell(tuple(pair for pair in row.cell.levels if pair[0] in names)))
        for row in untrimmed
    )
    named = {cell.key: cell for cell in design}
    limits = tuple(dict.fromkeys(each for row in rows for each in limits_of_row(row)))
    plans = {(each.trial.plan.limit_ns, bool(each.trial.plan.limits)) for each in digests}
    one_ns, own = plans.pop() if len(plans) == 1 else (None, True)
    return Page(
        title=title,
        question=experiment.question if experiment else "",
        about=about,
        factors=shown,
        main=main,
        rows=rows,
        missed_max=missed_max,
        limits=limits,
        limit=duration_words(one_ns) if one_ns and not own else None,
        options=_options(digests, experiment, chosen=about.chosen),
        statements=tuple(statements_of(rows)),
        plans=plans_of(rows),
        differences=differences.differ(
            [row.every for row in rows], [factor.name for factor in shown], within=True
        ),
        places=_places(digests, about.disks),
        missing=missing,
        failures=tuple(
            (f"{named.get(key, key)}, trial {block}", error) for key, block, error in about.failures
        ),
        background=tuple(background_of(rows)),
        work=bulk.of_cells(rows),
    )


def limits_of_row(row: Row) -> Iterator[str]:
    """The latency limits of the trials of a cell, some several times."""
    for digest in row.every:
        yield from limits_of(digest.trial.plan)


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
    names = dict.fromkeys(
        [*(f.name for f in factors), *(name for row in rows for name, _ in row.cell.levels)]
    )
    order = {factor.name: factor.levels for factor in factors}
    for name in names:
        present = dict.fromkeys(crossing.level_of(row, name) for row in rows)
        levels = [level for level in order.get(name, ()) if level in present]
        levels += [level for level in present if level not in levels]
        if len(levels) > 1:
            shown.append(Factor(name, tuple(levels)))
    return tuple(shown)


def _options(digests: Sequence[Digest], experiment: Experiment | None, *, chosen: bool) -> Facts:
    """The options that all trials share, by the names of options."""
    every = [_options_of(digest.trial).items() for digest in digests]
    same = [pair for pair in (every[0] if every else ()) if all(pair in each for each in every)]
    if experiment is None:
        return tuple(same)
    fixed = {name: level_text(level) for name, level in experiment.design.fixed.items()}
    options = fixed | dict(same)
    # The number of trials that are chosen one after another follows from the goal.
    if not chosen:
        options["trials of each cell"] = str(experiment.design.trials)
    if experiment.from_database:
        options["copy of the database"] = experiment.from_database
    return tuple(options.items())


def _options_of(trial: Trial) -> dict[str, str]:
    options = {"workload": trial.workload.name, "load": trial.load_text}
    options |= {name: differences.text(value) for name, value in trial.spec.items()}
    if trial.workload.command_alone:
        options["command"] = trial.workload.scripts[0].text
    return options


def _places(digests: Sequence[Digest], disks: Sequence[DiskRow]) -> tuple[Place, ...]:
    trials_at: dict[tuple[str, ...], list[Trial]] = {}
    for trial in (digest.trial for digest in digests):
        server, target = trial.server, trial.server.target
        where = f"{target.get('host', '')}:{target.get('port', '')}"
        key = (server.version, server.system_identifier or "", where, trial.host.hostname or "")
        trials_at.setdefault(key, []).append(trial)
    return tuple(_place(trials, disks) for trials in trials_at.values())


def _place(trials: Sequence[Trial], disks: Sequence[DiskRow]) -> Place:
    first, server = trials[0], trials[0].server
    every = [dict(differences.of_setup(trial)) for trial in trials]
    same = {n: v for n, v in every[0].items() if all(each.get(n) == v for each in every)}
    settings = [pair for pair in same.items() if pair[0].startswith("setting ")]
    where = {name: str(server.target.get(name) or "") for name in ("host", "port", "sslmode")}
    if server.ours:
        where = {"host": "a server of pgpaces"}
    where |= {"data directory": server.data_directory or "", "device": server.data_device or ""}
    disk = next((each for each in disks if server.data_device
                 and each.host.hostname == first.host.hostname
                 and each.disk.device.id == server.data_device), None)  # fmt: skip
    where |= {"disk": in_short(disk)} if disk else {}
    facts = (pair for pair in (*same.items(), *where.items()) if pair[1] and pair not in settings)
    return Place(
        f"PostgreSQL {server.version}",
        tuple(facts),
        tuple(sorted((name.removeprefix("setting "), value) for name, value in settings)),
        len(trials),
    )
