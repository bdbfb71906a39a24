"""Where a folder lies: its file system and device, and how it is encrypted, from /proc and /sys.

Reads only, needs no rights; what cannot be seen is left empty. Never reads a serial number.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from pgpaces.answers.disks import Device

MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_MOUNTS = Path("/proc/self/mountinfo")
_BLOCK = Path("/sys/dev/block")
_CLASS = Path("/sys/class/block")
_BY_UUID = Path("/dev/disk/by-uuid")
_SECTOR = 512
# File systems that encrypt what is stored in another one, by their types.
_FILE_ENCRYPTION = {
    "fuse.gocryptfs": "gocryptfs",
    "fuse.encfs": "EncFS",
    "fuse.cryfs": "CryFS",
    "fuse.securefs": "securefs",
    "ecryptfs": "eCryptfs",
}
# FS_IOC_GET_ENCRYPTION_POLICY_EX of linux/fscrypt.h, and the size of the largest policy.
_GET_POLICY, _POLICY_BYTES = 0xC0096616, 24


class Mount(Struct, frozen=True):
    """A line of mountinfo."""

    number: str
    point: str
    kind: str
    source: str
    options: str


def parse_mounts(text: str) -> list[Mount]:
    """The mounts of /proc/self/mountinfo, in its order."""
    found = []
    for line in text.splitlines():
        before, _, behind = line.partition(" - ")
        words, more = before.split(" "), behind.split(" ")
        if len(words) < 6 or len(more) < 3:
            continue
        options = dict.fromkeys((*words[5].split(","), *more[2].split(",")))
        found.append(Mount(words[2], _plain(words[4]), more[0], _plain(more[1]), ",".join(options)))
    return found


def _plain(text: str) -> str:
    r"""A path without mountinfo's \040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def mount_of(path: Path, mounts: list[Mount]) -> Mount | None:
    """The mount that a path without links is on: the longest point above it, the last of equals."""
    above = {str(path), *(str(parent) for parent in path.parents)}
    fitting = (mount for mount in reversed(mounts) if mount.point in above)
    return max(fitting, key=lambda mount: len(mount.point), default=None)


def device_of(folder: Path) -> Device:
    """What is known of the device that a folder is on; it need not let us in."""
    with contextlib.suppress(OSError):
        folder = folder.resolve()
    mount = mount_of(folder, parse_mounts(_text(_MOUNTS)))
    if mount is None:
        return Device("")
    block = _block(mount)
    name = block.name if block else ""
    whole = _whole(block) if block else None
    behind = list(_behind(block)) if block else []
    encryption = _encryption(folder, mount, [block, *behind] if block else [])
    return Device(
        id=_id(mount, name, _policy(folder)),
        name=" on ".join(dict.fromkeys((name, *(each.name for each in behind)))),
        filesystem=mount.kind,
        mount_options=mount.options,
        model=_model(_whole(behind[-1]) if behind else whole),
        scheduler=_scheduler(whole),
        rotational=_rotational(whole),
        size_bytes=_size(block),
        free_bytes=_free(folder),
        encryption=encryption,
    )


def moved_bytes(device: Device) -> int | None:
    """What the whole disk has read and written since it is there; None where it does not count."""
    name = device.name.rpartition(" ")[2]
    found = _CLASS / name if name else None
    words = _text(_whole(found.resolve()) / "stat").split() if found and found.exists() else []
    return (int(words[2]) + int(words[6])) * _SECTOR if len(words) > 6 else None


def _id(mount: Mount, name: str, policy: str) -> str:
    """By the file system's UUID where that is known, since names of disks change.

    Encrypted folders are another disk than the rest of theirs.
    """
    device = Path("/dev") / name if name else None
    found = f"device {name}" if name else f"{mount.kind} {mount.point}"
    with contextlib.suppress(OSError):
        for link in sorted(_BY_UUID.iterdir()):
            if device is not None and link.resolve() == device.resolve():
                found = f"uuid {link.name}"
    return f"{found}, {policy}" if policy else found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _block(mount: Mount) -> Path | None:
    """The folder of the block device in /sys. btrfs has a number of its own: then by its source."""
    found = _BLOCK / mount.number
    if found.exists():
        return found.resolve()
    with contextlib.suppress(OSError):
        number = Path(mount.source).stat().st_rdev if mount.source.startswith("/dev/") else 0
        found = _BLOCK / f"{os.major(number)}:{os.minor(number)}"
        return found.resolve() if number and found.exists() else None
    return None


def _whole(block: Path) -> Path:
    """The disk of a partition; a disk itself."""
    return block.parent if (block / "partition").exists() else block


def _behind(block: Path) -> Iterator[Path]:
    """What a mapped device lies on, down to the disk."""
    with contextlib.suppress(OSError):
        for slave in sorted((block / "slaves").iterdir()):
            yield slave.resolve()
            yield from _behind(slave.resolve())


def _model(whole: Path | None) -> str:
    """The maker's name of a kind of disk; a memory card's is its `name`."""
    if whole is None:
        return ""
    return _text(whole / "device" / "model") or _text(whole / "device" / "name")


def _scheduler(whole: Path | None) -> str:
    text = _text(whole / "queue" / "scheduler") if whole else ""
    chosen = re.search(r"\[([^\]]+)\]", text)
    return chosen[1] if chosen else text


def _rotational(whole: Path | None) -> bool | None:
    text = _text(whole / "queue" / "rotational") if whole else ""
    return text == "1" if text in ("0", "1") else None


def _size(block: Path | None) -> int | None:
    text = _text(block / "size") if block else ""
    return int(text) * _SECTOR if text.isdecimal() else None


def _free(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _encryption(folder: Path, mount: Mount, blocks: list[Path]) -> str:
    """How it is encrypted, as far as that can be seen."""
    for block in blocks:
        uuid = _text(block / "dm" / "uuid")
        if uuid.startswith("CRYPT-"):
            return f"dm-crypt ({uuid.split('-')[1]})"
    if mount.kind in _FILE_ENCRYPTION:
        return f"{_FILE_ENCRYPTION[mount.kind]} (file encryption)"
    return _policy(folder)


def _policy(folder: Path) -> str:
    """Whether a folder has a policy of the kernel's file encryption.

    What is in a folder has its policy: so of one that does not let us in, the one above tells.
    """
    asked = bytearray(struct.pack("Q", _POLICY_BYTES) + bytes(_POLICY_BYTES))
    descriptor = -1
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            break
    try:
        fcntl.ioctl(descriptor, _GET_POLICY, asked)
    except OSError:
        return ""
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return "fscrypt (file encryption)"
