"""What the face tells and returns when a run is over, whatever became of it; no server."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.cli.pgbench import Voice, run, setup
from pgpaces.cli.pgbench.options import Options, ScriptOption
from pgpaces.cli.pgbench.report import Facts
from pgpaces.cli.pgbench.setup import Setup
from pgpaces.cli.pgbench.values import PgbenchError
from pgpaces.core.errors import LogError, PlanError, RunError, StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.load import engine
from pgpaces.spec.plan import THREADS_MAX
from pgpaces.spec.result import Trial
from pgpaces.trial.trial import Outcome
from tests.unit.trials import LEAST, known

TRIAL = Trial(
    "ID",
    "finished",
    datetime(2026, 1, 1, tzinfo=UTC),
    *known(**{name: {} for name in LEAST}).values(),
    "1",
)
OPTIONS = Options(seed=1, scripts=(ScriptOption("a.sql"),), transactions=10)
SECOND = Interval(
    0, tallies=(Tally(0, 0, on_time=3),), ended_ns=10**9, lines=(("error", "client 0 aborted"),)
)
REPORTED = "number of transactions actually processed: 3/10"
ABORTED = "p: error: Run was aborted; the above results are incomplete."
IN_THREAD = "p: error: Run was aborted due to an error in thread 1"


def ended(
    options: Options, state: Any = "finished", aborted: tuple[int, ...] = (), **more: Any
) -> int:
    watch = run._Watch(options, Voice("p"))
    watch.interval(replace(SECOND, aborted=aborted))
    outcome = Outcome(replace(TRIAL, state=state), summary=None, **more)  # type: ignore[arg-type]
    return run._end(options, Facts(), outcome, watch=watch)


@pytest.mark.parametrize(
    ("case", "code", "told"),
    [
        ({}, 0, []),
        ({"state": "interrupted"}, 130, []),
        ({"aborted": (1,)}, 2, [ABORTED]),
        ({"aborted": (1,), "error": RunError("gave up")}, 2, [ABORTED]),
        ({"aborted": (1,), "state": "interrupted"}, 2, [ABORTED]),
        ({"error": RunError("lost")}, 2, ["p: error: lost", ABORTED]),
        ({"error": LogError("full")}, 2, ["p: error: full"]),
        ({"aborted": (1,), "error": LogError("full")}, 2, ["p: error: full", ABORTED]),
        (
            {"store_error": StoreError("full")},
            0,
            ["p: warning: the result is not stored: full"],
        ),
    ],
)
def test_every_end_has_its_code_and_its_words(
    case: dict[str, Any], code: int, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(replace(OPTIONS, store="store_error" in case), **case) == code
    out, err = capsys.readouterr()
    assert REPORTED in out
    assert err.splitlines() == ["p: error: client 0 aborted", *told]


def test_a_run_that_ends_with_the_first_abort_has_no_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = replace(OPTIONS, exit_on_abort=True, store=False)
    assert ended(options, aborted=(1, 0)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[1:] == [IN_THREAD]


def test_a_result_that_is_kept_is_told_with_its_place_where_steps_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_STORE", "/some/where.db")
    assert ended(replace(OPTIONS, debug=True)) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "p: stored as run ID in /some/where.db"
    assert ended(OPTIONS) == 0
    assert "stored" not in capsys.readouterr().err


def test_progress_is_told_at_whole_seconds_only(capsys: pytest.CaptureFixture[str]) -> None:
    watch = run._Watch(replace(OPTIONS, progress_s=2), Voice("p"))
    for second, ended_ns in ((0, 1), (1, 2), (2, 3), (3, 3.5)):
        watch.interval(Interval(second, ended_ns=int(ended_ns * 10**9)))
    assert [line[:15] for line in capsys.readouterr().err.splitlines()] == ["progress: 2.0 s"]


def test_every_option_of_the_load_reaches_the_plan() -> None:
    options = replace(
        OPTIONS, clients=3, jobs=2, rate=5.0, limit_us=1500, transactions=None,
        duration_s=2**31 - 1, protocol="prepared", max_tries=0, seed=7,
        continue_on_error=True, exit_on_abort=True,
        connect_each=True, per_command=True, verbose_errors=True, debug=True,
        log=True, failures_detailed=True,
        aggregate_s=2, defines=(("scale", "9"),),
    )  # fmt: skip
    plan = run._trial(options, Facts(4))
    assert (plan.load.model, plan.load.rate, plan.load.arrivals) == ("open", 5.0, "poisson")
    assert (plan.policy, plan.limit_ns, plan.backlog) == ("skip", 1_500_000, "drop")
    assert (plan.clients, plan.threads, plan.protocol) == (3, 2, "prepared")
    assert (plan.max_tries, plan.continue_on_error, plan.exit_on_abort) == (0, True, True)
    assert (plan.connect_each, plan.time_commands, plan.verbose) == (True, True, True)
    assert (plan.notices, plan.debug) == (True, True)
    assert (plan.seed, plan.warmup, plan.recover, plan.describe) == (7, 0, False, True)
    assert dict(plan.variables) == {"scale": "9"}
    assert plan.log is not None
    assert (plan.log.prefix, plan.log.aggregate_s, plan.log.detailed) == ("pgbench_log", 2, True)


def test_more_threads_than_the_engine_has_are_as_many_as_it_has() -> None:
    assert run._trial(replace(OPTIONS, clients=2000, jobs=2000), Facts()).threads == THREADS_MAX


class Session:
    """What a setup connection answers, and what it was told to do."""

    def __init__(self, pid: int = 7, free: int = 10, unlimited: bool = True) -> None:
        self.info = SimpleNamespace(backend_pid=7, parameter_status=lambda name: "15.4")
        self.queries: list[str] = []
        self._answers = [(pid, free), (unlimited,), (True,)]

    def execute(self, query: str, *_: object) -> Any:
        self.queries.append(query)
        return SimpleNamespace(fetchone=lambda: self._answers[len(self.queries) - 1])

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("rate", [1e8, 1e-7])
def test_what_cannot_run_is_refused_before_anything_is_changed(
    monkeypatch: pytest.MonkeyPatch, rate: float
) -> None:
    session = Session()
    monkeypatch.setattr(run, "connect", lambda *_: Setup(session, {}))  # type: ignore[arg-type]
    options = replace(OPTIONS, rate=rate, store=False)
    with pytest.raises(PlanError, match="out of range"):
        run.run(options, ["SELECT 1;"], Voice("p"))
    assert session.queries == []


@pytest.mark.parametrize(
    ("session", "locked"),
    [
        (Session(free=11), True),
        (Session(free=10), False),
        (Session(free=11, unlimited=False), False),
        (Session(free=11, pid=8), False),
    ],
    ids=["one to spare", "none", "a limit of the role", "a pooler"],
)
def test_a_run_is_locked_where_its_connection_can_be_spared(session: Any, locked: bool) -> None:
    assert run._lock(session, 10, Voice("p")) is locked


@pytest.mark.usefixtures("clean_client")
@pytest.mark.parametrize(
    "environment", [{}, {"PGHOSTADDR": "127.0.0.1"}, {"PGHOST": "a", "PGAPPNAME": "b"}], ids=str
)
def test_setup_goes_to_the_server_of_the_load_under_a_name_that_others_may_replace(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """libpq may have been built with another folder of sockets."""
    tried: list[dict[str, str]] = []

    def attempt(parameters: dict[str, str]) -> Any:
        tried.append(parameters)
        return SimpleNamespace(status=1, needs_password=False, error_message=b"none")

    monkeypatch.setattr(setup, "_attempt", attempt)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PgbenchError, match="none"):
        setup.connect(replace(OPTIONS, dbname="d"), Voice("p"), "setup")
    of_load = engine.resolve("", **tried[0])
    host = {"host": of_load.keywords["host"]} if "PGHOSTADDR" not in environment else {}
    assert tried == [{"dbname": "d", "fallback_application_name": "p", **host}]
    assert engine.for_driver(of_load)["application_name"] == environment.get("PGAPPNAME", "p")


def test_a_plain_run_is_a_closed_load_of_so_many_transactions() -> None:
    plan = run._trial(OPTIONS, Facts(4))
    assert (plan.load.model, plan.transactions, plan.duration_ns) == ("closed", 10, None)
    assert (plan.policy, plan.limit_ns, plan.log) == ("run", None, None)
    assert dict(plan.variables) == {"scale": "4"}
