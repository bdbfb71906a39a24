"""Every test here runs once with each pgbench that there is, against one fake server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.side_by_side import PGBENCH, Bench
from tests.fake_server import FakeServer, running_fake_server
from tests.needs import check


@pytest.fixture(params=PGBENCH)
def pgbench_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    if version == "15":
        check("PostgreSQL 15")
    return version


@pytest.fixture(scope="session")
def recording_server(
    fake_server_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FakeServer]:
    """The fake server of all tests here."""
    with running_fake_server(fake_server_program, tmp_path_factory.mktemp("fake")) as server:
        yield server


@pytest.fixture
def bench(
    pgbench_version: str,
    recording_server: FakeServer,
    start_load: Any,
    tmp_path: Path,
    clean_client: Path,
) -> Bench:
    assert clean_client.exists()
    return Bench(PGBENCH[pgbench_version], recording_server, start_load, tmp_path)
