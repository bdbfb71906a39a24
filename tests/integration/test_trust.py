"""SQL of folders that were not confirmed, by real psql and a real server."""

from pathlib import Path

import pytest
from tests.commands import Command
from tests.errors import raises
from tests.servers import Postgres, access_to

from pgpaces.core.errors import TrustError
from pgpaces.database import identity, programs, psql
from pgpaces.spec import trust

pytestmark = pytest.mark.postgres

TOML = 'description = "d"\nwrites = false\ninit = ["init.sql"]\n[[scripts]]\nfile = "s.sql"\n'
VALUES = {"scale": "1", "seed": "1"}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(trust, "_CONFIRMED", set())


def folder(tmp_path: Path, init: str, **files: str) -> Path:
    made = tmp_path / "theirs"
    made.mkdir()
    for name, text in {
        "workload_toml": TOML,
        "init_sql": init,
        "s_sql": "SELECT 1;",
        **files,
    }.items():
        (made / name.replace("_", ".")).write_text(text)
    return made


def load(made: Path, server: Postgres, consent: trust.Consent) -> None:
    """Runs the folder's init.sql in database postgres, as a run does in its own."""
    found = trust.find(str(made), consent)
    access = access_to(server)
    way = psql.ClientProgram(access.psql, access.keywords, "postgres")
    programs.make_data(way, found, VALUES, say=print)


# Our search takes the command for a part of a string, of a name or of data; psql does not.
DECEIVING = {
    "old strings": "SET standard_conforming_strings = off;\nSELECT '\\'';\n\\! {}\nSELECT '';\n",
    "a name with dollars": "SELECT 1 AS x$a$;\n\\! {}\n-- $a$\n",
    "a table called stdin": (
        "CREATE TEMP TABLE stdin (copy int);\nSELECT copy t FROM stdin;\n\\! {}\n"
    ),
}


@pytest.mark.parametrize("name", DECEIVING)
def test_who_deceives_our_search_does_not_deceive_psql(tmp_path, pg15, name):
    mark = tmp_path / "ran"
    made = folder(tmp_path, DECEIVING[name].format(f"touch {mark}"))
    assert not trust.actions_of(trust.find(str(made)))
    with raises(TrustError, "psql-commands-untrusted"):
        load(made, pg15, trust.refuse)
    assert not mark.exists()
    load(made, pg15, trust.grant)
    assert mark.exists()


def test_unconfirmed_sql_may_have_data_variables_and_all_that_is_no_command_of_psql(tmp_path, pg15):
    text = (
        "CREATE TEMP TABLE t (x text);\nCOPY t FROM stdin;\na\\tb\n\\N\n\\\\!\n\\.\n"
        "SELECT 1 / (count(*) = 3)::int FROM t;\n"
        "SELECT 1 / :scale, ':seed', E'\\\\!' \\; SELECT 2;\n"
    )
    load(folder(tmp_path, text), pg15, trust.refuse)


def test_what_confirmed_sql_includes_is_read_in_its_folder_wherever_we_are(
    tmp_path, pg15, monkeypatch
):
    text = (
        "\\ir a.sql\n\\i a.sql\n\\copy t from 'rows.csv'\nSELECT 1 / (count(*) = 2)::int FROM t;\n"
    )
    made = folder(
        tmp_path, text, a_sql="CREATE TEMP TABLE IF NOT EXISTS t (x int);", rows_csv="1\n2\n"
    )
    monkeypatch.chdir(tmp_path)
    load(made, pg15, trust.grant)


def test_unconfirmed_sql_as_a_superuser_of_an_external_server_is_warned_of(
    tmp_path, pg15, pgpaces_home
):
    made = folder(tmp_path, "CREATE TABLE t (x int);")
    pgpaces = Command(pgpaces_home, tmp_path / "results.db")
    words = ("run", made, "-T", "1s", "--warmup", "0", "--target", pg15.dsn("postgres"), "--json")
    ended = pgpaces(*words)
    findings = ended.json()["validity"]["findings"]
    assert [each["name"] for each in findings].count("unconfirmed-superuser") == 1
    assert "warning: unconfirmed-superuser: " in ended.err
    findings = pgpaces(*words, "--trust").json()["validity"]["findings"]
    assert "unconfirmed-superuser" not in {each["name"] for each in findings}
    assert not identity.is_superuser(access_to(pg15, "u_trust"))
