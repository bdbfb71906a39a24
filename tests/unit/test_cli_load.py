"""`pgpaces load`: a command that is timed asks for what `pgpaces run --command` asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.errors import PlanError
from pgpaces.experiment import trial as pipeline
from tests.unit.asked import ReachedError, asked

RESTORE = "pg_restore -d shop shop.dump"
MORE = ("--input", "shop.dump", "--rows", "select count(*) from t", "-t", "3", "-L", "5min")


def test_a_load_asks_for_a_command_that_is_run_so_often(tmp_path: Path) -> None:
    found = asked(["load", RESTORE, *MORE], tmp_path)["same"]
    assert found["trial.transactions"] == "3"
    assert found["trial.limit_ns"] == str(300 * 10**9)
    assert found["workload"].startswith("pg_restore ")


@pytest.mark.parametrize("more", [(), MORE, ("-T", "10min", "--server-set", "fsync=off")])
def test_the_old_spelling_asks_for_the_same_and_names_the_new_one_once(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, before = ["load", RESTORE, *more], ["run", "--command", RESTORE, *more]
    assert asked(now, tmp_path) == asked(before, tmp_path)

    def reached(*_: object) -> None:
        raise ReachedError

    monkeypatch.setattr(pipeline, "run", reached)
    told = [CliRunner().invoke(cli, words).stderr for words in (now, before)]
    assert told[0] == ""
    assert told[1].splitlines() == [
        "warning: --command is now `pgpaces load COMMAND`; the old spelling ends with the next"
        " release"
    ]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["load", " "], "the command is empty", "such as 'pgbench -i -s 10'"),
        (["load", "bulk-load"], "bulk-load is a workload", "`pgpaces run bulk-load`"),
        (["run", "--rows", "SELECT 1"], "--rows belongs to --command", "a workload has its own"),
        (["run", "reporting", "--command", "true"], "--command is run instead", "--background"),
    ],
)
def test_what_is_no_command_is_refused(words: list[str], message: str, hint: str) -> None:
    error = CliRunner().invoke(cli, words).exception
    assert isinstance(error, PlanError)
    assert message in error.message
    assert hint in str(error.hint)
