"""What the face tells and returns when a run is over, whatever became of it; no server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.cli.pgbench import Voice, run
from pgpaces.cli.pgbench.options import Options, ScriptOption
from pgpaces.cli.pgbench.report import Facts
from pgpaces.errors import RunError, StoreError
from pgpaces.experiment.trial import Outcome
from pgpaces.record import Interval, Tally
from pgpaces.result import Trial
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
    return run._end(options, Facts(), outcome, watch)


@pytest.mark.parametrize(
    ("case", "code", "told"),
    [
        ({}, 0, []),
        ({"state": "interrupted"}, 130, []),
        ({"aborted": (1,)}, 2, [ABORTED]),
        ({"aborted": (1,), "error": RunError("gave up")}, 2, [ABORTED]),
        ({"aborted": (1,), "state": "interrupted"}, 2, [ABORTED]),
        ({"error": RunError("lost")}, 2, ["p: error: lost", ABORTED]),
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


def test_a_plain_run_is_a_closed_load_of_so_many_transactions() -> None:
    plan = run._trial(OPTIONS, Facts(4))
    assert (plan.load.model, plan.transactions, plan.duration_ns) == ("closed", 10, None)
    assert (plan.policy, plan.limit_ns, plan.log) == ("run", None, None)
    assert dict(plan.variables) == {"scale": "4"}
