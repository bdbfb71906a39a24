"""What is said of a command: numbers, sentences, tables and bars; and nothing that is not known."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import bulk
from pgpaces.analysis.accumulator import Accumulator
from pgpaces.analysis.digest import Digest, digest
from pgpaces.analysis.summary import summarize
from pgpaces.answers.bulk import words as said
from pgpaces.answers.run import section
from pgpaces.answers.sweep import charts, page
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.core.errors import PlanError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import times_of, values_at_ranks
from pgpaces.show import data, html, markdown, terminal
from pgpaces.spec.design import Cell, Design, Experiment, Factor
from pgpaces.spec.plan import Load, TrialPlan
from pgpaces.spec.result import Counts, Place, Trial
from pgpaces.spec.workload import Command, of_command
from pgpaces.trial.bulk import check, loaded
from tests.unit.trials import SECOND_NS, trial

HOUR_NS = 3600 * SECOND_NS
SCRIPT = {"name": "psql", "weight": 1, "commands": [], "kind": "command", "text": "psql -f x"}


def command_trial(
    took_s: list[float],
    seen: dict[str, float] | None = None,
    failed: dict[str, int] | None = None,
    **changes: Any,
) -> Trial:
    """A trial of executions that took so long, one after the other."""
    intervals = []
    now_ns = 0
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
    values: dict[str, Any] = {
        "plan": {
            **{"limit_ns": None, "policy": "run", "model": "closed", "transactions": len(took_s)},
            **{
                "warmup_ns": 0,
                "load_text": "closed",
                "clients": 1,
                "protocol": "simple",
                "seed": 1,
            },
        },
        "workload": {"name": "load", "scale": 1, "scripts": [SCRIPT]},
        "server": {"version": "18.6"},
        "measured_ns": now_ns,
        "intervals": tuple(intervals),
        "findings": tuple(bulk.findings(seen or {})),
    }
    return trial([], **(values | changes))


SEEN = {bulk.ROWS: 2_400_000.0, bulk.INPUT: 404_000_000.0, bulk.WAL: 910_000_000.0}


def told(made: Trial) -> str:
    found = bulk.of(made, summarize(made))
    assert found is not None
    return said.sentence(found)


def printed(made: Trial) -> str:
    from rich.console import Console

    console = Console(width=200, highlight=False)
    with console.capture() as text:
        for part in terminal.whole(section(made, summarize(made)), 200):
            console.print(part)
    return text.get()


def test_a_command_has_no_clients_that_come_after_one_another() -> None:
    once = TrialPlan(Load("closed"), duration_ns=None, transactions=1)
    check(of_command(Command(("psql",))), once)
    with pytest.raises(PlanError, match="one client"):
        check(of_command(Command(("psql",))), replace(once, start_every_ns=SECOND_NS))


def test_a_load_is_told_in_one_sentence() -> None:
    assert told(command_trial([22.1], SEEN)) == (
        "loaded 2,400,000 rows in 22.1 s: 108,597 rows/s, 18.3 MB/s of input, WAL 41.2 MB/s"
        " (2.25 B of WAL per byte of input)"
    )


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        ({}, "ran in 2 s"),
        ({bulk.ROWS: 0.0, bulk.WAL: 0.0}, "ran in 2 s: WAL 0 B/s"),
        ({bulk.ROWS: 1.0}, "loaded 1 row in 2 s: 0.5 rows/s"),
        (
            {bulk.ROWS: 1000.0, bulk.WAL: 41_000.0},
            "loaded 1,000 rows in 2 s: 500 rows/s, WAL 20.5 kB/s (41 B of WAL per row)",
        ),
    ],
)
def test_what_is_not_known_is_not_said(seen: dict[str, float], sentence: str) -> None:
    assert told(command_trial([2.0], seen)) == sentence


def test_a_row_that_took_long_is_told_without_an_exponent() -> None:
    assert "a row took 2,000,000 us" in printed(command_trial([2.0], {bulk.ROWS: 1.0}))


def test_of_several_executions_each_is_told_with_its_interval() -> None:
    found = told(command_trial([7.0, 7.4, 7.8], {bulk.ROWS: 2_400_000.0, bulk.INPUT: 100e6}))
    # Student's t with two degrees of freedom: 4.303 x 0.4 / sqrt(3) = 0.994
    assert found.startswith("loaded 800,000 rows 3 times in 7.4 s each (6.41 s to 8.39 s): ")
    assert "13.5 MB/s of input" in found


def test_where_one_failed_no_rows_a_second_are_claimed() -> None:
    made = command_trial([2.0, 2.0], SEEN, {"exit 1": 1})
    assert told(made) == (
        "1 of 3 executions failed (exit 1); 2 succeeded, in 2 s each (2 s to 2 s)"
    )
    found = bulk.of(made, summarize(made))
    assert found is not None
    assert all(bulk.number(found, name) is None for name in bulk.NUMBERS)


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
    before: dict[int, float], behind: dict[int, float], executions: int, rows: float | None
) -> None:
    assert loaded(before, behind, executions) == rows


def test_what_the_warm_up_loaded_is_shared_out_with_its_executions() -> None:
    seen = {bulk.ROWS: 300.0, bulk.RUNS: 3.0, bulk.SPENT: 6.0}
    assert told(command_trial([2.0], seen)) == "loaded 100 rows in 2 s: 50 rows/s"


def test_where_one_was_cut_only_what_is_known_of_the_others_is_said() -> None:
    seen = {bulk.ROWS: 300.0, bulk.WAL: 1e6, bulk.INPUT: 1e6, bulk.BROKEN: 1.0}
    assert told(command_trial([2.0], seen)) == "ran in 2 s: 500 kB/s of input"


def test_the_answer_of_a_command_says_nothing_of_steadiness_percentiles_and_clients() -> None:
    text = printed(command_trial([22.1], SEEN))
    assert text.startswith("loaded 2,400,000 rows")
    assert "once" in text
    for silly in ("steady", "p99", "missed", "clients", "protocol", "note: rows"):
        assert silly not in text


def test_with_a_limit_the_usual_verdict_is_there_too() -> None:
    made = command_trial([22.1], SEEN)
    plan = made.plan.but(limit_ns=30 * SECOND_NS)
    text = printed(replace(made, plan=plan))
    assert "0.0% missed" in text
    assert "limit 30s" in text
    assert "loaded 2,400,000 rows" in text


def test_what_a_command_said_is_shown_harmless() -> None:
    made = command_trial([], failed={"exit 1": 1})
    text = printed(made)
    assert "the command failed (exit 1)" in text
    assert "<b>no</b>" in text
    assert "\x1b" not in text


@given(st.lists(st.integers(1, 40 * HOUR_NS), min_size=1, max_size=30))
def test_a_quantile_beyond_an_hour_is_right_or_unknown_and_never_too_small(
    values: list[int],
) -> None:
    found = values_at_ranks(times_of(values), range(1, len(values) + 1))
    for true, seen in zip(sorted(values), found, strict=True):
        if seen is None:
            assert true >= HOUR_NS
        else:
            assert seen == pytest.approx(true, rel=0.002)


def test_a_load_of_hours_is_told_exactly() -> None:
    made = command_trial([2 * 3600.0, 3 * 3600.0], {bulk.ROWS: 36e6})
    summary = summarize(made)
    found = bulk.of(made, summary)
    assert found is not None
    assert found.seconds is not None
    assert found.seconds.value == pytest.approx(9000)
    assert found.longest_s == pytest.approx(10800)
    assert summary.latency.p99 is not None
    assert summary.latency.p99.value == pytest.approx(10_800_000)
    assert summary.latency.p50 is not None
    assert math.isinf(summary.latency.p50.value)
    assert found.median_s is None
    assert told(made).startswith("loaded 18,000,000 rows 2 times in 2 h 30 min each")


LEVELS = ("15", "18")


def experiment(**changes: Any) -> Experiment:
    design = Design((Factor("server", LEVELS),), {}, trials=3)
    return Experiment(**({"name": "loads", "workload": "bulk-load", "design": design} | changes))


def sweep(took: dict[str, list[float]], rows: dict[str, float]) -> page.Page:
    """A page of trials with one execution each."""
    found: list[Digest] = []
    start = datetime(2026, 11, 1, tzinfo=UTC)
    for level, values in took.items():
        cell = Cell((("server", level),))
        for block, seconds in enumerate(values, 1):
            seen = {bulk.ROWS: rows[level], bulk.WAL: rows[level] * 100}
            made = command_trial(
                [seconds] if seconds else [],
                seen,
                None if seconds else {"exit 2": 1},
                id=f"{level}-{block}",
                place=Place("E", cell.key, {"server": level}, block),
                started_at=start + timedelta(seconds=len(found)),
            )
            accumulator = Accumulator.of(made.intervals)
            found.append(digest(made, summarize(made, accumulator), accumulator))
    about = page.About(start, "0", id="E")
    return page.gather(found, about, experiment())


SLOW_FAST = {"15": [10.0, 10.2, 9.8], "18": [5.0, 5.1, 4.9]}


def test_a_sweep_says_which_is_fastest_and_by_how_much() -> None:
    shown = sweep(SLOW_FAST, dict.fromkeys(LEVELS, 1e6))
    texts = [each.text for each in shown.answer if each.weight == "main"]
    assert texts[0].startswith("Fastest: server = 18. It took 5 s (4.75 s to 5.25 s), 200,")
    assert texts[1].startswith("Slowest: server = 15, 2 times as long (1.81 to 2.21)")
    everything = " ".join(each.text for each in shown.answer)
    for word in ("hold", "break", "latency limit", "missed"):
        assert word not in everything


def test_inputs_of_different_size_are_compared_by_the_row() -> None:
    shown = sweep(SLOW_FAST, {"15": 4e6, "18": 1e6})
    texts = [each.text for each in shown.answer]
    assert texts[0].startswith("Fastest: server = 15.")
    assert any("by the time per row" in text for text in texts)


def test_cells_that_overlap_are_not_told_apart() -> None:
    shown = sweep({"15": [10.0, 14.0, 6.0], "18": [9.0, 13.0, 5.0]}, dict.fromkeys(LEVELS, 1e6))
    assert "the difference may be noise" in shown.answer[1].text


def test_where_the_fastest_may_have_taken_no_time_at_all_only_the_least_factor_is_said() -> None:
    """Of two executions, the first of them cold, the interval begins at 0."""
    shown = sweep({"15": [10.0, 10.4], "18": [0.8, 1.4]}, dict.fromkeys(LEVELS, 1e6))
    assert "times as long (over 3.9" in shown.answer[1].text


def test_a_cell_that_always_failed_is_shown_and_said() -> None:
    shown = sweep({"15": [0.0, 0.0, 0.0], "18": [5.0, 5.1, 4.9]}, dict.fromkeys(LEVELS, 1e6))
    texts = " ".join(each.text for each in shown.answer)
    assert "3 of 6 executions did not succeed. First failure: exit 2: psql" in texts
    assert "<b>no</b>" not in html.html(report_of(shown))
    rows = report_of(shown).records().rows
    assert {row["row"] for row in rows} == {"cell", "trial"}
    assert len({tuple(row) for row in rows}) == 1, "the same columns in all rows"


def test_the_page_has_bars_with_the_numbers_as_a_table() -> None:
    shown = sweep(SLOW_FAST, dict.fromkeys(LEVELS, 1e6))
    found = {figure.key: figure for figure in charts.overview(shown)}
    assert list(found) == ["rows-s", "seconds", "wal-row", "us-row"]
    assert found["seconds"].rows == (
        ("15", "10", "9.5–10.5", "3", "yes"),
        ("18", "5", "4.75–5.25", "3", "yes"),
    )
    [chart] = found["seconds"].charts
    [cells, ends, dots, _] = chart.layers
    assert [bar.x for bar in cells.points] == pytest.approx([10, 5])
    assert len(ends.points) == 2
    assert len(dots.points) == 6
    assert chart.title == ("server",), "above, where there is room"


def test_every_form_of_the_report_has_seconds_and_rows() -> None:
    shown = sweep(SLOW_FAST, dict.fromkeys(LEVELS, 1e6))
    found = report_of(shown)
    for text in (html.html(found), markdown.markdown(found), terminal.terminal(found, 120)):
        assert "rows/s" in text
        assert "199,9" in text or "200,0" in text
        assert "verdict" not in text
    cell = json.loads(data.json(report_of(shown)))["cells"][1]
    assert cell["bulk"]["seconds"]["value"] == pytest.approx(5)
    assert cell["trials"][0]["bulk"]["rows"] == 1e6
    rows = [row for row in report_of(shown).records().rows if row["row"] == "trial"]
    assert [row["seconds"] for row in rows][:1] == pytest.approx([10.0])


def test_a_load_of_scripts_is_no_command() -> None:
    made = trial([Tally(0, 0, 1, 1)])
    assert bulk.of(made, summarize(made)) is None
    assert not made.workload.about_command
    assert Counts(1, 1) == summarize(made).counts
