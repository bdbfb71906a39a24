"""The Python face: one call, the values that the command line prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgpaces import experiment, levels, trust, workload
from pgpaces.answers.bulk import Bulk
from pgpaces.answers.bulk import of as of_command
from pgpaces.answers.costs import Economy
from pgpaces.answers.generator import Generator
from pgpaces.answers.spread import Spread
from pgpaces.answers.summary import (
    BesideSummary,
    ScriptSummary,
    StatementSummary,
    Summary,
    summarize,
)
from pgpaces.answers.validity import Validity
from pgpaces.answers.volume import Volume
from pgpaces.answers.volume import of as volume_of
from pgpaces.errors import PlanError
from pgpaces.experiment import costs
from pgpaces.plan import (
    Pooler,
    PoolMode,
    PoolPlan,
    TargetPlan,
    TrialPlan,
    choose_load,
    start_every_ns,
)
from pgpaces.result import Counts, Estimate, Trial
from pgpaces.servers import profiles
from pgpaces.store import Store
from pgpaces.units import duration_ns

# Arguments of `run` that say what kind of load it is, as texts.
_LOAD = ("rate", "rate_per_client", "pace", "think_time", "think", "arrivals", "shape")


@dataclass(frozen=True, slots=True)
class Result:
    """A trial that was run, and its answer. Times in milliseconds, shares from 0 to 1."""

    trial: Trial
    summary: Summary

    @property
    def id(self) -> str:
        """The run's id in the store."""
        return self.trial.id

    @property
    def missed(self) -> Estimate | None:
        """late + skipped + failed + unfinished, of due, with its 95 % interval."""
        return self.summary.missed

    @property
    def validity(self) -> Validity:
        """Valid or not, and everything that was found about it."""
        return self.summary.validity

    @property
    def counts(self) -> Counts:
        """due = on time + late + skipped + failed + unfinished."""
        return self.summary.counts

    @property
    def rate(self) -> Estimate:
        """Transactions that succeeded, a second, with its 95 % interval."""
        return self.summary.rate

    @property
    def latency(self) -> Spread:
        """done - due."""
        return self.summary.latency

    @property
    def lag(self) -> Spread:
        """sent - due."""
        return self.summary.lag

    @property
    def service(self) -> Spread:
        """done - sent."""
        return self.summary.service

    @property
    def bulk(self) -> Bulk | None:
        """What a command did: seconds, rows, input, WAL; None of a load of scripts."""
        return of_command(self.trial, self.summary)

    @property
    def queries(self) -> Volume | None:
        """How many queries it was, a minute and a day; None where a script does not say."""
        return volume_of(self.trial, self.summary)

    @property
    def scripts(self) -> tuple[ScriptSummary, ...]:
        """Each script."""
        return self.summary.scripts

    @property
    def beside(self) -> tuple[BesideSummary, ...]:
        """Each workload that ran at the same time: its counts, missed, rate and latency."""
        return self.summary.beside

    @property
    def statements(self) -> tuple[StatementSummary, ...]:
        """Each SQL command."""
        return self.summary.statements

    @property
    def costs(self) -> Economy | None:
        """What its machine costs and buys, where a host file says so."""
        from pgpaces.report.costs import of_run

        return of_run(self.trial, self.summary)

    @property
    def generator(self) -> Generator:
        """What the generator says of itself."""
        return self.summary.generator

    def __repr__(self) -> str:
        """The verdict."""
        from pgpaces.report.text import verdict

        return f"<run {self.id}: {verdict(self.summary, self.trial.plan)}>"


def _duration(value: str | float | None, what: str, *, zero: bool = False) -> int | None:
    """Nanoseconds of a text with a unit, or of a number of seconds."""
    if value is None:
        return None
    return duration_ns(value if isinstance(value, str) else f"{value}s", what, zero=zero)


def _length(given: Mapping[str, Any], defaults: Mapping[str, str]) -> dict[str, Any]:
    """What ends a trial and what comes before it, as TrialPlan has them."""
    duration, transactions = given["duration"], given["options"].get("transactions")
    if duration is None and transactions is None and "transactions" in defaults:
        transactions = int(defaults["transactions"])
    if duration is None and transactions is None:
        duration = 60
    warmup = defaults.get("warmup") if given["warmup"] is None else given["warmup"]
    return {
        "duration_ns": _duration(duration, "duration"),
        "warmup_ns": _duration(warmup, "warmup", zero=True),
        "transactions": transactions,
    }


def _plan(given: Mapping[str, Any], defaults: Mapping[str, str]) -> TrialPlan:
    """The trial. given: the arguments of `run` by name."""
    texts = {k: None if given[k] is None else str(given[k]) for k in (*_LOAD, "start_every")}
    for name in ("think_time", "start_every"):
        if isinstance(given[name], int | float):
            texts[name] = f"{given[name]}s"
    numbers = {k: given[k] for k in ("clients", "users")}
    kind, count = choose_load({**texts, **numbers}, defaults)
    limit = given["latency_limit"]
    limit = defaults.get("latency_limit") if limit is None else limit
    return TrialPlan(
        load=kind,
        clients=count,
        limit_ns=_duration(limit, "latency_limit"),
        start_every_ns=start_every_ns(texts, defaults),
        **_length(given, defaults),
        **{name: value for name, value in given["options"].items() if name != "transactions"},
    )


def _target(given: Mapping[str, Any]) -> TargetPlan:
    """Where the load goes. Raises PlanError for what is of servers of ours, beside a target."""
    settings = dict(given["server_settings"] or {})
    if given["target"] is not None:
        names = ("server", "data_dir", "profile", "tls", "server_settings", "pool")
        for name in (*names, *(["standbys"] if given["standbys"] else [])):
            if given[name] is not None:
                raise PlanError(
                    f"{name} is for servers of ours, target for somebody's", "choose one"
                )
    elif given["own"] is not None or given["observe_command"] is not None:
        raise PlanError("own and observe_command need a target: servers of ours are ours anyway")
    if given["profile"] is not None:
        settings = {**profiles.find(given["profile"]).settings, **settings}
    return TargetPlan(
        given["target"],
        given["server"],
        data_dir=None if given["data_dir"] is None else str(given["data_dir"]),
        own=given["own"],
        fresh=given["fresh"] or given["from_database"] is not None,
        server_settings=tuple((key, str(value)) for key, value in settings.items()),
        observe_command=given["observe_command"],
        tls=given["tls"],
        standbys=given["standbys"],
    )


def _workload(given: Mapping[str, Any]) -> workload.Workload:
    """The one that is named, with the scripts in these files or these tasks if there are any."""
    name, files, tasks = given["name"], given["files"], given["tasks"]
    consent = trust.answer(given["trust"])
    if callable(tasks):
        raise PlanError("tasks is one function", "give a list of them, such as tasks=[look]")
    if tasks:
        if files:
            raise PlanError("tasks and files exclude each other", "choose one")
        return workload.of_tasks(tasks, None if name is None else trust.find(name, consent))
    scripts = tuple(workload.read_script(str(file)) for file in files)
    if name is not None:
        found = trust.find(name, consent)
        return replace(found, scripts=scripts) if scripts else found
    if not scripts:
        raise PlanError("nothing to run was named", "name a workload, files, or tasks")
    return workload.of_scripts("scripts", scripts)


def _request(given: Mapping[str, Any]) -> experiment.Request:
    """The trial that the arguments of `run` ask for, by their names. Raises PgpacesError."""
    found = _workload(given)
    where, node = _target(given), given["node"]
    taken = ("scale", "data_seed", "store", "on_store_error", "from_database")
    request = experiment.Request(
        workload=found,
        trial=_plan(given, found.load),
        target=where,
        scripts=tuple((script, None) for script in given["scripts"]),
        occasion="run",
        costs=costs.of_target(where, given["host_file"]),
        node=node if isinstance(node, str) else None,
        nodes=tuple(node.items()) if isinstance(node, Mapping) else (),
        pool=_pool(given["pool"], given["pool_mode"], given["pool_size"]),
        **{name: given[name] for name in taken},
    )
    beside = _beside(given["beside"] or {})
    consent = trust.of_typed(trust.answer(given["trust"]))
    return replace(request, beside=experiment.besides(request, beside, consent))


def _pool(pool: Pooler | None, mode: PoolMode | None, size: int | None) -> PoolPlan | None:
    if pool is None and (mode is not None or size is not None):
        raise PlanError("pool_mode and pool_size need a pool", "pgbouncer or pgpool")
    return None if pool is None else PoolPlan(pool, mode or "session", size)


def _beside(given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The levels of workloads that run at the same time, by name."""
    found = levels.of_values({"beside": given})
    for name, several in found.items():
        levels.check_name(name)
        if len(several) != 1:
            raise PlanError(f"{name}: a run has one level of each", "pgpaces.sweep has several")
    every = levels.beside_of({name: several[0] for name, several in found.items()})
    return {name: every.get(name, {}) for name in given}


def run(  # noqa: PLR0913 - the options of a command, all by keyword
    name: str | None = None,
    *,
    files: Sequence[str | Path] = (),
    tasks: Sequence[Callable[..., Any]] = (),
    rate: str | float | None = None,
    rate_per_client: str | float | None = None,
    clients: int | None = None,
    users: int | None = None,
    pace: str | float | None = None,
    think_time: str | float | None = None,
    think: str | None = None,
    start_every: str | float | None = None,
    arrivals: str = "poisson",
    shape: str | None = None,
    latency_limit: str | float | None = None,
    duration: str | float | None = None,
    warmup: str | float | None = None,
    target: str | None = None,
    observe_command: str | None = None,
    server: str | None = None,
    data_dir: str | Path | None = None,
    server_settings: Mapping[str, object] | None = None,
    profile: str | None = None,
    tls: bool | None = None,
    scale: int | None = None,
    data_seed: int = 1,
    scripts: Sequence[str] = (),
    own: str | None = None,
    fresh: bool = False,
    from_database: str | None = None,
    standbys: int = 0,
    pool: Pooler | None = None,
    pool_mode: PoolMode | None = None,
    pool_size: int | None = None,
    node: str | Mapping[str, str] | None = None,
    beside: Mapping[str, Mapping[str, Any]] | None = None,
    store: str | Path | None = None,
    host_file: str | Path | None = None,
    on_store_error: experiment.OnStoreError = "continue",
    trust: bool = False,
    listener: experiment.Listener | None = None,
    **options: Any,
) -> Result:
    """Runs a workload and returns its answer; the same as `pgpaces run`.

    name: a shipped workload or a folder. tasks: Python functions that users perform, on its data if
    it is named; one marked @user is what each of them has. Durations are texts with a unit
    ("500ms") or seconds; rates are texts ("1/s") or numbers a second. node: where the load goes, or
    each script by its name. beside: workloads that run at the same time, by name, with levels of
    their own: `{"reporting": {"node": "standby1", "rate": "1/s"}}`. trust: folders of
    workloads may execute programs; without it, those whose content was confirmed before. options:
    the other fields of TrialPlan, such as policy, protocol, seed, threads. Without a duration it is
    60 s, of a command one execution. Raises PgpacesError.
    """
    request = _request(locals())
    outcome = experiment.run(request, listener)
    for error in (outcome.error, outcome.store_error):
        if error is not None:
            raise error
    opened = Store.open(request.store)
    return Result(opened.load(outcome.trial.id), outcome.summary)


def load(name: str = "last", *, store: str | Path | None = None) -> Result:
    """A stored run: `last`, an id, or the end or start of one. Raises PlanError, StoreError."""
    opened = Store.existing(store)
    trial = opened.load(opened.find(name))
    return Result(trial, summarize(trial))
