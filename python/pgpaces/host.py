"""Facts of the machine that the generator runs on; one that is not known is left out."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from pgpaces.facts import HostFacts

# So many volumes may lie on top of each other.
_VOLUMES_MAX = 8


def facts() -> HostFacts:
    """What must be known of this machine to compare results."""
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


def disk_of(path: Path, sys: Path = Path("/sys")) -> str | None:
    """The disk that a file or folder lies on, as /proc/diskstats calls it; None: not known.

    Of a partition or a volume on one disk it is that disk.
    """
    try:
        number = path.stat().st_dev
    except OSError:
        return None
    return disk_of_number(f"{os.major(number)}:{os.minor(number)}", sys)


def disk_of_number(number: str, sys: Path = Path("/sys")) -> str | None:
    """The disk of a block device by its `major:minor`; file systems without one have none."""
    try:
        device = (sys / "dev" / "block" / number).resolve(strict=True)
        for _ in range(_VOLUMES_MAX):
            if (device / "partition").exists():
                device = device.parent
            below = list((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
            if len(below) != 1:
                return device.name
            device = below[0].resolve(strict=True)
    except OSError:
        return None
    return None


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
