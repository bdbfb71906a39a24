"""What is said of a command: numbers, sentences, tables and bars; and nothing that is not known."""

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import bulk
from pgpaces.analysis.digest import digest
from pgpaces.analysis.summary import summarize
from pgpaces.answers import bulk as words
from pgpaces.answers.run import section
from pgpaces.answers.sweep import page
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.answers.sweep.screen import chart
from pgpaces.core.errors import PlanError
from pgpaces.core.findings import Finding
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import times_of, values_at_ranks
from pgpaces.show import data, html, markdown, terminal
from pgpaces.spec.design import Cell, Design, Experiment
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.result import Place
from pgpaces.spec.workload import Command, of_command
from pgpaces.trial.monitors import loaded
from pgpaces.trial.request import check_command
from tests.errors import raises
from tests.unit import faces
from tests.unit.trials import SECOND_NS, planned, trial

HOUR_NS = 3600 * SECOND_NS
LEVELS = ("15", "18")
SLOW_FAST = {"15": [10.0, 10.2, 9.8], "18": [5.0, 5.1, 4.9]}
SCRIPT = {"name": "psql", "weight": 1, "commands": [], "kind": "command", "text": "psql -f x"}


def command_trial(took_s, seen=None, failed=None, **changes):
    """A trial of executions that took so long, one after the other."""
    intervals, now_ns = [], 0
    for took in took_s:
        ns = round(took * SECOND_NS)
        second, now_ns = now_ns // SECOND_NS, now_ns + ns
        measured = times_of([ns])
        tally = Tally(second, 0, 1, 1, latency=measured, lag=times_of([0]), service=measured)
        intervals.append(Interval(now_ns // SECOND_NS, (tally,), in_flight_ns=ns, ended_ns=now_ns))
    for state, count in (failed or {}).items():
        tally = Tally(now_ns // SECOND_NS, 0, count, failed={state: count})
        words = ((state, "psql: error: <b>no</b>\x1b[31m such file"),)
        second = now_ns // SECOND_NS + 1
        intervals.append(Interval(second, (tally,), messages=words, ended_ns=now_ns))
    plan = {"model": "closed"}
    values = {
        "plan": {**plan, "transactions": max(1, len(took_s))},
        "workload": {"name": "load", "scale": 1, "scripts": [SCRIPT]},
        "measured_ns": now_ns,
        "intervals": tuple(intervals),
        "findings": (Finding("command-work", seen or {}),),
    }
    return trial([], **(values | changes))


def told(made):
    """The result of the command, and its speeds, as names and values that are known."""
    command = bulk.of(made, summarize(made))
    speeds = {name: each.values for name, each in words.speeds(command)}
    return words.result(command).name, words.result(command).values, speeds


@pytest.mark.parametrize(
    ("took", "seen", "name", "known", "speeds"),
    [
        ([2.0], {}, "command-ran", {"each_s": 2.0, "ci": None}, {}),
        ([2.0], {"rows": 0.0, "wal_bytes": 0.0}, "command-ran", {},
         {"WAL": {"speed": 0.0, "each": None}}),
        ([2.0], {"rows": 1.0}, "command-loaded", {"rows": 1.0, "rows_s": 0.5}, {}),
        ([2.0], {"rows": 1000.0, "wal_bytes": 41_000.0}, "command-loaded", {"rows_s": 500.0},
         {"WAL": {"speed": 20_500.0, "each": 41.0}}),
        # Student's t with two degrees of freedom: 4.303 x 0.4 / sqrt(3) = 0.994
        ([7.0, 7.4, 7.8], {"rows": 2_400_000.0, "input_bytes": 100e6}, "command-loaded",
         {"rows": 800_000.0, "done": 3, "ci": (6.406, 8.394)}, {"input": {"speed": 13.51e6}}),
        # What the warm-up loaded is shared out with its executions.
        ([2.0], {"rows": 300.0, "executions": 3, "spent_s": 6.0}, "command-loaded",
         {"rows": 100.0, "rows_s": 50.0}, {}),
        # One was cut.
        ([2.0], {"rows": 300.0, "wal_bytes": 1e6, "input_bytes": 1e6, "broken": 1}, "command-ran",
         {}, {"input": {"speed": 500e3}}),
    ],
)  # fmt: skip
def test_what_is_known_of_a_load_is_told(took, seen, name, known, speeds):
    found, values, fast = told(command_trial(took, seen))
    assert found == name
    assert {key: values[key] for key in known} == {
        key: pytest.approx(value, rel=1e-3) if value else value for key, value in known.items()
    }
    assert fast.keys() == speeds.keys()
    for key, one in speeds.items():
        close = {n: each and pytest.approx(each, rel=1e-3) for n, each in one.items()}
        assert {n: fast[key][n] for n in one} == close


def test_where_one_failed_no_rows_a_second_are_claimed():
    made = command_trial([2.0, 2.0], SEEN, {"exit 1": 1})
    assert told(made)[:2] == ("command-lost", {"lost": 1, "due": 3, "ends": ["exit 1"]})
    found = bulk.of(made, summarize(made))
    assert all(bulk.number(found, name) is None for name in bulk.NUMBERS)


def test_with_a_limit_the_usual_verdict_is_there_too():
    made = planned(command_trial([22.1], SEEN), limit_ns=30 * SECOND_NS)
    top = section(made, summarize(made)).headline
    assert (top.word, top.mark) == ("UNKNOWN", "unknown")
    assert top.text.startswith("0.0% ")
    assert "2,400,000 rows" in printed(made)


def test_what_a_command_said_is_shown_harmless():
    text = printed(command_trial([], failed={"exit 1": 1}))
    assert "did not succeed: exit 1" in text
    assert "<b>no</b>" in text
    assert "\x1b" not in text


SEEN = {"rows": 2_400_000.0, "input_bytes": 404_000_000.0, "wal_bytes": 910_000_000.0}


def printed(made):
    return faces.shown(section(made, summarize(made)), 200, whole=True)


def test_a_command_has_no_clients_that_come_after_one_another():
    once = TrialPlan(Load("closed"), duration_ns=None, transactions=1)
    check_command(of_command(Command(("psql",))), once)
    with raises(PlanError, "command-runs-alone", option="--start-every"):
        check_command(of_command(Command(("psql",))), replace(once, start_every_ns=SECOND_NS))


@pytest.mark.parametrize(
    ("before", "behind", "executions", "rows"),
    [
        ({1: 50.0}, {1: 350.0}, 3, 300.0),  # TRUNCATE resets no counter
        ({}, {7: 100.0}, 1, 100.0),
        ({1: 50.0}, {7: 100.0}, 1, 100.0),
        ({}, {9: 100.0}, 3, None),  # DROP and CREATE by each: two tables are gone
        ({1: 50.0}, {1: 350.0, 9: 0.0}, 3, 300.0),
    ],
)
def test_rows_of_tables_that_each_execution_makes_anew_are_not_known(
    before, behind, executions, rows
):
    assert loaded(before, behind, executions) == rows


@given(st.lists(st.integers(1, 40 * HOUR_NS), min_size=1, max_size=30))
def test_a_quantile_beyond_an_hour_is_right_or_unknown_and_never_too_small(values):
    found = values_at_ranks(times_of(values), range(1, len(values) + 1))
    for true, seen in zip(sorted(values), found, strict=True):
        if seen is None:
            assert true >= HOUR_NS
        else:
            assert seen == pytest.approx(true, rel=0.002)


def test_a_load_of_hours_is_told_exactly():
    made = command_trial([2 * 3600.0, 3 * 3600.0], {"rows": 36e6})
    summary = summarize(made)
    found = bulk.of(made, summary)
    assert found.seconds.value == pytest.approx(9000)
    assert found.longest_s == pytest.approx(10800)
    assert summary.latency.p99.value == pytest.approx(10_800_000)
    assert math.isinf(summary.latency.p50.value)
    assert found.median_s is None
    assert told(made)[1]["rows"] == 18_000_000


def sweep(took, rows):
    """A page of trials with one execution each."""
    found = []
    start = datetime(2026, 11, 1, tzinfo=UTC)
    for level, values in took.items():
        cell = Cell((("server", level),))
        for block, seconds in enumerate(values, 1):
            seen = {"rows": rows[level], "wal_bytes": rows[level] * 100}
            made = command_trial(
                [seconds] if seconds else [],
                seen,
                None if seconds else {"exit 2": 1},
                id=f"{level}-{block}",
                place=Place("E", cell.key, {"server": level}, block),
                started_at=start + timedelta(seconds=len(found)),
            )
            found.append(digest(made))
    design = Design({"server": LEVELS}, trials=3)
    about = page.About(start, "0", id="E")
    return page.gather(found, about, Experiment("loads", "bulk-load", design))


@pytest.mark.parametrize(
    ("slow", "fast", "rows", "said"),
    [
        (SLOW_FAST["15"], SLOW_FAST["18"], 1e6,
         ["fastest: server=18: 5 s (95% CI 4.75–5.25 s), 200,",
          "slowest: server=15: 10 s (95% CI 9.5–10.5 s), 100,"]),
        (SLOW_FAST["15"], SLOW_FAST["18"], 4e6,
         ["fastest: server=15:", "by the time per row"]),
        ([0.0, 0.0, 0.0], SLOW_FAST["18"], 1e6,
         ["failed: 3 of 6 executions; first failure: exit 2: psql"]),
    ],
)  # fmt: skip
def test_a_sweep_says_which_is_fastest_and_which_is_slowest(slow, fast, rows, said):
    shown = sweep({"15": slow, "18": fast}, {"15": rows, "18": 1e6})
    top = report_of(shown).top
    everything = " ".join([top.headline.text, *(f"{name}: {text}" for name, text in top.facts)])
    assert [text for text in said if text not in everything] == []
    for word in ("hold", "break", "latency limit", "missed"):
        assert word not in everything
    assert "<b>no</b>" not in html.html(report_of(shown))


def test_every_form_of_the_report_has_seconds_and_rows():
    shown = sweep(SLOW_FAST, dict.fromkeys(LEVELS, 1e6))
    found = report_of(shown)
    for text in (html.html(found), markdown.markdown(found), terminal.terminal(found, 120)):
        assert "rows/s" in text
        assert "199,9" in text or "200,0" in text
        assert "verdict" not in text
    document = json.loads(data.json(found))
    assert document["value"]["cells"][1]["trials"][0]["bulk"]["rows"] == 1e6
    assert len({tuple(row) for row in document["rows"]}) == 1, "the same columns in all rows"
    seconds = [row for row in document["rows"] if row["metric"] == "seconds"]
    of_cells = [row["value"] for row in seconds if row["run"] is None]
    assert of_cells == pytest.approx([10.0, 5.0])
    [figure] = chart(shown)
    assert figure.name == "rows-s"
    assert [len([row for row in figure.data if name in row]) for name in ("high", "trial")] == [
        2,
        6,
    ]
