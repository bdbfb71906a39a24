"""What PostgreSQL writes when it refuses becomes one sentence and a way out."""

import pytest

from pgpaces.server import failure

AT = "2026-11-21 21:12:13.330 GMT [5755] "
PORT_IN_USE = f"""\
{AT}LOG:  starting PostgreSQL 18.6 on x86_64-pc-linux-gnu
{AT}LOG:  could not bind IPv4 address "127.0.0.1": Address already in use
{AT}HINT:  Is another postmaster already running on port 5999? If not, wait and retry.
{AT}WARNING:  could not create listen socket for "127.0.0.1"
{AT}FATAL:  could not create any TCP/IP sockets
{AT}LOG:  database system is shut down
"""
LOCKED = f"""\
{AT}FATAL:  lock file "postmaster.pid" already exists
{AT}HINT:  Is another postmaster (PID 5825) running in data directory "/tmp/data"?
"""
DISK_FULL = f"""\
creating configuration files ... ok
running bootstrap script ... {AT}FATAL:  could not write to file "pg_wal/x": No space left on device
child process exited with exit code 1
initdb: removing contents of data directory "/tmp/pgx/small/d"
"""
OTHER_MAJOR = f"""\
{AT}FATAL:  database files are incompatible with server
{AT}DETAIL:  The data directory was initialized by PostgreSQL version 15, which is not compatible.
"""
ENUM = f"""\
{AT}FATAL:  invalid value for parameter "wal_level": "x"
{AT}HINT:  Available values: minimal, replica, logical.
"""


@pytest.mark.parametrize(
    ("output", "reason", "hint"),
    [
        (
            f'{AT}FATAL:  unrecognized configuration parameter "nosuch"\n',
            'FATAL: unrecognized configuration parameter "nosuch"',
            "no setting nosuch",
        ),
        (ENUM, 'parameter "wal_level": "x" (HINT: Available values: minimal', "wal_level a value"),
        (
            f'{AT}FATAL:  9 is outside the valid range for parameter "max_connections" (1 .. 5)',
            "outside the valid range",
            "setting max_connections a value",
        ),
        (
            f'{AT}FATAL:  parameter "jit" requires a Boolean value',
            "requires",
            "setting jit a value",
        ),
        (
            f'{AT}FATAL:  could not access file "timescaledb": No such file or directory',
            "could not access",
            "no library timescaledb",
        ),
        (f"{AT}FATAL:  SSL is not supported by this build", "SSL", "another installation"),
        (
            f"{AT}FATAL:  could not map anonymous shared memory: Cannot allocate memory",
            "could not map",
            "lower shared_buffers",
        ),
        (
            PORT_IN_USE,
            'sockets (LOG: could not bind IPv4 address "127.0.0.1"',
            "start the server again",
        ),
        (LOCKED, "already exists", "stop process 5825; if that is no PostgreSQL, remove /tmp/data"),
        (DISK_FULL, "No space left on device", "disk is full"),
        (
            OTHER_MAJOR,
            "(DETAIL: The data directory was initialized by PostgreSQL version 15",
            "remove /x/data, or use another server: `pgpaces server start --name OTHER`",
        ),
        (
            f"{AT}PANIC:  could not locate a valid checkpoint record at 0/0",
            "could not locate",
            "the data is damaged: remove /x/data",
        ),
        (f'{AT}FATAL:  data directory "/d" has wrong ownership', "ownership", "another user"),
        (
            "initdb: error: could not look up effective user ID 12345: user does not exist",
            "12345",
            "/etc/passwd",
        ),
        (
            'postgres: could not access directory "/root/data": Permission denied',
            "could not access",
            "PGPACES_HOME",
        ),
    ],
)
def test_a_refusal_gives_postgresqls_reason_and_a_way_out(
    output: str, reason: str, hint: str
) -> None:
    error = failure.refusal("the server pg18 did not start", output, "/x/log", data="/x/data")
    assert error.message.startswith("the server pg18 did not start: ")
    assert reason in error.message
    assert hint in str(error.hint)
    assert "/x/log" in str(error.hint)


def test_an_early_client_is_not_the_reason() -> None:
    output = f"{AT}FATAL:  the database system is starting up\n{AT}PANIC:  could not locate it\n"
    assert failure.reason(output) == "PANIC: could not locate it"


def test_without_a_fatal_line_the_last_lines_are_the_reason() -> None:
    output = "\n".join(f"line {n}" for n in range(9))
    assert failure.reason(output) == "line 4 | line 5 | line 6 | line 7 | line 8"
    assert failure.reason("") == "it wrote nothing"
