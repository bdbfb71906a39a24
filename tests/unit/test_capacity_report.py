"""The answer of a search in every form: what is said, what a table and a chart show, JSON."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import grouping
from pgpaces.analysis.capacity import value
from pgpaces.analysis.capacity.center import curve
from pgpaces.analysis.capacity.trials import CellSearch, label
from pgpaces.analysis.goal import Limit
from pgpaces.answers.capacity import section as capacity
from pgpaces.answers.sweep import adaptive
from pgpaces.answers.sweep.page import About, Page, gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.answers.why import lookup as attribution
from pgpaces.show import data, draw
from pgpaces.show.chart import Point
from pgpaces.show.charts import specification
from pgpaces.show.html import html
from pgpaces.show.markdown import markdown
from pgpaces.show.section import Section
from pgpaces.show.style import DARK, LIGHT
from pgpaces.show.terminal import command, terminal
from pgpaces.spec.costs import Costs
from pgpaces.spec.design import Cell, Design, Experiment
from pgpaces.spec.result import Estimate, Trial
from tests.unit.searches import GOAL, ONE, START, searched, slope

PRICED = {
    "host": {
        "hostname": "pi4",
        "costs": [Costs(price_per_month=6.0, currency="EUR").plain()],
    }
}
MEMORY = "set.work_mem"


def section(found: Sequence[CellSearch]) -> Section:
    return capacity.section(found, {})


def said(found: Sequence[CellSearch], weight: str = "") -> str:
    return "\n".join(s.text for s in section(found).sentences if weight in ("", s.weight))


@cache
def one() -> CellSearch:
    return searched(slope(17.5), replace(GOAL, soak_s=600), **PRICED)


@cache
def of_level(level: str, at: float, *, quick: bool = False) -> CellSearch:
    cell = Cell(((MEMORY, level),))
    return searched(slope(at), replace(GOAL, quick=quick), cell, **PRICED)


def page(found: Sequence[CellSearch]) -> Page:
    digests = [digest for each in found for digest in each.digests]
    design = grouping.as_chosen(Design(), digests)
    made = gather(digests, About(START, "0", chosen=True), Experiment("e", "w", design))
    answer = section(found)
    return replace(made, answer=answer.sentences, sections=(answer,), searched="rate")


# ---- one cell ----


def test_the_answer_says_what_is_proved_by_which_rule_and_what_the_soak_showed() -> None:
    first, second, *_ = section([one()]).sentences
    assert first.text.startswith("Meets it up to 17.")
    assert "unknown in between" in first.text
    assert second.text.startswith("It can hold 15.")
    assert {first.weight, second.weight} == {"main"}
    text = said([one()])
    assert "at most 5% of transactions miss the limit of 50ms." in text


def test_what_is_proved_is_told_in_queries_a_day_and_in_money() -> None:
    holds = value.of([one()], {}).cells[0]
    worth = holds.worth
    assert worth is not None
    assert worth.rate == holds.proved
    assert worth.queries_per_day == pytest.approx(7 * 86_400 * worth.rate, rel=1e-3)
    assert worth.per_million == pytest.approx(6.0 / (worth.rate * 730 * 3600 / 1e6))
    assert worth.users is None
    text = said([one()])
    assert f"{holds.proved:g}/s is {capacity.many(worth.per_day)} transactions, " in text
    assert "costs about 6 EUR a month, 72 a year" in text
    assert "EUR per million transactions." in text


def test_users_with_a_pace_are_users_and_have_a_price_each() -> None:
    goal = replace(GOAL, load="users", start=4.0, lowest=1.0)
    plan = {"model": "paced", "rate": 0.5, "clients": 8}
    found = searched(slope(34.5), goal, each=0.5, plan=plan, **PRICED)
    worth = value.of([found], {}).cells[0].worth
    assert worth is not None
    assert worth.users == found.capacity.proved
    assert worth.rate == pytest.approx(0.5 * worth.users, rel=0.05)
    assert worth.per_user == pytest.approx(6.0 / worth.users)
    assert "EUR per user a month" in said([found])


def test_clients_that_think_are_users_by_the_law_of_response_times() -> None:
    goal = replace(GOAL, load="clients", start=4.0, lowest=1.0)
    plan = {"model": "closed", "think_ns": 1_000_000_000}
    found = searched(slope(20.5), goal, each=0.95, plan=plan)
    worth = value.of([found], {}).cells[0].worth
    assert worth is not None
    assert worth.users == found.capacity.proved
    assert (worth.think_s, worth.rate) == (1.0, pytest.approx(0.95 * worth.users, rel=0.05))
    assert worth.response_s == pytest.approx(0.007, abs=0.005)
    assert "N = X (R + Z)" in said([found])


def test_clients_without_a_pause_are_nobodys_users() -> None:
    goal = replace(GOAL, load="clients", start=4.0, lowest=1.0)
    found = searched(slope(20.5), goal, plan={"model": "closed", "think_ns": 0})
    worth = value.of([found], {}).cells[0].worth
    assert worth is not None
    assert worth.users is None


def test_the_resource_that_was_the_limit_is_named_as_associated() -> None:
    limit = Limit("cpu", "the server's CPU", Estimate(0.87, 0.8, 0.9, 50), ("CPU was busy",))
    found = capacity.section([one()], {ONE.key: limit})
    text = " ".join(s.text for s in found.sentences)
    assert (
        "87.0% of the missed transactions are associated with the server's CPU: CPU was busy."
        in text
    )
    assert "limit" in found.tables[0].columns
    assert data.section(found)["value"]["cells"][0]["limit"]["name"] == "the server's CPU"


@settings(max_examples=6, deadline=None)
@given(st.floats(8, 60), st.floats(4, 20))
def test_the_band_of_the_curve_meets_the_threshold_at_what_is_proved_and_refuted(
    at: float, steepness: float
) -> None:
    found = searched(slope(at, steepness))
    proved, refuted = found.capacity.proved, found.capacity.refuted
    drawn = curve([point for _, point in found.trials], found.goal)
    assert proved is not None
    assert refuted is not None
    if found.capacity.flags:
        return  # widened beyond the curve
    assert all(each.low <= each.share <= each.high for each in drawn)
    for each in drawn:
        if abs(math.log(each.load / proved)) > 1e-3:
            assert (each.high > 0.05) is (each.load > proved)
        if abs(math.log(each.load / refuted)) > 1e-3:
            assert (each.low > 0.05) is (each.load > refuted)


# ---- what to mind ----


def noisy() -> Callable[[float], float]:
    """The speed differs from trial to trial by a tenth."""
    speeds = [0.88, 1.1, 0.93, 1.12, 1.0, 0.9, 1.08, 0.95]
    count = [0]

    def share(load: float) -> float:
        count[0] += 1
        return slope(17.5, 14)(load * speeds[count[0] % len(speeds)])

    return share


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda: searched(slope(1e6), replace(GOAL, highest=20)), "the capacity is above it"),
        (lambda: searched(slope(3, 4), replace(GOAL, lowest=5)), "the capacity is below it"),
        (
            lambda: searched(lambda _: 0.2, replace(GOAL, start=10, lowest=5)),
            "no load reaches this",
        ),
        (lambda: searched(noisy()), "The host is noisy"),
        (lambda: searched(slope(17.5), most=7), "8 are needed at least"),
        (
            lambda: searched(slope(17.5), invalid=lambda load: "throttled" if load > 16 else ""),
            "not valid and do not count: throttled",
        ),
    ],
)
def test_what_to_mind_is_a_warning_and_stands_in_the_table(
    found: Callable[[], CellSearch], words: str
) -> None:
    made = found()
    assert words in said([made], "warning")
    assert section([made]).tables[0].rows[0][-1].text != "-"


def test_a_search_that_has_not_ended_says_so() -> None:
    assert "The search has not ended" in said([searched(slope(17.5), most=9)], "warning")
    assert "has not ended" not in said([one()])
    few = "the server has 96 free connections, 98 clients need as many"
    over = capacity.section([searched(slope(17.5), most=9)], {}, few)
    warnings = [s.text for s in over.sentences if s.weight == "warning"]
    assert warnings[0] == f"More could not be run: {few}."
    assert not any("has not ended" in s.text for s in over.sentences)


@pytest.mark.parametrize(
    ("state", "why"), [("finished", "too few"), ("interrupted", ""), ("running", "")]
)
def test_a_search_that_was_cut_short_did_not_end_where_a_trial_could_not_be_run(
    state: str, why: str
) -> None:
    failures = (("cell", 1, "no route"), ("cell", 2, "too few"))
    about = About(datetime.now(UTC), "0", failures=failures, state=state)
    assert adaptive.stopped(about) == why
    assert adaptive.stopped(replace(about, failures=())) == ""
    assert said([searched(slope(17.5), most=0)]) == "Nothing was run yet, so nothing is known."


def test_a_quick_search_is_said_to_be_one_once() -> None:
    two = [of_level("4MB", 12, quick=True), of_level("64MB", 17.5, quick=True)]
    for found in (two[:1], two, [one()]):
        assert said(found).count("quick search") == found[0].goal.quick
        assert section(found).note.count("quick search") == found[0].goal.quick


def test_the_loads_of_a_quick_search_have_no_interval() -> None:
    for found, said_of in ((of_level("4MB", 17.5, quick=True), False), (one(), True)):
        [shown] = [each for each in section([found]).tables if each.key == "capacity-loads"]
        assert any(row[1].ends for row in shown.rows) is said_of
        assert ("By its own trials alone" in shown.note) is said_of


def test_the_limit_of_short_trials_is_that_of_the_lowest_load_that_missed() -> None:
    trials: dict[str, Trial] = {}
    goal = replace(GOAL, start=400)
    found = searched(slope(17.5), goal, most=7, kept=lambda each: trials.setdefault(each.id, each))
    read: list[str] = []

    def load(id_: str) -> Trial:
        read.append(id_)
        return trials[id_]

    attribution.limit(SimpleNamespace(load=load), found)  # type: ignore[arg-type]
    lowest = min(each.load for _, each in found.trials if each.share > 0.2)
    [shown] = [point.load for digest, point in found.trials if digest.trial.id in read]
    assert shown <= lowest


def test_the_table_says_of_a_soak_no_more_than_the_sentence() -> None:
    holds = value.of([one()], {}).cells[0]
    assert holds.soak is not None
    soak = replace(holds.soak, met=False, share=0.051, low=0.049)
    for low, mark in ((0.049, "unknown"), (0.0505, "misses")):
        of = replace(holds, soak=replace(soak, low=low))
        assert capacity._soak(of).mark == mark


# ---- several cells ----


def test_which_level_holds_most_is_known_where_intervals_do_not_overlap() -> None:
    found = [of_level("4MB", 12), of_level("64MB", 17.5), of_level("1GB", 15)]
    first = section(found).sentences[0]
    assert first.weight == "main"
    assert first.text.startswith("work_mem = 64MB meets it at the highest load, 17.")
    assert "which every other one misses" in first.text


def test_which_level_holds_most_is_not_known_where_they_overlap() -> None:
    text = said([of_level("4MB", 12), of_level("64MB", 17.5), of_level("1GB", 17.5)], "main")
    assert text.startswith("Which meets it at the highest load is unknown")
    assert "work_mem = 4MB" not in text


BOUNDS = st.one_of(st.none(), st.floats(1, 100))


@given(st.lists(st.tuples(BOUNDS, BOUNDS), min_size=2, max_size=5))
def test_the_most_is_claimed_only_above_every_refuted_load(
    ends: list[tuple[float | None, float | None]],
) -> None:
    base = value.of([one()], {}).cells[0]
    cells = [
        replace(base, cell=str(n), proved=low, refuted=None if high is None else (low or 0) + high)
        for n, (low, high) in enumerate(ends)
    ]
    most = value.most(cells)
    if most is None:
        assert all(low is None for low, _ in ends)
        return
    best = next(each for each in cells if each.cell == most.cell)
    assert best.proved == max(each.proved or 0.0 for each in cells)
    others = [each.refuted for each in cells if each is not best]
    clear = all(refuted is not None and refuted <= (best.proved or 0.0) for refuted in others)
    assert most.certain is clear


def test_one_chart_has_the_capacity_of_every_level_and_one_its_price() -> None:
    found = [of_level("4MB", 12), of_level("64MB", 17.5)]
    first, price, *each = section(found).figures
    assert first.key == "capacity-by-level"
    assert [row[0] for row in first.rows] == ["work_mem = 4MB", "work_mem = 64MB"]
    assert price.key == "capacity-price"
    assert [figure.key for figure in each] == ["capacity-trials-1", "capacity-trials-2"]
    unpriced = searched(slope(12), GOAL, Cell(((MEMORY, "4MB"),)))
    keys = [figure.key for figure in section([unpriced, found[1]]).figures]
    assert "capacity-price" not in keys


def test_of_two_factors_one_is_the_axis_and_the_other_the_color() -> None:
    found = [
        searched(slope(at), GOAL, Cell(((MEMORY, memory), ("server", server))))
        for memory, server, at in (("4MB", "15", 12), ("64MB", "15", 14), ("4MB", "18", 16),
                                   ("64MB", "18", 18))
    ]  # fmt: skip
    points = section(found).figures[0].charts[0].layers[0].points
    assert {(point.x, point.series) for point in points} == {
        ("4MB", "15"), ("64MB", "15"), ("4MB", "18"), ("64MB", "18"),
    }  # fmt: skip
    assert "With server = 15: work_mem = 64MB meets it at the highest load" in said(found)


def test_open_ends_are_triangles_and_never_bars() -> None:
    found = [
        of_level("4MB", 12),
        searched(slope(1e6), replace(GOAL, highest=20), Cell(((MEMORY, "1GB"),))),
    ]
    layers = section(found).figures[0].charts[0].layers
    up = [layer for layer in layers if layer.shape == "triangle-up"]
    assert [point.x for point in layers[0].points] == ["4MB"]
    assert [point.x for point in up[0].points] == ["1GB"]


# ---- forms ----


def test_json_has_plain_values_and_no_trials_seconds() -> None:
    shown = report_of(page([one(), of_level("4MB", 12)]))
    found = json.loads(data.json(shown))["sections"]["capacity"]
    cell = found["value"]["cells"][1]
    assert cell["levels"] == {MEMORY: "4MB"}
    assert cell["unit"] == "1/s"
    assert cell["proved"] < cell["estimate"]["value"] < cell["refuted"]
    assert cell["goal"]["missed_max"] == 0.05
    assert cell["flags"] == []
    assert set(cell["runs"]) <= set(found["trials"])
    assert len(json.dumps(found["value"])) < 20_000


def test_the_page_has_every_trial_and_no_table_of_loads_as_cells() -> None:
    found = html(report_of(page([one()])))
    assert found.count('id="capacity"') == 1
    assert "<summary>Every trial</summary>" in found
    assert "All cells" not in found
    assert one().digests[0].trial.id[-8:] in found


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_the_answer_and_no_roles(width: int) -> None:
    text = terminal(report_of(page([of_level("4MB", 12), of_level("64MB", 17.5)])), width)
    assert "Met and missed" in text
    assert "role" not in text
    assert "Every trial" not in text
    assert "█" not in text
    assert max(map(len, text.splitlines())) <= width


def test_an_empty_level_is_shown_as_one_that_is_two_quotes() -> None:
    def shown(level: str) -> str:
        found = [of_level("4MB", 12, quick=True), of_level(level, 17.5, quick=True)]
        report = report_of(page(found))
        charts = [specification(figure.charts, LIGHT) for figure in report.figures()]
        ids = {digest.trial.id[-8:] for digest in found[1].digests}
        return re.sub("|".join(ids), "RUN", markdown(report) + json.dumps(charts))

    assert shown("") == shown("''")


@given(st.lists(st.text("ab -='\"|&", min_size=1, max_size=12), max_size=12), st.integers(30, 90))
def test_a_command_that_is_copied_of_a_narrow_terminal_is_the_same_command(
    words: list[str], width: int
) -> None:
    asked = ["pgpaces", "run", *words]
    shown = command(shlex.join(asked), width)
    assert shlex.split(shown.replace("\\\n", "")) == asked
    assert all(each.endswith("\\") for each in shown.splitlines()[:-1])
    assert max(map(len, shown.splitlines())) <= max(
        width, 4 + max(map(len, map(shlex.quote, asked)))
    )


def test_a_narrow_terminal_leaves_out_what_sentences_say_and_cuts_no_number() -> None:
    limit = Limit("cpu", "the CPU of the server's machine", Estimate(0.9, 0.8, 0.95, 9), ())
    found = searched(noisy())
    made = page([found])
    answer = capacity.section([found], {ONE.key: limit})
    text = terminal(report_of(replace(made, sections=(replace(answer, sentences=()),))), 72)
    head = next(line for line in text.splitlines() if "misses from, 1/s" in line)
    assert "meets up to, 1/s" in head
    assert "limit" not in head
    assert "the one cell" in text


def test_what_others_wrote_does_nothing_in_any_form() -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    found = page([searched(slope(at), GOAL, Cell(((f"define.{evil}", level),)))
                  for at, level in ((12, evil), (17.5, "b"))])  # fmt: skip
    assert "<script>" not in html(report_of(found))
    assert "\x1b" not in terminal(report_of(found), 100)
    assert "<script>" not in markdown(report_of(found))
    for figure in section([one()]).figures:
        assert "expr" not in json.dumps(specification(figure.charts, DARK))


@pytest.mark.usefixtures("drawn")
def test_charts_are_plain_values_and_can_be_drawn() -> None:
    found = [of_level("4MB", 12), searched(slope(1e6), replace(GOAL, highest=20), ONE)]
    for figure in (*section(found).figures, *section([of_level("4MB", 17.5, quick=True)]).figures):
        json.dumps(specification(figure.charts, LIGHT), allow_nan=False)
        assert draw.inline(figure).startswith("<svg")
        assert all(len(row) == len(figure.columns) for row in figure.rows)


def dots(found: CellSearch) -> tuple[Point, ...]:
    layers = section([found]).figures[0].charts[0].layers
    return next(layer.points for layer in layers if layer.kind == "point")


def test_trials_that_are_not_valid_are_hollow_and_never_vanish() -> None:
    found = searched(slope(17.5), invalid=lambda load: "throttled" if 17 < load < 18 else "")
    hollow = [dot.x for dot in dots(found) if not dot.filled]
    assert hollow
    assert all(17 < load < 18 for load in hollow)
    assert {dot.series for dot in dots(one())} == {"short", "long", "soak"}


@pytest.mark.parametrize(
    ("levels", "name"),
    [
        ((("rate", "171/s"), ("role", "long")), "171/s"),
        ((("set.work_mem", "4MB"), ("users", "8"), ("role", "short")), "set.work_mem=4MB, 8 users"),
        ((("rate", "154/s"), ("role", "soak")), "soak at 154/s"),
        ((("server", "18"), ("role", "preflight")), "server=18, clients without a pause"),
        ((("clients", "8"),), None),
        ((("clients", "8"), ("role", "again")), None),
    ],
)
def test_a_trial_of_a_search_is_called_by_its_load(
    levels: tuple[tuple[str, str], ...], name: str | None
) -> None:
    assert label(Cell(levels)) == name
