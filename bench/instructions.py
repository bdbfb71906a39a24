"""User-mode instructions a transaction, beside pgbench's, by callgrind; and how fast scripts parse.

The figure is the difference of a long and a short run of the same program, so that start-up is not
in it. Ours is with everything recorded. Needs valgrind.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from pgpaces.generators import engine
from pgpaces.plan import Load, Protocol, TrialPlan
from pgpaces.workload import SHIPPED

SETS = Path(__file__).with_name("sets.sql")
SELECT = SHIPPED / "select-only" / "select-only.sql"
# name, script, protocol, clients, transactions of each client in the short and the long run
CASES = (
    ("20 lines of \\set", SETS, "simple", 1, (2000, 12_000)),
    ("select-only", SELECT, "prepared", 1, (500, 2500)),
    ("select-only", SELECT, "prepared", 8, (100, 400)),
)
LINES = (100_000, 400_000)


def instructions(command: list[str], environment: dict[str, str]) -> int:
    """All that a program executes."""
    callgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    done = subprocess.run(
        [*callgrind, *command], capture_output=True, text=True, env=environment, check=False
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(found[1])


def load(script: str, protocol: str, clients: int, count: int) -> None:
    """What callgrind looks at: the engine, and nothing of the pipeline around it."""
    plan = TrialPlan(
        Load("closed"),
        transactions=count,
        duration_ns=None,
        protocol=cast("Protocol", protocol),
        describe=True,
        variables=(("scale", "1"),),
    )
    text = (script, 1, Path(script).read_bytes())
    run = engine.Engine(engine.EnginePlan.of(plan, clients, 1), [text], engine.resolve(""))
    done = sum(t.on_time for interval in run for t in interval.tallies)
    if done != count * clients:
        sys.exit(f"{done} of {count * clients} transactions succeeded")


def compare(pgbench: Path, environment: dict[str, str]) -> None:
    """One row a case; the environment says where the data is."""
    if shutil.which("valgrind") is None:
        print("instructions: not measured, valgrind is not installed")
        return
    print("instructions a transaction   clients     ours  pgbench   ratio")
    for name, script, protocol, clients, counts in CASES:
        ours = [sys.executable, __file__, str(script), protocol, str(clients)]
        theirs = [str(pgbench), "-n", "-c", str(clients), "-M", protocol, "-f", str(script), "-t"]
        short, long = (
            [instructions([*command, str(count)], environment) for command in (ours, theirs)]
            for count in counts
        )
        span = (counts[1] - counts[0]) * clients
        mine, other = ((b - a) / span for a, b in zip(short, long, strict=True))
        print(f"{name:28} {clients:7} {mine:8.0f} {other:8.0f} {mine / other:7.2f}", flush=True)


def parsing() -> None:
    """How long a script of many lines takes to read."""
    for lines in LINES:
        text = "\\set x random(1, 100) + :x * 2\nSELECT :x FROM t WHERE a = :x;\n" * (lines // 2)
        began = time.perf_counter()
        engine.commands("t", text)
        print(f"parsing {lines} lines: {time.perf_counter() - began:.2f} s (goal 1 per 100000)")


if __name__ == "__main__":
    load(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
