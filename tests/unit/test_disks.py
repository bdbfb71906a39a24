"""What fio says is read as it was said; classes, ratios and words follow from it alone."""

from __future__ import annotations

import csv
import io
import json
import math
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Cipher, Device, Disk, Flushes, JobRun
from pgpaces.answers import disk as words
from pgpaces.answers.sweep import facts
from pgpaces.cli.disk import disk
from pgpaces.cli.output import text
from pgpaces.core.errors import PlanError, RunError, StoreError
from pgpaces.core.units import size_bytes
from pgpaces.disk import jobs, programs
from pgpaces.disk.folder import check
from pgpaces.monitor.device import mount_of
from pgpaces.monitor.procfs import mounts
from pgpaces.show import render, terminal
from pgpaces.show.section import Section
from pgpaces.spec.result import Estimate
from pgpaces.store.store import Store, new_id
from tests.unit import experiments
from tests.unit.cards import card, row, run

FIO = Path(__file__).parent / "fio"
RATES = st.floats(0, 1e7)


def said(name: str) -> list[dict[str, Any]]:
    """What a real fio 3.33 printed; shortened."""
    return disks.statuses((FIO / f"{name}.json").read_text())


# --- fio ----------------------------------------------------------------------------------------


def test_writes_with_a_flush_have_the_times_of_both() -> None:
    found = disks.job_run(disks.COMMIT, 1, said("commit"))
    assert (found.reads, found.writes, found.seconds) == (0, 25_257, 4.001)
    assert found.iops == pytest.approx(25_257 / 4.001)
    assert found.bytes_per_s == pytest.approx(found.iops * 8192)
    assert set(found.times) == set(found.flushes) == {"p50", "p99", "p99.9"}


def test_seconds_are_differences_of_statuses_and_a_rest_is_none() -> None:
    found = disks.job_run(disks.COMMIT, 1, said("commit"))
    whole = [15_979 / 0.895, 19_958 - 15_979, (23_367 - 19_958) / 1.001,
             (24_384 - 23_367) / 0.999]  # fmt: skip
    assert found.per_s == pytest.approx(whole)


def test_of_a_mixed_load_the_times_are_those_of_reads() -> None:
    documents = said("mixed")
    found = disks.job_run(disks.MIXED, 1, documents)
    last = documents[-1]["jobs"][0]["read"]
    assert found.reads > found.writes > 0
    assert found.times["p99"] == last["lat_ns"]["percentile"]["99.000000"]


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_what_was_cut_off_is_left_out(cut: int) -> None:
    text = (FIO / "read.json").read_text().rstrip()
    assert len(disks.statuses(text[:-cut])) == len(disks.statuses(text)) - 1


@pytest.mark.parametrize("text", ["", "fio: engine libaio not loadable", "{}", '{"jobs": []}'])
def test_what_is_no_result_of_fio_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="fio"):
        disks.job_run(disks.READ, 1, disks.statuses(text))


def test_a_job_that_failed_is_an_error() -> None:
    documents = said("read")
    documents[-1]["jobs"][0]["error"] = 28
    with pytest.raises(ValueError, match="28"):
        disks.job_run(disks.READ, 1, documents)


FLUSHES = """#!/bin/sh
{test} || exit 1
echo > "$2" || exit 1
echo '        fdatasync    400.5 ops/sec'
echo 'Compare file sync methods using two 8kB writes:'
"""


@pytest.fixture
def pg_test_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pg_test_fsync"
    installation = SimpleNamespace(version="18.0", program=lambda _: path)
    monkeypatch.setattr(programs, "installations", lambda: [installation])
    path.write_text(FLUSHES.format(test="true"))
    path.chmod(0o700)
    (tmp_path / "disk").mkdir()
    return path


def test_flushes_are_measured_in_a_folder_by_its_name_from_here(
    pg_test_fsync: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pg_test_fsync.parent)
    found = programs.test_fsync(Path("disk"), lambda _: None)
    assert found == Flushes("18.0", {"fdatasync": 400.5})
    assert Path("disk/flushes").is_file()


def test_a_program_for_flushes_that_fails_is_not_one_that_is_missing(pg_test_fsync: Path) -> None:
    pg_test_fsync.write_text(FLUSHES.format(test="false"))
    with pytest.raises(RunError, match="pg_test_fsync measured nothing"):
        programs.test_fsync(pg_test_fsync.parent / "disk", lambda _: None)


# --- classes and ratios -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "writes", "mb_per_s", "named"),
    [
        (4000, 2000, 10, "A2"),
        (3999, 2000, 10, "A1"),
        (4000, 1999, 10, "A1"),
        (90_000, 90_000, 9.99, "below A1"),
        (1500, 500, 10, "A1"),
        (1499, 500, 10, "below A1"),
        (1500, 499, 10, "below A1"),
    ],
)
def test_a_class_needs_all_three(reads: int, writes: int, mb_per_s: float, named: str) -> None:
    assert disks.sd_class(reads, writes, mb_per_s * 1e6) == named


@given(RATES, RATES, RATES)
def test_no_class_is_given_below_any_of_its_criteria(r: float, w: float, b: float) -> None:
    named = disks.sd_class(r, w, b)
    assert named in ("A2", "A1", "below A1")
    for found, needs in disks.CLASSES.items():
        enough = all(have >= need for have, need in zip((r, w, b), needs, strict=True))
        assert enough or named != found
        assert not enough or named != "below A1"


def test_the_class_is_that_of_the_medians_and_every_run_is_shown() -> None:
    found = card(2000, 600, 20)
    slow = run(disks.CARD_WRITE, 100, 1000, 3)
    kept = [m for m in found.measured if (m.job, m.run) != (disks.CARD_WRITE, 3)]
    found = replace(found, measured=(*kept, slow))
    assert disks.card_class(found) == "A1"
    assert disks.card_runs(found, disks.CARD_WRITE) == pytest.approx([600, 600, 100])
    text = shown(found)
    assert "100" in text
    assert "A1  by emulation of the SD classes" in text


def test_a_class_needs_every_job() -> None:
    found = card(4000, 4000, 20)
    part = replace(found, measured=tuple(m for m in found.measured if m.job != disks.CARD_READ))
    assert disks.card_class(part) is None


def test_a_disk_that_slows_down_in_its_second_half_is_named() -> None:
    full, empty = [1000.0, 1010.0, 990.0] * 10, [200.0, 205.0, 195.0] * 10
    found = JobRun(disks.COMMIT, 1, 60, 0, 36_000, 0, 36_000 * 8192, tuple(full + empty))
    share = found.slowing
    assert share is not None
    assert share.low < 0.2 < share.high < 0.8
    steady = replace(found, per_s=tuple(full + full))
    assert steady.slowing is not None
    assert steady.slowing.low < 1 < steady.slowing.high
    device = card(1, 1, 1)
    assert "slows down" in shown(replace(device, measured=(found,)))
    assert "slows down" not in shown(replace(device, measured=(steady,)))


def test_what_others_did_to_the_disk_is_told() -> None:
    found = card(1, 1, 1)
    quiet, busy = (
        replace(found, measured=tuple(replace(m, bytes_other=share) for m in found.measured))
        for share in (100, 10**12)
    )
    assert "because others used it" not in shown(found)
    assert "because others used it" not in shown(quiet)
    assert "because others used it" in shown(busy)


def test_what_was_too_short_for_halves_has_none() -> None:
    assert JobRun(disks.COMMIT, 1, 3, 0, 30, 0, 30, (10.0, 10.0, 10.0)).slowing is None


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.floats(0, 0.5))
def test_a_ratio_lies_in_its_interval_and_turns_round(a: float, b: float, half: float) -> None:
    one, other = (Estimate(v, v * (1 - half), v * (1 + half), 9) for v in (a, b))
    there, back = disks.ratio(one, other), disks.ratio(other, one)
    assert there is not None
    assert back is not None
    assert there.low <= there.value <= there.high
    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


def test_the_interval_of_a_ratio_of_runs_holds_the_truth() -> None:
    draw, hits = np.random.default_rng(1), 0
    for _ in range(400):
        a = [float(v) for v in np.exp(draw.normal(math.log(200), 0.1, 3))]
        b = [float(v) for v in np.exp(draw.normal(math.log(100), 0.1, 3))]
        found = disks.ratio_of_runs(a, b)
        assert found is not None
        hits += found.low <= 2 <= found.high
    assert 0.92 * 400 <= hits <= 400 * 0.995


@pytest.mark.parametrize(("values", "bases"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_no_ratio_of_nothing(values: list[float], bases: list[float]) -> None:
    assert disks.ratio_of_runs(values, bases) is None


# --- jobs ---------------------------------------------------------------------------------------


@given(st.integers(8, 4096), st.integers(3, 20), st.sampled_from([jobs.QUICK, jobs.FULL]))
def test_what_is_written_is_bounded_before(mib: int, runs: int, lengths: jobs.Lengths) -> None:
    asked = jobs.DiskRequest(mib * jobs.MIB, runs, lengths)
    for job in jobs.jobs(asked):
        if job.written_max == 0:
            assert job.options["rw"] == "randread"
        elif job.name == jobs.FILL:
            assert "io_size" not in job.options
        else:  # a time alone would be no bound
            assert "time_based" not in job.options
            share = 0.3 if job.options["rw"] == "randrw" else 1
            assert int(job.options["io_size"]) * share <= job.written_max


def test_a_quick_look_needs_no_consent_and_a_whole_one_does() -> None:
    assert jobs.written_max(jobs.DiskRequest(jobs.QUICK_SIZE, 3, jobs.QUICK)) <= jobs.CONSENT_BYTES
    assert jobs.written_max(jobs.DiskRequest()) > jobs.CONSENT_BYTES


def test_the_profiles_are_those_of_the_method() -> None:
    found = {job.name: job for job in jobs.jobs(jobs.DiskRequest())}
    for name in disks.CARD:
        options = found[name].options
        assert (options["iodepth"], options["size"], found[name].seconds) == ("32", "268435456", 10)
    assert found[disks.CARD_SEQUENTIAL].options["end_fsync"] == "1"
    for name in disks.POSTGRES:
        assert (found[name].options["bs"], found[name].options["iodepth"]) == ("8k", "1")
        assert found[name].seconds == 60
    assert found[disks.COMMIT].options["fdatasync"] == "1"
    assert found[disks.MIXED].options["rwmixread"] == "70"
    words_of = jobs.arguments(found[disks.CARD_READ])
    assert {"--ioengine=libaio", "--direct=1"} <= set(words_of)


def test_fewer_bytes_than_a_disk_can_be_measured_by_are_refused() -> None:
    with pytest.raises(PlanError, match="too small"):
        jobs.DiskRequest(size_bytes("7MB"))


@pytest.mark.parametrize(("text", "bytes_"), [("256MB", 2**28), ("1GB", 2**30), ("64 kB", 2**16)])
def test_sizes_are_those_of_postgresql(text: str, bytes_: int) -> None:
    assert size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["256", "1TB", "-1MB", "", "9e99GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        size_bytes(text)


# --- devices and folders ------------------------------------------------------------------------

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
def test_a_folder_is_on_the_nearest_mount_above_it(path: str, kind: str) -> None:
    found = mount_of(Path(path), mounts(MOUNTS))
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        (Device("d", "vda", "ext4", "rw", free_bytes=24 * 2**20), "24 MiB free, and 25 MiB"),
        (Device("d", "", "tmpfs", "rw", free_bytes=2**40), "not available here: .* memory"),
        (Device("d", "vda", "ext4", "ro,noatime", free_bytes=2**40), "not writable"),
    ],
)
def test_a_disk_that_cannot_be_measured_is_refused(
    tmp_path: Path, device: Device, sentence: str
) -> None:
    with pytest.raises(PlanError, match=sentence):
        check(tmp_path, device, jobs.room(jobs.DiskRequest(size_bytes("8MB"))))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, sentence in (("none", "does not exist"), ("file", "is not a folder")):
        with pytest.raises(PlanError, match=sentence):
            check(tmp_path / name, Device("d"), 0)


# --- words --------------------------------------------------------------------------------------


def printed(section: Section, width: int = 120) -> str:
    from rich.console import Console

    console = Console(width=width, color_system=None, markup=False)
    with console.capture() as text:
        for part in terminal.whole(section, width):
            console.print(part)
    return text.get()


def shown(found: Disk, width: int = 100) -> str:
    return printed(words.section(row(found)), width)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_answer_says_what_each_number_is(width: int) -> None:
    found = replace(
        card(2000, 600, 20),
        flushes=Flushes("18.6", {"fdatasync": 310.0}),
        cipher=Cipher("aes-xts with 512 bits", 900.0, 950.0),
        absent=("this: not available here",),
        missing=("8 KiB random read",),
        quick=True,
    )
    text = " ".join(shown(found, width).split())
    for part in ("emulation", "indicative", "a bound and not a prediction", "in memory only",
                 "not available here", "missing: 8 KiB random read"):  # fmt: skip
        assert part in text


def test_texts_of_others_do_nothing() -> None:
    evil = "x\x1b[2J\n[red]"
    found = replace(card(1, 1, 1), path=evil, absent=(evil,))
    found = replace(found, device=replace(found.device, model=evil, encryption=evil))
    text = shown(found)
    assert "\x1b" not in text
    assert "[red]" in text


def test_a_disk_that_was_not_measured_to_its_end_is_named_in_a_comparison() -> None:
    short = row(replace(card(2000, 600, 20), missing=("pg_test_fsync",)), "short")
    text = printed(words.comparison([short, row(card(4000, 300, 20), "other")]))
    assert f"short {short.id[-8:]} is not complete" in text
    assert "other" in text
    assert text.count("is not complete") == 1


def test_disks_side_by_side_have_ratios() -> None:
    one, other = row(card(2000, 600, 20), "one"), row(card(4000, 300, 20), "other")
    lines = printed(words.comparison([one, other])).splitlines()
    reads = next(each for each in lines if each.startswith(disks.CARD_READ))
    assert reads.split()[-3:] == ["2,000", "4,000", "2.00"]


def test_a_page_tells_of_the_disk_that_the_data_is_on() -> None:
    found = experiments.made(experiments.design().slots()[0], 5)
    server = found.trial.server.but(data_device="uuid 1")
    there = replace(found, trial=replace(found.trial, server=server))
    disk = row(card(2100, 610, 45), hostname="pi4")
    pairs = dict(facts.places([there], [disk])[0].server)
    assert pairs["disk"].startswith("A1 by emulation (2,100 / 610 IOPS, 45 MB/s)")
    commits = JobRun(disks.COMMIT, 1, 60, 0, 18_600, 0, 18_600 * 8192, (300.0, 320.0) * 30)
    both = row(replace(disk.disk, measured=(*disk.disk.measured, commits)), hostname="pi4")
    pairs = dict(facts.places([there], [both])[0].server)
    assert "8 KiB with fdatasync 310/s (30" in pairs["disk"]
    elsewhere = replace(card(1, 1, 1), device=Device("uuid 2"))
    for other in (row(card(1, 1, 1), hostname="pi5"), row(elsewhere, hostname="pi4")):
        assert "disk" not in dict(facts.places([there], [other])[0].server)
    assert "disk" not in dict(facts.places([found], [disk])[0].server)


def test_what_is_stored_is_read_as_it_was() -> None:
    found = replace(card(1, 2, 3), flushes=Flushes("18", {"fsync": 1.5}), absent=("a",))
    found = replace(found, measured=(disks.job_run(disks.COMMIT, 1, said("commit")),))
    assert disks.read(found.document()) == found


@pytest.mark.parametrize("damage", [{"device": 1}, {"measured": [{}]}, {"path": None}])
def test_a_damaged_document_is_an_error(damage: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="damaged"):
        disks.read({**card(1, 1, 1).document(), **damage})


def test_a_disk_fits_a_screen_and_begins_with_its_class() -> None:
    found = words.section(row(card(2000, 600, 20)))
    assert found.headline is not None
    assert (found.headline.word, found.headline.mark) == ("A1", "meets")
    below = words.section(row(card(200, 60, 2))).headline
    assert below is not None
    assert (below.word, below.mark) == ("below A1", "misses")
    lines = text([found], verbose=False).splitlines()
    assert len(lines) <= 24
    assert lines[0].startswith("✓ A1  by emulation of the SD classes")
    assert "pgpaces disk --show" in lines[-1]
    rows = {cells[0].text: [cell.text for cell in cells] for cells in found.tables[0].rows}
    assert rows[f"{disks.CARD_READ}, IOPS"][-2:] == ["1,500", "4,000"]
    assert rows[f"{disks.CARD_WRITE}, IOPS"][-2:] == ["500", "2,000"]
    assert rows[f"{disks.CARD_SEQUENTIAL}, MB/s"][-2:] == ["10", "10"]


@pytest.mark.parametrize("form", ["html", "md", "txt", "json", "csv"])
def test_a_disk_is_a_report_of_any_form(form: str, tmp_path: Path) -> None:
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
            assert len(lines) == 9 * disks_in_it
            assert {each["iops_low"] + each["iops_high"] for each in lines} == {""}, "no interval"
        elif form == "json":
            assert len(json.loads(found).get("disks", [0])) == disks_in_it
        else:
            assert "4 KiB random write, IOPS" in found
            assert ("30,341" in found) == (disks_in_it == 2)


@pytest.mark.parametrize("form", ["html", "md", "text"])
def test_a_disk_in_a_file_has_its_class_the_device_and_remarks_in_words(form: render.Form) -> None:
    rows = [row(card(2100, 520, 31))]
    shown = render.render(words.report(rows, words.section(rows[0])), form).decode()
    assert "by emulation of the SD classes: 2,100 read" in shown
    assert shown.count("device mmcblk0p2 on mmcblk0, SD64G, ext4 (rw)") == 1
    if form != "text":
        assert "each run of the card's jobs took 1,000 to 1,000 s" in unescape(shown)
    assert "- : " not in shown


def test_an_ending_that_names_no_form_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    done = CliRunner().invoke(disk, [str(tmp_path), "-o", "disk.docx"])
    assert "names no form of a report" in f"{done.exception}"
