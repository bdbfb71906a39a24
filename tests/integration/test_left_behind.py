"""What a kill left of our databases is dropped by whoever comes next, and nothing else is."""

import shutil
from contextlib import closing

import pytest
from msgspec.structs import replace
from tests.errors import raises
from tests.integration.datasets import names, owned, prepared, spec
from tests.servers import access_to

from pgpaces.core.errors import PrepareError
from pgpaces.core.messages import message
from pgpaces.database import data, ownership
from pgpaces.database.access import LOCK_CLASS, Access, connect

pytestmark = pytest.mark.postgres
NEW = "pgpaces_new_0123456789abcdef"


@pytest.fixture
def access(pg15, tmp_path, monkeypatch):
    monkeypatch.setenv("PGPACES_HOME", str(tmp_path))
    yield access_to(pg15)
    pg15.execute(f"DROP DATABASE IF EXISTS {NEW}")
    ownership.clean(access_to(pg15))


def next_run(access: Access) -> None:
    with prepared(access):
        pass


def next_user(access: Access, by: str) -> None:
    """The next run, or who cleans up."""
    if by == "run":
        next_run(access)
    else:
        ownership.clean(access)


BY = pytest.mark.parametrize("by", ["run", "clean"])


MADE = f"CREATE DATABASE {NEW} CONNECTION LIMIT {LOCK_CLASS}"


def test_an_unfinished_database_that_no_process_makes_any_more_is_dropped(pg15, access):
    pg15.execute(MADE)
    next_run(access)
    assert NEW not in names(pg15)


@BY
def test_a_database_that_a_process_is_making_is_left_alone(pg15, access, by):
    pg15.execute(MADE)
    with closing(pg15.connect()) as maker:
        maker.execute(f"SELECT pg_advisory_lock({LOCK_CLASS}, hashtext('{NEW}'))")
        next_user(access, by)
    assert NEW in names(pg15)


@BY
def test_a_database_without_a_mark_is_left_alone(pg15, access, by):
    """Though it bears a name of ours: nobody knows whose it is, and it is in nobody's way."""
    pg15.execute(f"CREATE DATABASE {NEW}")
    next_user(access, by)
    assert NEW in names(pg15)


def test_a_marked_database_without_its_name_goes_once_no_backend_makes_it(pg15, access):
    pg15.execute(f"CREATE DATABASE {NEW}")
    owned(access, NEW, "preparing")
    with connect(access) as admin:
        admin.execute(f"SELECT pg_advisory_lock({LOCK_CLASS}, hashtext('{NEW}'))".encode())
        next_run(access)
        ownership.clean(access)
        assert NEW in names(pg15)
    next_run(access)
    assert NEW not in names(pg15)


def test_copies_and_unfinished_data_go_once_no_process_holds_them(pg15, access):
    with prepared(access, "tpcb-like", seed=93) as made:
        next_run(access)
        assert made.dbname in names(pg15), "another run of ours is using it"
    unfinished = "pgpaces_unfinished_0123456789"
    for name, state in ((made.dbname, "copy"), (unfinished, "preparing")):
        pg15.execute(f"CREATE DATABASE {name}")
        owned(access, name, state, fingerprint=made.fingerprint)
    heard: list[str] = []
    with data.prepare(access, spec(), heard.append):
        assert not {made.dbname, unfinished} & names(pg15)
    assert message("leftover-dropped", dbname=made.dbname) in heard, heard


def test_a_database_that_was_handed_over_stays_whatever_its_state(pg15, access):
    name = "pgpaces_handed_over"
    with pg15.meanwhile(f"CREATE DATABASE {name}", f"DROP DATABASE {name}"):
        owned(access, name, "preparing", own=True)
        next_run(access)
        ownership.clean(access)
        assert name in names(pg15)


def test_what_another_role_left_is_left_to_it(pg15, access):
    name = "pgpaces_left_0000000000_run"
    pg15.execute(f"CREATE DATABASE {name}")
    owned(access, name, "copy")
    may_create = pg15.meanwhile("ALTER ROLE u_trust CREATEDB", "ALTER ROLE u_trust NOCREATEDB")
    with may_create, prepared(access_to(pg15, "u_trust"), seed=91):
        assert name in names(pg15)


def test_a_database_whose_drop_broke_off_is_made_anew(pg15, access):
    """The server lets no session into it, and its ownership is still there."""
    with prepared(access, seed=92) as made:
        pass
    pg15.execute(f"UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{made.dbname}'")
    with prepared(access, seed=92) as again:
        assert (again.dbname, again.created) == (made.dbname, True)


def test_a_copy_whose_drop_broke_off_after_its_files_were_gone_is_dropped(pg15, access):
    name = "pgpaces_half_dropped_run"
    pg15.execute(f"CREATE DATABASE {name}")
    owned(access, name, "copy")
    [(oid,)] = pg15.execute(f"SELECT oid FROM pg_database WHERE datname = '{name}'")
    pg15.execute(f"UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{name}'")
    shutil.rmtree(pg15.data / "base" / str(oid))
    assert ownership.clean(access) >= 0
    assert name not in names(pg15)


def test_a_database_that_another_drops_in_the_meantime_stops_no_cleaning(pg15, access, monkeypatch):
    for name in ("pgpaces_a", "pgpaces_b"):
        pg15.execute(f"CREATE DATABASE {name}")
        owned(access, name, "ready")
    locked = ownership.locked

    def dropped_now(locks, name):
        if name == "pgpaces_a":
            pg15.execute("DROP DATABASE pgpaces_a")
        return locked(locks, name)

    monkeypatch.setattr(ownership, "locked", dropped_now)
    ownership.clean(access)
    assert not {"pgpaces_a", "pgpaces_b"} & names(pg15)


def test_databases_of_other_roles_or_in_use_keep_no_other_from_being_dropped(pg15, access):
    role = replace(access, keywords={**access.keywords, "options": "-c role=cleaner"})
    owners = {"pgpaces_a": "postgres", "pgpaces_b": "cleaner", "pgpaces_c": "cleaner"}
    pg15.execute("CREATE ROLE cleaner CREATEDB")
    with connect(access) as admin:
        for name, owner in owners.items():
            admin.execute(f"CREATE DATABASE {name} OWNER {owner}".encode())
            owned(access, name, "ready")
    pg15.execute("REVOKE CONNECT ON DATABASE pgpaces_a FROM public")
    try:
        with (
            connect(role, "pgpaces_b"),
            raises(PrepareError, "databases-in-use", databases=["pgpaces_b"]),
        ):
            ownership.clean(role)
        assert names(pg15) & owners.keys() == {"pgpaces_a", "pgpaces_b"}
        assert ownership.clean(role) > 0
        assert names(pg15) & owners.keys() == {"pgpaces_a"}
    finally:
        ownership.clean(access)
        pg15.execute("DROP ROLE cleaner")
