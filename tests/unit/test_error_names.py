"""Errors that a rare moment of a server, a disk, or a machine causes: each has its name."""

import asyncio
import contextlib
import csv
import errno
import sqlite3
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace as Ns
from typing import Any

import pytest
from click.testing import CliRunner
from psycopg import OperationalError
from psycopg.errors import DiskFull, InsufficientPrivilege, ObjectInUse

import pgpaces
from pgpaces.analysis.compare import ComparisonGoal
from pgpaces.analysis.sequential import Pairing
from pgpaces.cli.main import cli
from pgpaces.core.errors import PgpacesError, PrepareError, ServerError
from pgpaces.database.access import Access
from pgpaces.spec.design import Design
from pgpaces.spec.load import GeneratorsPlan, Load, LogPlan
from pgpaces.spec.target import TargetPlan
from pgpaces.trial.trial import Stops
from tests.errors import sentence
from tests.unit.calling import refused
from tests.unit.stored import begun, opened


class Answer:
    """A function, a host, or a session that answers everything with this, or fails with it."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __call__(self, *_: Any, **__: Any) -> Any:
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value

    async def run(self, *_: Any, **__: Any) -> Any:
        return self()

    @contextlib.asynccontextmanager
    async def start_sftp_client(self) -> Any:
        yield Ns(put=self.run)

    def execute(self, *_: Any) -> Any:
        return Ns(fetchone=self)


@pytest.fixture(autouse=True)
def _field_size_limit():
    before = csv.field_size_limit()
    yield
    csv.field_size_limit(before)


def awaited(coroutine: Any) -> Any:
    """Its result. In another thread, as tests in a browser leave a loop running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def call(path: str, *words: Any, parts: dict[str, Any] | None = None, **more: Any) -> Any:
    """What is called in pgpaces with other parts; a word that begins with `./` is a new path."""
    room, _, name = path.partition(":")

    def called(folder: Path, patch: pytest.MonkeyPatch) -> None:
        for part, value in (parts or {}).items():
            patch.setattr(
                part.removeprefix("/") if part[0] == "/" else f"pgpaces.{room}.{part}", value
            )
        here = [folder / word[2:] if str(word).startswith("./") else word for word in words]
        found = resolve_name(f"pgpaces.{room}:{name}")(*here, **more)
        if hasattr(found, "__enter__"):
            found.__enter__()
        elif isinstance(found, Iterator):
            list(found)
        elif asyncio.iscoroutine(found):
            awaited(found)
        elif isinstance(found, BaseException):
            raise found

    return called


def happened(context: Any, error: BaseException) -> Any:
    """An error within a context of ours."""

    def happen(folder: Path, _: Any) -> None:
        with context(folder):
            raise error

    return happen


def preparing(error: BaseException) -> Any:
    return happened(
        lambda _: resolve_name("pgpaces.database.access:preparation_errors")("x"), error
    )


def using(code: int) -> Any:
    error = sqlite3.OperationalError()
    error.sqlite_errorcode = code
    return happened(lambda folder: opened(folder)._backend.store_errors(), error)


def archived(path: str, *words: str) -> Any:
    """What is called with an archive of one empty file, `x`."""

    def called(folder: Path, _: Any) -> None:
        with zipfile.ZipFile(folder / "a", "w") as archive:
            archive.writestr("x", "")
        resolve_name(f"pgpaces.{path}")(folder / "a", *words)

    return called


def written(path: str, text: str, then: Any) -> Any:
    """Something with a file or, without a text, a directory."""

    def write(folder: Path, patch: pytest.MonkeyPatch) -> None:
        if text:
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
        else:
            (folder / path).mkdir()
        then(folder, patch)

    return write


def measured(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pgpaces.disk.measure.prepare", print)
    patch.setattr("pgpaces.disk.measure.measure", Answer(Ns(measured=())))
    words = ["disk", str(folder), "--yes", "--store", f"{folder}/x"]
    raise refused(CliRunner().invoke(cli, words))


def compared(folder: Path, _: Any) -> None:
    begun(opened(folder), Design({}), "e", goal=Pairing({}, {}, ComparisonGoal("throughput")))
    pgpaces.compare("a=1", "a=2", experiment="e", store=folder / "results.db")


def followed(*_: Any) -> None:
    load = map(Answer(ValueError()), [0])
    broken = Ns(_load=load, _lock=threading.Lock(), _ended=threading.Event(), _machine=None)
    resolve_name("pgpaces.load.cluster.agent:Agent")._follow(broken)
    raise broken._error


def stopped(*_: Any) -> None:
    stops = Stops()
    stops.ask()
    stops.check()


def on_host(value: Any) -> Any:
    """A generator on a host that answers so."""

    def begin(folder: Path, patch: pytest.MonkeyPatch) -> None:
        host = Answer(value)
        said = Ns(run=host.run, start_sftp_client=host.start_sftp_client,
                  create_process=Answer(Ns(stderr=Ns(readline=Answer("").run))).run,
                  get_extra_info=Answer(("127.0.0.1", 1)))  # fmt: skip
        failing = isinstance(value, BaseException)
        patch.setattr("asyncssh.connect", host.run if failing else Answer(said).run)
        process = resolve_name("pgpaces.load.cluster.launch:SshProcess")
        awaited(process("tls://127.0.0.1:1", "pi", folder).start())

    return begin


DEAD = {"host": "127.0.0.1", "port": "1", "dbname": "x"}
ADMIN = Access(DEAD, Path("psql"))
AWAY, LOST = ServerError("server-away"), OperationalError("lost")
CHANGE = Ns(name="jit", dbname="", before="on", after=None)
JOURNAL = Ns(changes=[CHANGE], current=Answer("off"), admin=Answer("x"), set=print, record=print,
             change=print, reload=print, ensure_open=Answer(), awaits_restart=Answer(False),
             access=ADMIN, close=print, _admin=None, terms=Ns(restart=Answer(AWAY)),
             _open=Answer(LOST))  # fmt: skip
GONE = {"matching": Answer([1]), "connect": contextlib.nullcontext, "note_of": Answer(Path("/"))}
OTHERS = Ns(owned="x", droppable=False, owner="a", role="b")
JIT = Ns(name="jit", value="", context="postmaster")
COPY = {"users": Answer(0), "_check_room": Answer()}
RUNNING = Ns(name="a", data_dir=Path("/a"), settings={}, tcp_host=None, certificate=None)
RECORD = Ns(pid=2**30, stays=True, name="a", data_dir=Path("/a"))
BUSY = Ns(lock=Answer(), read=Answer(RECORD), running=Answer(), path=Path("/tmp"))
PACKAGE = Ns(server_name="x", major=18, bin=Path(), version="18", program=Path)
TYPO = {"managed_server.running": list, "managed_server.start": Answer(AWAY),
        "packages.locate": Answer(PACKAGE),
        "binaries.misspelled_settings": Answer([("a", "b")])}  # fmt: skip
QUIET = {"say": print}
CHILD = Ns(child=Ns(wait=str, returncode=0), kill=str, tail=Ns(text=str, stuck=Answer()))
BATCH = {"tuples": [], "types": {}}
CASES: dict[str, Any] = {
    "admin-session-failed": call("database.access:connect", ADMIN),
    "cannot-create-database": preparing(InsufficientPrivilege()),
    "no-space-for-database": preparing(DiskFull()),
    "database-in-use": preparing(ObjectInUse()),
    "cannot-prepare-database": preparing(LOST),
    **{name: call("database.copies:copy_source", ADMIN, Answer((8,)), "shop", dbname="x",
                  **QUIET, parts=COPY | {"copy": Answer(error)})
       for name, error in (("copy-fills-disk", DiskFull()),
                           ("source-not-permitted", InsufficientPrivilege()))},
    "database-of-other-role": call(
        "database.data:_ensure", ADMIN, Answer(), Ns(dbname="x", spec=Ns(from_database=None)),
        **QUIET, parts={"ownership.find": Answer(OTHERS)}),
    "configuration-not-reloaded": call(
        "database.changes:Journal.reload", Ns(admin=Answer("x")), parts={"_LOADED_S": -1}),
    "cannot-change-settings": call("database.changes:Journal.ensure_open", JOURNAL),
    "settings-left-changed": call(
        "database.changes:Journal.put_back_leftovers", JOURNAL, parts=GONE),
    "settings-not-taken-back": call("database.changes:Journal.put_back", JOURNAL),
    "server-stopped-by-settings": call(
        "database.settings:_change", JOURNAL, "x", [JIT], how={"jit": "restart"}),
    "statements-unreadable": call("capture.reader:reading", DEAD),
    "guard-cannot-query": lambda *_: resolve_name("pgpaces.monitor.guard:_Session")(
        DEAD, "x", print).look(),
    "cannot-set-password": call("server.authentication:set_password",
                                Ns(password_file=None, superuser="x", keywords=Answer(DEAD))),
    "cannot-read-data": written("PG_VERSION", "", call("server.folder:data_series", "./")),
    "package-lacks": archived("core.fetch:member", "y", ""),
    "hash-differs": archived("core.fetch:member", "x", ""),
    "nothing-downloaded": call("core.fetch:only", "./", "*.whl"),
    "openssl-missing": call("server.authentication:make_certificate", "./", "h", None,
                            parts={"run": Answer(OSError())}),
    "no-pg-basebackup": call("server.managed_server:_copy", PACKAGE, Ns(name="a", dsn=str), RECORD,
                             os_user=None, terms=Ns(**QUIET), parts={"installations": list}),
    "process-does-not-end": call("server.managed_server:_end", BUSY, RECORD),
    "server-held": call("server.managed_server:_claim", BUSY, RECORD, print,
                        parts={"ENDING_S": -1}),
    "starting-server-silent": call(
        "server.postmaster:Postmaster.wait",
        Ns(_supervisor=Ns(read=lambda _: None), _log=Path("/"), _log_text=str),
        bool, "x", print, parts={"SILENCE_S_MAX": -1}),
    "pooler-in-use": call(
        "server.pooler:pool", Ns(pooler="pgpool"), 1, [RECORD], **QUIET,
        parts=dict.fromkeys(("find", "os_user_for", "check_entry"), Answer())
        | {"server_folder": Answer(BUSY)}),
    **{name: call("trial.target_server:_check_running", RUNNING, TargetPlan(**target))
       for name, target in (("server-has-other-data", {"data_dir": "/b"}),
                            ("server-lacks-settings", {"server_settings": (("jit", "on"),)}),
                            ("server-without-tls", {"tls": True}),
                            ("server-without-plain-tcp", {"tls": False}))},
    "misspelled-settings": call(
        "trial.target_server:_managed_server", TargetPlan(), print, "", parts=TYPO),
    "server-not-back": lambda folder, patch: (
        patch.setattr("pgpaces.trial.target_server._BACK_S", -1),
        resolve_name("pgpaces.trial.target_server:restarting")("true", ADMIN)()),
    "generator-not-started": call("load.cluster.workers:Workers.submit",
                                  Ns(client=Ns(submit=Answer(OSError()))), RECORD, Ns(address="")),
    "generator-clock-unread": call("load.cluster.load:Remote.clock",
                                   Ns(_workers=Ns(wait=Answer(OSError())), name="a")),
    "generators-not-started": call("load.cluster.workers:_started", GeneratorsPlan(count=2),
                                   parts={"_client": Answer(OSError())}),
    "scheduler-silent": call("load.cluster.workers:_started", GeneratorsPlan(cluster="tcp://x"),
                             parts={"_CONNECT_S": 0.1}),
    **{name: call("load.cluster.workers:Workers", Ns(sync=Answer(found)), None, GeneratorsPlan())
       for name, found in (("too-few-workers", {}), ("workers-without-pgpaces", ImportError()))},
    "generator-failed": followed,
    "ssh-failed": on_host(OSError()),
    "host-without-pgpaces": on_host(Ns(stdout="")),
    "generator-ended-at-once": on_host(Ns(stdout="#!/usr/bin/python3")),
    "tasks-not-loaded": call("load.python_users.process:_users", Ns(users=None, functions=b"?")),
    "users-not-started": call("load.python_users.load:_started", Ns(counter=None),
                              parts={"/sys.executable": "/none"}),
    "users-silent": call("load.python_users.load:UsersLoad._lost", 0, CHILD, silent=True),
    "too-few-threads": call("load.python_users.virtual_users:Performers.set_up",
                            Ns(_threads=[], _users=[1], _life=None),
                            parts={"/threading.Thread": Answer(Ns(start=Answer(RuntimeError())))}),
    "log-of-several-generators": call("spec.load:TrialPlan", Load("closed"), log=LogPlan("x"),
                                      generators=GeneratorsPlan(count=2)),
    "stopped-before-load": stopped,
    "companion-not-started": call(
        "web.companion:Companion", None, Ns(), print,
        parts={"/sys.executable": "/bin/true", "_Configuration": Answer(0)}),
    "store-locked": using(sqlite3.SQLITE_BUSY),
    "store-disk-failed": using(sqlite3.SQLITE_IOERR),
    "differ-in-more": call("answers.calls:answer_of_comparison", 0,
                           Ns(other_differences=[1], factors=["a"]), anyway=False,
                           parts={"differing": Answer([])}),
    "run-as-pairs": compared,
    "cannot-draw-charts": call("show.draw:picture", 0, "svg", parts={"available": Answer(False)}),
    "no-chart": call("answers.answer:Answer.plot", Ns(figures=())),
    "unknown-keyword": lambda *_: pgpaces.run("reporting", clientz=1),
    "fio-failed": written("fio", "#!/bin/sh\necho no >&2; exit 1\n", lambda folder, patch: call(
        "disk.fio:run_fio", f"{folder}/fio", Ns(name="a", run=1), folder, tell=print,
        parts={"arguments": Answer([])})(folder, patch)),
    "no-job-completed": measured,
    "disk-needs-linux": lambda folder, patch: (
        patch.delattr("os.O_DIRECT"), call("disk.measure:check", folder, Ns(), 0)(folder, patch)),
    "no-direct-io": call("disk.measure:_check_direct", "./",
                         parts={"/os.open": Answer(OSError(errno.EINVAL, ""))}),
    "not-a-csvlog": written("x.csv", "ab\n", call("capture.logs:read", "./x.csv",
                                                  parts={"_FIELD_MAX": 1})),
    "log-matches-nothing": call("capture.make:_logged", Ns(logs=["/dev/null"]), ("d", "utf-8"), [],
                                **QUIET, parts={"logs.read": Answer([])}),
    "statement-parameter": call("capture.parser:_spots", b"x", [("ParamRef", {"location": 0})]),
    "statement-refused": call("capture.make:_accepted", Ns(refusal=len), 0, {}, **BATCH, parts={
        "script.write": Answer(Ns(text="SELECT 1\n;\n", probes=["x"])),
        "commands_in": Answer([Ns(is_sql=True)])}),
    "statement-unscriptable": call("capture.make:_accepted", 0, 0, {}, **BATCH, parts={
        "script.write": Answer(Ns(text="\\bad\n"))}),
    "cannot-copy-folder": call("spec.trust:_copied", "./none"),
    "data-file-not-fetched": call(
        "database.inputs:_fetched", RECORD, Ns(sha256="0", path="a", package="x", name="f"),
        print, parts={"fetch.has_pip": Answer(False)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_goes_wrong_has_its_name(name, tmp_path, monkeypatch):
    with pytest.raises(PgpacesError) as caught:
        CASES[name](tmp_path, monkeypatch)
    monkeypatch.undo()
    assert caught.value.name == name
    assert "{" not in f"{caught.value} {caught.value.hint}"
    if isinstance(caught.value, PrepareError) and "package" in caught.value.values:
        assert caught.value.values["why"] == sentence("pip-missing")
