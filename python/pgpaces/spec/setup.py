"""What was resolved for a trial: its setup, typed, stored beside the spec, checked on reading.

Fields are stored in their order, under their own names. A field that a stored trial, or a file of
another program, lacks has its default.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import msgspec

from pgpaces.core.findings import Finding
from pgpaces.spec.load import Count, Load


class Facts(msgspec.Struct, frozen=True):
    def but(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)


class ComponentFacts(Facts, frozen=True, kw_only=True):
    """A component load. of: its background workload; "" for the trial's own.

    load: with its share of the rate. limits: of scripts whose limit is not limit_ns; 0: none.
    """

    of: str = ""
    node: str = "primary"
    scripts: tuple[str, ...] = ()
    load: Load
    clients: Count
    seed: int = 1
    limit_ns: Count | None = None
    limits: tuple[tuple[str, Count], ...] = ()


class ImportedFacts(Facts, frozen=True, kw_only=True):
    program: str
    command: str | None = None
    files: tuple[str, ...] = ()


class GeneratorFacts(Facts, frozen=True, kw_only=True):
    """One of several generators: its share of the clients, and its clock before the load.

    name: of its machine, with a number if several are on it. offset_ns: its monotonic clock minus
    that of the machine that stored the trial; uncertainty_ns: the most that can be wrong.
    """

    name: str
    clients: Count
    threads: Count
    cpus: Count
    offset_ns: int
    uncertainty_ns: Count


class ScriptCommand(Facts, frozen=True, array_like=True):
    """A command of a script. line: from 1; 0 where there is no text. text: as far as it is kept."""

    line: Count
    text: str
    is_sql: bool


class ScriptFacts(Facts, frozen=True, kw_only=True):
    """A script, as intervals count them. queries: of a transaction; None: not known.

    text, commands: as far as they are stored. length: of the whole text, if only a part is stored.
    kind: "users", "command", or None for SQL.
    """

    name: str
    weight: Count
    text: str = ""
    source: str = ""
    queries: Count | None = None
    node: str = "primary"
    commands: tuple[ScriptCommand, ...]
    length: Count | None = None
    kind: str | None = None

    @property
    def is_command(self) -> bool:
        return self.kind == "command"


class Prepared(Facts, frozen=True):
    """A database with its data: its name, and the time to create it.

    created: in this run, not reused. cloned_from: the database of which this is a copy, if it is.
    seconds: in all; of these, clone_seconds made this copy, and settle_seconds let the server
    finish the work that follows. notes: remarks for trials on it.
    """

    dbname: str
    fingerprint: str
    created: bool
    seconds: float
    size_bytes: int
    cloned_from: str | None = None
    clone_seconds: float = 0.0
    settle_seconds: float = 0.0
    notes: tuple[Finding, ...] = ()


class WorkloadFacts(Facts, frozen=True, kw_only=True):
    """A workload, and its data. hash: of all its files."""

    name: str
    description: str = ""
    hash: str = ""
    scale: int = 1
    init: Mapping[str, str] = {}
    scripts: tuple[ScriptFacts, ...]
    prepared: Prepared | None = None

    @property
    def about_command(self) -> bool:
        """Whether a trial is about a command: few executions, each unlike the others."""
        return any(script.is_command for script in self.scripts[:1])

    @property
    def command_alone(self) -> bool:
        return self.about_command and len(self.scripts) == 1


class PoolFacts(Facts, frozen=True, kw_only=True):
    """A managed pooler; false if there is none. size: the maximum of its server connections."""

    pooler: str = ""
    version: str = ""
    mode: str = ""
    size: Count = 0

    def __bool__(self) -> bool:
        return bool(self.pooler)


class ServerFacts(Facts, frozen=True, kw_only=True):
    """The primary as a session of the load saw it. settings: those with non-default values.

    target: its address, as connection keywords without a password; nodes: of all nodes.
    applied: how each setting was applied (connection, database, start, ...). ours: a managed
    server; only these have name, stays, tls, requested, build. data_device: of its data, if on
    this machine.
    """

    version: str
    version_text: str = ""
    version_number: int | None = None
    settings: Mapping[str, str] = {}
    system_identifier: str | None = None
    data_directory: str | None = None
    postmaster_started: str | None = None
    configure: str | None = None
    target: Mapping[str, str] = {}
    data_device: str | None = None
    ours: bool = False
    name: str | None = None
    stays: bool | None = None
    tls: bool | None = None
    requested: str | None = None
    build: str | None = None
    applied: Mapping[str, str] = {}
    nodes: Mapping[str, Mapping[str, str]] = {}
    standbys: Count = 0
    pool: PoolFacts = msgspec.field(default_factory=PoolFacts)


class HostFacts(Facts, frozen=True, kw_only=True):
    """The generator's machine; None: not known.

    pid: of the process of pgpaces that made the load. costs: of the server's machine, as
    `pgpaces.spec.costs` reads them.
    """

    hostname: str | None = None
    system: str | None = None
    kernel: str | None = None
    architecture: str | None = None
    cpus: Count | None = None
    cpu: str | None = None
    memory_bytes: Count | None = None
    python: str | None = None
    pid: Count | None = None
    costs: tuple[Any, ...] = ()


class Setup(Facts, frozen=True, kw_only=True):
    """What was chosen and found for a trial: load, data, servers, machine.

    clients, threads: of all components. poll: how the generator waited. variables: of the trial's
    own scripts. generators: each of them, if they are several. imported: None for a trial that
    pgpaces ran. background: other workloads, by their names in the trial, without scripts.
    """

    clients: Count
    threads: Count | None = None
    poll: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    components: tuple[ComponentFacts, ...] = ()
    generators: tuple[GeneratorFacts, ...] = ()
    imported: ImportedFacts | None = None
    workload: WorkloadFacts
    background: Mapping[str, WorkloadFacts] = {}
    server: ServerFacts
    host: HostFacts

    @property
    def own(self) -> tuple[ComponentFacts, ...]:
        """Components of the trial's own load, without those of background workloads."""
        return tuple(each for each in self.components if not each.of)

    @property
    def own_clients(self) -> int:
        return sum(each.clients for each in self.own) if self.own else self.clients


F = TypeVar("F")
# msgspec prepares a type when it is first used, and crashes if another thread uses it meanwhile.
_CONVERTING = threading.Lock()


def read(kind: type[F], document: object, what: str) -> F:
    """Values of a kind from a stored document. Raises ValueError that describes the defect."""
    try:
        with _CONVERTING:
            return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        raise ValueError(f"{what}: {text[:1].lower()}{text[1:]}") from None
