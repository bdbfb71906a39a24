"""Side by side with pgbench on the same server and data, in alternating runs: prints ratios.

CPU per transaction is the difference of a long and a short run of the whole process, so that
start-up is not in it. Figures are medians over the pairs; times are never gates.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import instructions

from pgpaces.servers import access, binaries, embedded
from pgpaces.servers.record import Transport

CLIENTS = (1, 8, 64)
SHORT_S, LONG_S = 2, 5
SCALE = 10


@dataclass(frozen=True)
class Sample:
    """One run of one program: CPU seconds (user and system), transactions, peak memory."""

    cpu_s: float
    transactions: int
    memory_kib: int
    rate: float


def measured(command: list[str], environment: dict[str, str]) -> tuple[str, float, int]:
    """Runs a program; its output, CPU seconds and peak memory in KiB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=out,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
    return text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


@dataclass(frozen=True)
class Place:
    """A server with the data, and the way to it."""

    server: embedded.Server
    transport: Transport
    dbname: str
    home: Path

    def environment(self) -> dict[str, str]:
        """For both programs."""
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("PG")},
            **self.server.environment(self.dbname, self.transport),
            "PGPACES_HOME": str(self.home),
        }


def pgbench(place: Place, clients: int, seconds: int) -> Sample:
    """Select-only, prepared, one thread."""
    program = str(place.server.bin / "pgbench")
    command = [program, "-n", "-S", "-M", "prepared", "-c", str(clients), "-j", "1"]
    command += ["-T", str(seconds), "-s", str(SCALE), "-P", "1", "-r"]
    text, cpu_s, memory = measured(command, place.environment())
    found = re.search(r"actually processed: (\d+)", text)
    done = int(found[1]) if found else 0
    return Sample(cpu_s, done, memory, done / seconds)


def pgpaces(place: Place, clients: int, seconds: int) -> Sample:
    """The same work, with everything recorded and stored."""
    dsn = place.server.dsn("postgres", place.transport)
    command = [sys.executable, "-m", "pgpaces", "run", "select-only", "--scale", str(SCALE)]
    command += ["--clients", str(clients), "--threads", "1", "--protocol", "prepared"]
    command += ["--duration", f"{seconds}s", "--warmup", "0", "--target", dsn, "--json"]
    text, cpu_s, memory = measured(command, place.environment())
    answer = json.loads(text)
    return Sample(cpu_s, answer["counts"]["on_time"], memory, answer["rate"])


Program = Callable[[Place, int, int], Sample]


def cpu_us(program: Program, place: Place, clients: int) -> tuple[float, Sample]:
    """CPU microseconds a transaction, and the long run."""
    short, long = (program(place, clients, seconds) for seconds in (SHORT_S, LONG_S))
    spent = long.cpu_s - short.cpu_s
    return 1e6 * spent / (long.transactions - short.transactions), long


def help_ms() -> float:
    """The quickest of several starts of `pgpaces --help`, in ms."""

    def once() -> float:
        began = time.perf_counter()
        command = [sys.executable, "-m", "pgpaces", "--help"]
        subprocess.run(command, check=True, capture_output=True)
        return 1e3 * (time.perf_counter() - began)

    return min(once() for _ in range(10))


def compare(place: Place, pairs: int, counts: Sequence[int]) -> None:
    """Prints one row for each number of clients."""
    for clients in counts:
        ours, theirs, rates, memory = [], [], [], 0
        for _ in range(pairs):
            our_cpu, our_run = cpu_us(pgpaces, place, clients)
            their_cpu, their_run = cpu_us(pgbench, place, clients)
            ours.append(our_cpu)
            theirs.append(their_cpu)
            rates.append(our_run.rate / their_run.rate)
            memory = max(memory, our_run.memory_kib)
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print(
            f"{place.transport:7} {clients:7} {statistics.median(ours):8.2f}"
            f" {statistics.median(theirs):8.2f} {ratio:7.2f} {statistics.median(rates):10.2f}"
            f" {memory / 1024:9.0f}",
            flush=True,
        )


def main() -> None:
    """Starts a server, prepares the data once, compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3, help="alternating pairs per row")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--server", default="15", help="installation that has pgbench")
    parser.add_argument("--only-instructions", action="store_true", help="no runs against time")
    arguments = parser.parse_args()
    print(f"pgpaces --help: {help_ms():.0f} ms (goal 150)")
    home = Path(tempfile.mkdtemp(prefix="pgpaces-bench-", dir="/tmp"))
    home.chmod(0o755)
    os.environ["PGPACES_HOME"] = str(home)
    try:
        installation = binaries.find(arguments.server)
        spec = embedded.ServerSpec(installation, name="bench", listen=access.Listen())
        with embedded.start(spec) as server:
            place = Place(server, Transport.SOCKET, "postgres", home)
            pgpaces(place, 1, 1)
            query = "SELECT datname FROM pg_database WHERE datname LIKE 'pgpaces_%'"
            psql = [str(installation.program("psql")), "-AtXc", query]
            dbname = subprocess.run(
                psql, env=place.environment(), check=True, capture_output=True, text=True
            ).stdout.strip()
            instructions.parsing()
            data = Place(server, Transport.SOCKET, dbname, home)
            instructions.compare(server.bin / "pgbench", data.environment())
            if arguments.only_instructions:
                return
            print(f"select-only, prepared, PostgreSQL {server.version}, {arguments.pairs} pairs")
            print("transport clients ours us pgbench us ratio(CPU) ratio(tps) peak MiB")
            for transport in Transport:
                compare(Place(server, transport, dbname, home), arguments.pairs, arguments.clients)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
