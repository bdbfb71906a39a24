"""The answer in words, for each case that there is: as a person would say it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import crossing, goal
from pgpaces.analysis.cells import Row
from pgpaces.analysis.crossing import Line
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.replicates import Apart
from pgpaces.analysis.stats import proportion
from pgpaces.answers.again import length
from pgpaces.answers.sweep import words
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.spec.design import Cell, Factor, Slot
from pgpaces.spec.result import Counts, Estimate
from tests.unit.experiments import made

TRIAL = made(Slot(1, Cell(())), 10)
SHARES = {"h": (0, 300), "b": (90, 300), "?": (18, 300), "+": (12, 300)}


def row(said: str, **levels: str) -> Row:
    """A cell of two trials of 10 s: meets (h), misses (b), is unknown (?, +), was not run (-)."""
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
        ("hhbb", "It meets the limit up to 2 clients and misses it from 4 clients; unknown in"
                 " between."),
        ("hh?b", "It meets the limit up to 2 clients and misses it from 8 clients; unknown at 4"
                 " clients; most likely it is missed there."),
        ("hhh", "It meets the limit up to 4 clients, the most that was tried."),
        ("h??", "It meets the limit up to 1 client; unknown at 2 and 4 clients; most likely it is"
                " missed there."),
        ("h+?", "It meets the limit up to 1 client; unknown at 2 and 4 clients; most likely met at"
                 " 2 clients and missed at 4 clients."),
        ("?hb", "It meets the limit up to 2 clients and misses it from 4 clients; unknown in"
                " between; at less (1 client) the trials do not tell."),
        ("bb", "It misses the limit at 1 client already, the least that was tried."),
        ("??b", "It misses the limit from 4 clients; unknown at 1 and 2 clients; most likely it"
                " is missed there."),
        ("???", "Whether it meets the limit is unknown from 1 client to 4 clients; most likely it"
                " is missed there."),
        ("?+?", "Whether it meets the limit is unknown from 1 client to 4 clients."),
        ("h-", "It meets the limit up to 1 client; unknown at 2 clients."),
    ],
)  # fmt: skip
def test_one_factor(said: str, first: str) -> None:
    assert answer(line(said))[0] == first


def test_two_factors_that_say_the_same_are_said_once() -> None:
    said = answer([*line("hb", a="x"), *line("hb", a="y")])
    assert said[0].startswith("With either a (x or y) it meets the limit up to 1 client and misses")
    assert said[1].startswith("a is not seen to move the threshold")
    said = answer([*line("??", a="x"), *line("??", a="y"), *line("??", a="z")])
    assert said[0] == (
        "With each a (x, y and z) whether it meets the limit is unknown from 1 client to 2 clients;"
        " most likely it is missed there."
    )
    assert said[1] == "Whether a moves the threshold is unknown."


def test_where_nothing_broke_it_is_not_said_that_nothing_moves_the_break() -> None:
    said = answer([*line("hh", a="x"), *line("hh", a="y")])
    assert (
        said[0]
        == "With either a (x or y) it meets the limit up to 2 clients, the most that was tried."
    )
    assert said[1].startswith("No level of a missed the limit, so whether that moves")


def test_three_factors_are_said_by_what_the_same_answers_share() -> None:
    found = [
        each
        for a, said in (("x", "hb"), ("y", "hh"))
        for server in ("15", "18")
        for each in line(said, a=a, server=server)
    ]
    said = answer(found)
    assert said[0].startswith("With a = x, whichever server, it meets the limit up to 1 client")
    assert said[1].startswith("With a = y, whichever server, it meets the limit up to 2 clients")
    assert said[2].startswith("a moves the threshold: at 2 clients it is met with y")
    assert sum("a = " in each and each.startswith("With") for each in said) == 2


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("hh", ["Both cells meet the limit."]),
        ("hhh", ["All 3 cells meet the limit."]),
        ("hb", ["1 of 2 cells meets the limit (a = 0).",
                "1 of 2 cells misses the limit (a = 1)."]),
        ("?hh", ["2 of 3 cells meet the limit (a = 1; a = 2).",
                 "Whether 1 of 3 cells meets the limit is unknown (a = 0)."]),
        ("??", ["Whether any of the 2 cells meets the limit is unknown."]),
    ],
)  # fmt: skip
def test_a_factor_that_is_no_load(said: str, first: list[str]) -> None:
    found = [row(each, a=str(n)) for n, each in enumerate(said)]
    assert answer(found)[: len(first)] == first


@pytest.mark.parametrize(
    ("said", "first"),
    [("h", "It meets the limit: missed 0.0%"), ("b", "It misses the limit: missed 30.0%"),
     ("?", "Whether it meets the limit is unknown: missed 6.0%")],
)  # fmt: skip
def test_one_cell(said: str, first: str) -> None:
    assert answer([row(said)])[0].startswith(first)


@pytest.mark.parametrize(
    ("said", "cut", "hangs"),
    [
        ("h", Counts(100, 20, 80), "the one cell: with the warm-up that was cut 32% missed"),
        ("h", Counts(100, 99, 1), None),
        ("b", Counts(2000, 2000), "the one cell: with the warm-up that was cut 2.1% missed"),
        ("?", Counts(100, 0, 100), None),
    ],
)
def test_a_verdict_that_depends_on_cut_says_so(said: str, cut: Counts, hangs: str | None) -> None:
    """Two trials, so twice what was cut in each."""
    known = row(said)
    trial = replace(TRIAL, summary=replace(TRIAL.summary, left_out=cut))
    hanging = [text for text in answer([replace(known, trials=(trial, trial))]) if "hangs" in text]
    assert hanging == ([] if hangs is None else [f"{hangs}, so the verdict hangs on the cut."])


def test_a_sweep_of_loads_says_which_verdicts_depend_on_the_cut() -> None:
    trial = replace(TRIAL, summary=replace(TRIAL.summary, left_out=Counts(100, 20, 80)))
    met, *rest = line("hhb")
    said = answer([replace(met, trials=(trial, trial)), *rest])
    assert [text for text in said if "hangs" in text] == [
        "clients = 1: with the warm-up that was cut 32% missed, so the verdict hangs on the cut."
    ]


def of_run(id_: str, allowed: float | None) -> Digest:
    """A run that belongs to no experiment."""
    of = TRIAL.trial
    plan = of.plan.but(missed_max=allowed)
    return replace(TRIAL, trial=replace(of, id=id_, place=None, plan=plan))


def test_runs_are_judged_by_the_share_that_they_allow() -> None:
    about = About(datetime(2026, 11, 1, tzinfo=UTC), "1")
    strict, usual = of_run("R1", 0.01), of_run("R2", None)
    assert gather([strict], about).missed_max == 0.01
    both = gather([strict, usual], about)
    assert both.missed_max == 0.01
    said = " ".join(each.text for each in words.answer(both))
    assert "The runs allow 1% and 5%: all are judged by the least." in said


def test_what_would_decide_is_said_in_time_that_one_can_spend() -> None:
    (text,) = [each for each in answer(line("h?")) if "would decide" in each]
    assert text.startswith("Trials of 10 s are too short to tell: about 3")
    assert text.endswith("min of trials of that cell would decide, if shares stay as they are"
                         " (so far 20 s).")  # fmt: skip
    assert not [each for each in answer(line("hb")) if "would decide" in each]


def test_the_time_that_would_decide_is_longer_than_the_time_so_far() -> None:
    """And it is that of the verdict of the same run, rounded up as an option is."""
    base = row("?")
    for due in (60, 70, 72):
        missed = proportion(0, due)
        close = Row(base.cell, base.trials, sound=True, counts=base.counts, missed=missed)
        (text,) = [each for each in answer([close]) if "would decide" in each]
        count, unit = length(goal.needed_s(missed, 20, 0.05) or 0)
        assert f"about {count} {unit} of trials of it would decide" in text
        assert (unit, count > 20) == ("s", True)


@given(st.integers(1, 2000), st.integers(1, 3000), st.floats(0.01, 0.5))
def test_as_many_trials_as_are_said_to_be_needed_decide(hits: int, due: int, most: float) -> None:
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


def test_a_share_on_the_threshold_is_said_to_be_no_question_of_time() -> None:
    base = row("?")
    on = Row(base.cell, base.trials, sound=True, counts=base.counts, missed=proportion(15, 300))
    said = answer([on])
    assert said[1].startswith("It lies so close to 5% that no reasonable time would decide")


def test_of_two_machines_that_differ_one_sentence_is_said() -> None:
    ratio = Estimate(1.2, 1.1, 1.3, 8)
    other = Estimate(1 / 1.2, 1 / 1.3, 1 / 1.1, 8)
    pair = (Apart("pi-a", "pi4", ratio, True), Apart("pi-b", "pi4", other, True))
    said = [each for each in answer(line("hb"), apart=pair) if "stands apart" in each]
    assert said == [
        "pi-a stands apart from the rest of its kind (pi4): its mean service time differs from"
        " theirs by +20% (+10% to +30%)."
    ]


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
    state: str, invalid: bool, text: str
) -> None:
    one = made(Slot(1, Cell(())), 10, invalid)
    one = replace(one, trial=replace(one.trial, state=state))
    page = gather([one], About(datetime(2026, 11, 1, tzinfo=UTC), "1"))
    assert any(each.text.startswith(text) for each in page.answer)
