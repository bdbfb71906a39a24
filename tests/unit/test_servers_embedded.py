"""What server may be asked for, and what its processes are told. No server is started."""

import os
import stat
from pathlib import Path

import pytest

from pgpaces.errors import PlanError, ServerError
from pgpaces.servers import access, os_user, postmaster
from pgpaces.servers.binaries import Installation, Source
from pgpaces.servers.embedded import ServerSpec, running, stop
from pgpaces.servers.os_user import OsUser

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
        postmaster.copy(PG18, "host=/nowhere", data, None, 0)
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
        os_user.make_folder(made)
        assert {stat.S_IMODE(f.stat().st_mode) for f in (made, made.parent)} == {mode}


def test_where_nothing_was_started_nothing_runs_and_nothing_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    assert running() == []
    with pytest.raises(ServerError, match="no server 'pg18' runs; running: none"):
        stop("pg18")
