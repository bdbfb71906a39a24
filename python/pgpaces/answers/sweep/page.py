"""The content of a report as values: computed from trials once, then shown in any form.

Knows no store and reads no clock. Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.analysis import cells, crossing, differences, goal, validity
from pgpaces.analysis.cells import Row
from pgpaces.analysis.differences import Difference
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.parts import Part, StatementPlan, background_of, plans_of, statements_of
from pgpaces.analysis.stopping import LOOKS_OF_CELL
from pgpaces.answers import bulk
from pgpaces.answers.disk import in_short
from pgpaces.answers.trials import limits_of
from pgpaces.core.findings import Finding
from pgpaces.core.units import duration_words
from pgpaces.show.section import Facts, Section
from pgpaces.spec.design import Cell, Experiment, Factor, level_text
from pgpaces.spec.result import Trial
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
    cell and block of trials that never began, and why. commands: the numbers of commands, if all
    trials are about one. searched: a search chose the trials, so there are no tables and charts
    over cells.
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
    parts: tuple[Part, ...] = ()
    plans: tuple[StatementPlan, ...] = ()
    differences: tuple[Difference, ...] = ()
    places: tuple[Place, ...] = ()
    missing: int = 0
    failures: Facts = ()
    commands: tuple[str, ...] | None = None
    searched: bool = False

    @property
    def digests(self) -> tuple[Digest, ...]:
        return tuple(digest for row in self.rows for digest in row.every)

    @property
    def failure(self) -> Finding | None:
        """Why no trial is a measurement; None if one is, or none ran."""
        return validity.no_trial(self.digests)

    @property
    def above(self) -> str:
        """Stands for a time of transactions that did not succeed."""
        return f"> {self.limit}" if self.limit else "∞"

    def by_value(self, difference: Difference) -> dict[str, list[Row]]:
        """The cells that had each value."""
        found: dict[str, list[Row]] = {}
        for row, values in zip(self.rows, difference.values, strict=True):
            for value in values:
                found.setdefault(value, []).append(row)
        return found


def gather(digests: Sequence[Digest], about: About, asked: Experiment | None = None) -> Page:
    """The page of an experiment's trials, or of runs, whose differences are the factors."""
    if asked is None:
        factors, digests = differences.place_runs(digests, about.id)
        names = dict.fromkeys(each.trial.workload.name for each in digests)
        missed_max = min((goal.allowed(each.trial) for each in digests), default=goal.ALLOWED)
        experiment = Experiment(", ".join(names) or "no runs", missed_max=missed_max)
    else:
        factors, experiment = asked.design.factors, asked
    planned = asked is not None and not about.chosen
    design, auto = experiment.design, experiment.design.trials == "auto"
    wanted = [*design.cells()] if planned or auto else differences.cells_of(digests) or [Cell(())]
    kinds = {target.name: target.kind for target in experiment.targets if target.kind}
    untrimmed = cells.rows(wanted, digests, kinds, looks=LOOKS_OF_CELL if auto else None)
    shown = tuple(_shown(factors, untrimmed))
    names = dict.fromkeys(factor.name for factor in shown)
    rows = tuple(
        replace(row, cell=Cell(tuple(pair for pair in row.cell.levels if pair[0] in names)))
        for row in untrimmed
    )
    plans = {(each.trial.plan.limit_ns, bool(each.trial.plan.limits)) for each in digests}
    one_ns, own = plans.pop() if len(plans) == 1 else (None, True)
    ran = (each.trial.plan for row in rows for each in row.every)
    named = {cell.key: cell for cell in wanted}
    finished = (each.trial.place for each in digests if each.trial.state == "finished")
    done = {(place.block, place.cell) for place in finished if place}
    return Page(
        title=experiment.name,
        question=experiment.question,
        about=about,
        factors=shown,
        main=crossing.main_factor(shown),
        rows=rows,
        missed_max=experiment.missed_max,
        limits=tuple(dict.fromkeys(limit for plan in ran for limit in limits_of(plan))),
        limit=duration_words(one_ns) if one_ns and not own else None,
        options=_options(digests, experiment, planned=planned),
        parts=(*background_of(rows), *statements_of(rows)),
        plans=plans_of(rows),
        differences=differences.differ([row.every for row in rows], names, within=True),
        places=_places(digests, about.disks),
        missing=sum((a.block, a.cell.key) not in done for a in design.asks()) if planned else 0,
        failures=tuple(
            (f"{named.get(key, key)}, trial {block}", error) for key, block, error in about.failures
        ),
        commands=bulk.of_cells(rows),
    )


def _shown(factors: Sequence[Factor], rows: Sequence[Row]) -> Iterator[Factor]:
    """The factors with several levels among the rows, in which targets are machine kinds."""
    order = {factor.name: factor.levels for factor in factors}
    for name in dict.fromkeys([*order, *(name for row in rows for name, _ in row.cell.levels)]):
        present = dict.fromkeys(crossing.level_of(row, name) for row in rows)
        known = [level for level in order.get(name, ()) if level in present]
        if len(present) > 1:
            yield Factor(name, tuple(dict.fromkeys((*known, *present))))


def _options(digests: Sequence[Digest], experiment: Experiment, *, planned: bool) -> Facts:
    """The options that all trials share, by the names of options.

    planned: the number of trials is one of them, because it does not follow from a goal.
    """
    fixed = {name: level_text(level) for name, level in experiment.design.fixed.items()}
    every = []
    for trial in (digest.trial for digest in digests):
        own = {"workload": trial.workload.name, "load": trial.load_text}
        own |= {name: differences.text(value) for name, value in trial.spec.items()}
        if trial.workload.command_alone:
            own["command"] = trial.workload.scripts[0].text
        every.append(own)
    options = fixed | _common(every)
    if planned:
        options["trials of each cell"] = str(experiment.design.trials)
    if experiment.from_database:
        options["copy of the database"] = experiment.from_database
    return tuple(options.items())


def _common(every: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The pairs that all have."""
    first = every[0].items() if every else ()
    return {name: value for name, value in first if all(e.get(name) == value for e in every)}


def _places(digests: Sequence[Digest], disks: Sequence[DiskRow]) -> tuple[Place, ...]:
    trials_at: dict[tuple[str, ...], list[Trial]] = {}
    for trial in (digest.trial for digest in digests):
        server, target = trial.server, trial.server.target
        where = f"{target.get('host', '')}:{target.get('port', '')}"
        key = (server.version, server.system_identifier or "", where, trial.host.hostname or "")
        trials_at.setdefault(key, []).append(trial)
    return tuple(_place(trials, disks) for trials in trials_at.values())


def _place(trials: Sequence[Trial], disks: Sequence[DiskRow]) -> Place:
    server, hostname = trials[0].server, trials[0].host.hostname
    facts = _common([dict(differences.of_setup(trial)) for trial in trials])
    prefix = "setting "
    settings = {name: facts.pop(name) for name in [*facts] if name.startswith(prefix)}
    if server.ours:
        facts["host"] = "a server of pgpaces"
    else:
        facts |= {name: str(server.target.get(name) or "") for name in ("host", "port", "sslmode")}
    facts |= {"data directory": server.data_directory or "", "device": server.data_device or ""}
    at = (hostname, server.data_device)
    disk = next((d for d in disks if at[1] and (d.host.hostname, d.disk.device.id) == at), None)
    facts["disk"] = in_short(disk) if disk else ""
    return Place(
        f"PostgreSQL {server.version}",
        tuple(pair for pair in facts.items() if pair[1]),
        tuple(sorted((name.removeprefix(prefix), value) for name, value in settings.items())),
        len(trials),
    )
