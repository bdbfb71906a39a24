"""What is measured on a disk: the jobs of fio, and the programs fio, pg_test_fsync, cryptsetup.

A job that writes ends after its time, or when it has written its share, so the maximum is known
before a measurement begins. Each program writes at least once a second to a pipe that only pgpaces
reads: if pgpaces is killed, the program ends at its next line.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Cipher, Flushes, JobRun
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.findings import Finding, finding
from pgpaces.server.binaries import installations, run, running, server_environment

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
# Reports progress: seconds since a job began.
Tell = Callable[[float], None]
FLUSHES, CIPHER_TEST = "pg_test_fsync", "cryptsetup benchmark"
CIPHER = "aes-xts"
_KEY_BITS = 512
_FSYNC = re.compile(r"^\s+(\w+)\s+([0-9.]+) ops/sec", re.MULTILINE)
_CIPHER = re.compile(rf"{CIPHER}\s+\d+b\s+([0-9.]+) MiB/s\s+([0-9.]+) MiB/s")
_CHUNK = 65536
_CIPHER_S = 60.0


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
    """Runs a job in a folder. Raises RunError with fio's error message."""
    with tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        parts: list[bytes] = []
        with _started([fio, *arguments(job)], folder, errors) as program:
            for part in _read(program):
                parts.append(part)
                tell(time.monotonic() - started)
        errors.seek(0)
        message = errors.read().decode(errors="replace").strip()
    documents = disks.fio_documents(b"".join(parts).decode(errors="replace"))
    try:
        if program.returncode:
            raise RunError("fio-stopped", job=job.name, error=program.returncode)
        return disks.job_run(job.name, job.run, documents)
    except RunError:
        if not message:
            raise
        raise RunError("fio-failed", job=job.name, why=message.splitlines()[0]) from None


def test_fsync(folder: Path, tell: Tell) -> Flushes | Finding:
    """The results of pg_test_fsync for single writes, or the finding that it is missing.

    It is stopped after its first table: the others are writes of other sizes. Raises RunError where
    it has no result.
    """
    for installation in installations():
        program = installation.program(FLUSHES)
        if os.access(program, os.X_OK):
            text = _first_table([str(program), "-f", "flushes", "-s", "1"], folder, tell)
            rates = {name: float(number) for name, number in _FSYNC.findall(text)}
            if not rates:
                raise RunError("nothing-measured", program=program)
            return Flushes(installation.version, rates)
    return finding("disk-test-missing", program=FLUSHES, package="postgresql")


def _first_table(command: Sequence[str], folder: Path, tell: Tell) -> str:
    started, text = time.monotonic(), ""
    with _started(command, folder, subprocess.DEVNULL) as program:
        for part in _read(program):
            text += part.decode(errors="replace")
            tell(time.monotonic() - started)
            table, more, _ = text.partition("two 8kB writes")
            if more:
                return table
    return text


def test_cipher() -> Cipher | Finding:
    """The result of `cryptsetup benchmark` for the usual cipher of disks, or why there is none."""
    program = shutil.which("cryptsetup") or shutil.which("cryptsetup", path="/usr/sbin:/sbin")
    if program is None:
        return finding("disk-test-missing", program="cryptsetup", package="cryptsetup-bin")
    command = [program, "benchmark", "-c", CIPHER, "-s", str(_KEY_BITS)]
    try:
        done = run(command, timeout=_CIPHER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return finding("disk-test-failed", CIPHER_TEST, why=str(error))
    if match := _CIPHER.search(done.stdout):
        return Cipher(f"{CIPHER} with {_KEY_BITS} bits", float(match[1]), float(match[2]))
    output = " ".join((done.stdout + done.stderr).split())
    if "algif_skcipher" in output or "not available" in output:
        return finding("kernel-lacks-cipher", CIPHER_TEST, cipher=CIPHER)
    return finding("disk-test-failed", CIPHER_TEST, why=output[:200])


def _started(
    command: Sequence[str], folder: Path, errors: int | IO[bytes]
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """A program that has ended at the exit. Ctrl-C reaches only pgpaces, which ends it."""
    options = {"stdout": subprocess.PIPE, "stderr": errors, "start_new_session": True}
    return running(command, cwd=folder, env=server_environment(), **options)


def _read(program: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The output of a program as it arrives; afterwards the program has ended."""
    assert program.stdout is not None
    while part := os.read(program.stdout.fileno(), _CHUNK):
        yield part
    program.wait()
