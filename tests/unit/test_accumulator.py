"""The accumulator says the same as all intervals at once, whatever their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.summary import summarize
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.spec.result import counts

from .trials import SECOND_NS, second, series, times, trial


@st.composite
def outcomes(draw):
    """What became of the transactions of one second and script."""
    served = draw(st.lists(st.floats(0.1, 900), max_size=4))
    late = sum(ms > 500 for ms in served)
    skipped, failed, unfinished = (draw(st.integers(0, 2)) for _ in range(3))
    measured = times(served)
    return Tally(
        draw(st.integers(-5, 30)),
        draw(st.integers(0, 1)),
        due=len(served) + skipped + failed + unfinished,
        on_time=len(served) - late,
        late=late,
        skipped=skipped,
        failed={"40001": failed} if failed else {},
        unfinished=unfinished,
        latency=measured,
        lag=measured,
        service=measured,
    )


TWO = {"scripts": [{"name": n, "weight": 1, "commands": [[1, "SELECT", True]]} for n in "ab"]}


@given(st.lists(outcomes(), max_size=12), st.randoms(use_true_random=False))
def test_an_accumulator_agrees_with_plain_sums(tallies, shuffle):
    intervals = [Interval(n, (tally,)) for n, tally in enumerate(tallies)]
    expected = summarize(trial(tallies, workload=TWO, intervals=tuple(intervals)))
    shuffle.shuffle(intervals)
    accumulator = Accumulator.of(intervals)
    found = summarize(trial([], workload=TWO, intervals=()), accumulator)
    for one in (found, expected):
        assert one.latency.count == one.service.count
    assert found.counts == expected.counts
    # Sums of squares are of floating point: their order shows in the last digit.
    assert found.clusters.phi == pytest.approx(expected.clusters.phi)
    assert (found.missed is None) == (expected.missed is None)
    if found.missed is not None and expected.missed is not None:
        assert astuple(found.missed) == pytest.approx(astuple(expected.missed))
    assert (found.failures, found.latency.max) == (expected.failures, expected.latency.max)
    measured = [tally for tally in tallies if tally.due_second >= 0]
    assert found.counts == counts(measured)
    for number, script in enumerate(found.scripts):
        assert script.counts == counts(t for t in measured if t.script == number)
    assert found.latency.count == sum(t.latency.count for t in measured)


def test_an_account_may_be_asked_while_it_grows():
    accumulator = Accumulator()
    running = trial([], state="running")
    accumulator.add(second(0, [10.0] * 5, due=7))
    assert summarize(running, accumulator).counts.due == 5
    accumulator.add(Interval(1, (Tally(0, 0, on_time=2), Tally(1, 0, due=1))))
    assert summarize(running, accumulator).counts.due == 7
    accumulator.add(Interval(2, (Tally(1, 0, late=1),)))
    assert summarize(replace(running, state="finished"), accumulator).counts.late == 1


def test_what_an_account_keeps_of_a_second_is_a_few_numbers():
    accumulator = Accumulator.of(second(n, [10.0] * 4) for n in range(5000))
    blocks = accumulator._times[0, "latency"]._parts
    assert len(blocks) <= 200
    assert sum(len(parts) for parts in blocks.values()) <= 200 * 16
    assert summarize(trial([], measured_ns=5000 * SECOND_NS), accumulator).counts.due == 20_000


@pytest.mark.parametrize(("length_s", "cut_s"), [(150, 22), (300, 22), (1500, 24), (5000, 64)])
def test_a_long_trial_is_cut_in_larger_steps(length_s, cut_s):
    """A hundredth of the trial or less; the cut is moved to the later side."""
    settling = [[40.0, 41.0]] * 22
    found = summarize(series(settling + [[9.0, 11.0]] * (length_s - 22)))
    assert found.cut_s == cut_s
    assert found.counts.due == 2 * (length_s - found.cut_s)
    assert found.latency.count == found.counts.due
    assert found.latency.max == pytest.approx(11)


def test_statements_are_those_that_ended_in_the_part_that_counts():
    whole = series([[40.0]] * 20 + [[10.0]] * 80, workload=TWO)
    intervals = [
        replace(i, statements=(StatementTally(0, 0, failed=1, times=times([5.0]), retries=2),))
        for i in whole.intervals
    ]
    found = summarize(replace(whole, intervals=tuple(intervals)))
    [statement] = found.statements
    assert (statement.failed, statement.retries, statement.times.count) == (80, 160, 80)
    assert statement.times.mean.value == pytest.approx(5)
