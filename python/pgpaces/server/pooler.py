"""A managed pooler in front of managed servers: its configuration, start and end.

pgbouncer pools the primary's connections; pgpool also sends read-only statements to the standbys.
Both listen on a private socket only, and end with pgpaces as managed servers do.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.home import make_folder
from pgpaces.core.messages import message
from pgpaces.core.texts import Say
from pgpaces.server import postmaster
from pgpaces.server.binaries import run
from pgpaces.server.folder import (
    ServerRecord,
    Transport,
    answers,
    make_socket_folder,
    quoted,
    server_folder,
)
from pgpaces.server.os_user import OsUser, check_entry, give, os_user_for
from pgpaces.spec.target import PoolPlan

# Debian installs them outside an ordinary user's PATH.
_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_PACKAGES = {"pgbouncer": "pgbouncer", "pgpool": "pgpool2"}
_PORTS = {"pgbouncer": 6432, "pgpool": 9999}
# pgbouncer tracks the prepared statements of its clients since this version.
_PREPARED_SINCE = (1, 21)
_PREPARED_MAX = 1000
# Connections of pgpaces itself: probing, sensors, plans.
SPARE = 8
_CLIENTS_MAX = 100_000
# For the pooler of a killed pgpaces to end.
_ENDING_S = 20.0


class PoolerProgram(Struct, frozen=True):
    path: Path
    version: str

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))


class Pool(Struct, frozen=True):
    """A running pooler. size: the maximum number of its server connections."""

    host: str
    port: int
    version: str
    size: int


def find(pooler: str) -> PoolerProgram:
    """The program of that name. Raises ServerError with the package to install."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS])
    program = shutil.which(pooler, path=path)
    if program is None:
        raise ServerError("not-installed", program=pooler, package=_PACKAGES[pooler])
    done = run([program, "--version"], stderr=subprocess.STDOUT)
    version = re.search(r"\d+(\.\d+)+", done.stdout)
    if version is None:
        why = done.stdout.strip()[:200]
        raise ServerError("program-failed", program=f"{program} --version", why=why)
    return PoolerProgram(Path(program), version[0])


def check(plan: PoolPlan, program: PoolerProgram, protocol: str) -> None:
    """Raises PlanError for prepared statements that the pool would lose."""
    loses = plan.mode == "transaction" and program.number < _PREPARED_SINCE
    if loses and protocol == "prepared":
        raise PlanError("pool-loses-prepared-statements", version=program.version)


def check_slots(plan: PoolPlan, clients: int) -> None:
    """Raises PlanError for more clients with permanent connections than the pool has."""
    if plan.mode == "session" and plan.size is not None and clients > plan.size:
        raise PlanError("pool-too-small", clients=clients, size=plan.size)


@contextlib.contextmanager
def pool(
    plan: PoolPlan,
    clients: int,
    servers: Sequence[ServerRecord],
    *,
    say: Say,
) -> Iterator[Pool]:
    """A running pooler in front of these servers, the primary first. Raises ServerError."""
    program = find(plan.pooler)
    primary = servers[0]
    folder = server_folder(f"{primary.name}-{plan.pooler}")
    make_folder(folder.path)
    os_user = os_user_for(primary.data_dir)
    check_entry(folder.path, os_user)
    lock = folder.lock(_ENDING_S)
    if lock is None:
        raise ServerError("pooler-in-use", pooler=plan.pooler, server=primary.name)
    size = plan.size or clients
    port = _PORTS[plan.pooler]
    try:
        socket_dir = make_socket_folder(folder, port, os_user)
        spec = PoolSpec(plan, program, size, clients, tuple(servers), socket_dir, folder.path)
        argv, files = _command(spec, os_user)
        folder.rotate_log()
        ending = signal.SIGTERM if plan.pooler == "pgbouncer" else signal.SIGINT
        order = postmaster.service(argv, os_user, lock=lock, ending=ending)
        say(message("pooler-starts", pooler=plan.pooler, version=program.version))
        process = postmaster.Postmaster(order, folder.log, (socket_dir, *files))
    finally:
        os.close(lock)
    try:
        dsn = f"host={quoted(str(socket_dir))} port={port} user={primary.superuser}"
        dsn += " dbname=postgres connect_timeout=2"
        process.wait(lambda: answers(dsn), plan.pooler, say)
        yield Pool(str(socket_dir), port, program.version, size)
    finally:
        process.stop()


class PoolSpec(Struct, frozen=True):
    """All values in a pooler's configuration. servers: the primary first."""

    plan: PoolPlan
    program: PoolerProgram
    size: int
    clients: int
    servers: tuple[ServerRecord, ...]
    socket_dir: Path
    folder: Path


def _command(spec: PoolSpec, os_user: OsUser | None) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """The command line, and the configuration files, which are written and removed at the end."""
    program, pooler = str(spec.program.path), spec.plan.pooler
    main = _write(spec.folder / f"{pooler}.conf", configuration(spec), os_user)
    if pooler == "pgbouncer":
        users = _write(spec.folder / "users", '"postgres" ""\n', os_user)
        return (program, str(main)), (main, users)
    control = _write(spec.folder / "pcp.conf", "", os_user)
    return (program, "-n", "-D", "-f", str(main), "-F", str(control)), (main, control)


def _write(path: Path, text: str, os_user: OsUser | None) -> Path:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    give(path, os_user)
    return path


def _pgbouncer(spec: PoolSpec) -> str:
    primary = spec.servers[0]
    lines = {
        "listen_addr": "",
        "listen_port": _PORTS["pgbouncer"],
        "unix_socket_dir": spec.socket_dir,
        "auth_type": "trust",
        "auth_file": spec.folder / "users",
        "admin_users": primary.superuser,
        "pool_mode": spec.plan.mode,
        "max_client_conn": _CLIENTS_MAX if spec.clients > _CLIENTS_MAX else spec.clients + 50,
        "default_pool_size": spec.size,
        "ignore_startup_parameters": "extra_float_digits",
        "server_idle_timeout": 0,
        "query_wait_timeout": 0,
        "log_connections": 0,
        "log_disconnections": 0,
        "stats_period": 3600,
    }
    if spec.program.number >= _PREPARED_SINCE:
        lines["max_prepared_statements"] = _PREPARED_MAX
    settings = "\n".join(f"{name} = {value}" for name, value in lines.items())
    host = primary.host(Transport.SOCKET).replace("'", "''")
    return f"[databases]\n* = host='{host}' port={primary.port}\n[pgbouncer]\n{settings}\n"


def _pgpool(spec: PoolSpec) -> str:
    """Read-only statements go to the standbys, one by one; the rest goes to the primary."""
    standbys = len(spec.servers) > 1
    lines: dict[str, object] = {
        "backend_clustering_mode": "streaming_replication",
        "listen_addresses": "",
        "port": _PORTS["pgpool"],
        "socket_dir": spec.socket_dir,
        "pcp_listen_addresses": "",
        "pcp_socket_dir": spec.socket_dir,
        "pid_file_name": spec.socket_dir / "pgpool.pid",
        "logdir": spec.socket_dir,
        "work_dir": spec.socket_dir,
        "wd_ipc_socket_dir": spec.socket_dir,
        "enable_pool_hba": "off",
        "pool_passwd": "",
        "num_init_children": spec.size + SPARE,
        "max_pool": 1,
        "child_life_time": 0,
        "load_balance_mode": "on" if standbys else "off",
        "statement_level_load_balance": "on",
        "sr_check_period": 10 if standbys else 0,
        "sr_check_user": spec.servers[0].superuser,
        "sr_check_password": "",
        "sr_check_database": "postgres",
        "delay_threshold": 0,
        "health_check_period": 0,
        "failover_on_backend_error": "off",
        "memory_cache_enabled": "off",
    }
    for number, server in enumerate(spec.servers):
        lines |= {
            f"backend_hostname{number}": server.host(Transport.SOCKET),
            f"backend_port{number}": server.port,
            f"backend_weight{number}": 0 if standbys and number == 0 else 1,
            f"backend_data_directory{number}": server.data_dir,
            f"backend_flag{number}": "DISALLOW_TO_FAILOVER",
        }
    for text in map(str, lines.values()):
        if "'" in text or "\\" in text:
            raise ServerError("pgpool-misreads", value=text)
    return "".join(f"{name} = '{value}'\n" for name, value in lines.items())


def configuration(spec: PoolSpec) -> str:
    """The text of the pooler's configuration. Raises ServerError for values it cannot hold."""
    return {"pgbouncer": _pgbouncer, "pgpool": _pgpool}[spec.plan.pooler](spec)
