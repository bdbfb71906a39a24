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
from pgpaces.monitor.device import MEMORY

NAME = "pgpaces-disk"
MARKER = "pgpaces.json"
_BLOCK = 4096


def check(path: Path, device: Device, room: int) -> None:
    """Raises PlanError where the disk of a folder cannot be measured. Writes nothing."""
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist"
        raise PlanError(f"{path} {problem}", "name a folder on the disk to measure")
    if not hasattr(os, "O_DIRECT"):
        raise PlanError("not available here: disks are measured on Linux only")
    if device.filesystem in MEMORY:
        raise PlanError(
            f"not available here: {path} is on {device.filesystem}, which is memory, not a disk",
            "name a folder on a disk",
        )
    if "ro" in device.mount_options.split(",") or not os.access(path, os.W_OK | os.X_OK):
        raise PlanError(f"{path} is not writable", "a measurement writes: name another folder")
    free = device.free_bytes
    if free is not None and free < room:
        raise PlanError(
            f"{path} has {free / 2**20:.0f} MiB free, and {room / 2**20:.0f} MiB are needed",
            "free some, or use a smaller file: --size",
        )


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
        raise PlanError(
            f"{folder} cannot be created: {error.strerror}", "name another folder"
        ) from None
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
        raise PlanError(
            f"{folder} exists, and pgpaces did not make it", "move it away, or name another PATH"
        )
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
        raise PlanError(
            f"another pgpaces measures the disk of {folder.parent}", "wait until it is done"
        ) from None
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
            raise PlanError(f"{folder} cannot be written: {error.strerror}") from None
        raise PlanError(
            f"not available here: the file system of {folder.parent} does not support direct I/O",
            "a file system with O_DIRECT is needed, such as ext4, XFS or btrfs",
        ) from None
    finally:
        file.unlink(missing_ok=True)
