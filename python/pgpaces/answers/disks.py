"""What a disk was found to do: values, what fio says in its JSON, classes and ratios. Pure.

Knows how none of it was measured. Rates are commands and bytes a second, times nanoseconds.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field, to_builtins

from pgpaces import facts
from pgpaces.answers import stats
from pgpaces.answers.distributions import student_quantile
from pgpaces.errors import StoreError
from pgpaces.result import Estimate

SdClass = Literal["A2", "A1", "below A1"]

# Jobs by the names that they are stored under.
CARD_SEQUENTIAL = "4 MiB sequential write"
CARD_WRITE = "4 KiB random write"
CARD_READ = "4 KiB random read"
COMMIT = "8 KiB random write, fdatasync each"
READ = "8 KiB random read"
MIXED = "8 KiB random, 70 % reads"
CARD = (CARD_SEQUENTIAL, CARD_WRITE, CARD_READ)
POSTGRES = (COMMIT, READ, MIXED)

# Of the SD Association: read and write commands of 4 KiB a second, bytes a second sustained.
CLASSES: Mapping[SdClass, tuple[float, float, float]] = {
    "A2": (4000.0, 2000.0, 10e6),
    "A1": (1500.0, 500.0, 10e6),
}
_QUANTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}
# A shorter rest of a second says nothing of a rate.
_WHOLE_MS = 500
# With fewer seconds in a half, its share of the other one is only a number.
_HALF_MIN = 2


class Measured(Struct, frozen=True):
    """What one run of one job found. run: from 1.

    per_s: commands a second of each second. times: quantiles of a command, in ns; flushes: of the
    fdatasync behind it. bytes_beside: what the disk moved meanwhile that fio did not ask for; None
    where it does not count.
    """

    job: str
    run: int
    seconds: float
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    per_s: tuple[float, ...] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    flushes: Mapping[str, float] = field(default_factory=dict)
    bytes_beside: int | None = None

    @property
    def iops(self) -> float:
        """Commands a second."""
        return (self.reads + self.writes) / self.seconds

    @property
    def bytes_per_s(self) -> float:
        """Bytes a second."""
        return (self.bytes_read + self.bytes_written) / self.seconds

    @property
    def beside(self) -> float | None:
        """The bytes beside ours as a share of ours."""
        ours = self.bytes_read + self.bytes_written
        return None if self.bytes_beside is None or not ours else self.bytes_beside / ours

    @property
    def rate(self) -> Estimate:
        """Commands a second, with the interval that its seconds tell."""
        import numpy as np

        found = stats.rate(np.asarray(self.per_s))
        if found is None or not found.estimable:
            return Estimate.alone(self.iops, self.reads + self.writes)
        half = found.high - found.value
        return Estimate(self.iops, max(0.0, self.iops - half), self.iops + half, found.n)

    @property
    def slowing(self) -> Estimate | None:
        """Rate of the second half over that of the first; None where it was too short for two."""
        import numpy as np

        middle = len(self.per_s) // 2
        if middle < _HALF_MIN:
            return None
        halves = [stats.rate(np.asarray(p)) for p in (self.per_s[:middle], self.per_s[-middle:])]
        first, second = halves
        return None if first is None or second is None else ratio(second, first)


class Device(Struct, frozen=True):
    """Where a folder lies. id: the same file system has the same one, also after a restart.

    Nothing in it tells one disk of a kind from another: no serial number. encryption: how it is
    encrypted, as far as that can be seen; empty if it is not.
    """

    id: str
    name: str = ""
    filesystem: str = ""
    mount_options: str = ""
    model: str = ""
    scheduler: str = ""
    rotational: bool | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    encryption: str = ""


class Flushes(Struct, frozen=True):
    """What pg_test_fsync of a PostgreSQL found: writes of 8 kB a second by method."""

    version: str
    per_s: Mapping[str, float]


class Cipher(Struct, frozen=True):
    """What `cryptsetup benchmark` found, in memory alone: MiB a second."""

    name: str
    encrypts: float
    decrypts: float


class Disk(Struct, frozen=True):
    """All that was measured of a disk. absent: what is not available here, and what it would need.

    missing: what was not measured because somebody ended it.
    """

    path: str
    device: Device
    size_bytes: int
    quick: bool
    fio: str
    measured: tuple[Measured, ...] = ()
    flushes: Flushes | None = None
    cipher: Cipher | None = None
    absent: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def of(self, job: str) -> tuple[Measured, ...]:
        """The runs of a job."""
        return tuple(found for found in self.measured if found.job == job)

    def document(self) -> dict[str, Any]:
        """As plain values, to be stored."""
        found: dict[str, Any] = to_builtins(self)
        return found


def read(document: Mapping[str, Any]) -> Disk:
    """The disk of a stored document. Raises StoreError where it cannot be one."""
    try:
        return facts.read(Disk, document, "a disk")
    except (TypeError, ValueError) as error:
        raise StoreError(f"the stored result of a disk is damaged: {error}") from None


# --- fio ----------------------------------------------------------------------------------------


def statuses(text: str) -> list[dict[str, Any]]:
    """The JSON documents that fio printed one behind the other, with whatever stood between them.

    The last one may be incomplete where fio was ended; it is left out then.
    """
    decoder, found, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        found.append(document)
        at = text.find("{", at)
    return found


def measured(job: str, run: int, documents: Sequence[Mapping[str, Any]]) -> Measured:
    """What fio's statuses, one a second and the last one at the end, say of a job.

    Raises ValueError where they are not fio's, or say that nothing was done.
    """
    try:
        sums = [_sums(document["jobs"][0]) for document in documents]
        last = documents[-1]["jobs"][0]
        if last["error"]:
            raise ValueError(f"fio ended with error {last['error']}")
        ms, count = sums[-1]
        if ms <= 0 or count <= 0:
            raise ValueError("fio did nothing")
        kind = "write" if last["write"]["total_ios"] else "read"
        if last["read"]["total_ios"] and kind == "write":
            kind = "read"  # of a mixed load: what a query waits for
        return Measured(
            job,
            run,
            seconds=ms / 1000,
            reads=last["read"]["total_ios"],
            writes=last["write"]["total_ios"],
            bytes_read=last["read"]["io_bytes"],
            bytes_written=last["write"]["io_bytes"],
            per_s=tuple(_rates(sums)),
            times=_quantiles(last[kind]["lat_ns"]),
            flushes=_quantiles(last.get("sync", {}).get("lat_ns", {})),
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"fio said something else than expected: {error!r}") from None


def _sums(job: Mapping[str, Any]) -> tuple[int, int]:
    """Milliseconds since the job's start, and its commands until then."""
    sides = (job["read"], job["write"])
    return max(side["runtime"] for side in sides), sum(side["total_ios"] for side in sides)


def _rates(sums: Iterable[tuple[int, int]]) -> Iterable[float]:
    """Commands a second between two statuses; a rest that is no second belongs to no one."""
    ms_before = count_before = 0
    for ms, count in sums:
        if ms - ms_before >= _WHOLE_MS:
            yield (count - count_before) / (ms - ms_before) * 1000
            ms_before, count_before = ms, count


def _quantiles(times: Mapping[str, Any]) -> dict[str, float]:
    known = times.get("percentile", {})
    return {name: float(known[key]) for name, key in _QUANTILES.items() if key in known}


# --- answers ------------------------------------------------------------------------------------


def sd_class(reads: float, writes: float, bytes_per_s: float) -> SdClass:
    """The class that these rates would be enough for: 4 KiB commands, and sequential writing."""
    for name, (reads_min, writes_min, bytes_min) in CLASSES.items():
        if reads >= reads_min and writes >= writes_min and bytes_per_s >= bytes_min:
            return name
    return "below A1"


def card_runs(disk: Disk, job: str) -> tuple[float, ...]:
    """What each run of a job of the card found: bytes a second of the sequential one, else IOPS."""
    found = disk.of(job)
    return tuple(m.bytes_per_s if job == CARD_SEQUENTIAL else m.iops for m in found)


def card_medians(disk: Disk) -> dict[str, float] | None:
    """The median of the runs of each job of the card; None where one of them is missing."""
    runs = {job: card_runs(disk, job) for job in CARD}
    if not all(runs.values()):
        return None
    return {job: statistics.median(found) for job, found in runs.items()}


def card_class(disk: Disk) -> SdClass | None:
    """The class by the medians; None where something of it is missing."""
    medians = card_medians(disk)
    if medians is None:
        return None
    return sd_class(medians[CARD_READ], medians[CARD_WRITE], medians[CARD_SEQUENTIAL])


def ratio(value: Estimate, base: Estimate) -> Estimate | None:
    """How many times the base it is, both being rates above nothing; None where one is not.

    The interval by the delta method on logarithms: the squares of the relative halves add up.
    """
    if value.value <= 0 or base.value <= 0:
        return None
    found = value.value / base.value
    n = min(value.n, base.n)
    if not (value.estimable and base.estimable):
        return Estimate.alone(found, n)
    spread = math.hypot(*((each.high - each.value) / each.value for each in (value, base)))
    return Estimate(found, found * math.exp(-spread), found * math.exp(spread), n)


def ratio_of_runs(values: Sequence[float], bases: Sequence[float]) -> Estimate | None:
    """How many times the bases the values are, both some runs of the same; None of none.

    The ratio of the geometric means, with Welch's interval of the difference of mean logarithms
    (Welch, 1947); not estimable with fewer than two runs of each.
    """
    if not values or not bases or min(*values, *bases) <= 0:
        return None
    logs = [[math.log(each) for each in found] for found in (values, bases)]
    means = [statistics.fmean(found) for found in logs]
    n = min(len(values), len(bases))
    value = math.exp(means[0] - means[1])
    if n < 2:
        return Estimate.alone(value, n)
    errors = [statistics.variance(found) / len(found) for found in logs]
    if sum(errors) == 0:
        return Estimate(value, value, value, n)

    parts = sum(e * e / (len(found) - 1) for e, found in zip(errors, logs, strict=True))
    half = student_quantile(sum(errors) ** 2 / parts, 0.975) * math.sqrt(sum(errors))
    return Estimate(value, value * math.exp(-half), value * math.exp(half), n)
