"""The performance of a disk: values, fio's JSON as values, classes and ratios. Pure.

Rates are commands and bytes a second, times are nanoseconds.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from pgpaces.analysis import stats
from pgpaces.analysis.across import effect_of_groups
from pgpaces.analysis.arrays import np
from pgpaces.core.errors import RunError
from pgpaces.spec.result import Estimate

SdClass = Literal["A2", "A1", "below A1"]

# Jobs, by their names in the store.
CARD_SEQUENTIAL = "4 MiB sequential write"
CARD_WRITE = "4 KiB random write"
CARD_READ = "4 KiB random read"
COMMIT = "8 KiB random write, fdatasync each"
READ = "8 KiB random read"
MIXED = "8 KiB random, 70% reads"
CARD = (CARD_SEQUENTIAL, CARD_WRITE, CARD_READ)
POSTGRES = (COMMIT, READ, MIXED)

# Of the SD Association: commands of 4 KiB a second, bytes a second sustained.
CLASSES: Mapping[SdClass, Mapping[str, float]] = {
    "A2": {CARD_READ: 4000.0, CARD_WRITE: 2000.0, CARD_SEQUENTIAL: 10e6},
    "A1": {CARD_READ: 1500.0, CARD_WRITE: 500.0, CARD_SEQUENTIAL: 10e6},
}
_QUANTILES = {"p50": "50.000000", "p99": "99.000000", "p99.9": "99.900000"}
# A shorter part of a second has no rate.
_WHOLE_MS = 500
# The fewest seconds in each half of a run for their ratio.
_HALF_MIN = 2


class JobRun(Struct, frozen=True):
    """The result of one run of one job. run: from 1.

    per_s: commands a second of each second. times: quantiles of a command, in ns; flushes: of the
    fdatasync after it.
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

    @property
    def iops(self) -> float:
        return (self.reads + self.writes) / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return (self.bytes_read + self.bytes_written) / self.seconds

    @property
    def rate(self) -> Estimate:
        """Commands a second, with the interval by its seconds."""
        mean = stats.rate(np.asarray(self.per_s))
        if mean is None or not mean.estimable:
            return Estimate.alone(self.iops, self.reads + self.writes)
        half = mean.high - mean.value
        return Estimate(self.iops, max(0.0, self.iops - half), self.iops + half, mean.n)

    @property
    def slowing(self) -> Estimate | None:
        """The rate of the second half over that of the first; None for too short a run."""
        middle = len(self.per_s) // 2
        if middle < _HALF_MIN:
            return None
        halves = (self.per_s[:middle], self.per_s[-middle:])
        first, second = (stats.rate(np.asarray(half)) for half in halves)
        return None if first is None or second is None else ratio_of_rates(second, first)


class Device(Struct, frozen=True):
    """The device of a folder. id: of the file system, the same after a restart.

    It has no serial number, so it does not identify one disk among others of its model.
    encryption: its method, as far as it is visible; empty without one.
    """

    id: str
    name: str = ""
    filesystem: str = ""
    mount_options: str = ""
    model: str = ""
    free_bytes: int | None = None
    encryption: str = ""


class Disk(Struct, frozen=True):
    """All measurements of a disk. missing: jobs that did not run because the user interrupted."""

    path: str
    device: Device
    size_bytes: int
    quick: bool
    fio: str
    measured: tuple[JobRun, ...] = ()
    missing: tuple[str, ...] = ()

    def of(self, job: str) -> tuple[JobRun, ...]:
        return tuple(run for run in self.measured if run.job == job)


def fio_documents(text: str) -> list[dict[str, Any]]:
    """The JSON documents that fio printed one after the other, without text between them.

    An incomplete last one, of an fio that was ended, is left out.
    """
    decoder, documents, at = json.JSONDecoder(), [], text.find("{")
    while at >= 0:
        try:
            document, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            break
        documents.append(document)
        at = text.find("{", at)
    return documents


def job_run(job: str, run: int, documents: Sequence[Mapping[str, Any]]) -> JobRun:
    """The result of a job, from fio's statuses, one a second and the last one at the end.

    Raises RunError where they are not fio's, or where it failed or did nothing.
    """
    try:
        sums = []  # milliseconds since the job's start, and its commands until then
        for document in documents:
            read, write = (document["jobs"][0][kind] for kind in ("read", "write"))
            done = read["total_ios"] + write["total_ios"]
            sums.append((max(read["runtime"], write["runtime"]), done))
        last = documents[-1]["jobs"][0]
        if last["error"]:
            raise RunError("fio-stopped", job=job, error=last["error"])
        ms, count = sums[-1]
        if ms <= 0 or count <= 0:
            raise RunError("nothing-measured", program="fio")
        # Of a mixed load the reads, which a query waits for.
        kind = "read" if last["read"]["total_ios"] else "write"
        per_s, ms_before, count_before = [], 0, 0
        for at, done in sums:  # a short rest at the end does not count
            if at - ms_before >= _WHOLE_MS:
                per_s.append((done - count_before) / (at - ms_before) * 1000)
                ms_before, count_before = at, done
        return JobRun(
            job,
            run,
            seconds=ms / 1000,
            reads=last["read"]["total_ios"],
            writes=last["write"]["total_ios"],
            bytes_read=last["read"]["io_bytes"],
            bytes_written=last["write"]["io_bytes"],
            per_s=tuple(per_s),
            times=_quantiles(last[kind]["lat_ns"]),
            flushes=_quantiles(last.get("sync", {}).get("lat_ns", {})),
        )
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise RunError("fio-unreadable", job=job, why=repr(error)) from None


def _quantiles(times: Mapping[str, Any]) -> dict[str, float]:
    percentiles = times.get("percentile", {})
    return {name: float(percentiles[key]) for name, key in _QUANTILES.items() if key in percentiles}


def card_runs(disk: Disk, job: str) -> tuple[float, ...]:
    """The rate of each run of a job of the card: bytes a second if sequential, else IOPS."""
    return tuple(r.bytes_per_s if job == CARD_SEQUENTIAL else r.iops for r in disk.of(job))


def card_medians(disk: Disk) -> dict[str, float] | None:
    """The median of the runs of each job of the card; None where one of them is missing."""
    runs = {job: card_runs(disk, job) for job in CARD}
    if not all(runs.values()):
        return None
    return {job: statistics.median(rates) for job, rates in runs.items()}


def card_class(disk: Disk) -> SdClass | None:
    """The best class that the medians reach; None if a job of the card is missing."""
    medians = card_medians(disk)
    if medians is None:
        return None
    for name, needs in CLASSES.items():
        if all(medians[job] >= least for job, least in needs.items()):
            return name
    return "below A1"


def ratio_of_rates(value: Estimate, base: Estimate) -> Estimate | None:
    """The ratio of two rates above 0; None where one is not.

    The interval by the delta method on logarithms: the squares of the relative halves add up.
    """
    if value.value <= 0 or base.value <= 0:
        return None
    quotient = value.value / base.value
    n = min(value.n, base.n)
    if not (value.estimable and base.estimable):
        return Estimate.alone(quotient, n)
    spread = math.hypot(*((each.high - each.value) / each.value for each in (value, base)))
    return Estimate(quotient, quotient * math.exp(-spread), quotient * math.exp(spread), n)


def ratio_of_runs(values: Sequence[float], bases: Sequence[float]) -> Estimate | None:
    """The ratio of the rates of some runs to those of others; None without runs.

    The ratio of the geometric means, with Welch's interval of the difference of mean logarithms
    (Welch, 1947); without an interval for fewer than two runs of each.
    """
    if not values or not bases or min(*values, *bases) <= 0:
        return None
    a, b = [math.log(each) for each in bases], [math.log(each) for each in values]
    effect = effect_of_groups(a, b)
    if effect is not None:
        return effect.ratio()
    value = math.exp(statistics.fmean(b) - statistics.fmean(a))
    return Estimate.alone(value, min(len(a), len(b)))
