"""Every test here runs once with each pgbench that there is."""

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.side_by_side import PGBENCH, Bench
from tests.needs import check


@pytest.fixture(params=PGBENCH)
def pgbench_version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    if version == "15":
        check("PostgreSQL 15")
    return version


@pytest.fixture
def bench(
    pgbench_version: str, fake_server: Any, start_load: Any, tmp_path: Path, clean_client: Path
) -> Bench:
    assert clean_client.exists()
    return Bench(PGBENCH[pgbench_version], fake_server(), start_load, tmp_path)
