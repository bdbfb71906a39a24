"""What the machine of a generator kept from it during its load: stolen time, and its quota."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct

from pgpaces.analysis.throttle import STEAL_WARNING
from pgpaces.monitor.host import Local, Probe
from pgpaces.monitor.procfs import Item, changes
from pgpaces.spec.result import Finding

# A quota that runs out in fewer of its periods, in percent, is no reason to be late.
_QUOTA_WARNING = 1.0


class MachineReading(Struct, frozen=True):
    """The counters of a machine at a moment, s."""

    at_s: float
    items: Sequence[Item]


def reading() -> MachineReading:
    """The counters of this machine, and of the group of this process, now."""
    with contextlib.closing(Local()) as local:
        return MachineReading(time.monotonic(), Probe(local.read, ("/proc/self/cgroup",)).items())


def findings(before: MachineReading, after: MachineReading) -> Iterator[Finding]:
    gauges = changes(before.items, after.items, after.at_s - before.at_s)
    values = {item.name: item.value for item in gauges}
    steal, quota = values.get("cpu_steal", 0.0), values.get("cgroup_throttled_share", 0.0)
    if steal >= STEAL_WARNING:
        text = f"{steal:.1f}% of the time of its machine's CPUs was stolen by other machines"
        yield Finding("generator", "warning", text, steal, "%")
    if quota >= _QUOTA_WARNING:
        text = f"its CPU quota ran out in {quota:.0f}% of its periods"
        yield Finding("generator", "warning", text, quota, "%")
