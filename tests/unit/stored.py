"""Runs in a store, made of numbers, for tests of commands that answer from them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.core.series import Sample
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.result import Place, Trial
from pgpaces.store.listing import ExperimentRow
from pgpaces.store.store import Store, new_id
from pgpaces.trial import document
from pgpaces.trial.strategies import Goal
from tests.unit import trials
from tests.unit.sensors import collect, samples_of
from tests.unit.trials import series

START = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)
SCRIPTS = [{"name": "a", "weight": 1, "commands": []}]


class Kept(Struct, frozen=True):
    """A run: so many transactions a second, all of them as long. at: days after START.

    latencies_ms: those of each second instead.
    """

    id: str
    ms: float = 10.0
    rate: int = 40
    at: float = 0.0
    place: Place | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    server: dict[str, Any] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    state: str = "finished"
    latencies_ms: tuple[tuple[float, ...], ...] = ()


def keep(store: Store, run: Kept) -> None:
    """Stores it."""
    plan = {"model": "closed", "clients": 2, "duration_ns": 3_000_000_000, **run.plan}
    trial = series(
        run.latencies_ms or [[run.ms] * run.rate] * 3,
        id=run.id,
        plan=plan,
        workload={"name": "w", "scale": 1, "hash": "h", "scripts": SCRIPTS},
        server={"version": "18.6", "version_text": "18.6", "settings": {}, "target": {}}
        | run.server,
        started_at=START + timedelta(days=run.at),
        samples=collect(run.samples),
    )
    keep_trial(store, replace(trial, place=run.place, state=run.state))


def opened(folder: Path) -> Store:
    """A new store."""
    return Store.open(folder / "results.db")


def begun(
    store: Store,
    design: Design,
    name: str,
    *,
    goal: Goal | None = None,
    state: str = "finished",
    missed_max: float = 0.05,
) -> str:
    """An experiment without trials; its id."""
    asked = Experiment(name, "w", design, missed_max=missed_max)
    written = document.write(asked, "pgpaces sweep", "h", goal=goal)
    row = ExperimentRow(f"01E{name.upper()}", name, START, None, "running", "0", written)
    store.begin_experiment(row)
    store.finish_experiment(row.id, state)
    return row.id


def whole_trial(**changes: Any) -> Trial:
    found = trials.series([[1.0, 2.0], [3.0]])
    return trials.changed(
        found,
        id=new_id(),
        plan={"rate": 2.0},
        workload=found.workload.but(name="w"),
        server={},
        samples=collect([Sample(0, "host", "cpu", 0.5, "share")]),
        **changes,
    )


def keep_trial(store: Store, trial: Trial) -> Trial:
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    store.add(trial.id, None, samples_of(trial.samples), observed=trial.observed)
    store.finish(trial, {"due": 3})
    return trial


def keep_experiment(store: Store, name: str = "pi") -> tuple[ExperimentRow, list[Trial]]:
    row = ExperimentRow(new_id(), name, datetime.now(UTC), None, "running", "0", {"a": 1})
    store.begin_experiment(row)
    kept = [
        keep_trial(store, whole_trial(place=Place(row.id, "cell", {"clients": "1"}, n)))
        for n in (1, 2)
    ]
    store.note_failure(row.id, "cell", 3, attempt=1, error="no route")
    store.finish_experiment(row.id, "finished")
    return store.experiment(row.id), kept
