"""Facts of the machine that the generator runs on; one that is not known is left out."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """What must be known of this machine to compare results."""
    found: dict[str, Any] = {
        "hostname": platform.node(),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "cpu": _field(Path("/proc/cpuinfo"), ("model name", "Model")),
        "memory_bytes": _memory(),
        "python": platform.python_version(),
    }
    return {name: value for name, value in found.items() if value}


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
