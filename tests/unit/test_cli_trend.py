"""`pgpaces trend`: which runs are followed, what is refused, what is said of a change."""

import json
import time
from datetime import timedelta

import pytest
from click.testing import CliRunner

from pgpaces.cli.answers import trend
from pgpaces.cli.main import cli
from pgpaces.core.findings import finding
from tests.unit.calling import refused, said
from tests.unit.stored import START, Kept, keep, opened


def called(store, *words):
    return CliRunner().invoke(trend, [*words, "--verbose", "--store", str(store)])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run a night, slower by a quarter from the seventh on, with another server."""
    path = tmp_path_factory.mktemp("trend")
    store = opened(path)
    for night in range(12):
        changed = night >= 6
        server = {"version": "18.1", "version_text": "18.1"} if changed else {}
        ms = (12.5 if changed else 10.0) + 0.02 * (night % 3)
        keep(store, Kept(f"N{night:02}", ms, at=night, server=server))
        store.tag("nightly", f"N{night:02}")
    keep(store, Kept("NBAD", 99.0, at=3.5, state="interrupted"))
    store.tag("nightly", "NBAD")
    keep(store, Kept("OTHER", 30.0, at=2.5, plan={"clients": 8}))
    return path / "results.db"


def test_a_change_is_told_with_when_which_run_and_by_how_much(place):
    text = said(called(place, "nightly", "--metric", "mean", "--factor", "server"))
    assert text.startswith("✗ WORSE mean +25% (95% CI +2")
    assert "since run N06" in text
    assert str(finding("trials-left-out", count=1)) in text
    assert "next: pgpaces report N05 N06 -o change.html" in text


def test_times_are_those_of_runs_and_of_reports_and_in_utc(place, tmp_path, monkeypatch):
    def shown(*words):
        env = {"COLUMNS": "150"}
        done = CliRunner(env=env).invoke(cli, [*words, "--store", str(place)])
        assert done.exit_code == 0, done.output
        return done.stdout

    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kathmandu")
        time.tzset()
        levels = shown("trend", "nightly", "--factor", "server", "--metric", "mean", "--verbose")
        runs = shown("runs", "--tag", "nightly")
        shown("report", "nightly", "-o", str(tmp_path / "page.md"))
    time.tzset()
    at, report = START + timedelta(days=6), (tmp_path / "page.md").read_text()
    assert f"since {at:%Y-%m-%d %H:%M} UTC (N06)" in levels
    for text, form in ((levels, "%Y-%m-%d %H:%M"), (runs, "%m-%d %H:%M"), (report, "%H:%M")):
        assert f"{at:{form}}" in text
    assert "started (UTC)" in runs


def test_versions_of_pgpaces_may_differ_as_a_factor(place):
    words = ("nightly", "--metric", "mean", "--factor", "server")
    assert said(called(place, *words, "--factor", "pgpaces")) == said(called(place, *words))


@pytest.mark.parametrize(
    ("words", "expected"), [("--metric missed", "trend 'missed'"), ("nobody", "there is no")]
)
def test_what_cannot_be_followed_is_said(place, words, expected):
    assert expected in refused(called(place, *words.split())).message


def test_one_run_stands_for_its_kind(place):
    assert said(called(place, "OTHER")).startswith("? UNKNOWN 1 run; a trend needs 8")
    found = json.loads(called(place, "N03", "--factor", "server", "--json").stdout)
    assert len(found["trials"]) == 12


def test_runs_that_differ_in_more_than_time_are_refused_and_listed(place):
    error = refused(called(place, "nightly", "--metric", "mean"))
    assert "PostgreSQL: 18.6 (6), 18.1 (6)" in error.message
    assert error.hint is not None
    assert "--factor" in error.hint
    text = said(called(place, "nightly", "--metric", "mean", "--anyway"))
    assert str(finding("runs-differ-otherwise", factors=["PostgreSQL"])) in text


def test_a_workload_means_all_its_runs(place):
    assert "clients: 2 (12), 8 (1)" in refused(called(place, "w", "--factor", "server")).message


def test_without_a_name_the_runs_like_the_newest_are_followed(place):
    few = said(called(place, "--metric", "mean"))
    assert few.startswith("? UNKNOWN 6 runs; a trend needs 8"), "those of the newer server"
    found = json.loads(called(place, "--factor", "server", "--json").stdout)
    assert found["trials"] == [f"N{night:02}" for night in range(12)], "in the order of time"


def test_a_document_has_changes_levels_and_the_answer(place):
    words = ("nightly", "--metric", "p95", "--factor", "server", "--json")
    found = json.loads(called(place, *words).stdout)
    assert [change["first"][:3] for change in found["value"]["changes"]] == ["N06"]
    assert [level["runs"] for level in found["value"]["levels"]] == [6, 6]
    assert found["verdict"]["outcome"] == "WORSE"
