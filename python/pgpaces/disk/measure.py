"""A disk measured: everything that can be, one after the other; what was found so far is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from pgpaces.answers.disks import Disk
from pgpaces.disk import programs
from pgpaces.disk.device import device_of, moved_bytes
from pgpaces.disk.folder import check, workspace
from pgpaces.disk.jobs import FILL, QUICK, DiskRequest, Job, jobs, room
from pgpaces.errors import RunError

# What goes on, and the seconds it has taken so far.
Say = Callable[[str, float], None]
FLUSHES, CIPHER = "pg_test_fsync", "cryptsetup benchmark"


def prepared(path: Path, asked: DiskRequest) -> Disk:
    """What is known before anything is written.

    Raises PlanError, RunError where the disk cannot be measured.
    """
    fio = programs.find_fio()
    device = device_of(path)
    check(path, device, room(asked))
    quick = asked.lengths == QUICK
    return Disk(str(path.resolve()), device, asked.size_bytes, quick, programs.fio_version(fio))


def measure(path: Path, asked: DiskRequest, say: Say) -> Disk:
    """Measures the disk that a folder is on, by files in a folder of ours there.

    Ctrl-C ends it: what was measured by then is given, and what was not is named.
    Raises PlanError, RunError.
    """
    found = prepared(path, asked)
    left = [*(_name(job, asked) for job in jobs(asked) if job.name != FILL), FLUSHES, CIPHER]
    try:
        with workspace(path) as folder:
            for job in jobs(asked):
                found = _with_job(found, (job, asked), folder, say)
                left = [name for name in left if name != _name(job, asked)]
            found = _with_flushes(found, folder, say)
            left.remove(FLUSHES)
        say(CIPHER, 0.0)
        cipher = programs.test_cipher()
        if isinstance(cipher, str):
            return replace(found, absent=(*found.absent, cipher))
        return replace(found, cipher=cipher)
    except KeyboardInterrupt:
        return replace(found, missing=tuple(left))


def _name(job: Job, asked: DiskRequest) -> str:
    several = sum(each.name == job.name for each in jobs(asked)) > 1
    return f"{job.name}, run {job.run} of {asked.runs}" if several else job.name


def _with_job(found: Disk, step: tuple[Job, DiskRequest], folder: Path, say: Say) -> Disk:
    job, asked = step
    name = f"{_name(job, asked)}, {job.seconds} s" if job.seconds else _name(job, asked)
    say(name, 0.0)
    before = moved_bytes(found.device)
    made = programs.run_fio(programs.find_fio(), job, folder, lambda s: say(name, s))
    after = moved_bytes(found.device)
    if before is not None and after is not None:
        ours = made.bytes_read + made.bytes_written
        made = replace(made, bytes_beside=max(0, after - before - ours))
    return found if job.name == FILL else replace(found, measured=(*found.measured, made))


def _with_flushes(found: Disk, folder: Path, say: Say) -> Disk:
    say(FLUSHES, 0.0)
    try:
        flushes = programs.test_fsync(folder, lambda s: say(FLUSHES, s))
    except (OSError, RunError) as error:
        return replace(found, absent=(*found.absent, f"{FLUSHES}: not available here: {error}"))
    if flushes is None:
        text = f"{FLUSHES}: not available here, no PostgreSQL on this machine has it"
        return replace(found, absent=(*found.absent, text))
    return replace(found, flushes=flushes)
