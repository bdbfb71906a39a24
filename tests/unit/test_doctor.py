"""`pgpaces doctor`: what is here, and what each missing part would give."""

import errno
import json
import os
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pgpaces.answers import doctor
from pgpaces.answers.doctor import Part
from pgpaces.cli.main import cli
from pgpaces.core.findings import finding
from pgpaces.core.messages import message
from pgpaces.monitor import machine
from tests.errors import sentence

HERE = Part("programs", "fio", "3.33", "the class of a disk")
ABSENT = Part("programs", "pgpool", "", "--pool pgpool", "Debian: apt install pgpool2")
BROKEN = Part("pgpaces", "load engine", "", "it cannot be loaded: no such file", needed=True)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PGPACES_STORE", raising=False)


def call(*words):
    return CliRunner().invoke(cli, ["doctor", *words], standalone_mode=False)


def test_what_is_here_fits_80_columns_and_json_has_every_part(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = call()
    assert result.return_value == 0, result.output
    lines = result.stdout.splitlines()
    assert (max(map(len, lines)) <= 80, len(lines) <= 16) == (True, True), result.stdout
    for group in ("PostgreSQL", "monitors", "machine", "data directory", "store"):
        assert f"\n  {group}" in result.stdout
    found = json.loads(call("--json").stdout)["value"]
    assert found["works"] is True
    names = {part["name"] for part in found["parts"]}
    assert {"load engine", "fio", "pgbouncer", "clock source", "CPU quota", "io_uring"} <= names
    assert all(part.state or part.gives for part in doctor.diagnose())
    monkeypatch.setenv("PGPACES_HOME", f"/{'x' * 300}")  # no file has such a name
    assert call().return_value == 5


def test_looking_makes_no_store_and_no_folder(tmp_path):
    shown = message("store-not-created", store=tmp_path / "home/results.db")
    assert shown in " ".join(call().stdout.split())
    assert not (tmp_path / "home").exists()


def test_a_missing_part_says_what_it_would_give_and_how_to_get_it():
    section = doctor.section((HERE, ABSENT))
    assert (section.headline.word, section.headline.mark) == ("PASS", "pass")
    missing = message("doctor-missing", part="pgpool", why=[ABSENT.gives, ABSENT.remedy])
    assert section.facts == (("programs", "fio 3.33"), ("missing", missing))


def test_only_what_pgpaces_itself_needs_is_an_error(monkeypatch):
    monkeypatch.setattr(doctor, "diagnose", lambda: (HERE, BROKEN))
    result = call()
    assert result.return_value == 5
    assert result.stdout.startswith("✗ FAIL  load engine: it cannot be loaded")


def test_a_slow_clock_and_few_open_files_are_warnings(monkeypatch):
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda _: (1024, 4096))
    slow = Part("machine", "clock source", "acpi_pm")
    clock, files = doctor.section((slow,)).findings
    assert clock == finding("clock-source-slow", clock="acpi_pm")
    assert files == finding("few-open-files", files=1024, clients=960)


def test_a_data_folder_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    [lacking] = [part for part in doctor.diagnose() if part.needed and not part.state]
    assert lacking.gives == message("home-not-writable", path=tmp_path)


@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("mysql://x", sentence("store-scheme", scheme="mysql://")),
        ("~nosuch-user/x", sentence("store-unknown-home", store="~nosuch-user/x", why="")),
        (f"/{'x' * 300}", "File name too long"),
    ],
)
def test_a_store_that_cannot_be_is_a_missing_part(store, why, monkeypatch):
    monkeypatch.setenv("PGPACES_STORE", store)
    result = call()
    assert result.return_value == 5, result.output
    assert result.stdout.startswith("✗ FAIL  store: ")
    [lacking] = [part for part in doctor.diagnose() if part.needed and not part.state]
    assert why in lacking.gives


def test_the_clock_source_is_what_the_kernel_says(tmp_path):
    folder = tmp_path / "devices/system/clocksource/clocksource0"
    folder.mkdir(parents=True)
    assert machine.clock_source(tmp_path) is None
    (folder / "current_clocksource").write_text("arch_sys_counter\n")
    assert machine.clock_source(tmp_path) == "arch_sys_counter"


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSYS, message("io-uring-absent")),
        (errno.EINVAL, message("io-uring-too-old")),
        (errno.EPERM, message("io-uring-refused")),
        (errno.EMFILE, os.strerror(errno.EMFILE)),
    ],
)
def test_where_io_uring_cannot_be_used_there_is_a_reason(monkeypatch, number, reason):
    refusing = SimpleNamespace(syscall=lambda *_: -1)
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda *_, **__: refusing)
    monkeypatch.setattr(machine.ctypes, "get_errno", lambda: number)
    assert machine.io_uring() == reason


def test_where_io_uring_can_be_used_its_ring_is_closed(monkeypatch):
    ring = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    opening = SimpleNamespace(syscall=lambda *_: ring)
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda *_, **__: opening)
    assert machine.io_uring() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(ring)
