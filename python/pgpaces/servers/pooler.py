"""A managed pooler before managed servers: its configuration, its start, its end.

pgbouncer pools the primary's connections; pgpool also sends what only reads to the standbys. Both
listen on a private socket alone, and end with us as managed servers do. Knows nothing of loads.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from pgpaces.errors import PlanError, ServerError
from pgpaces.plan import PoolPlan
from pgpaces.servers import postmaster
from pgpaces.servers.binaries import server_environment
from pgpaces.servers.folder import ServerFolder, make_socket_folder, server_folder
from pgpaces.servers.os_user import OsUser, check_entry, give, make_folder, os_user_for
from pgpaces.servers.record import ServerRecord, Transport, quoted

# Debian puts them where only root looks.
_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_PACKAGES = {"pgbouncer": "pgbouncer", "pgpool": "pgpool2"}
_PORTS = {"pgbouncer": 6432, "pgpool": 9999}
# Since then pgbouncer knows the prepared statements of its clients.
_PREPARED_SINCE = (1, 21)
_PREPARED_MAX = 1000
# Ours, beside those of the load: probing, sensors, plans.
SPARE = 8
_CLIENTS_MAX = 100_000
# So long the pooler of a pgpaces that was killed may take to end.
_ENDING_S = 20.0


class PoolerProgram(Struct, frozen=True):
    """A pooler that is here."""

    path: Path
    version: str

    @property
    def number(self) -> tuple[int, ...]:
        """Its version for comparisons."""
        return tuple(int(part) for part in self.version.split("."))


class Pool(Struct, frozen=True):
    """A pooler that runs. size: how many server connections it has at most."""

    host: str
    port: int
    version: str
    size: int


def find(pooler: str) -> PoolerProgram:
    """The program. Raises ServerError, saying where it comes from."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS])
    found = shutil.which(pooler, path=path)
    if found is None:
        raise ServerError(
            f"{pooler} is not on this machine",
            f"install it; Debian and its kin: apt install {_PACKAGES[pooler]}",
        )
    done = subprocess.run(
        [found, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=server_environment(),
    )
    version = re.search(r"\d+(\.\d+)+", done.stdout)
    if version is None:
        raise ServerError(f"{found} does not say its version: {done.stdout.strip()[:200]}")
    return PoolerProgram(Path(found), version[0])


def check(plan: PoolPlan, program: PoolerProgram, protocol: str) -> None:
    """Raises PlanError for a load that the pool could not carry."""
    kept = program.number >= _PREPARED_SINCE
    if plan.mode == "transaction" and protocol == "prepared" and not kept:
        raise PlanError(
            f"pgbouncer {program.version} in transaction mode loses prepared statements: the next"
            " transaction meets another server connection, which does not know them",
            "use --pool-mode session, --protocol extended, or pgbouncer 1.21 or later",
        )


def check_slots(plan: PoolPlan, clients: int) -> None:
    """Raises PlanError for clients that keep their connections and are more than the pool has."""
    if plan.mode == "session" and plan.size is not None and clients > plan.size:
        raise PlanError(
            f"{clients} clients cannot share {plan.size} connections: in a session each keeps its"
            " own to the end, and the others would wait for ever",
            "raise --pool-size, use fewer clients, let each transaction connect"
            " (--connect-each), or use --pool pgbouncer --pool-mode transaction",
        )


@contextlib.contextmanager
def pool(
    plan: PoolPlan,
    clients: int,
    servers: Sequence[ServerRecord],
    say: Callable[[str], None],
) -> Iterator[Pool]:
    """The pooler before these servers, the primary first, as long as this lasts.

    Raises ServerError.
    """
    program = find(plan.pooler)
    primary = servers[0]
    folder = server_folder(f"{primary.name}-{plan.pooler}")
    make_folder(folder.path)
    os_user = os_user_for(primary.data_dir)
    check_entry(folder.path, os_user)
    lock = folder.lock(_ENDING_S)
    if lock is None:
        raise ServerError(f"another pgpaces has a {plan.pooler} before {primary.name}", "wait")
    size = plan.size or clients
    port = _PORTS[plan.pooler]
    try:
        socket_dir = make_socket_folder(folder, port, os_user)
        text = configuration(
            Setting(plan, program, size, clients, tuple(servers), socket_dir, folder.path)
        )
        argv, files = _command(program, plan, folder, (text, os_user))
        folder.rotate_log()
        order = postmaster.SupervisorOrder(
            argv=argv,
            os_user=os_user,
            lock=lock,
            stays=False,
            files=files,
            folder=socket_dir,
            ending=signal.SIGTERM if plan.pooler == "pgbouncer" else signal.SIGINT,
        )
        say(f"starting {plan.pooler} {program.version}")
        held = postmaster.Postmaster(order, folder.log)
    finally:
        os.close(lock)
    try:
        where = f"host={quoted(str(socket_dir))} port={port} user={primary.superuser}"
        held.wait(lambda: _answers(where), plan.pooler, say)
        yield Pool(str(socket_dir), port, program.version, size)
    finally:
        held.stop()


def _answers(where: str) -> bool:
    from psycopg import pq

    return pq.PGconn.ping(f"{where} dbname=postgres connect_timeout=2".encode()) == pq.Ping.OK


class Setting(Struct, frozen=True):
    """What a configuration is made of. servers: the primary first."""

    plan: PoolPlan
    program: PoolerProgram
    size: int
    clients: int
    servers: tuple[ServerRecord, ...]
    socket_dir: Path
    folder: Path


def _command(
    program: PoolerProgram, plan: PoolPlan, folder: ServerFolder, terms: tuple[str, OsUser | None]
) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """What is run, and the files that it reads and that go with it."""
    text, os_user = terms
    main = _written(folder.path / f"{plan.pooler}.conf", text, os_user)
    if plan.pooler == "pgbouncer":
        _written(folder.path / "users", '"postgres" ""\n', os_user)
        return (str(program.path), str(main)), (main, folder.path / "users")
    control = _written(folder.path / "pcp.conf", "", os_user)
    argv = (str(program.path), "-n", "-D", "-f", str(main), "-F", str(control))
    return argv, (main, control)


def _written(path: Path, text: str, os_user: OsUser | None) -> Path:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    give(path, os_user)
    return path


def _pgbouncer(given: Setting) -> str:
    """In transaction mode with as many statements as a load may prepare, where it knows them."""
    primary = given.servers[0]
    host = primary.host(Transport.SOCKET)
    lines = {
        "listen_addr": "",
        "listen_port": _PORTS["pgbouncer"],
        "unix_socket_dir": given.socket_dir,
        "auth_type": "trust",
        "auth_file": given.folder / "users",
        "admin_users": primary.superuser,
        "pool_mode": given.plan.mode,
        "max_client_conn": _CLIENTS_MAX if given.clients > _CLIENTS_MAX else given.clients + 50,
        "default_pool_size": given.size,
        "ignore_startup_parameters": "extra_float_digits",
        "server_idle_timeout": 0,
        "query_wait_timeout": 0,
        "log_connections": 0,
        "log_disconnections": 0,
        "stats_period": 3600,
    }
    if given.program.number >= _PREPARED_SINCE:
        lines["max_prepared_statements"] = _PREPARED_MAX
    own = "\n".join(f"{name} = {value}" for name, value in lines.items())
    host = host.replace("'", "''")
    return f"[databases]\n* = host='{host}' port={primary.port}\n[pgbouncer]\n{own}\n"


def _pgpool(given: Setting) -> str:
    """What only reads goes to the standbys, statement by statement; the primary has the rest."""
    standbys = len(given.servers) > 1
    lines: dict[str, object] = {
        "backend_clustering_mode": "streaming_replication",
        "listen_addresses": "",
        "port": _PORTS["pgpool"],
        "socket_dir": given.socket_dir,
        "pcp_listen_addresses": "",
        "pcp_socket_dir": given.socket_dir,
        "pid_file_name": given.socket_dir / "pgpool.pid",
        "logdir": given.socket_dir,
        "work_dir": given.socket_dir,
        "wd_ipc_socket_dir": given.socket_dir,
        "enable_pool_hba": "off",
        "pool_passwd": "",
        "num_init_children": given.size + SPARE,
        "max_pool": 1,
        "child_life_time": 0,
        "load_balance_mode": "on" if standbys else "off",
        "statement_level_load_balance": "on",
        "sr_check_period": 10 if standbys else 0,
        "sr_check_user": given.servers[0].superuser,
        "sr_check_password": "",
        "sr_check_database": "postgres",
        "delay_threshold": 0,
        "health_check_period": 0,
        "failover_on_backend_error": "off",
        "memory_cache_enabled": "off",
    }
    for number, server in enumerate(given.servers):
        lines |= {
            f"backend_hostname{number}": server.host(Transport.SOCKET),
            f"backend_port{number}": server.port,
            f"backend_weight{number}": 0 if standbys and number == 0 else 1,
            f"backend_data_directory{number}": server.data_dir,
            f"backend_flag{number}": "DISALLOW_TO_FAILOVER",
        }
    return "".join(f"{name} = {_pgpool_text(value)}\n" for name, value in lines.items())


def _pgpool_text(value: object) -> str:
    """A value in quotes. Raises ServerError for one that pgpool's configuration cannot hold."""
    text = str(value)
    if "'" in text or "\\" in text:
        raise ServerError(
            f"pgpool's configuration cannot name {text}: of quotes and backslashes it makes others",
            "let PGPACES_HOME be a folder without them",
        )
    return f"'{text}'"


def configuration(given: Setting) -> str:
    """The text of the pooler's configuration. Raises ServerError for what it cannot hold."""
    return {"pgbouncer": _pgbouncer, "pgpool": _pgpool}[given.plan.pooler](given)
