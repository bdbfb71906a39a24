"""When a run may stop: the errors of its looks, its verdict, and what would decide it."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import goal, stopping
from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.stats import INDEPENDENT, Clusters, proportion, share
from pgpaces.analysis.stopping import LOOKS_OF_RUN, Missed, certain_in, would_decide
from pgpaces.analysis.summary import so_far, summarize
from pgpaces.answers.run import section
from pgpaces.core.findings import finding
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, Tally
from pgpaces.trial.listener import Listener
from pgpaces.trial.trial import Looks

from .seeds import seeds
from .sure import sure
from .trials import planned, second, trial

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import stopping as bench
from loads import Load, intervals_of, stored, truth

QUEUES = [Load("M/M/1", 1, 0.9), Load("M/M/4", 4, 0.8), Load("M/M/16", 16, 0.9)]


def test_boundaries_are_the_published_ones(monkeypatch):
    """Lan and DeMets' function for Pocock, five looks, 2.5% on a side (Reboussin et al. 2000)."""
    monkeypatch.setattr(bench, "spent", lambda part, a: a * math.log(1 + (math.e - 1) * part))
    found = [scipy.stats.norm.isf(error / 2) for error in bench.errors(0.025, (1, 2, 3, 4, 5))]
    assert found == pytest.approx([2.4380, 2.4268, 2.4102, 2.3966, 2.3859], abs=2e-4)


def test_each_look_has_its_part_of_the_error_and_later_ones_have_more():
    sides = np.array(LOOKS_OF_RUN.errors).T
    for found, error in zip(sides, (bench.FAIL, bench.PASS), strict=True):
        assert found == pytest.approx(bench.errors(error), abs=1e-5)
        assert (np.diff(found) > 0).all()
    assert bench.FAIL + bench.PASS <= 0.05
    assert [LOOKS_OF_RUN.last(ran_s)[1] for ran_s in (0, 30, 44.9, 45, 301)] == [
        LOOKS_OF_RUN.errors[look] for look in (0, 0, 0, 1, 7)
    ]  # fmt: skip


@pytest.mark.parametrize("more", [(30, 60, 90, 300), (15, 30, 90, 300), (30, 90, 150, 300)])
def test_one_look_more_allows_none_of_the_others_a_larger_error(more):
    few, many = (
        dict(zip(at, bench.errors(0.025, at), strict=True)) for at in ((30, 90, 300), more)
    )
    assert all(many[at] <= error + 1e-12 for at, error in few.items())


@pytest.mark.parametrize(
    ("missed", "due", "effect", "ran_s", "verdict"),
    [(0, 240, 1, 30, "unknown"), (0, 360, 1, 45, "pass"), (2, 482, 1, 60, "pass"),
     (222, 607, 1, 30, "fail"), (61, 1204, 1, 300, "unknown"), (450, 9000, 1, 300, "unknown"),
     (900, 30_000, 1, 300, "pass"), (900, 30_000, 60, 300, "unknown"),
     (240, 3000, 1, 30, "fail"), (240, 3000, 10, 30, "unknown"), (0, 0, 1, 30, "unknown")],
)  # fmt: skip
def test_a_run_passes_or_fails_by_the_interval_of_its_look(missed, due, effect, ran_s, verdict):
    found = Missed(missed, due, Clusters(effect), ran_s).share(ran_s)
    assert goal.verdict(found, 0.05) == verdict
    plain = share(missed, due, Clusters(effect))
    if plain and found:
        assert found.low <= plain.low <= plain.high <= found.high


def test_a_running_trial_has_the_share_that_it_has_in_the_store():
    load = QUEUES[1]
    for limit_ms in (truth(load, 60).p95, truth(load, 60).p99):
        due, latency = load.trials(60, 1, 5)
        [(trial, accumulator)] = stored(load, 60, 1, 5, limit_ms)
        found, later = so_far(trial, accumulator, 60), summarize(trial, accumulator).missed
        assert share(found.missed, found.due, found.clusters) == later
        [quick] = bench.Seconds.of(due[:, 0], latency[:, 0]).missed(60, [limit_ms], cold=True)
        assert (quick.missed, quick.due) == (found.missed, found.due)
        assert quick.clusters.phi == pytest.approx(found.clusters.phi, rel=0.01)


def test_a_server_that_falls_ever_further_behind_fails():
    """A backlog makes all latencies alike, which says nothing of what would be on time."""
    slow = [second(n, [3000.0 * (n + 1) + 20 * k for k in range(200)], on_time=0, late=200)
            for n in range(7)]  # fmt: skip
    stuck = [Interval(n, tallies=(Tally(n, 0, due=200, unfinished=200),)) for n in range(7, 30)]
    run = trial([], intervals=(*slow, *stuck), measured_ns=30_000_000_000)
    missed = summarize(planned(run, duration="auto")).missed
    assert missed.value == 1
    assert missed.low > 0.05


class Ending(Listener):
    """A load, and a listener: when it was stopped, and what it was told."""

    def __init__(self) -> None:
        self.stops, self.second, self.told = [], 0, []
        self.end_ns = 300_000_000_000

    def stop(self) -> None:
        self.stops.append(self.second)

    def looked(self, missed, certain_in_s) -> None:
        self.told.append((missed, certain_in_s))


def watched(load, limit_ms, seconds=320, seed=8):
    """A run of a load that may end by its looks: its record, and what happened."""
    [(trial, _)] = stored(load, seconds, 1, seed, limit_ms)
    trial = planned(trial, duration="auto")
    ending, accumulator = Ending(), Accumulator()
    looks = Looks(replace(trial, state="running", measured_ns=None), ending)
    for interval in intervals_of(load, seconds, seed, limit_ms):
        accumulator.add(interval)
        ending.second = interval.second
        looks.after(interval.second, accumulator, ending)
        if ending.stops:
            break
    # The load goes on for a moment, and one of its last transactions hangs and fails.
    second, late_ns = accumulator.ended_ns // 1_000_000_000, 3_000_000_000
    hung = Tally(second, 0, due=1, failed={"57014": 1})
    last = Interval(second + 3, ended_ns=accumulator.ended_ns + late_ns, in_flight_ns=late_ns)
    accumulator.add(replace(last, tallies=(hung,)))
    ended_ns = looks.measured_ns(300_000_000_000, accumulator.ended_ns)
    return replace(trial, measured_ns=ended_ns), accumulator, ending


@pytest.mark.parametrize(
    ("factor", "verdict", "ended_s"), [(4.0, "pass", 30), (0.5, "fail", 30), (1.02, "unknown", 300)]
)
def test_a_run_ends_at_the_look_that_decides_and_keeps_its_interval(factor, verdict, ended_s):
    load = QUEUES[2]
    limit_ms = truth(load, 300).limit_ms * factor
    trial, accumulator, ending = watched(load, limit_ms)
    assert trial.measured_ns == ended_s * 1_000_000_000
    assert ending.stops == [ended_s - 1 + math.ceil(limit_ms / 1e3)], "once, and all is known"
    found = so_far(replace(trial, state="running", measured_ns=None), accumulator, ended_s)
    decided, later = found.share(ended_s), summarize(trial, accumulator)
    assert (goal.verdict(decided, 0.05), later.missed) == (verdict, decided)
    assert summarize(trial, accumulator).counts == later.counts, "the same once more"
    assert later.counts.due == found.due
    told = message("run-stopped", ran_s=ended_s, level=stopping.level(ended_s))
    assert ("stopped", told) in section(trial, later, whole=True).parts[0].facts
    unseen = finding("maintenance-unseen", ended_s=float(ended_s))
    assert (unseen in later.validity.findings) == (ended_s < 300)
    assert not [f for f in later.validity.findings if f.name == "counts-disagree"]
    assert ending.told[-1][1] == (5 if verdict != "unknown" else None)


@given(st.integers(0, 300), st.integers(20, 900), st.sampled_from([0.01, 0.05, 0.3]))
def test_an_advised_length_decides_four_times_in_five(missed, due, allowed):
    p = min(missed, due) / due
    needed = would_decide(proportion(min(missed, due), due), 60, allowed)
    if needed is None or needed < 66.1:
        return

    def power(n: int) -> float:
        ends = [sure(proportion(k, n)) for k in range(n + 1)]
        decides = [each.high <= allowed or each.low > allowed for each in ends]
        return float(scipy.stats.binom(n, p).pmf(np.arange(n + 1)) @ decides)

    n = math.ceil(1.02 * due * needed / 60)
    assert power(n) >= 0.74, "0.8, less what whole numbers may cost"
    assert power(n // 2) < 0.74


def test_what_is_close_or_certain_has_no_advice_and_certainty_comes_at_a_look():
    assert would_decide(proportion(61, 1204), 300, 0.05, ran_s=300) is None
    assert would_decide(proportion(1, 1204), 300, 0.05, ran_s=300) is None
    assert certain_in(Missed(0, 400, INDEPENDENT, 50), 50, 0.05) == 10
    assert certain_in(Missed(20, 400, INDEPENDENT, 50), 50, 0.05) is None
    assert certain_in(Missed(0, 0, INDEPENDENT, 0), 0, 0.05) is None


@pytest.mark.parametrize("runs", seeds(40, 400))
def test_runs_on_the_threshold_are_seldom_decided(runs):
    """At most 5%, with three standard errors. Eight intervals of 95% would decide 20%."""
    said = sum((bench.batch(load, runs, 2)[0].said for load in QUEUES), Counter())
    wrong = sum(n for (verdict, _), n in said.items() if verdict != "unknown")
    assert said.total() == 3 * runs
    assert wrong <= 0.05 * 3 * runs + 3 * math.sqrt(0.05 * 0.95 * 3 * runs)
