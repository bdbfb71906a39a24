"""The answer of a run in a terminal: one screen by default, every table behind it."""

import io
import math
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from pgpaces.analysis.digest import digest
from pgpaces.analysis.summary import summarize
from pgpaces.answers.run import section
from pgpaces.cli.runs import _line
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.show.number_text import interval, milliseconds
from pgpaces.show.terminal import brief, whole
from pgpaces.spec.result import Estimate, Trial
from pgpaces.store.listing import TrialRow

from .trials import SECOND_NS, second, times, trial

PLAN = {
    "limit_ns": 50_000_000,
    "rate": 40.0,
    "clients": 8,
    "warmup_ns": 6 * SECOND_NS,
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


def printed(shown: Trial, width: int, form: Any = whole) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for part in form(section(shown, summarize(shown), whole=form is whole), width):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_over_time_a_p95_ranks_over_all_that_was_due_as_that_of_the_run_does():
    failed = Tally(0, 0, due=4, failed={"22012": 4})

    def over_time(failing: range, **plan: Any) -> list[str]:
        shown = run(plan=PLAN | plan)
        intervals = tuple(
            replace(each, tallies=(*each.tallies, replace(failed, due_second=each.second)))
            if each.second in failing
            else each
            for each in shown.intervals
        )
        shown = replace(shown, intervals=intervals)
        found = digest(shown)
        page = section(shown, found.summary, found.series)
        return dict(page.facts)["over time"].split("  p95, peak ")

    blocks, ends = over_time(range(60))
    assert (set(blocks), ends) == ({"█"}, "> 50 ms")
    assert over_time(range(60), limit_ns=None)[1] == "∞ ms"
    blocks, ends = over_time(range(30))
    assert set(blocks[:15]) == {"█"}
    assert "█" not in blocks[15:]
    assert ends == "> 50 ms"
    assert ">" not in over_time(range(0))[1]


def test_a_quantile_among_what_was_skipped_is_above_the_limit_of_its_script():
    skipped = tuple(Tally(0, n, due=5, on_time=1, skipped=4, latency=times([1])) for n in (0, 1))
    about = {"intervals": (Interval(0, tallies=skipped),), "measured_ns": SECOND_NS}
    lines = printed(run(plan=PLAN | {"limits": [["one_order", 20_000_000]]}, **about), 120)
    rows = {line.split()[0]: line for line in lines if line.startswith(("latency ", "o"))}
    assert "> 50" in rows["orders_of_a_customer"]
    assert "> 20" in rows["one_order"]
    assert "> 20" in rows["latency"]


def second_of(due: int, late: int = 0, **plan: Any) -> Trial:
    """A run of one second."""
    tally = Tally(0, 0, due=due, on_time=due - late, late=late, latency=times([9.0] * due))
    about = {"intervals": (Interval(0, tallies=(tally,)),), "measured_ns": SECOND_NS}
    return run(plan=PLAN | plan, **about)


@pytest.mark.parametrize(
    ("due", "late", "plan", "word"),
    [
        (1200, 0, {}, "PASS"),
        (1200, 300, {}, "FAIL"),
        (1000, 40, {}, "UNKNOWN"),
        (1200, 300, {"missed": 0.5}, "PASS"),
        (1200, 300, {"limit_ns": None}, ""),
        (1, 0, {"transactions": 1}, "UNKNOWN"),
    ],
)
def test_the_verdict_is_what_the_whole_interval_allows(due, late, plan, word):
    shown = second_of(due, late, **plan)
    found = section(shown, summarize(shown)).headline
    assert found is not None
    assert found.word == word
    assert ("tx/s" in found.text) == (not word), "without a limit throughput leads"


def test_a_run_of_so_many_transactions_that_decides_nothing_is_repeated_for_a_time():
    shown = second_of(100, 5, transactions=9, limit_ns=9_000_000, missed=0.07)
    [step] = section(shown, summarize(shown)).next
    assert step.command.startswith(f"pgpaces run --like {shown.id[-8:]} -T ")


def test_what_makes_it_invalid_stands_below_and_nothing_is_concluded():
    hot = finding("too-hot", zone="cpu_0", at_s=12, celsius=81.0)
    dusty = finding("clock-unread", "pi1")
    lines = printed(run(findings=(dusty, hot)), 200, brief)
    assert lines[0].startswith("? UNKNOWN  ")
    assert f"  ! {hot}" in lines
    assert not any("clock" in line for line in lines)
    told = " ".join(printed(run(findings=(dusty, hot)), 200))
    assert re.search(r"validity +invalid", told)
    assert f"! {dusty}" in told


def test_of_several_warnings_the_first_screen_has_one_and_the_whole_answer_all():
    both = (finding("clock-unread", "pi1"), finding("clock-unread", "pi2"))
    shown = run(findings=both)
    for form, count in ((brief, 1), (whole, 2)):
        text = "\n".join(printed(shown, 200, form))
        assert [str(each) in text for each in both] == [True, count == 2]


def test_the_whole_answer_does_not_refer_to_itself():
    both = (finding("clock-unread", "pi1"), finding("clock-unread", "pi2"))
    failed = (Interval(0, tallies=(Tally(0, 0, due=9, failed={"42703": 9}),)),)
    for shown in (run(findings=both), run(intervals=failed)):
        assert "pgpaces show" not in " ".join(commands(shown, whole=True))
        assert "pgpaces show" in " ".join(commands(shown))


def test_no_command_reads_a_run_that_is_not_stored():
    late = (Interval(0, tallies=(Tally(0, 0, due=99, late=99, latency=times([60] * 99)),)),)
    for shown in (run(), run(intervals=late)):
        text = " ".join(commands(shown, whole=True, in_store=False))
        assert not re.search("pgpaces (show|why|report)", text)
    assert "pgpaces why" in " ".join(commands(run(intervals=late)))


def commands(shown: Trial, **about: Any) -> tuple[str, ...]:
    answer = section(shown, summarize(shown), **about)
    notes = (each for part in answer.parts for _, each in part.facts if "--json" not in each)
    return (
        *answer.sentences,
        *(each.command for each in answer.next),
        *answer.aside,
        *notes,
    )


def test_a_cut_is_part_of_the_warm_up_that_is_told():
    intervals = [second(n, [90.0 if n < 10 else 10.0]) for n in range(80)]
    script = {"name": "shop", "scale": 1, "scripts": SCRIPTS[:1]}
    shown = run(intervals=tuple(intervals), measured_ns=80 * SECOND_NS, workload=script)
    assert any("warm-up 16 s" in line for line in printed(shown, 200))


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(12.3, 11.8, 12.9, 1000), "11.8–12.9"),
        (Estimate(12.3, 0.0, 12.9, 300), "0–12.9"),
        (Estimate(12.3, 11.8, math.inf, 1000), "over 11.8"),
        (Estimate(math.inf, 11.8, math.inf, 1000), "over 11.8"),
        (Estimate(math.inf, math.inf, math.inf, 1000), ""),
        (Estimate.alone(12.3, 7), "–"),
    ],
)
def test_an_interval_is_told_in_few_words(estimate, text):
    assert interval(estimate, lambda ms: milliseconds(ms, "> 500")) == text


def test_an_interrupted_trial_is_still_shown_with_a_warning():
    lines = printed(run(state="interrupted", ended_at=datetime.now(UTC)), 200)
    assert f"  ! {finding('interrupted')}" in lines
    assert lines[0].startswith("? UNKNOWN  ")
    assert printed(run(), 200)[0].startswith("✓ PASS  ")
    empty = run(intervals=(Interval(0),), state="finished")
    assert printed(empty, 200)[0] == f"✗ FAIL  {finding('nothing-due').sentence}"
    early = run(intervals=(Interval(0),), state="interrupted")
    assert printed(early, 200)[0] == "? UNKNOWN  nothing was due"


def test_of_an_interrupted_run_the_next_command_is_the_same_run():
    plan = {"duration_ns": 20 * SECOND_NS, "warmup_ns": 0, "rate": 5.0}
    lasting = [second(n, [10.0] * 20) for n in range(10)]
    for intervals in ([Interval(0)], lasting):
        cut = run(intervals=tuple(intervals), state="interrupted", plan=plan)
        [step] = section(cut, summarize(cut)).next
        assert step.command == f"pgpaces run --like {cut.id[-8:]}"


def row(**summary: Any) -> TrialRow:
    brief = {"due": 60, "missed_share": [0.01, 0.0, 0.03], "p99_ms": 12.3, **summary}
    return TrialRow("X" * 26, "finished", datetime.now(UTC), "shop", "open, 1/s", "18", brief)


def test_a_list_of_runs_marks_what_is_not_valid():
    assert _line(row(validity="invalid", p99_low_ms=11.8))[-2:] == ("12.3", "invalid")
    few = _line(row(validity="valid", p99_low_ms=None))
    assert few[-2:] == ("–", "finished"), "as `run` prints it"


def test_the_details_have_the_notes_of_the_trial():
    grew = finding("store-on-disk", written_kib=3.0)
    shown = run(notes=(finding("io-timing-off"),), findings=(grew,))
    [details] = section(shown, summarize(shown)).parts
    notes = [text for name, text in details.facts if name == "note"]
    assert notes == [str(finding("io-timing-off")), str(grew)]
