"""What was asked and where it ran: plain names and values of trials.

Knows no HTML and no terminal; texts are as others wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers import bulk, differences
from pgpaces.answers.accumulator import by_functions
from pgpaces.answers.cells import Row
from pgpaces.answers.digest import Digest
from pgpaces.design import Experiment
from pgpaces.questions.disk import in_short
from pgpaces.questions.trials import at_nodes, layout
from pgpaces.result import Trial
from pgpaces.units import duration_text

if TYPE_CHECKING:
    from pgpaces.questions.disk import Known

Pairs = tuple[tuple[str, str], ...]
# What is asked of a design, and of no trials that are chosen as it goes.
TRIALS = "trials of each cell"

_SERVER = (
    *("version_text", "build", "data_directory", "data_device"),
    *("configure", "system_identifier"),
)
_TARGET = ("host", "hostaddr", "port", "sslmode")
_PLAN = ("load_text", "clients", "threads", "policy", "protocol", "poll")
# Where Python functions are the load: they have no protocol of ours.
_OF_FUNCTIONS = {"threads": "processes", "poll": "performed by", "protocol": ""}


class ServerFacts(Struct, frozen=True):
    """A server with its machine: facts, and the settings that are not at their default.

    generator: the machine that made the load. trials: how many ran there.
    """

    name: str
    server: Pairs
    settings: Pairs
    generator: Pairs
    trials: int


def _pairs(values: Mapping[str, Any], names: Iterable[str]) -> Pairs:
    return tuple(
        (name.removesuffix("_bytes").replace("_", " "), differences.shown(name, values[name]))
        for name in names
        if values.get(name) not in (None, "")
    )


def limits_of(trial: Trial) -> tuple[str, ...]:
    """The latency limits of a trial, that of all scripts first."""
    whole = trial.plan.limit_ns
    own = [f"{name} {duration_text(ns)}" for name, ns in trial.plan.limits if ns]
    return (*([duration_text(whole)] if whole else []), *own)


def limits(rows: Iterable[Row]) -> tuple[str, ...]:
    """The latency limits of the trials, each once."""
    found = (limit for row in rows for digest in row.every for limit in limits_of(digest.trial))
    return tuple(dict.fromkeys(found))


def one_limit(rows: Iterable[Row]) -> str | None:
    """The limit that holds for every script of every trial; None where there is no such one."""
    found = {
        (digest.trial.plan.limit_ns, bool(digest.trial.plan.limits))
        for row in rows
        for digest in row.every
    }
    limit_ns, own = found.pop() if len(found) == 1 else (None, True)
    return duration_text(limit_ns) if limit_ns and not own else None


def options(digests: Sequence[Digest], experiment: Experiment | None) -> Pairs:
    """What all trials share of what was asked for."""
    found: dict[str, list[str]] = {}
    for digest in digests:
        for name, value in _options_of(digest.trial):
            found.setdefault(name, []).append(value)
    same = {
        name: values[0]
        for name, values in found.items()
        if len(set(values)) == 1 and len(values) == len(digests)
    }
    if experiment is not None:
        design = experiment.design
        for name, level in design.fixed.items():
            same.setdefault(name.replace("_", " "), level)
        same[TRIALS] = str(design.trials)
        if not all(bulk.alone(digest.trial) and not limits_of(digest.trial) for digest in digests):
            same["a cell meets the limit up to"] = f"{100 * experiment.missed_max:g} % missed"
        if experiment.from_database:
            same["copy of the database"] = experiment.from_database
    return tuple(same.items())


def _options_of(trial: Trial) -> Iterator[tuple[str, str]]:
    plan, workload = trial.plan, trial.workload
    yield "workload", workload.name
    yield "scale", str(workload.scale)
    names = {"load_text": "load", **(_OF_FUNCTIONS if by_functions(trial) else {})}
    by_command = bulk.alone(trial)
    if by_command:
        yield "command", trial.workload.scripts[0].text
    for name in () if by_command else _PLAN:
        value, label = getattr(plan, name), names.get(name, name)
        if value is not None and label:
            yield label, differences.text(value)
    if plan.start_every_ns:
        yield "clients start every", duration_text(plan.start_every_ns)
    yield from _layout_of(trial)
    yield "latency limit", ", ".join(limits_of(trial)) or "none"
    if plan.duration_ns:
        yield "duration", duration_text(plan.duration_ns)
    if plan.transactions:
        name = "executions" if by_command else "transactions of each client"
        yield name, str(plan.transactions)
    if plan.warmup_ns:
        yield "warm-up", duration_text(plan.warmup_ns)


def _layout_of(trial: Trial) -> Iterator[tuple[str, str]]:
    """Standbys and pooler, where the clients are, and each load beside the trial's own."""
    components = trial.plan.components
    if behind := layout(trial.server):
        yield "servers", f"primary{behind}"
    if at := at_nodes(trial.plan):
        yield "clients at", at.strip(" ()")
    for name in dict.fromkeys(component.of for component in components if component.of):
        own = [component for component in components if component.of == name]
        nodes = ", ".join(dict.fromkeys(component.node for component in own))
        limit = duration_text(own[0].limit_ns) if own[0].limit_ns else "none"
        yield f"beside it {name}", f"{own[0].load_text} at {nodes}; latency limit {limit}"


def places(digests: Sequence[Digest], disks: Sequence[Known] = ()) -> tuple[ServerFacts, ...]:
    """The servers and machines that trials ran on, each once. disks: what was measured of some."""
    found: dict[tuple[str, ...], list[Trial]] = {}
    for digest in digests:
        trial = digest.trial
        target = trial.server.target
        key = (
            trial.server.version,
            trial.server.system_identifier or "",
            f"{target.get('host', '')}:{target.get('port', '')}",
            trial.host.hostname or "",
        )
        found.setdefault(key, []).append(trial)
    return tuple(_place(trials, disks) for trials in found.values())


def _disk_of(trial: Trial, disks: Iterable[Known]) -> Pairs:
    """What was measured last of the disk that the server's data is on."""
    device = trial.server.data_device
    for known in disks if device else ():
        same = known.host.hostname == trial.host.hostname
        if same and known.found.device.id == device:
            return (("disk", in_short(known)),)
    return ()


def _place(trials: Sequence[Trial], disks: Sequence[Known]) -> ServerFacts:
    first = trials[0]
    server, target = first.server, first.server.target
    common = [set(trial.server.settings.items()) for trial in trials]
    settings = sorted(set.intersection(*common))
    ours = "a server of pgpaces" if server.ours else ""
    where = target.get("host") or ours
    name = f"PostgreSQL {server.version}"
    if where and not where.startswith(("/", "@")):
        name = f"{name} on {where}"
    return ServerFacts(
        name,
        (
            *_pairs(dict(server.items()), _SERVER),
            *_pairs(target, _TARGET),
            *((("kind", ours),) if ours else ()),
            *_disk_of(first, disks),
        ),
        tuple(settings),
        _pairs(dict(first.host.items()), differences.HOST),
        len(trials),
    )


def builds(rows: Iterable[Row]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The builds of PostgreSQL that different versions are of, each with its versions.

    Empty where they are all of one, or of one version: then builds are what is compared.
    """
    found: dict[str, dict[str, None]] = {}
    for digest in (digest for row in rows for digest in row.every):
        server = digest.trial.server
        if server.build:
            found.setdefault(server.build, {})[server.version] = None
    versions = {version for had in found.values() for version in had}
    mixed = len(found) > 1 and len(versions) > 1
    return tuple((build, tuple(had)) for build, had in found.items()) if mixed else ()
