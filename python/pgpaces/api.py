"""The Python face: one call, the values that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pgpaces import experiment, levels, workload
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
from pgpaces.errors import PlanError
from pgpaces.plan import Load, Pooler, PoolMode, PoolPlan, TargetPlan, TrialPlan, choose_load
from pgpaces.result import Counts, Estimate, Trial
from pgpaces.store import Store
from pgpaces.units import duration_ns


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


def _load(given: Mapping[str, Any], defaults: dict[str, str]) -> tuple[Load, int | None]:
    names = ("rate", "rate_per_client", "pace", "arrivals", "shape")
    texts = {k: None if given[k] is None else str(given[k]) for k in names}
    pause = given["think_time"]
    pause = f"{pause}s" if isinstance(pause, int | float) else pause
    numbers = {k: given[k] for k in ("clients", "users")}
    return choose_load({**texts, **numbers, "think_time": pause, "think": "exponential"}, defaults)


def _trial(given: Mapping[str, Any], defaults: dict[str, str]) -> TrialPlan:
    kind, count = _load(given, defaults)
    limit = given["latency_limit"]
    return TrialPlan(
        load=kind,
        clients=count,
        limit_ns=_duration(
            defaults.get("latency_limit") if limit is None else limit, "latency_limit"
        ),
        duration_ns=_duration(given["duration"], "duration"),
        warmup_ns=_duration(given["warmup"], "warmup", zero=True),
        **given["options"],
    )


def _request(given: Mapping[str, Any]) -> experiment.Request:
    """The trial that the arguments of `run` ask for, by their names. Raises PgpacesError."""
    found = workload.find(given["name"])
    node, names = given["node"], ("server", "own", "fresh", "observe_command", "standbys")
    request = experiment.Request(
        workload=found,
        trial=_trial(given, found.load),
        target=TargetPlan(given["target"], **{name: given[name] for name in names}),
        scale=given["scale"],
        data_seed=given["data_seed"],
        scripts=tuple((script, None) for script in given["scripts"]),
        store=given["store"],
        on_store_error=given["on_store_error"],
        node=node if isinstance(node, str) else None,
        nodes=tuple(node.items()) if isinstance(node, Mapping) else (),
        pool=_pool(given["pool"], given["pool_mode"], given["pool_size"]),
    )
    return replace(request, beside=experiment.besides(request, _beside(given["beside"] or {})))


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
    name: str,
    *,
    rate: str | float | None = None,
    rate_per_client: str | float | None = None,
    clients: int | None = None,
    users: int | None = None,
    pace: str | float | None = None,
    think_time: str | float | None = None,
    arrivals: str = "poisson",
    shape: str | None = None,
    latency_limit: str | float | None = None,
    duration: str | float = 60,
    warmup: str | float | None = None,
    target: str | None = None,
    observe_command: str | None = None,
    server: str | None = None,
    scale: int | None = None,
    data_seed: int = 1,
    scripts: Sequence[str] = (),
    own: str | None = None,
    fresh: bool = False,
    standbys: int = 0,
    pool: Pooler | None = None,
    pool_mode: PoolMode | None = None,
    pool_size: int | None = None,
    node: str | Mapping[str, str] | None = None,
    beside: Mapping[str, Mapping[str, Any]] | None = None,
    store: str | Path | None = None,
    on_store_error: experiment.OnStoreError = "continue",
    listener: experiment.Listener | None = None,
    **options: Any,
) -> Result:
    """Runs a workload and returns its answer; the same as `pgpaces run`.

    name: a shipped workload or a folder. Durations are texts with a unit ("500ms") or seconds;
    rates are texts ("1/s") or numbers a second. node: where the load goes, or each script by its
    name. beside: workloads that run at the same time, by name, with levels of their own:
    `{"reporting": {"node": "standby1", "rate": "1/s"}}`. options: the other fields of TrialPlan,
    such as policy, protocol, seed, threads. Raises PgpacesError.
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
    opened = Store.open(store)
    trial = opened.load(opened.find(name))
    return Result(trial, summarize(trial))
