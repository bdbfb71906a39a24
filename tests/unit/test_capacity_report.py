"""The answer of a search in every form: what is said, what a table and a chart show, JSON."""

import json
import shlex
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis.capacity.answer import Equivalents, highest
from pgpaces.analysis.capacity.search import trial_label
from pgpaces.answers import capacity
from pgpaces.answers import why as attribution
from pgpaces.answers.sweep import lookup
from pgpaces.answers.sweep.page import About, gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.core.findings import finding
from pgpaces.core.messages import message
from pgpaces.show import draw
from pgpaces.show.charts import DARK, LIGHT, specification
from pgpaces.show.html import html
from pgpaces.show.markdown import markdown
from pgpaces.show.terminal import command, terminal
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import Cell, Experiment
from tests.unit.searches import GOAL, ONE, START, searched, slope

PRICED = {
    "host": {
        "hostname": "pi4",
        "costs": [Costs(price_per_month=6.0, currency="EUR").plain()],
    }
}
MEMORY = "set.work_mem"


def section(found):
    return capacity.section(found, {})


def said(found):
    shown = section(found)
    parts = (shown, *shown.parts)
    details = [f"{name}: {text}" for part in parts for name, text in part.facts]
    return "\n".join([*shown.sentences, *details])


@cache
def one():
    return searched(slope(17.5), replace(GOAL, soak_s=600), **PRICED)


@cache
def of_level(level, at, *, quick=False):
    cell = Cell(((MEMORY, level),))
    return searched(slope(at), replace(GOAL, quick=quick), cell, **PRICED)


def page(found):
    digests = [tell.digest for each in found for tell in each.tells]
    made = gather(digests, About(START, "0", chosen=True), Experiment("e", "w"))
    answer = section(found)
    return replace(made, first=answer, searched=True)


def test_what_is_proved_is_told_a_day_and_in_money():
    holds = one().answer(None)
    assert holds.equivalents == Equivalents(holds.passes, holds.passes, "EUR", 6.0)
    cost = message("equivalent-cost", currency="EUR", month=6.0)
    day = f"{86_400 * holds.passes / 1e6:.3g} million"
    assert message("equivalent-rate", day=day, cost=cost) in said([one()])


def test_users_with_a_pace_bring_their_rate():
    goal = replace(GOAL, load="users", start=4.0, lowest=1.0, quick=True)
    plan = {"model": "paced", "rate": 0.5, "clients": 8}
    found = searched(slope(34.5), goal, each=0.5, plan=plan).answer(None)
    assert found.equivalents.load == found.estimate.value, "the number of the headline"
    assert found.equivalents.rate == pytest.approx(0.5 * found.estimate.value, rel=0.05)


def test_a_search_that_has_not_ended_says_so():
    running = section([searched(slope(17.5), most=9)]).findings
    assert finding("search-running", cells=1) in running
    assert "search-running" not in said([one()])
    few = "the server has 96 free connections, 98 clients need as many"
    over = capacity.section([searched(slope(17.5), most=9)], {}, few)
    assert over.findings[0] == finding("search-stopped", error=few)
    assert "search-running" not in [each.name for each in over.findings]


def test_which_level_holds_most_is_known_where_intervals_do_not_overlap():
    low, high = of_level("4MB", 12), of_level("64MB", 17.5)
    known = section([low, high, of_level("1GB", 15)]).conclusion
    assert known.startswith("work_mem=64MB has the highest passing load: 17.")
    unknown = section([low, high, of_level("1GB", 17.5)]).conclusion
    assert unknown.endswith("but other cells may also pass at that load")


@pytest.mark.parametrize(
    ("state", "why"), [("finished", "too few"), ("interrupted", ""), ("running", "")]
)
def test_a_search_that_was_cut_short_did_not_end_where_a_trial_could_not_be_run(state, why):
    failures = (("cell", 1, "no route"), ("cell", 2, "too few"))
    about = About(datetime.now(UTC), "0", failures=failures, state=state)
    assert lookup.stopped(about) == why
    assert lookup.stopped(replace(about, failures=())) == ""
    assert said([searched(slope(17.5), most=0)]) == message("sweep-not-run")


def test_the_limit_of_short_trials_is_that_of_the_lowest_load_that_missed():
    trials = {}
    goal = replace(GOAL, start=400)
    found = searched(slope(17.5), goal, most=7, kept=lambda each: trials.setdefault(each.id, each))
    read = []

    def load(id_):
        read.append(id_)
        return trials[id_]

    attribution.limit(SimpleNamespace(load=load), found)
    lowest = min(each.load for _, each in found.trials if each.share > 0.2)
    [shown] = [point.load for digest, point in found.trials if digest.trial.id in read]
    assert shown <= lowest


BOUNDS = st.one_of(st.none(), st.floats(1, 100))


@given(st.lists(st.tuples(BOUNDS, BOUNDS), min_size=2, max_size=5))
def test_the_most_is_claimed_only_above_every_load_that_fails(ends):
    base = one().answer(None)
    cells = [
        replace(base, cell=str(n), passes=low, fails=None if high is None else (low or 0) + high)
        for n, (low, high) in enumerate(ends)
    ]
    most = highest(cells)
    if most is None:
        assert all(low is None for low, _ in ends)
        return
    best = next(each for each in cells if each.cell == most.cell)
    assert best.passes == max(each.passes or 0.0 for each in cells)
    others = [each.fails for each in cells if each is not best]
    clear = all(fails is not None and fails <= (best.passes or 0.0) for fails in others)
    assert most.certain is clear


def test_each_cell_has_a_chart_of_its_trials():
    found = [of_level("4MB", 12), of_level("64MB", 17.5)]
    keys = [figure.name for figure in section(found).figures]
    assert keys == ["capacity-trials-1", "capacity-trials-2"]
    [cells] = [each for each in section(found).tables if each.key == "capacity-cells"]
    assert [row[0].text for row in cells.rows] == ["4MB", "64MB"]


def test_the_page_has_every_trial_and_no_table_of_loads_as_cells():
    found = html(report_of(page([one()])))
    assert found.count('id="capacity"') == 1
    assert 'id="cells"' not in found
    assert one().tells[0].digest.trial.id[-8:] in found


@given(st.lists(st.text("ab -='\"|&", min_size=1, max_size=12), max_size=12), st.integers(30, 90))
def test_a_command_that_is_copied_of_a_narrow_terminal_is_the_same_command(words, width):
    asked = ["pgpaces", "run", *words]
    shown = command(shlex.join(asked), width)
    assert shlex.split(shown.replace("\\\n", "")) == asked
    assert all(each.endswith("\\") for each in shown.splitlines()[:-1])
    assert max(map(len, shown.splitlines())) <= max(
        width, 4 + max(map(len, map(shlex.quote, asked)))
    )


def test_what_others_wrote_does_nothing_in_any_form():
    evil = "<script>alert(1)</script>\x1b[31m"
    found = page([searched(slope(at), GOAL, Cell(((f"define.{evil}", level),)))
                  for at, level in ((12, evil), (17.5, "b"))])  # fmt: skip
    assert "<script>" not in html(report_of(found))
    assert "\x1b" not in terminal(report_of(found), 100)
    assert "<script>" not in markdown(report_of(found))
    for figure in section([one()]).figures:
        assert "expr" not in json.dumps(specification(figure, DARK))


@pytest.mark.usefixtures("drawn")
def test_charts_are_plain_values_and_can_be_drawn():
    found = [of_level("4MB", 12), searched(slope(1e6), replace(GOAL, highest=20), ONE)]
    for figure in (*section(found).figures, *section([of_level("4MB", 17.5, quick=True)]).figures):
        json.dumps(specification(figure, LIGHT), allow_nan=False)
        assert draw.inline(figure).startswith("<svg")
        assert all(len(row) == len(figure.columns) for row in figure.rows)


def dots(found):
    return [row for row in section([found]).figures[0].data if "value" in row]


def test_trials_that_are_not_valid_are_hollow_and_never_vanish():
    found = searched(slope(17.5), invalid=lambda load: "throttled" if 17 < load < 18 else "")
    hollow = [dot["x"] for dot in dots(found) if not dot["valid"]]
    assert hollow
    assert all(17 < load < 18 for load in hollow)


@pytest.mark.parametrize(
    ("levels", "name"),
    [
        ((("rate", "171/s"), ("role", "long")), "rate=171/s"),
        ((("set.work_mem", "4MB"), ("users", "8"), ("role", "short")), "set.work_mem=4MB, users=8"),
        ((("server", "18"), ("role", "preflight")), "server=18"),
        ((("role", "preflight"),), "clients without pauses"),
        ((("clients", "8"),), None),
        ((("clients", "8"), ("role", "again")), None),
    ],
)
def test_a_trial_of_a_search_is_called_by_its_load(levels, name):
    assert trial_label(Cell(levels)) == name
