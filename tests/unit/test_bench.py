"""The bench's arithmetic and what it reads out of other programs; it runs none of them here."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import counting  # noqa: E402
import figures  # noqa: E402
import instructions  # noqa: E402
import page  # noqa: E402
import programs  # noqa: E402
import syscalls  # noqa: E402
from figures import Figure, Goal, Note  # noqa: E402


def figure(ours, theirs=(), **more):
    return Figure("Section", "name", "us", ours, theirs, **more)


def test_a_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_medians():
    found = figure((1.0, 20.0, 3.0), (2.0, 10.0, 30.0))
    assert found.ratio == 0.5
    assert figures.quartiles(found.ratios) == (0.3, 1.25)


@pytest.mark.parametrize(
    ("ours", "theirs", "goal", "met"),
    [
        (2.0, (4.0,), Goal("ratio", "at most", 0.5), True),
        (2.0, (4.0,), Goal("ratio", "at most", 0.4), False),
        (2.0, (4.0,), Goal("ratio", "at least", 0.5), True),
        (2.0, (4.0,), Goal("ours", "at most", 2.0), True),
        (2.0, (4.0,), Goal("ours", "at least", 2.1), False),
        # In two digits, so that a stray call breaks none.
        (3.0004, (), Goal("ours", "at most", 3.0), True),
        (3.006, (), Goal("ours", "at most", 3.0), False),
        (1.0, (), Goal("ratio", "at most", 0.5), None),
    ],
)
def test_a_goal_bounds_the_ratio_or_what_is_ours(ours, theirs, goal, met):
    assert figure((ours,), theirs, goal=goal).met is met


def test_every_row_has_a_cell_for_each_head():
    cells = figures.row(figure((1.0,), (4.0,), beside="sysbench", goal=Goal("ratio", "at most", 1)))
    assert cells == ("name, us", "sysbench 4.00", "1.00", "0.25", "-", "≤ 1", "yes")
    assert len(cells) == len(figures.HEAD)
    assert [figures.number(n) for n in (0, 0.01234, 0.00012, 123_456)] == [
        "0", "0.0123", "0.0001", "123456",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("now", "ok"),
    [({"a": 109.0}, [True]), ({"a": 111.0}, [False]), ({"a": 89.0}, [True]),
     ({"new": 1.0}, [False, False])],
)  # fmt: skip
def test_the_gate_is_red_for_a_tenth_more_and_for_what_has_no_measurement_or_baseline(now, ok):
    found = [figure((1.0, 9.0, 2.0), gate=True), figure((3.0,)), Note("Section", "text")]
    assert figures.baseline(found) == {"Section: name": 2.0}, "nothing with a clock in it"
    assert [verdict.ok for verdict in figures.verdicts(now, {"a": 100.0})] == ok


def test_runs_that_are_no_pairs_are_refused():
    with pytest.raises(ValueError, match="2 of ours, 1 of theirs"):
        figure((1.0, 2.0), (1.0,))


def test_the_baseline_names_what_is_measured():
    import json

    keys = json.loads((ROOT / "bench" / "baseline.json").read_text())
    cases = {f"{instructions.SECTION}: {case.label('')}" for case in instructions.CASES}
    assert cases <= keys.keys()
    assert f"{syscalls.SECTION}: select-only, epoll, 1 client" in keys


PROFILE = """\
fn=(1) main
calls=7 1
+3 10
cfn=(2) clock_gettime@@GLIBC_2.17
calls=5 1
12 300
fn=(3) other
cfn=(4) clock_gettime_not
calls=9 1
cfn=(2)
calls=2 -4
"""


def test_calls_of_a_function_are_added_up_over_callers_and_by_number():
    assert counting.calls(PROFILE, "clock_gettime") == 7
    assert counting.calls(PROFILE, "absent") == 0


def test_instructions_of_a_library_are_its_own_and_not_those_that_it_calls():
    profile = """\
ob=/lib/libc.so
fn=poll
7 100
ob=/x/_engine.abi3.so
fn=run
7 10
+3 4
cob=/lib/libc.so
cfn=poll
calls=2 7
-2 100
* 1
ob=/lib/libc.so
9 50
totals: 265
"""
    assert counting.inside(profile, "_engine.") == 15


def test_counts_are_read_as_perf_and_strace_write_them():
    perf = "# started on Sun\n\n215,,raw_syscalls:sys_enter,215021,100.00,,\n"
    assert counting.by_perf(perf) == 215
    strace = (
        "% time     seconds  usecs/call     calls    errors syscall\n"
        "  0.00    0.000000           0        29         1 prlimit64\n"
        "100.00    0.000210           1       129         1 total\n"
    )
    assert counting.by_strace(strace) == 129
    for read in (counting.by_perf, counting.by_strace):
        with pytest.raises(programs.ProgramError, match="counted nothing"):
            read("refused")


def test_the_order_of_the_ways_turns_with_every_round():
    said = []

    def way(name):
        said.append(name)
        return name

    rounds = programs.alternately(2, lambda: way("a"), lambda: way("b"))
    assert said == ["a", "b", "b", "a"]
    assert rounds == [("a", "b"), ("a", "b")]
    assert programs.columns(rounds) == [("a", "a"), ("b", "b")]


REPORT = """\
number of transactions actually processed: 204639
latency average = 0.062 ms
initial connection time = 11.989 ms
tps = 102378.521217 (without initial connection time)
"""


def test_pgbench_s_report_is_read_and_a_missing_line_is_an_error():
    assert programs.pgbench_done(REPORT) == 204_639
    assert programs.pgbench_done(REPORT.replace("204639", "9/10")) == 9
    assert programs.pgbench_value(REPORT, "tps") == 102378.521217
    assert programs.pgbench_value(REPORT, "latency average") == 0.062
    with pytest.raises(programs.ProgramError, match="no 'average'"):
        programs.pgbench_value(REPORT, "average")


def test_a_page_is_filled_between_its_markers_only(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- measured: cost -->\nold\n<!-- end -->\nafter\n")
    page.write(path, {"kernel": "6"}, 9, [figure((1.0,), (2.0,)), Note("Section", "a \\1 note")])
    text = path.read_text()
    assert text.startswith("before\n<!-- measured: cost -->\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "The machine: kernel 6." in text
    assert re.search(r"\nSection\n  name, us +2\.00 +1\.00 +0\.50\n", text)
    assert "- Section: a \\1 note" in text
    assert "old" not in text
    path.write_text("nothing\n")
    with pytest.raises(ValueError, match="no measured part"):
        page.write(path, {}, 9, [])
