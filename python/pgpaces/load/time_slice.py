"""A short time slice for what has to start at a moment, by sched_setattr(2).

Linux from 6.12 on lets a task that wakes run before those with longer slices; its share of the CPU
stays as it was. An earlier kernel has no slice of a task, nor has another system.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from collections.abc import Iterator

# System calls: to set the attributes, and to get them.
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}


class _Attributes(ctypes.Structure):
    """struct sched_attr of the first version, 48 bytes."""

    policy: int
    runtime: int
    _fields_ = (
        *(("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64)),
        *(("nice", ctypes.c_int32), ("priority", ctypes.c_uint32)),
        *((name, ctypes.c_uint64) for name in ("runtime", "deadline", "period")),
    )


@contextlib.contextmanager
def short_slice(load: str) -> Iterator[None]:
    """Threads and processes that this thread begins meanwhile have a short time slice.

    Not for a closed load: it has no moment to keep, and would only take turns from the server.
    """
    before = attributes()
    fair = before is not None and before.policy == os.SCHED_OTHER and before.runtime > 0
    if load == "closed" or before is None or not fair:
        yield
        return
    short = _Attributes.from_buffer_copy(before)
    # Shorter than others' is enough: a much shorter one costs an overloaded server throughput.
    short.runtime = before.runtime // 2
    _set(short)
    try:
        yield
    finally:
        _set(before)


def attributes(task: int = 0) -> _Attributes | None:
    """Those of a thread, 0 for this one; None where they are not known."""
    calls = _CALLS.get(platform.machine()) if platform.system() == "Linux" else None
    own, size = _Attributes(), ctypes.sizeof(_Attributes)
    if calls is None or ctypes.CDLL(None).syscall(calls[1], task, ctypes.byref(own), size, 0):
        return None
    return own


def _set(attributes: _Attributes) -> None:
    """Sets them, where that is allowed: without them the load is the same, only later."""
    ctypes.CDLL(None).syscall(_CALLS[platform.machine()][0], 0, ctypes.byref(attributes), 0)
