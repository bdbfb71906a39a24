"""What a disk was found to do: its section, and as plain values.

Knows no store and no fio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

from pgpaces.answers import disks
from pgpaces.answers.disks import Disk, Measured
from pgpaces.facts import HostFacts, stored
from pgpaces.report.escape import line
from pgpaces.report.numbers import interval, milliseconds, rate
from pgpaces.result import Estimate
from pgpaces.section import Headline, Section, Sentence, Table, TableCell
from pgpaces.units import memory_text

# A disk that does less than this in the second half has slowed down.
_SLOWER = 0.8
# What the criteria of a class are of, in their order.
_CRITERIA = (disks.CARD_READ, disks.CARD_WRITE, disks.CARD_SEQUENTIAL)
# Of what fio moved: with more beside it, others were at the disk.
_BESIDE = 0.1


class Known(Protocol):
    """A disk that was stored."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def name(self) -> str:
        """What somebody calls it; may be empty."""

    @property
    def started_at(self) -> datetime:
        """When it was measured."""

    @property
    def host(self) -> HostFacts:
        """Facts of its machine."""

    @property
    def found(self) -> Disk:
        """What was found."""


def called(known: Known) -> str:
    """What a disk is called in a few characters."""
    return line(known.name) or known.id[-8:]


def section(known: Known) -> Section:
    """All that was found of a disk: its class, what PostgreSQL's jobs did, what to know of it."""
    found = known.found
    tables = (_card_table(found), _postgres_table(found))
    return Section(
        "disk",
        f"Disk {called(known)}",
        sentences=tuple(Sentence(text, "warning") for text in _warnings(found)),
        headline=_headline(found),
        facts=tuple(_facts(found)),
        tables=tuple(each for each in tables if each.rows),
        next=(f"pgpaces disk --show {known.id[-8:]}",),
        parts=(Section("remarks", "Remarks", facts=tuple(("", each) for each in _remarks(found))),),
        value=found,
    )


def _headline(found: Disk) -> Headline:
    """The class, and what it is given for."""
    sd, medians = disks.card_class(found), disks.card_medians(found)
    if sd is None or medians is None:
        return Headline("", "unknown", "no class: the emulation of a card's test is not complete")
    return Headline(
        sd,
        "misses" if sd == "below A1" else "meets",
        f"by emulation of the SD classes: {rate(medians[disks.CARD_READ])} read and"
        f" {rate(medians[disks.CARD_WRITE])} write IOPS of 4 KiB,"
        f" {rate(medians[disks.CARD_SEQUENTIAL] / 1e6)} MB/s",
    )


def in_short(known: Known) -> str:
    """A disk in a line, to stand beside what a server on it did."""
    found, parts = known.found, []
    sd, medians = disks.card_class(found), disks.card_medians(found)
    if sd is not None and medians is not None:
        parts.append(
            f"{sd} by emulation ({rate(medians[disks.CARD_READ])} /"
            f" {rate(medians[disks.CARD_WRITE])} IOPS,"
            f" {rate(medians[disks.CARD_SEQUENTIAL] / 1e6)} MB/s)"
        )
    for each in found.of(disks.COMMIT):
        parts.append(f"8 KiB with fdatasync {_with_ends(each.rate, rate, '/s ')}")
    quick = " (quick: indicative)" if found.quick else ""
    return f"{', '.join(parts) or 'nothing was measured'}{quick}; pgpaces disk --show {known.id}"


def _warnings(found: Disk) -> Iterator[str]:
    if found.missing:
        yield f"not complete, missing: {'; '.join(found.missing)}"
    if found.quick:
        yield "quick: seconds instead of minutes, indicative only"
    shares = {job: max(each.beside or 0 for each in found.of(job)) for job in _jobs(found)}
    jobs = ", ".join(f"{100 * n:.0f} % at '{job}'" for job, n in shares.items() if n > _BESIDE)
    if jobs:
        yield (
            "the disk moved more than fio asked for, because others used it or its file system adds"
            f" to it: {jobs}"
        )
    for each in found.measured:
        share = each.slowing if each.job in disks.POSTGRES else None
        if share is not None and share.estimable and share.high < _SLOWER:
            yield (
                f"slows down: '{each.job}' did {_with_ends(share, _plain)} times as much in its"
                " second half as in its first"
            )


def _jobs(found: Disk) -> dict[str, None]:
    return dict.fromkeys(each.job for each in found.measured)


def _facts(found: Disk) -> Iterator[tuple[str, str]]:
    device = found.device
    rotates = {True: "rotational", False: "not rotational", None: ""}[device.rotational]
    parts = (
        f"device {device.name}" if device.name else "no device of its own",
        device.model,
        f"{device.filesystem} ({device.mount_options})",
        f"scheduler {device.scheduler}" if device.scheduler else "",
        f"{rotates} as the kernel says" if rotates else "",
        "" if device.size_bytes is None else memory_text(device.size_bytes),
        f"{memory_text(device.free_bytes)} free" if device.free_bytes is not None else "",
    )
    yield "disk", f"{found.path}: {', '.join(part for part in parts if part)}"
    yield "encryption", device.encryption or "none that can be seen"
    size = memory_text(found.size_bytes)
    yield "measured", f"by {found.fio} in a file of {size}, past the cache (direct)"


def _card_table(found: Disk) -> Table:
    runs = max(len(found.of(job)) for job in disks.CARD)
    classes = sorted(disks.CLASSES)
    numbers = tuple(f"run {run}" for run in range(1, runs + 1))
    needs = {job: n for n, job in enumerate(_CRITERIA)}
    rows = []
    for job in disks.CARD:
        if values := disks.card_runs(found, job):
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


def _postgres_table(found: Disk) -> Table:
    rows = tuple(_postgres(job, each) for job in disks.POSTGRES for each in found.of(job))
    columns = (
        "job", "IOPS", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "2nd / 1st half"
    )  # fmt: skip
    spare = ("p50 ms", "MB/s", "p99.9 ms")
    return Table("disk-postgres", "PostgreSQL", columns, 1, rows, spare=spare, brief=True)


def _postgres(job: str, each: Measured) -> tuple[TableCell, ...]:
    times = each.flushes or each.times
    share = each.slowing
    return (
        TableCell(job),
        _cell(each.rate, rate),
        TableCell(rate(each.bytes_per_s / 1e6)),
        *(TableCell(_ms(times.get(name))) for name in ("p50", "p99", "p99.9")),
        TableCell("-") if share is None else _cell(share, _plain),
    )


def _cell(found: Estimate, form: Callable[[float], str]) -> TableCell:
    return TableCell(form(found.value), interval(found, form))


def _ms(ns: float | None) -> str:
    return milliseconds(None if ns is None else ns / 1e6, "-")


def _plain(value: float) -> str:
    return f"{value:.2f}"


def _with_ends(estimate: Estimate, form: Callable[[float], str], between: str = " ") -> str:
    """A number with its interval; without one it says that there is none."""
    ends = interval(estimate, form, " to ")
    return f"{form(estimate.value)}{between}({ends})"


def _remarks(found: Disk) -> Iterator[str]:
    """What to know of the numbers, and what was found beside fio."""
    if found.of(disks.COMMIT):
        yield "times of 'fdatasync each' are those of the flush behind a write, all others reads'"
    if lengths := [each.seconds for each in found.measured if each.job in disks.CARD]:
        yield f"each run of the card's jobs took {min(lengths):.2g} to {max(lengths):.2g} s"
    if lengths := [each.seconds for each in found.measured if each.job in disks.POSTGRES]:
        yield f"PostgreSQL's took {', '.join(f'{each:.3g}' for each in lengths)} s"
    if found.device.filesystem.startswith("fuse"):
        yield "the file system is a program, which may read what lies below it through the cache"
    if found.flushes is not None:
        methods = ", ".join(f"{name} {rate(n)}/s" for name, n in found.flushes.per_s.items())
        yield (
            f"pg_test_fsync {found.flushes.version}, one write of 8 kB, a bound and not a"
            f" prediction: {methods}"
        )
    if found.cipher is not None:
        cipher = found.cipher
        yield (
            f"{cipher.name} in memory only, no disk in it: encrypts {rate(cipher.encrypts)} MiB/s,"
            f" decrypts {rate(cipher.decrypts)} MiB/s"
        )
    yield from found.absent


def comparison(known: Sequence[Known]) -> Section:
    """Disks side by side, and how many times the first one each of the others is."""
    first, others = known[0], known[1:]
    names = [called(first)]
    for each in others:
        names += [called(each), f"/ {called(first)}"]
    rows = [_row("class by emulation", *_spread([class_of(each.found) for each in known]))]
    for label, values, ratios in _compared([each.found for each in known]):
        cells = [values[0]]
        for value, found in zip(values[1:], ratios, strict=True):
            cells += [value, TableCell("-") if found is None else _cell(found, _plain)]
        rows.append((TableCell(label), *cells))
    rows.append(_row("encryption", *_spread([_encrypted(each.found) for each in known])))
    lacking = [each for each in known if each.found.missing]
    said = [
        Sentence("ratios of the card's jobs are those of the geometric means of all runs", "note")
    ]
    said += [
        Sentence(
            f"{called(each)} {each.id[-8:]} is not complete: what it lacks is left out", "warning"
        )
        for each in lacking
    ]
    if any(each.found.quick for each in known):
        said.append(Sentence("quick results are indicative only", "warning"))
    table = Table("disks", "Disks", ("", *names), 1, tuple(rows), brief=True)
    return Section("disks", "Disks side by side", sentences=tuple(said), tables=(table,))


def _spread(values: Sequence[str]) -> list[str]:
    """A cell for each disk, none under the ratios."""
    return [values[0], *(cell for value in values[1:] for cell in (value, ""))]


def class_of(found: Disk) -> str:
    """The class in one word, or what keeps it from having one."""
    if not found.path:
        return "damaged"
    return disks.card_class(found) or "not complete"


def _encrypted(found: Disk) -> str:
    return found.device.encryption or "none seen"


_Compared = tuple[str, list[TableCell], list[Estimate | None]]


def _compared(found: Sequence[Disk]) -> Iterator[_Compared]:
    """Label, a cell for each disk, and the ratio of each but the first to that."""
    for job in disks.CARD:
        runs = [disks.card_runs(each, job) for each in found]
        if all(runs):
            unit = "MB/s" if job == disks.CARD_SEQUENTIAL else "IOPS"
            shown = [TableCell(_card_shown(job, statistics.median(each))) for each in runs]
            ratios = [disks.ratio_of_runs(each, runs[0]) for each in runs[1:]]
            yield f"{job}, {unit}", shown, ratios
    for job in disks.POSTGRES:
        measured = [each.of(job)[:1] for each in found]
        if all(measured):
            rates = [each[0].rate for each in measured]
            shown = [_cell(each, rate) for each in rates]
            ratios = [disks.ratio(each, rates[0]) for each in rates[1:]]
            yield f"{job}, IOPS", shown, ratios


def plain(known: Known) -> dict[str, Any]:
    """All that was found, for JSON. Estimates are [value, low, high]."""
    found = known.found
    document = found.document()
    for each, values in zip(found.measured, document["measured"], strict=True):
        values |= {"iops": _ends(each.rate), "bytes_per_s": each.bytes_per_s}
        values["second_half_of_first"] = None if each.slowing is None else _ends(each.slowing)
    return {
        "disk": known.id,
        "name": known.name,
        "started_at": known.started_at.isoformat(),
        "host": stored(known.host),
        "class_by_emulation": disks.card_class(found),
        "card_medians": disks.card_medians(found),
        **document,
    }


def _ends(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]
