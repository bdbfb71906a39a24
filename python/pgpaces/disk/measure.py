"""The measurement of a disk: all jobs in order, in a temporary folder on it.

    PATH/pgpaces-disk/   pgpaces.json (marker and lock)  data

The lock is held during the measurement. A folder whose lock is free is the remainder of a killed
process; the next measurement removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Device, Disk
from pgpaces.core.errors import PlanError
from pgpaces.disk import fio
from pgpaces.disk.fio import FILL, MIB, QUICK, DiskRequest, Job, jobs
from pgpaces.monitor.machine import MEMORY, device_of

# The name of the current step, and its seconds so far.
Say = Callable[[str, float], None]
NAME = "pgpaces-disk"
MARKER = "pgpaces.json"
_BLOCK = 4096


def prepare(path: Path, request: DiskRequest) -> Disk:
    """The facts of a disk before its measurement; writes nothing.

    Raises PlanError, RunError where the disk cannot be measured.
    """
    device = device_of(path)
    check(path, device, request.size_bytes + MIB)
    quick = request.lengths == QUICK
    program = fio.find_fio()
    return Disk(str(path.resolve()), device, request.size_bytes, quick, fio.fio_version(program))


def measure(path: Path, request: DiskRequest, say: Say) -> Disk:
    """Measures the disk of a folder, by files in a temporary folder there.

    Ctrl-C ends it: the result has the measurements so far, and the names of the missing ones.
    Raises PlanError, RunError.
    """
    disk, program = prepare(path, request), fio.find_fio()
    every = [(job, _name(job, request)) for job in jobs(request)]
    missing = [name for job, name in every if job.name != FILL]
    try:
        with workspace(path) as folder:
            for job, name in every:
                title = f"{name}, {job.seconds} s" if job.seconds else name
                say(title, 0.0)
                result = fio.run_fio(program, job, folder, tell=partial(say, title))
                if job.name != FILL:
                    disk = replace(disk, measured=(*disk.measured, result))
                    missing.remove(name)
    except KeyboardInterrupt:
        return replace(disk, missing=tuple(missing))
    return disk


def _name(job: Job, request: DiskRequest) -> str:
    several = job.name in disks.CARD and request.runs > 1
    return f"{job.name}, run {job.run} of {request.runs}" if several else job.name


def check(path: Path, device: Device, room: int) -> None:
    """Raises PlanError where the disk of a folder cannot be measured. Writes nothing."""
    if not path.is_dir():
        raise PlanError("disk-folder-missing", path=path)
    if not hasattr(os, "O_DIRECT"):
        raise PlanError("disk-needs-linux")
    if device.filesystem in MEMORY:
        raise PlanError("disk-is-memory", path=path, filesystem=device.filesystem)
    if "ro" in device.mount_options.split(",") or not os.access(path, os.W_OK | os.X_OK):
        raise PlanError("folder-not-writable", path=path)
    free = device.free_bytes
    if free is not None and free < room:
        raise PlanError("disk-too-full", path=path, free_bytes=free, needed_bytes=room)


@contextlib.contextmanager
def workspace(path: Path) -> Iterator[Path]:
    """An empty temporary folder, which is removed at the end in any case.

    Raises PlanError where it cannot be created, pgpaces did not make it, or the file system does
    not support direct I/O.
    """
    folder = path / NAME
    try:
        lock = _claimed(folder)
    except OSError as error:
        raise PlanError("cannot-write", path=folder, why=error.strerror) from None
    try:
        _check_direct(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _claimed(folder: Path) -> int:
    """The lock of the folder, which is otherwise empty. Raises PlanError, OSError."""
    marker = folder / MARKER
    if folder.is_symlink() or (folder.exists() and any(folder.iterdir()) and not marker.exists()):
        raise PlanError("disk-folder-not-ours", path=folder)
    folder.mkdir(exist_ok=True)
    lock = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous owner of the lock may have removed the folder meanwhile.
        if os.fstat(lock).st_nlink == 0:
            raise BlockingIOError
        os.write(lock, json.dumps({"made_by": "pgpaces disk"}).encode())
        # What a killed process left.
        for left in set(folder.iterdir()) - {marker}:
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
    except BlockingIOError:
        os.close(lock)
        raise PlanError("disk-busy", path=folder.parent) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _check_direct(folder: Path) -> None:
    """Raises PlanError where the file system does not support direct I/O."""
    file = folder / "data"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        try:
            with mmap.mmap(-1, _BLOCK) as block:
                os.write(descriptor, block)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise PlanError("cannot-write", path=folder, why=error.strerror) from None
        raise PlanError("no-direct-io", path=folder.parent) from None
    finally:
        file.unlink(missing_ok=True)
