"""The programs that are compared, as command lines, and what is read out of what they print.

pgbench always runs with `-r -P 1`: the nearest it has to what ours records without being asked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from load import Order
from place import SCALE

from pgpaces.spec.workload import SHIPPED

LOAD = Path(__file__).with_name("load.py")
SETS = Path(__file__).with_name("sets.sql")
SELECT = SHIPPED / "select-only" / "select-only.sql"
TPCB = SHIPPED / "tpcb-like" / "tpcb-like.sql"
Value = TypeVar("Value")


class ProgramError(Exception):
    """A program ended badly, or printed something else than it should."""

    @classmethod
    def of(cls, command: Sequence[str], code: int, said: str) -> ProgramError:
        """What a program said last, which is what counts in a traceback too."""
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        return cls(f"{Path(command[0]).name} ended with {code}: {last}")


@dataclass(frozen=True)
class Ended:
    """A program that has run: its output, its CPU seconds (user and system), its memory at most."""

    output: str
    cpu_s: float
    memory_mb: float


def run(
    command: Sequence[str], environment: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> Ended:
    """Runs a program to its end. Raises ProgramError where that is a bad one."""
    return Running(command, environment, stdin).ended()


class Running:
    """A program that runs beside others."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self._command = list(command)
        # Closed by `ended`.
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command,
            env=dict(environment),
            stdin=stdin,
            stdout=self._out,
            stderr=self._err,
        )

    def ended(self) -> Ended:
        """Waits for its end."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        with self._out as out, self._err as err:
            out.seek(0)
            err.seek(0)
            text, said = out.read(), err.read()
        if self._process.returncode:
            raise ProgramError.of(self._command, self._process.returncode, said)
        # Linux counts in KiB, macOS in bytes.
        unit = 1e6 if sys.platform == "darwin" else 1e3 / 1.024
        return Ended(text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def alternately(rounds: int, *ways: Callable[[], Value]) -> list[tuple[Value, ...]]:
    """The values of each way, by round; the order turns, so that no way always comes first."""
    found = []
    for number in range(rounds):
        places = list(range(len(ways)))
        values = {i: ways[i]() for i in (places if number % 2 == 0 else reversed(places))}
        found.append(tuple(values[i] for i in places))
    return found


def columns(rounds: Sequence[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    """The values of each way, in the order of the rounds."""
    return list(zip(*rounds, strict=True))


# --- pgbench


def pgbench(program: str, script: Path, protocol: str, clients: int, *more: object) -> list[str]:
    """A command line: one thread, the same script as ours."""
    command = [program, "-n", "-c", str(clients), "-j", "1", "-M", protocol, "-r", "-P", "1"]
    return [*command, "-D", f"scale={SCALE}", "-f", str(script), *map(str, more)]


def pgbench_value(report: str, what: str) -> float:
    """A number of pgbench's report, after these words. Raises ProgramError without it."""
    found = re.search(rf"^{re.escape(what)}\s*[:=]?\s*([0-9.]+)", report, re.M)
    if not found:
        raise ProgramError(f"pgbench printed no '{what}':\n{report}")
    return float(found[1])


def pgbench_done(report: str) -> int:
    """Transactions."""
    return int(pgbench_value(report, "number of transactions actually processed"))


# --- ours


def ours(order: Order) -> list[str]:
    """A command line."""
    return [sys.executable, str(LOAD), json.dumps(asdict(order))]


def report_of(ended: Ended) -> dict[str, Any]:
    """What it printed."""
    found: dict[str, Any] = json.loads(ended.output)
    return found


def run_ours(order: Order, environment: Mapping[str, str]) -> dict[str, Any]:
    """Runs it; its report."""
    return report_of(run(ours(order), environment))
