"""The measurements of a disk: their section, and as plain values.

Opens no store and runs no fio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Disk, JobRun
from pgpaces.core.metrics import header
from pgpaces.core.units import memory_text
from pgpaces.show.escape import line
from pgpaces.show.numbers import estimate_cell, interval, ms, or_dash, rate
from pgpaces.show.section import (
    Column,
    Headline,
    Records,
    Report,
    Section,
    Sentence,
    Table,
    TableCell,
    table,
)
from pgpaces.spec.result import Estimate

if TYPE_CHECKING:
    from pgpaces.store.disks import DiskRow

# A disk whose rate in the second half is below this share of the first has slowed down.
_SLOWER = 0.8
# The jobs of the criteria of a class, in their order.
_CRITERIA = (disks.CARD_READ, disks.CARD_WRITE, disks.CARD_SEQUENTIAL)
# The largest share of bytes that others may move in addition to fio's without a warning.
_OTHERS_MAX = 0.1


def called(row: DiskRow) -> str:
    return line(row.name) or row.id[-8:]


def section(row: DiskRow) -> Section:
    disk = row.disk
    tables = (_card_table(disk), _postgres_table(disk))
    return Section(
        "disk",
        f"Disk {called(row)}",
        sentences=tuple(Sentence(text, "warning") for text in _warnings(disk)),
        headline=_headline(disk),
        facts=tuple(_facts(disk)),
        tables=tuple(each for each in tables if each.rows),
        next=(f"pgpaces disk --show {row.id[-8:]}",),
        parts=(Section("remarks", "Remarks", facts=tuple(("", each) for each in _remarks(disk))),),
        value=disk,
    )


def _headline(disk: Disk) -> Headline:
    sd, medians = disks.card_class(disk), disks.card_medians(disk)
    if sd is None or medians is None:
        return Headline("", "unknown", "no class: the emulation of a card's test is not complete")
    return Headline(
        sd,
        "fail" if sd == "below A1" else "pass",
        f"by emulation of the SD classes: {rate(medians[disks.CARD_READ])} read and"
        f" {rate(medians[disks.CARD_WRITE])} write IOPS of 4 KiB,"
        f" {rate(medians[disks.CARD_SEQUENTIAL] / 1e6)} MB/s",
    )


def in_short(row: DiskRow) -> str:
    disk, parts = row.disk, []
    sd, medians = disks.card_class(disk), disks.card_medians(disk)
    if sd is not None and medians is not None:
        parts.append(
            f"{sd} by emulation ({rate(medians[disks.CARD_READ])} /"
            f" {rate(medians[disks.CARD_WRITE])} IOPS,"
            f" {rate(medians[disks.CARD_SEQUENTIAL] / 1e6)} MB/s)"
        )
    for each in disk.of(disks.COMMIT):
        parts.append(f"8 KiB with fdatasync {_with_ends(each.rate, rate, '/s ')}")
    quick = " (quick: indicative)" if disk.quick else ""
    show = f"pgpaces disk --show {row.id}"
    return f"{', '.join(parts) or 'nothing was measured'}{quick}; {show}"


def _warnings(disk: Disk) -> Iterator[str]:
    if disk.missing:
        yield f"not complete, missing: {'; '.join(disk.missing)}"
    if disk.quick:
        yield "quick: seconds instead of minutes, indicative only"
    measured = dict.fromkeys(each.job for each in disk.measured)
    shares = {job: max(each.other_share or 0 for each in disk.of(job)) for job in measured}
    jobs = ", ".join(f"{100 * n:.0f}% at '{job}'" for job, n in shares.items() if n > _OTHERS_MAX)
    if jobs:
        yield (
            "the disk moved more than fio asked for, because others used it or its file system adds"
            f" to it: {jobs}"
        )
    for each in disk.measured:
        share = each.slowing if each.job in disks.POSTGRES else None
        if share is not None and share.estimable and share.high < _SLOWER:
            yield (
                f"slows down: '{each.job}' did {_with_ends(share, _plain)} times as much in its"
                " second half as in its first"
            )


def _facts(disk: Disk) -> Iterator[tuple[str, str]]:
    device = disk.device
    rotates = {True: "rotational", False: "not rotational", None: ""}[device.rotational]
    parts = (
        f"device {device.name}" if device.name else "no device of its own",
        device.model,
        f"{device.filesystem} ({device.mount_options})",
        f"scheduler {device.scheduler}" if device.scheduler else "",
        f"{rotates} according to the kernel" if rotates else "",
        "" if device.size_bytes is None else memory_text(device.size_bytes),
        f"{memory_text(device.free_bytes)} free" if device.free_bytes is not None else "",
    )
    yield "disk", f"{disk.path}: {', '.join(part for part in parts if part)}"
    yield "encryption", device.encryption or "none detected"
    size = memory_text(disk.size_bytes)
    yield "measured", f"by {disk.fio} in a file of {size}, past the cache (direct)"


def _card_table(disk: Disk) -> Table:
    runs = max(len(disk.of(job)) for job in disks.CARD)
    classes = sorted(disks.CLASSES)
    numbers = tuple(f"run {run}" for run in range(1, runs + 1))
    needs = {job: n for n, job in enumerate(_CRITERIA)}
    rows = []
    for job in disks.CARD:
        if values := disks.card_runs(disk, job):
            unit = "MB/s" if job == disks.CARD_SEQUENTIAL else "IOPS"
            every = [statistics.median(values), *values]
            shown = [_card_shown(job, value) for value in every] + [""] * (runs - len(values))
            least = [_card_shown(job, disks.CLASSES[name][needs[job]]) for name in classes]
            rows.append(_row(f"{job}, {unit}", *shown, *least))
    columns = ("job", "median", *numbers, *classes)
    return Table("disk-card", "Card emulation", columns, 1, tuple(rows), spare=numbers, brief=True)


def _row(*texts: str) -> tuple[TableCell, ...]:
    return tuple(TableCell(text) for text in texts)


def _card_shown(job: str, value: float) -> str:
    return rate(value / 1e6 if job == disks.CARD_SEQUENTIAL else value)


def _postgres_table(disk: Disk) -> Table:
    columns: list[Column[JobRun]] = [
        ("job", lambda each: each.job),
        ("IOPS", lambda each: estimate_cell(each.rate, rate)),
        ("MB/s", lambda each: rate(each.bytes_per_s / 1e6)),
        *((header(name), partial(_ms, name)) for name in ("p50", "p99", "p99.9")),
        ("2nd / 1st half", lambda each: estimate_cell(each.slowing, _plain)),
    ]
    runs = [each for job in disks.POSTGRES for each in disk.of(job)]
    spare = (header("p50"), "MB/s", header("p99.9"))
    return table("disk-postgres", "PostgreSQL", columns, items=runs, spare=spare, brief=True)


def _ms(name: str, each: JobRun) -> str:
    ns = (each.flushes or each.times).get(name)
    return or_dash(ns, lambda ns: ms(ns / 1e6))


def _plain(value: float) -> str:
    return f"{value:.2f}"


def _with_ends(estimate: Estimate, form: Callable[[float], str], between: str = " ") -> str:
    ends = interval(estimate, form, " to ")
    return f"{form(estimate.value)}{between}({ends})"


def _remarks(disk: Disk) -> Iterator[str]:
    if disk.of(disks.COMMIT):
        yield "times of 'fdatasync each' are of the flush after a write, all others of reads"
    if lengths := [each.seconds for each in disk.measured if each.job in disks.CARD]:
        yield f"each run of the card's jobs took {rate(min(lengths))} to {rate(max(lengths))} s"
    if lengths := [each.seconds for each in disk.measured if each.job in disks.POSTGRES]:
        yield f"PostgreSQL's took {', '.join(map(rate, lengths))} s"
    if disk.device.filesystem.startswith("fuse"):
        yield "the file system is a program (FUSE), which may read the disk through the cache"
    if disk.flushes is not None:
        methods = ", ".join(f"{name} {rate(n)}/s" for name, n in disk.flushes.per_s.items())
        yield (
            f"pg_test_fsync {disk.flushes.version}, one write of 8 kB, a bound and not a"
            f" prediction: {methods}"
        )
    if disk.cipher is not None:
        cipher = disk.cipher
        yield (
            f"{cipher.name} in memory only, without a disk: encrypts {rate(cipher.encrypts)} MiB/s,"
            f" decrypts {rate(cipher.decrypts)} MiB/s"
        )
    yield from map(str, disk.absent)


def comparison(measured_disks: Sequence[DiskRow]) -> Section:
    first, measurements = called(measured_disks[0]), [each.disk for each in measured_disks]
    names = [first]
    for each in measured_disks[1:]:
        names += [called(each), f"/ {first}"]
    rows = [_row("class by emulation", *_spread([class_of(disk) for disk in measurements]))]
    for label, values, ratios in _compared(measurements):
        cells = [values[0]]
        for value, ratio in zip(values[1:], ratios, strict=True):
            cells += [value, estimate_cell(ratio, _plain)]
        rows.append((TableCell(label), *cells))
    encryptions = [disk.device.encryption or "none detected" for disk in measurements]
    rows.append(_row("encryption", *_spread(encryptions)))
    note = "ratios of the card's jobs are those of the geometric means of all runs"
    sentences = [Sentence(note, "note")]
    for each in measured_disks:
        if each.disk.missing:
            text = f"{called(each)} {each.id[-8:]} is not complete: missing numbers are left out"
            sentences.append(Sentence(text, "warning"))
    if any(disk.quick for disk in measurements):
        sentences.append(Sentence("quick results are indicative only", "warning"))
    table = Table("disks", "Disks", ("", *names), 1, tuple(rows), brief=True)
    return Section("disks", "Disks side by side", sentences=tuple(sentences), tables=(table,))


def _spread(values: Sequence[str]) -> list[str]:
    return [values[0], *(cell for value in values[1:] for cell in (value, ""))]


def class_of(disk: Disk) -> str:
    if not disk.path:
        return "damaged"
    return disks.card_class(disk) or "not complete"


_Compared = tuple[str, list[TableCell], list[Estimate | None]]


def _compared(measurements: Sequence[Disk]) -> Iterator[_Compared]:
    """Label, a cell for each disk, and the ratio of each but the first to the first."""
    for job in disks.CARD:
        runs = [disks.card_runs(each, job) for each in measurements]
        if all(runs):
            unit = "MB/s" if job == disks.CARD_SEQUENTIAL else "IOPS"
            shown = [TableCell(_card_shown(job, statistics.median(each))) for each in runs]
            ratios = [disks.ratio_of_runs(each, runs[0]) for each in runs[1:]]
            yield f"{job}, {unit}", shown, ratios
    for job in disks.POSTGRES:
        measured = [each.of(job)[:1] for each in measurements]
        if all(measured):
            rates = [each[0].rate for each in measured]
            shown = [estimate_cell(each, rate) for each in rates]
            ratios = [disks.ratio(each, rates[0]) for each in rates[1:]]
            yield f"{job}, IOPS", shown, ratios


def report(rows: Sequence[DiskRow], shown: Section) -> Report:
    """A disk, or several side by side, as a report; shown: their section. Its rows are jobs."""
    [document, *others] = [plain(row) for row in rows]
    head = shown.headline
    main = "" if head is None else ": ".join(filter(None, (head.word, head.text)))
    about = Section("about", "The disk", facts=shown.facts, rank="numbers")
    return Report(
        title=shown.title,
        question="",
        made_at=datetime.now(UTC),
        version=rows[0].version,
        id=rows[0].id,
        sentences=(*((Sentence(main, "main"),) if main else ()), *shown.sentences),
        headline=(),
        sections=(about, shown) if shown.facts else (shown,),
        top=shown,
        document=lambda: {"disks": [document, *others]} if others else document,
        records=lambda: Records(
            tuple(_record(row, each) for row in rows for each in row.disk.measured),
            frozenset(("disk", "name", "job")),
            frozenset(("run",)),
        ),
    )


def _record(row: DiskRow, each: JobRun) -> dict[str, Any]:
    iops = each.rate
    low, high = (iops.low, iops.high) if iops.estimable else (None, None)
    return {
        "disk": row.id, "name": row.name, "job": each.job, "run": each.run,
        "seconds": each.seconds, "iops": iops.value, "iops_low": low, "iops_high": high,
        "bytes_per_s": each.bytes_per_s,
    }  # fmt: skip


def plain(row: DiskRow) -> dict[str, Any]:
    """All measurements for JSON. Estimates are [value, low, high]."""
    disk = row.disk
    document = disk.document()
    for each, values in zip(disk.measured, document["measured"], strict=True):
        values |= {"iops": _ends(each.rate), "bytes_per_s": each.bytes_per_s}
        values["second_half_of_first"] = None if each.slowing is None else _ends(each.slowing)
    return {
        "disk": row.id,
        "name": row.name,
        "started_at": row.started_at.isoformat(),
        "host": to_builtins(row.host),
        "class_by_emulation": disks.card_class(disk),
        "card_medians": disks.card_medians(disk),
        **document,
    }


def _ends(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]
