"""The machine beside real runs: this one, by a command, with a quota on the server's CPUs."""

import math
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration import causes
from tests.servers import access_to

import pgpaces
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval
from pgpaces.monitor import host, linux, remote
from pgpaces.monitor.host import HostSample
from pgpaces.spec.result import Trial
from pgpaces.trial.listener import Listener

pytestmark = pytest.mark.postgres

SEEN = {"cpu_busy", "cpu_steal", "run_queue", "memory_available", "cgroup_throttled_share"}
MOUNTS, OF_CGROUPS = Path("/proc/self/mountinfo"), {"cgroup_throttled_share"}


def looks(source: host.HostSource, count: int) -> list[HostSample]:
    ended = threading.Event()
    found = []
    for look in source.observe(ended, time.monotonic()):
        found.append(look)
        if len(found) == count:
            ended.set()
    return found


def test_a_server_behind_a_tunnel_is_not_taken_for_this_machine(pg15, monkeypatch):
    def absent(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    monkeypatch.setattr(remote, "postgres_process", absent)
    words = {**access_to(pg15, "u_trust").keywords, "host": "127.0.0.1"}
    source = remote.NearbySource(words)
    assert looks(source, 1) == []
    assert source.notes == [finding("machine-unobserved")]
    words["host"] = str(pg15.folder)
    assert looks(remote.NearbySource(words), 1)


def test_a_server_of_this_machine_is_looked_at_directly(pg15):
    for way in ({}, {"host": "127.0.0.1"}):
        words = {**access_to(pg15, "u_trust").keywords, **way}
        assert {i.name for i in looks(remote.NearbySource(words), 1)[0].items} >= SEEN
    pg15.wait_until(
        "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pgpaces sensor')"
    )


def test_a_server_that_refuses_the_session_is_a_note(pg15):
    source = remote.NearbySource({**access_to(pg15).keywords, "dbname": "nowhere"})
    assert looks(source, 1) == []
    [note] = source.notes
    assert note.name == "monitor-unanswered"
    assert "nowhere" in note.values["error"]


def test_a_run_keeps_what_the_machine_did(pgpaces_home, tmp_path):
    run = pgpaces.run(
        "select-only", scale=1, clients=1, rate=100, duration=4, warmup=0,
        store=tmp_path / "r.db",
    )  # fmt: skip
    found = {s.name for s in run.trial.samples if s.source == "host"}
    grouped = any("cgroup" in mount.kind for mount in linux.mounts(MOUNTS.read_text()))
    assert found >= (SEEN if grouped else SEEN - OF_CGROUPS)
    [did] = [each for each in run.trial.findings if each.name == "machine-activity"]
    assert 0 <= did.values["cpu_busy_percent"] <= 100


def test_a_run_hears_of_another_machine_by_a_command(pg15, tmp_path):
    command = f"{shlex.quote(sys.executable)} -m pgpaces observe"
    run = pgpaces.run(
        "select-only", scale=1, clients=1, rate=100, duration=8, warmup=1,
        store=tmp_path / "r.db", target=pg15.tcp("postgres"), observe_command=command,
    )  # fmt: skip
    [seconds] = [set(s.seconds) for s in run.trial.samples if s.name == "cpu_busy"]
    assert len(seconds & set(range(8))) >= 2
    assert not [note for note in run.trial.notes if note.name.startswith("observe-command")]


def test_the_generators_machine_is_sampled_where_no_server_is_on_it(pg15, tmp_path):
    def sources(target: str) -> set[tuple[str, str]]:
        run = pgpaces.run(
            "select-only", scale=1, clients=1, rate=100, duration=4, warmup=0,
            store=tmp_path / "r.db", target=target,
        )  # fmt: skip
        return {(s.source, s.name) for s in run.trial.samples}

    here = pg15.tcp("postgres")
    assert "generator" not in {source for source, _ in sources(here)}
    # An address of this machine that does not look like one.
    elsewhere = sources(here.replace("127.0.0.1", "0.0.0.0"))
    assert {name for source, name in elsewhere if source == "generator"} == {
        "cpu_busy",
        "cpu_iowait",
        "cpu_steal",
    }


class Limiting(causes.Acting):
    """Takes the server into a group, and limits it as the seconds pass.

    limited_s: when it was limited last, by the clock of the trial.
    """

    def __init__(self, path: Path, limits: dict[int, float]) -> None:
        super().__init__({})
        self.path, self.limits = path, limits
        self.limited_s, self._origin_s = 0.0, math.inf

    def interval(self, interval: Interval) -> None:
        # An interval comes after its second is over: how late, depends on what else runs.
        self._origin_s = min(self._origin_s, time.monotonic() - (interval.second + 1))
        if (percent := self.limits.get(interval.second)) is not None:
            causes.cpu_limit(self.path, percent)
            causes.take(self.path, self.processes())
            self.limited_s = time.monotonic() - self._origin_s


@pytest.fixture
def quota():
    """A group whose share of the CPUs can be limited."""
    with causes.group("cpu") as path:
        yield path


@pytest.fixture
def run_with(pgpaces_home, tmp_path):
    def run(seconds: int, listener: Listener | None = None, **more: Any) -> Trial:
        return pgpaces.run(
            "select-only", scale=1, clients=2, duration=seconds, warmup=1,
            store=tmp_path / "r.db", listener=listener, **more,
        ).trial  # fmt: skip

    return run


# What a quota looks like is tested with numbers in tests/unit/test_throttle.py.
@pytest.mark.slow
def test_a_quota_in_the_middle_of_a_run_is_named(run_with, quota):
    limiting = Limiting(quota, {11: 1.0})
    # A rate that a busy machine keeps up too: as fast as it can, a load falls with any other work.
    trial = run_with(24, limiting, rate=1000, grace=1)
    found = {each.name: each.values for each in trial.findings if each.severity == "invalid"}
    assert found["cpu-quota-changed"]["at_s"] == pytest.approx(limiting.limited_s, abs=2), found
