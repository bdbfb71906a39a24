"""What a trial knows of its plan, workload, server and host: typed, checked once on reading.

Fields stand in the order in which they are stored, under their own names but where RENAMED says
otherwise. What an earlier version, or a file of another program, does not say is as by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

import msgspec
from msgspec.structs import asdict

from pgpaces.plan import LogPlan, PoolPlan

Count = Annotated[int, msgspec.Meta(ge=0)]


class Facts(msgspec.Struct, frozen=True):
    """Values of one kind. SPARSE: those that are not stored where they are by default."""

    SPARSE: ClassVar[frozenset[str]] = frozenset()

    def but(self, **changes: Any) -> Self:
        """The same with other values, by the names of fields."""
        return msgspec.structs.replace(self, **changes)

    def items(self) -> list[tuple[str, Any]]:
        """Each field's name with its value."""
        return [(name, getattr(self, name)) for name in self.__struct_fields__]


class ComponentFacts(Facts, frozen=True, kw_only=True):
    """A component load. of: the background workload that it belongs to, "" of the trial's own."""

    of: str = ""
    workload: str = ""
    node: str = "primary"
    scripts: tuple[str, ...] = ()
    load_text: str = ""
    model: str = ""
    rate: float | None = None
    clients: Count
    seed: int = 1
    limit_ns: Count | None = None
    limits: tuple[tuple[str, Count], ...] = ()
    policy: str = "run"
    dbname: str = ""


class ImportedFacts(Facts, frozen=True, kw_only=True):
    """Which program made the files that a trial was read from."""

    program: str
    version: str | None = None
    command: str | None = None
    files: tuple[str, ...] = ()


class PlanFacts(Facts, frozen=True, kw_only=True, rename={"components": "lanes"}):
    """What was asked for: of the trial's own load, with the clients and threads of all.

    model: open, closed or paced. rate: transactions per second, of a paced load of each user.
    limits: of scripts that have one of their own, by name. shape, load_text: as one types them.
    poll: how the generator waited. missed_max: a share, the goal; None: the default one.
    by_second: False of an imported report, whose seconds are not known. imported: None of a trial
    that pgpaces ran. Times in nanoseconds; None where an imported file does not tell.
    """

    SPARSE: ClassVar[frozenset[str]] = frozenset(("by_second", "imported"))

    clients: Count
    threads: Count | None = None
    protocol: str
    describe: bool = False
    load: str | None = None
    rate: float | None = None
    arrivals: str | None = None
    shape: str = "constant"
    think: str | None = None
    think_ns: Count | None = None
    policy: str
    limit_ns: Count | None
    limits: tuple[tuple[str, Count], ...] = ()
    duration_ns: Count | None = None
    transactions: Count | None = None
    start_every_ns: Count = 0
    warmup_ns: Count
    grace_ns: Count | None = None
    seed: int
    variables: tuple[tuple[str, str], ...] = ()
    on_connect: tuple[str, ...] = ()
    backlog: str | None = None
    max_tries: Count = 1
    continue_on_error: bool = True
    exit_on_abort: bool = True
    recover: bool = True
    connect_each: bool = False
    time_commands: bool = False
    verbose: bool = False
    notices: bool = False
    debug: bool = False
    poll: str | None = None
    log: LogPlan | None = None
    load_text: str
    model: str
    settings: Mapping[str, str] = {}
    kill_switch: float | None = None
    missed_max: float | None = None
    components: tuple[ComponentFacts, ...] = ()
    by_second: bool = True
    imported: ImportedFacts | None = None

    @property
    def own(self) -> tuple[ComponentFacts, ...]:
        """Components of the trial's own load, without those of background workloads."""
        return tuple(each for each in self.components if not each.of)

    @property
    def own_clients(self) -> int:
        """Clients of the trial's own load."""
        return sum(each.clients for each in self.own) if self.own else self.clients


class CommandFacts(Facts, frozen=True, array_like=True):
    """A command of a script. line: from 1; 0 where there is no text."""

    line: Count
    text: str
    is_sql: bool


class ScriptFacts(Facts, frozen=True, kw_only=True):
    """A script, as intervals count them. queries: of a transaction; None: not known.

    text, commands: as far as they are stored. length: of the whole text, where it is not. kind:
    "users", "command", or of SQL None.
    """

    SPARSE: ClassVar[frozenset[str]] = frozenset(("length", "kind"))

    name: str
    weight: Count
    text: str = ""
    source: str = ""
    queries: Count | None = None
    node: str = "primary"
    commands: tuple[CommandFacts, ...]
    length: Count | None = None
    kind: str | None = None


class Prepared(Facts, frozen=True):
    """A database with its data: its name, and what making it took.

    created: made now, not used again. cloned_from: the database this is a copy of, if it is one.
    seconds: for all of it; of these, clone_seconds made this copy, and settle_seconds let the
    server finish what it does about that. notes: what a trial on it should say.
    """

    dbname: str
    fingerprint: str
    created: bool
    seconds: float
    size_bytes: int
    cloned_from: str | None = None
    clone_seconds: float = 0.0
    settle_seconds: float = 0.0
    notes: tuple[str, ...] = ()


class BesideFacts(Facts, frozen=True, kw_only=True):
    """A background workload. of: its name in the trial."""

    of: str
    name: str
    hash: str
    scale: int
    prepared: Prepared


class RequestFacts(Facts, frozen=True, kw_only=True):
    """What one says to make a trial again and no other value tells: no password is in it.

    workload: a name or a folder; None of scripts, functions or a command alone. files: scripts that
    were given as files, with their weights. target: a DSN; None of a managed server.
    """

    workload: str | None = None
    files: tuple[tuple[str, Count], ...] = ()
    scripts: tuple[tuple[str, Count | None], ...] = ()
    command: str | None = None
    from_database: str | None = None
    target: str | None = None
    own: str | None = None
    data_dir: str | None = None
    tls: bool | None = None
    server_settings: Mapping[str, str] = {}
    standbys: Count = 0
    target_nodes: Mapping[str, str] = {}
    pool: PoolPlan | None = None
    node: str | None = None
    nodes: Mapping[str, str] = {}


class WorkloadFacts(Facts, frozen=True, kw_only=True):
    """A workload, and the data that were made of it. hash: of all its files.

    request: None of trials that were stored before there was one.
    """

    name: str
    description: str = ""
    hash: str = ""
    scale: int = 1
    data_seed: int | None = None
    init: Mapping[str, str] = {}
    scripts: tuple[ScriptFacts, ...]
    prepared: Prepared | None = None
    beside: tuple[BesideFacts, ...] = ()
    request: RequestFacts | None = None

    @property
    def asked(self) -> RequestFacts:
        """The request, empty where there is none."""
        return self.request or RequestFacts()


class PoolFacts(Facts, frozen=True, kw_only=True):
    """A managed pooler; false where there is none. size: its server connections, at most."""

    SPARSE: ClassVar[frozenset[str]] = frozenset(("pooler", "version", "mode", "size"))

    pooler: str = ""
    version: str = ""
    mode: str = ""
    size: Count = 0

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.pooler)


class ServerFacts(Facts, frozen=True, kw_only=True):
    """The primary as a session of the load saw it. settings: those that are not at their default.

    target: where it is, as connection keywords without a password; nodes: the same of all.
    applied: how each setting was made (connection, database, start, ...). ours: a managed server;
    name, stays, tls, asked, build are of these alone. data_device: of its data, on this machine.
    """

    SPARSE: ClassVar[frozenset[str]] = frozenset(("data_device", "name", "stays", "build"))

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
    asked: str | None = None
    build: str | None = None
    applied: Mapping[str, str] = {}
    nodes: Mapping[str, Mapping[str, str]] = {}
    standbys: Count = 0
    pool: PoolFacts = msgspec.field(default_factory=PoolFacts)


class HostFacts(Facts, frozen=True, kw_only=True):
    """The generator's machine; None: not known. data_disk: of a server's data that is here.

    costs: what the server's machine costs, as `pgpaces.costs` reads it.
    """

    SPARSE: ClassVar[frozenset[str]] = frozenset(
        ("hostname", "system", "kernel", "architecture", "cpus", "cpu", "memory_bytes", "python",
         "data_disk", "costs")
    )  # fmt: skip

    hostname: str | None = None
    system: str | None = None
    kernel: str | None = None
    architecture: str | None = None
    cpus: Count | None = None
    cpu: str | None = None
    memory_bytes: Count | None = None
    python: str | None = None
    data_disk: str | None = None
    costs: tuple[Any, ...] = ()


F = TypeVar("F")


def read(kind: type[F], given: object, what: str) -> F:
    """Values of a kind from what is stored. Raises ValueError with what is wrong in words."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        raise ValueError(f"{what}: {text[:1].lower()}{text[1:]}") from None


def stored(value: Any) -> Any:
    """Objects, lists, numbers and texts as they are stored."""
    if isinstance(value, CommandFacts):
        return [value.line, value.text, value.is_sql]
    if isinstance(value, Facts):
        usual = {f.name: f.default for f in msgspec.structs.fields(value) if f.name in value.SPARSE}
        return {
            key: stored(found)
            for key, (name, found) in zip(
                value.__struct_encode_fields__, value.items(), strict=True
            )
            if name not in usual or found != usual[name]
        }
    if isinstance(value, msgspec.Struct):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: stored(found) for key, found in value.items()}
    return [stored(found) for found in value] if isinstance(value, tuple | list) else value
