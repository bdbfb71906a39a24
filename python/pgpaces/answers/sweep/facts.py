"""Options, servers and machines of trials as plain names and values.

Knows no HTML and no terminal; texts are unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from pgpaces.analysis import differences
from pgpaces.analysis.accumulator import by_functions
from pgpaces.analysis.cells import Row
from pgpaces.analysis.digest import Digest
from pgpaces.answers.disk import in_short
from pgpaces.answers.trials import at_nodes, layout
from pgpaces.core.units import duration_text
from pgpaces.spec.design import Experiment, level_text
from pgpaces.spec.load import AUTO
from pgpaces.spec.result import Trial

if TYPE_CHECKING:
    from pgpaces.store.disks import DiskRow

Pairs = tuple[tuple[str, str], ...]
# An option of a design; trials that are chosen one after another do not have it.
TRIALS = "trials of each cell"

_SERVER = (
    *("version_text", "build", "data_directory", "data_device"),
    *("configure", "system_identifier"),
)
_TARGET = ("host", "hostaddr", "port", "sslmode")
# Labels for a load of Python functions; an empty one hides the option.
_OF_FUNCTIONS = {"threads": "processes", "poll": "performed by", "protocol": ""}


class ServerFacts(Struct, frozen=True):
    """A server with its machine: facts, and the settings that are not at their default.

    generator: the machine of the load generator. trials: the number of trials there.
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
    """The latency limits of a trial; that of all scripts first, then those of single scripts."""
    whole = trial.plan.limit_ns
    own = [f"{name} {duration_text(ns)}" for name, ns in trial.plan.limits if ns]
    return (*([duration_text(whole)] if whole else []), *own)


def limits(rows: Iterable[Row]) -> tuple[str, ...]:
    every = (limit for row in rows for digest in row.every for limit in limits_of(digest.trial))
    return tuple(dict.fromkeys(every))


def one_limit(rows: Iterable[Row]) -> str | None:
    plans = {
        (digest.trial.plan.limit_ns, bool(digest.trial.plan.limits))
        for row in rows
        for digest in row.every
    }
    limit_ns, own = plans.pop() if len(plans) == 1 else (None, True)
    return duration_text(limit_ns) if limit_ns and not own else None


def options(digests: Sequence[Digest], experiment: Experiment | None) -> Pairs:
    every = [dict(_options_of(digest.trial)) for digest in digests]
    first = every[0] if every else {}
    same = {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in every)
    }
    if experiment is not None:
        design = experiment.design
        for name, level in design.fixed.items():
            same.setdefault(name.replace("_", " "), level_text(level))
        same[TRIALS] = str(design.trials)
        if not all(
            digest.trial.workload.command_alone and not limits_of(digest.trial)
            for digest in digests
        ):
            same["a cell passes up to"] = f"{100 * experiment.missed_max:g}% missed"
        if experiment.from_database:
            same["copy of the database"] = experiment.from_database
    return tuple(same.items())


def _options_of(trial: Trial) -> Iterator[tuple[str, str]]:
    plan, workload = trial.plan, trial.workload
    yield "workload", workload.name
    yield "scale", str(workload.scale)
    names, setup = (_OF_FUNCTIONS if by_functions(trial) else {}), trial.setup
    by_command = trial.workload.command_alone
    values = {
        "load": trial.load_text,
        "clients": setup.clients,
        "threads": setup.threads,
        "policy": plan.policy,
        "protocol": plan.protocol,
        "poll": setup.poll,
    }
    if by_command:
        yield "command", trial.workload.scripts[0].text
        values = {}
    for name, value in values.items():
        if value is not None and (label := names.get(name, name)):
            yield label, differences.text(value)
    if plan.start_every_ns:
        yield "clients start every", duration_text(plan.start_every_ns)
    yield from _layout_of(trial)
    yield "latency limit", ", ".join(limits_of(trial)) or "none"
    if plan.duration_ns:
        yield "duration", AUTO if plan.auto else duration_text(plan.duration_ns)
    if plan.transactions:
        name = "executions" if by_command else "transactions of each client"
        yield name, str(plan.transactions)
    if plan.warmup:
        yield "warm-up", duration_text(plan.warmup)


def _layout_of(trial: Trial) -> Iterator[tuple[str, str]]:
    components = trial.setup.components
    if others := layout(trial.server):
        yield "servers", f"primary{others}"
    if at := at_nodes(components):
        yield "clients at", at.strip(" ()")
    for name in dict.fromkeys(component.of for component in components if component.of):
        own = [component for component in components if component.of == name]
        nodes = ", ".join(dict.fromkeys(component.node for component in own))
        limit = duration_text(own[0].limit_ns) if own[0].limit_ns else "none"
        yield f"background {name}", f"{own[0].load} at {nodes}; latency limit {limit}"


def places(digests: Sequence[Digest], disks: Sequence[DiskRow] = ()) -> tuple[ServerFacts, ...]:
    trials_at: dict[tuple[str, ...], list[Trial]] = {}
    for digest in digests:
        trial = digest.trial
        target = trial.server.target
        key = (
            trial.server.version,
            trial.server.system_identifier or "",
            f"{target.get('host', '')}:{target.get('port', '')}",
            trial.host.hostname or "",
        )
        trials_at.setdefault(key, []).append(trial)
    return tuple(_place(trials, disks) for trials in trials_at.values())


def _disk_of(trial: Trial, disks: Iterable[DiskRow]) -> Pairs:
    device = trial.server.data_device
    for each in disks if device else ():
        same = each.host.hostname == trial.host.hostname
        if same and each.disk.device.id == device:
            return (("disk", in_short(each)),)
    return ()


def _place(trials: Sequence[Trial], disks: Sequence[DiskRow]) -> ServerFacts:
    first = trials[0]
    server, target = first.server, first.server.target
    settings = sorted(set.intersection(*(set(each.server.settings.items()) for each in trials)))
    kind = "a server of pgpaces" if server.ours else ""
    where = target.get("host") or kind
    name = f"PostgreSQL {server.version}"
    if where and not where.startswith(("/", "@")):
        name = f"{name} on {where}"
    return ServerFacts(
        name,
        (
            *_pairs(asdict(server), _SERVER),
            *_pairs(target, _TARGET),
            *((("kind", kind),) if kind else ()),
            *_disk_of(first, disks),
        ),
        tuple(settings),
        _pairs(asdict(first.host), differences.HOST),
        len(trials),
    )


def builds(rows: Iterable[Row]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The builds of PostgreSQL with their versions, if different versions have different builds.

    Empty for a single build, or a single version: then the builds are compared.
    """
    versions_of: dict[str, dict[str, None]] = {}
    for digest in (digest for row in rows for digest in row.every):
        server = digest.trial.server
        if server.build:
            versions_of.setdefault(server.build, {})[server.version] = None
    mixed = len(versions_of) > 1 and len(set().union(*versions_of.values())) > 1
    return tuple((build, tuple(own)) for build, own in versions_of.items()) if mixed else ()
