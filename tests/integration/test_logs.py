"""Logs of every transaction on PostgreSQL 15, beside those that pgbench writes of the same load."""

import errno
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.errors import raises
from tests.needs import PG15_BIN

from pgpaces.core.errors import LogError, PgpacesError, RunError
from pgpaces.spec.load import LogPlan

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
SECOND_NS = 1_000_000_000
PGBENCH = PG15_BIN / "pgbench"


def shape(lines: list[str]) -> set[str]:
    """What kinds of lines there are: every number is an N."""
    return {re.sub(r"\d+", "N", line) for line in lines}


FLAKY = """DO $$ BEGIN IF nextval('calls') % 3 = 0 THEN RAISE SQLSTATE '40001'; END IF; END $$;
"""


@dataclass
class Beside:
    """The same load by us and by pgbench, which write logs beside each other."""

    run_load: Any
    server: Any
    folder: Path

    def run(self, log: dict[str, Any], changes: dict[str, Any], *words: object) -> Any:
        """Our outcome."""
        plan = LogPlan(prefix=str(self.folder / "ours"), **log)
        self._pgbench("-c", 2, "-l", "--log-prefix=theirs", *words)
        return self.run_load(self.server.dsn(), FLAKY, clients=2, log=plan, **changes)

    def _pgbench(self, *words: object) -> None:
        script = self.folder / "script.sql"
        script.write_text(FLAKY)
        command = [PGBENCH, "-n", "-f", script, *words, self.server.dsn()]
        subprocess.run(
            [str(word) for word in command], capture_output=True, cwd=self.folder, check=True
        )

    @property
    def ours(self) -> list[str]:
        return self._lines("ours")

    @property
    def theirs(self) -> list[str]:
        return self._lines("theirs")

    def _lines(self, prefix: str) -> list[str]:
        files = sorted(self.folder.glob(f"{prefix}.*"))
        return [line for path in files for line in path.read_text().splitlines()]


@pytest.fixture
def beside(pg15, run_load, tmp_path):
    pg15.execute("CREATE SEQUENCE public.calls; GRANT ALL ON public.calls TO u_trust")
    yield Beside(run_load, pg15, tmp_path)
    pg15.execute("DROP SEQUENCE public.calls")


OPEN = {"load": "open", "rate": 400.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ()),
        (OPEN, ("-R", 400)),
        # So many that none fails for good, however the clients take turns.
        ({"max_tries": 50}, ("--max-tries=50",)),
        (OPEN | {"max_tries": 50}, ("-R", 400, "--max-tries=50")),
        ({"detailed": True}, ("--failures-detailed",)),
    ],
    ids=["plain", "rate", "tries", "rate and tries", "detailed"],
)
def test_a_log_has_the_same_kinds_of_lines_as_pgbenchs(beside, changes, words):
    log = {"detailed": "detailed" in changes}
    changes = {name: value for name, value in changes.items() if name != "detailed"}
    done = beside.run(log, changes | {"threads": 2, "transactions": 30}, "-j", 2, "-t", 30, *words)
    assert shape(beside.ours) == shape(beside.theirs)
    assert len(beside.ours) == len(beside.theirs) == 60
    failed = [line for line in beside.ours if "failed" in line or "serialization" in line]
    assert len(failed) == sum(done.failed.values())
    assert len(list(beside.folder.glob("ours.*"))) == 2


def test_an_aggregated_log_has_pgbenchs_columns_and_one_more_and_loses_nothing(beside):
    log = {"aggregate_s": 1, "detailed": True}
    changes = {"transactions": None, "duration_ns": 3 * SECOND_NS, "load": "open", "rate": 100.0}
    words = ("-T", 3, "-R", 100, "--aggregate-interval=1", "--failures-detailed")
    done = beside.run(log, changes, *words)
    ours = [[int(word) for word in line.split()] for line in beside.ours]
    assert {len(line.split()) for line in beside.theirs} == {15}
    assert {len(line) for line in ours} == {16}
    assert sum(line[1] + sum(line[13:]) for line in ours) == done.due
    assert sum(line[13] for line in ours) == done.failed["40001"] > 0
    starts = [line[0] for line in ours]
    assert starts == list(range(starts[0], starts[0] + len(starts)))


def test_a_load_goes_on_without_a_log_that_can_no_longer_be_written(pg15, start_load, tmp_path):
    (tmp_path / f"full.{os.getpid()}").symlink_to("/dev/full")
    log = LogPlan(prefix=str(tmp_path / "full"))
    # Some are due in each of three seconds.
    load = start_load(pg15.dsn(), "\\sleep 200 ms\nSELECT 1;", transactions=12, log=log)
    with raises(LogError, "log-ended-early", errno=errno.ENOSPC):
        load.finish()
    assert (load.outcome.due, load.outcome.on_time) == (24, 24)


def test_an_error_of_the_load_is_not_hidden_by_one_of_its_log(pg15, start_load, tmp_path):
    (tmp_path / f"full.{os.getpid()}").symlink_to("/dev/full")
    text = "\\sleep 200 ms\n\\if :client_id\n\\sleep 1500 ms\nSELECT 1/0;\n\\endif\nSELECT 1;"
    log = LogPlan(prefix=str(tmp_path / "full"))
    load = start_load(
        pg15.dsn(), text, transactions=30, log=log,
        continue_on_error=False, recover=False, exit_on_abort=True,
    )  # fmt: skip
    with raises(RunError, "client-gave-up", client=1) as raised:
        load.finish()
    assert not isinstance(raised.value, LogError)


def test_the_name_of_a_log_need_not_be_utf_8(pg15, run_load, tmp_path):
    run_load(pg15.dsn(), "SELECT 1", log=LogPlan(prefix=str(tmp_path / "\udcff")))
    assert [path.name for path in tmp_path.glob("\udcff.*")] == [f"\udcff.{os.getpid()}"]


def test_a_log_that_cannot_be_written_is_refused_before_the_run(pg15, run_load, tmp_path):
    plan = LogPlan(prefix=str(tmp_path / "no" / "where"))
    with raises(PgpacesError, "log-not-opened"):
        run_load(pg15.dsn(), "SELECT 1", log=plan)
