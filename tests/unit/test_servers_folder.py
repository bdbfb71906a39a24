"""Where a server lives: socket paths that are too long, marked data folders, the lock."""

import os
import pwd
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.server import binaries, folder, managed_server, managed_standbys, profiles
from pgpaces.server.binaries import Installation, Source
from pgpaces.server.folder import SOCKET_PATH_BYTES_MAX, ServerFolder, ServerRecord
from pgpaces.spec import trust
from tests.errors import raises
from tests.unit.sure import sure

SOCKET_NAME = "/.s.PGSQL.5432"


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "servers" / "pg18"
    path.mkdir(parents=True)
    return ServerFolder(path)


LONGEST = SOCKET_PATH_BYTES_MAX - len(SOCKET_NAME) - 1


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("x" * LONGEST, True),
        ("x" * (LONGEST + 1), False),
        # Bytes count, not letters.
        ("x" * (SOCKET_PATH_BYTES_MAX // 2), True),
        ("ü" * (SOCKET_PATH_BYTES_MAX // 2), False),
        ("a,b", False),  # libpq splits there
    ],
)
def test_a_socket_path_fits_to_the_last_byte(name, fits):
    assert folder.fits_socket(Path(f"/{name}"), 5432) is fits


def test_the_socket_folder_is_private_and_in_the_servers_folder():
    short = ServerFolder(Path(folder.SHORT_FOLDERS) / f"pgpaces-test-{os.getpid()}")
    short.path.mkdir()
    try:
        made = folder.make_socket_folder(short, 5432, None)
        assert made == short.path / "run"
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(short.path)


def test_a_long_path_gets_a_short_private_socket_folder(place):
    long = ServerFolder(place.path / ("x" * SOCKET_PATH_BYTES_MAX))
    made = folder.make_socket_folder(long, 5432, None)
    try:
        assert made.parent == Path(folder.SHORT_FOLDERS)
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert folder.fits_socket(made, 65535)
    finally:
        made.rmdir()


@pytest.mark.parametrize(
    "variables", [{"PGPACES_HOME": "~nosuch-user/x"}, {"PGPACES_HOME": "~/x"}, {}]
)
def test_a_home_of_an_unknown_user_is_refused(variables, monkeypatch):
    for name in ("PGPACES_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    def no_entry(_: object) -> object:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.setattr(pwd, "getpwnam", no_entry)
    with pytest.raises(PlanError) as caught:
        folder.home()
    assert caught.value.name in ("no-home", "home-not-absolute")  # by the version of platformdirs


@pytest.mark.parametrize(
    "look",
    [
        managed_server.running,
        binaries.installations,
        profiles.names,
        lambda: managed_standbys.remove_lost("pg18", None),
        lambda: trust._recorded("unknown"),
    ],
)
def test_a_home_that_cannot_be_looked_at_has_nothing_in_it(look, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", f"/{'x' * 300}")  # no file has such a name
    look()


def test_a_chosen_data_folder_is_made_and_marked(place, tmp_path):
    made = folder.make_data_home(place, tmp_path)
    assert made == tmp_path / "pgpaces-pg18"
    assert (made / folder.MARKER).exists()
    assert folder.make_data_home(place, tmp_path) == made


def test_a_folder_with_something_of_others_is_refused(place, tmp_path):
    (tmp_path / "pgpaces-pg18").mkdir()
    (tmp_path / "pgpaces-pg18" / "thesis.tex").touch()
    with raises(ServerError, "folder-of-others", path=tmp_path / "pgpaces-pg18"):
        folder.make_data_home(place, tmp_path)


def test_a_data_folder_that_is_absent_is_not_made_because_its_disk_may_be_unmounted(
    place, tmp_path
):
    with raises(ServerError, "no-folder-for-data", path=tmp_path / "ssd"):
        folder.make_data_home(place, tmp_path / "ssd")


def test_only_one_holds_the_lock(place):
    first = sure(place.lock())
    assert place.lock() is None
    os.close(first)
    again = sure(place.lock())
    os.close(again)


def test_a_log_is_begun_anew_and_the_one_before_is_kept(place):
    place.log.write_text("yesterday")
    place.rotate_log()
    assert place.log.read_text() == ""
    assert (place.path / "log.1").read_text() == "yesterday"
    assert stat.S_IMODE(place.log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("status", "ready"), [("ready   ", True), ("starting", False), ("stopping", False), ("", False)]
)
def test_a_server_is_ready_when_postgresql_says_so(tmp_path, status, ready):
    assert folder.postmaster_pid(tmp_path) is None
    assert not folder.is_ready(tmp_path, 4711)
    lines = ["4711", str(tmp_path), "1795295533", "5432", "/run", "", "9977916 6", status]
    (tmp_path / "postmaster.pid").write_text("\n".join(lines))
    assert folder.is_ready(tmp_path, 4711) is ready
    assert not folder.is_ready(tmp_path, 4712)
    assert folder.postmaster_pid(tmp_path) == 4711


ON_SOCKET = ServerRecord(
    name="pg18",
    version="18.6",
    major=18,
    bin=Path("/pg/bin"),
    socket_dir=Path("/home/x/run"),
    port=5432,
    data_dir=Path("/home/x/data"),
    pid=4711,
    owner_pid=4700,
    stays=False,
    settings={"work_mem": "64MB"},
)
ON_TCP = replace(ON_SOCKET, port=5433, tcp_host="127.0.0.1", password_file=Path("/home/x/pgpass"))


def test_the_password_in_its_file_is_never_shown(tmp_path):
    file = tmp_path / "pgpass"
    file.write_text("*:*:*:postgres:s3cret\n")
    server = replace(ON_TCP, password_file=file)
    assert "s3cret" not in repr(server) + folder.to_json(server) + server.dsn()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_every_name_of_a_database_survives_quoting(dbname):
    from psycopg.conninfo import conninfo_to_dict

    assert conninfo_to_dict(ON_SOCKET.dsn(dbname))["dbname"] == dbname


@pytest.mark.parametrize(
    "server", [ON_SOCKET, ON_TCP, replace(ON_TCP, certificate=Path("/home/x/tls.crt"))]
)
def test_a_record_comes_back_from_its_file(server):
    assert folder.from_json(folder.to_json(server)) == server


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "name": "pg18"}'])
def test_a_torn_or_foreign_record_is_no_record(text):
    assert folder.from_json(text) is None


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("postgres (PostgreSQL) 18.6", ("18.6", 18)),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", ("15.18", 15)),
        ("postgres (PostgreSQL) 9.6.24", ("9.6.24", 9)),
        ("postgres (PostgreSQL) 19beta1", ("19beta1", 19)),
        ("postgres (PostgreSQL) 20devel", ("20devel", 20)),
        ("postgres (CockroachDB) 24.1", None),
    ],
)
def test_a_version_line_gives_version_and_major(line, found):
    assert binaries.parse_version(line) == found


def test_versions_are_ordered_as_they_were_released():
    released = ["9.6.24", "15.2", "15.18", "19devel", "19beta2", "19rc1", "19.0", "19.1"]
    assert sorted(reversed(released), key=binaries.version_key) == released


def here(*versions: str) -> list[Installation]:
    return [
        Installation(Path(f"/pg/{v}/bin"), v, int(v.split(".")[0].split("b")[0]), Source.PATH)
        for v in versions
    ]


AMONG = [*here("15.2", "15.18", "9.6.24", "19beta1"), *here("18.6"), *here("18.6"),
         replace(here("15.19")[0], source=Source.MAVEN)]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [("15", 1), ("15.2", 0), ("9.6", 2), ("19", 3), ("19beta1", 3), ("18", 4), ("package:15", 6),
     ("maven:15.19", 6), ("path:15", 1), ("pypi:15", None)],
)  # fmt: skip
def test_the_newest_match_of_a_version_is_chosen(wanted, chosen):
    """Installed ones first, and of equal ones the first that was found."""
    assert binaries.newest(wanted, AMONG) is (None if chosen is None else AMONG[chosen])


@pytest.mark.parametrize("absent", ["11", "15.1", "1"])
def test_an_absent_version_is_refused_and_the_present_ones_are_named(absent, monkeypatch):
    monkeypatch.setattr(binaries, "installations", lambda: here("15.18"))
    with raises(ServerError, "version-not-installed", version=absent) as caught:
        binaries.find(absent)
    assert "15.18" in caught.value.values["installed"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("15", True), ("maven:9.6", True), ("package:15.1", True), ("snap:15", False), ("/15", False)],
)
def test_a_version_is_told_from_a_folder(text, is_one):
    assert binaries.is_version(text) is is_one


@pytest.mark.parametrize(
    ("version", "major", "source", "name"),
    [
        ("15.18", 15, Source.DEBIAN, "pg15"),
        ("15.18", 15, Source.MAVEN, "pg15-maven"),
        ("9.6.24", 9, Source.MAVEN, "pg9.6-maven"),
        ("19beta1", 19, Source.EXPLICIT, "pg19"),
    ],
)
def test_a_server_is_called_after_its_version_and_its_package(version, major, source, name):
    assert Installation(Path("/pg"), version, major, source).server_name == name


def fake(folder: Path, says: str = "postgres (PostgreSQL) 16.4") -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{says}"\n')
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize("given", ["", "bin", "bin/postgres"])
def test_a_path_names_a_prefix_its_programs_or_a_program(tmp_path, given):
    folder = fake(tmp_path / "pg" / "bin")
    found = binaries.find(str(tmp_path / "pg" / given))
    assert found == Installation(folder, "16.4", 16, Source.EXPLICIT)


def test_a_program_that_does_not_tell_its_version_is_refused_with_its_words(tmp_path):
    with raises(ServerError, "no-postgres-here", path=tmp_path):
        binaries.find(str(tmp_path))
    folder = fake(tmp_path / "bin", says=(why := "libxml2.so.2: cannot open shared object file"))
    with raises(ServerError, "postgres-does-not-run", program=folder / "postgres", why=why):
        binaries.find(str(folder))


def test_an_installation_reached_by_two_ways_is_listed_once(tmp_path, monkeypatch):
    real = fake(tmp_path / "real")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "postgres").symlink_to(real / "postgres")
    monkeypatch.setenv("PATH", f"{linked}:{real}")
    ours = [i for i in binaries.installations() if i.bin.is_relative_to(tmp_path)]
    assert ours == [Installation(real, "16.4", 16, Source.PATH)]


def test_without_the_package_the_error_names_what_is_installed(monkeypatch):
    monkeypatch.setattr(binaries, "PACKAGE", "no_such_package")
    with raises(ServerError, "embedded-not-installed"):
        binaries.find()
