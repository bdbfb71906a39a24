"""How the engine waits for its connections: what is asked for, taken and told."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import Ended
from tests.errors import sentence
from tests.needs import needs
from tests.polls import each_poll

from pgpaces.load.engine import Engine, EnginePlan, resolve, slice_attributes
from pgpaces.monitor import machine
from pgpaces.spec.load import Load, TrialPlan

poll = each_poll
pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]

# What follows runs where the system forbids io_uring, as containers do: a filter of system calls
# that lets all pass but one, which fails with an error.
FORBIDDEN = """
import ctypes, struct
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
refuse, allow = (RETURN, 0, 0, 0x50000 | {error}), (RETURN, 0, 0, 0x7FFF0000)
steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, {call}), refuse, allow]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, program, 0, 0) == 0
"""
COMMAND = "import runpy; runpy.run_module('pgpaces', run_name='__main__', alter_sys=True)"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "one.sql"
    path.write_text("SELECT 1;\n")
    return path


def load_of(dsn: str, script: Path) -> list[str]:
    """The words of a short run of this script."""
    words = ["run", "-f", str(script), "--target", dsn, "-T", "200ms", "--warmup", "0", "-P", "0"]
    return [*words, "--store", str(script.with_name("results.db"))]


def run_forbidden(dsn: str, script: Path, *words: str) -> Ended:
    """A run in a process of its own, in which the system forbids io_uring."""
    command = [
        sys.executable,
        "-c",
        FORBIDDEN.format(call=425, error=1) + COMMAND,
        *load_of(dsn, script),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def taken(done: Ended) -> str:
    """The way that a run says it took."""
    way: str = done.json()["setup"]["poll"]
    return way


def test_an_answer_says_how_the_engine_waited(pgpaces, pg15, script, poll):
    done = pgpaces(*load_of(pg15.dsn(), script), "--poll", poll, "-c", "2", "-v")
    assert f"{poll}, busiest thread" in done.out, done.err


@pytest.mark.parametrize(
    ("load", "way"),
    [
        (("-c", "1"), "epoll"),
        (("-c", "24"), "io_uring"),
        (("-c", "24", "--think-time", "10ms"), "epoll"),
        (("-c", "24", "--rate", "100"), "epoll"),
        (("-c", "24", "--connect-each"), "epoll"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_io_uring_is_taken_where_many_clients_of_a_thread_never_pause(
    pgpaces, pg15, script, load, way
):
    way = "epoll" if machine.io_uring() else way
    assert taken(pgpaces(*load_of(pg15.dsn(), script), *load, "-j", "1", "--json")) == way


@needs("Linux")
def test_where_io_uring_is_forbidden_nobody_notices_but_who_asks_for_it(pg15, script):
    words = ("-c", "24", "-j", "1", "--json")
    done = run_forbidden(pg15.dsn(), script, *words)
    assert taken(done) == "epoll"
    assert done.err == ""
    asked = run_forbidden(pg15.dsn(), script, *words, "--poll", "io_uring")
    assert asked.code != 0
    assert f"error: {sentence('io-uring-forbidden')}\n" in asked.err


def _name(task: Path) -> str:
    """The name of a thread; empty if the thread has ended."""
    try:
        return (task / "comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@needs("slices of tasks in the kernel")
@pytest.mark.parametrize(("load", "short"), [(Load("open", 10.0), True), (Load("closed"), False)])
def test_threads_of_a_load_with_a_schedule_wake_before_others(pg15, load, short):
    own = slice_attributes()
    assert own is not None
    # Threads of an earlier load of this process may still be ending.
    before = {task.name for task in Path("/proc/self/task").iterdir()}
    plan = EnginePlan.of(TrialPlan(load, duration_ns=10**9, warmup_ns=0), 2, 1, scripts=["one"])
    engine = Engine(plan, [("one", 1, b"SELECT 1")], resolve(pg15.dsn()))
    tasks = [
        int(task.name)
        for task in Path("/proc/self/task").iterdir()
        if task.name not in before and _name(task).startswith("pgpaces-")
    ]
    slices = {slice_attributes(task).runtime for task in tasks}  # type: ignore[union-attr]
    engine.abort()
    list(engine)
    assert slices == {own.runtime // 2 if short else own.runtime}
