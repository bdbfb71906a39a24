"""The trials of a machine without a server: what is tried again, waited for, given up."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pgpaces.core.errors import (
    ConnectionsError,
    ConsentError,
    PgpacesError,
    PlanError,
    PrepareError,
    RunError,
    ScriptError,
    ServerError,
    StoreError,
)
from pgpaces.spec import workload
from pgpaces.spec.design import Ask, Cell, Design, Experiment
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.result import Place
from pgpaces.spec.target import TargetPlan
from pgpaces.store.store import Store
from pgpaces.trial import machine, sweep
from pgpaces.trial.listener import Progress, SweepListener
from pgpaces.trial.machine import Machine
from pgpaces.trial.request import Request
from pgpaces.trial.strategies import Listed
from pgpaces.trial.trial import Outcome, StoppedError, Stops, TrialContext
from tests.errors import raises
from tests.unit.trials import trial

SOMEBODYS = TargetPlan(dsn="host=board")
Found = Outcome | PgpacesError


def went(state: str = "finished", **more: Any) -> Outcome:
    return Outcome(trial([], state=state), cast("Any", None), **more)


class Kept:
    def __init__(self) -> None:
        self.failures: list[tuple[int, str]] = []

    def beat_experiment(self, _: str) -> None:
        """Nothing to write."""

    def note_failure(self, _id: str, _cell: str, _block: int, attempt: int, error: str) -> None:
        self.failures.append((attempt, error))


@dataclass
class Heard(SweepListener):
    said: list[str] = field(default_factory=list)
    ended: list[Found] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def trial(self, *_: object, **__: object) -> Heard:
        return self

    def say(self, text: str) -> None:
        self.said.append(text)

    def done(self, _machine: str, _ask: Ask, found: Found) -> None:
        self.ended.append(found)

    def away(self, _machine: str, _error: PgpacesError, trials: int) -> None:
        self.gone.append(trials)


@dataclass
class Bench:
    """A machine whose trials go as a test says, one after the other; without an end the last."""

    monkeypatch: pytest.MonkeyPatch
    outcomes: list[Found | Exception] = field(default_factory=list)
    tried: int = 0
    made: Machine | None = None
    opened: int = 0
    store: Kept = field(default_factory=Kept)
    heard: Heard = field(default_factory=Heard)
    stops: Stops = field(default_factory=Stops)

    def run(
        self,
        slots: int = 1,
        target: TargetPlan = SOMEBODYS,
        settings: Sequence[dict[str, str]] = (),
    ) -> Machine:
        self.patch()
        asks = tuple(Ask(Cell(()), block) for block in range(1, slots + 1))
        base = TrialPlan(Load("open", 1.0), clients=1, duration_ns=10**9)
        requests = {}
        for ask, own in zip_longest(asks, settings, fillvalue={}):
            plan = replace(base, settings=tuple(own.items()))
            place = Place("E", ask.cell.key, {}, 1)
            request = Request(workload.of_scripts("w", ()), plan, target, place=place)
            requests[ask.block] = request
        made = Machine("", Listed(asks), lambda ask: requests[ask.block], Progress(slots))
        self.made = made
        made.run(TrialContext(self.heard, self.stops, cast("Store", self.store), 60.0))
        return made

    def patch(self) -> None:
        self.monkeypatch.setattr(machine, "site", self._site)
        self.monkeypatch.setattr(machine, "run_at", self._trial)
        contexts = dict.fromkeys(("shared_buffers",), "postmaster")
        self.monkeypatch.setattr(machine.settings, "server_contexts", lambda *_: contexts)
        self.monkeypatch.setattr(Stops, "rest", lambda *_: None)

    @contextlib.contextmanager
    def _site(self, *_: object) -> Iterator[object]:
        self.opened += 1
        yield SimpleNamespace(access=None)

    def _trial(self, *_: object) -> Outcome:
        self.tried += 1
        found = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


@pytest.mark.parametrize(
    ("first", "tried", "why"),
    [
        (went(), 1, []),
        (went("failed", error=RunError("it broke")), 2, []),
        (RunError("it broke"), 2, []),
        (PlanError("it cannot be"), 1, ["it cannot be"]),
        (went("interrupted", killed="others got slower"), 1, ["trial-killed"]),
    ],
    ids=["well", "failed", "never began", "hopeless", "guard"],
)
def test_a_failure_is_tried_once_more_unless_that_is_in_vain_or_does_harm(bench, first, tried, why):
    bench.outcomes = [first, went()]
    made = bench.run()
    assert bench.tried == tried
    assert [each.name for each in made.errors] == why
    assert (made.progress.done, made.progress.failed) == (1 - len(why), len(why))


def test_a_failure_is_noted_and_leaves_no_server_behind_for_the_next(bench):
    bench.outcomes = [went("failed", error=RunError("it broke")), went()]
    bench.run(2)
    assert (bench.tried, bench.opened) == (3, 2)
    bench.outcomes = [RunError("it broke")]
    bench.run()
    assert bench.store.failures[-2:] == [(1, "it broke"), (2, "it broke")]
    bench.outcomes = [went("failed")]
    assert [each.name for each in bench.run().errors] == ["trial-incomplete"]


def test_a_server_that_stays_away_is_left_out_after_three_trials(bench, monkeypatch):
    monkeypatch.setattr(machine, "BACK_S", 0.0)
    bench.outcomes = [went(), ServerError("it went away")]
    made = bench.run(9)
    assert (made.progress.done, made.progress.failed, bench.tried) == (1, 8, 7)
    assert (bench.heard.gone, made.errors[-1].name) == ([5], "server-away")
    assert made.progress.left == {"": 0}
    assert len(made.progress.spent_s[""]) == 4, "what is left out says nothing of what trials take"


@pytest.mark.parametrize(
    ("refusal", "attempts", "settings"),
    [
        (ConnectionsError("too-few-connections", free=96, needed=116), 8, ()),
        (PrepareError("making the data failed: the disk is full"), 8, ()),
        (ConsentError("it may not change shared_buffers"), 4, ()),
        # A managed one that starts with no settings of a cell may with those of another.
        (ServerError("it does not start"), 8, ("1TB", "2TB", "3TB", "4TB")),
    ],
)
def test_where_a_server_answers_other_cells_are_tried(bench, refusal, attempts, settings):
    bench.outcomes = [*[refusal] * attempts, went()]
    target = TargetPlan() if settings else SOMEBODYS
    made = bench.run(6, target, [{"shared_buffers": size} for size in settings])
    assert (made.progress.done, made.progress.failed) == (2, 4)
    assert made.errors == [refusal] * 4
    assert bench.heard.gone == []


@pytest.mark.parametrize(
    ("errors", "state", "lasting"),
    [
        ([ConnectionsError("too few"), ConnectionsError("too few")], "finished", True),
        ([ConnectionsError("too few"), ScriptError("a typo")], "finished", True),
        ([ConnectionsError("too few"), RunError("it broke")], "interrupted", False),
        ([RunError("it broke"), RunError("it broke")], "interrupted", False),
    ],
)
def test_an_experiment_whose_other_cells_cannot_be_run_is_finished(
    bench, tmp_path, errors, state, lasting
):
    design = Design({"clients": ("1", "2")})
    bench.patch()
    bench.monkeypatch.setattr(sweep, "_get_servers", lambda *_: None)
    first, second = errors
    bench.outcomes = [first, first, second]
    store = tmp_path / "results.db"
    swept = sweep.run(sweep.plan(Experiment("e", "select-only", design), store))
    assert (list(swept.errors), swept.lasting, swept.missing) == (errors, lasting, 2)
    assert Store.open(store).experiment(swept.id).state == state


def test_a_trial_whose_end_is_not_stored_is_not_done(bench, tmp_path):
    bench.outcomes = [went(store_error=StoreError("the store is full"))]
    with raises(StoreError, "the store is full"):
        bench.run(2)
    assert bench.made is not None
    assert (bench.made.progress.done, bench.tried) == (0, 2)
    bench.monkeypatch.setattr(sweep, "_get_servers", lambda *_: None)
    with raises(StoreError, "experiment-not-stored"):
        experiment = Experiment("e", "select-only", Design({}))
        sweep.run(sweep.plan(experiment, tmp_path / "results.db"))


@pytest.mark.parametrize("asked", [False, True])
def test_a_machine_that_breaks_lets_the_others_end_their_trials(bench, asked):
    def breaks(*_: object) -> Outcome:
        bench.tried += 1
        if asked:
            bench.stops.ask()
        raise ValueError("a bug")

    bench.monkeypatch.setattr(bench, "_trial", breaks)
    with pytest.raises(ValueError, match="a bug"):
        bench.run(3)
    assert (bench.tried, bench.stops.requests) == (1, 1), "it cuts no trial short"


@pytest.fixture
def quick_turns():
    """Threads take turns 500 times as often as usual, so what two may do wrong happens soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_what_is_left_may_be_asked_while_machines_report(quick_turns):
    progress = Progress(10_000, left={f"m{n}": 1 for n in range(600)})
    ended = threading.Event()
    errors: list[Exception] = []

    def ask() -> None:
        try:
            while not ended.is_set():
                progress.seconds_left()
        except Exception as error:
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    for n in range(600):
        progress.ended(f"m{n}", 1.0, 1, well=True)
    ended.set()
    asking.join()
    assert errors == []


class _Load:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def stop(self) -> None:
        self.heard.append("stop")

    def abort(self) -> None:
        self.heard.append("abort")


@pytest.mark.parametrize(("asked", "heard"), [(0, []), (1, ["stop"]), (2, ["stop", "abort"])])
def test_a_load_that_begins_late_hears_what_was_asked_before(asked, heard):
    found, load = Stops(), _Load()
    for _ in range(asked):
        found.ask()
    with found.over(load):
        assert load.heard == heard
    found.ask()
    assert load.heard == heard, "it has ended, and is left alone"


def test_who_waits_is_told_that_somebody_asked_for_the_end():
    found = Stops()
    found.check()
    found.ask()
    with pytest.raises(StoppedError):
        found.check()
    found.rest(3600)


def test_variables_of_pgpaces_are_there_while_those_of_libpq_are_hidden(monkeypatch):
    import os

    from pgpaces.trial.target_server import without_pg_variables

    given = {"PGHOST": "board", "PGPACES_HOME": "/home", "PGDATA": "/data"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    seen: list[str] = []
    real: Callable[..., Any] = os.environ.pop
    monkeypatch.setattr(os.environ, "pop", lambda name, *d: (seen.append(name), real(name, *d))[1])
    with without_pg_variables():
        assert {name: os.environ.get(name) for name in given} == {**given, "PGHOST": None}
    assert "PGPACES_HOME" not in seen, "another thread might look for it at this very moment"
    assert os.environ["PGHOST"] == "board"
