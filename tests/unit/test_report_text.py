"""The answer in a terminal: the verdict, then whether it is valid, then numbers and intervals."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pgpaces.answers.summary import as_json, summarize
from pgpaces.cli.runs import _cells
from pgpaces.observe.server import Cost, _more, _told
from pgpaces.questions.run import answer
from pgpaces.record import Interval, StatementTally, Tally
from pgpaces.report.numbers import interval, milliseconds
from pgpaces.result import Estimate, Finding, Trial
from pgpaces.store import TrialRow

from .trials import SECOND_NS, second, times, trial

PLAN = {
    "limit_ns": 50_000_000,
    "policy": "run",
    "model": "open",
    "load_text": "open, 40/s",
    "clients": 8,
    "protocol": "simple",
    "warmup_ns": 6 * SECOND_NS,
    "seed": 1,
}
SCRIPTS = [
    {"name": name, "weight": 1, "commands": [[1, f"SELECT * FROM {name} WHERE id = :id", True]]}
    for name in ("orders_of_a_customer", "one_order")
]


def run(**changes: Any) -> Trial:
    rng = np.random.default_rng(1)
    intervals = []
    for n in range(60):
        parts = [second(n, rng.exponential(10, 20).tolist(), script) for script in (0, 1)]
        lost = Tally(n, 1, due=1, skipped=1) if n % 10 == 0 else Tally(n, 1)
        statements = tuple(StatementTally(s, 0, 0, times(rng.exponential(9, 20))) for s in (0, 1))
        intervals.append(
            replace(
                parts[0],
                tallies=(*parts[0].tallies, *parts[1].tallies, lost),
                statements=statements,
                in_flight_ns=sum(p.in_flight_ns for p in parts),
                dispatch=times(rng.exponential(0.02, 20)),
            )
        )
    about = {"plan": PLAN, "workload": {"name": "shop", "scale": 3, "scripts": SCRIPTS}}
    values = {
        "intervals": tuple(intervals),
        "server": {"version": "18.1"},
        "measured_ns": 60 * SECOND_NS,
    }
    return trial([], **(about | values | changes))


def printed(shown: Trial, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for part in answer(shown, summarize(shown), width):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_quantile_among_what_was_skipped_is_above_the_limit_of_its_script() -> None:
    skipped = tuple(Tally(0, n, due=5, on_time=1, skipped=4, latency=times([1])) for n in (0, 1))
    about = {"intervals": (Interval(0, tallies=skipped),), "measured_ns": SECOND_NS}
    lines = printed(run(plan=PLAN | {"limits": [["one_order", 20_000_000]]}, **about), 120)
    rows = {line.split()[0]: line for line in lines if line.startswith(("latency ", "o"))}
    assert "> 50" in rows["orders_of_a_customer"]
    assert "> 20" in rows["one_order"]
    assert "> 20" in rows["latency"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_an_answer_fits_its_terminal_with_every_interval_whole(width: int) -> None:
    lines = printed(run(), width)
    assert max(map(len, lines)) <= width
    table = lines[next(n for n, line in enumerate(lines) if line.startswith("ms  ")) :]
    assert not any("…" in line for line in table if line.startswith(("latency", "lag", " ")))
    [head, _, _values, ends, *_] = table
    assert head.split()[-1] == "max"
    # The maximum is one that was seen: it has no interval.
    estimates = len(head.split()) - 2
    assert len([e for e in ends.replace("not estimable", "-").split() if e != "over"]) == estimates


def test_wider_terminals_show_more_numbers() -> None:
    heads = [
        next(line for line in printed(run(), width) if line.startswith("ms  ")).split()
        for width in (60, 80, 120)
    ]
    assert heads == [
        ["ms", "p50", "p99", "max"],
        ["ms", "p50", "p95", "p99", "p99.9", "max"],
        ["ms", "mean", "p50", "p95", "p99", "p99.9", "max"],
    ]


def test_whether_it_is_valid_stands_below_the_verdict() -> None:
    lines = printed(run(), 200)
    assert lines[0].startswith("missed ")
    assert lines[1] == "valid"
    hot = Finding("temperature", "invalid", "the CPU was throttled", 12.0, "s")
    dusty = Finding("fan", "warning", "the fan is loud")
    lines = printed(run(findings=(dusty, hot)), 200)
    assert lines[0].startswith("missed ")
    assert lines[1:3] == ["not valid: the CPU was throttled", "warning: the fan is loud"]


def test_the_rate_and_the_lag_have_intervals() -> None:
    lines = printed(run(), 200)
    assert "rate 40/s (40 to 40) succeeded" in lines
    assert any("p99 dispatch lag 0.0" in line and " ms (0.0" in line for line in lines)


def test_a_cut_is_part_of_the_warm_up_that_is_told() -> None:
    intervals = [second(n, [90.0 if n < 10 else 10.0]) for n in range(80)]
    script = {"name": "shop", "scale": 1, "scripts": SCRIPTS[:1]}
    shown = run(intervals=tuple(intervals), measured_ns=80 * SECOND_NS, workload=script)
    lines = printed(shown, 200)
    assert any(
        "70s after 16s warm-up" in " ".join(line.split()) or "1.167min" in line for line in lines
    )
    assert any("the first 10 s are left out" in line for line in lines)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(12.3, 11.8, 12.9, 1000), "11.8-12.9"),
        (Estimate(12.3, 0.0, 12.9, 300), "under 12.9"),
        (Estimate(12.3, 11.8, math.inf, 1000), "over 11.8"),
        (Estimate(math.inf, 11.8, math.inf, 1000), "over 11.8"),
        (Estimate(math.inf, math.inf, math.inf, 1000), ""),
        (Estimate.alone(12.3, 7), "not estimable"),
    ],
)
def test_an_interval_is_told_in_few_words(estimate: Estimate, text: str) -> None:
    assert interval(estimate, lambda ms: milliseconds(ms, "> 500")) == text


def test_the_json_has_no_infinity_and_says_what_is_not_estimable() -> None:
    tally = Tally(0, 0, due=100, on_time=90, failed={"40001": 10}, latency=times([10.0] * 90))
    values = as_json(summarize(trial([tally])))
    nothing = {"value": None, "low": None, "high": None, "n": 100, "estimable": False}
    assert values["latency"]["p99"] == nothing
    above = values["latency"]["p95"]
    assert (above["value"], above["high"], above["estimable"]) == (None, None, True)
    assert above["low"] == pytest.approx(10, rel=1e-3)
    assert values["latency"]["p50"]["estimable"]
    assert values["latency"]["p50"]["value"] == pytest.approx(10, rel=1e-3)
    assert set(values["missed"]) == {"value", "low", "high", "n", "estimable"}
    assert values["validity"]["state"] == "valid"
    assert values["rate"]["value"] == 9.0
    assert values["counts"]["missed"] == 10


def test_an_interrupted_trial_is_still_shown_with_a_warning() -> None:
    assert "warning: interrupted: this is what there is" in printed(run(state="interrupted"), 200)
    empty = run(intervals=(Interval(0),), state="finished")
    assert printed(empty, 200)[0] == "FAIL: nothing was due: the trial was too short for its rate"


def row(**summary: Any) -> TrialRow:
    brief = {"due": 60, "missed_share": [0.01, 0.0, 0.03], "p99_ms": 12.3, **summary}
    return TrialRow("X" * 26, "finished", datetime.now(UTC), "shop", "open, 1/s", "18", brief)


def test_a_list_of_runs_marks_what_is_not_valid() -> None:
    marked = _cells(row(validity="invalid", p99_low_ms=11.8, p99_high_ms=12.9))
    assert (marked["state"], marked["p99 ms"]) == ("not valid", "12.3 (11.8-12.9)")
    good = _cells(row(validity="valid", p99_low_ms=None, p99_high_ms=None))
    assert (good["state"], good["p99 ms"]) == ("finished", "12.3")
    older = _cells(row())
    assert (older["state"], older["p99 ms"]) == ("finished", "12.3")


def test_notes_that_every_run_has_are_counted_behind_the_tables() -> None:
    usual = (
        "host: looking at it took 0.1 % of one core here",
        *_told(Cost(0.3, 0.2)),
        *(note.replace("sensor", "sensor of standby1", 1) for note in _told(Cost(0.4, None))),
        *_more({"track_io_timing = on (times of reading and writing)": None}),
    )
    own = (*_told(Cost(4.1, 0.0)), *_more({"GRANT pg_read_all_stats TO its role (what)": None}))
    grew = Finding("store", "info", "the store lies on the disk that is measured", 3.0, "KiB")
    lines = printed(run(notes=(*usual, *own, "said by somebody"), findings=(grew,)), 400)
    notes = [line for line in lines if line.startswith("note: ")]
    assert notes[:3] == [*(f"note: {text}" for text in own), "note: said by somebody"]
    assert notes[-1].startswith("note: 5 more say what looking and storing took")
    assert lines.index(notes[0]) > max(n for n, line in enumerate(lines) if "shop" in line)
    assert not any(text in line for line in lines for text in (*usual, grew.text))


def test_long_ends_take_a_column_and_not_the_names_of_the_rows() -> None:
    rng = np.random.default_rng(2)
    tiny = tuple(
        replace(second(n, (rng.exponential(0.0003, 300) + 0.0012).tolist()), second=n)
        for n in range(60)
    )
    shown = run(intervals=tiny)
    for width in (60, 80):
        lines = printed(shown, width)
        assert {"latency", "lag", "service"} <= {line.split(" ")[0] for line in lines}
        assert max(map(len, lines)) <= width
