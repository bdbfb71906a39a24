"""The temporary folder on the disk that is measured: its space, its lock and its removal.

    PATH/pgpaces-disk/   pgpaces.json (marker and lock)  data  flushes

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
from collections.abc import Iterator
from pathlib import Path

from pgpaces.analysis.disks import Device
from pgpaces.core.errors import PlanError
from pgpaces.monitor.machine import MEMORY

NAME = "pgpaces-disk"
MARKER = "pgpaces.json"
_BLOCK = 4096


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
