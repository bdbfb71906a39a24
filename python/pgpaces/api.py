"""The Python face: one call, the values that the command line prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgpaces import experiment, workload
from pgpaces.answers.bulk import Bulk
from pgpaces.answers.bulk import of as of_command
from pgpaces.answers.generator import Generator
from pgpaces.answers.spread import Spread
from pgpaces.answers.summary import ScriptSummary, StatementSummary, Summary, summarize
from pgpaces.answers.validity import Validity
from pgpaces.plan import Load, TargetPlan, TrialPlan, choose_load
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
    def bulk(self) -> Bulk | None:
        """What a command did: seconds, rows, input, WAL; None of a load of scripts."""
        return of_command(self.trial, self.summary)

    @property
    def scripts(self) -> tuple[ScriptSummary, ...]:
        """Each script."""
        return self.summary.scripts

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


def _length(
    defaults: dict[str, str],
    duration: str | float | None,
    warmup: str | float | None,
    transactions: int | None,
) -> dict[str, Any]:
    """What ends a trial and what comes before it, as TrialPlan has them."""
    if duration is None and transactions is None and "transactions" in defaults:
        transactions = int(defaults["transactions"])
    if duration is None and transactions is None:
        duration = 60
    warmup = defaults.get("warmup") if warmup is None else warmup
    return {
        "duration_ns": _duration(duration, "duration"),
        "warmup_ns": _duration(warmup, "warmup", zero=True),
        "transactions": transactions,
    }


def _load(given: dict[str, Any], defaults: dict[str, str]) -> tuple[Load, int | None]:
    texts = {k: None if v is None else str(v) for k, v in given.items()}
    numbers = {k: given[k] for k in ("clients", "users")}
    return choose_load({**texts, **numbers}, defaults)


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
    duration: str | float | None = None,
    warmup: str | float | None = None,
    target: str | None = None,
    observe_command: str | None = None,
    server: str | None = None,
    scale: int | None = None,
    data_seed: int = 1,
    scripts: Sequence[str] = (),
    own: str | None = None,
    fresh: bool = False,
    store: str | Path | None = None,
    on_store_error: experiment.OnStoreError = "continue",
    listener: experiment.Listener | None = None,
    **options: Any,
) -> Result:
    """Runs a workload and returns its answer; the same as `pgpaces run`.

    name: a shipped workload or a folder. Durations are texts with a unit ("500ms") or seconds;
    rates are texts ("1/s") or numbers a second. options: the other fields of TrialPlan, such as
    policy, protocol, seed, threads. Without a duration it is 60 s, of a command one execution.
    Raises PgpacesError.
    """
    found = workload.find(name)
    given = {
        "rate": rate,
        "rate_per_client": rate_per_client,
        "clients": clients,
        "users": users,
        "pace": pace,
        "think_time": f"{think_time}s" if isinstance(think_time, int | float) else think_time,
        "think": "exponential",
        "arrivals": arrivals,
        "shape": shape,
    }
    kind, count = _load(given, found.load)
    limit = latency_limit if latency_limit is not None else found.load.get("latency_limit")
    request = experiment.Request(
        workload=found,
        trial=TrialPlan(
            load=kind,
            clients=count,
            limit_ns=_duration(limit, "latency_limit"),
            **_length(found.load, duration, warmup, options.get("transactions")),
            **{name: value for name, value in options.items() if name != "transactions"},
        ),
        target=TargetPlan(target, server, own=own, fresh=fresh, observe_command=observe_command),
        scale=scale,
        data_seed=data_seed,
        scripts=tuple((script, None) for script in scripts),
        store=store,
        on_store_error=on_store_error,
    )
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
