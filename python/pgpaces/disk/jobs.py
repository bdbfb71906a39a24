"""What fio is asked to do on a disk: its jobs, their lengths, and the most that they write. Pure.

A job that writes ends when its time is over, or when it has written its share: so the most that is
written is known before, and a disk that is fast is not worn out for a number that says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from pgpaces.answers import disks
from pgpaces.errors import PlanError

MIB = 2**20
SIZE_MIN = 8 * MIB
SIZE, QUICK_SIZE = 256 * MIB, 32 * MIB
RUNS_MIN = 3
# About what pg_test_fsync writes where a flush takes next to nothing.
FLUSHES_BYTES = 500_000_000
# pg_test_fsync's own file: a segment of WAL.
FLUSHES_FILE_BYTES = 16 * MIB
# More than this is asked for before.
CONSENT_BYTES = 1_000_000_000
FILL = "fill"
# What a middling memory card takes: for what is likely to be written, where the most is not.
CARD_BYTES_PER_S = 20_000_000


class Lengths(Struct, frozen=True):
    """How long jobs last, and how often their file is written at most by each of them."""

    card_s: int
    postgres_s: int
    card_times: int
    postgres_times: int


FULL = Lengths(card_s=10, postgres_s=60, card_times=8, postgres_times=32)
QUICK = Lengths(card_s=2, postgres_s=5, card_times=1, postgres_times=3)


class DiskRequest(Struct, frozen=True):
    """What is to be measured. runs: of each job of the card."""

    size_bytes: int = SIZE
    runs: int = RUNS_MIN
    lengths: Lengths = FULL

    def __post_init__(self) -> None:
        if self.size_bytes < SIZE_MIN:
            raise PlanError(
                f"a file of {self.size_bytes} bytes is too small to measure a disk by",
                f"from {SIZE_MIN // MIB} MB on",
            )


class Job(Struct, frozen=True):
    """One job of one run, as fio's options. seconds: how long it lasts at most; None: no limit.

    written_max: bytes.
    """

    name: str
    run: int
    options: Mapping[str, str]
    seconds: int | None
    written_max: int


def jobs(asked: DiskRequest) -> tuple[Job, ...]:
    """Every job in its order: the file is filled, then the card's, then PostgreSQL's."""
    return tuple(_jobs(asked))


def written_max(asked: DiskRequest) -> int:
    """How many bytes all of it writes at most, about."""
    return sum(job.written_max for job in jobs(asked)) + FLUSHES_BYTES


def written_by_card(asked: DiskRequest) -> int:
    """How many bytes all of it writes on a disk that takes CARD_BYTES_PER_S, about."""
    lengths = ((job.seconds, job.written_max) for job in jobs(asked))
    parts = (
        most if seconds is None else min(most, seconds * CARD_BYTES_PER_S)
        for seconds, most in lengths
    )
    return sum(parts) + min(FLUSHES_BYTES, 5 * CARD_BYTES_PER_S)


def room(asked: DiskRequest) -> int:
    """How many bytes lie on the disk at the same time at most."""
    return asked.size_bytes + FLUSHES_FILE_BYTES + MIB


def arguments(job: Job) -> list[str]:
    """fio's options of a job, for a process that has the folder as its own.

    One process (thread), which tells every second how far it is: so it ends soon after whoever
    reads that is gone, whatever became of them.
    """
    given = {
        "name": "pgpaces",
        "filename": "data",
        "ioengine": "libaio",
        "direct": "1",
        "thread": "1",
        "output-format": "json",
        "eta": "never",
        "status-interval": "1",
        # Of whole commands: where a file system cannot do them beside each other, they are done
        # while they are given to it, and nothing is left to wait for.
        "lat_percentiles": "1",
        **job.options,
    }
    return [f"--{name}={value}" for name, value in given.items()]


def _jobs(asked: DiskRequest) -> Iterator[Job]:
    lengths, size = asked.lengths, str(asked.size_bytes)
    card = {"size": size, "iodepth": "32"}
    fill = {**card, "rw": "write", "bs": "4m", "end_fsync": "1"}
    yield Job(FILL, 1, fill, None, asked.size_bytes)
    limit = lengths.card_times * asked.size_bytes
    timed = {**card, "runtime": str(lengths.card_s)}
    writing = {**timed, "io_size": str(limit), "end_fsync": "1"}
    reading = {**timed, "time_based": "1", "rw": "randread", "bs": "4k"}
    for run in range(1, asked.runs + 1):
        sequential = {**writing, "rw": "write", "bs": "4m"}
        yield Job(disks.CARD_SEQUENTIAL, run, sequential, lengths.card_s, limit)
        random = {**writing, "rw": "randwrite", "bs": "4k"}
        yield Job(disks.CARD_WRITE, run, random, lengths.card_s, limit)
        yield Job(disks.CARD_READ, run, reading, lengths.card_s, 0)
    yield from _of_postgres(asked)


def _of_postgres(asked: DiskRequest) -> Iterator[Job]:
    seconds, limit = asked.lengths.postgres_s, asked.lengths.postgres_times * asked.size_bytes
    page = {"size": str(asked.size_bytes), "bs": "8k", "iodepth": "1", "runtime": str(seconds)}
    commits = {**page, "rw": "randwrite", "fdatasync": "1", "io_size": str(limit)}
    yield Job(disks.COMMIT, 1, commits, seconds, limit)
    yield Job(disks.READ, 1, {**page, "rw": "randread", "time_based": "1"}, seconds, 0)
    mixed = {**page, "rw": "randrw", "rwmixread": "70", "io_size": str(limit * 10 // 3)}
    yield Job(disks.MIXED, 1, mixed, seconds, limit)
