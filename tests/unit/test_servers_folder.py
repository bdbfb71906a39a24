"""Where a server lives: socket paths that are too long, marked data folders, the lock."""

import os
import pwd
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.server import binaries, embedded, folder, profiles, topology
from pgpaces.server.folder import SOCKET_PATH_BYTES_MAX, ServerFolder
from pgpaces.spec import trust

SOCKET_NAME = "/.s.PGSQL.5432"


@pytest.fixture
def place(tmp_path: Path) -> ServerFolder:
    path = tmp_path / "servers" / "pg18"
    path.mkdir(parents=True)
    return ServerFolder(path)


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_a_socket_path_fits_to_the_last_byte(spare: int, fits: bool) -> None:
    length = SOCKET_PATH_BYTES_MAX - len(SOCKET_NAME) - spare
    assert folder.fits_socket(Path("/" + "x" * (length - 1)), 5432) is fits


def test_the_length_of_a_socket_path_counts_bytes_not_letters() -> None:
    letters = SOCKET_PATH_BYTES_MAX // 2
    assert folder.fits_socket(Path("/" + "x" * letters), 5432)
    assert not folder.fits_socket(Path("/" + "ü" * letters), 5432)


def test_a_comma_cannot_be_in_a_socket_path_because_libpq_splits_there() -> None:
    assert not folder.fits_socket(Path("/a,b"), 5432)


def test_the_socket_folder_is_private_and_in_the_servers_folder() -> None:
    short = ServerFolder(Path(folder.SHORT_FOLDERS) / f"pgpaces-test-{os.getpid()}")
    short.path.mkdir()
    try:
        made = folder.make_socket_folder(short, 5432, None)
        assert made == short.path / "run"
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    finally:
        shutil.rmtree(short.path)


def test_a_long_path_gets_a_short_private_socket_folder(place: ServerFolder) -> None:
    long = ServerFolder(place.path / ("x" * SOCKET_PATH_BYTES_MAX))
    made = folder.make_socket_folder(long, 5432, None)
    try:
        assert made.parent == Path(folder.SHORT_FOLDERS)
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert folder.fits_socket(made, 65535)
    finally:
        made.rmdir()


def test_home_is_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    assert folder.home() == tmp_path
    assert folder.server_folder("pg18").path == tmp_path / "servers" / "pg18"


@pytest.mark.parametrize(
    "variables", [{"PGPACES_HOME": "~nosuch-user/x"}, {"PGPACES_HOME": "~/x"}, {}]
)
def test_a_home_of_an_unknown_user_is_refused(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGPACES_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)

    def no_entry(_: object) -> object:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.setattr(pwd, "getpwnam", no_entry)
    with pytest.raises(PlanError, match="the home of pgpaces cannot be") as caught:
        folder.home()
    assert caught.value.hint == "set PGPACES_HOME to an absolute path"


@pytest.mark.parametrize(
    "look",
    [
        embedded.running,
        binaries.installations,
        profiles.names,
        lambda: topology.remove_lost("pg18", None),
        lambda: trust._recorded("unknown"),
    ],
)
def test_a_home_that_cannot_be_looked_at_has_nothing_in_it(
    look: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPACES_HOME", f"/{'x' * 300}")  # no file has such a name
    look()


def test_a_chosen_data_folder_is_made_and_marked(place: ServerFolder, tmp_path: Path) -> None:
    made = folder.make_data_home(place, tmp_path)
    assert made == tmp_path / "pgpaces-pg18"
    assert (made / folder.MARKER).exists()
    assert folder.make_data_home(place, tmp_path) == made


def test_a_folder_with_something_of_others_is_refused(place: ServerFolder, tmp_path: Path) -> None:
    (tmp_path / "pgpaces-pg18").mkdir()
    (tmp_path / "pgpaces-pg18" / "thesis.tex").touch()
    with pytest.raises(ServerError, match="did not make"):
        folder.make_data_home(place, tmp_path)


def test_a_data_folder_that_is_absent_is_not_made_because_its_disk_may_be_unmounted(
    place: ServerFolder, tmp_path: Path
) -> None:
    with pytest.raises(ServerError, match="no folder") as caught:
        folder.make_data_home(place, tmp_path / "ssd")
    assert "mount" in str(caught.value.hint)


def test_only_one_holds_the_lock(place: ServerFolder) -> None:
    first = place.lock()
    assert first is not None
    assert place.lock() is None
    os.close(first)
    again = place.lock()
    assert again is not None
    os.close(again)


def test_a_log_is_begun_anew_and_the_one_before_is_kept(place: ServerFolder) -> None:
    place.log.write_text("yesterday")
    place.rotate_log()
    assert place.log.read_text() == ""
    assert (place.path / "log.1").read_text() == "yesterday"
    assert stat.S_IMODE(place.log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("status", "ready"), [("ready   ", True), ("starting", False), ("stopping", False), ("", False)]
)
def test_a_server_is_ready_when_postgresql_says_so(
    tmp_path: Path, status: str, ready: bool
) -> None:
    lines = ["4711", str(tmp_path), "1795295533", "5432", "/run", "", "9977916 6", status]
    (tmp_path / "postmaster.pid").write_text("\n".join(lines))
    assert folder.is_ready(tmp_path, 4711) is ready
    assert not folder.is_ready(tmp_path, 4712)
    assert folder.postmaster_pid(tmp_path) == 4711


def test_without_postmaster_pid_nothing_runs_on_the_data(tmp_path: Path) -> None:
    assert folder.postmaster_pid(tmp_path) is None
    assert not folder.is_ready(tmp_path, 4711)
