"""The measurement of a disk: all jobs in order; an interrupted one keeps its results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from pgpaces.analysis.disks import Disk
from pgpaces.core.errors import RunError
from pgpaces.core.findings import Finding, finding
from pgpaces.disk import programs
from pgpaces.disk.folder import check, workspace
from pgpaces.disk.jobs import FILL, QUICK, DiskRequest, Job, jobs, room
from pgpaces.disk.programs import CIPHER_TEST, FLUSHES
from pgpaces.monitor.machine import device_of, moved_bytes

# The name of the current step, and its seconds so far.
Say = Callable[[str, float], None]


def prepare(path: Path, request: DiskRequest) -> Disk:
    """The facts of a disk before its measurement; writes nothing.

    Raises PlanError, RunError where the disk cannot be measured.
    """
    device = device_of(path)
    check(path, device, room(request))
    fio = programs.find_fio()
    quick = request.lengths == QUICK
    return Disk(str(path.resolve()), device, request.size_bytes, quick, programs.fio_version(fio))


def measure(path: Path, request: DiskRequest, say: Say) -> Disk:
    """Measures the disk of a folder, by files in a temporary folder there.

    Ctrl-C ends it: the result has the measurements so far, and the names of the missing ones.
    Raises PlanError, RunError.
    """
    disk, every = prepare(path, request), jobs(request)
    names = [_name(job, request) for job in every]
    missing = [*(name for name in names if name != FILL), FLUSHES, CIPHER_TEST]
    try:
        with workspace(path) as folder:
            for job, name in zip(every, names, strict=True):
                title = f"{name}, {job.seconds} s" if job.seconds else name
                say(title, 0.0)
                before = moved_bytes(disk.device)
                fio, tell = programs.find_fio(), partial(say, title)
                result = programs.run_fio(fio, job, folder, tell=tell)
                after = moved_bytes(disk.device)
                if before is not None and after is not None:
                    own = result.bytes_read + result.bytes_written
                    result = replace(result, bytes_other=max(0, after - before - own))
                if job.name != FILL:
                    disk = replace(disk, measured=(*disk.measured, result))
                missing = [each for each in missing if each != name]
            say(FLUSHES, 0.0)
            disk = _with_flushes(disk, folder, say)
            missing.remove(FLUSHES)
        say(CIPHER_TEST, 0.0)
        cipher = programs.test_cipher()
        if isinstance(cipher, Finding):
            return replace(disk, absent=(*disk.absent, cipher))
        return replace(disk, cipher=cipher)
    except KeyboardInterrupt:
        return replace(disk, missing=tuple(missing))


def _name(job: Job, request: DiskRequest) -> str:
    several = sum(each.name == job.name for each in jobs(request)) > 1
    return f"{job.name}, run {job.run} of {request.runs}" if several else job.name


def _with_flushes(disk: Disk, folder: Path, say: Say) -> Disk:
    try:
        flushes = programs.test_fsync(folder, partial(say, FLUSHES))
    except (OSError, RunError) as error:
        flushes = finding("disk-test-failed", FLUSHES, why=str(error))
    if isinstance(flushes, Finding):
        return replace(disk, absent=(*disk.absent, flushes))
    return replace(disk, flushes=flushes)
