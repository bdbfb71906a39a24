"""Causes of lateness, really made: a load on the embedded server, and what is done to it meanwhile.

Each is a function of a place to work in that runs one trial and gives it back. Rates, scales,
strengths and moments follow from the seed of the place and the name of the cause, so that a trial
can be done again, and others can be tried. A machine that lacks what a cause needs leaves its test
out.
"""

from __future__ import annotations

import contextlib
import os
import random
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
from tests.needs import lacking

import pgpaces
from pgpaces.api import Result
from pgpaces.core.record import Interval
from pgpaces.spec.result import Trial
from pgpaces.trial.listener import Listener

SECONDS = 12


@dataclass
class Place:
    """Where trials are kept, what they are drawn from, and how long a trial is."""

    folder: Path
    seed: int = 0
    seconds: int = SECONDS

    def draw(self, key: str) -> random.Random:
        """What the parameters of a cause are drawn from."""
        return random.Random(f"{key} {self.seed}")

    def span(self, draw: random.Random) -> tuple[int, float]:
        """When a cause that comes and goes begins, in whole seconds, and how long it lasts."""
        begin = draw.randint(2, max(2, self.seconds - 6))
        return begin, draw.uniform(2.5, min(5.0, self.seconds - begin - 2.0))

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
            thread.join(60)
        assert not self.failures, self.failures

    def postmaster(self) -> int:
        assert self.trial is not None
        data = Path(self.trial.server.data_directory)
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
        to = self.trial.server.target
        return psycopg.connect(
            host=to["host"], port=to["port"], user=to["user"],
            dbname=self.trial.workload.prepared.dbname, application_name="nightly job",
        )  # fmt: skip


Act = Callable[[Acting], None]


def _run(place: Place, name: str | None, acts: Mapping[int, Act], **more: object) -> Result:
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
        lacking("a cgroup that we may limit")
    try:
        yield made
    finally:
        _end(made)


def _end(path: Path) -> None:
    deadline = time.monotonic() + 60
    while path.exists():
        for pid in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (path.parent / "cgroup.procs").write_text(pid)
        try:
            path.rmdir()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def take(path: Path, pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            (path / "cgroup.procs").write_text(str(pid))


def cpu_limit(path: Path, percent: float | None) -> None:
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
        lacking("a disk that the kernel can limit")
    whole = device.resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    return (whole / "dev").read_text().strip()


def _for_a_while(
    place: Place, draw: random.Random, make: Act, undo: Act, always: float = 0.4
) -> Mapping[int, Act]:
    """Made at a moment of the trial and undone some seconds later, or made before its start."""
    begin, lasting = place.span(draw)
    within = draw.random()
    if draw.random() < always:
        return {0: make}

    def made(acting: Acting) -> None:
        time.sleep(within)
        make(acting)
        time.sleep(lasting)
        undo(acting)

    return {begin: made}


def lock(place: Place) -> Result:
    """A session changes rows, or locks a table, and does not commit."""
    draw = place.draw("lock")
    statement = draw.choice(
        (
            "UPDATE pgbench_branches SET bbalance = bbalance",
            "UPDATE pgbench_tellers SET tbalance = tbalance",
            "LOCK TABLE pgbench_history IN EXCLUSIVE MODE",
        )
    )
    begin, lasting = place.span(draw)

    def hold(acting: Acting) -> None:
        with acting.connect() as session:
            time.sleep(draw.random())
            session.execute(statement)  # type: ignore[arg-type]
            time.sleep(lasting)

    return _run(
        place, "tpcb-like", {begin: hold}, scale=draw.choice((1, 2, 5)),
        rate=draw.choice((20, 45, 90)), clients=draw.choice((4, 8, 16)),
        latency_limit=draw.choice(("40ms", "100ms", "250ms")),
    )  # fmt: skip


def contention(place: Place) -> Result:
    """Every transaction changes the same row, and does something more before it commits."""
    draw = place.draw("contention")
    hold_ms = draw.choice((5, 10, 20, 40))
    more = draw.choice((f"\\sleep {hold_ms} ms", f"SELECT pg_sleep({hold_ms / 1e3});"))
    script = place.folder / f"hot-{place.seed}.sql"
    script.write_text(
        "BEGIN;\nUPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;\n"
        f"{more}\nCOMMIT;\n"
    )
    rate = round(draw.uniform(0.85, 1.5) * 1e3 / (hold_ms + 3))
    return _run(
        place, "tpcb-like", {}, files=[script], scale=1, rate=rate,
        clients=draw.choice((8, 12, 20)), latency_limit=f"{draw.choice((2, 3, 4)) * hold_ms}ms",
    )  # fmt: skip


def quota(place: Place) -> Result:
    """The server may use few per cent of a CPU: for a while, or from before the start."""
    draw = place.draw("quota")
    rate = draw.choice((70, 120, 220))
    percent = max(1.0, rate * draw.uniform(0.008, 0.016))
    with group("cpu") as path:

        def limit(acting: Acting) -> None:
            cpu_limit(path, percent)
            take(path, acting.processes())

        def lift(acting: Acting) -> None:
            cpu_limit(path, None)

        return _run(
            place, "tpcb-like", _for_a_while(place, draw, limit, lift), rate=rate,
            scale=draw.choice((1, 2, 5)), clients=draw.choice((4, 8, 16)),
            latency_limit=draw.choice(("50ms", "100ms", "200ms")),
        )  # fmt: skip


def freeze(place: Place) -> Result:
    """Every process of the server is stopped, and goes on a second or two later."""
    draw = place.draw("freeze")
    stopped: list[int] = []

    def stop(acting: Acting) -> None:
        time.sleep(draw.random())
        stopped.extend(acting.processes())
        try:
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(draw.uniform(0.8, 3.0))
        finally:
            for pid in reversed(stopped):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    name, begin = draw.choice(("select-only", "tpcb-like")), draw.randint(1, place.seconds - 5)
    return _run(
        place, name, {begin: stop}, scale=draw.choice((1, 2, 5)), rate=draw.choice((30, 80, 150)),
        clients=draw.choice((2, 4, 12)), latency_limit=draw.choice(("30ms", "60ms", "150ms")),
    )  # fmt: skip


def _slow_disk(path: Path, operations: int) -> Act:
    def slow(acting: Acting) -> None:
        assert acting.trial is not None
        device = _disk_of(Path(acting.trial.server.data_directory))
        _io_limit(path, device, operations)
        take(path, acting.processes())

    return slow


def disk(place: Place) -> Result:
    """The server's disk does few operations a second: for a while, or from before the start."""
    draw = place.draw("disk")
    rate = draw.choice((30, 60, 90))
    operations = round(rate / draw.uniform(1.5, 4.0))
    with group("blkio") as path:

        def lift(acting: Acting) -> None:
            take(path.parent, acting.processes())

        return _run(
            place, "tpcb-like",
            _for_a_while(place, draw, _slow_disk(path, operations), lift), rate=rate,
            scale=draw.choice((2, 5, 10)), clients=draw.choice((4, 8, 16)),
            latency_limit=draw.choice(("30ms", "50ms", "80ms")),
        )  # fmt: skip


def checkpoint(place: Place) -> Result:
    """A checkpoint follows the other, on a disk that is no fast one: for a while, or on."""
    draw = place.draw("checkpoint")
    rate, every = draw.choice((40, 70, 100)), draw.uniform(0.1, 0.4)
    # Enough for the load, which takes about three a transaction, and not for checkpoints as well.
    operations = rate * draw.choice((5, 7, 9))
    begin, lasting = place.span(draw)
    if draw.random() < 0.4:
        begin, lasting = 1, place.seconds - 3.0
    with group("blkio") as path:

        def storm(acting: Acting) -> None:
            with acting.connect() as session:
                session.autocommit = True
                deadline = time.monotonic() + lasting
                while time.monotonic() < deadline:
                    session.execute("CHECKPOINT")
                    time.sleep(every)

        return _run(
            place, "tpcb-like", {0: _slow_disk(path, operations), begin: storm},
            scale=draw.choice((5, 10)), rate=rate, clients=draw.choice((4, 8, 16)),
            latency_limit=draw.choice(("30ms", "50ms", "80ms")),
        )  # fmt: skip


def index(place: Place) -> Result:
    """The index that the load needs is dropped: in the middle, or before the start."""
    draw = place.draw("plan")
    scale = draw.choice((2, 5, 10))

    def drop(acting: Acting) -> None:
        time.sleep(draw.random())
        with acting.connect() as session:
            session.execute("ALTER TABLE pgbench_accounts DROP CONSTRAINT pgbench_accounts_pkey")

    at = 0 if draw.random() < 0.3 else draw.randint(2, place.seconds - 4)
    # Two scans of 7 ms a scale on one CPU: from some of a CPU to more than there are.
    rate = round(draw.uniform(0.3, 3.0) / (0.014 * scale))
    return _run(
        place, "tpcb-like", {at: drop}, scale=scale, rate=max(4, rate),
        clients=draw.choice((4, 8, 16)), latency_limit=f"{draw.choice((4, 6, 10)) * scale}ms",
    )  # fmt: skip


def connections(place: Place) -> Result:
    """Fewer clients than a load needs, or just enough, so that transactions queue for them."""
    draw = place.draw("connections")
    clients, service_ms = draw.choice((1, 2, 3, 5)), draw.choice((10, 20, 30, 45))
    script = place.folder / f"sleep-{place.seed}.sql"
    script.write_text(f"SELECT pg_sleep({service_ms / 1e3});\n")
    rate = round(draw.uniform(0.92, 1.4) * clients * 1e3 / (service_ms + 1))
    limit = f"{draw.uniform(1.6, 4.0) * service_ms:.0f}ms"
    return _run(place, None, {}, files=[script], rate=rate, clients=clients, latency_limit=limit)


def network(place: Place) -> Result:
    """Every packet takes some milliseconds more, each way: all the time, or for a while."""
    from pgpaces.load import engine
    from pgpaces.server import binaries, managed_server
    from pgpaces.server.folder import Transport

    draw = place.draw("network")
    delay_s = draw.choice((0.005, 0.012, 0.03))
    # TPC-B's seven statements go there and back one after the other.
    name, trips = draw.choice((("tpcb-like", 7), ("select-only", 1)))
    limit_s = draw.uniform(0.5, 0.8) * 2 * delay_s * trips
    spec = managed_server.ServerSpec(binaries.find(), name="for-why", settings={}, tcp=True)
    with managed_server.start(spec) as server:
        to = dict(engine.resolve(server.dsn(transport=Transport.TCP)).keywords)
        with Proxy("127.0.0.1", int(to["port"])) as proxy:

            def slow(acting: Acting) -> None:
                proxy.delay(delay_s)

            def fast(acting: Acting) -> None:
                proxy.delay(0)

            way = f"host=127.0.0.1 port={proxy.port} user={to['user']} dbname=postgres"
            return _run(
                place, name, _for_a_while(place, draw, slow, fast), scale=draw.choice((1, 2)),
                rate=draw.choice((10, 25, 40)), clients=32, latency_limit=f"{limit_s * 1e3:.0f}ms",
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
        lacking("two CPUs")
    draw = place.draw("generator")
    hogs: list[subprocess.Popen[bytes]] = []
    own = os.sched_getaffinity(0)
    first, last = min(own), max(own)

    def start(acting: Acting) -> None:
        for pid in acting.processes():
            os.sched_setaffinity(pid, {first})
        for _ in range(draw.choice((5, 8, 12))):
            hogs.append(subprocess.Popen([sys.executable, "-c", _HOG]))
            os.sched_setaffinity(hogs[-1].pid, {last})
        _pin_us({last})

    def end(acting: Acting) -> None:
        for hog in hogs:
            hog.kill()
            hog.wait()

    try:
        return _run(
            place, "select-only", _for_a_while(place, draw, start, end), scale=draw.choice((1, 5)),
            rate=draw.choice((150, 400, 900)), clients=draw.choice((4, 8, 16)),
            latency_limit=draw.choice(("4ms", "6ms", "10ms")),
        )  # fmt: skip
    finally:
        end(Acting({}))
        _pin_us(own)


def clean(place: Place) -> Result:
    """Nothing is done. Some hold; others miss because their limit is close to what they need."""
    draw = place.draw("clean")
    script = place.folder / f"own-{place.seed}.sql"
    script.write_text(
        "\\set us random_exponential(1, 100000, 5)\nSELECT pg_sleep(:us / 1000000.0);\n"
    )
    rate, scale = draw.choice((60, 120, 250)), draw.choice((1, 5, 10))
    kinds: list[Callable[[], Result]] = [
        lambda: _run(
            place, "select-only", {}, scale=scale, rate=rate, clients=4, latency_limit="100ms"
        ),
        lambda: _run(
            place, None, {}, files=[script], rate=rate / 2, clients=24, latency_limit="50ms"
        ),
        lambda: _run(
            place, "tpcb-like", {}, scale=scale, rate=rate / 2, clients=8, latency_limit="3ms"
        ),
        lambda: _run(
            place, "select-only", {}, scale=scale, rate=rate, clients=8, latency_limit="400us"
        ),
        lambda: _run(place, "tpcb-like", {}, scale=10, clients=2, latency_limit="2ms"),
    ]
    return kinds[place.seed % len(kinds)]()


# What each is called by the answer.
CAUSES: Mapping[str, Callable[[Place], Result]] = {
    "lock": lock,
    "contention": contention,
    "quota": quota,
    "freeze": freeze,
    "disk": disk,
    "checkpoint": checkpoint,
    "plan": index,
    "connections": connections,
    "network": network,
    "generator": generator,
}
