"""Managed servers: started on a private socket, listed, stopped. No crash leaves one running.

`start` returns a running server. One that does not stay ends with pgpaces, however that ends; one
that stays runs until `stop`. Its data directory persists, so prepared data is used again. Knows
nothing of what runs on the server; versions, profiles, TLS and standbys come as the values of a
ServerSpec.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import asdict, force_setattr, replace

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.home import home, make_folder
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.server import postmaster
from pgpaces.server.authentication import (
    TCP_HOST,
    TLS_SETTINGS,
    check_tls,
    choose_port,
    make_certificate,
    set_password,
    tls_settings,
    write_rules,
)
from pgpaces.server.binaries import Installation, installations
from pgpaces.server.folder import (
    CERTIFICATE,
    ServerFolder,
    ServerRecord,
    Transport,
    data_series,
    is_ready,
    make_data_home,
    make_socket_folder,
    postmaster_pid,
    server_folder,
    server_folders,
)
from pgpaces.server.os_user import OsUser, check_entry, os_user_for, reachable
from pgpaces.server.postmaster import Postmaster

CLAIM_S = 0.1  # interval of checks of the lock while another pgpaces has it
ENDING_S = 20.0  # for the server of a killed pgpaces to end
STARTING_S = 90.0  # for another pgpaces to start a server that stays
STEPS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 8.0), (signal.SIGKILL, 5.0))
RESERVED = ("unix_socket_directories", "listen_addresses", "port", "hba_file", "data_directory")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")


class ServerSpec(Struct, frozen=True):
    """Specification of a server. The default name is its version: pg15.

    tcp: it listens on 127.0.0.1 too, and not on its socket alone. tls: TCP requires TLS.
    standby_of: the managed server of which this is a standby, created again at every start; its
    data is removed with it. data_dir: a directory for the data, which gets a subdirectory.
    Settings go to the server's command line, so nothing of them remains after it stops.
    """

    installation: Installation
    name: str = ""
    data_dir: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    tcp: bool = False
    tls: bool = False
    standby_of: ServerRecord | None = None

    def __post_init__(self) -> None:
        if not self.name:
            force_setattr(self, "name", self.installation.server_name)
        if not _NAME.fullmatch(self.name):
            raise PlanError("bad-server-name", server=self.name)
        if self.tls and not self.tcp:
            raise PlanError("option-needs", option="tls", needed="tcp")
        for setting in self.settings:
            if not _SETTING.fullmatch(setting):
                raise PlanError("bad-setting-name", setting=setting)
            if setting.lower() in (*RESERVED, *TLS_SETTINGS):
                raise PlanError("reserved-setting", setting=setting)


class Server(ServerRecord, frozen=True, kw_only=True):
    """A running server. As a context manager it ends a server that does not stay.

    Keep it as long as you need the server: without `stays`, the server ends with this object.
    """

    folder: ServerFolder
    postmaster: Postmaster | None = None

    def stop(self) -> None:
        """End the server, also one that stays; no effect if it has ended already."""
        if self.postmaster is not None:
            self.postmaster.stop()
        _end(self.folder, self)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.stays:
            self.stop()


def start(spec: ServerSpec, *, stay: bool = False, on_progress: Say | None = None) -> Server:
    """A running server that accepts connections; one of that name that stays is used as it is.

    Raises ServerError: PostgreSQL does not start (with its message), another pgpaces has the
    server, or the running one differs from the specification.
    """
    say = on_progress or (lambda _: None)
    folder = server_folder(spec.name)
    try:
        make_folder(folder.path)
        claimed = _claim(folder, spec, say)
        if isinstance(claimed, ServerRecord):
            _check_same(claimed, folder, spec)
            return Server(**asdict(claimed), folder=folder)
        try:
            return _start(spec, folder, _Terms(claimed, stay, say))
        finally:
            os.close(claimed)
    except OSError as error:
        raise ServerError("home-unusable", path=folder.path, why=str(error)).at(
            spec.name
        ) from error


def running() -> list[Server]:
    """All running servers of this user, including servers that stay or belong to other runs."""
    records = ((folder, folder.running()) for folder in server_folders())
    return [Server(**asdict(record), folder=folder) for folder, record in records if record]


def stop(name: str) -> None:
    """End the server of that name; ServerError if none runs, or if another run uses it."""
    folder = server_folder(name)
    record = folder.live()
    if record is None:
        names = ", ".join(server.name for server in running())
        raise ServerError("server-not-running", server=name, running=names)
    if not record.stays and record.owner_pid != os.getpid() and _is_alive(record.owner_pid):
        raise ServerError("server-in-use", server=record.name, pid=record.owner_pid)
    _end(folder, record)


class _Terms(Struct, frozen=True):
    """The lock under which a server starts, whether it stays, and who hears of progress."""

    lock: int
    stay: bool
    say: Say


def _claim(folder: ServerFolder, spec: ServerSpec, say: Say) -> int | ServerRecord:
    """The folder's lock, or the record of the staying server that has it."""
    deadline = None
    while (lock := folder.lock(CLAIM_S)) is None:
        if (running := folder.running()) is not None and running.stays:
            return running
        record = folder.read()
        if record is not None and not record.stays and _is_alive(record.owner_pid):
            raise ServerError("server-in-use", server=record.name, pid=record.owner_pid)
        if deadline is None:
            say(message("server-of-other-awaited", server=spec.name))
            is_starting = record is not None and record.stays and record.pid == 0
            deadline = time.monotonic() + (STARTING_S if is_starting else ENDING_S)
        if time.monotonic() > deadline:
            raise ServerError("server-held", server=spec.name, path=folder.path)
    return lock


def _check_same(record: ServerRecord, folder: ServerFolder, spec: ServerSpec) -> None:
    """Raises ServerError if the server that stays differs from the specification."""
    pairs: dict[str, tuple[object, object]] = {
        "version": (record.version, spec.installation.version),
        "settings": (dict(record.settings), dict(spec.settings)),
        "data": (record.data_dir, folder.data_home(spec.data_dir) / "data"),
    }
    if spec.tcp:
        pairs["TLS"] = (record.certificate is not None, spec.tls)
        pairs["TCP"] = (record.tcp_host, TCP_HOST)
    for what, (actual, expected) in pairs.items():
        if actual != expected:
            values = {"what": what, "actual": str(actual), "expected": str(expected)}
            raise ServerError("server-differs", server=spec.name, **values)


def _start(spec: ServerSpec, folder: ServerFolder, terms: _Terms) -> Server:
    if (stale := folder.read()) is not None:
        folder.forget(stale)
    data_dir = make_data_home(folder, spec.data_dir) / "data"
    os_user = os_user_for(data_dir)
    for path in (folder.path, data_dir.parent):
        check_entry(path, os_user)
    if spec.tls:
        check_tls(spec.installation)
    installation = reachable(spec.installation, os_user, home() / "cache")
    port = choose_port(tcp=spec.tcp)
    password_file = folder.password_file if spec.tcp else None
    if spec.tcp and spec.standby_of is not None:  # it has the roles and passwords of its primary
        password_file = spec.standby_of.password_file
    record = ServerRecord(
        name=spec.name,
        version=installation.version,
        major=installation.major,
        bin=installation.bin,
        socket_dir=make_socket_folder(folder, port, os_user),
        port=port,
        data_dir=data_dir,
        pid=0,
        owner_pid=os.getpid(),
        stays=terms.stay,
        superuser=postmaster.SUPERUSER,
        tcp_host=TCP_HOST if spec.tcp else None,
        password_file=password_file,
        certificate=folder.path / CERTIFICATE if spec.tls else None,
        settings=dict(spec.settings),
    )
    try:
        folder.write(record)
        if record.certificate is not None:
            make_certificate(folder.path, record.host(Transport.TCP), os_user)
        if spec.standby_of is not None:
            _copy(installation, spec.standby_of, record, os_user=os_user, terms=terms)
        else:
            _prepare(installation, data_dir, os_user, terms=terms)
        return _launch(record, folder, os_user, terms=terms)
    except BaseException:
        folder.forget(record)
        raise


def _prepare(
    installation: Installation, data_dir: Path, os_user: OsUser | None, *, terms: _Terms
) -> None:
    values, series = {"version": installation.version}, data_series(data_dir)
    if series is None:
        terms.say(message("data-directory-created", path=data_dir, **values))
        postmaster.initialize(installation, data_dir, os_user, lock=terms.lock)
    elif series != installation.series:
        raise ServerError("data-of-other-version", data=data_dir, maker=series, **values)


def _copy(
    installation: Installation,
    primary: ServerRecord,
    record: ServerRecord,
    *,
    os_user: OsUser | None,
    terms: _Terms,
) -> None:
    """Make the data of a standby; data of an earlier one is not reused."""
    terms.say(message("standby-created", standby=record.name, path=record.data_dir))
    dsn = f"{primary.dsn()} application_name={record.name.removeprefix(f'{primary.name}-')}"
    # Some packages lack pg_basebackup; that of a newer version will do.
    for each in (installation, *installations()):
        if each.major >= installation.major and each.program("pg_basebackup").is_file():
            break
    else:
        raise ServerError("no-pg-basebackup", version=installation.version)
    program = reachable(each, os_user, home() / "cache")
    postmaster.copy(program, dsn, record.data_dir, os_user=os_user, lock=terms.lock)


def _launch(
    record: ServerRecord, folder: ServerFolder, os_user: OsUser | None, *, terms: _Terms
) -> Server:
    """Start the server and wait until it is ready; end it if anything fails."""
    write_rules(folder.access, record.major, tls=record.certificate is not None)
    folder.rotate_log()
    command = _command(record, folder)
    order = postmaster.service(command, os_user, lock=terms.lock, stays=terms.stay)
    process = Postmaster(order, folder.log, (record.socket_dir, *folder.runtime_files))
    try:
        process.wait(
            lambda: is_ready(record.data_dir, process.pid),
            f"the server {record.name}",
            terms.say,
            data=record.data_dir,
        )
        record = replace(record, pid=process.pid)
        if record.password_file == folder.password_file:
            set_password(record)
        folder.write(record)
        if terms.stay:
            process.leave()
    except BaseException:
        process.end()
        raise
    return Server(**asdict(record), folder=folder, postmaster=None if terms.stay else process)


def _command(record: ServerRecord, folder: ServerFolder) -> tuple[str, ...]:
    """The postmaster's command line; reserved settings come last and so take effect."""
    reserved = {
        "unix_socket_directories": str(record.socket_dir),
        "listen_addresses": record.tcp_host or "",
        "port": str(record.port),
        "hba_file": str(folder.access),
    }
    settings = dict(record.settings)
    if record.certificate is not None:
        encryption = tls_settings(record.major, folder.path)
        settings = encryption | settings
        reserved |= {name: encryption[name] for name in TLS_SETTINGS}
    pairs = [f"{name}={value}" for name, value in {**settings, **reserved}.items()]
    options = [word for pair in pairs for word in ("-c", pair)]
    return (str(record.bin / "postgres"), "-D", str(record.data_dir), *options)


def _end(folder: ServerFolder, record: ServerRecord) -> None:
    """End a server without a supervisor, and remove its files.

    A folder without this record belongs to no server or to a later one: nothing is left to do.
    """
    for number, wait_s in STEPS:
        current = folder.read()
        if current is None or current.pid != record.pid:
            return
        if (lock := folder.lock()) is None:
            if postmaster_pid(record.data_dir) == record.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record.pid, number)
            lock = folder.lock(wait_s)
        if lock is not None:
            folder.forget(record)
            os.close(lock)
            return
    raise ServerError("process-does-not-end", pid=record.pid).at(record.name)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
