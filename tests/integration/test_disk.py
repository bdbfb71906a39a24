"""A disk measured by a real fio: what is found, and that nothing is ever left behind."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests import volumes
from tests.errors import raises, sentence
from tests.needs import lacking, needs
from tests.processes import alive, children
from tests.waiting import DEADLINE_S, until

import pgpaces
from pgpaces.analysis import disks
from pgpaces.analysis.disks import Device, Disk
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError, RunError
from pgpaces.disk import fio, measure
from pgpaces.monitor.machine import device_of
from pgpaces.spec.setup import HostFacts
from pgpaces.store.listing import DiskRow
from pgpaces.store.store import Store, new_id

SMALL = fio.DiskRequest(fio.SIZE_MIN, 1, fio.Lengths(1, 1, 1, 3))


@pytest.fixture
def disk(tmp_path_factory):
    """A folder on a disk."""
    folder = tmp_path_factory.mktemp("disk") / "disk"
    folder.mkdir()
    filesystem = device_of(folder).filesystem
    if filesystem in ("tmpfs", "ramfs", "overlay"):
        lacking("a temporary folder on a disk", filesystem)
    return folder


def run(*words: object, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command, with nobody to be asked."""
    environment = {**os.environ, **({} if path is None else {"PATH": path})}
    command = [sys.executable, "-m", "pgpaces", "disk", *map(str, words)]
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@needs("fio")
def test_everything_is_measured_and_nothing_is_left(disk):
    found = measure.measure(disk, SMALL, lambda *_: None)
    assert list(disk.iterdir()) == []
    assert [each.job for each in found.measured] == [*disks.CARD, *disks.POSTGRES]
    assert all(each.iops > 0 for each in found.measured)
    for each in found.measured:
        assert each.bytes_written <= 1.1 * 3 * fio.SIZE_MIN
    assert found.of(disks.COMMIT)[0].flushes["p50"] > 0
    assert disks.card_class(found) in ("A2", "A1", "below A1")
    assert found.missing == ()
    assert found.device.filesystem


@needs("fio")
@pytest.mark.slow
def test_a_quick_look_writes_less_than_what_is_asked_about(disk):
    store = disk.parent / "store.db"
    done = run(disk, "--quick", "--name", "ssd", "--store", store, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)["value"]
    written = sum(each["bytes_written"] for each in document["measured"])
    assert written < fio.CONSENT_BYTES
    assert len([m for m in document["measured"] if m["job"] == disks.CARD_READ]) == 3
    again = run("--compare", "ssd", "last", "--store", store)
    assert "1.00" in again.stdout


def test_how_a_folder_is_encrypted_by_the_kernel_is_found(disk):
    with volumes.fscrypt(disk) as encrypted:
        assert device_of(encrypted).encryption == "fscrypt (file encryption)"
        inside = encrypted / "data"
        inside.mkdir()
        assert device_of(inside).id == device_of(encrypted).id
        assert device_of(encrypted).id != device_of(encrypted.parent).id
        assert device_of(encrypted.parent).encryption == ""


def test_without_fio_it_says_where_to_get_it(disk):
    done = run(disk, "--quick", path=str(disk))
    assert done.returncode == RunError.exit_code
    assert sentence("not-installed", program="fio") in done.stderr
    assert "apt install fio" in done.stderr
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(["{disk}"], "disk-needs-consent", marks=needs("fio")),
        (["{disk}", "--quick", "--size", "4096GB"], "disk-too-full"),
        (["{disk}/none", "--quick"], "disk-folder-missing"),
        (["{disk}", "{disk}"], "disk-needs-folder {'count': 2}"),
        ([], "disk-needs-folder {'count': 0}"),
        (["{disk}", "--size", "1MB"], "disk-file-too-small"),
        (["--compare", "one"], "number-of-disks {'option': '--compare', 'expected': '2 to 9', "),
        (["--list", "x"], "number-of-disks {'option': '--list', 'expected': 0, 'count': 1}"),
        (["--show", "nothing"], "there is no disk 'nothing'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(disk, words, sentence):
    asked = [word.format(disk=disk) for word in words]
    Store.open(disk.parent / "store.db")
    words = ["disk", *asked, "--store", str(disk.parent / "store.db")]
    error = CliRunner().invoke(cli, words).exception
    assert isinstance(error, PlanError)
    assert sentence in f"{error.name} {error.values} {error} {error.hint}"
    assert list(disk.iterdir()) == []


def refused(disk: Path, name: str, path: Path) -> None:
    with raises(PlanError, name, path=path), measure.workspace(disk):
        raise AssertionError


def test_a_folder_of_somebody_elses_or_a_link_is_not_touched(disk):
    theirs = disk / measure.NAME / "precious"
    theirs.parent.mkdir()
    theirs.write_text("x")
    refused(disk, "disk-folder-not-ours", theirs.parent)
    assert theirs.read_text() == "x"
    theirs.parent.rename(disk.parent / "elsewhere")
    (disk / measure.NAME).symlink_to(disk.parent / "elsewhere")
    refused(disk, "disk-folder-not-ours", disk / measure.NAME)


def test_one_disk_is_measured_by_one_at_a_time(disk):
    with measure.workspace(disk) as ours:
        refused(disk, "disk-busy", disk)
        assert ours.is_dir()
    ours.mkdir()
    held = os.open(ours / measure.MARKER, os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    refused(disk, "disk-busy", disk)
    os.close(held)
    with measure.workspace(disk):
        pass
    assert list(disk.iterdir()) == []


@pytest.fixture
def measuring(disk):
    """A pgpaces disk whose fio reads for ten seconds, with two jobs done."""
    words = [sys.executable, "-m", "pgpaces", "disk", str(disk), "--yes", "--size", "8MB"]
    words += ["--store", str(disk.parent / "store.db")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as started:
        assert started.stderr is not None
        for line in started.stderr:
            if line.startswith(disks.CARD_READ):
                break
        until(lambda: bool(children(started.pid)), "fio starts")
        yield started
        started.kill()


@needs("fio")
def test_ctrl_c_keeps_what_there_is_and_says_what_is_missing(measuring, disk):
    fio = children(measuring.pid)
    measuring.send_signal(signal.SIGINT)
    printed, _ = measuring.communicate(timeout=DEADLINE_S)
    assert measuring.returncode == 130
    assert list(disk.iterdir()) == []
    until(lambda: not any(map(alive, fio)), "fio ended")
    assert "! disk-incomplete: " in printed
    kept = Store.open(disk.parent / "store.db").disks()
    assert kept[0].disk.missing[0] == "4 KiB random read, run 1 of 3"
    assert [each.job for each in kept[0].disk.measured] == list(disks.CARD[:2])
    assert disks.card_class(kept[0].disk) is None


@needs("fio")
def test_what_a_kill_leaves_is_ended_at_once_and_removed_by_the_next(measuring, disk):
    fio = children(measuring.pid)
    measuring.kill()
    measuring.wait()
    assert (disk / measure.NAME / "data").exists()
    until(lambda: not any(map(alive, fio)), "fio ended")
    with measure.workspace(disk) as ours:
        assert {file.name for file in ours.iterdir()} == {measure.MARKER}
    assert list(disk.iterdir()) == []


def disk_row(name: str) -> DiskRow:
    found = Disk("/mnt/x", Device("uuid 1"), 2**23, True, "fio-3.33", missing=("all",))
    return DiskRow(new_id(), name, datetime.now(UTC), "0", HostFacts(hostname="pi4"), found)


def test_a_damaged_disk_hides_no_other(tmp_path):
    import sqlite3

    store, rows = Store.open(tmp_path / "results.db"), [disk_row("a"), disk_row("b")]
    for row in rows:
        store.add_disk(row)
    with sqlite3.connect(tmp_path / "results.db") as raw:
        raw.execute("UPDATE disk SET document = '[]' WHERE name = 'a'")
    listed = CliRunner().invoke(cli, ["disk", "--list", "--store", str(tmp_path / "results.db")])
    assert "damaged" in listed.output
    assert [store.disks()[0], store.disks()[1].id] == [rows[1], rows[0].id]


@pytest.mark.slow
@pytest.mark.postgres
def test_folders_are_a_factor_so_that_an_encrypted_disk_meets_a_plain_one(pgpaces_home, tmp_path):
    """gocryptfs: file encryption, which is another cost than LUKS."""
    (pgpaces_home / "plain").mkdir()
    with volumes.gocryptfs(pgpaces_home) as encrypted:
        folders = [str(pgpaces_home / "plain"), str(encrypted)]
        store = tmp_path / "results.db"
        swept = pgpaces.sweep(
            "select-only", scale=1, clients=1, think_time=0.02, duration=1, warmup=0,
            data_dir=folders, store=store,
        )  # fmt: skip
        devices = {}
        for digest in swept.page.digests:
            assert digest.trial.state == "finished"
            place, server = digest.trial.place, digest.trial.server
            assert place is not None
            assert server.data_directory.startswith(place.levels["data_dir"] + "/")
            devices[place.levels["data_dir"]] = server.data_device
        assert devices == {path: device_of(Path(path)).id for path in folders}
        assert devices[str(encrypted)] == f"fuse.gocryptfs {encrypted}"
        assert device_of(encrypted).encryption == "gocryptfs (file encryption)"
        assert len({digest.trial.server.system_identifier for digest in swept.page.digests}) == 2


def test_a_relative_folder_is_no_level():
    with raises(PlanError, "relative-path", path="here"):
        pgpaces.sweep("reporting", rate=1, data_dir="here")
