"""A folder of ours on the disk that is measured: whether there is room, and never left behind.

    PATH/pgpaces-disk/   pgpaces.json (marker and lock)  data  flushes

The lock is held while we measure. A folder whose lock is free was left by a kill: the next one
removes it.
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

from pgpaces.answers.disks import Device
from pgpaces.disk.device import MEMORY
from pgpaces.errors import PlanError

NAME = "pgpaces-disk"
MARKER = "pgpaces.json"
_BLOCK = 4096


def check(path: Path, device: Device, room: int) -> None:
    """Raises PlanError where a disk cannot be measured by a folder on it. Writes nothing."""
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise PlanError(f"{path} {what}", "name a folder on the disk that is to be measured")
    if not hasattr(os, "O_DIRECT"):
        raise PlanError("not available here: disks are measured on Linux alone")
    if device.filesystem in MEMORY:
        raise PlanError(
            f"not available here: {path} is on {device.filesystem}, which is memory and no disk",
            "name a folder on a disk",
        )
    if "ro" in device.mount_options.split(",") or not os.access(path, os.W_OK | os.X_OK):
        raise PlanError(f"{path} is not writable", "measuring a disk writes: name another folder")
    free = device.free_bytes
    if free is not None and free < room:
        raise PlanError(
            f"{path} has {free / 2**20:.0f} MiB free, and {room / 2**20:.0f} MiB are needed",
            "free some, or use a smaller file: --size",
        )


@contextlib.contextmanager
def workspace(path: Path) -> Iterator[Path]:
    """An empty folder of ours, removed at the end whatever happens.

    Raises PlanError where it cannot be made, is somebody else's, or cannot be written past the
    cache.
    """
    folder = path / NAME
    try:
        lock = _claimed(folder)
    except OSError as error:
        raise PlanError(
            f"{folder} cannot be made: {error.strerror}", "name another folder"
        ) from None
    try:
        _check_direct(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _claimed(folder: Path) -> int:
    """The lock of our folder, which is empty but for it. Raises PlanError, OSError."""
    marker = folder / MARKER
    if folder.is_symlink() or (folder.exists() and any(folder.iterdir()) and not marker.exists()):
        raise PlanError(
            f"{folder} is there, and pgpaces did not make it", "move it away, or name another PATH"
        )
    folder.mkdir(exist_ok=True)
    lock = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had the lock before may have removed the folder meanwhile.
        if os.fstat(lock).st_nlink == 0:
            raise BlockingIOError
        os.write(lock, json.dumps({"made_by": "pgpaces disk"}).encode())
        _empty(folder)
    except BlockingIOError:
        os.close(lock)
        raise PlanError(
            f"another pgpaces measures the disk of {folder.parent}", "wait until it is done"
        ) from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _empty(folder: Path) -> None:
    """Removes what a killed pgpaces left."""
    for left in folder.iterdir():
        if left.name == MARKER:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink()


def _check_direct(folder: Path) -> None:
    """Raises PlanError where the file system does not write past the cache."""
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
            f"not available here: the file system of {folder.parent} does not write past the cache",
            "a file system with O_DIRECT is needed, such as ext4, XFS or btrfs",
        ) from None
    finally:
        file.unlink(missing_ok=True)
