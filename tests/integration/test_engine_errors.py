"""Every error of the engine that no other test produces, each with what produces it."""

import errno
import platform
import socket
import ssl
import subprocess
import sys

import pytest
from msgspec.structs import replace
from tests.engine_load import PLAN, Load
from tests.integration.impostors import SSL_REQUEST, answering, frame
from tests.integration.test_connections import PASSWORD, WELCOME
from tests.integration.test_poll import FORBIDDEN
from tests.needs import needs

from pgpaces import _engine
from pgpaces.core.errors import PgpacesError

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
DENIED = "SELECT pg_read_file('x')"
LOADS = {
    "impossible-plan": {"clients": 0},
    "script-weights-zero": {"weight": 0},
    "on-connect-has-nul": {"on_connect": ["\0"]},
    "script-fails": {"script": "SELECT nosuch"},
    "script-lacks-right": {"script": DENIED, "user": "u_scram"},
    "script-needs-other-database": {"script": "SELECT * FROM nosuch"},
    "client-lost-connection": {
        "script": "SELECT pg_terminate_backend(pg_backend_pid())", "recover": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LOADS)
def test_a_load_that_cannot_be_or_go_on_ends_with_its_error(pg15, name):
    plan = dict(LOADS[name])
    script = ("one", plan.pop("weight", 1), plan.pop("script", "SELECT 1"))
    dsn = pg15.dsn(plan.pop("user", "u_trust"), password=PASSWORD)
    with pytest.raises(PgpacesError) as caught:
        Load(dsn, [script], replace(PLAN, transactions=100, keep_going=False, **plan)).finish()
    assert caught.value.name == name


def refused(dsn: str) -> PgpacesError:
    """Why a login fails."""
    with pytest.raises(PgpacesError) as caught:
        _engine.find_route(_engine.resolve(dsn, {}))
    return caught.value


def sasl(*methods: bytes) -> bytes:
    return frame(b"R", b"\0\0\0\x0a" + b"".join(each + b"\0" for each in methods) + b"\0")


# What the server says; of those with TLS, through TLS.
LOGINS = {
    "login-closed": b"",
    "login-methods-unsupported": sasl(b"OTHER"),
    "login-followed-by-results": WELCOME + frame(b"G", bytes(3)),
    "channel-binding-not-offered": sasl(b"SCRAM-SHA-256"),
    "channel-binding-needs-certificate": sasl(b"SCRAM-SHA-256-PLUS"),
    "certificate-expired": b"",
}


@pytest.mark.parametrize("name", LOGINS)
def test_a_login_that_is_none_is_refused_by_name(name, certificates):
    shown = {"channel-binding-needs-certificate": "ed25519", "certificate-expired": "expired"}
    secure = name.startswith("c")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = shown.get(name, "server")
    context.load_cert_chain(certificates.crt(certificate), certificates.key(certificate))

    def talk(wire: socket.socket) -> None:
        if secure:
            assert wire.recv(8) == SSL_REQUEST
            wire.sendall(b"S")
            wire = context.wrap_socket(wire.dup(), server_side=True)
        wire.recv(4096)
        wire.sendall(LOGINS[name])
        wire.shutdown(socket.SHUT_RDWR)

    roots = f"sslmode=verify-ca sslrootcert={certificates.crt('ca')}"
    tls = roots if name == "certificate-expired" else "sslmode=require channel_binding=require"
    with answering(talk) as port:
        dsn = f"host=127.0.0.1 port={port} user=u password=x "
        assert refused(dsn + (tls if secure else "sslmode=disable")).name == name


FILES = {
    "root-certificate-unusable": "sslmode=verify-ca sslrootcert={file}",
    "certificate-file-empty": "sslmode=verify-ca sslrootcert={empty}",
    "client-key-open-to-others": "sslmode=require sslcert={certificate} sslkey={empty}",
    "client-certificate-unusable": "sslmode=require sslcert={file} sslkey={key}",
    "client-key-unusable": "sslmode=require sslcert={certificate} sslkey={file}",
    "host-not-in-certificates": "sslmode=verify-full sslrootcert={ca} host=bad_name!",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_tls_cannot_use_is_named(pg15, certificates, tmp_path, name):
    file = tmp_path / "file.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n")
    file.chmod(0o600)
    (empty := tmp_path / "empty.key").touch(0o644)
    of = {"certificate": certificates.crt("u_cert"), "key": certificates.key("u_cert")}
    words = FILES[name].format(file=file, empty=empty, ca=certificates.crt("ca"), **of)
    error = refused(f"{pg15.tcp()} hostaddr=127.0.0.1 {words}")
    assert (error.name, error.values.get("path", "") in words) == (name, True)


def test_a_password_file_that_cannot_be_read_is_a_warning():
    [warning] = _engine.resolve("host=x passfile=/proc/self/mem", {}).warnings
    assert warning.name == "password-file-unreadable"


def test_clients_that_the_server_does_not_answer_are_given_up():
    answered = []

    def talk(wire: socket.socket) -> None:
        wire.recv(4096)
        if not answered:
            answered.append(wire.sendall(WELCOME))

    with answering(talk) as port, pytest.raises(PgpacesError) as caught:
        Load(f"host=127.0.0.1 port={port} user=u sslmode=disable connect_timeout=2",
             [("one", 1, "SELECT 1")], PLAN)  # fmt: skip
    assert caught.value.name == "clients-not-let-in"


@pytest.mark.slow
def test_a_statement_that_is_longer_than_any_message_ends_its_client(fake_server):
    """With the values of its variables; it takes a memory of 2 GiB."""
    script = f"SELECT fake_rows(1, {2**26 - 1024}) \\gset\nSELECT " + ":fake_rows" * 33
    with pytest.raises(PgpacesError) as caught:
        Load(fake_server().dsn(), [("one", 1, script)], replace(PLAN, clients=1)).finish()
    assert (caught.value.name, caught.value.values["command"]) == ("statement-not-sent", "SQL")


def test_bytes_of_another_process_that_are_no_seconds_are_refused():
    with pytest.raises(PgpacesError) as caught:
        _engine.Ledger(PLAN, [1]).interval([b"?"], 0)
    assert caught.value.name == "invalid-data-from-process"


# A system call, what it fails with in a process of its own, and the way to wait.
# By `clock_gettime` a process asks only for CPU time: the other clocks need no system call.
CALLS = {
    "x86_64": {"epoll_create1": 291, "epoll_wait": 232, "sendto": 44, "clock_gettime": 228},
    "aarch64": {"epoll_create1": 20, "epoll_wait": 22, "sendto": 206, "clock_gettime": 113},
}
NUMBERS = {"io_uring_setup": 425, "clone3": 435, **CALLS.get(platform.machine(), {})}
FAILING = [
    ("io_uring_setup", "ENOSYS", "io-uring-unsupported"),
    ("io_uring_setup", "ENOMEM", "io-uring-needs-memory"),
    ("io_uring_setup", "EIO", "io-uring-failed"), ("epoll_create1", "EMFILE", "no-event-queue"),
    ("epoll_wait", "EIO", "waiting-failed"), ("clone3", "EAGAIN", "thread-not-started"),
    ("sendto", "ECONNRESET", "sending-failed"), ("clock_gettime", "EPERM", "engine-panicked"),
]  # fmt: skip
CHILD = """
from tests.engine_load import PLAN, Load
from pgpaces.core.errors import PgpacesError
from msgspec.structs import replace
{filter}
try:
    Load({dsn!r}, [("one", 1, "SELECT 1")], replace(PLAN, poll={poll!r})).finish()
except PgpacesError as error:
    print(error.name)
"""


@needs("Linux")
@pytest.mark.parametrize(("call", "error", "name"), FAILING)
def test_a_system_call_that_fails_ends_the_load_with_its_error(pg15, call, error, name):
    poll = "io_uring" if "io" in call else "epoll"
    filtered = FORBIDDEN.format(call=NUMBERS[call], error=getattr(errno, error))
    code = CHILD.format(filter=filtered, dsn=pg15.tcp(), poll=poll)
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == name
