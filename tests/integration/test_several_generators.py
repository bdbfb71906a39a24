"""One load from several generators: Dask's real processes, a real server, and what is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import adds_up, value_of
from tests.engine_load import PLAN
from tests.errors import raises, sentence
from tests.needs import check
from tests.processes import command_of
from tests.servers import Postgres
from tests.waiting import DEADLINE_S, until

import pgpaces
from pgpaces.core.errors import RunError
from pgpaces.core.messages import message
from pgpaces.load.cluster.launch import tls_variables
from pgpaces.load.cluster.protocol import LoadOrder
from pgpaces.load.cluster.workers import Clusters, Workers
from pgpaces.spec.load import GeneratorsPlan
from pgpaces.store.store import Store

pytestmark = pytest.mark.postgres
OF_THE_HOST = {
    "generator-began-late", "clock-apart-decides", "cpu-steal-high", "cpu-quota-changed", "too-hot",
    "io-errors",
}  # fmt: skip

SLEEP = "\\set ms random(1, 5)\nSELECT pg_sleep(:ms / 1000.0);\n"


def ports_of(*pids: int) -> set[int]:
    """Where these processes listen."""
    import psutil

    return {
        connection.laddr.port
        for pid in pids
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


@pytest.fixture(scope="module")
def others():
    """Where this process listened before there was a cluster: other tests' own."""
    return ports_of(os.getpid())


@pytest.fixture(scope="module")
def two(others):
    """Two workers, each in a process of its own."""
    clusters = Clusters()
    yield clusters.workers(GeneratorsPlan(2), lambda _: None)
    clusters.close()


def due_of(path: Path, run: str) -> Counter[tuple[int, int]]:
    """What fell due of a stored run, by second and script."""
    counts: Counter[tuple[int, int]] = Counter()
    for interval in Store.open(path).seconds(run):
        for tally in interval.tallies:
            counts[tally.due_second, tally.script] += tally.due
    return +counts


LOADS = [{"rate": 200, "clients": 20}, {"users": 6, "pace": 20, "shape": "steps:0.5:1"}]


@pytest.mark.parametrize(
    "load", [LOADS[0], pytest.param(LOADS[1], marks=pytest.mark.slow)], ids=["open", "paced"]
)
def test_the_load_of_two_generators_is_that_of_one(pg15, tmp_path, load):
    script, store = tmp_path / "sleep.sql", tmp_path / "results.db"
    script.write_text(SLEEP)
    every = [
        pgpaces.run(
            files=[script], target=pg15.dsn("u_trust"), latency_limit="10s", duration=2, warmup=1,
            seed=7, store=store, generators=number, **load,
        )
        for number in (1, 2)
    ]  # fmt: skip
    one, other = every
    assert due_of(store, one.id) == due_of(store, other.id)
    trial = Store.open(store).load(other.id)
    assert [each.clients for each in trial.setup.generators] == [load.get("clients", 6) // 2] * 2
    assert sum(each.threads for each in trial.setup.generators) == trial.setup.threads
    assert [each.name for each in trial.findings].count("generator-share") == 2
    # What other machines on the same host took is not of this load, nor how late a busy one began.
    assert {each.name for each in trial.findings if each.severity == "invalid"} <= OF_THE_HOST


def test_users_in_python_act_on_every_generator(pg15, tmp_path):
    def look(connection: Any) -> None:
        connection.execute("SELECT pg_sleep(0.002)")

    store = tmp_path / "results.db"
    run = pgpaces.run(
        tasks=[look], target=pg15.dsn("u_trust"), users=4, pace=20, duration=1, warmup=0,
        store=store, generators=2,
    )  # fmt: skip
    trial = Store.open(store).load(run.id)
    assert [each.clients for each in trial.setup.generators] == [2, 2]
    assert trial.setup.poll == "Python threads"
    assert run.counts.on_time == run.counts.due > 0


def command(pg15: Postgres, tmp_path: Path, *words: str) -> subprocess.Popen[bytes]:
    """A run of a minute on three generators, whose load has begun."""
    script = tmp_path / "sleep.sql"
    script.write_text(SLEEP)
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "pgpaces", "run", "-f", str(script), "--target"),
            *(pg15.dsn("u_trust"), "--rate", "50", "-c", "6", "-T", "60s", "--warmup", "0s"),
            *("--store", str(tmp_path / "results.db"), "--generators", "3", "-P", "1", *words),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    while b" s: " not in (line := child.stderr.readline()):
        assert line, "it ended before its load began"
    return child


def generators(child: subprocess.Popen[bytes]) -> list[int]:
    check("Linux")
    pids = [pid for task in Path(f"/proc/{child.pid}/task").iterdir()
            for pid in (task / "children").read_text().split()]  # fmt: skip
    return [int(pid) for pid in pids if b"dask_spec" in command_of(int(pid))]


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)]
)
def test_a_generator_that_is_killed_or_hangs_is_named_and_what_was_due_there_is_unfinished(
    pg15, tmp_path, number
):
    child = command(pg15, tmp_path, "--json", "-T", "6s")
    os.kill(generators(child)[0], number)
    out, _ = child.communicate(timeout=DEADLINE_S)
    answer = value_of(out)
    assert answer["validity"]["state"] == "invalid"
    names = [each["name"] for each in answer["validity"]["findings"]]
    assert names.count("generator-lost") == 1
    assert answer["counts"]["unfinished"] > 0
    assert adds_up(answer)


def test_a_generator_that_hears_nothing_ends_its_load(two, pg15):
    from pgpaces.load.engine import EnginePlan
    from pgpaces.spec.load import Load, TrialPlan

    plan = EnginePlan.of(TrialPlan(Load("closed"), duration_ns=3600 * 10**9), 2, 1, scripts=["s"])
    keywords = {"host": str(pg15.folder), "port": str(pg15.port), "user": "u_trust",
                "dbname": "postgres", "application_name": "unheard"}  # fmt: skip
    order = LoadOrder(plan, (("s", 1, b"SELECT 1;"),), keywords, elsewhere=True,
                      lease_ns=2_500_000_000)  # fmt: skip
    agent_there = two.submit(two.workers[0], order).result()
    agent_there.report(1, 0, [("begin", 0)]).result()
    pg15.wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'unheard'")
    report = agent_there.report(2, 0).result()
    assert report.deserted
    assert not report.ended, "it is lost, and has not done what it was told to"
    assert report.seconds, "what it counted is kept for who asks again"


@pytest.mark.slow
def test_a_run_that_stood_still_for_longer_than_a_lease_fails(pg15, tmp_path):
    child = command(pg15, tmp_path)
    child.send_signal(signal.SIGSTOP)
    pg15.wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'")
    child.send_signal(signal.SIGCONT)
    _, said = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 5, said
    assert sentence("no-generator-left", lost="")[:-1].encode() in said
    [trial] = Store.open(tmp_path / "results.db").trials()
    assert trial.state == "failed"


@pytest.mark.parametrize("tried", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_after_a_loss_the_next_load_has_all_its_generators_again(tried):
    plan, said = GeneratorsPlan(2), list[str]()
    with contextlib.closing(Clusters()) as clusters:
        first = clusters.workers(plan, said.append)
        assert clusters.workers(plan, said.append) is first
        gone = first.workers[0]
        os.kill(gone.host.pid, signal.SIGKILL)
        if tried:
            with raises(RunError, "generator-left"):
                first.agent(gone, first.submit(gone, LoadOrder(PLAN, (), {})))
        else:
            until(lambda: not first.are_there(), "the scheduler noticed")
        second = clusters.workers(plan, said.append)
        assert len(second.workers) == 2
        assert not {each.address for each in second.workers} & {gone.address}
    assert said.count(message("generators-restart")) == 1


def test_a_stranger_without_the_key_is_refused(two):
    from distributed import Client, Security

    scheduler = two.client.scheduler
    assert scheduler is not None
    address = str(scheduler.address)
    assert address.startswith("tls://127.0.0.1:")
    for where in (address, *(worker.address for worker in two.workers)):
        with pytest.raises((OSError, TimeoutError)):
            Client(where, security=Security.temporary(), timeout=3)
        with pytest.raises((OSError, TimeoutError)):
            Client(where.replace("tls://", "tcp://"), timeout=3)


@contextlib.contextmanager
def encrypted(two: Workers, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of the workers' scheduler, and what names its key and certificate."""
    security, scheduler = two.client.security, two.client.scheduler
    assert security is not None
    assert scheduler is not None
    (folder / "cert.pem").write_text(security.tls_ca_file)
    (folder / "key.pem").write_text(security.tls_worker_key)
    yield str(scheduler.address), tls_variables(folder)


@contextlib.contextmanager
def plain(_two: Workers, _folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a cluster of this machine, without encryption."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address, {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [encrypted, pytest.param(plain, marks=pytest.mark.slow)])
def test_the_workers_of_a_cluster_that_exists_make_the_load_and_another_beside_it(
    two, pg15, tmp_path, kind
):
    script = tmp_path / "sleep.sql"
    script.write_text(SLEEP)
    with kind(two, tmp_path) as (address, variables):
        words = ["run", "-f", str(script), "--target", pg15.dsn("u_trust"), "--cluster", address]
        words += ["--rate", "50", "-c", "4", "-L", "30s", "-T", "3s", "--warmup", "0s", "--json"]
        words += ["--background", f"beside workload={script} rate=20/s clients=2"]
        words += ["--store", str(tmp_path / "results.db")]
        done = subprocess.run(
            [sys.executable, "-m", "pgpaces", *words],
            capture_output=True,
            env={**os.environ, **variables},
            timeout=3 * DEADLINE_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer = value_of(done.stdout)
    assert answer["counts"]["on_time"] == answer["counts"]["due"] > 0
    assert answer["background"][0]["counts"]["on_time"] > 0
    findings = answer["validity"]["findings"]
    shares = [each["about"] for each in findings if each["name"] == "generator-share"]
    assert len(set(shares)) == 4
    assert sum(about.endswith(" (beside)") for about in shares) == 2


def test_every_port_of_a_cluster_needs_its_key(two, others):
    ports = ports_of(os.getpid(), *(worker.host.pid for worker in two.workers)) - others
    assert len(ports) >= 3
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in plain.recv(100), port


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told", "values"),
    [
        ("pgpaces.load.cluster.agent._build", "0000", {"own_build": "0000"}),
        ("importlib.metadata.version", "0.0.9", {"own_version": "0.0.9"}),
        ("platform.python_version_tuple", ("3", "99", "0"), {"own": "3.99"}),
    ],
)
def test_another_program_on_a_generator_is_refused_by_name(two, monkeypatch, name, told, values):
    two.check_users()
    monkeypatch.setattr(name, lambda *_: told)
    kind = "generator-of-other-python" if "python" in name else "generator-of-other-version"
    with raises(RunError, kind, generator=two.workers[0].name, **values):
        two.check_users() if "python" in name else two._check()
