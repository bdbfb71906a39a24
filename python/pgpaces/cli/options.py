"""Option values as people write them, turned into the values of plan.py. Prints nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pgpaces.errors import PlanError
from pgpaces.plan import ON_ERROR, PoolPlan, TargetPlan, pairs
from pgpaces.units import COUNT_MAX, digits

if TYPE_CHECKING:
    from pgpaces.workload import WorkloadScript

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Count(click.IntRange):
    """An integer from `least` on, as far as it fits where it is kept."""

    def __init__(self, least: int, most: int = COUNT_MAX) -> None:
        super().__init__(least)
        self._most = most

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The number. Fails for others."""
        number = super().convert(value, param, ctx)
        if number > self._most:
            self.fail(f"{number} is more than {self._most}.", param, ctx)
        return number


STORE = click.option(
    "--store",
    "store_path",
    metavar="FILE|DSN",
    help="The file of results, or a PostgreSQL server: anything libpq reads. [default:"
    " $PGPACES_STORE, else results.db in the data folder]",
)

TARGET = (
    click.option(
        "--target", metavar="DSN", help="Somebody's server: anything libpq reads. Default: our own."
    ),
    click.option(
        "--server",
        metavar="VERSION",
        help="Version to start (15, package:15), or a server of ours that runs.",
    ),
    click.option("--data-dir", metavar="DIR", help="The disk for the data of a server of ours."),
    click.option(
        "--server-set", multiple=True, metavar="NAME=VALUE", help="Setting of our server."
    ),
    click.option(
        "--observe-command",
        metavar="COMMAND",
        help="Runs `pgpaces observe` on the --target's machine, over ssh.",
    ),
    click.option(
        "--profile", metavar="NAME|FILE", help="Settings of our server that have a name: pi-4gb."
    ),
    click.option(
        "--tls",
        type=click.Choice(["on", "off"]),
        help="Our server by TCP on the loopback, with TLS or without. [default: its socket]",
    ),
    click.option("--own", metavar="DBNAME", help="A database that you hand over on the target."),
    click.option("--fresh", is_flag=True, help="Make the data anew."),
)

TOPOLOGY = (
    click.option(
        "--beside",
        multiple=True,
        metavar="'WORKLOAD NAME=LEVEL...'",
        help="Another workload at the same time: 'reporting node=standby1 rate=1/s'.",
    ),
    click.option(
        "--target-node",
        multiple=True,
        metavar="NAME=DSN",
        help="A server that belongs to the --target: standby1, ..., or its pool.",
    ),
)

LAYOUT = (
    click.option(
        "--standbys",
        type=click.IntRange(0, 8),
        metavar="N",
        help="Make so many standbys of our server, streaming from it.",
    ),
    click.option(
        "--pool",
        type=click.Choice(["pgbouncer", "pgpool"]),
        help="A pooler before our server; pgpool sends what only reads to the standbys.",
    ),
    click.option(
        "--pool-mode",
        type=click.Choice(["session", "transaction"]),
        help="Of pgbouncer: how long a client keeps a connection. [default: session]",
    ),
    click.option(
        "--pool-size",
        type=Count(1),
        metavar="N",
        help="Server connections. [default: as clients]",
    ),
    click.option(
        "--node",
        "nodes",
        multiple=True,
        metavar="[SCRIPT=]NODE",
        help="Where the load, or one script, goes: primary, standbys, standby1, any, pool.",
    ),
)

GUARD = (
    click.option(
        "--kill-switch",
        type=float,
        metavar="FACTOR",
        help="Stop when other sessions on the --target get so many times slower.",
    ),
)

MACHINE = (
    click.option(
        "--host-file",
        metavar="FILE",
        help="What the server's machine costs: price, watts, a card's endurance. [default, on this"
        " machine: $PGPACES_HOST_FILE, else host.toml in the data folder]",
    ),
)

LOAD = (
    click.option(
        "--rate", metavar="RATE", help="Open load: transactions a second in all, e.g. 10."
    ),
    click.option("--rate-per-client", metavar="RATE", help="Open load: this for each client."),
    click.option("-c", "--clients", type=Count(1), metavar="N", help="Connections."),
    click.option(
        "--users",
        type=Count(1),
        metavar="N",
        help="Paced load: users with a --pace each.",
    ),
    click.option("--pace", metavar="RATE", help="Paced load: transactions a second of each user."),
    click.option(
        "--think-time", metavar="TIME", help="Closed load: mean pause before each; 0: none."
    ),
    click.option(
        "--think",
        type=click.Choice(["exponential", "fixed"]),
        help="How think times are spread. [default: exponential, or the workload's]",
    ),
    click.option(
        "--start-every",
        metavar="TIME",
        help="Clients of a closed or paced load come so long after one another.",
    ),
    click.option(
        "--arrivals",
        type=click.Choice(["poisson", "even"]),
        default="poisson",
        show_default=True,
        help="How arrivals are spaced.",
    ),
    click.option(
        "--shape", metavar="SHAPE", help="How the rate changes over the trial, e.g. steps:0.5:1:2."
    ),
    click.option(
        "-L",
        "--latency-limit",
        multiple=True,
        metavar="[SCRIPT=]TIME",
        help="Later than this is late; of one script with its name.",
    ),
    click.option(
        "--policy",
        type=click.Choice(["run", "skip"]),
        default="run",
        show_default=True,
        help="What happens to work that is too late to start.",
    ),
)

TRIAL = (
    click.option(
        "-T", "--duration", metavar="TIME", help="How long, warm-up apart. [default: 60s]"
    ),
    click.option(
        "-t",
        "--transactions",
        type=Count(1),
        metavar="N",
        help="Or this many of each client.",
    ),
    click.option(
        "--warmup",
        metavar="TIME",
        help="Load before it counts. [default: duration / 10, up to 30s]",
    ),
    click.option(
        "--grace", metavar="TIME", help="Time for the backlog at the end. [default: 5s or -L]"
    ),
    click.option(
        "-M",
        "--protocol",
        type=click.Choice(["simple", "extended", "prepared"]),
        default="simple",
        show_default=True,
        help="How SQL is sent.",
    ),
    click.option("--describe", is_flag=True, help="Ask for result descriptions, as pgbench does."),
    click.option(
        "-j",
        "--threads",
        type=Count(1),
        metavar="N",
        help="Threads of the load generator; processes of Python users.",
    ),
    click.option(
        "--poll",
        type=click.Choice(["auto", "epoll", "io_uring"]),
        default="auto",
        show_default=True,
        help="How the load generator waits for its connections.",
    ),
    click.option("--seed", type=int, default=1, show_default=True, help="Seed of the load."),
    click.option(
        "-D", "--define", multiple=True, metavar="NAME=VALUE", help="Variable of scripts, or users."
    ),
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Session setting."),
    click.option("--on-connect", multiple=True, metavar="SQL", help="Every connection runs it."),
    click.option(
        "--connect-each", is_flag=True, help="A connection of its own for every transaction."
    ),
    click.option(
        "--max-tries",
        type=Count(0),
        default=1,
        show_default=True,
        metavar="N",
        help="Of a transaction that fails by serialization or deadlock; 0: no limit.",
    ),
    click.option(
        "--on-error",
        type=click.Choice(list(ON_ERROR)),
        default="continue",
        show_default=True,
        help="What another failed statement ends: its transaction, its client, the run.",
    ),
    click.option("--verbose-errors", is_flag=True, help="Tell every failure and retry on stderr."),
)


def options(*groups: Sequence[Decorator]) -> Decorator:
    """Adds groups of options to a command, in order."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for group in reversed(groups):
            for option in reversed(group):
                function = option(function)
        return function

    return add


def target(given: Mapping[str, Any], *, alone: bool = False) -> TargetPlan:
    """Where the options send the load; alone: of what is no workload. Raises PlanError."""
    if alone and given["own"] is not None:
        raise PlanError(
            "--own is for the data of a workload; scripts alone run in the database of --target",
            "leave out --own, or name a workload as well",
        )
    if given["target"] is not None:
        for name in ("server", "data_dir", "profile", "tls", "standbys", "pool"):
            if given[name]:
                raise PlanError(
                    f"--{name.replace('_', '-')} is for servers of ours, --target for somebody's",
                    "choose one",
                )
        if given["server_set"]:
            raise PlanError("--server-set is for servers of ours, --target for somebody's")
    elif given["observe_command"] is not None:
        raise PlanError("--observe-command is for the machine of a --target; ours is seen anyway")
    elif given["target_node"]:
        raise PlanError("--target-node belongs to a --target; --standbys makes some of ours")
    elif given["own"] is not None:
        raise PlanError("--own needs --target: on a server of ours everything is ours")
    return TargetPlan(
        dsn=given["target"],
        observe_command=given["observe_command"],
        server=given["server"],
        data_dir=given["data_dir"],
        own=given["own"],
        fresh=given["fresh"],
        server_settings=_server_settings(given),
        tls=None if given["tls"] is None else given["tls"] == "on",
        standbys=given["standbys"] or 0,
        nodes=nodes(given["target_node"]),
    )


def nodes(values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """NAME=DSN texts of servers that belong to a target. Raises PlanError."""
    found = pairs(values, "--target-node")
    for name, _ in found:
        if not re.fullmatch(r"standby[1-9][0-9]?|pool", name):
            raise PlanError(f"--target-node '{name}' is neither standby1, standby2, ... nor pool")
    return found


def by_script(values: Sequence[str]) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """[SCRIPT=]NODE texts: the node of all, and of scripts told apart. Raises PlanError."""
    of_all = [value for value in values if "=" not in value]
    if len(of_all) > 1:
        raise PlanError(f"--node is given twice: {', '.join(of_all)}", "or say it by script")
    own = pairs([value for value in values if "=" in value], "--node")
    return (of_all[0] if of_all else None), own


def pool(given: Mapping[str, Any]) -> PoolPlan | None:
    """The pooler asked for. Raises PlanError."""
    if given["pool"] is None:
        for name in ("pool_mode", "pool_size"):
            if given[name] is not None:
                raise PlanError(f"--{name.replace('_', '-')} needs --pool", "pgbouncer or pgpool")
        return None
    return PoolPlan(given["pool"], given["pool_mode"] or "session", given["pool_size"])


def beside(values: Sequence[str]) -> dict[str, dict[str, str]]:
    """The levels of workloads that run at the same time, by name. Raises PlanError."""
    from pgpaces import levels

    found = levels.every_beside(values)
    for name, several in found.items():
        if len(several) > 1:
            raise PlanError(
                f"{name} has the levels {', '.join(several)}: a run has one level of each",
                "`pgpaces sweep` has several; a comma in a level is written \\,",
            )
    return levels.beside_of({name: several[0] for name, several in found.items()})


def _server_settings(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Those of the profile; what is given by name goes before them."""
    asked = pairs(given["server_set"], "--server-set")
    if given["profile"] is None:
        return asked
    from pgpaces.servers import profiles

    return tuple({**profiles.find(given["profile"]).settings, **dict(asked)}.items())


def _weighted(value: str, option: str) -> tuple[str, int | None]:
    """NAME or NAME@WEIGHT. Raises PlanError."""
    name, at, weight = value.rpartition("@")
    if not at:
        return value, None
    if (number := digits(weight)) is not None:
        return name, number
    raise PlanError(f"{option} '{value}': the weight '{weight}' is not a number")


def scripts(values: Sequence[str]) -> tuple[tuple[str, int | None], ...]:
    """NAME or NAME@WEIGHT texts as names and weights. Raises PlanError."""
    return tuple(_weighted(value, "--script") for value in values)


def files(values: Sequence[str]) -> tuple[WorkloadScript, ...]:
    """FILE or FILE@WEIGHT texts as scripts. Raises PlanError, WorkloadError."""
    from pgpaces.workload import read_script

    named = (_weighted(value, "--file") for value in values)
    return tuple(read_script(path, 1 if weight is None else weight) for path, weight in named)
