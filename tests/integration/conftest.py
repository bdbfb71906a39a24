"""What the tests against PostgreSQL share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def server(pg15: Any) -> Iterator[Any]:
    """PostgreSQL with room for tables, which are dropped at the end."""
    pg15.execute("CREATE SCHEMA work AUTHORIZATION u_trust")
    pg15.execute("ALTER ROLE u_trust SET search_path = work, public")
    yield pg15
    pg15.execute("ALTER ROLE u_trust RESET search_path")
    pg15.execute("DROP SCHEMA work CASCADE")


@pytest.fixture
def make(server: Any) -> Any:
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
