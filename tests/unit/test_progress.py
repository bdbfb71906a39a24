"""What is told on stderr while trials run."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.summary import summarize
from pgpaces.cli.progress import LiveLine, SweepProgress, TrialProgress
from pgpaces.core.errors import PgpacesError, PlanError, StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.texts import Warned
from pgpaces.spec.design import Ask, Cell
from pgpaces.spec.result import Estimate
from pgpaces.trial.listener import Progress
from pgpaces.trial.trial import Outcome
from tests.unit.trials import series, times

ASK = Ask(Cell((("clients", "2"),)), 1)


def outcome(**changed: object) -> Outcome:
    trial = series([[10.0, 20.0], [30.0], [5.0]])
    return replace(Outcome(trial, summarize(trial, Accumulator.of(trial.intervals))), **changed)  # type: ignore[arg-type]


def told(
    capsys: pytest.CaptureFixture[str],
    found: Outcome | PgpacesError,
    ask: Ask = ASK,
    every_s: int | None = None,
) -> str:
    listener = SweepProgress(every_s)
    listener.due("", replace(ask, why="what is known"))
    listener.trial("", ask, 1, progress=Progress(4, left={"": 4}))
    listener.done("", ask, found)
    return capsys.readouterr().err


ABOVE = Estimate(math.inf, math.inf, math.inf, 4)
LONG = Ask(Cell((("set.work_mem", "4MB"), ("rate", "171/s"), ("role", "long"))), 5)


@pytest.mark.parametrize("ask", [ASK, LONG])
def test_a_trial_that_failed_is_told_with_why_and_what_to_do(capsys, ask):
    error = StoreError("store-in-memory", store="x")
    for found in (error, outcome(store_error=error)):
        assert f"failed: {error.message} ({error.hint})" in told(capsys, found, ask)


def test_a_percentile_that_there_is_not_has_no_unit(capsys):
    found = outcome()
    latency = replace(found.summary.latency, p99=ABOVE)
    above = replace(found, summary=replace(found.summary, latency=latency))
    for one, shown in ((found, "–"), (above, "above every time")):
        line = told(capsys, one).splitlines()[-1]
        assert f" p99 {shown}, " in line


def test_a_trial_of_a_search_is_a_line_with_its_load_and_without_its_role(capsys):
    due, done = told(capsys, outcome(), LONG).splitlines()
    assert due == "set.work_mem=4MB, rate=171/s: what is known"
    assert done.startswith("set.work_mem=4MB, rate=171/s: 1.33/s, p99 –, missed 0.0% (0.0 to ")
    assert told(capsys, outcome(), LONG, 0) == "", "nothing is to be told"


@pytest.mark.parametrize(("every_s", "shown"), [(None, True), (0, False)])
def test_a_warning_of_a_trial_in_a_sweep_is_told_unless_nothing_is_to_be(capsys, every_s, shown):
    listener = SweepProgress(every_s).trial("", ASK, 1, progress=Progress(4))
    assert isinstance(listener, TrialProgress)
    listener.say("making the data")
    listener.say(Warned("the store takes nothing"))
    text = capsys.readouterr().err
    assert ("warning: the store takes nothing" in text) is shown
    assert "making the data" not in text


def test_what_ctrl_c_kept_from_beginning_is_no_failure(capsys):
    listener = SweepProgress(None)
    listener.trial("", ASK, 1, progress=Progress(4, left={"": 4}))
    listener.stopping(1)
    listener.done("", ASK, error := PlanError("all-cells-excluded"))
    listener.done("", ASK, outcome())
    text = capsys.readouterr().err
    assert "not started" in text
    assert str(error.hint) not in text
    assert "missed 0.0%" in text


def test_on_a_terminal_the_line_of_a_trial_is_rewritten(monkeypatch):
    told: list[tuple[str, bool]] = []
    listener = SweepProgress(1)
    listener.teller.terminal = True
    monkeypatch.setattr(
        listener.teller, "tell", lambda text, rewrite=False, **_: told.append((text, rewrite))
    )
    ear = listener.trial("", LONG, 1, progress=Progress(None))
    for interval in series([[10.0, 20.0]]).intervals:
        ear.interval(interval)
    listener.done("", LONG, outcome())
    assert [rewrite for _, rewrite in told] == [True, False]
    assert told[0][0].startswith("set.work_mem=4MB, rate=171/s: 1 s: 2/s")


def test_what_clients_are_told_again_and_again_is_told_a_few_times_and_counted(capsys):
    listener = TrialProgress(0)
    for second in range(20):
        notice = ("info", f"NOTICE:  user {second} has recorded {7 * second} plants")
        listener.interval(Interval(second, lines=(notice, ("plain", "mine"))))
    listener.done()
    text = capsys.readouterr().err
    assert text.count("has recorded") == 6
    assert "not shown: 15 (NOTICE:  user 0 has recorded 0 plants)" in text
    assert text.count("mine") == 20, "what a script prints is its own"


def ended(ms: float | None = 5.0, script: int = 0, **counts: Any) -> Tally:
    """Transactions that ended after so long, but for those that failed."""
    done = counts.get("on_time", 0) + counts.get("late", 0)
    return Tally(0, script, latency=times([ms] * done if ms else []), **counts)


FAILED = ended(due=10, on_time=7, late=1, failed={"40001": 2})
LATE = ended(due=200, late=40)
# The tallies of each second, and what is said after it.
LINES: dict[str, list[tuple[list[Tally], str]]] = {
    "since the last line": [
        ([FAILED, FAILED], "1 s: 16/s  p95 – ms  missed 30.0%  4 failed"),
        ([], "2 s: 0/s  p95 – ms  missed –"),
    ],
    "p95 of all that ended": [
        ([ended(due=20, on_time=19, failed={"22012": 1})],
         "1 s: 19/s  p95 5 ms  missed 5.0%  1 failed"),
        ([ended(due=20, on_time=18, failed={"22012": 2})],
         "2 s: 18/s  p95 – ms  missed 10.0%  2 failed"),
    ],
    "the trial's own load": [
        ([ended(due=10, on_time=10), ended(900.0, 1, due=10, late=10)],
         "1 s: 10/s  p95 5 ms  missed 0.0%"),
    ],
    "the share of what ended": [
        ([LATE], "1 s: 40/s  p95 5 ms  missed 100.0%"),
        ([LATE, Tally(0, 0, unfinished=160)], "2 s: 40/s  p95 – ms  missed 100.0%"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_of_what_ended_since_the_last_one(name):
    live = LiveLine(scripts=1)
    for number, (tallies, text) in enumerate(LINES[name]):
        live.add(Interval(number, tallies=tuple(tallies)))
        assert live.text() == text
