"""The load of a trial: what is sent when, as frozen values, and how a spec becomes them.

Knows no files, servers or engine. Every value is checked when it is created.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pgpaces.core.errors import PlanError
from pgpaces.core.units import (
    NUMBER,
    RATE_MAX,
    RATE_MIN,
    RATES,
    SECOND_NS,
    digits,
    duration_ns,
    rate_per_s,
)

# The duration of a run that stops as soon as its verdict is certain, its longest time, its warm-up.
AUTO = "auto"
AUTO_NS, AUTO_WARMUP_NS = 300 * SECOND_NS, 5 * SECOND_NS
GENERATORS_MAX = 1000
THREADS_MAX = 1024
# name: continue_on_error, exit_on_abort, recover of a TrialPlan
ON_ERROR = {
    "continue": (True, True, True),
    "stop-client": (False, False, False),
    "stop": (False, True, False),
}

# Options of a TrialPlan that only scripts have.
_ONLY_OF_SCRIPTS = (
    *("protocol", "describe", "connect_each", "on_connect", "max_tries", "threads", "log"),
)

Count = Annotated[int, Meta(ge=0)]
Model = Literal["open", "closed", "paced"]
Policy = Literal["run", "skip"]
Protocol = Literal["simple", "extended", "prepared"]
Arrivals = Literal["poisson", "even"]
Polling = Literal["auto", "epoll", "io_uring"]
Backlog = Literal["serve", "drop"]
# Begin in ns from the beginning of the measured part, multiplier at its begin and at its end;
# linear in between. A segment ends where the next one begins, the last with the trial.
Segment = tuple[int, float, float]

_MULTIPLIER_MAX = 1000.0
_STEPS_MAX = 1000
_BURSTS_MAX = 10_000
# A day's curve is drawn in quarters of an hour: within 0.0005 of the cosine.
_DAY_PARTS = 96


class Shape(Struct, frozen=True):
    """A multiplier of the rate over a trial, as typed: see `shape_of`."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def peak(self) -> float:
        return max(map(max, _form(self.text)[0]), default=1.0)

    def segments(self, duration_ns: int) -> tuple[Segment, ...]:
        """The shape over a measured part of this length; empty for a constant rate.

        Raises PlanError if it does not fit into it.
        """
        parts, burst_ns, every_ns = _form(self.text)
        if not every_ns:
            return tuple((duration_ns * n // len(parts), *part) for n, part in enumerate(parts))
        # Each burst is at the end of its period: warm-up and trial begin at the rate itself.
        calm_ns, count = every_ns - burst_ns, math.ceil(duration_ns / every_ns)
        if duration_ns <= calm_ns:
            raise PlanError("burst-after-end", shape=self.text)
        if count > _BURSTS_MAX:
            raise PlanError("too-many-bursts", shape=self.text, count=count, maximum=_BURSTS_MAX)
        begins = (begin + at for begin in range(0, duration_ns, every_ns) for at in (0, calm_ns))
        every = zip(begins, itertools.cycle(parts), strict=False)
        return tuple((begin, *part) for begin, part in every if begin < duration_ns)


def shape_of(text: str) -> Shape:
    """The shape of a text: `constant`, `steps:0.5:1:2` (equal parts of the trial),
    `ramp:0.5:2`, `burst:4:10s:1min` (10 s at 4x at the end of every minute, else 1x), `day`.

    `day` is a day compressed into the trial, from night to night: 1 - 0.8 cos(2 pi t / T) at the
    time t of its length T. Its mean is 1, also of the chords that are drawn between its knots.
    Raises PlanError.
    """
    _form(text.strip())
    return Shape(text.strip())


@functools.cache
def _form(text: str) -> tuple[tuple[tuple[float, float], ...], int, int]:
    """Multipliers at the begin and the end of equal parts of a trial, or calm and burst;
    the length of a burst, and the time from the end of a burst to the next end, ns, or 0.
    """
    kind, *words = text.split(":")
    if text == "constant":
        return (), 0, 0
    if text == "day":
        knots = [1 - 0.8 * math.cos(2 * math.pi * n / _DAY_PARTS) for n in range(_DAY_PARTS + 1)]
        return tuple(itertools.pairwise(knots)), 0, 0
    if kind == "steps" and 2 <= len(words) <= _STEPS_MAX:
        parts = tuple((m, m) for m in (_multiplier(text, word) for word in words))
    elif kind == "ramp" and len(words) == 2:
        parts = ((_multiplier(text, words[0]), _multiplier(text, words[1])),)
    elif kind == "burst" and len(words) == 3:
        burst_ns = duration_ns(words[1], f"shape {text}: burst")
        every_ns = duration_ns(words[2], f"shape {text}: period")
        if burst_ns >= every_ns:
            raise PlanError("burst-fills-period", shape=text, burst=words[1], period=words[2])
        high = _multiplier(text, words[0])
        return ((1.0, 1.0), (high, high)), burst_ns, every_ns
    else:
        raise PlanError("not-a-shape", shape=text)
    if not any(map(any, parts)):
        raise PlanError("shape-zero", shape=text)
    return parts, 0, 0


def _multiplier(text: str, word: str) -> float:
    if not re.fullmatch(NUMBER, word.strip()) or not float(word) <= _MULTIPLIER_MAX:
        raise PlanError("not-a-multiplier", shape=text, value=word, maximum=_MULTIPLIER_MAX)
    return float(word)


CONSTANT = Shape("constant")


class Load(Struct, frozen=True, omit_defaults=True):
    """The source of transactions (open, closed or paced).

    rate: transactions a second, in all (open) or for each user (paced); None when closed.
    think: mean pause of a closed client before each transaction, ns.
    shape: how the rate changes over the trial.
    """

    model: Model
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    think_ns: int = 0
    think: Literal["none", "fixed", "exponential"] = "none"
    shape: Shape = CONSTANT

    def __post_init__(self) -> None:
        """Raises PlanError for a rate out of range, also by its shape, and for a shape without."""
        if self.rate is not None and not RATE_MIN <= self.rate <= RATE_MAX:
            raise PlanError("out-of-range", what="rate", value=f"{self.rate:g}/s", range=RATES)
        if self.shape == CONSTANT:
            return
        if self.rate is None:
            raise PlanError("shape-needs-rate", shape=self.shape.text)
        if (peak := self.rate * self.shape.peak) > RATE_MAX:
            raise PlanError("shape-too-high", shape=self.shape.text, peak=peak, maximum=RATE_MAX)

    def __str__(self) -> str:
        if self.rate is not None:
            each = " per user" if self.model == "paced" else ""
            spacing = "" if self.arrivals == "poisson" else ", evenly spaced"
            changes = "" if self.shape == CONSTANT else f", shape {self.shape}"
            return f"{self.model}, {self.rate:g}/s{each}{spacing}{changes}"
        if self.model != "closed":
            return self.model
        if self.think == "none":
            return "closed, without think time"
        return f"closed, {self.think} think time of {self.think_ns / 1e6:g} ms"

    def text(self, program: str) -> str:
        """It in words. program: that made the load and does not tell more of it, if another did."""
        return f"{program}, {self.model}, imported" if program else str(self)


def family(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The values of `NAME.` by their second name."""
    prefix = f"{name}."
    return {n.removeprefix(prefix): value for n, value in spec.items() if n.startswith(prefix)}


def _one_of(spec: Mapping[str, Any], *names: str) -> None:
    used = [f"--{name.replace('_', '-')}" for name in names if name in spec]
    if len(used) > 1:
        raise PlanError("cannot-combine", options=used)


def load_of(spec: Mapping[str, Any]) -> Load:
    """The load of a complete spec. Raises PlanError for options that exclude each other.

    A rate that is None is that of an imported trial, which does not tell it.
    """
    _one_of(spec, "rate", "rate_per_client", "users", "think_time")
    _one_of(spec, "clients", "users")
    varying = shape_of(spec["shape"]) if "shape" in spec else CONSTANT
    arrivals = spec.get("arrivals", "poisson")
    if spec.keys() & {"users", "pace"}:
        if "pace" not in spec:
            raise PlanError("users-need-pace")
        if "users" not in spec:
            raise PlanError("option-needs", option="--pace", needed="--users N")
        return Load("paced", _rate(spec, "pace"), arrivals, shape=varying)
    if "rate_per_client" in spec:
        if "clients" not in spec:
            raise PlanError("option-needs", option="--rate-per-client", needed="--clients N")
        rate = rate_per_s(spec["rate_per_client"]) * float(spec["clients"])
        return Load("open", rate, arrivals, shape=varying)
    if "rate" in spec:
        return Load("open", _rate(spec, "rate"), arrivals, shape=varying)
    think_ns = _ns(spec, "think_time") or 0
    return Load(
        "closed", think_ns=think_ns, think=spec["think"] if think_ns else "none", shape=varying
    )


def _rate(spec: Mapping[str, Any], name: str) -> float | None:
    return None if spec[name] is None else rate_per_s(spec[name])


def _ns(spec: Mapping[str, Any], name: str) -> int | None:
    return duration_ns(spec[name], zero=True) if name in spec else None


class LogPlan(Struct, frozen=True):
    """A log of every transaction in pgbench's format: one file for each thread.

    prefix: of the files' names. sampling: share of transactions written, over 0 to 1.
    aggregate_s: seconds summed up in a line; None writes a line for each transaction.
    detailed: failures have the name of their kind.
    """

    prefix: str
    sampling: float = 1.0
    aggregate_s: int | None = None
    detailed: bool = False


class GeneratorsPlan(Struct, frozen=True):
    """Several generators of one load: processes here, hosts by SSH, or workers of a Dask cluster.

    count: how many; None: all workers of the cluster. cluster: the address of its scheduler.
    insecure: other machines are reached without encryption.
    """

    count: int | None = None
    hosts: tuple[str, ...] = ()
    cluster: str | None = None
    insecure: bool = False

    @property
    def here(self) -> bool:
        return not self.hosts and self.cluster is None

    def __str__(self) -> str:
        """As they are typed, `4` or `ssh:a,b`; of a cluster its address, or `4 of ADDRESS`."""
        if self.hosts:
            return f"ssh:{','.join(self.hosts)}"
        return " of ".join(str(each) for each in (self.count, self.cluster) if each is not None)


def generators_of(spec: Mapping[str, Any]) -> GeneratorsPlan | None:
    """Where the load is generated; None: in this process. Raises PlanError."""
    text = str(spec.get("generators", ""))
    cluster, count, hosts = spec.get("cluster"), digits(text), tuple[str, ...]()
    kind, colon, listed = text.partition(":")
    names = tuple(name.strip() for name in listed.split(","))
    if colon and kind == "ssh" and all(re.fullmatch(r"[^\s/:-][^\s/:]*", name) for name in names):
        count, hosts = len(names), names
        if len({name.rpartition("@")[2] for name in hosts}) < count:
            raise PlanError("host-twice", generators=text)
    elif text and (count is None or not 1 <= count <= GENERATORS_MAX):
        raise PlanError("not-generators", generators=text, maximum=GENERATORS_MAX)
    if cluster is None:
        if spec.get("insecure_cluster", False):
            raise PlanError("option-needs", option="--insecure-cluster", needed="--cluster ADDRESS")
        return GeneratorsPlan(count, hosts) if hosts or (count or 1) > 1 else None
    if hosts:
        raise PlanError("cannot-combine", options=[f"--generators {text}", "--cluster"])
    if not re.fullmatch(r"(tcp|tls)://[^/\s]+:\d+", cluster):
        raise PlanError("not-a-scheduler", address=cluster)
    return GeneratorsPlan(count, (), cluster, spec.get("insecure_cluster", False))


class LoadOptions(Struct, frozen=True, kw_only=True):
    """What the plan of a trial and that of the engine have alike. Times in ns.

    limit_ns: a transaction that takes longer is late.
    duration_ns or transactions (of each client) ends the trial; the warm-up comes on top.
    start_every_ns: interval between the starts of clients of a closed or paced load.
    max_tries: of a transaction that fails by serialization or deadlock, within its latency limit;
    0: any number.
    continue_on_error: a failed statement fails its transaction, else it aborts its client.
    exit_on_abort: an aborted client ends the run. recover: a client goes on after a lost
    connection, and after a script that leaves a transaction block open; else both abort it.
    keep_going: it goes on also where the first transactions of a script all fail.
    connect_each: a connection for every transaction.
    time_commands: meta commands are timed as well. verbose: print every failure and retry.
    notices: print those of the server. debug: print every step of every client.
    """

    describe: bool = False
    limit_ns: Count | None = None
    duration_ns: Count | None = 60 * SECOND_NS
    transactions: Count | None = None
    start_every_ns: Count = 0
    seed: int = 1
    max_tries: Count = 1
    continue_on_error: bool = True
    exit_on_abort: bool = True
    recover: bool = True
    keep_going: bool = False
    connect_each: bool = False
    time_commands: bool = False
    verbose: bool = False
    notices: bool = False
    debug: bool = False
    log: LogPlan | None = None


class TrialPlan(LoadOptions, frozen=True):
    """One trial: everything that determines what is sent when. Times in nanoseconds.

    clients: None lets the pipeline choose (see `clients_for`). limits: of scripts with their own
    limit, by name. auto: it ends as soon as its verdict is certain, and after duration_ns at the
    latest.
    backlog: transactions that were due and not started at the end are still served, or dropped.
    poll: how the engine waits for its connections; auto: io_uring if a thread has many clients
    that never pause, and the system allows it; else epoll.
    guard: on a server that pgpaces does not manage, the load stops when it harms other sessions.
    generators: of the load, if it is not this process alone. traced: its intervals name the
    transactions that were not on time.
    """

    load: Load
    clients: int | None = None
    threads: int | None = None
    policy: Policy = "run"
    protocol: Protocol = "simple"
    backlog: Backlog = "serve"
    poll: Polling = "auto"
    limits: tuple[tuple[str, int], ...] = ()
    auto: bool = False
    warmup_ns: int | None = None
    grace_ns: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    on_connect: tuple[str, ...] = ()
    guard: bool = True
    generators: GeneratorsPlan | None = None
    traced: bool = False

    def __post_init__(self) -> None:
        """Raises PlanError for values that exclude each other."""
        if self.start_every_ns:
            self._check_start_every()
        if self.policy == "skip" and self.load.model == "closed":
            raise PlanError("skip-needs-rate")
        if not self.limits and self.limit_ns is None:
            self._check_limits()
        if self.generators is not None and self.log is not None:
            raise PlanError("log-of-several-generators")
        count = None if self.generators is None else self.generators.count
        if count and self.clients is not None and self.clients < count:
            raise PlanError("generators-above-clients", generators=count, clients=self.clients)
        self.segments()

    def _check_start_every(self) -> None:
        if self.load.model == "open":
            raise PlanError("start-every-of-open-load")
        if self.load.shape != CONSTANT:
            raise PlanError("cannot-combine", options=["--start-every", "--shape"])
        last_ns = ((self.clients or 1) - 1) * self.start_every_ns
        if self.duration_ns is not None and last_ns >= self.warmup + self.duration_ns:
            last_s = last_ns / SECOND_NS
            raise PlanError("last-client-too-late", clients=self.clients, last_s=last_s)

    def _check_limits(self) -> None:
        """Raises PlanError for what needs a limit of every script, if one has none."""
        if self.policy == "skip":
            raise PlanError("skip-needs-limits")
        if self.max_tries == 0 and self.transactions is not None:
            raise PlanError("endless-tries")

    def check_without_scripts(self, *allowed: str) -> None:
        """Raises PlanError for an option that only scripts have, besides these."""
        usual = TrialPlan(Load("closed"))
        for name in _ONLY_OF_SCRIPTS:
            if name not in allowed and getattr(self, name) != getattr(usual, name):
                raise PlanError("scripts-only", option=f"--{name.replace('_', '-')}")

    def limits_of(self, scripts: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """The limits of scripts with their own limit, by number in `scripts` (names).

        Raises PlanError for an unknown script, and if a script lacks a limit that it needs.
        """
        own = dict(self.limits)
        for name in own:
            if name not in scripts:
                ours = list(dict.fromkeys(scripts))
                raise PlanError("limit-of-unknown-script", script=name, scripts=ours)
        if self.limit_ns is None and not all(name in own for name in scripts):
            self._check_limits()
        return tuple((at, own[name]) for at, name in enumerate(scripts) if name in own)

    def segments(self) -> tuple[Segment, ...]:
        """The shape of the load over this trial. Raises PlanError if it does not fit."""
        if self.load.shape == CONSTANT:
            return ()
        if self.transactions is not None or self.duration_ns is None:
            raise PlanError("shape-needs-duration", shape=self.load.shape.text)
        return self.load.shape.segments(self.duration_ns)

    @property
    def limit_max_ns(self) -> int | None:
        """The largest latency limit of any script; None if there is no limit."""
        limits = [ns for _, ns in self.limits]
        return max(limits if self.limit_ns is None else [self.limit_ns, *limits], default=None)

    @property
    def warmup(self) -> int:
        """The warm-up: as specified, else a tenth of a fixed duration and at most 30 s.

        A trial that ends by count has none.
        """
        if self.transactions is not None:
            return 0
        if self.warmup_ns is not None:
            return self.warmup_ns
        return AUTO_WARMUP_NS if self.auto else min((self.duration_ns or 0) // 10, 30 * SECOND_NS)

    @property
    def grace(self) -> int:
        """The time for the backlog at the end: the larger of the limits and 5 s by default."""
        floor = self.limit_max_ns or 0
        return max(floor, 5 * SECOND_NS if self.grace_ns is None else self.grace_ns)

    def clients_for(self, most: int | None) -> int:
        """The number of clients: as specified, else max(4, ceil(4 x rate x limit)), at most `most`.

        The rate is the highest of the shape, the limit the largest of the scripts.
        """
        if self.clients is not None:
            return self.clients
        if self.load.model != "open" or self.load.rate is None:
            return 1
        limit_s = (self.limit_max_ns or SECOND_NS) / SECOND_NS
        clients = max(4, math.ceil(4 * self.load.rate * self.load.shape.peak * limit_s))
        return clients if most is None else max(1, min(clients, most))


def trial_plan(spec: Mapping[str, Any]) -> TrialPlan:
    """The trial of a complete spec. Raises PlanError."""
    _one_of(spec, "duration", "transactions")
    continue_on_error, exit_on_abort, recover = ON_ERROR[spec.get("on_error", "continue")]
    auto = spec.get("duration") == AUTO
    # Other options have the name and the value of a field, and so have fields that are no options.
    same = {name: spec[name] for name in TrialPlan.__struct_fields__ if name in spec}
    return TrialPlan(**{
        "continue_on_error": continue_on_error,
        "exit_on_abort": exit_on_abort,
        "recover": recover,
        "verbose": spec.get("verbose_errors", False),
        "limit_ns": _ns(spec, "latency_limit"),
        "limits": tuple(
            (name, duration_ns(text)) for name, text in family(spec, "latency_limit").items()
        ),
        "duration_ns": AUTO_NS if auto else _ns(spec, "duration"),
        "auto": auto,
        "start_every_ns": _ns(spec, "start_every") or 0,
        "warmup_ns": _ns(spec, "warmup"),
        "grace_ns": _ns(spec, "grace"),
        "variables": tuple(family(spec, "define").items()),
        "settings": tuple(family(spec, "set").items()),
        "on_connect": tuple(family(spec, "on_connect").values()),
        **same,
        "load": load_of(spec),
        "clients": spec.get("users", spec.get("clients")),
        "generators": generators_of(spec),
    })  # fmt: skip


def limit_ns(plan: TrialPlan) -> int:
    """The smallest latency limit of its scripts; 0: none has one."""
    every = (plan.limit_ns, *(ns for _, ns in plan.limits))
    return min((ns for ns in every if ns), default=0)
