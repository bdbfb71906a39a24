"""What a disk was found to do, as words, tables and plain values. Texts of others are escaped here.

Knows no store and no fio.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from pgpaces.answers import disks
from pgpaces.answers.disks import Disk, Measured
from pgpaces.report.escape import line
from pgpaces.report.grid import table
from pgpaces.report.numbers import interval, milliseconds, rate
from pgpaces.result import Estimate
from pgpaces.units import memory_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# A disk that does less than this in the second half has slowed down.
_SLOWER = 0.8
_WIDE_FROM = 100
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
    def host(self) -> Mapping[str, Any]:
        """Facts of its machine."""

    @property
    def found(self) -> Disk:
        """What was found."""


def called(known: Known) -> str:
    """What a disk is called in a few characters."""
    return line(known.name) or known.id[-8:]


def verdict(found: Disk) -> str:
    """The class in a sentence."""
    sd, medians = disks.card_class(found), disks.card_medians(found)
    if sd is None or medians is None:
        return "no class: the emulation of a card's test is not complete"
    said = "not even A1" if sd == "below A1" else f"{sd}"
    return (
        f"{said} by emulation of the SD classes: {rate(medians[disks.CARD_READ])} read and"
        f" {rate(medians[disks.CARD_WRITE])} write IOPS of 4 KiB,"
        f" {rate(medians[disks.CARD_SEQUENTIAL] / 1e6)} MB/s"
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


def answer(known: Known, width: int) -> list[RenderableType]:
    """All that was found, to be printed one after the other; width in characters."""
    return list(_answer(known.found, width))


def _answer(found: Disk, width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(verdict(found), style="bold")
    for text in _warnings(found):
        yield Text(line(text), style="bold")
    for text in _facts(found):
        yield Text(line(text))
    if any(found.of(job) for job in disks.CARD):
        yield Text("")
        yield _card_table(found)
    if any(found.of(job) for job in disks.POSTGRES):
        yield Text("")
        yield _postgres_table(found, width)
    yield Text("")
    for text in _remarks(found):
        yield Text(line(text))


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


def _facts(found: Disk) -> Iterator[str]:
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
    yield f"{found.path}: {', '.join(part for part in parts if part)}"
    yield f"encryption: {device.encryption or 'none that can be seen'}"
    yield f"by {found.fio} in a file of {memory_text(found.size_bytes)}, past the cache (direct)"


def _card_table(found: Disk) -> Table:
    runs = max(len(found.of(job)) for job in disks.CARD)
    classes = sorted(disks.CLASSES)
    names = ["median", *(f"run {run}" for run in range(1, runs + 1)), *classes]
    made = table("card emulation", names)
    reads, writes, sequential = range(3)
    needs = {disks.CARD_READ: reads, disks.CARD_WRITE: writes, disks.CARD_SEQUENTIAL: sequential}
    for job in disks.CARD:
        if values := [_card_shown(job, value) for value in disks.card_runs(found, job)]:
            unit = "MB/s" if job == disks.CARD_SEQUENTIAL else "IOPS"
            middle = _card_shown(job, statistics.median(disks.card_runs(found, job)))
            least = [_card_shown(job, disks.CLASSES[name][needs[job]]) for name in classes]
            values += [""] * (runs - len(values))
            made.add_row(f"{job}, {unit}", middle, *values, *least)
    return made


def _card_shown(job: str, value: float) -> str:
    return rate(value / 1e6 if job == disks.CARD_SEQUENTIAL else value)


def _postgres_table(found: Disk, width: int) -> Table:
    names = ["IOPS", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "2nd / 1st half"]
    narrow = ["IOPS", "p99 ms", "p99.9 ms", "2nd / 1st half"]
    chosen = names if width >= _WIDE_FROM else narrow
    made = table("PostgreSQL profile", chosen)
    for job in disks.POSTGRES:
        for each in found.of(job):
            cells = _postgres_cells(each)
            made.add_row(job, *(cells[name] for name in chosen))
    return made


def _postgres_cells(each: Measured) -> dict[str, str]:
    times = each.flushes or each.times
    share = each.slowing
    return {
        "IOPS": _with_ends(each.rate, rate, "\n"),
        "MB/s": rate(each.bytes_per_s / 1e6),
        "2nd / 1st half": "-" if share is None else _with_ends(share, _plain, "\n"),
        **{f"{name} ms": _ms(times.get(name)) for name in ("p50", "p99", "p99.9")},
    }


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


def comparison(known: Sequence[Known]) -> list[RenderableType]:
    """Disks side by side, and how many times the first one each of the others is."""
    from rich.text import Text

    first, others = known[0], known[1:]
    names = [called(first)]
    for each in others:
        names += [called(each), f"/ {called(first)}"]
    made = table("", names)
    made.add_row("class by emulation", *_spread([class_of(each.found) for each in known]))
    for label, values, ratios in _compared([each.found for each in known]):
        cells = [values[0]]
        for value, found in zip(values[1:], ratios, strict=True):
            cells += [value, "-" if found is None else _with_ends(found, _plain, "\n")]
        made.add_row(label, *cells)
    made.add_row("encryption", *_spread([line(_encrypted(each.found)) for each in known]))
    said = "ratios of the card's jobs are those of the geometric means of all runs"
    parts: list[RenderableType] = [made, Text(""), Text(said)]
    for each in known:
        if each.found.missing:
            lacks = f"{called(each)} {each.id[-8:]} is not complete: what it lacks is left out"
            parts.append(Text(line(lacks)))
    if any(each.found.quick for each in known):
        parts.append(Text("quick results are indicative only"))
    return parts


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


_Row = tuple[str, list[str], list[Estimate | None]]


def _compared(found: Sequence[Disk]) -> Iterator[_Row]:
    """Label, a text for each disk, and the ratio of each but the first to that."""
    for job in disks.CARD:
        runs = [disks.card_runs(each, job) for each in found]
        if all(runs):
            unit = "MB/s" if job == disks.CARD_SEQUENTIAL else "IOPS"
            shown = [_card_shown(job, statistics.median(each)) for each in runs]
            ratios = [disks.ratio_of_runs(each, runs[0]) for each in runs[1:]]
            yield f"{job}, {unit}", shown, ratios
    for job in disks.POSTGRES:
        measured = [each.of(job)[:1] for each in found]
        if all(measured):
            rates = [each[0].rate for each in measured]
            shown = [_with_ends(each, rate, "\n") for each in rates]
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
        "host": dict(known.host),
        "class_by_emulation": disks.card_class(found),
        "card_medians": disks.card_medians(found),
        **document,
    }


def _ends(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]
