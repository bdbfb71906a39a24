"""Facts of this machine, and of the file system, device and encryption of a folder.

Only reads and needs no privileges; unknown facts are None or empty. Never reads serial numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil

from pgpaces.analysis.disks import Device
from pgpaces.core.messages import message
from pgpaces.monitor.linux import Mount, mounts
from pgpaces.spec.setup import HostFacts

MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_SYS = Path("/sys")
_BY_UUID = Path("/dev/disk/by-uuid")
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
# The system call has this number on all architectures; the flags exist since Linux 6.1.
_IO_URING_SETUP = 425
_SINGLE_ISSUER, _DEFER_TASKRUN = 1 << 12, 1 << 13
_NO_IO_URING = {
    errno.ENOSYS: "io-uring-absent",
    errno.EINVAL: "io-uring-too-old",
    errno.EPERM: "io-uring-refused",
}


def facts() -> HostFacts:
    memory_bytes = None
    with contextlib.suppress(Exception):  # psutil raises any error if /proc is absent
        memory_bytes = psutil.virtual_memory().total
    model = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.M)
    return HostFacts(
        hostname=platform.node() or None,
        system=platform.system() or None,
        kernel=platform.release() or None,
        architecture=platform.machine() or None,
        cpus=os.cpu_count(),
        cpu=model[1].strip() if model else None,
        memory_bytes=memory_bytes,
        python=platform.python_version(),
    )


def clock_source(sys: Path = _SYS) -> str | None:
    folder = sys / "devices" / "system" / "clocksource" / "clocksource0"
    return _text(folder / "current_clocksource") or None


def io_uring() -> str | None:
    """The reason why the engine cannot use io_uring here; None: it can."""
    if platform.system() != "Linux":
        return message("io-uring-needs-linux")
    library = ctypes.CDLL(None, use_errno=True)
    # struct io_uring_params: 30 numbers of 32 bits, of which the third is the flags.
    parameters = (ctypes.c_uint32 * 30)()
    parameters[2] = _SINGLE_ISSUER | _DEFER_TASKRUN
    descriptor = library.syscall(_IO_URING_SETUP, 1, parameters)
    if descriptor >= 0:
        os.close(descriptor)
        return None
    number = ctypes.get_errno()
    return message(_NO_IO_URING[number]) if number in _NO_IO_URING else os.strerror(number)


def mount_of(path: Path, every: list[Mount]) -> Mount | None:
    """The mount of a resolved path: the longest point above it, the last of equals."""
    above = {str(path), *(str(parent) for parent in path.parents)}
    fitting = (mount for mount in reversed(every) if mount.point in above)
    return max(fitting, key=lambda mount: len(mount.point), default=None)


def device_of(folder: Path) -> Device:
    """The facts of a folder's device; works without permission to enter the folder."""
    with contextlib.suppress(OSError):
        folder = folder.resolve()
    free_bytes = None
    with contextlib.suppress(OSError):
        free_bytes = psutil.disk_usage(str(folder)).free
    mount = mount_of(folder, mounts(_text(Path("/proc/self/mountinfo"))))
    if mount is None:
        return Device("", free_bytes=free_bytes)
    block = _block(mount)
    name = block.name if block else ""
    lower = list(_lower(block)) if block else []
    whole = _whole(block) if block else None
    disk = _whole(lower[-1]) if lower else whole

    def about(folder: Path | None, *names: str) -> str:
        return _text(folder.joinpath(*names)) if folder else ""

    policy = _policy(folder)
    ciphers = (about(each, "dm", "uuid") for each in ([block, *lower] if block else []))
    cipher = next((uuid.split("-")[1] for uuid in ciphers if uuid.startswith("CRYPT-")), None)
    encryption = policy
    if cipher is not None:
        encryption = f"dm-crypt ({cipher})"
    elif mount.kind in _FILE_ENCRYPTION:
        encryption = f"{_FILE_ENCRYPTION[mount.kind]} (file encryption)"
    # An encrypted folder has another identity than the rest of its file system.
    identity = _identity(mount, name)
    return Device(
        id=f"{identity}, {policy}" if policy else identity,
        name=" on ".join(dict.fromkeys((name, *(each.name for each in lower)))),
        filesystem=mount.kind,
        mount_options=mount.options,
        # A memory card has a name.
        model=about(disk, "device", "model") or about(disk, "device", "name"),
        free_bytes=free_bytes,
        encryption=encryption,
    )


def _identity(mount: Mount, name: str) -> str:
    """The UUID of the file system if there is one, since names of disks change."""
    if not name:
        return f"{mount.kind} {mount.point}"
    with contextlib.suppress(OSError):
        for link in sorted(_BY_UUID.iterdir()):
            if link.resolve() == (Path("/dev") / name).resolve():
                return f"uuid {link.name}"
    return f"device {name}"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _block(mount: Mount) -> Path | None:
    """The folder of the block device in /sys; by the mount's source where, as in btrfs, its number
    is not that of a device.
    """
    folder = _SYS / "dev" / "block"
    block = folder / mount.number
    with contextlib.suppress(OSError):
        if not block.exists() and mount.source.startswith("/dev/"):
            number = Path(mount.source).stat().st_rdev
            block = folder / f"{os.major(number)}:{os.minor(number)}"
    return block.resolve() if block.exists() else None


def _whole(block: Path) -> Path:
    return block.parent if (block / "partition").exists() else block


def _slaves(block: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [slave.resolve() for slave in sorted((block / "slaves").iterdir())]
    return []


def _lower(block: Path) -> Iterator[Path]:
    for slave in _slaves(block):
        yield slave
        yield from _lower(slave)


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
