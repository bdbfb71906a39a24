"""What threads share in the hot path: the number of the next transaction of a schedule."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, Finding, Note
from session import Session

SECTION = "Schedule"
THREADS = 2


def section(_session: Session) -> Iterator[Finding]:
    """Nanoseconds a transaction, while threads do nothing but take the next one."""
    command = ["cargo", "run", "--quiet", "--release", "--locked"]
    command += ["--package", "pgpaces-engine", "--example", "schedule", str(THREADS)]
    try:
        root = Path(__file__).parents[1]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        yield Note(SECTION, f"not measured, it cannot be built here: {error}")
        return
    for row in done.stdout.splitlines():
        threads, ns = row.split()
        what = f"taking the next of one schedule, {threads} threads at once"
        yield Figure(SECTION, what, "ns", (float(ns),), paged=False)
