"""The report that pgbench prints at the end of a run, of any version since 9.6. Knows no files."""

from __future__ import annotations

import re

from msgspec import Struct, field

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
# Of all versions: "latency average: 1 ms" until 9.6, "latency average = 1 ms" from 10 on.
_LINES = {
    "scale": rf"scaling factor: {_NUMBER}",
    "clients": rf"number of clients: {_NUMBER}",
    "threads": rf"number of threads: {_NUMBER}",
    "max_tries": rf"maximum number of tries: {_NUMBER}",
    "duration_s": rf"duration: {_NUMBER} s",
    "per_client": rf"number of transactions per client: {_NUMBER}",
    "processed": rf"number of transactions actually processed: {_NUMBER}",
    "failed": rf"number of failed transactions: {_NUMBER}",
    "serialization": rf"number of serialization failures: {_NUMBER}",
    "deadlock": rf"number of deadlock failures: {_NUMBER}",
    "other": rf"number of other failures: {_NUMBER}",
    "retried": rf"number of transactions retried: {_NUMBER}",
    "retries": rf"total number of retries: {_NUMBER}",
    "skipped": rf"number of transactions skipped: {_NUMBER}",
    "limit_ms": rf"number of transactions above the {_NUMBER} ms latency limit",
    "late": rf"number of transactions above the [0-9.]+ ms latency limit: {_NUMBER}",
    "mean_ms": rf"latency average(?: =|:) {_NUMBER} ms",
    "stddev_ms": rf"latency stddev(?: =|:) {_NUMBER} ms",
    "lag_ms": rf"rate limit schedule lag: avg {_NUMBER} ",
    "lag_max_ms": rf"rate limit schedule lag: avg [0-9.]+ \(max {_NUMBER}\) ms",
}
# Versions until 13 print two: what connecting took counts only in the first. It is subtracted from
# the run as if all of it were before; with -C it is not.
_TPS = re.compile(rf"^tps = {_NUMBER} \((?!including connections)", re.MULTILINE)
_INCLUDING = re.compile(rf"^tps = {_NUMBER} \(including connections", re.MULTILINE)
_RECONNECTING = 1.05
_BANNER = re.compile(r"^pgbench \(([^\s,()]+)[^,]*?(?:, server ([^\s()]+).*)?\)$", re.MULTILINE)
_TYPE = re.compile(r"^transaction type: (.*)$", re.MULTILINE)
_MODE = re.compile(r"^query mode: (\w+)$", re.MULTILINE)
_SCRIPT = re.compile(r"^SQL script (\d+): (.*)\n - weight: (\d+)", re.MULTILINE)
REPORT = re.compile(r"^transaction type: |^number of transactions actually processed: ", re.M)


class Printed(Struct, frozen=True):
    """A report. numbers: those it contains, by the names above. scripts: name and weight."""

    version: str | None
    server: str | None
    kind: str
    protocol: str
    tps: float | None
    scripts: tuple[tuple[str, int], ...]
    numbers: dict[str, float] = field(default_factory=dict)

    def count(self, name: str) -> int:
        """A count; 0 where the report lacks it."""
        return int(self.numbers.get(name, 0))

    @property
    def seconds(self) -> float | None:
        """The length of the run: by the definition of tps, else the requested duration."""
        processed = self.numbers.get("processed", 0)
        return processed / self.tps if self.tps and processed else self.numbers.get("duration_s")


def read(text: str) -> Printed:
    """The report in the output of pgbench."""
    # After the scripts' headings, numbers are those of single scripts.
    heading = _SCRIPT.search(text)
    general = text[: heading.start()] if heading else text
    numbers = {}
    for name, pattern in _LINES.items():
        if match := re.search(f"^{pattern}", general, re.MULTILINE):
            numbers[name] = float(match[1])
    banner, tps = _BANNER.search(text), _TPS.search(general)
    kind, mode = _TYPE.search(text), _MODE.search(text)
    scripts = [(name, int(weight)) for _, name, weight in _SCRIPT.findall(text)]
    name = kind[1] if kind else "pgbench"
    return Printed(
        version=banner[1] if banner else None,
        server=(banner[2] or banner[1]) if banner else None,
        kind=name,
        protocol=mode[1] if mode else "simple",
        tps=_rate(tps, _INCLUDING.search(general)),
        scripts=tuple(scripts or [(name, 1)]),
        numbers=numbers,
    )


def _rate(excluding: re.Match[str] | None, including: re.Match[str] | None) -> float | None:
    """Transactions a second: without connecting, unless that was a good part of the run."""
    if excluding is None:
        return None
    rate = float(excluding[1])
    whole = rate if including is None else float(including[1])
    return whole if rate > _RECONNECTING * whole else rate
