"""What pgbench wrote becomes a trial that says what pgbench said, and no more."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pgpaces import imported
from pgpaces.answers.summary import Summary, summarize
from pgpaces.cli.main import cli
from pgpaces.errors import PlanError
from pgpaces.imported import ImportOptions, PgbenchFile
from pgpaces.result import Trial, counts
from pgpaces.store.store import Store
from pgpaces.validation import check

AT = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = 1_700_000_000

REPORT = """\
pgbench (18.6, server 15.18 (Debian 15.18-0+deb12u1))
transaction type: multiple scripts
scaling factor: 7
query mode: prepared
number of clients: 8
number of threads: 2
maximum number of tries: 3
duration: 4 s
number of transactions actually processed: 1196
number of failed transactions: 5 (0.417%)
number of serialization failures: 3 (0.250%)
number of deadlock failures: 2 (0.167%)
number of transactions retried: 48 (4.010%)
total number of retries: 55
number of transactions skipped: 4 (0.332%)
number of transactions above the 20.0 ms latency limit: 77/1196 (6.438%)
latency average = 8.034 ms
latency stddev = 13.750 ms
rate limit schedule lag: avg 0.107 (max 12.428) ms
initial connection time = 6.146 ms
tps = 297.967988 (without initial connection time)
SQL script 1: ../slow.sql
 - weight: 3 (targets 75.0% of total)
 - 877 transactions (73.3% of total)
 - number of transactions actually processed: 876 (tps = 218.244112)
 - number of transactions skipped: 1 (0.114%)
 - latency average = 10.024 ms
SQL script 2: ../conflict.sql
 - weight: 1 (targets 25.0% of total)
 - 320 transactions (26.7% of total)
"""
OLD_REPORT = """\
starting vacuum...end.
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 1
query mode: simple
number of clients: 10
number of threads: 1
number of transactions per client: 1000
number of transactions actually processed: 10000/10000
latency average: 15.844 ms
tps = 618.764555 (including connections establishing)
tps = 622.977698 (excluding connections establishing)
"""


def made(*texts: str, told: ImportOptions | None = None) -> tuple[Trial, Summary]:
    """The trial of texts and its answer; it is sound."""
    files = [PgbenchFile(f"log.{n}", AT, text) for n, text in enumerate(texts)]
    trial = imported.trial(files, told or ImportOptions(), "ID", "0.1.0")
    check(trial)
    return trial, summarize(trial)


def line(
    client: int, number: int, time: object, end_us: int, *more: object, script: int = 0
) -> str:
    seconds, us = divmod(end_us, 1_000_000)
    words = (client, number, time, script, EPOCH + seconds, us, *more)
    return " ".join(map(str, words)) + "\n"


# --- logs of transactions ---------------------------------------------------------------------


def test_a_transaction_was_due_when_its_time_began() -> None:
    log = line(0, 1, 100_000, 100_000) + line(0, 2, 1_500_000, 2_600_000)
    trial, summary = made(log, told=ImportOptions(limit_ns=1_000_000_000))
    assert [t.due_second for i in trial.intervals for t in i.tallies] == [0, 1]
    assert [i.second for i in trial.intervals] == [0, 2]
    assert (summary.counts.on_time, summary.counts.late) == (1, 1)
    assert trial.started_at == datetime.fromtimestamp(EPOCH, UTC)
    assert summary.latency.max == 1500.0
    assert trial.plan.model == "closed"


def test_the_files_of_all_threads_are_one_run() -> None:
    one = line(0, 1, 1000, 1000, 10, 0) + line(0, 2, 1000, 5_000_000, 10, 0)
    two = line(4, 1, 1000, 900_000, 20, 2, script=1)
    trial, summary = made(one, two)
    assert summary.counts.due == 3
    assert [script.counts.due for script in summary.scripts] == [2, 1]
    assert (summary.retried, summary.retries) == (1, 2)
    assert trial.plan.clients == 2
    assert summary.lag.max == pytest.approx(0.02)
    assert summary.service.max == pytest.approx(0.99)


def test_what_was_skipped_and_what_failed_is_counted_as_that() -> None:
    words = ("skipped", "failed", "serialization", "deadlock", "other", 500)
    log = "".join(line(0, n, word, 10_000_000 + n, 0, 0) for n, word in enumerate(words, 1))
    _, summary = made(log, told=ImportOptions(limit_ns=100_000_000))
    assert (summary.counts.skipped, summary.counts.failed, summary.counts.on_time) == (1, 4, 1)
    assert summary.failures == {"failed": 1, "40001": 1, "40P01": 1, "other": 1}
    assert summary.counts.pending == 0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(0, 3_000_000) | st.sampled_from(["skipped", "failed"]),
            st.integers(0, 20_000_000),
            st.integers(0, 4_000_000),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=60,
    ),
    st.none() | st.integers(1, 2_000_000_000),
)
def test_every_line_is_counted_once_and_no_time_is_lost(rows: list[Any], limit: int | None) -> None:
    log = "".join(
        line(client, 1, time, 4_000_000 + end, lag, retries)
        for client, time, end, lag, retries in rows
    )
    trial, summary = made(log, told=ImportOptions(limit_ns=limit))
    found = counts(t for i in trial.intervals for t in i.tallies)
    assert (found.due, found.pending) == (len(rows), 0)
    done = [time for _, time, *_ in rows if isinstance(time, int)]
    tallies = [t for i in trial.intervals for t in i.tallies]
    assert sum(t.latency.sum_ns for t in tallies) == 1000 * sum(done)
    assert sum(t.latency.count for t in tallies) == len(done)
    late = sum(1000 * time > limit for time in done) if limit else 0
    assert found.late == late
    assert summary.counts.due == len(rows)


def test_the_seventh_column_is_asked_for_where_nothing_says_what_it_is() -> None:
    log = line(0, 1, 1000, 1000, 30)
    with pytest.raises(PlanError, match="7th column") as found:
        made(log)
    assert "--seventh" in (found.value.hint or "")
    assert made(log, told=ImportOptions(seventh="lag"))[1].lag.max == pytest.approx(0.03)
    assert made(log, told=ImportOptions(seventh="retries"))[1].retries == 30
    assert made(log, REPORT)[1].lag.max == pytest.approx(0.03)


def test_a_log_that_was_sampled_says_so() -> None:
    trial, summary = made(line(0, 7, 1000, 1000) + line(0, 20, 1000, 50_000))
    assert "holds 2 of 20" in trial.findings[0].text
    assert summary.validity.state == "invalid"


@pytest.mark.parametrize(
    "text",
    ["hello\n", "1 2\n", line(0, 1, "won", 1), line(-1, 1, 5, 1), "\x1b[31m\n", "", "0 1 2 3 4 x\n",
     line(0, 1, 10**30, 1000), line(0, 1, 1000, 5000) + "0 2 100"],
)  # fmt: skip
def test_what_is_none_of_it_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(PlanError) as found:
        made(text)
    assert found.value.hint


# --- aggregated logs --------------------------------------------------------------------------


def aggregated(start: int, count: int, *more: object) -> str:
    return " ".join(map(str, (EPOCH + start, count, 1000 * count, 1_300_000 * count, 500, 2000,
                              *more))) + "\n"  # fmt: skip


LAG = (100, 40, 0, 9)


@pytest.mark.parametrize(
    "more", [(), LAG, (*LAG, 2), (*LAG, 2, 3, 4, 1, 1), (*LAG, 2, 3, 4, 1, 1, 1)], ids=len
)
def test_sums_have_a_mean_and_no_quantiles(more: tuple[int, ...]) -> None:
    log = "".join(aggregated(second, 100, *more) for second in range(40))
    trial, summary = made(log)
    skipped = 2 if len(more) > 4 else 0
    failed = max(0, len(more) - 7)
    # Until version 14, which has no columns after it, skipped ones are counted among all.
    done = 98 if len(more) == 5 else 100
    assert summary.counts.due == 40 * (done + skipped + failed)
    assert (summary.counts.skipped, summary.counts.failed) == (40 * skipped, 40 * failed)
    assert summary.rate.value == pytest.approx(done)
    assert summary.latency.mean
    assert summary.latency.mean.value == pytest.approx(100 / done)
    if done == 100:
        assert summary.latency.stddev == pytest.approx(math.sqrt(0.3))
    assert (summary.latency.p50, summary.latency.p99) == (None, None)
    assert trial.plan.limit_ns is None


def test_an_interval_is_as_long_as_those_of_each_thread_say() -> None:
    """Two threads began in different seconds: their intervals of 10 s are no seconds."""
    threads = ["".join(aggregated(10 * n + late, 10) for n in range(4)) for late in (0, 1)]
    trial, _ = made(*threads)
    assert (trial.measured_ns, trial.plan.by_second) == (41 * 10**9, False)


def test_an_interval_for_each_thread_is_as_long_as_the_report_says() -> None:
    """Whether a thread's only interval has one second or sixty its log does not say."""
    threads = [aggregated(late, 598) for late in (0, 1)]
    with pytest.raises(PlanError, match="how long its interval is") as caught:
        made(*threads)
    assert "report" in (caught.value.hint or "")
    trial, summary = made(*threads, REPORT)
    assert trial.measured_ns == pytest.approx(1196 / 297.967988 * 1e9)
    assert summary.rate.value == pytest.approx(297.967988)
    assert not trial.plan.by_second


@pytest.mark.parametrize(("failures", "lacks"), [((0, 0), True), ((1, 2), True), ((3, 2), False)])
def test_failures_that_only_the_report_counts_make_it_invalid(
    failures: tuple[int, int], lacks: bool
) -> None:
    """The log has them with --failures-detailed alone."""
    log = aggregated(0, 1196, *LAG, 4, 48, 55, *failures, 0)
    trial, _ = made(log, REPORT)
    texts = [finding.text for finding in trial.findings if finding.severity == "invalid"]
    expected = f"the log holds {sum(failures)} of the 5 failed transactions"
    assert any(text.startswith(expected) for text in texts) is lacks


def test_connecting_for_each_transaction_is_a_part_of_the_run() -> None:
    """Until version 13 the second rate leaves out what connecting took, also with -C."""
    log = "".join(line(0, n, 20_000, 20_000 * n) for n in range(1, 3001))
    report = OLD_REPORT.replace("10000/10000", "3000/3000")
    report = report.replace("of clients: 10", "of clients: 1")
    report = report.replace("618.764555", "50.0").replace("622.977698", "125.0")
    trial, summary = made(log, report, told=ImportOptions(seventh="lag"))
    assert (trial.measured_ns, summary.counts.due) == (60 * 10**9, 3000)
    alone, _ = made(report)
    assert alone.measured_ns == 60 * 10**9


def test_threads_are_added_up() -> None:
    trial, summary = made(aggregated(0, 10) + aggregated(1, 20), aggregated(1, 5))
    assert [t.on_time for i in trial.intervals for t in i.tallies] == [10, 25]
    assert summary.counts.due == 35


def test_that_the_log_lost_its_end_or_knows_nothing_late_makes_it_invalid() -> None:
    trial, summary = made(aggregated(0, 900, *LAG, 0, 0, 0, 0, 0), REPORT)
    texts = [finding.text for finding in trial.findings if finding.severity == "invalid"]
    assert any("900 of 1196" in text for text in texts)
    assert any("77 by the report" in text for text in texts)
    assert summary.validity.state == "invalid"


# --- reports ----------------------------------------------------------------------------------


def test_a_report_alone_gives_its_numbers_and_nothing_else() -> None:
    trial, summary = made(REPORT, told=ImportOptions(command="pgbench -c 8"))
    assert summary.counts.due == 1196 + 5 + 4
    assert (summary.counts.late, summary.counts.skipped, summary.counts.failed) == (77, 4, 5)
    assert summary.rate.value == pytest.approx(297.967988)
    assert not summary.rate.estimable
    assert summary.latency.mean
    assert summary.latency.mean.value == pytest.approx(8.034)
    assert summary.latency.stddev == pytest.approx(13.750)
    assert (summary.latency.p50, summary.latency.max, summary.service.p99) == (None, None, None)
    assert summary.service.mean
    assert summary.service.mean.value == pytest.approx(8.034 - 0.107)
    assert (summary.service.stddev, summary.lag.stddev) == (None, None)
    assert (summary.retried, summary.retries) == (48, 55)
    assert trial.plan.limit_ns == 20_000_000
    assert trial.plan.imported.command == "pgbench -c 8"
    assert (trial.server.version, trial.plan.protocol) == ("15.18", "prepared")
    assert trial.workload.scale == 7


def test_a_report_of_an_old_version_is_read() -> None:
    trial, summary = made(OLD_REPORT)
    assert (summary.counts.due, trial.plan.transactions) == (10_000, 1000)
    assert summary.rate.value == pytest.approx(622.977698)
    assert trial.server.version == "?"


@given(st.text(max_size=200), st.integers(0, len(REPORT)))
def test_a_broken_report_is_a_trial_or_a_sentence(garbage: str, at: int) -> None:
    with contextlib.suppress(PlanError):
        made(REPORT[:at] + garbage + REPORT[at:])


# --- the command ------------------------------------------------------------------------------


def test_an_imported_run_is_shown_listed_and_tagged_beside_ours(tmp_path: Path) -> None:
    store = tmp_path / "results.db"
    for name, text in {
        "report.txt": REPORT,
        "pgbench_log.1": line(0, 1, 1000, 1000, 30, 0) + line(1, 1, 900, 5_000_000, 3, 0),
    }.items():
        (tmp_path / name).write_text(text)

    def pgpaces(*words: object) -> str:
        done = CliRunner().invoke(cli, [*map(str, words), "--store", str(store)])
        assert done.exception is None, done.output
        return done.output

    pgpaces("import", tmp_path / "report.txt", "--tag", "theirs")
    shown = pgpaces("show", "theirs")
    assert "mean 8.03 ms" in shown
    assert "standard deviation 13.8 ms" in shown
    assert "generator" not in shown
    more = ("-L", "20ms", "--command", "pgbench -R 1", "--tag", "log")
    pgpaces("import", tmp_path / "pgbench_log.1", *more)
    assert "pgbench -R 1" in pgpaces("show", "log")
    assert len(Store.open(store).digests([row.id for row in Store.open(store).trials()])) == 2
    missing = CliRunner().invoke(cli, ["import", str(tmp_path / "x"), "--store", str(store)])
    assert isinstance(missing.exception, PlanError)
