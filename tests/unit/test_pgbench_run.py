"""What the face tells and returns when a run is over, whatever became of it; no server."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.cli.pgbench import Voice, run
from pgpaces.cli.pgbench.options import Options, PgbenchError, ScriptOption
from pgpaces.cli.pgbench.report import Facts, Totals, banner, report, unfinished
from pgpaces.cli.pgbench.run import Setup
from pgpaces.core.errors import LogError, PlanError, RunError, StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times, times_of
from pgpaces.load import engine
from pgpaces.spec.load import THREADS_MAX, TrialPlan
from pgpaces.spec.result import Trial
from pgpaces.spec.target import TargetPlan
from pgpaces.spec.workload import of_scripts
from pgpaces.trial.trial import Outcome
from tests.errors import raises
from tests.unit.trials import LEAST, known

TRIAL = Trial(
    "ID",
    "finished",
    datetime(2026, 1, 1, tzinfo=UTC),
    *known(**{name: {} for name in LEAST}).values(),
    "1",
)
OPTIONS = Options(seed=1, scripts=(ScriptOption("a.sql", content="SELECT 1;"),), transactions=10)
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
        ({"error": RunError("lost")}, 2, ["p: error: lost", ABORTED]),
        ({"error": LogError("full")}, 2, ["p: error: full"]),
        (
            {"store_error": StoreError("full")},
            0,
            ["p: warning: the result was not stored: full"],
        ),
    ],
)
def test_every_end_has_its_code_and_its_words(case, code, told, capsys):
    assert ended(replace(OPTIONS, store="store_error" in case), **case) == code
    out, err = capsys.readouterr()
    assert REPORTED in out
    assert err.splitlines() == ["p: error: client 0 aborted", *told]


def test_progress_is_told_at_whole_seconds_only(capsys):
    watch = run._Watch(replace(OPTIONS, progress_s=2), Voice("p"))
    for second, ended_ns in ((0, 1), (1, 2), (2, 3), (3, 3.5)):
        watch.interval(Interval(second, ended_ns=int(ended_ns * 10**9)))
    assert [line[:15] for line in capsys.readouterr().err.splitlines()] == ["progress: 2.0 s"]


def planned(options: Options, facts: Facts) -> TrialPlan:
    target = TargetPlan(dsn="", overrides=(("host", "x"),))
    return run._request(options, facts, of_scripts("w", ()), target=target).trial


def test_every_option_of_the_load_reaches_the_plan():
    options = replace(
        OPTIONS, clients=3, jobs=2, rate=5.0, limit_us=1500, transactions=None,
        duration_s=2**31 - 1, protocol="prepared", max_tries=0, seed=7,
        continue_on_error=True, exit_on_abort=True,
        connect_each=True, per_command=True, verbose_errors=True, debug=True,
        log=True, failures_detailed=True,
        aggregate_s=2, defines={"scale": "9"},
    )  # fmt: skip
    plan = planned(options, Facts(4))
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


def test_more_threads_than_the_engine_has_are_as_many_as_it_has():
    assert planned(replace(OPTIONS, clients=2000, jobs=2000), Facts()).threads == THREADS_MAX


class Session:
    def __init__(self) -> None:
        self.info = SimpleNamespace(parameter_status=lambda name: "15.4")
        self.queries: list[str] = []

    def execute(self, query: str, *_: object) -> None:
        self.queries.append(query)

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("rate", [1e8, 1e-7])
def test_what_cannot_run_is_refused_before_anything_is_changed(monkeypatch, rate):
    session = Session()
    monkeypatch.setattr(run, "connect", lambda *_: Setup(session, {}))  # type: ignore[arg-type]
    options = replace(OPTIONS, rate=rate, store=False)
    with raises(PlanError, "rate-out-of-range", what="--rate"):
        run.run(options, Voice("p"))
    assert session.queries == []


@pytest.mark.usefixtures("clean_client")
@pytest.mark.parametrize(
    "environment", [{}, {"PGHOSTADDR": "127.0.0.1"}, {"PGHOST": "a", "PGAPPNAME": "b"}], ids=str
)
def test_setup_goes_to_the_server_of_the_load_under_a_name_that_others_may_replace(
    monkeypatch, environment
):
    """libpq may have been built with another folder of sockets."""
    tried: list[dict[str, str]] = []

    def attempt(parameters: dict[str, str]) -> Any:
        tried.append(parameters)
        return SimpleNamespace(status=1, needs_password=False, error_message=b"none")

    monkeypatch.setattr(run, "_attempt", attempt)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PgbenchError, match="none"):
        run.connect(replace(OPTIONS, dbname="d"), Voice("p"), "setup")
    of_load = engine.resolve("", **tried[0])
    host = {"host": of_load.keywords["host"]} if "PGHOSTADDR" not in environment else {}
    assert tried == [{"dbname": "d", "fallback_application_name": "p", **host}]
    assert engine.for_driver(of_load)["application_name"] == environment.get("PGAPPNAME", "p")


def test_a_plain_run_is_a_closed_load_of_so_many_transactions():
    plan = planned(OPTIONS, Facts(4))
    assert (plan.load.model, plan.transactions, plan.duration_ns) == ("closed", 10, None)
    assert (plan.policy, plan.limit_ns, plan.log) == ("run", None, None)
    assert dict(plan.variables) == {"scale": "4"}


SECOND_NS = 1_000_000_000
ASKED = Options(
    seed=1, scripts=(ScriptOption("select-only", builtin=True),), clients=4, jobs=1, transactions=5
)
FACTS = Facts()


def times(*values_ms: float) -> Times:
    return times_of(int(value * 1e6) for value in values_ms)


def tally(script: int = 0, **counts: object) -> Tally:
    return replace(Tally(due_second=0, script=script), **counts)  # type: ignore[arg-type]


def totals(*intervals: Interval) -> Totals:
    made = Totals()
    for interval in intervals:
        made.add(interval)
    return made


def interval(second: int, *tallies: Tally, **more: object) -> Interval:
    whole = Interval(second=second, tallies=tallies, ended_ns=(second + 1) * SECOND_NS)
    return replace(whole, **more)  # type: ignore[arg-type]


def lines(asked: Options, counted: Totals, facts: Facts = FACTS) -> list[str]:
    return report(asked, facts, counted, connect_ns=2_500_000).splitlines()


PROCESSED = interval(0, tally(on_time=15, late=5, latency=times(1, 3)), ended_ns=SECOND_NS // 2)


def test_a_plain_run_has_its_latency_from_its_duration():
    assert lines(ASKED, totals(PROCESSED))[7:] == [
        "number of transactions actually processed: 20/20",
        "number of failed transactions: 0 (0.000%)",
        "latency average = 100.000 ms",  # 500 ms x 4 clients / 20
        "initial connection time = 2.500 ms",
        "tps = 40.000000 (without initial connection time)",
    ]


def test_a_rate_and_a_limit_have_lines_of_their_own():
    asked = replace(
        ASKED, rate=10.0, limit_us=10_500, transactions=None, duration_s=2, max_tries=3,
        failures_detailed=True,
    )  # fmt: skip
    counted = totals(
        interval(0, tally(on_time=5, late=1, skipped=2, latency=times(1, 3), lag=times(0.5, 1.5))),
        interval(1, tally(failed={"40001": 1, "40P01": 2, "23505": 1}, retried=3, retries=5)),
    )
    assert lines(asked, counted, Facts(7, "hash", 3))[9:] == [
        "number of transactions actually processed: 6",
        "number of failed transactions: 4 (33.333%)",  # of 6 + 2 + 4
        "number of serialization failures: 1 (8.333%)",
        "number of deadlock failures: 2 (16.667%)",
        "number of other failures: 1 (8.333%)",
        "number of transactions retried: 3 (25.000%)",
        "total number of retries: 5",
        "number of transactions skipped: 2 (16.667%)",
        "number of transactions above the 10.5 ms latency limit: 1/6 (16.667%)",  # of processed
        "latency average = 2.000 ms",
        "latency stddev = 1.000 ms",
        "rate limit schedule lag: avg 0.333 (max 1.500) ms",  # 2 ms over 6 processed
        "initial connection time = 2.500 ms",
        "tps = 3.000000 (without initial connection time)",
    ]


def test_progress_tells_what_came_since_the_last_line():
    counted = Totals()
    counted.add(interval(0, tally(on_time=10, latency=times(1, 3))))
    assert counted.progress(ASKED) == (
        "progress: 1.0 s, 10.0 tps, lat 2.000 ms stddev 1.000, 0 failed"
    )
    counted.add(interval(1))
    counted.add(interval(2, tally(on_time=1, late=2, failed={"40001": 1}, latency=times(4))))
    assert counted.progress(ASKED) == (
        "progress: 3.0 s, 1.5 tps, lat 4.000 ms stddev 0.000, 1 failed"
    )


def test_what_never_finished_is_told_with_the_share_that_was_missed():
    assert unfinished(totals(PROCESSED)) is None
    counted = totals(interval(0, tally(on_time=5, late=1, skipped=1, unfinished=3)))
    assert unfinished(counted) == (
        "due but never finished: 3; missed: 50.000% of 10 due transactions"
    )


def test_the_first_aborted_client_is_remembered_by_its_thread():
    counted = totals(interval(0), interval(1, aborted=(2, 1)), interval(2, aborted=(0,)))
    assert counted.aborted_thread == 2


def test_the_banner_names_all_three_versions():
    assert banner("20", "1.2", "15.4") == "pgbench (20, pgpaces 1.2, server 15.4)"
