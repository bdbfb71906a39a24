"""What the tests against PostgreSQL share."""

import os

import pytest
from tests.folders import open_folder
from tests.integration.cages import SITE, Cage
from tests.servers import access_to

from pgpaces.database.access import Access
from pgpaces.server import managed_server
from pgpaces.server.folder import ServerFolder

GONE_S = 60.0


@pytest.fixture
def empty_home(monkeypatch):
    """A home without servers; those that a test leaves are stopped."""
    with open_folder("pgpaces-test-") as path:
        monkeypatch.setenv("PGPACES_HOME", str(path))
        yield path
        for server in managed_server.running():
            server.stop()
        for lock_file in path.glob("**/lock"):
            if (lock := ServerFolder(lock_file.parent).lock(GONE_S)) is not None:
                os.close(lock)


@pytest.fixture(scope="module")
def server(pg15):
    """PostgreSQL with room for tables, which are dropped at the end."""
    pg15.execute("CREATE SCHEMA work AUTHORIZATION u_trust")
    pg15.execute("ALTER ROLE u_trust SET search_path = work, public")
    yield pg15
    pg15.execute("ALTER ROLE u_trust RESET search_path")
    pg15.execute("DROP SCHEMA work CASCADE")


@pytest.fixture
def make(server):
    """Make tables, sequences and functions, anew for every test."""

    def make(*statements: str) -> None:
        server.execute("DROP SCHEMA work CASCADE")
        server.execute("CREATE SCHEMA work AUTHORIZATION u_trust")
        with server.connect() as connection:
            connection.execute("SET search_path = work, public")
            for statement in statements:
                connection.execute(statement.encode())
            connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA work TO u_trust")
            connection.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA work TO u_trust")

    return make


@pytest.fixture(scope="session")
def pg18(pgpaces_home):
    """The embedded PostgreSQL, as its superuser."""
    from pgpaces.load import engine
    from pgpaces.server import binaries, managed_server

    spec = managed_server.ServerSpec(binaries.find(), name="for-tests", settings={"fsync": "off"})
    with managed_server.start(spec) as server:
        keywords = dict(engine.resolve(server.dsn()).keywords)
        yield Access(keywords, server.bin / "psql")


@pytest.fixture
def short_count(monkeypatch):
    """A capture counts the calls of a second, not of ten."""
    from pgpaces.capture import make

    monkeypatch.setattr(make, "COUNTED_S", 1.0)


@pytest.fixture(params=["15", "18"])
def access(request):
    """The way to each of the servers, as superuser."""
    if request.param == "18":
        found: Access = request.getfixturevalue("pg18")
        return found
    return access_to(request.getfixturevalue("pg15"))


@pytest.fixture
def cage(pgpaces_home, tmp_path):
    made = Cage(pgpaces_home, tmp_path / "kept", tmp_path / "given")
    made.kept.mkdir()
    made.given.mkdir()
    (made.given / "sitecustomize.py").write_text(SITE)
    return made
