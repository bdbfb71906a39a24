"""What fio says is read as it was said; classes, ratios and words follow from it alone."""

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Device, Disk, JobRun
from pgpaces.answers import disk as words
from pgpaces.answers.sweep.page import About, gather
from pgpaces.cli.machine import disk
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.findings import finding
from pgpaces.core.units import size_bytes
from pgpaces.disk import fio
from pgpaces.disk.measure import check
from pgpaces.monitor.linux import mounts
from pgpaces.monitor.machine import mount_of
from pgpaces.spec import setup
from pgpaces.spec.result import Estimate
from pgpaces.store.store import Store, new_id
from tests.errors import raises
from tests.unit import experiments, faces
from tests.unit.cards import card, row, run
from tests.unit.trials import changed

FIO = Path(__file__).parent / "fio"


def said(name):
    """What a real fio 3.33 printed; shortened."""
    return disks.fio_documents((FIO / f"{name}.json").read_text())


def test_a_job_has_the_times_and_seconds_that_fio_said():
    found = disks.job_run(disks.COMMIT, 1, said("commit"))
    assert (found.reads, found.writes, found.seconds) == (0, 25_257, 4.001)
    assert found.iops == pytest.approx(25_257 / 4.001)
    assert found.bytes_per_s == pytest.approx(found.iops * 8192)
    assert set(found.times) == set(found.flushes) == {"p50", "p99", "p99.9"}
    # Seconds are differences of statuses, and a rest is none.
    whole = [15_979 / 0.895, 19_958 - 15_979, (23_367 - 19_958) / 1.001,
             (24_384 - 23_367) / 0.999]  # fmt: skip
    assert found.per_s == pytest.approx(whole)
    documents = said("mixed")
    mixed = disks.job_run(disks.MIXED, 1, documents)
    last = documents[-1]["jobs"][0]["read"]
    assert mixed.reads > mixed.writes > 0
    assert mixed.times["p99"] == last["lat_ns"]["percentile"]["99.000000"]


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_what_was_cut_off_is_left_out(cut):
    text = (FIO / "read.json").read_text().rstrip()
    assert len(disks.fio_documents(text[:-cut])) == len(disks.fio_documents(text)) - 1


@pytest.mark.parametrize("text", ["", "fio: engine libaio not loadable", "{}", '{"jobs": []}'])
def test_what_is_no_result_of_fio_is_an_error(text):
    with raises(RunError, "fio-unreadable"):
        disks.job_run(disks.READ, 1, disks.fio_documents(text))
    nothing = {"total_ios": 0, "runtime": 0}
    with raises(RunError, "nothing-measured", program="fio"):
        disks.job_run(disks.READ, 1, [{"jobs": [{"read": nothing, "write": nothing, "error": 0}]}])
    documents = said("read")
    documents[-1]["jobs"][0]["error"] = 28
    with raises(RunError, "fio-stopped", error=28):
        disks.job_run(disks.READ, 1, documents)


@pytest.mark.parametrize(
    ("reads", "writes", "mb_per_s", "named"),
    [
        (4000, 2000, 10.01, "A2"),
        (3999, 2000, 10.01, "A1"),
        (4000, 1999, 10.01, "A1"),
        (90_000, 90_000, 9.98, "below A1"),
        (1500, 500, 10.01, "A1"),
        (1499, 500, 10.01, "below A1"),
        (1500, 499, 10.01, "below A1"),
    ],
)
def test_a_class_needs_all_three(reads, writes, mb_per_s, named):
    assert disks.card_class(card(reads, writes, mb_per_s)) == named


@pytest.mark.parametrize("text", ["256", "1TB", "-1MB", "", "9e99GB", "7MB"])
def test_what_is_no_size_or_too_small_to_measure_by_is_refused(text):
    assert [size_bytes(each) for each in ("256MB", "1GB", "64 kB")] == [2**28, 2**30, 2**16]
    with pytest.raises(PlanError):
        fio.DiskRequest(size_bytes(text))


def test_a_quick_look_needs_no_consent_and_a_whole_one_does():
    assert fio.written_max(fio.DiskRequest(fio.QUICK_SIZE, 3, fio.QUICK)) <= fio.CONSENT_BYTES
    assert fio.written_max(fio.DiskRequest()) > fio.CONSENT_BYTES
    for values, bases in (([], [1.0]), ([1.0], []), ([0.0], [1.0])):
        assert disks.ratio_of_runs(values, bases) is None


def test_the_class_is_that_of_the_medians_of_every_job():
    found = card(2000, 600, 20)
    slow = run(disks.CARD_WRITE, 100, 1000, 3)
    kept = [m for m in found.measured if (m.job, m.run) != (disks.CARD_WRITE, 3)]
    found = replace(found, measured=(*kept, slow))
    assert disks.card_class(found) == "A1"
    assert disks.card_runs(found, disks.CARD_WRITE) == pytest.approx([600, 600, 100])
    part = replace(found, measured=tuple(m for m in found.measured if m.job != disks.CARD_READ))
    assert disks.card_class(part) is None


def test_a_disk_that_slows_down_in_its_second_half_is_named():
    full, empty = [1000.0, 1010.0, 990.0] * 10, [200.0, 205.0, 195.0] * 10
    found = JobRun(disks.COMMIT, 1, 60, 0, 36_000, 0, 36_000 * 8192, tuple(full + empty))
    assert found.slowing.low < 0.2 < found.slowing.high < 0.8
    steady = replace(found, per_s=tuple(full + full))
    assert steady.slowing.low < 1 < steady.slowing.high
    assert replace(found, per_s=(10.0, 10.0, 10.0)).slowing is None, "too short for halves"
    device = card(1, 1, 1)
    assert "disk-slows: 8 KiB random write" in shown(replace(device, measured=(found,)))
    assert "disk-slows" not in shown(replace(device, measured=(steady,)))


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.floats(0, 0.5))
def test_a_ratio_lies_in_its_interval_and_turns_round(a, b, half):
    one, other = (Estimate(v, v * (1 - half), v * (1 + half), 9) for v in (a, b))
    there, back = disks.ratio_of_rates(one, other), disks.ratio_of_rates(other, one)
    assert there.low <= there.value <= there.high
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def test_the_interval_of_a_ratio_of_runs_holds_the_truth():
    draw, hits = np.random.default_rng(1), 0
    for _ in range(400):
        a = [float(v) for v in np.exp(draw.normal(math.log(200), 0.1, 3))]
        b = [float(v) for v in np.exp(draw.normal(math.log(100), 0.1, 3))]
        found = disks.ratio_of_runs(a, b)
        hits += found.low <= 2 <= found.high
    assert 0.92 * 400 <= hits <= 400 * 0.995


@given(st.integers(8, 4096), st.integers(3, 20), st.sampled_from([fio.QUICK, fio.FULL]))
def test_what_is_written_is_bounded_before(mib, runs, lengths):
    asked = fio.DiskRequest(mib * fio.MIB, runs, lengths)
    for job in fio.jobs(asked):
        if job.written_max == 0:
            assert job.options["rw"] == "randread"
        elif job.name == fio.FILL:
            assert "io_size" not in job.options
        else:  # a time alone would be no bound
            assert "time_based" not in job.options
            share = 0.3 if job.options["rw"] == "randrw" else 1
            assert int(job.options["io_size"]) * share <= job.written_max


def test_the_profiles_are_those_of_the_method():
    found = {job.name: job for job in fio.jobs(fio.DiskRequest())}
    for name in disks.CARD:
        options = found[name].options
        assert (options["iodepth"], options["size"], found[name].seconds) == ("32", "268435456", 10)
    assert found[disks.CARD_SEQUENTIAL].options["end_fsync"] == "1"
    for name in disks.POSTGRES:
        assert (found[name].options["bs"], found[name].options["iodepth"]) == ("8k", "1")
        assert found[name].seconds == 60
    assert found[disks.COMMIT].options["fdatasync"] == "1"
    assert found[disks.MIXED].options["rwmixread"] == "70"
    words_of = fio.arguments(found[disks.CARD_READ])
    assert {"--ioengine=libaio", "--direct=1"} <= set(words_of)


MOUNTS = r"""22 1 179:2 / / rw,relatime - ext4 /dev/root rw
27 22 0:39 / /mnt/my\040card rw,relatime - fuse.gocryptfs /x rw,user_id=0
28 22 0:40 / /mnt/my\040card/in rw - tmpfs none rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/data", "ext4"),
        ("/mnt/my card/x", "fuse.gocryptfs"),
        ("/mnt/my card/in/x", "tmpfs"),
        ("/mnt/my cards", "ext4"),
    ],
)
def test_a_folder_is_on_the_nearest_mount_above_it(path, kind):
    found = mount_of(Path(path), mounts(MOUNTS))
    assert found.kind == kind


FULL = {"free_bytes": 24 * 2**20, "needed_bytes": 25 * 2**20}


@pytest.mark.parametrize(
    ("device", "name", "values"),
    [
        (Device("d", "vda", "ext4", "rw", free_bytes=24 * 2**20), "disk-too-full", FULL),
        (Device("d", "", "tmpfs", "rw", free_bytes=2**40), "disk-is-memory", {}),
        (Device("d", "vda", "ext4", "ro,noatime", free_bytes=2**40), "folder-not-writable", {}),
    ],
)
def test_a_disk_that_cannot_be_measured_is_refused(tmp_path, device, name, values):
    with raises(PlanError, name, path=tmp_path, **values):
        check(tmp_path, device, size_bytes("25MB"))
    assert list(tmp_path.iterdir()) == []


def test_the_answer_says_what_each_number_is():
    found = replace(
        card(200, 60, 2),
        device=Device("x", filesystem="fuse.gocryptfs"),
        missing=("8 KiB random read",),
        quick=True,
    )
    text = " ".join(shown(found).split())
    for part in ("(emulated ", "disk-quick: ", "8 KiB random read", "disk-through-fuse: "):
        assert part in text
    headline = words.section(row(found)).headline
    assert (headline.word, headline.mark) == ("below A1", "fail")


def test_disks_side_by_side_have_ratios_and_what_is_not_complete_is_named():
    one = row(replace(card(2000, 600, 20), missing=(disks.READ,)), "short")
    text = printed(words.comparison([one, row(card(4000, 300, 20), "other")]))
    reads = next(each for each in text.splitlines() if each.startswith(disks.CARD_READ))
    assert reads.split()[-3:] == ["2,000", "4,000", "2.00"]
    told = str(finding("disk-incomplete", "short", count=1))
    assert text.count(told) == text.count("disk-incomplete") == 1


def printed(section, width=120):
    return faces.shown(section, width, whole=True)


def shown(found, width=100):
    return printed(words.section(row(found)), width)


def test_texts_of_others_do_nothing():
    evil = "x\x1b[2J\n[red]"
    found = replace(card(1, 1, 1), path=evil, missing=(evil,))
    found = replace(found, device=replace(found.device, model=evil, encryption=evil))
    text = shown(found)
    assert "\x1b" not in text
    assert "[red]" in text


def server_of(digest, disk):
    about = About(digest.trial.started_at, "0", disks=(disk,))
    return dict(gather([digest], about).places[0].facts)


def test_a_page_tells_of_the_disk_that_the_data_is_on():
    found = experiments.made(experiments.design().asks()[0], 5)
    server = found.trial.server.but(data_device="uuid 1")
    there = replace(found, trial=changed(found.trial, server=server))
    disk = row(card(2100, 610, 45), hostname="pi4")
    told = server_of(there, disk)["disk"]
    assert told.startswith("A1, 2,100 read and 610 write IOPS at 4 KiB, 45 MB/s")
    commits = JobRun(disks.COMMIT, 1, 60, 0, 18_600, 0, 18_600 * 8192, (300.0, 320.0) * 30)
    both = row(replace(disk.disk, measured=(*disk.disk.measured, commits)), hostname="pi4")
    told = server_of(there, both)["disk"]
    assert "8 KiB with fdatasync 310/s (95% CI 30" in told
    elsewhere = replace(card(1, 1, 1), device=Device("uuid 2"))
    for other in (row(card(1, 1, 1), hostname="pi5"), row(elsewhere, hostname="pi4")):
        assert "disk" not in server_of(there, other)
    assert "disk" not in server_of(found, disk)


def test_what_is_stored_is_read_as_it_was():
    commit = disks.job_run(disks.COMMIT, 1, said("commit"))
    found = replace(card(1, 2, 3), missing=(disks.READ,), measured=(commit,))
    assert setup.read(Disk, to_builtins(found), "a disk") == found


@pytest.mark.parametrize("damage", [{"device": 1}, {"measured": [{}]}, {"path": None}])
def test_a_damaged_document_is_an_error(damage):
    with pytest.raises(ValueError, match="a disk: "):
        setup.read(Disk, {**to_builtins(card(1, 1, 1)), **damage}, "a disk")


@pytest.mark.parametrize("form", ["html", "md", "txt", "json", "csv"])
def test_a_disk_is_a_report_of_any_form(form, tmp_path):
    store = Store.open(tmp_path / "results.db")
    for name, writes in (("card", 520), ("ssd", 30_341)):
        store.add_disk(replace(row(card(2100, writes, 31), name), id=new_id()))
    store.close()
    path = tmp_path / f"disk.{form}"
    for line, disks_in_it in (("--show card", 1), ("--compare card ssd", 2)):
        arguments = [*line.split(), "-o", str(path), "--store", str(tmp_path / "results.db")]
        done = CliRunner().invoke(disk, arguments)
        assert done.exit_code == 0, done.output
        assert f"written: {path}" in done.output
        found = path.read_text()
        if form == "csv":
            lines = list(csv.DictReader(io.StringIO(found)))
            assert len(lines) == 2 * 9 * disks_in_it
            assert {each["low"] + each["high"] for each in lines} == {""}, "no interval"
        elif form == "json":
            assert len(json.loads(found)["value"]["disks"]) == disks_in_it
        else:
            assert "4 KiB random write, IOPS" in found
            assert ("30,341" in found) == (disks_in_it == 2)
