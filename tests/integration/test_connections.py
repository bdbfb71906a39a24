"""Ways to a server, held against PostgreSQL 15: who comes in, how, and what those hear who do not.

`resolve` + `find_route` log in once; `ways` then lets the clients of a run take that route and
asks the server how they came.
"""

import re
import shutil
import signal
import socket
import ssl
import struct
import time
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import Struct, field
from psycopg import conninfo
from tests.errors import raises, sentence
from tests.integration.impostors import answering, frame, man_in_the_middle
from tests.needs import lacking
from tests.servers import PASSWORD, quoted

from pgpaces import _engine
from pgpaces.core.errors import (
    AuthError,
    ConnectionsError,
    DatabaseAbsentError,
    PgpacesError,
    PlanError,
    ServerError,
    TlsError,
)
from pgpaces.load import engine

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("clean_client")]
WRONG = "Wr0ng:pass"


@pytest.fixture(scope="module", autouse=True)
def ways_table(pg15, pg15_tls12):
    """Where clients leave how they came."""
    for server in (pg15, pg15_tls12):
        server.execute("CREATE TABLE IF NOT EXISTS ways (way text)")
        server.execute("GRANT ALL ON ways TO PUBLIC")


NOTE = """INSERT INTO ways SELECT concat_ws(' ', current_user, CASE WHEN ssl THEN version ELSE
'plain' END, coalesce(host(client_addr), 'socket')) FROM pg_stat_ssl JOIN pg_stat_activity
USING (pid) WHERE pid = pg_backend_pid()"""


@pytest.fixture
def ways(run_load):
    """The way that all clients of a short run came, as the server saw it."""

    def ways(server: Any, dsn: str) -> str:
        server.execute("TRUNCATE ways")
        assert run_load(dsn, NOTE, clients=2).on_time == 2
        [[way, count]] = server.execute("SELECT way, count(*) FROM ways GROUP BY way")
        assert count == 2
        return str(way)

    return ways


def refusal(
    dsn: str, kind: type[PgpacesError], words: str, secrets: tuple[str, ...] = (PASSWORD, WRONG)
) -> PgpacesError:
    """The error of a login: of this very class, with a hint, and without a secret."""
    with pytest.raises(PgpacesError) as caught:
        _engine.find_route(_engine.resolve(dsn, {}))
    error = caught.value
    assert re.search(words, f"{error.name}: {error}")
    assert type(error) is kind, (type(error), error.message)
    shown = f"{error} {error!r} {error.message} {error.hint} {error.args}"
    assert not [secret for secret in secrets if secret in shown], shown
    assert error.hint, f"no hint: {error.message}"
    return error


METHODS = ("u_password", "u_md5", "u_scram")


@pytest.mark.parametrize("transport", ["dsn", "tcp", "tls"])
@pytest.mark.parametrize("user", ["u_trust", *METHODS])
def test_every_method_lets_in_who_has_the_password(pg15, ways, user, transport):
    password = {} if user == "u_trust" else {"password": PASSWORD}
    way = ways(pg15, getattr(pg15, transport)(user, **password))
    expected = {"dsn": "plain socket", "tcp": "plain 127.0.0.1", "tls": "TLSv1.3 127.0.0.1"}
    assert way == f"{user} {expected[transport]}"


@pytest.mark.parametrize("transport", ["dsn", "tcp", "tls"])
@pytest.mark.parametrize("user", METHODS)
def test_no_password_is_told_apart_from_a_wrong_one(pg15, user, transport):
    dsn = getattr(pg15, transport)
    wrong = dsn(user, password=WRONG)
    refusal(wrong, AuthError, "login-rejected: password authentication failed")
    refusal(dsn(user), AuthError, "password-required")


def test_ipv6_is_a_way_like_any_other(pg15, ways):
    if not pg15.has_ipv6:
        lacking("IPv6 on loopback")
    assert ways(pg15, pg15.tcp(host="::1")) == "u_trust plain ::1"
    assert ways(pg15, pg15.tls(host="::1", sslmode="require")) == "u_trust TLSv1.3 ::1"
    uri = f"postgresql://u_trust@[::1]:{pg15.port}/postgres"
    assert ways(pg15, uri) == "u_trust TLSv1.3 ::1"


def test_a_route_tells_the_servers_version_and_address(pg15):
    route = _engine.find_route(_engine.resolve(pg15.tcp(), {}))
    [[version]] = pg15.execute("SHOW server_version")
    assert (route.server_version, route.address) == (version, f"127.0.0.1:{pg15.port}")
    socket_route = _engine.find_route(_engine.resolve(pg15.dsn(), {}))
    assert socket_route.address == f"{pg15.folder}/.s.PGSQL.{pg15.port}"


@pytest.mark.parametrize(
    ("user", "words", "kind", "message"),
    [
        ("u_trust", {"dbname": "nowhere"}, DatabaseAbsentError, "no-such-database: .*nowhere"),
        ("u_absent", {}, AuthError, "login-rejected: .*u_absent"),
        ("u_reject", {}, AuthError, "pg_hba.conf"),
        ("u_nobody_rules", {}, AuthError, "pg_hba.conf"),
        ("u_hostssl", {}, AuthError, "no encryption"),
        ("u_cert", {}, AuthError, "no encryption"),
        ("u_trust", {"options": "-c nosuch_setting=1"}, PlanError, "session-rejected: .*nosuch"),
        ("u_trust", {"options": "-c work_mem=abc"}, PlanError, "session-rejected: .*work_mem"),
        ("u_trust", {"host": "nosuch.invalid"}, ServerError, "host-unknown: .*nosuch.invalid"),
        ("u_trust", {"host": "/nonexistent"}, ServerError, "no-such-socket: .*/nonexistent"),
        ("u_trust", {"target_session_attrs": "standby"}, ServerError, "server-plays-other-part"),
        ("u_trust", {"dbname": "template0"}, ServerError, "connection-rejected: .*not currently"),
        ("u_scram", {"password": ""}, AuthError, "password-required"),
        # A wrong password ends the search.
        ("u_scram", {"host": "127.0.0.1,nosuch.invalid", "password": WRONG}, AuthError,
         "password authentication failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_a_refusal_has_its_class_and_a_hint(pg15, user, words, kind, message):
    refusal(pg15.tcp(user, **{"password": PASSWORD} | words), kind, message)


def test_a_database_that_one_may_not_enter_is_a_matter_of_login(pg15):
    with pg15.meanwhile("CREATE DATABASE closed_db", "DROP DATABASE closed_db"):
        pg15.execute("REVOKE CONNECT ON DATABASE closed_db FROM PUBLIC")
        refusal(pg15.tcp(dbname="closed_db"), AuthError, "permission denied for database")


def test_a_role_that_may_not_log_in_is_a_matter_of_login(pg15):
    with pg15.meanwhile("ALTER ROLE u_trust NOLOGIN", "ALTER ROLE u_trust LOGIN"):
        refusal(pg15.tcp(), AuthError, "not permitted to log in")


def test_nobody_listening_is_said_with_the_address():
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: refused for sure
        port = held.getsockname()[1]
        refusal(
            f"host=127.0.0.1 port={port} user=u",
            ServerError,
            f"no-server-answers: .*127.0.0.1:{port}",
        )


def test_a_server_that_says_nothing_is_given_up_after_connect_timeout():
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        dsn = f"host=127.0.0.1 port={port} user=u connect_timeout=2"
        refusal(dsn, ServerError, "no-answer-in-time")


def test_too_few_connections_is_an_error_that_names_whose_limit_it_is(pg15, run_load):
    with pytest.raises(ConnectionsError, match="too many connections") as caught:
        run_load(pg15.tcp("u_limited"), "SELECT 1", clients=3)
    assert caught.value.name == "connection-limit-of-role"
    most = "ALTER DATABASE postgres CONNECTION LIMIT"
    few = raises(ConnectionsError, "connection-limit-of-database")
    with pg15.meanwhile(f"{most} 2", f"{most} -1"), few:
        run_load(pg15.tcp("u_trust"), "SELECT 1", clients=3)


def test_bad_sql_on_connecting_is_an_error_before_the_run(pg15, run_load):
    with pytest.raises(PlanError, match="nosuch"):
        run_load(pg15.dsn(), "SELECT 1", on_connect=["SELECT nosuch"])


@pytest.mark.parametrize(
    ("part", "wanted", "fits"),
    [
        ("primary off", "read-write", True),
        ("primary on", "read-write", False),
        ("standby on", "read-write", False),
        ("standby on", "standby", True),
        ("primary on", "standby", False),
        ("primary off", "prefer-standby", True),
    ],
)
def test_a_server_before_14_is_asked_for_its_part(part, wanted, fits):
    ready = frame(b"Z", b"I")
    row = b"\0\1" + len(part).to_bytes(4, "big") + part.encode()
    columns = frame(b"T", b"\0\1c\0" + bytes(6) + b"\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0")

    def serve(wire: socket.socket) -> None:
        wire.recv(4096)
        wire.sendall(frame(b"R", bytes(4)) + frame(b"S", b"server_version\x0013.9\0") + ready)
        if b"pg_is_in_recovery" in wire.recv(4096):
            wire.sendall(columns + frame(b"D", row) + frame(b"C", b"SELECT 1\0") + ready)

    with answering(serve) as port:
        dsn = f"host=127.0.0.1 port={port} user=u sslmode=disable target_session_attrs={wanted}"
        if fits:
            route = _engine.find_route(_engine.resolve(dsn, {}))
            assert route.server_version == "13.9"
        else:
            refusal(dsn, ServerError, f"target_session_attrs={wanted}")


def pass_file(path: Path, server: Any, mode: int = 0o600) -> Path:
    """A password file for u_scram: the first line is for another port."""
    escaped = PASSWORD.replace("\\", "\\\\").replace(":", "\\:")
    path.write_text(f"*:1:*:*:{WRONG}\n# comment\n127.0.0.1:{server.port}:*:u_scram:{escaped}\n")
    path.chmod(mode)
    return path


def test_password_files_are_used_by_name_at_home_and_of_PGPASSFILE(  # noqa: N802
    pg15, ways, clean_client, tmp_path, monkeypatch
):
    path = pass_file(tmp_path / "pgpass", pg15)
    assert ways(pg15, pg15.tcp("u_scram", passfile=path)) == "u_scram plain 127.0.0.1"
    pass_file(clean_client / ".pgpass", pg15)
    assert ways(pg15, pg15.tcp("u_scram")).startswith("u_scram")
    (clean_client / ".pgpass").unlink()
    monkeypatch.setenv("PGPASSFILE", str(pass_file(tmp_path / "elsewhere", pg15)))
    assert ways(pg15, pg15.tcp("u_scram")).startswith("u_scram")


def test_each_of_several_hosts_has_its_own_password(pg15, ways, tmp_path):
    """Given to all, that of the first would be sent to the second."""
    path = pass_file(tmp_path / "pgpass", pg15)
    one = engine.resolve(pg15.tcp("u_scram", passfile=path))
    assert engine.for_driver(one)["password"] == PASSWORD
    ports = f"1,{pg15.port}"
    several = engine.resolve(
        pg15.tcp("u_scram", host="127.0.0.1,127.0.0.1", port=ports, passfile=path)
    )
    assert "password" not in engine.for_driver(several)
    assert ways(pg15, conninfo.make_conninfo(**several.keywords)) == "u_scram plain 127.0.0.1"


def test_an_empty_value_keeps_a_variable_out_also_of_what_is_resolved_again(monkeypatch):
    """Preparation would go to one server, and the load to another."""
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.9")
    first = engine.resolve("host=db1 hostaddr='' dbname=x")
    assert engine.resolve("", **first.keywords).keywords["hostaddr"] == ""
    assert engine.resolve("host=db1").keywords["hostaddr"] == "192.0.2.9"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_password_file_that_others_can_read_is_ignored_with_a_warning(pg15, tmp_path, mode):
    path = pass_file(tmp_path / "pgpass", pg15, mode)
    dsn = pg15.tcp("u_scram", passfile=path)
    [warning] = _engine.resolve(dsn, {}).warnings
    assert warning.name == "password-file-open-to-others"
    assert warning.values == {"path": str(path), "mode": f"{mode:04o}"}
    refusal(dsn, AuthError, "password-required")


def test_a_service_file_gives_what_the_string_does_not(pg15, ways, tmp_path, monkeypatch):
    path = tmp_path / "services"
    path.write_text(
        f"# ours\n[other]\nhost=nosuch.invalid\n\n[pi]\nhost=127.0.0.1\nport={pg15.port}\n"
        "user=u_trust\ndbname=postgres\nsslmode=disable\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(path))
    assert ways(pg15, "service=pi") == "u_trust plain 127.0.0.1"
    assert ways(pg15, "service=pi sslmode=require") == "u_trust TLSv1.3 127.0.0.1"
    monkeypatch.setenv("PGSERVICE", "pi")
    assert ways(pg15, "") == "u_trust plain 127.0.0.1"
    refusal("service=absent", ServerError, "service-not-found: .*absent")


def test_a_uri_carries_a_password_that_needs_escapes(pg15, ways):
    secret = quote(PASSWORD, safe="")
    uri = f"postgresql://u_scram:{secret}@127.0.0.1:{pg15.port}/postgres"
    assert ways(pg15, f"{uri}?sslmode=disable") == "u_scram plain 127.0.0.1"
    host = quote(str(pg15.folder), safe="")
    uri = f"postgres://u_scram:{secret}@{host}:{pg15.port}/postgres"
    assert ways(pg15, uri) == "u_scram plain socket"


def test_signals_do_not_end_a_login(pg15):
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
    try:
        for dsn in (pg15.dsn(), pg15.tcp(), pg15.tls(sslmode="require")) * 10:
            _engine.find_route(_engine.resolve(dsn, {}))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_of_several_hosts_the_first_that_answers_is_taken(pg15, ways):
    with closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        ports = f"{held.getsockname()[1]},{pg15.port}"
        uri = f"postgresql://u_trust@127.0.0.1:{ports.replace(',', ',127.0.0.1:')}/postgres"
        twice = "127.0.0.1,127.0.0.1"
        for dsn, way in (
            (pg15.tcp(host=twice, port=ports), "plain 127.0.0.1"),
            (f"{uri}?sslmode=disable", "plain 127.0.0.1"),
            (pg15.tcp(host=f"/nonexistent,{pg15.folder}"), "plain socket"),
            (pg15.tcp(host="nosuch.invalid,127.0.0.1"), "plain 127.0.0.1"),
            (pg15.tcp(host=twice, target_session_attrs="read-write"), "plain 127.0.0.1"),
            (pg15.tcp(host=twice, port=ports, load_balance_hosts="random"), "plain 127.0.0.1"),
        ):
            assert ways(pg15, dsn) == f"u_trust {way}", dsn


class Tls(Struct, frozen=True):
    """One row: sslmode and its companions, and what comes of it on the server."""

    mode: str
    expected: str | tuple[type[PgpacesError], str]
    user: str = "u_trust"
    root: str | None = None
    host: str = "localhost"
    more: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        more = " ".join(map("=".join, self.more.items()))
        return f"{self.mode} {self.user} root={self.root} {self.host} {more}"


PLAIN, SECURE = "plain 127.0.0.1", "TLSv1.3 127.0.0.1"
NOT_SIGNED = (TlsError, "certificate-issuer-unknown")
NOT_NAMED = (TlsError, "certificate-of-other-host")
TLS_ROWS = [
    Tls("disable", PLAIN),
    Tls("allow", PLAIN),
    Tls("prefer", SECURE),
    Tls("require", SECURE),
    Tls("verify-ca", (TlsError, "no-root-certificate")),
    Tls("verify-full", (TlsError, "no-root-certificate")),
    # pg_hba.conf wants the other one
    Tls("disable", (AuthError, "no encryption"), "u_hostssl"),
    Tls("allow", SECURE, "u_hostssl"),
    Tls("prefer", SECURE, "u_hostssl"),
    Tls("prefer", PLAIN, "u_hostnossl"),
    Tls("allow", PLAIN, "u_hostnossl"),
    Tls("require", (AuthError, "pg_hba.conf"), "u_hostnossl"),
    # certificates
    Tls("verify-ca", SECURE, root="ca"),
    Tls("verify-full", SECURE, root="ca"),
    Tls("verify-full", SECURE, root="ca", host="127.0.0.1"),
    Tls("verify-ca", SECURE, root="ca", host="pi4.example"),
    Tls("verify-full", NOT_NAMED, root="ca", host="pi4.example"),
    Tls("verify-ca", NOT_SIGNED, root="other_ca"),
    Tls("verify-full", NOT_SIGNED, root="other_ca"),
    Tls("require", SECURE, root="ca", host="pi4.example"),
    Tls("require", NOT_SIGNED, root="other_ca"),
    Tls("prefer", PLAIN, root="other_ca"),
    Tls("prefer", NOT_SIGNED, "u_hostssl", root="other_ca"),
    Tls("require", SECURE, root="absent"),
    Tls("verify-ca", (TlsError, "root-certificate-missing: .*absent"), root="absent"),
    Tls("verify-full", (TlsError, "certificate-issuer-unknown"), root="system"),
    Tls("verify-ca", (ServerError, "system-roots-need-sslmode"), root="system"),
    # versions
    Tls("require", "TLSv1.2 127.0.0.1", more={"ssl_max_protocol_version": "TLSv1.2"}),
    Tls("require", SECURE, more={"ssl_min_protocol_version": "TLSv1.3"}),
    Tls("require", SECURE, more={"ssl_min_protocol_version": "TLSv1"}),
    # only libpq 17 servers take it
    Tls("require", (ServerError, "direct-tls-closed"), more={"sslnegotiation": "direct"}),
    Tls("prefer", (ServerError, "direct-tls-needs-sslmode"), more={"sslnegotiation": "direct"}),
]  # fmt: skip


@pytest.mark.parametrize("row", TLS_ROWS, ids=str)
def test_sslmode_means_what_it_means_to_libpq(pg15, ways, certificates, row):
    words: dict[str, object] = {"host": row.host, "hostaddr": "127.0.0.1", "sslmode": row.mode}
    if row.root is not None:
        words["sslrootcert"] = "system" if row.root == "system" else certificates.crt(row.root)
    dsn = pg15.tcp(row.user, **words, **row.more)
    if isinstance(row.expected, str):
        assert ways(pg15, dsn) == f"{row.user} {row.expected}"
    else:
        refusal(dsn, *row.expected)


def test_sslmode_is_no_concern_of_a_socket(pg15, ways):
    assert ways(pg15, pg15.dsn(sslmode="verify-full")) == "u_trust plain socket"


def test_a_root_certificate_at_home_is_used(pg15, ways, certificates, clean_client):
    (clean_client / ".postgresql").mkdir()
    home = clean_client / ".postgresql/root.crt"
    shutil.copy(certificates.crt("ca"), home)
    dsn = pg15.tls(host="localhost", hostaddr="127.0.0.1", sslmode="verify-full")
    assert ways(pg15, dsn) == f"u_trust {SECURE}"
    shutil.copy(certificates.crt("other_ca"), home)
    refusal(pg15.tls(sslmode="require"), *NOT_SIGNED)


def test_tls_13_is_not_to_be_had_of_a_server_that_stops_at_12(pg15_tls12, ways):
    assert ways(pg15_tls12, pg15_tls12.tls()) == "u_trust TLSv1.2 127.0.0.1"
    dsn = pg15_tls12.tls(ssl_min_protocol_version="TLSv1.3")
    refusal(dsn, TlsError, "tls-failed: ")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("wrong_name verify-ca ca", None),
        ("wrong_name verify-full ca", NOT_NAMED),
        ("wrong_name require -", None),
        ("documented require -", None),
        ("documented verify-ca documented", None),
        ("documented verify-full documented", None),
        ("documented verify-ca ca", (TlsError, "certificate-of-ca")),
        ("common_name_only verify-full ca", None),
        ("version_1 require -", None),
        ("version_1 verify-ca ca", (TlsError, "certificate-of-version-1")),
    ],
)
def test_certificates_as_people_make_them(pg15_tls12, certificates, ways, shown, expected):
    certificate, mode, root = shown.split()
    pg15_tls12.use_certificate(certificate)
    roots = {} if root == "-" else {"sslrootcert": certificates.crt(root)}
    dsn = pg15_tls12.tls(host="localhost", hostaddr="127.0.0.1", sslmode=mode, **roots)
    try:
        if expected is None:
            assert ways(pg15_tls12, dsn) == "u_trust TLSv1.2 127.0.0.1"
        else:
            refusal(dsn, *expected)
    finally:
        pg15_tls12.use_certificate("server")


def test_that_a_load_is_not_encrypted_for_a_reason_of_ours_is_a_warning(
    pg15, certificates, fake_server
):
    dsn = pg15.tls(sslmode="prefer", sslrootcert=certificates.crt("other_ca"))
    why = _engine.find_route(_engine.resolve(dsn, {})).unencrypted
    assert why.name == "certificate-issuer-unknown"
    said = sentence("load-not-encrypted", why=why.message)
    assert engine.probe(engine.resolve(dsn)) == (said,)
    server = fake_server()
    assert not _engine.find_route(_engine.resolve(server.dsn(sslmode="prefer"), {})).unencrypted


def test_a_list_of_revoked_certificates_is_of_no_concern_without_roots(
    pg15, certificates, ways, clean_client
):
    (clean_client / ".postgresql").mkdir()
    (clean_client / ".postgresql/root.crl").write_text("a list\n")
    assert ways(pg15, pg15.tls(sslmode="prefer")) == f"u_trust {SECURE}"
    refusal(
        pg15.tls(sslmode="require", sslrootcert=certificates.crt("ca")),
        TlsError,
        "revocation-lists-unsupported",
    )


def test_a_direct_connection_needs_the_servers_consent_to_the_protocol(certificates):
    """Without it, another program behind the port would be sent what is for PostgreSQL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.crt("server"), certificates.key("server"))
    heard: list[bytes] = []

    def serve(wire: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(wire, server_side=True) as sealed:
            heard.append(sealed.recv(1))

    with answering(serve) as port:
        dsn = f"host=127.0.0.1 port={port} user=u sslmode=require sslnegotiation=direct"
        refusal(dsn, TlsError, "tls-protocol-not-agreed")
    assert heard in ([], [b""])


def test_a_server_without_tls_is_taken_in_plain_only_where_that_is_allowed(fake_server):
    server = fake_server()
    for mode in ("disable", "allow", "prefer"):
        route = _engine.find_route(_engine.resolve(server.dsn(sslmode=mode), {}))
        assert route.server_version == "18.0 (fake)"
    refusal(server.dsn(sslmode="require"), TlsError, "server-refuses-tls")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("u_cert u_cert require", None),
        ("u_cert u_cert prefer", None),
        ("u_other u_other require", (AuthError, "certificate authentication failed")),
        ("- - require", (AuthError, "certificate")),
        ("stranger stranger require", (TlsError, "tls-failed: ")),
        ("u_cert u_cert disable", (AuthError, "no encryption")),
        ("u_cert - require", (TlsError, "client-key-missing")),
        ("u_cert u_other require", (TlsError, "client-certificate-and-key")),
    ],
)
def test_a_client_certificate_is_shown_and_judged_by_the_server(
    pg15, certificates, ways, shown, expected
):
    name, key, mode = shown.split()
    pair = {} if name == "-" else {"sslcert": certificates.crt(name)}
    pair |= {} if key == "-" else {"sslkey": certificates.key(key)}
    dsn = pg15.tls("u_cert", sslmode=mode, **pair)
    if expected is None:
        assert ways(pg15, dsn) == f"u_cert {SECURE}"
    else:
        refusal(dsn, *expected)


def test_client_certificates_at_home_are_used(pg15, certificates, ways, clean_client):
    folder = clean_client / ".postgresql"
    folder.mkdir()
    shutil.copy(certificates.crt("u_cert"), folder / "postgresql.crt")
    shutil.copy(certificates.key("u_cert"), folder / "postgresql.key")
    assert ways(pg15, pg15.tls("u_cert")) == f"u_cert {SECURE}"
    refusal(pg15.tls("u_cert", sslcertmode="disable"), AuthError, "certificate")


@pytest.mark.parametrize(
    ("mode", "words", "expected"),
    [
        ("allow", {"sslrootcert": "/etc/passwd"}, PLAIN),
        ("prefer", {"sslrootcert": "/etc/passwd"}, PLAIN),
        ("prefer", {"host": "bad_name!"}, SECURE),
        ("require", {"host": "bad_name!"}, SECURE),
    ],
    ids=["allow, no root", "prefer, no root", "prefer, odd name", "require, odd name"],
)
def test_what_tls_lacks_matters_only_where_tls_is_needed_as_in_libpq(
    pg15, ways, mode, words, expected
):
    dsn = pg15.tls(**({"host": "localhost", "hostaddr": "127.0.0.1", "sslmode": mode} | words))
    assert ways(pg15, dsn) == f"u_trust {expected}"


@pytest.mark.parametrize(
    ("way", "insisted", "refused"),
    [
        ("tls u_scram", "channel_binding=require", None),
        ("tls u_scram", "channel_binding=prefer", None),
        ("tls u_scram", "channel_binding=disable", None),
        ("tcp u_scram", "channel_binding=require", "channel-binding-needs-tls"),
        ("dsn u_scram", "channel_binding=require", "channel-binding-needs-tls"),
        ("tls u_md5", "channel_binding=require", "channel-binding-needs-scram"),
        ("tls u_trust", "channel_binding=require", "channel-binding-needs-scram"),
        ("tcp u_scram", "require_auth=scram-sha-256", None),
        ("tcp u_scram", "require_auth=!password,!md5", None),
        ("tcp u_scram", "require_auth=!scram-sha-256", "login-method-not-allowed"),
        ("tcp u_scram", "require_auth=md5", "login-method-not-allowed"),
        ("tcp u_md5", "require_auth=md5", None),
        ("tcp u_password", "require_auth=!password", "login-method-not-allowed"),
        ("tcp u_trust", "require_auth=none", None),
        ("tcp u_trust", "require_auth=scram-sha-256", "login-method-not-allowed"),
    ],
)  # fmt: skip
def test_a_server_cannot_talk_us_out_of_what_we_insist_on(pg15, ways, way, insisted, refused):
    transport, user = way.split()
    dsn = f"{getattr(pg15, transport)(user, password=PASSWORD)} {insisted}"
    if refused is None:
        assert ways(pg15, dsn).startswith(user)
    else:
        refusal(dsn, AuthError, refused)


@pytest.mark.parametrize(
    ("binding", "gets_in"), [("disable", True), ("prefer", False), ("require", False)]
)
def test_a_man_in_the_middle_breaks_the_channel_binding(pg15, certificates, binding, gets_in):
    """He has a certificate of his own, and passes everything on through TLS."""
    with man_in_the_middle(pg15.port, certificates) as port:
        dsn = pg15.tls("u_scram", port=port, password=PASSWORD, channel_binding=binding)
        if gets_in:
            assert _engine.find_route(_engine.resolve(dsn, {})).server_version
        else:
            refusal(dsn, AuthError, "login-rejected: .*channel binding")


def authentication(code: int, rest: bytes = b"") -> bytes:
    return frame(b"R", struct.pack(">I", code) + rest)


def parameter(name: bytes, value: bytes) -> bytes:
    return frame(b"S", name + b"\0" + value + b"\0")


READY = frame(b"Z", b"I")
LET_IN = authentication(0) + parameter(b"server_version", b"18.0")
WELCOME = LET_IN + frame(b"K", bytes(8)) + READY


class Scripted(Struct):
    """A server that says the same lines to everybody, each after it was spoken to."""

    port: int
    heard: list[bytes]

    def dsn(self, **more: object) -> str:
        words = {"host": "127.0.0.1", "port": self.port, "user": "u", "dbname": "d"}
        return quoted(words | {"sslmode": "disable", "password": PASSWORD} | more)


@pytest.fixture
def serve(clean_client):
    with ExitStack() as stack:

        def start(*lines: bytes, endless: bytes = b"") -> Scripted:
            heard: list[bytes] = []

            def talk(wire: socket.socket) -> None:
                for line in lines:
                    if not (words := wire.recv(65536)):
                        return
                    heard.append(words)
                    wire.sendall(line)
                while endless:
                    wire.sendall(endless)

            return Scripted(stack.enter_context(answering(talk)), heard)

        yield start


no_place = partial(ServerError, "message-out-of-place", place="login")
TOO_LONG = ServerError("message-length-wrong", type="E", bytes=2**31 - 1, most=2**20)
NEWER = ServerError("protocol-version-unsupported", version="3.2")
REFUSED: dict[str, tuple[bytes, PgpacesError]] = {
    "the longest length": (b"E\x7f\xff\xff\xff", TOO_LONG),
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", no_place(type="H")),
    "ready early": (READY, no_place(type="Z")),
    "protocol 3.2": (frame(b"v", struct.pack(">II", 0x30002, 0)), NEWER),
    # CVE-2021-23222: what came before encryption must not be read as if it were encrypted.
    "clear text behind TLS": (b"S" + WELCOME, TlsError("ssl-request-answer-too-long")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_login_is_refused_with_what_was_found(serve, name):
    said, error = REFUSED[name]
    sslmode = "require" if isinstance(error, TlsError) else "disable"
    found = refusal(serve(said).dsn(sslmode=sslmode), type(error), error.name)
    assert found.values == error.values


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(frame(b"N", b"SNOTICE\0Mflood\0\0") * 2000, id="notices"),
        pytest.param(parameter(b"application_name", b"x" * 900) * 100, id="parameters"),
    ],
)
def test_a_login_without_end_ends_with_the_connection_time_out(serve, endless):
    server = serve(LET_IN, endless=endless)
    began = time.monotonic()
    refusal(server.dsn(connect_timeout=2), ServerError, "no-answer-in-time")
    assert time.monotonic() - began < 60


def test_a_server_that_turns_hostile_fails_transactions_and_not_the_run(serve, run_load):
    for said, words in (
        (READY, sentence("ready-without-answer")),
        (frame(b"V", bytes(4)), sentence("message-out-of-place", type="V", place="session")),
        (b"D\0\0\0\3", sentence("message-length-wrong", type="D", bytes=3, most=2**31 - 1)),
        (frame(b"E", b"SERROR"), sentence("message-malformed", type="E")),
    ):
        server = serve(WELCOME, said)
        outcome = run_load(server.dsn(), "SELECT 1;", clients=1, transactions=3)
        assert (outcome.failed, outcome.disconnects) == ({"08P01": 3}, 3)
        assert outcome.messages["08P01"] == words


@pytest.mark.parametrize("name", ["the longest length", "ready early", "protocol 3.2"])
def test_the_command_ends_with_a_sentence_and_a_hint(serve, tmp_path, pgpaces, name):
    said, error = REFUSED[name]
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;\n")
    ended = pgpaces("run", "--file", script, "--target", serve(said).dsn(), "-T", "1s")
    assert (ended.code, ended.out) == (error.exit_code, ""), ended.err
    assert error.message in re.sub(r"\s+", " ", ended.err)
    assert "hint: " in ended.err
