"""`pgpaces runs`: an experiment is one line among the runs."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from tests.unit.answered import unpacked

_ID = re.compile(r" [0-9A-Z]{8} ")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    return unpacked(tmp_path_factory.mktemp("frozen"))


def listed(frozen: Path, *words: str, width: int = 120) -> list[str]:
    done = CliRunner(env={"COLUMNS": str(width)}).invoke(
        cli, ["runs", "--store", str(frozen), *words]
    )
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[2:]


def test_the_trials_of_an_experiment_are_one_line_among_the_runs(frozen):
    lines = listed(frozen, "-n", "100")
    folded = [line.split(" trials")[0] for line in lines if " trials" in line]
    assert folded == ["capacity: 16", "pairs: 16", "scaling: 18", "swept: 12"]
    assert len(_ID.findall("\n".join(lines))) == 4 + 21
    assert len(_ID.findall("\n".join(listed(frozen, "-n", "5")))) == 5, "an experiment is one"
    assert len(_ID.findall("\n".join(listed(frozen, "--experiment", "pairs")))) == 16


def test_80_columns_have_names_in_whole_words(frozen):
    lines = listed(frozen, "-n", "100", width=80)
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]
    wide = {word for line in listed(frozen, "-n", "100") for word in line.split()}
    assert {word for line in lines for word in line.split()} <= wide


def test_a_new_home_has_no_runs_and_listing_makes_no_store(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    for words in (["runs"], ["runs", "-E"], ["show"], ["why"], ["report"], ["trend"]):
        done = CliRunner().invoke(cli, words)
        assert re.search("no (runs|experiments) yet|'none-yet'", done.stderr + repr(done.exception))
    assert not (tmp_path / "home").exists()


def test_an_experiment_that_cannot_be_read_hides_no_other(frozen, tmp_path):
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(frozen.read_bytes())
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("UPDATE experiment SET state = 'broken' WHERE name = 'pairs'")
        connection.commit()
    lines = listed(damaged, "-n", "100")
    assert [line for line in lines if line.endswith(" damaged")]
    assert len(_ID.findall("\n".join(lines))) == 4 + 21
