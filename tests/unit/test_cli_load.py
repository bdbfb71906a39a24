"""`pgpaces load`: what a command that is timed asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError
from tests.unit.asked import asked

RESTORE = "pg_restore -d shop shop.dump"
MORE = ("--input", "shop.dump", "--rows", "select count(*) from t", "-t", "3", "-L", "5min")


def test_a_load_asks_for_a_command_that_is_run_so_often(tmp_path: Path) -> None:
    found = asked(["load", RESTORE, *MORE], tmp_path)["same"]
    assert found["transactions"] == 3
    assert found["latency_limit"] == "5min"
    assert found["workload"] == "pg_restore"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["load", " "], "the command is empty", "such as 'pgbench -i -s 10'"),
        (["load", "bulk-load"], "bulk-load is a workload", "`pgpaces run bulk-load`"),
    ],
)
def test_what_is_no_command_is_refused(words: list[str], message: str, hint: str) -> None:
    error = CliRunner().invoke(cli, words).exception
    assert isinstance(error, PlanError)
    assert message in error.message
    assert hint in str(error.hint)
