"""What it costs a load to be watched: its live page with two readers, and Prometheus."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import programs
from counting import engine_instructions
from figures import Figure, Finding, Goal, Note, quartiles
from session import Session

SECTION = "Watched"
RATE, CLIENTS, READERS = 2000, 16, 2
# Transactions of the short and the long run under callgrind.
LENGTHS = (4000, 20_000)
_ADDRESS = re.compile(r"^(live|metrics): (\S+)$")
_WAIT_S = 60


@dataclass(frozen=True)
class Watched:
    """A `pgpaces run` with the words for its load. by: words to start it with, such as valgrind."""

    load: tuple[str, ...]
    watched: bool
    by: tuple[str, ...] = ()

    def run(self, session: Session) -> str:
        """Its JSON. Raises ProgramError."""
        follow = ("--live", "--metrics", "prometheus=0") if self.watched else ()
        run = ("-m", "pgpaces", "run", "select-only", "--scale", "1", "-M", "prepared", "-j", "1")
        target = ("--target", session.place.server.dsn("postgres"))
        command = [*self.by, sys.executable, *run, *target, "-c", str(CLIENTS)]
        command += [*self.load, *follow, "--json"]
        process = subprocess.Popen(
            command,
            env=session.place.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        ended, said = threading.Event(), []
        threads = []
        for line in process.stderr:
            said.append(line)
            if found := _ADDRESS.match(line.rstrip()):
                readers = READERS if found[1] == "live" else 1
                read = _read_page if found[1] == "live" else _scrape
                for _ in range(readers):
                    threads.append(threading.Thread(target=read, args=(found[2], ended)))
                    threads[-1].start()
        output = process.communicate()[0]
        ended.set()
        for thread in threads:
            thread.join(_WAIT_S)
        if process.returncode:
            raise programs.ProgramError.of(command, process.returncode, "".join(said))
        return output


def _read_page(address: str, ended: threading.Event) -> None:
    """Reads the events of the running trial, as a browser does."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    while not ended.wait(0.5):
        with browser.open(address) as answer:
            if found := re.search(rb'data-run="(\w+)"', answer.read()):
                break
    else:
        return
    origin = address.partition("/live")[0]
    with browser.open(f"{origin}/events/runs/{found[1].decode()}") as events:
        for _ in events:
            pass


def _scrape(address: str, ended: threading.Event) -> None:
    """Reads the metrics each second, until their port is closed."""
    with contextlib.suppress(OSError):
        while not ended.wait(1):
            with urllib.request.urlopen(address) as answer:
                answer.read()


def section(session: Session) -> Iterator[Finding]:
    """p99 of the dispatch lag, and the engine's instructions, watched and not."""
    yield Note(SECTION, f"{READERS} readers of events and a scrape each second, on the same CPUs")
    seconds = 5 if session.quick else 10
    # Pages are opened during the warm-up.
    load = ("--rate", str(RATE), "-T", f"{seconds}s", "--warmup", "3s")
    watched, one, other = programs.columns(
        programs.alternately(
            session.pairs,
            lambda: _lag_ms(session, Watched(load, watched=True)),
            lambda: _lag_ms(session, Watched(load, watched=False)),
            lambda: _lag_ms(session, Watched(load, watched=False)),
        )
    )
    unwatched = Figure(SECTION, f"p99 dispatch lag, {RATE}/s, not watched twice", "ms", other, one,
                       beside="not watched")  # fmt: skip
    yield unwatched
    between = quartiles(unwatched.ratios)
    goal = Goal("ratio", "at most", round(between[1], 2)) if between else None
    yield Figure(SECTION, f"p99 dispatch lag, {RATE}/s, watched", "ms", watched, one, goal,
                 beside="not watched")  # fmt: skip
    if shutil.which("valgrind") is None:
        yield Note(SECTION, "instructions not measured: valgrind is not installed")
        return
    on, off = (_instructions(session, watched=each) for each in (True, False))
    yield Figure(SECTION, "the engine, watched", "instructions a transaction", (on,),
                 (off,), Goal("ratio", "at most", 1.01), beside="not watched")  # fmt: skip


def _lag_ms(session: Session, run: Watched) -> float:
    found = json.loads(run.run(session))
    return float(found["value"]["generator"]["dispatch_p99"]["value"])


def _instructions(session: Session, *, watched: bool) -> float:
    few, many = (
        engine_instructions(
            lambda by, n=count: Watched(
                ("-t", str(n // CLIENTS), "--warmup", "0"), watched, tuple(by)
            ).run(session)  # type: ignore[misc]
        )
        for count in LENGTHS
    )
    return (many - few) / (LENGTHS[1] - LENGTHS[0])
