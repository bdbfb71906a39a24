"""Servers that mean ill, over a real socket: the command and the engine say what was found."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Certificates
from tests.servers import quoted
from tests.waiting import DEADLINE_S

from pgpaces import _engine
from pgpaces.core.errors import AuthError, PgpacesError, ServerError, TlsError

# What a server says, in turn: bytes that it writes once it has read something.
Said = bytes | Callable[[socket.socket], bytes]


def frame(tag: bytes, body: bytes = b"") -> bytes:
    return tag + struct.pack(">I", len(body) + 4) + body


def authentication(code: int, rest: bytes = b"") -> bytes:
    return frame(b"R", struct.pack(">I", code) + rest)


def parameter(name: bytes, value: bytes) -> bytes:
    return frame(b"S", name + b"\0" + value + b"\0")


READY = frame(b"Z", b"I")
LET_IN = authentication(0) + parameter(b"server_version", b"18.0")
WELCOME = LET_IN + frame(b"K", bytes(8)) + READY
COMPLETE = frame(b"C", b"SELECT 0\0")
SCRAM = authentication(10, b"SCRAM-SHA-256\0\0")


class Scripted:
    """A server that says the same lines to everybody, each after it was spoken to."""

    def __init__(self, lines: tuple[Said, ...], endless: bytes = b"") -> None:
        self.lines, self.endless = lines, endless
        self.heard: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self.listener.accept()
                threading.Thread(target=self._speak, args=(wire,), daemon=True).start()

    def _speak(self, wire: socket.socket) -> None:
        with contextlib.suppress(OSError), wire:
            for line in self.lines:
                heard = wire.recv(65536)
                if not heard:
                    return
                self.heard.append(heard)
                said = line if isinstance(line, bytes) else line(wire)
                wire.sendall(said)
            while self.endless and not self.ended.is_set():
                wire.sendall(self.endless)
            while wire.recv(65536):
                pass

    def dsn(self, **more: object) -> str:
        words = {"host": "127.0.0.1", "port": self.port, "user": "u", "dbname": "d"}
        return quoted(words | {"sslmode": "disable", "password": "secret"} | more)

    def end(self) -> None:
        self.ended.set()
        self.listener.close()


Serve = Callable[..., Scripted]


@pytest.fixture
def serve(clean_client: Path) -> Iterator[Serve]:
    started: list[Scripted] = []

    def start(*lines: Said, endless: bytes = b"") -> Scripted:
        started.append(Scripted(lines, endless))
        return started[-1]

    yield start
    for server in started:
        server.end()


def refusal(dsn: str) -> PgpacesError:
    with pytest.raises(PgpacesError) as found:
        _engine.find_route(_engine.resolve(dsn, {}))
    return found.value


REFUSED: dict[str, tuple[bytes, type[PgpacesError], str]] = {
    "a length of 2": (b"R\0\0\0\2", ServerError, "says that it is 2 bytes long, expected 4 to"),
    "a length of -1": (b"S\xff\xff\xff\xff", ServerError, "-1 bytes long"),
    "the longest length": (b"E\x7f\xff\xff\xff", ServerError, "2147483647 bytes long"),
    "an unknown message": (frame(b"?"), ServerError, "type '?' that has no place in a login"),
    "another protocol": (b"HTTP/1.1 400 Bad Request\r\n\r\n", ServerError, "PostgreSQL protocol"),
    "ready early": (READY, ServerError, "type 'Z' that has no place before"),
    "an error cut short": (frame(b"E", b"SFATAL\0Mwhat"), ServerError, "is malformed"),
    "an error of nothing": (frame(b"E", b"\0"), ServerError, "an error without a message"),
    "protocol 3.2": (frame(b"v", struct.pack(">II", 0x30002, 0)), ServerError, "protocol 3.2"),
    "a long key": (LET_IN + frame(b"K", bytes(36)), ServerError, "a cancel key of 36 bytes"),
    "a function's result": (LET_IN + frame(b"V", bytes(4)), ServerError, "no place in a login"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_login_is_refused_with_what_was_found(serve: Serve, name: str) -> None:
    said, kind, words = REFUSED[name]
    error = refusal(serve(said).dsn())
    assert isinstance(error, kind)
    assert words in str(error)
    assert error.hint


DOWNGRADES = {
    "clear text": (authentication(3), {"require_auth": "scram-sha-256"}, "require_auth"),
    "MD5": (authentication(5, b"salt"), {"require_auth": "scram-sha-256"}, "require_auth"),
    "nothing": (WELCOME, {"require_auth": "scram-sha-256"}, "no password at all"),
    "SCRAM unbound": (SCRAM, {"channel_binding": "require"}, "no TLS to bind to"),
    "clear text unbound": (authentication(3), {"channel_binding": "require"}, "is required"),
}


@pytest.mark.parametrize("name", DOWNGRADES)
def test_a_downgrade_is_refused_and_the_password_stays_here(serve: Serve, name: str) -> None:
    said, words, reason = DOWNGRADES[name]
    server = serve(said, b"")
    error = refusal(server.dsn(**words))
    assert isinstance(error, AuthError)
    assert reason in str(error)
    assert len(server.heard) == 1, "nothing but the startup message"


def challenge(rounds: int) -> Callable[[Scripted], Said]:
    """A SCRAM challenge that goes on from the nonce that the client sent."""

    def said(server: Scripted) -> Said:
        def answer(_: socket.socket) -> bytes:
            nonce = server.heard[-1].rpartition(b"r=")[2]
            return authentication(11, b"r=" + nonce + b"x,s=c2FsdA==,i=%d" % rounds)

        return answer

    return said


@pytest.mark.parametrize("rounds", [0, 100_001, 2**31, 2**64])
def test_scram_rounds_beyond_measure_are_refused_before_the_first(
    serve: Serve, rounds: int
) -> None:
    server = serve(SCRAM)
    server.lines = (SCRAM, challenge(rounds)(server))
    error = refusal(server.dsn())
    assert isinstance(error, AuthError)
    assert f"asks for {rounds} rounds" in str(error)


def test_what_was_written_in_clear_behind_the_answer_to_an_ssl_request_is_refused(
    serve: Serve,
) -> None:
    error = refusal(serve(b"S" + WELCOME).dsn(sslmode="require"))
    assert isinstance(error, TlsError)
    assert "more than one byte" in str(error)


def test_an_alert_in_the_handshake_is_an_error_of_tls(serve: Serve) -> None:
    error = refusal(serve(b"S", bytes([21, 3, 3, 0, 2, 2, 40])).dsn(sslmode="require"))
    assert isinstance(error, TlsError)
    assert "HandshakeFailure" in str(error)


def test_a_tls_session_that_breaks_off_in_the_login_is_an_error(
    serve: Serve, certificates: Certificates
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.crt("server"), certificates.key("server"))

    def shake(wire: socket.socket) -> bytes:
        wire.sendall(b"S")
        secure = context.wrap_socket(wire.dup(), server_side=True)
        secure.recv(65536)
        # A record in clear where only encrypted ones can be.
        return bytes([21, 3, 3, 0, 2, 2, 80])

    error = refusal(serve(shake).dsn(sslmode="require"))
    assert isinstance(error, TlsError)


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(frame(b"N", b"SNOTICE\0Mflood\0\0") * 2000, id="notices"),
        pytest.param(parameter(b"application_name", b"x" * 900) * 100, id="parameters"),
    ],
)
def test_a_login_without_end_ends_with_the_connection_time_out(
    serve: Serve, endless: bytes
) -> None:
    server = serve(LET_IN, endless=endless)
    began = time.monotonic()
    error = refusal(server.dsn(connect_timeout=2))
    assert "no answer in time" in str(error)
    assert time.monotonic() - began < 60


def test_a_server_that_turns_hostile_fails_transactions_and_not_the_run(
    serve: Serve, run_load: Callable[..., Any]
) -> None:
    for said, words in (
        (READY, "has not answered the statement"),
        (frame(b"V", bytes(4)), "type 'V' that has no place in a session"),
        (frame(b"W", bytes(3)), "type 'W' that has no place in a session"),
        (b"D\0\0\0\3", "is 3 bytes long"),
        (frame(b"E", b"SERROR"), "is malformed"),
    ):
        server = serve(WELCOME, said)
        outcome = run_load(server.dsn(), "SELECT 1;", clients=1, transactions=3)
        assert (outcome.failed, outcome.disconnects) == ({"08P01": 3}, 3)
        assert words in outcome.messages["08P01"]


def test_rows_that_do_not_fit_their_description_are_not_stored(
    serve: Serve, run_load: Callable[..., Any]
) -> None:
    column = b"a\0" + bytes(18)
    row = frame(b"D", b"\xff\xff" + struct.pack(">i", 1) + b"x")
    said = frame(b"T", b"\0\1" + column) + row + COMPLETE + READY
    outcome = run_load(serve(WELCOME, said).dsn(), "SELECT 1 \\gset\n", clients=1)
    assert outcome.failed == {"08P01": 1}
    assert "does not fit its description" in outcome.messages["08P01"]


@pytest.mark.parametrize("name", ["the longest length", "ready early", "protocol 3.2"])
def test_the_command_ends_with_a_sentence_and_a_hint(
    serve: Serve, tmp_path: Path, pgpaces_home: Path, name: str
) -> None:
    said, kind, words = REFUSED[name]
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    command = [sys.executable, "-m", "pgpaces", "run", "--file", str(script), "--target"]
    done = subprocess.run(
        [*command, serve(said).dsn(), "-T", "1s"],
        env=os.environ | {"PGPACES_STORE": str(tmp_path / "results.db")},
        capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == kind.exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert words in re.sub(r"\s+", " ", done.stderr)
    assert json.dumps(done.stdout) == '""'
