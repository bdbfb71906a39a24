"""What is told on stderr while trials run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.summary import summarize
from pgpaces.cli.progress import LiveLine, SweepProgress, TrialProgress
from pgpaces.core.errors import PgpacesError, PlanError, StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.spec.design import Cell, Slot
from pgpaces.spec.result import Estimate
from pgpaces.trial.listener import Progress
from pgpaces.trial.trial import Outcome
from tests.unit.trials import series, times

SLOT = Slot(1, Cell((("clients", "2"),)))


def outcome(**changed: object) -> Outcome:
    trial = series([[10.0, 20.0], [30.0], [5.0]])
    return replace(Outcome(trial, summarize(trial, Accumulator.of(trial.intervals))), **changed)  # type: ignore[arg-type]


def told(capsys: pytest.CaptureFixture[str], found: Outcome | PgpacesError) -> str:
    listener = SweepProgress(None)
    listener.trial("", SLOT, 1, progress=Progress(4, left={"": 4}))
    listener.done("", SLOT, found)
    return capsys.readouterr().err


def test_a_trial_that_was_not_stored_is_told_as_failed(capsys: pytest.CaptureFixture[str]) -> None:
    error = StoreError("the store cannot be used: disk is full", "free some space")
    text = told(capsys, outcome(store_error=error))
    assert "failed: the store cannot be used: disk is full (free some space)" in text


def test_why_a_trial_could_not_begin_comes_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "no setting 'work_me' (did you mean work_mem?)" in told(
        capsys, PlanError("there is no setting 'work_me'", "did you mean work_mem?")
    )


def test_a_percentile_of_too_few_transactions_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, outcome()).rstrip().partition(";")[0].endswith("p99 –")


def test_a_quantile_above_every_time_has_no_unit(capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome()
    latency = replace(
        found.summary.latency, p99=Estimate(float("inf"), float("inf"), float("inf"), 4)
    )
    text = told(capsys, replace(found, summary=replace(found.summary, latency=latency)))
    assert text.rstrip().partition(";")[0].endswith("p99 above every time")


@pytest.mark.parametrize(("every_s", "shown"), [(None, True), (0, False)])
def test_a_warning_of_a_trial_in_a_sweep_is_told_unless_nothing_is_to_be(
    capsys: pytest.CaptureFixture[str], every_s: int | None, shown: bool
) -> None:
    listener = SweepProgress(every_s).trial("", SLOT, 1, progress=Progress(4))
    assert isinstance(listener, TrialProgress)
    listener.say("making the data")
    listener.say("warning: the store takes nothing")
    text = capsys.readouterr().err
    assert ("warning: the store takes nothing" in text) is shown
    assert "making the data" not in text


def test_what_ctrl_c_kept_from_beginning_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    listener = SweepProgress(None)
    listener.trial("", SLOT, 1, progress=Progress(4, left={"": 4}))
    listener.stopping(1)
    listener.done("", SLOT, PlanError("canceling statement", "fix the file"))
    listener.done("", SLOT, outcome())
    text = capsys.readouterr().err
    assert "not begun" in text
    assert "fix the file" not in text
    assert "missed 0.0%" in text


# ---- searches ----

LONG = Slot(5, Cell((("set.work_mem", "4MB"), ("rate", "171/s"), ("role", "long"))))


def test_a_trial_of_a_search_is_a_line_with_its_load_and_without_its_role(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener = SweepProgress(None)
    listener.due("", LONG, "meets it up to 160/s, misses it from 180/s; trial 5 of at least 12")
    listener.trial("", LONG, 1, progress=Progress(None, done=4))
    listener.done("", LONG, outcome())
    due, done = capsys.readouterr().err.splitlines()
    assert due.startswith(
        "set.work_mem=4MB, 171/s: meets it up to 160/s, misses it from 180/s; trial 5"
    )
    assert done.startswith("set.work_mem=4MB, 171/s for 3 s: missed 0.0% (0.0 to ")
    assert "role" not in due + done


def test_a_trial_of_a_search_that_failed_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    listener = SweepProgress(None)
    listener.trial("pi4", LONG, 1, progress=Progress(None))
    listener.done("pi4", LONG, StoreError("the disk is full", "free some space"))
    said = "pi4: set.work_mem=4MB, 171/s: failed: the disk is full (free some space)\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("late", "ending"), [(True, ", the generator was late\n"), (False, ")\n")])
def test_a_trial_of_a_search_whose_generator_was_late_says_so(
    capsys: pytest.CaptureFixture[str], late: bool, ending: str
) -> None:
    found = outcome()
    generator = replace(found.summary.generator, late=late, excused=0)
    listener = SweepProgress(None)
    listener.trial("", LONG, 1, progress=Progress(None))
    listener.done("", LONG, replace(found, summary=replace(found.summary, generator=generator)))
    said = capsys.readouterr().err
    assert "missed 0.0% (0.0 to " in said
    assert said.endswith(ending)


def test_on_a_terminal_what_is_known_stands_in_the_line_that_is_rewritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, bool]] = []
    listener = SweepProgress(None)
    listener.teller.terminal = True
    monkeypatch.setattr(
        listener.teller, "tell", lambda text, rewrite=False, **_: told.append((text, rewrite))
    )
    listener._every_s = 1
    listener.due("", LONG, "meets it up to 160/s, misses it from 180/s")
    ear = listener.trial("", LONG, 1, progress=Progress(None))
    for interval in series([[10.0, 20.0]]).intervals:
        ear.interval(interval)
    listener.done("", LONG, outcome())
    assert [rewrite for _, rewrite in told] == [True, True, False]
    assert told[1][0].startswith("set.work_mem=4MB, 171/s: 1 s: 2/s")
    assert told[1][0].endswith("; meets it up to 160/s, misses it from 180/s")


def test_nothing_is_told_of_a_search_where_nothing_is_to_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener = SweepProgress(0)
    listener.due("", LONG, "where the search begins")
    listener.trial("", LONG, 1, progress=Progress(None))
    listener.done("", LONG, outcome())
    assert capsys.readouterr().err == ""


def test_what_clients_are_told_again_and_again_is_told_a_few_times_and_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener = TrialProgress(0)
    for second in range(20):
        notice = ("info", f"NOTICE:  user {second} has recorded {7 * second} plants")
        listener.interval(Interval(second, lines=(notice, ("plain", "mine"))))
    listener.done()
    text = capsys.readouterr().err
    assert text.count("has recorded") == 6
    assert "15 more like: NOTICE:  user 0 has recorded 0 plants" in text
    assert text.count("mine") == 20, "what a script prints is its own"


def test_a_line_says_rate_p95_missed_and_errors_since_the_last_one() -> None:
    live = LiveLine(10)
    tally = Tally(0, 0, due=10, on_time=7, late=1, failed={"40001": 2}, latency=times([5.0] * 8))
    live.add(Interval(0, tallies=(tally,)))
    live.add(Interval(1, tallies=(tally,)))
    assert live.text(terminal=False) == "2 s: 8/s  p95 – ms  missed 30.0%  4 failed"
    live.add(Interval(2))
    assert live.text(terminal=False) == "3 s: 0/s  p95 – ms  missed –"


def test_the_p95_of_a_line_ranks_over_all_that_ended() -> None:
    live = LiveLine(10)
    for failures, p95 in ((1, "5"), (2, "–")):
        ok = 20 - failures
        failed = {"22012": failures}
        tally = Tally(0, 0, due=20, on_time=ok, failed=failed, latency=times([5.0] * ok))
        live.add(Interval(0, tallies=(tally,)))
        assert f"p95 {p95} ms" in live.text(terminal=False)


def test_a_line_is_of_the_trials_own_load_as_the_answer_is() -> None:
    live = LiveLine(10, scripts=1)
    own = Tally(0, 0, due=10, on_time=10, latency=times([5.0] * 10))
    background = Tally(0, 1, due=10, late=10, latency=times([900.0] * 10))
    live.add(Interval(0, tallies=(own, background)))
    assert live.text(terminal=False) == "1 s: 10/s  p95 5 ms  missed 0.0%"


def test_a_line_of_an_overloaded_server_has_the_share_of_what_ended() -> None:
    live = LiveLine(None)
    late = Tally(0, 0, due=200, late=40, latency=times([9000.0] * 40))
    live.add(Interval(0, tallies=(late,)))
    assert "missed 100.0%" in live.text(terminal=False)
    live.add(Interval(1, tallies=(late, Tally(0, 0, unfinished=160))))
    assert "missed 100.0%" in live.text(terminal=False)


def test_a_terminal_has_a_bar_the_time_that_is_left_and_a_picture() -> None:
    live = LiveLine(4)
    live.add(Interval(-1))
    live.text(terminal=True)
    for second, ms in enumerate((5.0, 10.0)):
        tally = Tally(second, 0, due=1, on_time=1, latency=times([ms]))
        live.add(Interval(second, tallies=(tally,)))
        text = live.text(terminal=True)
    assert text == f"{'█' * 9}{'░' * 3} 1 s left  1/s  p95 10 ms  missed 0.0%   ▅█"


def test_seconds_after_the_last_one_are_of_what_still_runs() -> None:
    live = LiveLine(2)
    texts = []
    for second in range(3):
        live.add(Interval(second))
        texts.append(live.text(terminal=True))
    assert ["1 s left" in texts[0], *("ending" in text for text in texts)] == [
        True, False, True, True,
    ]  # fmt: skip
    assert not any(" 0 s left" in text for text in texts)


def test_a_line_keeps_no_more_than_it_shows() -> None:
    live = LiveLine(None)
    for second in range(100):
        live.add(Interval(second, tallies=(Tally(second, 0, due=1, latency=times([1.0])),)))
        assert len(live.text(terminal=True)) < 80
