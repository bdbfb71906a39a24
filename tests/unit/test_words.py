"""The answer in words, for each case that there is: as a person would say it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis import crossing, differences, goal
from pgpaces.analysis.cells import Row
from pgpaces.analysis.compare import ComparisonGoal, Pair, Verdict, compare_pairs, compare_trials
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.stats import proportion
from pgpaces.analysis.trend import trend
from pgpaces.answers import compare as comparing
from pgpaces.answers import trend as trends
from pgpaces.answers.sweep import screen
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.core.findings import Finding, finding, length
from pgpaces.spec.design import Ask, Cell, Factor
from pgpaces.spec.result import Counts
from tests.unit.comparisons import MISSED, STEADY, check, runs, shares, side, verdict, with_noise
from tests.unit.experiments import WORKERS, made
from tests.unit.trials import changed

TRIAL = made(Ask(Cell(()), 1), 10)
SHARES = {"h": (0, 300), "b": (90, 300), "?": (18, 300), "+": (12, 300)}


def row(said: str, **levels: str) -> Row:
    """A cell of two trials of 10 s: passes (h), fails (b), is unknown (?, +), was not run (-)."""
    cell = Cell(tuple((f"set.{n}" if n in "ab" else n, level) for n, level in levels.items()))
    if said == "-":
        return Row(cell)
    hits, due = SHARES[said]
    counts = Counts(due, due - hits, hits)
    missed = proportion(hits, due)
    return Row(cell, (TRIAL, TRIAL), sound=True, counts=counts, estimates={"missed": missed})


def page_of(rows: list[Row], **changes: Any) -> Page:
    names = list(dict.fromkeys(name for each in rows for name, _ in each.cell.levels))
    levels = {n: dict.fromkeys(crossing.level_of(each, n) for each in rows) for n in names}
    factors = tuple(Factor(name, tuple(found)) for name, found in levels.items() if len(found) > 1)
    main = crossing.main_factor(factors)
    about = About(datetime(2026, 11, 1, tzinfo=UTC), "1")
    limits = ("500 ms",)
    return Page("", "", about, factors, main, tuple(rows), 0.05, limits, *limits, (), **changes)


def found(rows: list[Row], **changes: Any) -> dict[str, Finding]:
    return {each.name: each for each in screen.findings(page_of(rows, **changes))}


@pytest.mark.parametrize(
    ("said", "word", "mark", "text"),
    [
        ("hh?b", "SWEEP", "", "cells: 2 pass, 1 fail, 1 unknown"),
        ("hh", "SWEEP", "pass", "cells: 2 pass, 0 fail, 0 unknown"),
        ("bb-", "SWEEP", "fail", "cells: 0 pass, 2 fail, 0 unknown"),
        ("?+", "SWEEP", "unknown", "cells: 0 pass, 0 fail, 2 unknown"),
        ("h", "PASS", "pass", "0.0% (0.0 to 1.3) of 300 requests missed the 500 ms limit"),
        ("--", "SWEEP", "unknown", "no trial has run yet"),
    ],
)
def test_the_headline_counts_the_verdicts_of_the_cells(said, word, mark, text):
    rows = [row(each, clients=str(2**n)) for n, each in enumerate(said)]
    top = screen.headline(page_of(rows))
    assert (top.word, top.mark, top.text) == (word, mark, text)


def test_a_load_that_passes_above_one_that_fails_is_a_finding_of_its_line():
    rows = [row(each, clients=str(2**n), a=a)
            for a, said in (("x", "hbh"), ("y", "hhb")) for n, each in enumerate(said)]  # fmt: skip
    assert found(rows)["not-monotonic"] == finding("not-monotonic", "a=x")


def of_run(id_: str, allowed: float | None) -> Digest:
    """A run that belongs to no experiment."""
    of = TRIAL.trial
    return replace(TRIAL, trial=changed(of, id=id_, place=None, plan={"missed": allowed}))


def test_runs_are_judged_by_the_share_that_they_allow():
    about = About(datetime(2026, 11, 1, tzinfo=UTC), "1")
    strict, usual = of_run("R1", 0.01), of_run("R2", None)
    assert gather([strict], about).missed_max == 0.01
    both = gather([strict, usual], about)
    assert both.missed_max == 0.01
    assert finding("goals-differ", shares=["1%", "5%"], least="1%") in screen.findings(both)


def test_the_time_that_would_decide_is_longer_than_the_time_so_far():
    """And it is that of the verdict of the same run."""
    base = row("?")
    shares = [proportion(0, due) for due in (60, 70)]
    needs = [goal.needed_s(missed, 20, 0.05) or 0 for missed in shares]
    rows = [
        replace(base, cell=Cell((("clients", str(n)),)), estimates={"missed": m})
        for n, m in enumerate(shares)
    ]
    assert min(needs) > 20
    told = found(rows)["more-times-decide"].values
    assert told == {"cells": 2, "least": length(min(needs)), "most": length(max(needs))}
    one = found(rows[:1])["more-time-decides"].values
    assert one == {"cells": 1, "time": length(needs[0])}


def test_a_share_on_the_threshold_is_no_question_of_time():
    base = row("?")
    on = Row(
        base.cell,
        base.trials,
        sound=True,
        counts=base.counts,
        estimates={"missed": proportion(15, 300)},
    )
    assert found([on])["on-the-threshold"].values == {"cells": 1, "allowed_percent": 5.0}


@pytest.mark.parametrize(
    ("state", "invalid", "reasons"),
    [("interrupted", False, ["interrupted"]), ("finished", True, None)],
)
def test_a_cell_without_a_valid_trial_is_a_finding_with_the_reasons(state, invalid, reasons):
    one = made(Ask(Cell(()), 1), 10, invalid)
    one = replace(one, trial=replace(one.trial, state=state))
    page = gather([one], About(datetime(2026, 11, 1, tzinfo=UTC), "1"))
    [told] = [each for each in screen.findings(page) if each.name == "no-valid-trial"]
    assert told.values["reasons"] == (reasons or list(one.summary.validity.reasons))


def test_cells_with_one_trial_and_trials_that_did_not_run_are_findings():
    rows = [replace(row("h", clients=n), trials=(TRIAL,)) for n in ("1", "2")]
    assert found(rows)["one-trial-each"].values == {"cells": 2, "total": 2}
    told = found(rows, missing=3, failures=(("clients=4, trial 1", "no disk"),))
    assert told["trials-missing"].values == {"count": 3}
    assert told["trial-not-started"].values["error"] == "no disk"
    left = replace(rows[0], left_out=(made(Ask(Cell(()), 1), 10, True),))
    assert found([left])["trials-left-out"].values == {"count": 1}
    running = replace(
        page_of(rows, missing=3), about=About(datetime.now(UTC), "1", state="running")
    )
    assert finding("trials-to-run", count=3) in screen.findings(running)


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
    "shares": compare_pairs(shares([50] * 8, [30, 31, 29, 30] * 2), MISSED),
    "no number": compare_pairs(FINITE, ComparisonGoal("p99", same=0)),
    "a secondary metric": compare_pairs(FINITE, ComparisonGoal("mean", ("throughput",), same=0)),
    "apart in time": compare_trials([side(100)] * 3, [side(103)] * 3, ComparisonGoal(),
                                    basis="apart"),
    "mixed": compare_trials(*APART, ComparisonGoal(), basis="trials"),
    "against earlier runs": check([side(80)], GROUPS, ComparisonGoal()),
    "against them, unknown": check([side(99)], GROUPS, ComparisonGoal()),
    "without any": check([side(99)], [], ComparisonGoal()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("better", []), ("same", []), ("noise floor", []), ("against earlier runs", []),
        ("wide", ["more-pairs-decide", "detectable-difference"]),
        ("one pair", ["too-few-to-compare"]),
        ("no pairs", ["too-few-to-compare"]),
        ("without any", ["too-few-to-compare"]),
        ("it may hide in the noise", ["noise-hides-difference"]),
        ("equal things differ", ["equal-sides-differ"]),
        ("no number", ["metric-without-value"]),
        ("apart in time", ["trials-apart-in-time", "few-pairs"]),
        ("mixed", ["few-pairs"]),
        ("against them, unknown", ["more-runs-tell-more", "detectable-difference"]),
    ],
)  # fmt: skip
def test_a_comparison_without_a_verdict_says_why_and_what_would_decide(name, names):
    section = comparing.section(FOUND[name], "A", "B", ids=())
    assert [each.name for each in comparing.findings(FOUND[name])] == names
    main = section.main
    assert main.startswith(f"{FOUND[name].outcome}: B vs. A, ")
    assert "e-" not in main, "no more digits than anybody believes"


@pytest.mark.parametrize(
    ("why", "running", "name"),
    [
        ("look", True, "next-look"),
        ("look", False, "ended-before-look"),
        ("nothing new", False, "new-run-unusable"),
    ],
)
def test_a_comparison_that_has_not_come_to_its_end_says_so(why, running, name):
    found = replace(FOUND["wide"], why=why)
    assert [each.name for each in comparing.findings(found, running=running)] == [name]
    wide = replace(FOUND["wide"], needed=None, detectable=None)
    assert [each.name for each in comparing.findings(wide)] == ["too-wide-to-decide"]


def test_every_outcome_and_every_reason_has_words():
    assert {found.outcome for found in FOUND.values()} == {"better", "worse", "same", "unknown"}
    reasons = {found.why for found in FOUND.values()}
    assert reasons == {"", "few", "unbounded", "noise", "biased", "wide", "apart"}
    assert {found.basis for found in FOUND.values()} | {"blocks"} == set(comparing.BASIS)


def test_a_change_of_throughput_is_better_where_it_rises_and_of_latency_where_it_falls():
    logs = np.random.default_rng(3).normal(0, 0.01, 30)
    logs[10:20] += 0.3
    now = datetime.now(UTC)
    every = tuple(trends.TimedRun(r.name, r.estimate, r.name, now) for r in runs(logs))
    said = replace(trend(runs(logs)), left_out=("x",))
    for metric, told in (("throughput", "WORSE"), ("mean", "BETTER")):
        section = trends.section(trends.RunSeries("", metric, every, said))
        assert section.headline.word == told
        assert section.findings[0].name == "runs-without-value"
        changes = [text for name, text in section.parts[0].facts if name == "changes"]
        assert [text.split()[1][0] for text in changes] == ["−", "+"]


def loose(clients: str, workers: str = "0", block: int = 1) -> Digest:
    found = made(Ask(Cell((("clients", clients), (WORKERS, workers))), block), 30)
    trial = replace(found.trial, place=None, id=f"{clients}{workers}{block}")
    return replace(found, trial=trial)


def test_what_differs_is_a_factor_and_what_goes_along_with_it_is_none():
    factors, found = differences.place_runs([loose("4"), loose("1"), loose("4", block=2)], "")
    assert [(factor.name, factor.levels) for factor in factors] == [("clients", ("1", "4"))]
    both, _ = differences.place_runs([loose("1"), loose("4"), loose("1", "2"), loose("4", "2")], "")
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
        runs.append(
            replace(run, trial=changed(run.trial, id=f"4{name}", plan={"settings": settings}))
        )
    page = gather(runs, About(datetime.now(UTC), "0"))
    assert [factor.levels for factor in page.factors] == [("not set", "", "a")]
    assert [crossing.shown_level(row, "set.search_path") for row in page.rows] == [
        "not set", "''", "a",
    ]  # fmt: skip
