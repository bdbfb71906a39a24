"""Servers that are broken: their processes, and what a load makes of it."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from tests.commands import adds_up, value_of
from tests.engine_load import Load
from tests.needs import PG15_BIN
from tests.processes import children
from tests.servers import Postgres, server_user
from tests.waiting import DEADLINE_S, until

NAME = "pgpaces faults"
SECOND_NS = 1_000_000_000
SHORT = "SELECT pg_sleep(0.005)"


def lets_in(server: Postgres) -> bool:
    """Whether a connection comes about now."""
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True


def postmaster(server: Postgres) -> int:
    return int((server.data / "postmaster.pid").read_text().split()[0])


def everything(server: Postgres) -> list[int]:
    """The postmaster and all that it started."""
    return [postmaster(server), *children(postmaster(server))]


def start_again(server: Postgres) -> None:
    """Start a server whose postmaster died; what it left behind must be gone first."""
    words = ("-l", server.folder / "log", "-w", "start")
    command = [str(PG15_BIN / "pg_ctl"), "-D", str(server.data), *map(str, words)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def starts() -> bool:
        done = subprocess.run(command, cwd="/", check=False, **quiet, **server_user())
        return done.returncode == 0

    until(starts, "a start")


def backends(server: Postgres, name: str = NAME) -> list[int]:
    sql = f"SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' ORDER BY 1"
    return [pid for (pid,) in server.execute(sql)]


def seconds_until_end(load: Load) -> tuple[Any, float]:
    """What became of a load, and how long that took from now."""
    begun = time.monotonic()
    return load.finish(), time.monotonic() - begun


def measured_in_child(code: str, **values: object) -> str:
    """What a Python program of its own prints; `{name!r}` in it stands for a value."""
    tests = str(Path(__file__).parents[1])
    text = code.format(tests=tests, **values)
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def session(server: Postgres, user: str = "u_trust") -> psycopg.Connection[Any]:
    """A session in autocommit."""
    return psycopg.connect(server.dsn(user), autocommit=True)


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return rest


ENDLESS = "SELECT pg_sleep(1000)"


def answer(child: subprocess.Popen[bytes]) -> Any:
    """What it printed, whose counts add up."""
    out, err = child.communicate(timeout=3 * DEADLINE_S)
    assert child.returncode == 0, err
    document = value_of(out)
    assert adds_up(document)
    return document


def findings(document: Any, *severities: str) -> set[tuple[str, str]]:
    """The name and the subject of each finding of these severities."""
    every = document["validity"]["findings"]
    return {(each["name"], each["about"]) for each in every if each["severity"] in severities}


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def going_on(start_load: Any, dsn: str, script: str = SHORT, **changes: Any) -> Any:
    """A load of 50/s on 4 clients that ends when it is told to."""
    plan = {"clients": 4, "load": "open", "rate": 50.0, "transactions": None,
            "duration_ns": 1000 * SECOND_NS, "grace_ns": 10 * SECOND_NS}  # fmt: skip
    return start_load(dsn, script, **(plan | changes))


def stopped(load: Any) -> Any:
    load.run.stop()
    return load.finish()
