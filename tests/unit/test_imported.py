"""What pgbench wrote becomes a trial that says what pgbench said, and no more."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pgpaces import api
from pgpaces.analysis.summary import Summary, summarize
from pgpaces.answers.run import section
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError
from pgpaces.core.findings import finding
from pgpaces.imports import pgbench as imported
from pgpaces.spec.result import Trial, counts
from pgpaces.store.rows import check
from pgpaces.store.store import Store
from tests.errors import raises

EPOCH = 1_700_000_000


def made(*texts: str, **facts: Any) -> tuple[Trial, Summary]:
    """The trial of texts and its answer; it is sound."""
    files = {f"log.{n}": text for n, text in enumerate(texts)}
    trial = imported.trial(files, "ID", version="0.1.0", **facts)
    check(trial)
    return trial, summarize(trial)


def line(
    client: int, number: int, time: object, end_us: int, *more: object, script: int = 0
) -> str:
    seconds, us = divmod(end_us, 1_000_000)
    words = (client, number, time, script, EPOCH + seconds, us, *more)
    return " ".join(map(str, words)) + "\n"


def test_a_transaction_was_due_when_its_time_began():
    log = line(0, 1, 100_000, 100_000) + line(0, 2, 1_500_000, 2_600_000)
    trial, summary = made(log, limit_ns=1_000_000_000)
    assert [t.due_second for i in trial.intervals for t in i.tallies] == [0, 1]
    assert [i.second for i in trial.intervals] == [0, 2]
    assert (summary.counts.on_time, summary.counts.late) == (1, 1)
    assert trial.started_at == datetime.fromtimestamp(EPOCH, UTC)
    assert summary.latency.max == 1500.0
    assert trial.plan.load.model == "closed"


def test_the_files_of_all_threads_are_one_run():
    one = line(0, 1, 1000, 1000, 10, 0) + line(0, 2, 1000, 5_000_000, 10, 0)
    two = line(4, 1, 1000, 900_000, 20, 2, script=1)
    trial, summary = made(one, two, command="pgbench -c 2")
    assert summary.counts.due == 3
    assert [note.name for note in trial.notes] == ["imported", "imported-command"]
    assert [script.counts.due for script in summary.scripts] == [2, 1]
    assert (summary.retried, summary.retries) == (1, 2)
    assert trial.setup.clients == 2
    assert summary.lag.max == pytest.approx(0.02)
    assert summary.service.max == pytest.approx(0.99)


def test_what_was_skipped_and_what_failed_is_counted_as_that():
    words = ("skipped", "failed", "serialization", "deadlock", "other", 500)
    log = "".join(line(0, n, word, 10_000_000 + n, 0, 0) for n, word in enumerate(words, 1))
    assert "policy skip" in str(section(*made(log)))
    _, summary = made(log, limit_ns=100_000_000)
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
def test_every_line_is_counted_once_and_no_time_is_lost(rows, limit):
    log = "".join(
        line(client, 1, time, 4_000_000 + end, lag, retries)
        for client, time, end, lag, retries in rows
    )
    trial, summary = made(log, limit_ns=limit)
    found = counts(t for i in trial.intervals for t in i.tallies)
    assert (found.due, found.pending) == (len(rows), 0)
    done = [time for _, time, *_ in rows if isinstance(time, int)]
    tallies = [t for i in trial.intervals for t in i.tallies]
    assert sum(t.latency.sum_ns for t in tallies) == 1000 * sum(done)
    assert sum(t.latency.count for t in tallies) == len(done)
    late = sum(1000 * time > limit for time in done) if limit else 0
    assert found.late == late
    assert summary.counts.due == len(rows)


def test_the_seventh_column_is_asked_for_where_nothing_says_what_it_is():
    log = line(0, 1, 1000, 1000, 30)
    with raises(PlanError, "ambiguous-column"):
        made(log)
    assert made(log, seventh="lag")[1].lag.max == pytest.approx(0.03)
    assert made(log, seventh="retries")[1].retries == 30


def test_a_log_that_was_sampled_says_so():
    trial, summary = made(line(0, 7, 1000, 1000) + line(0, 20, 1000, 50_000))
    assert trial.findings == (finding("log-truncated", count=2, expected=20),)
    assert summary.validity.state == "invalid"
    many = [line(0, number, 1000, 1000) for number in range(1, 301) if number != 5]
    trial, summary = made("".join(many))
    assert trial.findings == (finding("log-incomplete", count=299, expected=300),)
    assert summary.validity.state == "valid"


@pytest.mark.parametrize(
    "text",
    ["hello\n", "1 2\n", line(0, 1, "won", 1), line(-1, 1, 5, 1), "\x1b[31m\n", "", "0 1 2 3 4 x\n",
     line(0, 1, 10**30, 1000), line(0, 1, 1000, 5000) + "0 2 100",
     "transaction type: <builtin: select only>\nscaling factor: 1\n",
     f"{EPOCH} 100 100000 130000000 500 2000\n", f"{EPOCH} 9 9 9 9 9 0 0 0 0 0 0 0 0 0\n"],
)  # fmt: skip
def test_what_is_none_of_it_is_refused_in_a_sentence(text):
    with pytest.raises(PlanError) as found:
        made(text)
    assert found.value.name in ("log-empty", "not-a-pgbench-log", "not-a-transaction")


def test_logs_of_several_runs_are_refused():
    with raises(PlanError, "logs-of-several-runs", columns=[6, 8]):
        made(line(0, 1, 1000, 1000), line(0, 1, 1000, 1000, 30, 0))


def test_an_imported_run_is_shown_listed_and_tagged_beside_ours(tmp_path):
    store = tmp_path / "results.db"
    log = line(0, 1, 1000, 1000, 30, 0) + line(1, 1, 900, 5_000_000, 3, 0)
    (tmp_path / "pgbench_log.1").write_text(log)

    def pgpaces(*words: object) -> str:
        done = CliRunner().invoke(cli, [*map(str, words), "--store", str(store)])
        assert done.exception is None, done.output
        return done.output

    more = ("-L", "20ms", "--command", "pgbench -R 1", "--tag", "log")
    pgpaces("import", tmp_path / "pgbench_log.1", *more)
    shown = pgpaces("show", "log")
    assert "pgbench -R 1" in shown
    assert "generator" not in shown
    assert len(Store.open(store).digests([row.id for row in Store.open(store).trials()])) == 1
    with raises(PlanError, "run-without-spec"):
        api.run(like="log", store=store)
    pgpaces("import", tmp_path / "pgbench_log.1", "-L", "9ms")
    assert json.loads(pgpaces("diff", "log", "last", "--json"))["value"]["options"] == {}
    missing = CliRunner().invoke(cli, ["import", str(tmp_path / "x"), "--store", str(store)])
    assert isinstance(missing.exception, PlanError)
