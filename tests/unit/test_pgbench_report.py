"""pgbench's report and progress lines, from intervals made here; every number is worked out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgpaces.cli.pgbench.options import Options, ScriptOption
from pgpaces.cli.pgbench.report import Facts, Totals, banner, report, unfinished
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.times import Times

SECOND_NS = 1_000_000_000
ASKED = Options(
    seed=1, scripts=(ScriptOption("select-only", builtin=True),), clients=4, jobs=1, transactions=5
)
FACTS = Facts()


def times(*values_ms: float) -> Times:
    ns = [int(value * 1e6) for value in values_ms]
    return Times(len(ns), sum(ns), float(sum(n * n for n in ns)), max(ns, default=0))


def tally(script: int = 0, **counts: object) -> Tally:
    return replace(Tally(due_second=0, script=script), **counts)  # type: ignore[arg-type]


def totals(*intervals: Interval) -> Totals:
    made = Totals()
    for interval in intervals:
        made.add(interval)
    return made


def interval(second: int, *tallies: Tally, **more: object) -> Interval:
    whole = Interval(second=second, tallies=tallies, ended_ns=(second + 1) * SECOND_NS)
    return replace(whole, **more)  # type: ignore[arg-type]


def lines(asked: Options, counted: Totals, facts: Facts = FACTS) -> list[str]:
    return report(asked, facts, counted, connect_ns=2_500_000).splitlines()


PROCESSED = interval(0, tally(on_time=15, late=5, latency=times(1, 3)), ended_ns=SECOND_NS // 2)


def test_a_plain_run_has_its_latency_from_its_duration() -> None:
    assert lines(ASKED, totals(PROCESSED)) == [
        "transaction type: <builtin: select only>",
        "scaling factor: 1",
        "query mode: simple",
        "number of clients: 4",
        "number of threads: 1",
        "maximum number of tries: 1",
        "number of transactions per client: 5",
        "number of transactions actually processed: 20/20",
        "number of failed transactions: 0 (0.000%)",
        "latency average = 100.000 ms",  # 500 ms x 4 clients / 20
        "initial connection time = 2.500 ms",
        "tps = 40.000000 (without initial connection time)",
    ]


def test_nothing_processed_ends_the_report_where_pgbench_ends_it() -> None:
    assert lines(ASKED, totals(interval(0)))[-1] == (
        "number of transactions actually processed: 0/20"
    )


def test_a_rate_and_a_limit_have_lines_of_their_own() -> None:
    asked = replace(
        ASKED, rate=10.0, limit_us=10_500, transactions=None, duration_s=2, max_tries=3,
        failures_detailed=True,
    )  # fmt: skip
    counted = totals(
        interval(0, tally(on_time=5, late=1, skipped=2, latency=times(1, 3), lag=times(0.5, 1.5))),
        interval(1, tally(failed={"40001": 1, "40P01": 2, "23505": 1}, retried=3, retries=5)),
    )
    assert lines(asked, counted, Facts(7, "hash", 3)) == [
        "transaction type: <builtin: select only>",
        "scaling factor: 7",
        "partition method: hash",
        "partitions: 3",
        "query mode: simple",
        "number of clients: 4",
        "number of threads: 1",
        "maximum number of tries: 3",
        "duration: 2 s",
        "number of transactions actually processed: 6",
        "number of failed transactions: 4 (33.333%)",  # of 6 + 2 + 4
        "number of serialization failures: 1 (8.333%)",
        "number of deadlock failures: 2 (16.667%)",
        "number of other failures: 1 (8.333%)",
        "number of transactions retried: 3 (25.000%)",
        "total number of retries: 5",
        "number of transactions skipped: 2 (16.667%)",
        "number of transactions above the 10.5 ms latency limit: 1/6 (16.667%)",  # of processed
        "latency average = 2.000 ms",
        "latency stddev = 1.000 ms",
        "rate limit schedule lag: avg 0.333 (max 1.500) ms",  # 2 ms over 6 processed
        "initial connection time = 2.500 ms",
        "tps = 3.000000 (without initial connection time)",
    ]


def test_an_unlimited_number_of_tries_is_not_shown() -> None:
    shown = lines(replace(ASKED, max_tries=0), totals(PROCESSED))
    assert not any(line.startswith("maximum") for line in shown)
    assert "number of transactions retried: 0 (0.000%)" in shown


def test_a_latency_from_the_duration_says_that_failures_are_in_it() -> None:
    counted = totals(interval(0, tally(on_time=3, failed={"23505": 1})))
    assert "latency average = 1000.000 ms (including failures)" in lines(ASKED, counted)


def test_telling_progress_measures_the_latency() -> None:
    shown = lines(replace(ASKED, progress_s=1), totals(PROCESSED))
    assert "latency average = 2.000 ms" in shown


def test_reconnecting_has_a_mean_over_what_ended() -> None:
    counted = totals(
        interval(0, tally(on_time=3, failed={"23505": 1}, latency=times(1)), connect_ns=8_000_000)
    )
    shown = lines(replace(ASKED, connect_each=True), counted)
    assert shown[-2:] == [
        "average connection time = 2.000 ms",
        "tps = 3.000000 (including reconnection times)",
    ]


SEVERAL = replace(
    ASKED, scripts=(ScriptOption("a.sql", 3), ScriptOption("b.sql"), ScriptOption("c.sql", 0))
)


def test_every_one_of_several_scripts_is_reported() -> None:
    counted = totals(
        interval(0, tally(0, on_time=6, latency=times(1, 3)), tally(1, on_time=2, skipped=0))
    )
    shown = lines(SEVERAL, counted)
    assert shown[0] == "transaction type: multiple scripts"
    assert shown[12:] == [
        "SQL script 1: a.sql",
        " - weight: 3 (targets 75.0% of total)",
        " - 6 transactions (75.0% of total)",
        " - number of transactions actually processed: 6 (tps = 6.000000)",
        " - number of failed transactions: 0 (0.000%)",
        " - latency average = 2.000 ms",
        " - latency stddev = 1.000 ms",
        "SQL script 2: b.sql",
        " - weight: 1 (targets 25.0% of total)",
        " - 2 transactions (25.0% of total)",
        " - number of transactions actually processed: 2 (tps = 2.000000)",
        " - number of failed transactions: 0 (0.000%)",
        "SQL script 3: c.sql",
        " - weight: 0 (targets 0.0% of total)",
        " - 0 transactions (0.0% of total)",
    ]


COMMANDS = ["\\set x 1", "select 'ä'", "\\sleep 1 ms" * 20]
STATEMENTS = (
    StatementTally(0, 0, times=times(0.001)),
    StatementTally(0, 1, failed=2, times=times(1, 2), retries=7),
)


@pytest.mark.parametrize(
    ("tries", "title", "columns"),
    [(1, " and failures", "         2"), (5, ", failures and retries", "         2          7")],
)
def test_every_command_has_a_line(tries: int, title: str, columns: str) -> None:
    asked = replace(ASKED, per_command=True, max_tries=tries)
    counted = totals(PROCESSED, interval(1, statements=STATEMENTS))
    shown = lines(asked, counted, Facts(commands=[COMMANDS]))
    at = shown.index(f"statement latencies in milliseconds{title}:")
    assert shown[at + 2] == f"         1.500  {columns} select 'ä'"
    assert shown[at + 1].endswith(" \\set x 1")
    assert shown[at + 3].endswith("\\sleep 1 ms" * 20)


def test_progress_tells_what_came_since_the_last_line() -> None:
    counted = Totals()
    counted.add(interval(0, tally(on_time=10, latency=times(1, 3))))
    assert counted.progress(ASKED) == (
        "progress: 1.0 s, 10.0 tps, lat 2.000 ms stddev 1.000, 0 failed"
    )
    counted.add(interval(1))
    counted.add(interval(2, tally(on_time=1, late=2, failed={"40001": 1}, latency=times(4))))
    assert counted.progress(ASKED) == (
        "progress: 3.0 s, 1.5 tps, lat 4.000 ms stddev 0.000, 1 failed"
    )


def test_progress_has_columns_for_a_rate_a_limit_and_tries() -> None:
    asked = replace(ASKED, rate=10.0, limit_us=1000, max_tries=2)
    counted = totals(interval(0, tally(skipped=3, retried=1, retries=2, lag=times(0.5))))
    assert counted.progress(asked, 1700000000.5) == (
        "progress: 1700000000.500 s, 0.0 tps, lat 0.000 ms stddev 0.000, 0 failed,"
        " lag 0.500 ms, 3 skipped, 1 retried, 2 retries"
    )


def test_what_never_finished_is_told_with_the_share_that_was_missed() -> None:
    assert unfinished(totals(PROCESSED)) is None
    counted = totals(interval(0, tally(on_time=5, late=1, skipped=1, unfinished=3)))
    assert unfinished(counted) == (
        "3 transactions were due and never finished; 50.000% of 10 due were missed"
    )


def test_the_first_aborted_client_is_remembered_by_its_thread() -> None:
    counted = totals(interval(0), interval(1, aborted=(2, 1)), interval(2, aborted=(0,)))
    assert counted.aborted_thread == 2


def test_the_banner_names_all_three_versions() -> None:
    assert banner("20", "1.2", "15.4") == "pgbench (20, pgpaces 1.2, server 15.4)"
