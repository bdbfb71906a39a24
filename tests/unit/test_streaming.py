"""Waiting for standbys, with a clock and servers that are scripted."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgpaces.core.errors import PlanError, RunError, ServerError
from pgpaces.database import streaming
from pgpaces.database.access import Access
from pgpaces.server import folder, managed_server, managed_standbys
from pgpaces.server.binaries import Installation, Source
from tests.errors import raises

MIB = 2**20
PRIMARY = Access({"host": "primary"}, Path("psql"))


@dataclass
class World:
    """Where each server stands in the log, by host, and what time it is."""

    steps: dict[str, Iterator[int]]
    now: float = 0.0
    identities: dict[str, tuple[bool, int | None]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    checks: int = 0

    def position(self, access: Access) -> int:
        return next(self.steps[access.keywords["host"]])

    def identity(self, access: Access) -> tuple[bool, int | None]:
        return self.identities.get(access.keywords["host"], (True, 1))

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def check(self) -> None:
        self.checks += 1


@pytest.fixture
def world(monkeypatch):
    made = World({"primary": iter([100 * MIB])})
    monkeypatch.setattr(streaming, "_position", made.position)
    monkeypatch.setattr(streaming, "_identity", made.identity)
    monkeypatch.setattr(streaming, "time", made)
    made.monotonic = lambda: made.now  # type: ignore[attr-defined]
    return made


def standbys(*names: str) -> dict[str, Access]:
    return {name: Access({"host": name}, Path("psql")) for name in names}


def stuck(at: int) -> Iterator[int]:
    while True:
        yield at


def wait(world: World, *names: str, **more: Any) -> None:
    check = more.get("check", world.check)
    streaming.wait_for_standbys(PRIMARY, standbys(*names), world.said.append, check=check)


def test_every_standby_is_waited_for(world):
    world.steps |= {
        "standby1": iter([0, 50 * MIB, 100 * MIB]),
        "standby2": iter([99 * MIB, 100 * MIB]),
        "there": iter([100 * MIB]),
        "ahead": iter([101 * MIB]),
    }
    wait(world, "standby1", "standby2")
    assert (world.checks, bool(world.now)) == (3, True)
    world.steps["primary"], world.now, world.said = iter([100 * MIB]), 0.0, []
    wait(world, "there", "ahead")
    assert (world.now, world.said) == (0.0, [])


def test_a_slow_standby_is_waited_for_as_long_as_it_moves(world):
    step = MIB // 512  # fifteen minutes in all
    world.steps["standby1"] = iter([*range(0, 100 * MIB, step), 100 * MIB])
    wait(world, "standby1")
    assert world.now > 15 * 60
    assert world.said[0].startswith("waiting: standby1 lags the primary by 10")
    assert len(world.said) < world.now / 3


def test_a_standby_that_gets_nowhere_is_given_up_with_how_far_it_is_behind(world):
    world.steps["standby1"] = stuck(92 * MIB)
    with raises(ServerError, "standby-stuck", standby="standby1", behind_bytes=8 * MIB, wait_s=60):
        wait(world, "standby1")
    assert world.now == pytest.approx(60, abs=1)


@pytest.mark.parametrize("unknown", ["primary", "standby1"])
def test_a_server_that_does_not_tell_its_identity_is_taken_for_what_it_is_called(world, unknown):
    world.identities |= {"standby1": (True, 2), unknown: (unknown != "primary", None)}
    world.steps["standby1"] = iter([100 * MIB])
    wait(world, "standby1")
    assert world.now == 0.0


def test_whoever_does_not_wait_any_more_ends_it(world):
    def stop() -> None:
        raise RunError("stopped")

    world.steps["standby1"] = stuck(0)
    with pytest.raises(RunError):
        wait(world, "standby1", check=stop)
    assert world.now == 0.0


def test_a_primary_must_stream(monkeypatch):
    for level in ("replica", "logical"):
        managed_standbys.check_streaming({"wal_level": level, "jit": "off"}, 10)
    with raises(PlanError, "wal-level-too-low", wal_level="minimal"):
        managed_standbys.check_streaming({"wal_level": "minimal"}, 18)
    with raises(PlanError, "no-wal-senders"):
        managed_standbys.check_streaming({"max_wal_senders": "0"}, 18)
    with raises(PlanError, "standbys-need-10"):
        managed_standbys.check_streaming({}, 9)
    old = SimpleNamespace(bin=None, settings={"wal_level": "minimal"}, major=9)
    monkeypatch.setattr(managed_standbys.binaries, "inspect", lambda _: None)
    with managed_standbys.standbys(old, 0, None, say=print) as none:
        assert none == ()
    info = SimpleNamespace(server_version=100_000)
    monkeypatch.setattr(streaming, "common", lambda _: nullcontext(SimpleNamespace(info=info)))
    streaming.check_version(PRIMARY)
    info.server_version = 90_624
    with raises(PlanError, "standbys-need-10"):
        streaming.check_version(PRIMARY)


def test_settings_are_put_back_on_a_standby_when_another_one_is_gone(monkeypatch):
    left: list[str] = []
    gone: list[str] = []

    def alter(access: Access, name: str, value: str | None) -> None:
        host = access.keywords["host"]
        if host in gone:
            raise ServerError(f"{host} does not answer")
        if value is None:
            left.remove(host)
        else:
            left.append(host)

    monkeypatch.setattr(streaming, "_alter_system", alter)
    with streaming.on_standbys(standbys("standby1", "standby2"), {"work_mem": "8MB"}):
        gone.append("standby1")
    assert left == ["standby1"]


def test_what_a_kill_left_of_standbys_is_removed_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path / "home"))
    disk = tmp_path / "disk"

    def data(parent: Path, has: str) -> Path:
        found = parent / "data"
        found.mkdir(parents=True)
        (found / has).touch()
        return found

    servers = tmp_path / "home" / "servers"
    lost = data(servers / "pg18-standby1", "standby.signal")
    chosen = data(disk / "pgpaces-pg18-standby1", "backup_label")
    running = data(servers / "pg18-standby2", "standby.signal")
    named = data(servers / "pg18-standby-of-mine", "PG_VERSION")
    others = data(servers / "pg15-standby1", "standby.signal")
    lock = folder.ServerFolder(running.parent).lock()
    assert lock is not None
    managed_standbys.remove_lost("pg18", disk)
    os.close(lock)
    assert [path.exists() for path in (lost, chosen.parent, running, named, others)] == [
        False, False, True, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("taken", [False, True])
def test_a_standby_that_does_not_start_leaves_no_copy_unless_another_pgpaces_has_it(
    taken, tmp_path, monkeypatch
):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    place = folder.server_folder("pg18-standby1")
    data = place.path / "data"

    def start(spec: managed_server.ServerSpec, **_: Any) -> managed_server.Server:
        data.mkdir(parents=True)
        (data / "backup_label").touch()
        locks.append(place.lock() if taken else None)
        raise ServerError("it does not start")

    locks: list[int | None] = []
    monkeypatch.setattr(managed_server, "start", start)
    pg18 = Installation(Path("/pg/bin"), "18.6", 18, Source.EMBEDDED)
    spec = managed_server.ServerSpec(pg18, "pg18-standby1")
    with pytest.raises(ServerError), managed_standbys._standby(spec, print):
        pass
    for lock in filter(None, locks):
        os.close(lock)
    assert data.exists() == taken
