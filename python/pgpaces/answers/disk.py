"""The measurements of a disk: their section, and as plain values.

Opens no store and runs no fio.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Disk, JobRun
from pgpaces.core.findings import Finding, finding, weight
from pgpaces.core.messages import message, said
from pgpaces.core.metrics import header
from pgpaces.show.escape import line
from pgpaces.show.numbers import estimate_cell, ms, or_dash, rate
from pgpaces.show.screen import Screen, bounds
from pgpaces.show.section import (
    Column,
    Headline,
    Next,
    Number,
    Report,
    Section,
    Table,
    TableCell,
    Values,
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


SCREEN = Screen(
    first=("disk", "encryption", "measured"),
    details=("device", "card jobs", "other jobs", "times", "flushes", "cipher", "missing", "note"),
)


def called(row: DiskRow) -> str:
    return line(row.name) or row.id[-8:]


def section(row: DiskRow) -> Section:
    disk = row.disk
    tables = (_card_table(disk), _postgres_table(disk))
    return SCREEN.section(
        headline(disk),
        values(disk),
        key="disk",
        title=message("disk-title", disk=called(row)),
        findings=findings(disk),
        steps=(Next(f"pgpaces disk --show {row.id[-8:]}", "next-measurements"),),
        whole=True,
        tables=tuple(each for each in tables if each.rows),
        rows=tuple(_numbers([row])),
        value=disk,
        document=partial(plain, row),
    )


def headline(disk: Disk) -> Headline:
    sd, medians = disks.card_class(disk), disks.card_medians(disk)
    if sd is None or medians is None:
        return Headline("UNKNOWN", "unknown", message("disk-class-unknown"))
    reads, writes, bytes_per_s = (medians[job] for job in _CRITERIA)
    text = message("disk-class", reads=reads, writes=writes, mb_per_s=bytes_per_s / 1e6)
    return Headline(sd, "fail" if sd == "below A1" else "pass", text)


def in_short(row: DiskRow) -> str:
    disk, top = row.disk, headline(row.disk)
    commits = [
        said("disk-commits", per_s=each.rate.value, ci=bounds(each.rate))
        for each in disk.of(disks.COMMIT)
    ]
    quick = [finding("disk-quick").sentence] if disk.quick else []
    parts = [top.word, top.text, *commits, *quick]
    return message("disk-in-short", parts=parts, id=row.id)


def findings(disk: Disk) -> list[Finding]:
    found = [finding("disk-quick")] if disk.quick else []
    if disk.missing:
        found.append(finding("disk-incomplete", count=len(disk.missing)))
    by_share = sorted(disk.measured, key=lambda each: each.other_share or 0)
    if shares := {
        each.job: each.other_share for each in by_share if (each.other_share or 0) > _OTHERS_MAX
    }:
        found.append(finding("disk-shared", jobs=shares))
    for each in disk.measured:
        share = each.slowing if each.job in disks.POSTGRES else None
        if share is not None and share.estimable and share.high < _SLOWER:
            ends = {"low": share.low, "high": share.high}
            found.append(finding("disk-slows", each.job, share=share.value, **ends))
    if disk.device.filesystem.startswith("fuse"):
        found.append(finding("disk-through-fuse", filesystem=disk.device.filesystem))
    return sorted(found, key=weight)


def values(disk: Disk) -> Values:
    device = disk.device
    parts = [each for each in (device.name, device.model, device.filesystem) if each]
    yield "disk", said("disk-of", path=disk.path, parts=parts)
    yield "encryption", said("disk-encryption", method=encryption(disk))
    yield "measured", said("disk-measured", fio=disk.fio, size_bytes=disk.size_bytes)
    facts = {name: each or None for name, each in to_builtins(device).items() if name != "id"}
    yield "device", said("disk-device", **facts)
    for label, jobs in (("card jobs", disks.CARD), ("other jobs", disks.POSTGRES)):
        if lengths := [each.seconds for each in disk.measured if each.job in jobs]:
            yield label, said("disk-took", seconds=max(lengths))
    if disk.of(disks.COMMIT):
        yield "times", said("disk-times")
    if disk.flushes:
        per_s = {name: rate(each) for name, each in disk.flushes.per_s.items()}
        yield "flushes", said("disk-flushes", version=disk.flushes.version, per_s=per_s)
    if disk.cipher:
        yield "cipher", said("disk-cipher", **to_builtins(disk.cipher))
    yield from (("missing", said("disk-missing", job=each)) for each in disk.missing)
    yield from (("note", each) for each in disk.absent)


def _card_table(disk: Disk) -> Table:
    most = max(len(disk.of(job)) for job in disks.CARD)
    classes, runs = sorted(disks.CLASSES), tuple(f"run {run}" for run in range(1, most + 1))
    rows = []
    for job in disks.CARD:
        if values := disks.card_runs(disk, job):
            every = [_card_text(job, value) for value in (statistics.median(values), *values)]
            needs = [disks.CLASSES[name][_CRITERIA.index(job)] for name in classes]
            least = [_card_text(job, need) for need in needs]
            texts = (_labeled(job), *every, *[""] * (most - len(values)), *least)
            rows.append(tuple(map(TableCell, texts)))
    columns = ("job", "median", *runs, *classes)
    name = message("title-card")
    return Table("disk-card", name, columns, 1, tuple(rows), spare=runs, brief=True)


def _labeled(job: str) -> str:
    return f"{job}, {'MB/s' if job == disks.CARD_SEQUENTIAL else 'IOPS'}"


def _card_text(job: str, value: float) -> str:
    return rate(value / 1e6 if job == disks.CARD_SEQUENTIAL else value)


def _postgres_table(disk: Disk) -> Table:
    def time(name: str) -> Column[JobRun]:
        def shown(each: JobRun) -> str:
            ns = (each.flushes or each.times).get(name)
            return or_dash(ns, lambda ns: ms(ns / 1e6))

        return header(name), shown

    columns: list[Column[JobRun]] = [
        ("job", lambda each: each.job),
        ("IOPS", lambda each: estimate_cell(each.rate, rate)),
        ("MB/s", lambda each: rate(each.bytes_per_s / 1e6)),
        *map(time, ("p50", "p99", "p99.9")),
        ("2nd / 1st half", lambda each: _ratio(each.slowing)),
    ]
    runs = [each for job in disks.POSTGRES for each in disk.of(job)]
    spare = (header("p50"), "MB/s", header("p99.9"))
    return table("disk-postgres", "PostgreSQL", columns, items=runs, spare=spare, brief=True)


def _ratio(estimate: Estimate | None) -> TableCell:
    return estimate_cell(estimate, "{:.2f}".format)


def comparison(measured_disks: Sequence[DiskRow]) -> Section:
    first, measurements = called(measured_disks[0]), [each.disk for each in measured_disks]
    names = [name for each in measured_disks for name in (called(each), f"/ {first}")]
    lines = [
        ("class", [TableCell(class_of(each)) for each in measurements], []),
        *_compared(measurements),
        ("encryption", [TableCell(encryption(each)) for each in measurements], []),
    ]
    rows = []
    for label, cells, ratios in lines:
        pairs = itertools.zip_longest(cells, ratios, fillvalue=TableCell(""))
        value, _, *others = itertools.chain.from_iterable(pairs)
        rows.append((TableCell(label), value, *others))
    found = [
        replace(each, about=called(row))
        for row in measured_disks
        for each in findings(row.disk)
        if each.name in ("disk-quick", "disk-incomplete")
    ]
    columns = ("", first, *names[2:])
    return SCREEN.section(
        Headline("DISKS", "", message("disks-compared", base=first)),
        (),
        key="disks",
        title=message("disks-title"),
        findings=found,
        whole=True,
        rows=tuple(_numbers(measured_disks)),
        document=lambda: [plain(row) for row in measured_disks],
        tables=(Table("disks", "Disks", columns, 1, tuple(rows), brief=True),),
    )


def encryption(disk: Disk) -> str:
    return disk.device.encryption or message("disk-unencrypted")


def class_of(disk: Disk) -> str:
    return disks.card_class(disk) or message("disk-unclassed" if disk.path else "disk-damaged")


def _compared(
    measurements: Sequence[Disk],
) -> Iterator[tuple[str, list[TableCell], list[TableCell]]]:
    """The jobs that all have: the value of each disk, and its ratio to the first."""
    for job in (*disks.CARD, *disks.POSTGRES):
        runs = [disks.card_runs(each, job) for each in measurements]
        if not all(runs):
            continue
        if job in disks.CARD:
            shown = [TableCell(_card_text(job, statistics.median(each))) for each in runs]
            ratios = [disks.ratio_of_runs(each, runs[0]) for each in runs]
        else:
            rates = [each.of(job)[0].rate for each in measurements]
            shown = [estimate_cell(each, rate) for each in rates]
            ratios = [disks.ratio_of_rates(each, rates[0]) for each in rates]
        yield _labeled(job), shown, [_ratio(each) for each in ratios]


def report(rows: Sequence[DiskRow], shown: Section) -> Report:
    """A disk, or several side by side, as a report; shown: their section. Its rows are jobs."""
    return Report(
        title=shown.title,
        question="",
        made_at=datetime.now(UTC),
        version=rows[0].version,
        id=rows[0].id,
        headline=(),
        sections=(shown,),
        top=shown,
        kind_question=message("question-disk" if len(rows) == 1 else "question-disks"),
        document=lambda: {"disks": [plain(row) for row in rows]},
        rows=lambda: tuple(_numbers(rows)),
    )


def _numbers(rows: Sequence[DiskRow]) -> Iterator[Number]:
    for row in rows:
        for each in row.disk.measured:
            of = {"disk": row.id, "name": row.name, "job": each.job, "repetition": str(each.run)}
            yield Number(of, "iops", each.rate)
            yield Number(of, "bytes_s", Estimate.alone(each.bytes_per_s, each.rate.n))


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
