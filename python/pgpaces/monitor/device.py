"""File system, device and encryption of a folder, from /proc and /sys.

Only reads and needs no privileges; facts that it cannot read are empty. Never reads serial numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from pgpaces.analysis.disks import Device
from pgpaces.monitor.procfs import Mount, mounts

MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_MOUNTS = Path("/proc/self/mountinfo")
_BLOCK = Path("/sys/dev/block")
_CLASS = Path("/sys/class/block")
_BY_UUID = Path("/dev/disk/by-uuid")
_SECTOR = 512
# File systems that encrypt files stored in another file system, by their types.
_FILE_ENCRYPTION = {
    "fuse.gocryptfs": "gocryptfs",
    "fuse.encfs": "EncFS",
    "fuse.cryfs": "CryFS",
    "fuse.securefs": "securefs",
    "ecryptfs": "eCryptfs",
}
# FS_IOC_GET_ENCRYPTION_POLICY_EX of linux/fscrypt.h, and the size of the largest policy.
_GET_POLICY, _POLICY_BYTES = 0xC0096616, 24


def mount_of(path: Path, every: list[Mount]) -> Mount | None:
    """The mount of a resolved path: the longest point above it, the last of equals."""
    above = {str(path), *(str(parent) for parent in path.parents)}
    fitting = (mount for mount in reversed(every) if mount.point in above)
    return max(fitting, key=lambda mount: len(mount.point), default=None)


def device_of(folder: Path) -> Device:
    """The facts of a folder's device; works without permission to enter the folder."""
    with contextlib.suppress(OSError):
        folder = folder.resolve()
    mount = mount_of(folder, mounts(_text(_MOUNTS)))
    if mount is None:
        return Device("", free_bytes=_free(folder))
    block = _block(mount)
    name = block.name if block else ""
    whole = _whole(block) if block else None
    lower = list(_lower(block)) if block else []
    encryption = _encryption(folder, mount, [block, *lower] if block else [])
    scheduler = _text(whole / "queue" / "scheduler") if whole else ""
    chosen = re.search(r"\[([^\]]+)\]", scheduler)
    rotational = _text(whole / "queue" / "rotational") if whole else ""
    sectors = _text(block / "size") if block else ""
    disk = _whole(lower[-1]) if lower else whole
    model = _text(disk / "device" / "model") if disk else ""
    if disk and not model:  # a memory card
        model = _text(disk / "device" / "name")
    return Device(
        id=_id(mount, name, _policy(folder)),
        name=" on ".join(dict.fromkeys((name, *(each.name for each in lower)))),
        filesystem=mount.kind,
        mount_options=mount.options,
        model=model,
        scheduler=chosen[1] if chosen else scheduler,
        rotational=rotational == "1" if rotational in ("0", "1") else None,
        size_bytes=int(sectors) * _SECTOR if sectors.isdecimal() else None,
        free_bytes=_free(folder),
        encryption=encryption,
    )


def moved_bytes(device: Device) -> int | None:
    """Bytes that the whole disk has read and written since boot; None where it has no counter."""
    name = device.name.rpartition(" ")[2]
    block = _CLASS / name if name else None
    words = _text(_whole(block.resolve()) / "stat").split() if block and block.exists() else []
    return (int(words[2]) + int(words[6])) * _SECTOR if len(words) > 6 else None


def _id(mount: Mount, name: str, policy: str) -> str:
    """The UUID of the file system if there is one, since names of disks change.

    An encrypted folder has another identity than the rest of its file system.
    """
    device = Path("/dev") / name if name else None
    identity = f"device {name}" if name else f"{mount.kind} {mount.point}"
    with contextlib.suppress(OSError):
        for link in sorted(_BY_UUID.iterdir()):
            if device is not None and link.resolve() == device.resolve():
                identity = f"uuid {link.name}"
    return f"{identity}, {policy}" if policy else identity


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _block(mount: Mount) -> Path | None:
    """The folder of the block device in /sys; by the mount's source where, as in btrfs, its number
    is not that of a device.
    """
    block = _BLOCK / mount.number
    if block.exists():
        return block.resolve()
    with contextlib.suppress(OSError):
        number = Path(mount.source).stat().st_rdev if mount.source.startswith("/dev/") else 0
        block = _BLOCK / f"{os.major(number)}:{os.minor(number)}"
        return block.resolve() if number and block.exists() else None
    return None


def _whole(block: Path) -> Path:
    return block.parent if (block / "partition").exists() else block


def _lower(block: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for slave in sorted((block / "slaves").iterdir()):
            yield slave.resolve()
            yield from _lower(slave.resolve())


def _free(folder: Path) -> int | None:
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def _encryption(folder: Path, mount: Mount, blocks: list[Path]) -> str:
    """The visible encryption of the device or the file system; empty if there is none."""
    for block in blocks:
        uuid = _text(block / "dm" / "uuid")
        if uuid.startswith("CRYPT-"):
            return f"dm-crypt ({uuid.split('-')[1]})"
    if mount.kind in _FILE_ENCRYPTION:
        return f"{_FILE_ENCRYPTION[mount.kind]} (file encryption)"
    return _policy(folder)


def _policy(folder: Path) -> str:
    """Whether a folder has a policy of the kernel's file encryption.

    Folders inherit policies, so a folder without access has that of the nearest accessible parent.
    """
    request = bytearray(struct.pack("Q", _POLICY_BYTES) + bytes(_POLICY_BYTES))
    descriptor = -1
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            break
    try:
        fcntl.ioctl(descriptor, _GET_POLICY, request)
    except OSError:
        return ""
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return "fscrypt (file encryption)"
