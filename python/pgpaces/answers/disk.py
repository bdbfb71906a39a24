"""The measurements of a disk: their section, and as plain values.

Opens no store and runs no fio.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import to_builtins
from msgspec.structs import astuple, replace

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Disk
from pgpaces.core.findings import Finding, finding, weight
from pgpaces.core.messages import message, said
from pgpaces.show.escape import line
from pgpaces.show.number_text import estimate_cell, rate
from pgpaces.show.screen import Cells, Screen, bounds, table_of
from pgpaces.show.section import Headline, Next, Number, Report, Section, Table, TableCell, Values
from pgpaces.spec.result import Estimate
from pgpaces.store.listing import DiskRow

_TIMES = ("p50", "p99", "p999")
_TWO_PLACES = "{:.2f}".format
# A disk whose rate in the second half is below this share of the first has slowed down.
_SLOWER = 0.8

SCREEN = Screen(first=("disk", "encryption", "measured"), details=("device", "missing"))


def called(row: DiskRow) -> str:
    return line(row.name) or row.id[-8:]


def section(row: DiskRow) -> Section:
    disk = row.disk
    return SCREEN.section(
        headline(disk),
        values(disk),
        key="disk",
        title=message("disk-title", disk=called(row)),
        findings=findings(disk),
        steps=(Next(f"pgpaces disk --show {row.id[-8:]}", "next-measurements"),),
        tables=tuple(each for each in _tables(disk) if each.rows),
        rows=tuple(_numbers([row])),
        value=disk,
        document=partial(plain, row),
    )


def headline(disk: Disk) -> Headline:
    sd, medians = disks.card_class(disk), disks.card_medians(disk)
    if sd is None or medians is None:
        return Headline("UNKNOWN", "unknown", message("disk-class-unknown"))
    text = message(
        "disk-class",
        reads=medians[disks.CARD_READ],
        writes=medians[disks.CARD_WRITE],
        mb_per_s=medians[disks.CARD_SEQUENTIAL] / 1e6,
    )
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
    yield from (("missing", said("disk-missing", job=each)) for each in disk.missing)


def encryption(disk: Disk) -> str:
    return disk.device.encryption or message("disk-unencrypted")


def class_of(disk: Disk) -> str:
    return disks.card_class(disk) or message("disk-unclassed" if disk.path else "disk-damaged")


def _tables(disk: Disk) -> Iterator[Table]:
    most = max(len(disk.of(job)) for job in disks.CARD)
    classes, runs = sorted(disks.CLASSES), tuple(f"run {run}" for run in range(1, most + 1))
    rows = []
    for job in disks.CARD:
        if values := disks.card_runs(disk, job):
            every = [_card_text(job, value) for value in (statistics.median(values), *values)]
            least = [_card_text(job, disks.CLASSES[name][job]) for name in classes]
            texts = (_labeled(job), *every, *[""] * (most - len(values)), *least)
            rows.append(zip(("job", "median", *runs, *classes), texts, strict=True))
    yield table_of("title-card", rows, spare=runs, brief=True)
    measured = []
    for each in (each for job in disks.POSTGRES for each in disk.of(job)):
        ns = each.flushes or each.times
        times = {key.replace(".", ""): value / 1e6 for key, value in ns.items()}
        numbers = {"rate": each.rate, "mb_s": each.bytes_per_s / 1e6, "slowing": each.slowing}
        measured.append({"job": each.job, **dict.fromkeys(_TIMES), **times, **numbers})
    note = message("disk-times") if disk.of(disks.COMMIT) else ""
    spare = ("p50 ms", "MB/s", "p99.9 ms")
    yield table_of("table-disk-postgres", measured, note=note, spare=spare, brief=True)


def _labeled(job: str) -> str:
    return f"{job}, {'MB/s' if job == disks.CARD_SEQUENTIAL else 'IOPS'}"


def _card_text(job: str, value: float) -> str:
    return rate(value / 1e6 if job == disks.CARD_SEQUENTIAL else value)


def comparison(rows: Sequence[DiskRow]) -> Section:
    """Disks side by side, each but the first with its ratios to the first."""
    base = rows[0]
    every = (*disks.CARD, *disks.POSTGRES)
    jobs = [job for job in every if all(row.disk.of(job) for row in rows)]

    def cells(job: str) -> Cells:
        yield "", _labeled(job) if job in jobs else job
        for at, row in enumerate(rows):
            texts = {"class": class_of(row.disk), "encryption": encryption(row.disk)}
            yield called(row), texts.get(job) or _rate_cell(row.disk, job)
            if at:
                ratio = _ratio(job, row.disk, base.disk) if job in jobs else None
                yield f"/ {called(base)}", estimate_cell(ratio, _TWO_PLACES) if job in jobs else ""

    items = ("class", *jobs, "encryption")
    return SCREEN.section(
        Headline("DISKS", "", message("disks-compared", base=called(base))),
        (),
        key="disks",
        title=message("disks-title"),
        findings=[
            replace(each, about=called(row))
            for row in rows
            for each in findings(row.disk)
            if each.name in ("disk-quick", "disk-incomplete")
        ],
        rows=tuple(_numbers(rows)),
        document=lambda: [plain(row) for row in rows],
        tables=(table_of("title-disks", map(cells, items), brief=True),),
    )


def _rate_cell(disk: Disk, job: str) -> TableCell:
    if job in disks.CARD:
        return TableCell(_card_text(job, statistics.median(disks.card_runs(disk, job))))
    return estimate_cell(disk.of(job)[0].rate, rate)


def _ratio(job: str, disk: Disk, base: Disk) -> Estimate | None:
    if job in disks.CARD:
        return disks.ratio_of_runs(disks.card_runs(disk, job), disks.card_runs(base, job))
    return disks.ratio_of_rates(disk.of(job)[0].rate, base.of(job)[0].rate)


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
        rows=lambda: shown.rows,
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
    document = to_builtins(disk)
    for each, values in zip(disk.measured, document["measured"], strict=True):
        values |= {"iops": astuple(each.rate)[:3], "bytes_per_s": each.bytes_per_s}
        values["second_half_of_first"] = each.slowing and astuple(each.slowing)[:3]
    return {
        "disk": row.id,
        "name": row.name,
        "started_at": row.started_at.isoformat(),
        "host": to_builtins(row.host),
        "class_by_emulation": disks.card_class(disk),
        "card_medians": disks.card_medians(disk),
        **document,
    }
