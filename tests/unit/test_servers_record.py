"""A server's address as a conninfo string and PG* variables, and its record as JSON."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.server import record
from pgpaces.server.record import ServerRecord, Transport

ON_SOCKET = ServerRecord(
    name="pg18",
    version="18.6",
    major=18,
    bin=Path("/pg/bin"),
    socket_dir=Path("/home/x/run"),
    port=5432,
    data_dir=Path("/home/x/data"),
    pid=4711,
    owner_pid=4700,
    stays=False,
    settings={"work_mem": "64MB"},
)
ON_TCP = replace(ON_SOCKET, port=5433, tcp_host="127.0.0.1", password_file=Path("/home/x/pgpass"))


def test_the_dsn_names_socket_folder_port_user_and_database() -> None:
    assert ON_SOCKET.dsn() == "host=/home/x/run port=5432 user=postgres dbname=postgres"


def test_the_dsn_of_tcp_names_a_password_file_and_no_password() -> None:
    dsn = ON_TCP.dsn("bench", Transport.TCP)
    assert dsn == (
        "host=127.0.0.1 port=5433 user=postgres dbname=bench passfile=/home/x/pgpass"
        " sslmode=disable"
    )


def test_with_a_certificate_tcp_is_verified_in_full() -> None:
    server = replace(ON_TCP, certificate=Path("/home/x/tls.crt"))
    assert server.dsn(transport=Transport.TCP).endswith(
        "sslmode=verify-full sslrootcert=/home/x/tls.crt"
    )
    variables = server.environment(transport=Transport.TCP)
    assert variables["PGSSLMODE"] == "verify-full"
    assert variables["PGSSLROOTCERT"] == "/home/x/tls.crt"
    assert "sslmode" not in server.dsn()


def test_the_environment_is_what_libpq_programs_read() -> None:
    assert ON_SOCKET.environment("bench") == {
        "PGHOST": "/home/x/run",
        "PGPORT": "5432",
        "PGUSER": "postgres",
        "PGDATABASE": "bench",
    }
    assert ON_TCP.environment(transport=Transport.TCP)["PGPASSFILE"] == "/home/x/pgpass"


def test_a_server_without_tcp_has_no_tcp_address() -> None:
    with pytest.raises(ValueError, match="without TCP"):
        ON_SOCKET.dsn(transport=Transport.TCP)


def test_the_password_in_its_file_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "pgpass"
    file.write_text("*:*:*:postgres:s3cret\n")
    server = replace(ON_TCP, password_file=file)
    assert "s3cret" not in repr(server) + record.to_json(server) + server.dsn()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_every_name_of_a_database_survives_quoting(dbname: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    assert conninfo_to_dict(ON_SOCKET.dsn(dbname))["dbname"] == dbname


@pytest.mark.parametrize(
    "server", [ON_SOCKET, ON_TCP, replace(ON_TCP, certificate=Path("/home/x/tls.crt"))]
)
def test_a_record_comes_back_from_its_file(server: ServerRecord) -> None:
    assert record.from_json(record.to_json(server)) == server


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 2, "name": "pg18"}'])
def test_a_torn_or_foreign_record_is_no_record(text: str) -> None:
    assert record.from_json(text) is None
