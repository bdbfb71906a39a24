"""Why late, on the embedded server: from a lock that was really held to the command's answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.integration import causes

import pgpaces
from pgpaces.cli.main import cli

pytestmark = pytest.mark.postgres


def test_a_session_that_holds_rows_is_named(pgpaces_home: Path, tmp_path: Path) -> None:
    place = causes.Place(tmp_path, seconds=7)
    run = causes.lock(place)
    found = pgpaces.why(run.id, store=place.store).value
    assert found.cause is not None, found
    assert found.cause.key == "lock"
    said = " ".join(found.cause.said)
    assert "nightly job" in said
    assert "UPDATE pgbench_branches" in said

    report = tmp_path / "why.html"
    words = ["why", "--json", "-o", str(report), "--store", str(place.store)]
    told = CliRunner().invoke(cli, words)
    assert told.exit_code == 0, told.output
    [answer] = json.loads(told.stdout)
    assert answer["value"]["causes"][0]["key"] == "lock"
    assert answer["trials"] == [run.id]
    page = report.read_text()
    assert page.count("Why late: ") == 1
    assert "locks that another session held" in page


def test_too_few_clients_are_named(pgpaces_home: Path, tmp_path: Path) -> None:
    place = causes.Place(tmp_path, repeat=1, seconds=4)
    found = pgpaces.why(causes.connections(place).id, store=place.store).value
    assert found.cause is not None, found
    assert found.cause.key == "connections"
    assert "--clients 2,4,8" in found.cause.command
