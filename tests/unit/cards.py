"""Disks as a test of a card would measure them."""

from datetime import UTC, datetime
from typing import Any

from pgpaces.analysis import disks
from pgpaces.analysis.disks import Device, Disk, JobRun
from pgpaces.spec.setup import HostFacts
from pgpaces.store.listing import DiskRow


def run(job: str, per_s: float, seconds: float = 10, number: int = 1) -> JobRun:
    count = round(per_s * seconds)
    size = 4 * 2**20 if job == disks.CARD_SEQUENTIAL else 4096
    return JobRun(job, number, seconds, 0, count, 0, count * size)


def card(reads: float, writes: float, mb_per_s: float) -> Disk:
    per_s = {
        disks.CARD_READ: reads,
        disks.CARD_WRITE: writes,
        disks.CARD_SEQUENTIAL: mb_per_s * 1e6 / (4 * 2**20),
    }
    measured = tuple(run(job, rate, 1000, n) for n in (1, 2, 3) for job, rate in per_s.items())
    device = Device("uuid 1", "mmcblk0p2 on mmcblk0", "ext4", "rw", model="SD64G")
    return Disk("/mnt/card", device, 256 * 2**20, False, "fio-3.33", measured)


def row(found: Disk, name: str = "card", **host: Any) -> DiskRow:
    return DiskRow("01M8" + "0" * 22, name, datetime.now(UTC), "0", HostFacts(**host), found)
