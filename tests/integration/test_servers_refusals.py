"""Servers that cannot start, and the users they run as, with a real PostgreSQL."""

import os
import pwd
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.needs import lacking, needs

from pgpaces.core.errors import ServerError
from pgpaces.server import binaries, embedded, os_user
from pgpaces.server.binaries import Installation, Source
from pgpaces.server.embedded import ServerSpec
from pgpaces.server.folder import server_folder
from pgpaces.server.os_user import OsUser

pytestmark = pytest.mark.postgres
GONE_S = 60.0


@pytest.fixture(autouse=True)
def home(empty_home: Path) -> Path:
    return empty_home


@pytest.fixture
def spec() -> ServerSpec:
    return ServerSpec(binaries.find())


@pytest.mark.parametrize(
    ("name", "value", "fatal"),
    [
        ("nosuch", "1", 'FATAL: unrecognized configuration parameter "nosuch"'),
        ("shared_buffers", "plenty", 'FATAL: invalid value for parameter "shared_buffers"'),
        ("shared_preload_libraries", "nosuch", 'FATAL: could not access file "nosuch"'),
        ("wal_level", "x", "Available values: minimal, replica, logical"),
    ],
)
def test_a_wrong_setting_is_refused_with_postgresqls_line(
    spec: ServerSpec, name: str, value: str, fatal: str
) -> None:
    with pytest.raises(ServerError) as caught:
        embedded.start(ServerSpec(spec.installation, settings={name: value}))
    assert fatal in caught.value.message
    assert str(server_folder("pg18").log) in str(caught.value.hint)


def test_after_a_refusal_nothing_is_left_and_the_next_start_works(spec: ServerSpec) -> None:
    with pytest.raises(ServerError):
        embedded.start(ServerSpec(spec.installation, settings={"nosuch": "1"}))
    left = {path.name for path in server_folder("pg18").path.iterdir()}
    assert left == {"data", "lock", "log", "pg_hba.conf"}
    with embedded.start(spec) as server:
        assert server.pid


def test_a_port_in_use_is_refused_and_named(
    spec: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(embedded, "choose_port", lambda *, tcp: port)
        with pytest.raises(ServerError, match="Address already in use") as caught:
            embedded.start(ServerSpec(spec.installation, tcp=True))
    assert "start the server again" in str(caught.value.hint)


def test_data_of_another_major_version_is_refused(spec: ServerSpec) -> None:
    data = server_folder("pg18").path / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("11\n")
    with pytest.raises(ServerError, match=r"was made by PostgreSQL 11, and 18\S* cannot use it"):
        embedded.start(spec)


def test_a_stale_postmaster_pid_does_not_hinder(spec: ServerSpec) -> None:
    with embedded.start(spec) as server:
        text = (server.data_dir / "postmaster.pid").read_text()
    done = subprocess.Popen(["true"])
    done.wait()
    stale = server.data_dir / "postmaster.pid"
    stale.write_text(text.replace(str(server.pid), str(done.pid), 1))
    os_user.give(stale, os_user.os_user_for(server.data_dir))
    with embedded.start(spec) as server:
        assert server.pid


def test_data_that_a_server_of_others_uses_is_refused(spec: ServerSpec) -> None:
    with embedded.start(spec) as server:
        other = server_folder("thief")
        other.path.mkdir()
        (other.path / "data").symlink_to(server.data_dir)
        with pytest.raises(ServerError, match="already exists") as caught:
            embedded.start(ServerSpec(spec.installation, "thief"))
        assert f"stop process {server.pid}" in str(caught.value.hint)


@needs("an ordinary user")
def test_a_home_that_cannot_be_written_is_refused(
    home: Path, spec: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "closed").mkdir(mode=0o500)
    monkeypatch.setenv("PGPACES_HOME", str(home / "closed" / "home"))
    with pytest.raises(ServerError, match="Permission denied") as caught:
        embedded.start(spec)
    assert "PGPACES_HOME" in str(caught.value.hint)


@needs("root")
def test_root_runs_servers_as_an_unprivileged_user_who_owns_the_data_alone(
    home: Path, spec: ServerSpec
) -> None:
    with embedded.start(spec) as server:
        owner = server.data_dir.stat().st_uid
        assert pwd.getpwuid(owner).pw_name in os_user.CANDIDATES
        assert Path(f"/proc/{server.pid}").stat().st_uid == owner
        ours = (home, server.data_dir.parent, server.folder.log, server.folder.record_file)
        assert {path.stat().st_uid for path in ours} == {0}


@needs("root")
def test_data_stays_with_the_user_who_owns_it(spec: ServerSpec) -> None:
    nobody = pwd.getpwnam("nobody")
    with embedded.start(spec) as server:
        data = server.data_dir
    for path in (data, *data.rglob("*")):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    with embedded.start(spec) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == nobody.pw_uid


@needs("root")
def test_a_home_that_the_servers_user_cannot_enter_is_refused_and_left_as_it_is(
    home: Path, spec: ServerSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setenv("PGPACES_HOME", str(closed / "home"))
    with pytest.raises(ServerError, match=f"cannot enter {closed} on the way") as caught:
        embedded.start(spec)
    assert "PGPACES_HOME" in str(caught.value.hint)
    assert closed.stat().st_mode & 0o777 == 0o700


def hidden_package(home: Path) -> Installation:
    """The package's programs below a folder that only root can enter."""
    original = binaries.find()
    package = original.bin.parents[1]
    hidden = home / "hidden"
    hidden.mkdir(mode=0o700)
    for tree in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(tree, hidden / tree.name, symlinks=True)
    folder = hidden / package.name / "pginstall" / "bin"
    return Installation(folder, original.version, original.major, Source.EMBEDDED)


@needs("root")
def test_programs_that_the_servers_user_cannot_reach_are_copied_once(home: Path) -> None:
    hidden = hidden_package(home)
    with embedded.start(ServerSpec(hidden)) as server:
        assert server.bin.is_relative_to(home / "cache")
        copied_at = server.bin.stat().st_ctime_ns
    with embedded.start(ServerSpec(hidden)) as server:
        assert server.bin.stat().st_ctime_ns == copied_at
    assert [path.name for path in (home / "cache").glob(".*")] == []


@needs("root")
def test_programs_of_others_are_not_copied_but_their_folder_is_named(home: Path) -> None:
    hidden = binaries.inspect(hidden_package(home).bin)
    with pytest.raises(ServerError, match=r"cannot run .*hidden") as caught:
        embedded.start(ServerSpec(hidden))
    assert "chmod o+x" in str(caught.value.hint)


def python_for(user: OsUser) -> str | None:
    """A Python of our version or later that the user can run."""
    for program in (sys.executable, "/usr/bin/python3"):
        test = [program, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            done = subprocess.run(test, cwd="/", env={}, check=False, **user.popen_options())
        except OSError:
            continue
        if done.returncode == 0:
            return program
    return None


@needs("root")
def test_an_ordinary_user_starts_servers_as_itself(home: Path, spec: ServerSpec) -> None:
    entry = pwd.getpwnam("nobody")
    nobody = OsUser(entry.pw_name, entry.pw_uid, entry.pw_gid)
    if (python := python_for(nobody)) is None:
        lacking("a Python that every user may run")
    shutil.copytree(Path(embedded.__file__).parents[1], home / "python" / "pgpaces")
    # What it needs of our environment, which nobody else may read.
    shutil.copytree(Path(msgspec.__file__).parent, home / "python" / "msgspec")
    os_user.let_all_read(home / "python")
    own = home / "own"
    os_user.make_private_folder(own, nobody)
    script = f"""
import os
from pgpaces.server import binaries, embedded
installation = binaries.find({str(os_user.reachable(spec.installation, nobody, home / "c").bin)!r})
with embedded.start(embedded.ServerSpec(installation)) as server:
    print(os.stat(server.data_dir).st_uid, os.stat(server.folder.path).st_mode & 0o777)
print(embedded.running())
"""
    done = subprocess.run(
        [python, "-c", script],
        cwd="/",
        env={"PYTHONPATH": str(home / "python"), "PGPACES_HOME": str(own), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        **nobody.popen_options(),
    )
    assert done.stdout.splitlines() == [f"{entry.pw_uid} {0o700}", "[]"], done.stderr
