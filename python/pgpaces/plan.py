"""What was asked: loads and trials as people write them, as frozen values.

Knows no files, servers or engine. Everything here is valid once made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces import shape
from pgpaces.errors import PlanError
from pgpaces.redaction import Redacted
from pgpaces.shape import Shape
from pgpaces.units import COUNT_MAX, RATE_MAX, SECOND_NS, duration_ns, rate_per_s, whole

# Words of libpq whose value nobody but the server may see.
_SECRETS = frozenset(
    ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")
)
# name: continue_on_error, exit_on_abort, recover of a TrialPlan
ON_ERROR = {
    "continue": (True, True, True),
    "stop-client": (False, False, False),
    "stop": (False, True, False),
}

# The integers of a TrialPlan, where given: name, least, most.
_RANGES = (
    ("clients", 1, 100_000),
    ("threads", 1, 1024),
    ("transactions", 1, COUNT_MAX),
    ("max_tries", 0, COUNT_MAX),
    ("seed", 0, 2**64 - 1),
)

Model = Literal["open", "closed", "paced"]
Policy = Literal["run", "skip"]
Protocol = Literal["simple", "extended", "prepared"]
Arrivals = Literal["poisson", "even"]
Polling = Literal["auto", "epoll", "io_uring"]
Backlog = Literal["serve", "drop"]


class Load(Struct, frozen=True):
    """Where transactions come from (open, closed or paced).

    rate: transactions a second, in all (open) or for each user (paced); None when closed.
    think: mean pause of a closed client before each transaction, ns.
    shape: how the rate changes over the trial.
    """

    model: Model
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    think_ns: int = 0
    think: Literal["none", "fixed", "exponential"] = "none"
    shape: Shape = shape.CONSTANT

    def __post_init__(self) -> None:
        """Raises PlanError for what cannot be."""
        if self.shape == shape.CONSTANT:
            return
        if self.rate is None:
            raise PlanError(
                f"shape {self.shape} needs a rate or a pace: a closed load has none to change",
                "add --rate, or --users with their --pace",
            )
        if self.rate * self.shape.peak > RATE_MAX:
            raise PlanError(
                f"shape {self.shape} takes the rate to {self.rate * self.shape.peak:g}/s",
                f"{RATE_MAX:.0f}/s is the highest there is",
            )

    def __str__(self) -> str:
        """What the load is, for a sentence."""
        if self.rate is not None:
            each = " per user" if self.model == "paced" else ""
            spacing = "" if self.arrivals == "poisson" else ", evenly spaced"
            changes = "" if self.shape == shape.CONSTANT else f", shape {self.shape}"
            return f"{self.model}, {self.rate:g}/s{each}{spacing}{changes}"
        if self.think == "none":
            return "closed, without think time"
        return f"closed, {self.think} think time of {self.think_ns / 1e6:g} ms"


def _one_of(given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    used = [f"--{name.replace('_', '-')}" for name in names if given.get(name) is not None]
    if len(used) > 1:
        raise PlanError(f"{' and '.join(used)} exclude each other", "choose one kind of load")


def choose_load(given: Mapping[str, Any], defaults: Mapping[str, str]) -> tuple[Load, int | None]:
    """The load and the number of clients that options (texts, by name) ask for.

    given: rate, rate_per_client, clients, users, pace, think_time, think, arrivals, shape; None
    where not asked for. defaults: the workload's own, used where no kind of load is named.
    Raises PlanError for options that exclude each other or miss one.
    """
    found, clients = _steady_load(given, defaults)
    if given["shape"] is None:
        return found, clients
    return replace(found, shape=shape.parse(given["shape"])), clients


def _steady_load(given: Mapping[str, Any], defaults: Mapping[str, str]) -> tuple[Load, int | None]:
    """The load before its rate changes."""
    _one_of(given, ("rate", "rate_per_client", "users", "think_time"))
    _one_of(given, ("clients", "users"))
    if given["users"] is not None or given["pace"] is not None:
        return _paced(given)
    clients = given["clients"]
    if clients is None and "clients" in defaults:
        clients = int(defaults["clients"])
    if given["think_time"] is not None:
        return _closed(given, defaults), clients or 1
    rate = _open_rate(given, defaults)
    if rate is None:
        own = {"think_time": defaults.get("think_time", "0"), "think": given["think"]}
        return _closed(own, defaults), clients or 1
    return Load("open", rate, given["arrivals"]), clients


def _paced(given: Mapping[str, Any]) -> tuple[Load, int]:
    if given["pace"] is None:
        raise PlanError(
            "--users needs the pace of each",
            "add --pace, such as --pace 1/s; users with pauses of their own are --clients N",
        )
    if given["users"] is None:
        raise PlanError("--pace needs the number of users", "add --users N")
    rate = rate_per_s(given["pace"], "--pace")
    return Load("paced", rate, given["arrivals"]), given["users"]


def _closed(given: Mapping[str, Any], defaults: Mapping[str, str]) -> Load:
    pause = duration_ns(given["think_time"], "--think-time", zero=True, bare="s")
    if not pause:
        return Load("closed")
    think = given["think"] or defaults.get("think", "exponential")
    return Load("closed", think_ns=pause, think="fixed" if think == "fixed" else "exponential")


def _open_rate(given: Mapping[str, Any], defaults: Mapping[str, str]) -> float | None:
    """The rate in all; None where nobody names one."""
    if given["rate_per_client"] is not None:
        if given["clients"] is None:
            raise PlanError("--rate-per-client needs the number of clients", "add --clients N")
        each = rate_per_s(given["rate_per_client"], "--rate-per-client")
        return each * float(given["clients"])
    if given["rate"] is not None:
        return rate_per_s(given["rate"], "--rate")
    return rate_per_s(defaults["rate"], "the workload's rate") if "rate" in defaults else None


def start_every_ns(given: Mapping[str, Any], defaults: Mapping[str, str]) -> int:
    """How long after one another clients come, ns.

    given: start_every, rate, rate_per_client, shape, as texts; None where not asked for. The
    workload's own is for its own kind of load: who asks for a rate or a shape asks for another.
    """
    text = given["start_every"]
    if text is None and all(given[name] is None for name in ("rate", "rate_per_client", "shape")):
        text = defaults.get("start_every")
    return 0 if text is None else duration_ns(text, "--start-every", zero=True, bare="s")


class LogPlan(Struct, frozen=True):
    """A log of every transaction, as pgbench writes it: one file a thread.

    prefix: of the files' names. sampling: share of transactions written, over 0 to 1.
    aggregate_s: seconds summed up in a line; None writes a line for each transaction.
    detailed: failures are named by kind.
    """

    prefix: str
    sampling: float = 1.0
    aggregate_s: int | None = None
    detailed: bool = False


class TrialPlan(Struct, frozen=True):
    """One trial: all that decides what is sent when. Times in nanoseconds.

    clients: None lets the pipeline choose (see `clients_for`).
    limit_ns: a transaction that takes longer is late. limits: those of scripts that have one of
    their own, by name.
    duration_ns or transactions (of each client) ends the trial; the warm-up comes on top.
    start_every_ns: clients of a closed or paced load come so long after one another.
    backlog: what was due and not started at the end is still served, or dropped.
    max_tries: of a transaction that fails by serialization or deadlock; 0: until it succeeds.
    continue_on_error: a failed statement fails its transaction, else it aborts its client.
    exit_on_abort: an aborted client ends the run. recover: a client goes on after a lost
    connection, and after a script that leaves a transaction block open; else both abort it.
    connect_each: a connection for every transaction.
    kill_switch: the load stops when other sessions of the server are so many times slower.
    time_commands: meta commands are timed as well. verbose: every failure and retry is told.
    notices: those of the server are told. debug: every step of every client is told.
    poll: how the engine waits for its connections; auto: io_uring where
    a thread has many clients that never pause, and the system allows it; else epoll.
    """

    load: Load
    clients: int | None = None
    threads: int | None = None
    start_every_ns: int = 0
    limit_ns: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    policy: Policy = "run"
    protocol: Protocol = "simple"
    describe: bool = False
    duration_ns: int | None = 60 * SECOND_NS
    transactions: int | None = None
    warmup_ns: int | None = None
    grace_ns: int | None = None
    seed: int = 1
    variables: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    on_connect: tuple[str, ...] = ()
    backlog: Backlog = "serve"
    max_tries: int = 1
    continue_on_error: bool = True
    exit_on_abort: bool = True
    recover: bool = True
    connect_each: bool = False
    time_commands: bool = False
    verbose: bool = False
    notices: bool = False
    debug: bool = False
    poll: Polling = "auto"
    log: LogPlan | None = None
    kill_switch: float | None = None

    def __post_init__(self) -> None:
        """Raises PlanError for what cannot be."""
        self._check_numbers()
        self._check_start_every()
        if self.policy == "skip" and self.load.model == "closed":
            raise PlanError(
                "policy skip needs a rate: a closed load has no schedule to fall behind",
                "add --rate, or use --policy run",
            )
        if self.kill_switch is not None and not 1 < self.kill_switch < math.inf:
            raise PlanError(
                f"a kill switch at {self.kill_switch:g} times cannot be", "more than 1, such as 3"
            )
        if not self.limits:
            self._check_limits(everywhere=self.limit_ns is not None)
        self.segments()

    def _check_numbers(self) -> None:
        for name, low, high in _RANGES:
            if (value := getattr(self, name)) is not None:
                whole(value, name, low, high)

    def _check_start_every(self) -> None:
        if not self.start_every_ns:
            return
        if self.load.model == "open":
            raise PlanError(
                "clients of an open load cannot come one after another: it has one rate",
                "use --users and --pace, or --think-time, or a --shape",
            )
        if self.load.shape != shape.CONSTANT:
            raise PlanError("clients come one after another or by a shape, not both")
        last_ns = ((self.clients or 1) - 1) * self.start_every_ns
        if self.duration_ns is not None and last_ns >= self.warmup + self.duration_ns:
            raise PlanError(
                f"the last of {self.clients} clients would come {last_ns / SECOND_NS:g} s after the"
                f" first, when the trial is over",
                "a longer --duration or --warmup, or a shorter --start-every; 0s: all at once",
            )

    def _check_limits(self, *, everywhere: bool) -> None:
        """Raises PlanError; everywhere: every script has a limit."""
        if everywhere:
            return
        if self.policy == "skip":
            raise PlanError(
                "policy skip needs a latency limit for every script: without one nothing is too"
                " late",
                "add --latency-limit, or use --policy run",
            )
        if self.max_tries == 0 and self.transactions is not None:
            raise PlanError(
                "unlimited tries need something that ends them",
                "add --latency-limit or --duration, or set --max-tries",
            )

    def limits_of(self, scripts: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """The limits of scripts that have one of their own, by number in `scripts` (names).

        Raises PlanError for one of an unknown script, and where a script needs a limit and has
        none.
        """
        own = dict(self.limits)
        for name in own:
            if name not in scripts:
                raise PlanError(
                    f"there is a latency limit for script '{name}', which does not run",
                    f"scripts that run are {', '.join(dict.fromkeys(scripts))}",
                )
        everywhere = self.limit_ns is not None or all(name in own for name in scripts)
        self._check_limits(everywhere=everywhere)
        return tuple((at, own[name]) for at, name in enumerate(scripts) if name in own)

    def segments(self) -> tuple[shape.Segment, ...]:
        """The shape of the load over this trial. Raises PlanError where it does not fit."""
        if self.load.shape == shape.CONSTANT:
            return ()
        if self.transactions is not None or self.duration_ns is None:
            raise PlanError(
                f"shape {self.load.shape} needs the time that it is drawn over",
                "give --duration instead of --transactions",
            )
        return self.load.shape.segments(self.duration_ns)

    @property
    def limit_max_ns(self) -> int | None:
        """The largest latency limit of any script; None where there is none."""
        found = [ns for _, ns in self.limits]
        return max(found if self.limit_ns is None else [self.limit_ns, *found], default=None)

    @property
    def warmup(self) -> int:
        """The warm-up: as asked, else a tenth of the duration and at most 30 s."""
        if self.warmup_ns is not None:
            return self.warmup_ns
        return min((self.duration_ns or 0) // 10, 30 * SECOND_NS)

    @property
    def grace(self) -> int:
        """How long a backlog may still take: the larger of the limits and 5 s by default."""
        floor = self.limit_max_ns or 0
        return max(floor, 5 * SECOND_NS if self.grace_ns is None else self.grace_ns)

    def clients_for(self, free_connections: int | None) -> int:
        """The number of clients: as asked, else max(4, ceil(4 x rate x limit)), capped.

        The rate is the highest of the shape, the limit the largest of the scripts.
        free_connections: what the server has left; None where it cannot be asked.
        """
        if self.clients is not None:
            return self.clients
        if self.load.model != "open" or self.load.rate is None:
            return 1
        limit_s = (self.limit_max_ns or SECOND_NS) / SECOND_NS
        wanted = max(4, math.ceil(4 * self.load.rate * self.load.shape.peak * limit_s))
        return wanted if free_connections is None else max(1, min(wanted, free_connections))


def pairs(values: Sequence[str], option: str) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE texts as pairs. Raises PlanError."""
    found = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise PlanError(f"{option} '{value}' is not NAME=VALUE", f"such as {name}=VALUE")
        found.append((name.strip(), text))
    return tuple(found)


def _limits(
    texts: Sequence[str], defaults: Mapping[str, str]
) -> tuple[int | None, tuple[tuple[str, int], ...]]:
    """The limit of all scripts, and of those with one of their own. Raises PlanError."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, limit = text.rpartition("=")
        if name in found:
            whose = f"script '{name}' has" if name else "there are"
            raise PlanError(f"{whose} two latency limits", "give one")
        found[name] = duration_ns(limit, "--latency-limit", bare="ms")
    general = found.pop("", None)
    if general is None and "latency_limit" in defaults:
        general = duration_ns(defaults["latency_limit"], "the workload's latency limit")
    return general, tuple(found.items())


def trial_plan(given: Mapping[str, Any], defaults: Mapping[str, str]) -> TrialPlan:
    """The trial that options ask for, over the workload's defaults.

    given: the values of the command line's options by name, None where not asked for; durations
    and rates as texts; latency limits as texts LIMIT or SCRIPT=LIMIT. Raises PlanError.
    """
    if given["duration"] is not None and given["transactions"] is not None:
        raise PlanError("--duration and --transactions exclude each other", "choose one")
    kind, clients = choose_load(given, defaults)
    limit_ns, limits = _limits(given["latency_limit"] or (), defaults)

    def optional(name: str) -> int | None:
        text = defaults.get(name) if given[name] is None else given[name]
        return None if text is None else duration_ns(text, f"--{name}", zero=True, bare="s")

    transactions = given["transactions"]
    if transactions is None and given["duration"] is None and "transactions" in defaults:
        transactions = int(defaults["transactions"])
    duration = "60s" if given["duration"] is None else given["duration"]
    continue_on_error, exit_on_abort, recover = ON_ERROR[given["on_error"]]
    return TrialPlan(
        load=kind,
        clients=clients,
        threads=given["threads"],
        limit_ns=limit_ns,
        limits=limits,
        policy=given["policy"],
        protocol=given["protocol"],
        describe=given["describe"],
        duration_ns=None if transactions else duration_ns(duration, "--duration", bare="s"),
        transactions=transactions,
        start_every_ns=start_every_ns(given, defaults),
        warmup_ns=optional("warmup"),
        grace_ns=optional("grace"),
        poll=given["poll"],
        seed=given["seed"],
        variables=pairs(given["define"], "--define"),
        settings=pairs(given["set"], "--set"),
        on_connect=tuple(given["on_connect"]),
        connect_each=given["connect_each"],
        max_tries=given["max_tries"],
        continue_on_error=continue_on_error,
        exit_on_abort=exit_on_abort,
        recover=recover,
        verbose=given["verbose_errors"],
        kill_switch=given["kill_switch"],
    )


def without_secrets(keywords: Mapping[str, str]) -> dict[str, str]:
    """Keywords of a connection as they may be shown."""
    return {name: value for name, value in keywords.items() if name not in _SECRETS}


class TargetPlan(Redacted, frozen=True):
    """Where the load goes: a DSN of somebody's, or a managed server.

    dsn: anything libpq reads; None for a server that pgpaces starts. overrides: keywords that come
    before what dsn says.
    server: version or folder of the installation to start; None for the embedded one.
    own: a database that the user hands over. alter_system: settings of the whole server may be
    changed; they are put back. restart: a shell command that restarts it. observe_command: one that
    prints what `pgpaces observe` does on its machine.
    tls: a managed server is reached by TCP, with TLS or without; None: by its socket.
    standbys: so many are made of a managed server. nodes: of somebody's, name and DSN: standby1,
    standby2, ..., pool.
    """

    REDACTED: ClassVar = ("dsn", "overrides", "nodes")
    # Not in the repr: both may hold a password.
    dsn: str | None = None
    server: str | None = None
    data_dir: str | None = None
    own: str | None = None
    fresh: bool = False
    server_settings: tuple[tuple[str, str], ...] = field(default=())
    overrides: tuple[tuple[str, str], ...] = ()
    alter_system: bool = False
    restart: str | None = None
    observe_command: str | None = None
    tls: bool | None = None
    standbys: int = 0
    # Not in the repr: a password may be in it.
    nodes: tuple[tuple[str, str], ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The servers that a load may go to, and the external pooler if there is one."""
        ours = (f"standby{number}" for number in range(1, self.standbys + 1))
        return ("primary", *ours, *(name for name, _ in self.nodes))


Pooler = Literal["pgbouncer", "pgpool"]
PoolMode = Literal["session", "transaction"]


class PoolPlan(Struct, frozen=True):
    """A managed pooler before a managed server.

    mode: of pgbouncer; pgpool keeps a server connection for each session. size: how many server
    connections; None: as many as there are clients.
    """

    pooler: Pooler
    mode: PoolMode = "session"
    size: int | None = None

    def __post_init__(self) -> None:
        """Raises PlanError for what cannot be."""
        if self.pooler == "pgpool" and self.mode != "session":
            raise PlanError(
                f"pgpool has no pool mode {self.mode}: a session keeps its server connections",
                "leave out --pool-mode, or use --pool pgbouncer",
            )
        if self.size is not None:
            whole(self.size, "pool_size", 1, 10_000)
