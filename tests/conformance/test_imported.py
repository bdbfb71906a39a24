"""What real pgbench logged, imported, says what real pgbench printed."""

import re
import subprocess

import pytest
from tests.conformance.side_by_side import PGBENCH

from pgpaces.analysis.summary import summarize
from pgpaces.imports import pgbench as imported

pytestmark = pytest.mark.postgres
SLOW = """\
\\set d random(0, 9)
\\if :d = 0
SELECT pg_sleep(0.04);
\\else
SELECT pg_sleep(0.002);
\\endif
"""
CONFLICT = """\
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE rival SET n = n + 1;
SELECT pg_sleep(0.002);
COMMIT;
"""


@pytest.fixture
def program(pgbench_version):
    return PGBENCH[pgbench_version]


def number(report: str, pattern: str) -> float:
    found = re.search(pattern, report)
    assert found, pattern
    return float(found[1])


@pytest.fixture
def scripts(pg15, tmp_path):
    pg15.execute(
        "CREATE TABLE IF NOT EXISTS rival (n int); TRUNCATE rival; INSERT INTO rival VALUES (0)"
    )
    pg15.execute("GRANT ALL ON rival TO public")
    (tmp_path / "slow.sql").write_text(SLOW)
    (tmp_path / "conflict.sql").write_text(CONFLICT)
    return ["-f", f"{tmp_path}/slow.sql@3", "-f", f"{tmp_path}/conflict.sql@1"]


def test_a_log_of_transactions_gives_the_numbers_of_the_report(program, pg15, tmp_path, scripts):
    options = [
        "-c",
        "6",
        "-j",
        "2",
        "-T",
        "3",
        "-R",
        "300",
        "-L",
        "20",
        "--max-tries",
        "2",
        "--failures-detailed",
    ]
    words = [str(program), "-n", "-l", *options, *scripts, pg15.dsn()]
    report = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    files = {p.name: p.read_text() for p in sorted(tmp_path.glob("pgbench_log.*"))}
    assert len(files) == 2
    summary = summarize(imported.trial(files, "ID", version="0", limit_ns=20_000_000))
    counts = summary.counts
    assert counts.on_time + counts.late == number(report, r"actually processed: (\d+)")
    assert counts.late == number(report, r"ms latency limit: (\d+)")
    assert counts.skipped == number(report, r"transactions skipped: (\d+)")
    assert counts.failed == number(report, r"failed transactions: (\d+)")
    assert summary.failures.get("40001", 0) == number(report, r"serialization failures: (\d+)")
    assert summary.retried == number(report, r"transactions retried: (\d+)")
    assert summary.retries == number(report, r"number of retries: (\d+)")
    assert summary.latency.mean
    assert summary.lag.mean
    mean = number(report, r"latency average = ([\d.]+)")
    assert summary.latency.mean.value == pytest.approx(mean, abs=0.002)
    stddev = number(report, r"latency stddev = ([\d.]+)")
    assert summary.latency.sd == pytest.approx(stddev, abs=0.002)
    assert summary.lag.mean.value == pytest.approx(number(report, r"avg ([\d.]+)"), abs=0.002)
    assert len(summary.scripts) == 2
    assert summary.validity.reasons == ()
