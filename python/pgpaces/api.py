"""The Python interface: one call returns the values that the command line prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from pgpaces.analysis.bulk import of as bulk_of
from pgpaces.analysis.generator import Generator
from pgpaces.analysis.summary import (
    BackgroundSummary,
    ScriptSummary,
    StatementSummary,
    Summary,
    Volume,
    summarize,
    volume_of,
)
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.analysis.validity import Validity
from pgpaces.answers.answer import Answer
from pgpaces.answers.run import section
from pgpaces.answers.sweep.lookup import answer_of, page_of
from pgpaces.answers.sweep.page import Page
from pgpaces.core.errors import PlanError, similar
from pgpaces.spec import spec, workload
from pgpaces.spec import trust as consents
from pgpaces.spec.costs import MonthlyCost, monthly
from pgpaces.spec.load import TrialPlan
from pgpaces.spec.options import FOLDER, OPTIONS, RATE, Option
from pgpaces.spec.result import Counts, Estimate, Trial
from pgpaces.spec.run_keywords import RunOptions
from pgpaces.store.store import Store
from pgpaces.trial import rehearse as rehearsing
from pgpaces.trial import trial as pipeline
from pgpaces.trial.listener import Listener
from pgpaces.trial.rehearse import Terms
from pgpaces.trial.request import OnStoreError, run_of, with_fields, workload_of

if TYPE_CHECKING:
    from pgpaces.analysis.bulk import Bulk


class Result(Answer, frozen=True):
    """A trial that was run, and its answer. Times in milliseconds, shares from 0 to 1."""

    trial: Trial
    summary: Summary

    @property
    def id(self) -> str:
        """The run's id in the store."""
        return self.trial.id

    @property
    def missed(self) -> Estimate | None:
        """late + skipped + failed + unfinished, of due, with its 95% interval."""
        return self.summary.missed

    @property
    def validity(self) -> Validity:
        """Valid or not, with all findings."""
        return self.summary.validity

    @property
    def counts(self) -> Counts:
        """due = on time + late + skipped + failed + unfinished."""
        return self.summary.counts

    @property
    def throughput(self) -> Estimate:
        """Successful transactions per second, with its 95% interval."""
        return self.summary.throughput

    @property
    def latency(self) -> Distribution:
        """done - due."""
        return self.summary.latency

    @property
    def lag(self) -> Distribution:
        """sent - due."""
        return self.summary.lag

    @property
    def service(self) -> Distribution:
        """done - sent."""
        return self.summary.service

    @property
    def bulk(self) -> Bulk | None:
        """The work of a command: seconds, rows, input, WAL; None for a load of scripts."""
        return bulk_of(self.trial, self.summary)

    @property
    def queries(self) -> Volume | None:
        """The number of queries, per minute and per day; None if a script does not declare it."""
        return volume_of(self.trial, self.summary)

    @property
    def scripts(self) -> tuple[ScriptSummary, ...]:
        """Each script."""
        return self.summary.scripts

    @property
    def background(self) -> tuple[BackgroundSummary, ...]:
        """Each background workload: its counts, missed, throughput, and latency."""
        return self.summary.background

    @property
    def statements(self) -> tuple[StatementSummary, ...]:
        """Each SQL command."""
        return self.summary.statements

    @property
    def costs(self) -> MonthlyCost | None:
        """The monthly cost of its machine, if a host file has its price."""
        return monthly(self.trial.host.costs)

    @property
    def generator(self) -> Generator:
        """The self-check of the load generator."""
        return self.summary.generator


def _workload(
    asked: spec.Spec, tasks: Sequence[Callable[..., Any]], *, consent: consents.Consent
) -> workload.Workload:
    """The workload of a spec, with these tasks if there are any."""
    if not tasks:
        if not asked.keys() & {"workload", "files"}:
            raise PlanError("nothing-to-run-in-python")
        return workload_of(asked, consent, typed=True)
    if "files" in asked:
        raise PlanError("cannot-combine", options=["tasks", "files"])
    base = workload_of(asked, consent) if "workload" in asked else None
    return workload.of_tasks(tasks, base)


_KEYWORDS = {option.python[0]: option for option in OPTIONS if option.run}
# Fields that no option sets. `set`, `server_set`, and `define` set two that are left out.
_FIELDS = frozenset(TrialPlan.__struct_fields__) - {"settings", "variables", "traced"}


def _value(option: Option, value: Any) -> Any:
    """A value as the command line has it: texts for durations and rates, tuples for several."""
    if option.several:
        if option.name == "background":
            return value
        if isinstance(value, Mapping):
            return tuple(f"{name}={_value_text(option, each)}" for name, each in value.items())
        single = isinstance(value, str | int | float)
        return tuple(_value_text(option, each) for each in ((value,) if single else value))
    as_text = option.kind.seconds or option.kind in (RATE, FOLDER)
    return _value_text(option, value) if as_text else value


def _value_text(option: Option, value: Any) -> str:
    if isinstance(value, tuple):  # a pair of name and value
        return "=".join(map(str, value))
    seconds = option.kind.seconds and isinstance(value, int | float)
    return f"{value}s" if seconds else str(value)


def _check(keywords: Mapping[str, Any], of: Any) -> None:
    """Raises PlanError for a value of another type than the one of a function or a class."""
    hints = get_type_hints(of)
    for name, value in keywords.items():
        several = name in _KEYWORDS and _KEYWORDS[name].several and name != "background"
        hint = hints.get(name, Any) | Sequence if several else hints.get(name, Any)
        if not _fits(value, hint):
            words = re.sub(r"[a-z]+\.", "", hint.__name__ if isinstance(hint, type) else str(hint))
            # Another value may have a password inside.
            plain = isinstance(value, str | Real)
            shown = repr(value) if plain else type(value).__name__
            raise PlanError("wrong-type", keyword=name, value=shown, expected=words)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; of what it has inside nothing is looked at."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if kind is Literal:
        return value in get_args(hint)
    return kind is Any or isinstance(value, {float: Real, int: Integral}.get(kind, kind))


def _values(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of options by name, and other fields of TrialPlan. Raises PlanError for others."""
    values: dict[str, Any] = {}
    others: dict[str, Any] = {}
    _check({name: value for name, value in keywords.items() if value is not None}, RunOptions)
    for name, value in keywords.items():
        if (option := _KEYWORDS.get(name)) is not None:
            if value is not None:
                values[option.name] = _value(option, value)
        elif name in _FIELDS:
            others[name] = value
        else:
            raise PlanError("unknown-keyword", keyword=name, near=similar(name, _KEYWORDS))
    _check(others, TrialPlan)
    return values, others


def run(  # noqa: PLR0913 - keywords that are no options of a trial
    name: str | Path | None = None,
    *,
    like: str | None = None,
    files: str | Path | Sequence[str | Path] = (),
    tasks: Sequence[Callable[..., Any]] = (),
    scripts: str | Sequence[str] = (),
    from_database: str | None = None,
    missed: str | None = None,
    store: str | Path | None = None,
    host_file: str | Path | None = None,
    on_store_error: OnStoreError = "continue",
    trust: bool = False,
    listener: Listener | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Runs a workload and returns its answer; the same as `pgpaces run`.

    name: a shipped workload or a directory. like: a stored run; every option that is not an
    argument comes from it. tasks: Python functions that users perform, on its data if it is named;
    one marked @user is the set-up of each user. missed: the share that may miss the
    latency limit, "5%" by default. trust: directories of workloads may execute programs; by default
    only those with confirmed content. options: those of `pgpaces run` by name, and other fields of
    TrialPlan. Durations are texts with a unit ("500ms") or seconds; rates are texts ("1/s") or
    numbers per second. With a latency limit, a run by default stops as soon as its verdict is
    certain; otherwise the default duration is 60 s, or one execution of a command. Raises
    PgpacesError.
    """
    _check({key: value for key, value in locals().items() if key != "options"}, run)
    given, others = _values(options)
    paths = (files,) if isinstance(files, str | Path) else files
    chosen = (scripts,) if isinstance(scripts, str) else scripts
    asked = spec.named({
        "workload": name and str(name),
        "files": tuple(f"{each}@1" if "@" in str(each) else str(each) for each in paths),
        "scripts": tuple(chosen),
        "from_database": from_database,
        "missed": missed,
        **given,
    })  # fmt: skip
    if like is not None:
        with closing(Store.existing(store)) as opened:
            stored = opened.load(opened.find(like))
        if not stored.spec or stored.setup.imported is not None:
            raise PlanError("run-without-spec", run=stored.id)
        asked = spec.over(stored.spec, asked)
    consent = consents.answer(trust)
    request = run_of(
        asked,
        _workload(asked, tasks, consent=consent),
        consent=consents.of_typed(consent),
        host_file=host_file,
        store=store,
        on_store_error=on_store_error,
    )
    if others:
        request = with_fields(request, **others)
    outcome = pipeline.run(request, listener)
    for error in (outcome.error, outcome.store_error):
        if error is not None:
            raise error
    with closing(Store.open(request.store)) as opened:
        return _result(opened, opened.load(outcome.trial.id), outcome.summary)


class RehearsalOptions(RunOptions, total=False):
    """The options of a rehearsal by name: those of its load, and these."""

    event: str
    program: str
    open_transaction: str
    autovacuum: bool
    single_transaction: bool
    lock_timeout: str | None
    retries: int
    timeout: str
    safer: bool
    production_rows: Sequence[str]


def rehearse(  # noqa: PLR0913 - keywords that are no options of a trial
    migration: str | Path | Sequence[str | Path] = (),
    name: str | Path | None = None,
    *,
    files: str | Path | Sequence[str | Path] = (),
    from_database: str | None = None,
    missed: str | None = None,
    store: str | Path | None = None,
    on_store_error: OnStoreError = "continue",
    trust: bool = False,
    listener: Listener | None = None,
    **options: Unpack[RehearsalOptions],
) -> Answer:
    """Shows what a migration does to users, on a copy; the same as `pgpaces rehearse`.

    migration: files with SQL; or an event, or program, a command that migrates, which needs trust.
    name, files: the load, as for `pgpaces.run`. safer: look for a safer form of a migration that is
    not safe. production_rows: texts like "orders=120000000". Its value is a
    `pgpaces.spec.migration.Rehearsal`. Raises PgpacesError.
    """
    _check({key: value for key, value in locals().items() if key != "options"}, rehearse)
    every: dict[str, Any] = {**options}
    own = {key: every.pop(key) for key in Terms.__struct_fields__ if key in every}
    _check(own, RehearsalOptions)
    given, others = _values(every)
    if others:
        raise PlanError("unknown-keyword", keyword=next(iter(others)))
    migrations, scripts = (
        [str(each) for each in ((one,) if isinstance(one, str | Path) else one)]
        for one in (migration, files)
    )
    asked = spec.named({
        "workload": name and str(name),
        "files": tuple(scripts),
        "from_database": from_database,
        "missed": missed,
        **given,
    })  # fmt: skip
    consent = consents.answer(trust)
    found = rehearsing.rehearse(
        rehearsing.ask(
            asked,
            _workload(asked, (), consent=consent),
            Terms(**own),
            files=migrations,
            consent=consent,
            store=store,
            on_store_error=on_store_error,
        ),
        listener,
    )
    with closing(Store.existing(store)) as opened:
        return answer_of(opened, found.id)


def open_run(name: str = "last", *, store: str | Path | None = None) -> Result:
    """A stored run: `last`, an id, or the end or start of one. Raises PlanError, StoreError."""
    _check({"name": name, "store": store}, open_run)
    with closing(Store.existing(store)) as opened:
        trial = opened.load(opened.find(name))
        return _result(opened, trial, summarize(trial))


def _result(store: Store, trial: Trial, summary: Summary) -> Result:
    def page() -> Page:
        with closing(store):
            return page_of(store, (trial.id,))

    return Result(section(trial, summary), page, trial, summary)
