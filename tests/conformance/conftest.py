"""Every test here runs once with each pgbench that there is, against one fake server."""

import pytest
from tests.conformance.side_by_side import PGBENCH, Bench
from tests.fake_server import running_fake_server
from tests.needs import check


@pytest.fixture(params=PGBENCH)
def pgbench_version(request):
    version: str = request.param
    if version == "15":
        check("PostgreSQL 15")
    return version


@pytest.fixture(scope="session")
def recording_server(fake_server_program, tmp_path_factory):
    """The fake server of all tests here."""
    with running_fake_server(fake_server_program, tmp_path_factory.mktemp("fake")) as server:
        yield server


@pytest.fixture
def bench(pgbench_version, recording_server, start_load, tmp_path, clean_client):
    assert clean_client.exists()
    return Bench(PGBENCH[pgbench_version], recording_server, start_load, tmp_path)
