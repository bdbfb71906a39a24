"""Locust, which users of other tools know, on the same select-only work: what a choice costs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import cpu
import programs
from cpu import Case, Run
from figures import Figure, Finding, Note
from place import SCALE
from session import Session

SECTION = "Other tools"
CLIENTS = 8
LOCUST = Path(__file__).with_name("locust_select.py")


def section(session: Session) -> Iterator[Finding]:
    """CPU a transaction and throughput, ours beside it."""
    if locust() is None:
        yield Note(SECTION, "Locust: not installed; LOCUST may name one that has psycopg beside it")
        return
    case = Case("select-only, unix", programs.SELECT, session.place.environment(), CLIENTS)
    rounds = programs.alternately(
        2 if session.quick else 3,
        lambda: cpu.ours(session, case),
        lambda: cpu.less_start(lambda length: _locust(case, length), cpu.seconds(session)),
    )
    mine, other = programs.columns(rounds)
    for name, unit in (("cpu_us", "CPU us"), ("tps", "tps")):
        ours, theirs = (tuple(getattr(cost, name) for cost in costs) for costs in (mine, other))
        yield Figure(SECTION, case.label, unit, ours, theirs, beside="Locust")


def locust() -> str | None:
    """The Locust to run: the one that the environment names, or the one that is found."""
    return shutil.which(os.environ.get("LOCUST", "locust"))


def _locust(case: Case, seconds: int) -> Run:
    """One process, as it starts without more words."""
    environment = {**case.way, "BENCH_SCALE": str(SCALE)}
    # It is another Python's.
    environment.pop("PYTHONPATH", None)
    command = [locust() or "locust", "-f", str(LOCUST), "--headless", "--json", "--skip-log"]
    command += ["-u", str(CLIENTS), "-r", str(CLIENTS), "-t", f"{seconds}s"]
    ended = programs.run(command, environment)
    (row,) = json.loads(ended.output)
    if row["num_failures"] or not row["num_requests"]:
        raise programs.ProgramError(f"Locust did not succeed: {row}")
    return ended.cpu_s, row["num_requests"], row["num_requests"] / seconds
