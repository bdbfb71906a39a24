"""The answer in words, for each case that there is: as a person would say it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import crossing, goal, grouping, unpaired
from pgpaces.analysis.cells import Row
from pgpaces.analysis.compare import ComparisonGoal, Pair, Verdict, judge
from pgpaces.analysis.crossing import Line
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.stats import proportion
from pgpaces.analysis.trend import check, trend
from pgpaces.answers import trend as trend_words
from pgpaces.answers.again import length
from pgpaces.answers.compare import words as verdicts
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.show.section import Sentence
from pgpaces.spec.design import Cell, Factor, Slot
from pgpaces.spec.result import Counts
from tests.unit.comparisons import MISSED, STEADY, runs, shares, verdict, with_noise
from tests.unit.drifting import side
from tests.unit.experiments import WORKERS, made

TRIAL = made(Slot(1, Cell(())), 10)
SHARES = {"h": (0, 300), "b": (90, 300), "?": (18, 300), "+": (12, 300)}


def row(said: str, **levels: str) -> Row:
    """A cell of two trials of 10 s: passes (h), fails (b), is unknown (?, +), was not run (-)."""
    cell = Cell(tuple((f"set.{n}" if n in "ab" else n, level) for n, level in levels.items()))
    if said == "-":
        return Row(cell)
    hits, due = SHARES[said]
    counts = Counts(due, due - hits, hits)
    missed = proportion(hits, due)
    return Row(cell, (TRIAL, TRIAL), sound=True, counts=counts, missed=missed)


def answer(rows: list[Row], **changes: Any) -> list[str]:
    names = list(dict.fromkeys(name for each in rows for name, _ in each.cell.levels))
    levels = {n: dict.fromkeys(crossing.level_of(each, n) for each in rows) for n in names}
    factors = tuple(Factor(name, tuple(found)) for name, found in levels.items() if len(found) > 1)
    main = crossing.main_factor(factors)
    lines = crossing.lines(rows, main.name) if main else (Line((), tuple(rows)),)
    about = About(datetime(2026, 11, 1, tzinfo=UTC), "1")
    page = Page("", "", about, factors, main, tuple(rows), lines, 0.05, (), None, (), **changes)
    return [each.text for each in words.answer(page)]


def line(said: str, **others: str) -> list[Row]:
    return [row(each, clients=str(2**n), **others) for n, each in enumerate(said)]


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("hh?b", "Pass up to 2 clients; fail from 8 clients; unknown: 4 clients."),
        ("hhh", "Pass up to 4 clients (highest tested)."),
        ("h+?", "Pass up to 1 client; unknown: 2 and 4 clients."),
        ("?hb", "Pass up to 2 clients; fail from 4 clients; unknown: 1 client."),
        ("bb", "Fail from 1 client (lowest tested)."),
        ("?+?", "Unknown: 1, 2 and 4 clients."),
        ("h-", "Pass up to 1 client; unknown: 2 clients."),
    ],
)
def test_one_factor(said, first):
    assert answer(line(said))[0] == first


@pytest.mark.parametrize(
    ("said", "levels", "first", "second"),
    [
        ("hb", "xy", "each a (x and y): pass up to 1", "Does not move the threshold: a."),
        ("??", "xyz", "each a (x, y and z): unknown", "Unknown whether it moves the threshold: a"),
        ("hh", "xy", "each a (x and y): pass up to 2", "No level of a failed"),
    ],
)
def test_two_factors_that_say_the_same_are_said_once(said, levels, first, second):
    told = answer([each for level in levels for each in line(said, a=level)])
    assert (told[0].startswith(first), told[1].startswith(second)) == (True, True)


def test_three_factors_are_said_by_what_the_same_answers_share():
    found = [
        each
        for a, said in (("x", "hb"), ("y", "hh"))
        for server in ("15", "18")
        for each in line(said, a=a, server=server)
    ]
    said = answer(found)
    assert said[0].startswith("a = x, any server: pass up to 1 client")
    assert said[1].startswith("a = y, any server: pass up to 2 clients")
    assert said[2].startswith("a moves the threshold: at 2 clients, y passes")
    assert sum(each.startswith("a = ") for each in said) == 2


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("hh", ["Pass: 2 of 2 cells."]),
        ("hb", ["Pass: 1 of 2 cells (a = 0).", "Fail: 1 of 2 cells (a = 1)."]),
        ("?hh", ["Pass: 2 of 3 cells (a = 1; a = 2).", "Unknown: 1 of 3 cells (a = 0)."]),
        ("??", ["Unknown: 2 of 2 cells."]),
    ],
)
def test_a_factor_that_is_no_load(said, first):
    found = [row(each, a=str(n)) for n, each in enumerate(said)]
    assert answer(found)[: len(first)] == first


@pytest.mark.parametrize(
    ("said", "cut", "hangs"),
    [
        ("h", Counts(100, 20, 80), "the one cell: with the warm-up that was cut 32% missed"),
        ("h", Counts(100, 99, 1), None),
        ("b", Counts(2000, 2000), "the one cell: with the warm-up that was cut 2.1% missed"),
        ("?", Counts(100, 0, 100), None),
    ],
)
def test_a_verdict_that_depends_on_cut_says_so(said, cut, hangs):
    """Two trials, so twice what was cut in each."""
    known = row(said)
    trial = replace(TRIAL, summary=replace(TRIAL.summary, left_out=cut))
    hanging = [text for text in answer([replace(known, trials=(trial, trial))]) if "hangs" in text]
    assert hanging == ([] if hangs is None else [f"{hangs}, so the verdict hangs on the cut."])


def of_run(id_: str, allowed: float | None) -> Digest:
    """A run that belongs to no experiment."""
    of = TRIAL.trial
    plan = of.plan.but(missed_max=allowed)
    return replace(TRIAL, trial=replace(of, id=id_, place=None, plan=plan))


def test_runs_are_judged_by_the_share_that_they_allow():
    about = About(datetime(2026, 11, 1, tzinfo=UTC), "1")
    strict, usual = of_run("R1", 0.01), of_run("R2", None)
    assert gather([strict], about).missed_max == 0.01
    both = gather([strict, usual], about)
    assert both.missed_max == 0.01
    said = " ".join(each.text for each in words.answer(both))
    assert "The runs allow 1% and 5%: all are judged by the least." in said


def test_the_time_that_would_decide_is_longer_than_the_time_so_far():
    """And it is that of the verdict of the same run, rounded up as an option is."""
    base = row("?")
    for due in (60, 70, 72):
        missed = proportion(0, due)
        close = Row(base.cell, base.trials, sound=True, counts=base.counts, missed=missed)
        (text,) = [each for each in answer([close]) if "would decide" in each]
        count, unit = length(goal.needed_s(missed, 20, 0.05) or 0)
        assert f"would decide: about {count} {unit} a cell" in text
        assert (unit, count > 20) == ("s", True)


@given(st.integers(1, 2000), st.integers(1, 3000), st.floats(0.01, 0.5))
def test_as_many_trials_as_are_said_to_be_needed_decide(hits, due, most):
    """Where the share stays as it is, so many times the trials put the interval on one side."""
    hits = min(hits, due - 1)
    base = row("?")
    found = Row(base.cell, base.trials, sound=True, missed=proportion(hits, due))
    need = crossing.needed_s(found, most)
    if need is None or math.isinf(need):
        return
    times = need / 20
    assert times > 1.099, "never what was not enough"
    if times < 1.101:
        return
    share = hits / due
    for factor, known in ((1.02, True), (0.98, False)):
        n = due * times * factor
        at = proportion(round(share * n * 1e6), round(n * 1e6), 1e6)
        assert at is not None
        if (found.missed and found.missed.low < most < found.missed.high) and n > due:
            assert (at.high <= most or at.low > most) is known


def test_a_share_on_the_threshold_is_said_to_be_no_question_of_time():
    base = row("?")
    on = Row(base.cell, base.trials, sound=True, counts=base.counts, missed=proportion(15, 300))
    said = answer([on])
    assert said[1].startswith("Cells very near 5% missed: 1. No reasonable time would decide")


@pytest.mark.parametrize(
    ("state", "invalid", "text"),
    [
        ("interrupted", False, "No complete trial: the numbers are shown, marked, and nothing is"
                               " concluded from them. Why: interrupted."),
        ("finished", True, "No valid trial: the numbers are shown, marked, and nothing is"
                           " concluded from them."),
    ],
)  # fmt: skip
def test_a_cell_without_a_sound_trial_says_whether_it_is_incomplete_or_not_valid(
    state, invalid, text
):
    one = made(Slot(1, Cell(())), 10, invalid)
    one = replace(one, trial=replace(one.trial, state=state))
    page = gather([one], About(datetime(2026, 11, 1, tzinfo=UTC), "1"))
    assert any(each.text.startswith(text) for each in page.answer)


FINITE = [
    Pair(n, side(1, p99=10, mean=5), side(1, p99=math.inf, mean=5 + x))
    for n, x in enumerate(STEADY)
]
GROUPS = [side(100 + n) for n in range(6)]
APART = ([side(99), side(101)], [side(199), side(201)])
FOUND: dict[str, Verdict] = {
    "better": verdict([0.05 + x for x in STEADY]),
    "worse": verdict([-0.05 + x for x in STEADY]),
    "times as high": verdict([1.5 + x for x in STEADY]),
    "same": verdict(STEADY),
    "wide": verdict([60 * x for x in STEADY]),
    "one pair": verdict([0.1]),
    "no pairs": verdict([]),
    "noise floor": with_noise(STEADY, STEADY),
    "it may hide in the noise": with_noise(STEADY, [30 * x for x in STEADY]),
    "equal things differ": with_noise([0.041 + x for x in STEADY], [0.04 + x for x in STEADY]),
    "shares": judge(shares([50] * 8, [30, 31, 29, 30] * 2), MISSED),
    "no number": judge(FINITE, ComparisonGoal("p99", same=0)),
    "a secondary metric": judge(FINITE, ComparisonGoal("mean", ("throughput",), same=0)),
    "apart in time": unpaired.unpaired([side(100)] * 3, [side(103)] * 3, ComparisonGoal(),
                                       mixed=False),
    "mixed": unpaired.unpaired(*APART, ComparisonGoal(), mixed=True),
    "against earlier runs": check([side(80)], GROUPS, ComparisonGoal()),
    "against them, unknown": check([side(99)], GROUPS, ComparisonGoal()),
    "without any": check([side(99)], [], ComparisonGoal()),
}  # fmt: skip


def text(said: Sequence[Sentence]) -> str:
    return " ".join(each.text for each in said)


@pytest.mark.parametrize("name", FOUND)
def test_a_verdict_is_told_with_what_to_do(name):
    said = verdicts.comparison(FOUND[name])
    told = text(said)
    assert said[0].weight == "main"
    assert "no difference" not in told.lower()
    assert "e-" not in told.split("p =")[0], "no more digits than anybody believes"
    if FOUND[name].outcome == "unknown":
        assert said[-1].text != said[0].text, "the last one says what to do"


def test_every_outcome_and_every_reason_has_words():
    outcomes = {found.outcome for found in FOUND.values()}
    assert outcomes == {"better", "worse", "same", "unknown"}
    reasons = {found.why for found in FOUND.values()}
    assert reasons == {"", "few", "unbounded", "noise", "biased", "wide", "apart"}
    assert {found.basis for found in FOUND.values()} | {"blocks"} == set(verdicts.BASIS)


def test_a_change_of_throughput_is_better_where_it_rises_and_of_latency_where_it_falls():
    logs = np.random.default_rng(3).normal(0, 0.01, 30)
    logs[10:20] += 0.3
    ways = (": worse.", ": better.")
    for metric, told in (("throughput", ways), ("mean", ways[::-1])):
        newest, before, *_ = trend_words.sentences(trend(runs(logs)), metric)
        assert (newest.text.endswith(told[0]), before.text.endswith(told[1])) == (True, True)


def loose(clients: str, workers: str = "0", block: int = 1) -> Digest:
    found = made(Slot(block, Cell((("clients", clients), (WORKERS, workers)))), 30)
    trial = replace(found.trial, place=None, id=f"{clients}{workers}{block}")
    return replace(found, trial=trial)


def test_what_differs_is_a_factor_and_what_goes_along_with_it_is_none():
    factors, found = grouping.place([loose("4"), loose("1"), loose("4", block=2)], "")
    assert [(factor.name, factor.levels) for factor in factors] == [("clients", ("1", "4"))]
    both, _ = grouping.place([loose("1"), loose("4"), loose("1", "2"), loose("4", "2")], "")
    assert [factor.name for factor in both] == ["clients", WORKERS]
    places = [each.trial.place for each in found if each.trial.place]
    assert [(place.levels["clients"], place.block) for place in places] == [
        ("4", 1),
        ("1", 1),
        ("4", 2),
    ]


def test_of_what_a_run_lacks_it_is_said_and_an_empty_setting_is_not_taken_for_it():
    bare = {"": {}, "empty": {"search_path": ""}, "a": {"search_path": "a"}}
    runs = []
    for name, settings in bare.items():
        run = loose("4")
        plan = run.trial.plan.but(settings=settings)
        runs.append(replace(run, trial=replace(run.trial, id=f"4{name}", plan=plan)))
    page = gather(runs, About(datetime.now(UTC), "0"))
    assert [factor.levels for factor in page.factors] == [("not set", "", "a")]
    assert [crossing.shown_level(row, "set.search_path") for row in page.rows] == [
        "not set", "''", "a",
    ]  # fmt: skip
