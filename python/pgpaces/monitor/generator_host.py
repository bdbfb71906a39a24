"""Facts of the generator's machine; unknown ones are None."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from pathlib import Path

from pgpaces.core.messages import message
from pgpaces.spec.setup import HostFacts

# The system call has this number on all architectures; the flags exist since Linux 6.1.
_IO_URING_SETUP = 425
_SINGLE_ISSUER, _DEFER_TASKRUN = 1 << 12, 1 << 13


def facts() -> HostFacts:
    return HostFacts(
        hostname=platform.node() or None,
        system=platform.system() or None,
        kernel=platform.release() or None,
        architecture=platform.machine() or None,
        cpus=os.cpu_count(),
        cpu=_field(Path("/proc/cpuinfo"), ("model name", "Model")) or None,
        memory_bytes=_memory(),
        python=platform.python_version(),
    )


def _field(path: Path, names: tuple[str, ...]) -> str | None:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return None


def _memory() -> int | None:
    text = _field(Path("/proc/meminfo"), ("MemTotal",))
    return int(text.split()[0]) * 1024 if text else None


def clock_source(sys: Path = Path("/sys")) -> str | None:
    """The clock source of the kernel; None: not known."""
    folder = sys / "devices" / "system" / "clocksource" / "clocksource0"
    try:
        return (folder / "current_clocksource").read_text().strip() or None
    except OSError:
        return None


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
    match number:
        case errno.ENOSYS:
            return message("io-uring-absent")
        case errno.EINVAL:
            return message("io-uring-too-old")
        case errno.EPERM:
            return message("io-uring-refused")
    return os.strerror(number)
