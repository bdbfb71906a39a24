"""What fio measures on a disk: its jobs, and their results.

A job that writes ends after its time, or when it has written its share, so the maximum is known
before a measurement begins. fio writes once a second to a pipe that only pgpaces reads: if pgpaces
is killed, fio ends at its next line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from pgpaces.analysis import disks
from pgpaces.analysis.disks import JobRun
from pgpaces.core.errors import PlanError, RunError
from pgpaces.server.binaries import run, running, server_environment

MIB = 2**20
SIZE_MIN = 8 * MIB
SIZE, QUICK_SIZE = 256 * MIB, 32 * MIB
RUNS_MIN = 3
# Writing more than this requires consent.
CONSENT_BYTES = 1_000_000_000
FILL = "fill"
# Reports progress: seconds since a job began.
Tell = Callable[[float], None]
_CHUNK = 65536


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
    return sum(job.written_max for job in jobs(request))


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
    for number in range(1, request.runs + 1):
        every += [
            Job(disks.CARD_SEQUENTIAL, number, sequential, lengths.card_s, limit),
            Job(disks.CARD_WRITE, number, random, lengths.card_s, limit),
            Job(disks.CARD_READ, number, reading, lengths.card_s, 0),
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


def find_fio() -> str:
    """The path of fio. Raises RunError where it is not installed."""
    path = shutil.which("fio")
    if path is None:
        raise RunError("not-installed", program="fio", package="fio")
    return path


def fio_version(fio: str) -> str:
    """The version of fio. Raises RunError where it cannot be run."""
    try:
        return run([fio, "--version"], check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise RunError("program-failed", program=fio, why=str(error)) from None


def run_fio(fio: str, job: Job, folder: Path, *, tell: Tell) -> JobRun:
    """Runs a job in a folder. Raises RunError with fio's error message.

    Ctrl-C reaches only pgpaces, which ends fio.
    """
    started, output = time.monotonic(), b""
    with tempfile.TemporaryFile() as errors:
        with running(
            [fio, *arguments(job)],
            cwd=folder,
            env=server_environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as program:
            assert program.stdout is not None
            while part := os.read(program.stdout.fileno(), _CHUNK):
                output += part
                tell(time.monotonic() - started)
            program.wait()
        errors.seek(0)
        message = errors.read().decode(errors="replace").strip()
    documents = disks.fio_documents(output.decode(errors="replace"))
    try:
        if program.returncode:
            raise RunError("fio-stopped", job=job.name, error=program.returncode)
        return disks.job_run(job.name, job.run, documents)
    except RunError:
        if not message:
            raise
        raise RunError("fio-failed", job=job.name, why=message.splitlines()[0]) from None
