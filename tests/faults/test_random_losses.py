"""What is lost of a load from several generators, at random moments.

Each test runs TIMES times (2), each with its own seed: see `make faults`.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.errors import sentence
from tests.faults.breaking import answer, findings, wait
from tests.faults.machines import machines
from tests.servers import Postgres
from tests.waiting import DEADLINE_S, until

from pgpaces.store.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

LEASE_S = 10.0
Start = Callable[..., subprocess.Popen[bytes]]
Record = Callable[[str, object], None]
again = pytest.mark.parametrize("seed", range(int(os.environ.get("TIMES", "2"))))


def here(server: Postgres) -> tuple[str, str]:
    """The server's socket: without machines it has no other address."""
    return ("--target", server.dsn("u_trust"))


LOAD = "query LIKE 'SELECT pg_sleep(%'"


def sessions(server: Postgres, where: str = LOAD) -> int:
    """Those of the load: of its script."""
    return int(server.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {where}")[0][0])


def seconds_until_no_load(server: Postgres, where: str = LOAD) -> float:
    """How long sessions of the load remain from now on."""
    began = time.monotonic()
    until(lambda: not sessions(server, where), "the load ended")
    return time.monotonic() - began


def generators_of(pid: int) -> list[psutil.Process]:
    """The processes of Dask's that make the load of a command."""
    children = psutil.Process(pid).children(recursive=True)
    return [each for each in children if any("dask_spec" in word for word in each.cmdline())]


def stored_due(folder: Path) -> int:
    """What fell due in the seconds that are stored, which can be read."""
    store = Store.open(folder / "results.db")
    [trial] = store.trials()
    return sum(tally.due for second in store.seconds(trial.id) for tally in second.tallies)


@again
def test_a_generator_that_is_killed_at_any_moment_is_named(start, reachable, seed, record_property):
    chance = random.Random(seed)
    child = start(*here(reachable), "--generators", "3", "-T", "8s")
    victim = chance.choice(generators_of(child.pid))
    began = time.monotonic()
    wait(chance.uniform(0, 7))
    victim.send_signal(signal.SIGKILL)
    document = answer(child)
    took = time.monotonic() - began
    record_property("took_s", took)
    assert document["validity"]["state"] == "invalid"
    assert [name for name, _ in findings(document, "invalid")].count("generator-lost") == 1
    assert took < 8 + 10 + LEASE_S, "the load, the grace period, ten seconds"


@again
def test_no_load_is_left_wherever_the_program_that_asked_for_it_is_killed(
    start, reachable, tmp_path, seed, record_property
):
    child = start(*here(reachable), "--generators", "3", "-T", "60s")
    pids = generators_of(child.pid)
    wait(random.Random(seed).uniform(0, 6))
    assert sessions(reachable)
    child.kill()
    child.communicate()
    left = seconds_until_no_load(reachable)
    record_property("left_s", left)
    assert left < LEASE_S
    assert not psutil.wait_procs(pids, DEADLINE_S)[1], "its generators end too"
    assert stored_due(tmp_path) > 0


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Dask cluster with three workers, each a process; and its scheduler."""
    file = folder / "scheduler.json"
    dask = (sys.executable, "-m", "distributed.cli.dask_")
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    there = ["--scheduler-file", str(file)]
    with contextlib.ExitStack() as stack:

        def started(*words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(words, **quiet)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        scheduler = started(*dask[:2], f"{dask[2]}scheduler", *there, "--host", "127.0.0.1",
                            "--port", "0", "--no-dashboard")  # fmt: skip
        for _ in range(3):
            started(*dask[:2], f"{dask[2]}worker", *there, "--no-nanny", "--nthreads", "2",
                    "--no-dashboard", "--death-timeout", "60")  # fmt: skip
        from distributed import Client

        until(file.exists, "a scheduler")
        with Client(scheduler_file=str(file), timeout=DEADLINE_S) as client:
            client.wait_for_workers(3, timeout=DEADLINE_S)
            address = client.scheduler.address
        yield address, scheduler


@again
def test_no_load_is_left_wherever_the_scheduler_is_killed(
    start, reachable, tmp_path, seed, record_property
):
    with cluster(tmp_path) as (address, scheduler):
        child = start(*here(reachable), "--cluster", address, "-T", "60s")
        wait(random.Random(seed).uniform(0, 6))
        assert sessions(reachable)
        scheduler.kill()
        left = seconds_until_no_load(reachable)
        _, said = child.communicate(timeout=DEADLINE_S)
    lost = sentence("no-generator-left", lost="")[:-1].encode()
    assert (child.returncode, lost in said) == (5, True)
    record_property("left_s", left)
    assert left < LEASE_S
    assert stored_due(tmp_path) > 0


@again
def test_a_cut_of_some_seconds_loses_nothing_whenever_it_comes(start, tmp_path, seed):
    chance = random.Random(seed)
    with machines(tmp_path, {}, {}) as pair:
        child = start("--generators", "ssh:pgpt1,pgpt2", "-T", "14s")
        wait(chance.uniform(0, 8))
        with chance.choice(pair).cut_off():
            wait(chance.choice((5, 7)))
        document = answer(child)
    assert document["validity"]["state"] == "valid"
    assert document["counts"]["unfinished"] == 0


@again
def test_a_cut_of_a_minute_ends_the_load_there_whenever_it_comes(
    start, reachable, tmp_path, seed, record_property
):
    chance = random.Random(seed)
    with machines(tmp_path, {}, {}) as pair:
        child = start("--generators", "ssh:pgpt1,pgpt2", "-T", "30s")
        wait(chance.uniform(0, 15))
        machine = chance.choice(pair)
        with machine.cut_off():
            began = time.monotonic()
            left = seconds_until_no_load(reachable, f"client_addr = '{machine.address}'")
            document = answer(child)
            wait(60 - (time.monotonic() - began))
    record_property("left_s", left)
    assert left < LEASE_S
    assert document["validity"]["state"] == "invalid"
    assert ("generator-lost", machine.name) in findings(document, "invalid")
    assert document["counts"]["unfinished"] > 0
