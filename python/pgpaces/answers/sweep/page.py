"""The content of a report as values: computed from trials once, then shown in any form.

Knows no store and reads no clock. Texts are unescaped; the code that renders them escapes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pgpaces.analysis import cells, crossing, differences, goal
from pgpaces.analysis.accumulator import by_functions
from pgpaces.analysis.cells import MachineRatio, Row
from pgpaces.analysis.certainty import errors
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
from pgpaces.answers import bulk
from pgpaces.answers.disk import in_short
from pgpaces.answers.trials import at_nodes, layout, limits_of
from pgpaces.core.units import duration_text
from pgpaces.show.section import Facts, Section
from pgpaces.spec.design import Cell, Experiment, Factor, level_text
from pgpaces.spec.load import AUTO
from pgpaces.spec.result import Observed, Trial
from pgpaces.spec.setup import ComponentFacts

if TYPE_CHECKING:
    from pgpaces.store.disks import DiskRow

_SERVER = (
    *("version_text", "build", "data_directory", "data_device"),
    *("configure", "system_identifier"),
)
_TARGET = ("host", "hostaddr", "port", "sslmode")
# Labels for a load of Python functions; an empty one hides the option.
_OF_FUNCTIONS = {"threads": "processes", "poll": "performed by", "protocol": ""}


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


class ServerFacts(Struct, frozen=True):
    """A server with its machine: facts, and the settings that are not at their default.

    generator: the machine of the load generator. trials: the number of trials there.
    """

    name: str
    server: Facts
    settings: Facts
    generator: Facts
    trials: int


class Page(Struct, frozen=True):
    """The content of a report. factors: those with several levels; main: the axis of the charts.

    lines: rows that share all levels but that of the main factor. limit: the common latency limit,
    if any. options: those that all trials share. first: the answer to another question than the
    sweep's, which stands first. sections: further answers. places: servers with their machines.
    missing: the number of planned trials that did not run. failures: cell and block of trials that
    never began, and why. work: what all trials are about, if it is not transactions. searched: the
    kind of load that a search chose, if one did: there are no tables and charts over cells.
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
    options: Facts
    first: Section | None = None
    sections: tuple[Section, ...] = ()
    statements: tuple[StatementRow, ...] = ()
    plans: tuple[StatementPlans, ...] = ()
    differences: tuple[Difference, ...] = ()
    places: tuple[ServerFacts, ...] = ()
    apart: tuple[MachineRatio, ...] = ()
    missing: int = 0
    failures: Facts = ()
    background: tuple[BackgroundRow, ...] = ()
    work: bulk.CellsWork | None = None
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
        design,
        digests,
        kinds,
        numbers={each.key: each.of_trial for each in bulk.NUMBERS},
        errors=errors if experiment and experiment.design.trials == "auto" else None,
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
        lines=crossing.lines(rows, main.name) if main else (Line((), rows),),
        missed_max=missed_max,
        limits=limits,
        limit=duration_text(one_ns) if one_ns and not own else None,
        options=_options(digests, experiment, chosen=about.chosen),
        statements=statements_of(rows),
        plans=plans_of(rows),
        differences=differences.of_cells(rows, shown),
        places=_places(digests, about.disks),
        apart=cells.machine_ratios(digests, kinds),
        missing=missing,
        failures=tuple(
            (f"{named.get(key, key)}, trial {block}", error) for key, block, error in about.failures
        ),
        background=background_rows(rows),
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
    every = [dict(_options_of(digest.trial)) for digest in digests]
    same = {
        name: value
        for name, value in (every[0] if every else {}).items()
        if all(each.get(name) == value for each in every)
    }
    if experiment is None:
        return tuple(same.items())
    for name, level in experiment.design.fixed.items():
        same.setdefault(name.replace("_", " "), level_text(level))
    # The number of trials that are chosen one after another follows from the goal.
    if not chosen:
        same["trials of each cell"] = str(experiment.design.trials)
    trials = [digest.trial for digest in digests]
    if not all(each.workload.command_alone and not limits_of(each.plan) for each in trials):
        same["a cell passes up to"] = f"{100 * experiment.missed_max:g}% missed"
    if experiment.from_database:
        same["copy of the database"] = experiment.from_database
    return tuple(same.items())


def _options_of(trial: Trial) -> Iterator[tuple[str, str]]:
    plan, workload, setup = trial.plan, trial.workload, trial.setup
    components = setup.components
    yield "workload", workload.name
    yield "scale", str(workload.scale)
    names, by_command = _OF_FUNCTIONS if by_functions(trial) else {}, workload.command_alone
    values = {
        "load": trial.load_text,
        "clients": setup.clients,
        "threads": setup.threads,
        "policy": plan.policy,
        "protocol": plan.protocol,
        "poll": setup.poll,
    }
    if by_command:
        yield "command", workload.scripts[0].text
        values = {}
    for name, value in values.items():
        if value is not None and (label := names.get(name, name)):
            yield label, differences.text(value)
    if plan.start_every_ns:
        yield "clients start every", duration_text(plan.start_every_ns)
    if others := layout(trial.server):
        yield "servers", f"primary{others}"
    if at := at_nodes(components):
        yield "clients at", at.strip(" ()")
    yield from _background_of(components)
    yield "latency limit", ", ".join(limits_of(plan)) or "none"
    if plan.duration_ns:
        yield "duration", AUTO if plan.auto else duration_text(plan.duration_ns)
    if plan.transactions:
        name = "executions" if by_command else "transactions of each client"
        yield name, str(plan.transactions)
    if plan.warmup:
        yield "warm-up", duration_text(plan.warmup)


def _background_of(components: Sequence[ComponentFacts]) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(component.of for component in components if component.of):
        own = [component for component in components if component.of == name]
        nodes = ", ".join(dict.fromkeys(component.node for component in own))
        limit = duration_text(own[0].limit_ns) if own[0].limit_ns else "none"
        yield f"background {name}", f"{own[0].load} at {nodes}; latency limit {limit}"


def _places(digests: Sequence[Digest], disks: Sequence[DiskRow]) -> tuple[ServerFacts, ...]:
    trials_at: dict[tuple[str, ...], list[Trial]] = {}
    for trial in (digest.trial for digest in digests):
        target = trial.server.target
        key = (
            trial.server.version,
            trial.server.system_identifier or "",
            f"{target.get('host', '')}:{target.get('port', '')}",
            trial.host.hostname or "",
        )
        trials_at.setdefault(key, []).append(trial)
    return tuple(_place(trials, disks) for trials in trials_at.values())


def _place(trials: Sequence[Trial], disks: Sequence[DiskRow]) -> ServerFacts:
    first = trials[0]
    server, target = first.server, first.server.target
    settings = sorted(set.intersection(*(set(each.server.settings.items()) for each in trials)))
    kind = "a server of pgpaces" if server.ours else ""
    where = target.get("host") or kind
    name = f"PostgreSQL {server.version}"
    if where and not where.startswith(("/", "@")):
        name = f"{name} on {where}"
    disk = next((each for each in disks if server.data_device
                 and each.host.hostname == first.host.hostname
                 and each.disk.device.id == server.data_device), None)  # fmt: skip
    return ServerFacts(
        name,
        (
            *_pairs(asdict(server), _SERVER),
            *_pairs(target, _TARGET),
            *((("kind", kind),) if kind else ()),
            *((("disk", in_short(disk)),) if disk else ()),
        ),
        tuple(settings),
        _pairs(asdict(first.host), differences.HOST),
        len(trials),
    )


def _pairs(values: Mapping[str, Any], names: Iterable[str]) -> Facts:
    return tuple(
        (name.removesuffix("_bytes").replace("_", " "), differences.shown(name, values[name]))
        for name in names
        if values.get(name) not in (None, "")
    )
