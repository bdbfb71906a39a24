"""A comparison as a section: what its table and charts show, with and without a noise floor."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.compare import ComparisonGoal, Pair, compare_pairs
from pgpaces.answers.compare import findings_of_trials, section
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.core.findings import finding
from pgpaces.show import draw, effect_text, render
from pgpaces.show.charts import DARK, LIGHT, PAGE
from pgpaces.show.terminal import terminal
from pgpaces.spec.result import Estimate
from tests.unit.comparisons import side
from tests.unit.reports import NASTY, whole_page
from tests.unit.trials import planned

PAIRS = tuple(
    Pair(n, side(100 + n, mean=20), side((110 + 2 * n) * (1 + n % 2 / 50), mean=18.0 + n / 20))
    for n in range(1, 9)
)
SAME = tuple(Pair(n, side(100 + n), side(101 + n % 3), same=True) for n in range(9, 17))
GOAL = ComparisonGoal(secondary=("mean", "missed"))


def made(pairs=PAIRS, names=("old", "new")):
    return section(compare_pairs(pairs, GOAL), *names, ids=("01A", "01B"))


def places(figure, field):
    """The rows of a chart that have this field."""
    return [row for row in figure.data if field in row]


def test_the_chart_shows_effects_and_a_noise_floor():
    [without] = made().figures
    beside = made((*PAIRS, *SAME)).figures[0]
    assert [row[0] for row in without.rows] == ["throughput", "mean latency"]
    assert [row[0] for row in beside.rows] == ["throughput", "A with itself", "mean latency"]
    [band] = places(without, "from")
    assert (band["from"], band["to"]) == pytest.approx((1 / 1.02, 1.02)), "what does not matter"


def test_throughput_that_was_planned_is_said_to_decide_nothing():
    digests = whole_page().digests
    assert {digest.trial.plan.load.model for digest in digests} == {"open"}
    told = finding("throughput-is-planned")
    assert [*findings_of_trials("throughput", digests, (), left_out=0)] == [told]
    assert [*findings_of_trials("p95", digests, (), left_out=0)] == []
    free = planned(digests[0].trial, model="closed", policy="run")
    closed = [replace(digests[0], trial=free)]
    assert not [*findings_of_trials("throughput", closed, (), left_out=0)]


def test_nothing_that_can_be_drawn_is_no_chart():
    found = section(compare_pairs((), ComparisonGoal()), "old", "new", ids=())
    assert found.figures == ()
    assert found.tables == ()
    assert found.headline.mark == "unknown"


def test_a_metric_of_which_a_trial_has_no_number_says_nothing_of_itself():
    sides = (side(10, p99=5), side(10, p99=math.inf))
    assert compare.own_estimate(sides, "p99") is None
    assert compare.own_estimate((), "throughput") is None
    assert compare.own_estimate(sides[:1], "p99") == Estimate.alone(pytest.approx(5), 1)


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=9))
@settings(max_examples=40, deadline=None)
def test_the_ratio_of_what_both_say_alone_is_that_of_their_pairs(rates):
    pairs = [Pair(n, side(rate), side(2 * rate)) for n, rate in enumerate(rates)]
    a, b = (compare.own_estimate([each], "throughput") for each in (pairs[0].a, pairs[0].b))
    sides = [p.a for p in pairs], [p.b for p in pairs]
    own = [compare.own_estimate(each, "throughput") for each in sides]
    assert a is not None
    assert b is not None
    assert own[1].value / own[0].value == pytest.approx(2)
    assert own[0].low <= own[0].value <= own[0].high


@pytest.mark.parametrize(
    ("metric", "estimate", "expected"),
    [
        ("throughput", Estimate(1.174, 1.162, 1.185, 8), ("+17%", "+16 to +19%")),
        ("throughput", Estimate(3.1, 0.9, 10.0, 8), ("3.1 times", "0.9 to 10 times")),
        ("missed", Estimate(-0.021, -0.03, 0.001, 8), ("−2.1 points", "−3 to +0.1 points")),
        ("mean", Estimate.alone(0.5, 1), ("−50%", "–")),
    ],
)
def test_an_effect_fits_into_a_cell(metric, estimate, expected):
    assert effect_text.texts(metric, estimate) == expected


@pytest.mark.parametrize("look", [LIGHT, DARK, PAGE])
@pytest.mark.usefixtures("drawn")
def test_all_charts_can_be_drawn(look):
    for figure in made((*PAIRS, *SAME)).figures:
        assert draw.picture(figure, "svg", look).startswith(b"<svg")


def test_names_of_others_do_nothing_in_any_form():
    page = replace(whole_page(), sections=(made(names=(NASTY, NASTY)),))
    html = render.render(report_of(page), "html").decode()
    assert "<script>" not in html
    assert "\x1b" not in terminal(report_of(page))
    assert "<script>" not in render.render(report_of(page), "md").decode()
    found = json.loads(render.render(report_of(page), "json"))
    assert found["sections"]["comparison"]["trials"] == ["01A", "01B"]
