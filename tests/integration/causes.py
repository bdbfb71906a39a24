"""Causes of lateness, really made: a load on the embedded server, and what is done to it meanwhile.

Each is a function of a place to work in that runs one trial and gives it back. `skip`, an exception
with a reason, says what a machine would need for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.faults.network import Proxy

import pgpaces
from pgpaces.api import Result
from pgpaces.experiment import Listener
from pgpaces.result import Interval, Trial

SECONDS = 12

# Seconds of a trial in which a cause is there, if it comes and goes.
FROM, UNTIL = 4, 8


class NotHereError(Exception):
    """A cause that cannot be made on this machine: what it would need."""


@dataclass
class Place:
    """Where trials are kept, which repeat it is, and how long a trial is."""

    folder: Path
    repeat: int = 0
    seconds: int = SECONDS

    @property
    def store(self) -> Path:
        """Of results."""
        return self.folder / "r.db"


@dataclass
class Acting(Listener):
    """Does things to the server at certain seconds, in a thread; -1 is the warm-up."""

    acts: Mapping[int, Callable[[Acting], None]]
    trial: Trial | None = None
    failures: list[BaseException] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def started(self, trial: Trial, connect_ns: int) -> None:
        self.trial = trial

    def interval(self, interval: Interval) -> None:
        # An interval is told of when it is over.
        if (act := self.acts.get(interval.second + 1)) is not None:
            thread = threading.Thread(target=self._do, args=(act,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _do(self, act: Callable[[Acting], None]) -> None:
        try:
            act(self)
        except BaseException as error:
            self.failures.append(error)

    def finish(self) -> None:
        for thread in self._threads:
            thread.join(30)
        assert not self.failures, self.failures

    def postmaster(self) -> int:
        assert self.trial is not None
        data = Path(self.trial.server["data_directory"])
        return int((data / "postmaster.pid").read_text().split()[0])

    def processes(self) -> list[int]:
        """The server's."""
        postmaster = str(self.postmaster())
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if postmaster in (folder.name, parent):
                    found.append(int(folder.name))
        return found

    def connect(self) -> psycopg.Connection:
        """A session of somebody else in the trial's database."""
        assert self.trial is not None
        to = self.trial.server["target"]
        return psycopg.connect(
            host=to["host"], port=to["port"], user=to["user"],
            dbname=self.trial.workload["prepared"]["dbname"], application_name="nightly job",
        )  # fmt: skip


def _run(
    place: Place, name: str, acts: Mapping[int, Callable[[Acting], None]], **more: object
) -> Result:
    acting = Acting(acts)
    given = {
        "duration": place.seconds,
        "warmup": 1,
        "store": place.store,
        "listener": acting,
        **more,
    }
    try:
        return pgpaces.run(name, **given)  # type: ignore[arg-type]
    finally:
        acting.finish()


# --- groups of processes ----------------------------------------------------------------------


@contextlib.contextmanager
def group(controller: str) -> Iterator[Path]:
    """A group of processes of version 1 or 2 with this controller, which takes them back."""
    made = None
    for folder in (Path("/sys/fs/cgroup") / controller, Path("/sys/fs/cgroup")):
        path = folder / f"pgpaces-why-{os.getpid()}"
        limits = {"cpu": ("cpu.cfs_quota_us", "cpu.max"),
                  "blkio": ("blkio.throttle.write_iops_device", "io.max")}[controller]  # fmt: skip
        with contextlib.suppress(OSError):
            path.mkdir()
            if any((path / limit).exists() for limit in limits):
                made = path
                break
            path.rmdir()
    if made is None:
        raise NotHereError(
            f"needs a cgroup with the {controller} controller that we may limit (root)"
        )
    try:
        yield made
    finally:
        _end(made)


def _end(path: Path) -> None:
    deadline = time.monotonic() + 30
    while path.exists():
        for pid in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (path.parent / "cgroup.procs").write_text(pid)
        try:
            path.rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _take(path: Path, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            (path / "cgroup.procs").write_text(str(pid))


def _cpu_limit(path: Path, percent: float | None) -> None:
    period_us = 100_000
    quota = None if percent is None else max(1000, round(period_us * percent / 100))
    if (old := path / "cpu.cfs_quota_us").exists():
        old.write_text(str(-1 if quota is None else quota))
    else:
        (path / "cpu.max").write_text(f"{'max' if quota is None else quota} {period_us}")


def _io_limit(path: Path, device: str, writes: int) -> None:
    if (old := path / "blkio.throttle.write_iops_device").exists():
        old.write_text(f"{device} {writes}")
        (path / "blkio.throttle.read_iops_device").write_text(f"{device} {writes}")
    else:
        (path / "io.max").write_text(f"{device} wiops={writes} riops={writes}")


def _disk_of(folder: Path) -> str:
    """MAJOR:MINOR of the whole disk under a folder."""
    number = folder.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not device.exists():
        raise NotHereError("needs data on a disk that the kernel can limit")
    whole = device.resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    return (whole / "dev").read_text().strip()


# --- causes -----------------------------------------------------------------------------------


def lock(place: Place) -> Result:
    """Somebody changes every branch and does not commit."""

    def hold(acting: Acting) -> None:
        with acting.connect() as session:
            session.execute("UPDATE pgbench_branches SET bbalance = bbalance")
            time.sleep(UNTIL - FROM)

    return _run(
        place, "tpcb-like", {FROM: hold}, scale=1, rate=60, clients=8, latency_limit="100ms"
    )


def quota(place: Place) -> Result:
    """The server may use few per cent of a CPU: for a while, or from before the start."""
    with group("cpu") as path:

        def limit(acting: Acting) -> None:
            _cpu_limit(path, 2)
            _take(path, acting.processes())

        def lift(acting: Acting) -> None:
            _cpu_limit(path, None)

        always = place.repeat % 2
        acts = {0: limit} if always else {FROM: limit, UNTIL: lift}
        return _run(place, "tpcb-like", acts, scale=1, rate=150, clients=8, latency_limit="100ms")


def freeze(place: Place) -> Result:
    """Every process of the server is stopped, and goes on 1.5 s later."""

    def stop(acting: Acting) -> None:
        pids = acting.processes()
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)
        finally:
            for pid in reversed(pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    return _run(
        place, "select-only", {FROM: stop}, scale=1, rate=100, clients=4, latency_limit="50ms"
    )


def disk(place: Place) -> Result:
    """The server's disk does few operations a second: for a while, or from before the start."""
    with group("blkio") as path:

        def limit(acting: Acting) -> None:
            assert acting.trial is not None
            device = _disk_of(Path(acting.trial.server["data_directory"]))
            _io_limit(path, device, 25)
            _take(path, acting.processes())

        def lift(acting: Acting) -> None:
            _take(path.parent, acting.processes())

        acts = {0: limit} if place.repeat % 2 else {FROM: limit, UNTIL: lift}
        return _run(
            place, "tpcb-like", acts, scale=5, rate=60, clients=8, latency_limit="50ms",
        )  # fmt: skip


def checkpoint(place: Place) -> Result:
    """A checkpoint follows the other, on a disk that is no fast one: for a while, or on."""
    with group("blkio") as path:

        def slow(acting: Acting) -> None:
            assert acting.trial is not None
            _io_limit(path, _disk_of(Path(acting.trial.server["data_directory"])), 400)
            _take(path, acting.processes())

        def storm(acting: Acting) -> None:
            with acting.connect() as session:
                session.autocommit = True
                deadline = time.monotonic() + (SECONDS - 3 if place.repeat % 2 else UNTIL - FROM)
                while time.monotonic() < deadline:
                    session.execute("CHECKPOINT")
                    time.sleep(0.2)

        acts = {0: slow, 1 if place.repeat % 2 else FROM: storm}
        return _run(place, "tpcb-like", acts, scale=10, rate=100, clients=8, latency_limit="50ms")


def index(place: Place) -> Result:
    """The index that the load needs is dropped: in the middle, or before the start."""

    def drop(acting: Acting) -> None:
        with acting.connect() as session:
            session.execute("ALTER TABLE pgbench_accounts DROP CONSTRAINT pgbench_accounts_pkey")

    at = 0 if place.repeat % 2 else FROM
    return _run(place, "tpcb-like", {at: drop}, scale=5, rate=15, clients=4, latency_limit="20ms")


def connections(place: Place) -> Result:
    """Two clients for what needs three; or just enough, so that they queue now and then."""
    script = place.folder / "sleep.sql"
    script.write_text("SELECT pg_sleep(0.02);\n")
    rate = 130 if place.repeat % 2 else 94
    return _run(place, None, {}, files=[script], rate=rate, clients=2, latency_limit="60ms")  # type: ignore[arg-type]


def network(place: Place) -> Result:
    """Every packet takes 15 ms more, each way: all the time, or for a while."""
    from pgpaces.generators import engine
    from pgpaces.servers import binaries, embedded
    from pgpaces.servers.access import Listen
    from pgpaces.servers.record import Transport

    spec = embedded.ServerSpec(binaries.find(), name="for-why", settings={}, listen=Listen())
    with embedded.start(spec) as server:
        to = dict(engine.resolve(server.dsn(transport=Transport.TCP)).keywords)
        with Proxy("127.0.0.1", int(to["port"])) as proxy:

            def slow(acting: Acting) -> None:
                proxy.delay(0.015)

            def fast(acting: Acting) -> None:
                proxy.delay(0)

            acts = {0: slow} if place.repeat % 2 else {FROM: slow, UNTIL: fast}
            way = f"host=127.0.0.1 port={proxy.port} user={to['user']} dbname=postgres"
            return _run(
                place, "tpcb-like", acts, scale=1, rate=20, clients=10, latency_limit="100ms",
                target=f"{way} passfile={to['passfile']} sslmode=disable",
            )  # fmt: skip


def _pin_us(cpus: set[int]) -> None:
    """All threads of this process to these CPUs."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cpus)


_HOG = "while True: pass"


def generator(place: Place) -> Result:
    """The generator shares a CPU with others that want all of it; the server has another one."""
    if (os.cpu_count() or 1) < 2:
        raise NotHereError("needs two CPUs")
    hogs: list[subprocess.Popen[bytes]] = []
    own = os.sched_getaffinity(0)
    first, last = min(own), max(own)

    def start(acting: Acting) -> None:
        for pid in acting.processes():
            os.sched_setaffinity(pid, {first})
        for _ in range(8):
            hogs.append(subprocess.Popen([sys.executable, "-c", _HOG]))
            os.sched_setaffinity(hogs[-1].pid, {last})
        _pin_us({last})

    def end(acting: Acting) -> None:
        for hog in hogs:
            hog.kill()
            hog.wait()

    acts = {0: start} if place.repeat % 2 else {FROM: start, UNTIL: end}
    try:
        return _run(place, "select-only", acts, scale=1, rate=400, clients=8, latency_limit="5ms")
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        _pin_us(own)


def clean(place: Place) -> Result:
    """Nothing is done. Some hold; others miss because their limit is close to what they need."""
    script = place.folder / "own.sql"
    script.write_text(
        "\\set us random_exponential(1, 100000, 5)\nSELECT pg_sleep(:us / 1000000.0);\n"
    )
    kinds: list[Callable[[], Result]] = [
        lambda: _run(place, "select-only", {}, scale=1, rate=200, clients=4, latency_limit="100ms"),
        lambda: _run(place, None, {}, files=[script], rate=60, clients=16, latency_limit="50ms"),  # type: ignore[arg-type]
        lambda: _run(place, "tpcb-like", {}, scale=5, rate=100, clients=8, latency_limit="2ms"),
        lambda: _run(place, "select-only", {}, scale=5, rate=300, clients=8, latency_limit="300us"),
        lambda: _run(place, "tpcb-like", {}, scale=10, clients=2, latency_limit="1500us"),
    ]
    return kinds[place.repeat % len(kinds)]()


# What each is called by the answer.
CAUSES: Mapping[str, Callable[[Place], Result]] = {
    "lock": lock,
    "quota": quota,
    "freeze": freeze,
    "disk": disk,
    "checkpoint": checkpoint,
    "plan": index,
    "connections": connections,
    "network": network,
    "generator": generator,
}
