"""The jobs of fio on a disk, their lengths, and the most that they write. Pure.

A job that writes ends after its time, or when it has written its share, so the maximum is known
before a measurement begins.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pgpaces.analysis import disks
from pgpaces.core.errors import PlanError

MIB = 2**20
SIZE_MIN = 8 * MIB
SIZE, QUICK_SIZE = 256 * MIB, 32 * MIB
RUNS_MIN = 3
# About the bytes that pg_test_fsync writes where flushes are very fast.
FLUSHES_BYTES = 500_000_000
# pg_test_fsync's own file: a segment of WAL.
FLUSHES_FILE_BYTES = 16 * MIB
# Writing more than this requires consent.
CONSENT_BYTES = 1_000_000_000
FILL = "fill"


class Lengths(Struct, frozen=True):
    """The lengths of jobs, and how many times at most a job writes the file."""

    card_s: int
    postgres_s: int
    card_times: int
    postgres_times: int


FULL = Lengths(card_s=10, postgres_s=60, card_times=8, postgres_times=32)
QUICK = Lengths(card_s=2, postgres_s=5, card_times=1, postgres_times=3)


class DiskRequest(Struct, frozen=True):
    """Options of a measurement. runs: of each job of the card."""

    size_bytes: int = SIZE
    runs: int = RUNS_MIN
    lengths: Lengths = FULL

    def __post_init__(self) -> None:
        if self.size_bytes < SIZE_MIN:
            raise PlanError(
                "disk-file-too-small", size_bytes=self.size_bytes, minimum_mb=SIZE_MIN // MIB
            )


class Job(Struct, frozen=True):
    """One job of one run, as fio's options. seconds: its longest duration; None: no limit.

    written_max: bytes.
    """

    name: str
    run: int
    options: Mapping[str, str]
    seconds: int | None
    written_max: int


def written_max(request: DiskRequest) -> int:
    """The most bytes that a measurement writes, about."""
    return sum(job.written_max for job in jobs(request)) + FLUSHES_BYTES


def room(request: DiskRequest) -> int:
    return request.size_bytes + FLUSHES_FILE_BYTES + MIB


def arguments(job: Job) -> list[str]:
    """fio's options of a job, for a process in the folder.

    One process (thread), which prints its status every second: so it ends soon after the reader of
    that pipe has gone, for whatever reason.
    """
    every = {
        "name": "pgpaces",
        "filename": "data",
        "ioengine": "libaio",
        "direct": "1",
        "thread": "1",
        "output-format": "json",
        "eta": "never",
        "status-interval": "1",
        # Of whole commands: a file system without asynchronous I/O executes them at submission, so
        # that completion takes no time.
        "lat_percentiles": "1",
        **job.options,
    }
    return [f"--{name}={value}" for name, value in every.items()]


def jobs(request: DiskRequest) -> tuple[Job, ...]:
    """All jobs in order: the one that fills the file, the card's, PostgreSQL's."""
    lengths, size = request.lengths, str(request.size_bytes)
    card = {"size": size, "iodepth": "32"}
    fill = {**card, "rw": "write", "bs": "4m", "end_fsync": "1"}
    every = [Job(FILL, 1, fill, None, request.size_bytes)]
    limit = lengths.card_times * request.size_bytes
    timed = {**card, "runtime": str(lengths.card_s)}
    writing = {**timed, "io_size": str(limit), "end_fsync": "1"}
    reading = {**timed, "time_based": "1", "rw": "randread", "bs": "4k"}
    sequential = {**writing, "rw": "write", "bs": "4m"}
    random = {**writing, "rw": "randwrite", "bs": "4k"}
    for run in range(1, request.runs + 1):
        every += [
            Job(disks.CARD_SEQUENTIAL, run, sequential, lengths.card_s, limit),
            Job(disks.CARD_WRITE, run, random, lengths.card_s, limit),
            Job(disks.CARD_READ, run, reading, lengths.card_s, 0),
        ]
    seconds, limit = lengths.postgres_s, lengths.postgres_times * request.size_bytes
    page = {"size": size, "bs": "8k", "iodepth": "1", "runtime": str(seconds)}
    commits = {**page, "rw": "randwrite", "fdatasync": "1", "io_size": str(limit)}
    mixed = {**page, "rw": "randrw", "rwmixread": "70", "io_size": str(limit * 10 // 3)}
    return (
        *every,
        Job(disks.COMMIT, 1, commits, seconds, limit),
        Job(disks.READ, 1, {**page, "rw": "randread", "time_based": "1"}, seconds, 0),
        Job(disks.MIXED, 1, mixed, seconds, limit),
    )
