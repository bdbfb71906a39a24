"""A wire on which one way takes longer: a process between two network devices.

    python far.py DEVICE NAMESPACE MS

Makes DEVICE here and `e0` in the network namespace, says "ready", and carries frames between them;
those from `e0` come MS milliseconds later. For kernels without netem, which this one's may be.
"""

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000


def device(name: str) -> int:
    """A new network device of this namespace, of which each read is a frame."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


def enter(namespace: str) -> None:
    """Devices that this process makes from here on are in that namespace."""
    with Path(namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns", namespace)


def put(fd: int, frame: bytes) -> None:
    """Sends a frame; one that finds its device down is lost."""
    with contextlib.suppress(OSError):
        os.write(fd, frame)


def carry(near: int, far: int, delay_s: float) -> None:
    """Carries frames for ever; those of `far` arrive later."""
    held: deque[tuple[float, bytes]] = deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        ready, _, _ = select.select([near, far], [], [], wait)
        if near in ready:
            put(far, os.read(near, 65536))
        if far in ready:
            held.append((time.monotonic() + delay_s, os.read(far, 65536)))
        while held and held[0][0] <= time.monotonic():
            put(near, held.popleft()[1])


def main(name: str, namespace: str, ms: str) -> None:
    """Makes the devices, says so, and carries until it is killed."""
    near = device(name)
    enter(namespace)
    far = device("e0")
    os.write(1, b"ready\n")
    carry(near, far, float(ms) / 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
