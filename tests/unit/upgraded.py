"""A made-up version 2 of the store, for tests of upgrades in both databases."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgpaces.core.errors import StoreVersionError
from pgpaces.core.findings import Finding
from pgpaces.store import upgrades
from pgpaces.store.connection import Connection
from pgpaces.store.store import Store
from tests.errors import raises

STATEMENTS = (
    "ALTER TABLE trial ADD COLUMN remark TEXT NOT NULL DEFAULT 'none'",
    "CREATE TABLE remark (trial VARCHAR(26) PRIMARY KEY)",
    "INSERT INTO remark SELECT id FROM trial",
    'UPDATE trial SET notes = \'[{"name": "of-version-2"}]\'',
)
# A process that upgrades the store at its argument.
CODE = """
import sys
from pgpaces.store import upgrades
from pgpaces.store.store import Store
from tests.unit.upgraded import to_version_2
upgrades.UPGRADES = (to_version_2,)
Store.open(sys.argv[1])
"""


def to_version_2(connection: Connection) -> None:
    for statement in STATEMENTS:
        connection.execute(statement)


def cut(connection: Connection) -> None:
    """What follows an upgrade that is interrupted."""
    raise KeyboardInterrupt


def layout(store: Store) -> tuple[int, int]:
    """The version of a store, and how many parts of `to_version_2` are in it."""
    with store._backend.reading() as connection:
        query = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'remark'"
        query += " OR table_name = 'remark'"
        if connection.sqlite:
            query = (
                "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND sql LIKE '%remark%'"
            )
        [version], [parts] = (
            connection.column("SELECT version FROM pgpaces"),
            connection.column(query),
        )
        return version, parts


def check_upgrade(place: Path | str, trial_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted upgrade of a store with a trial changes nothing; the next one is whole."""
    store = Store.existing(place)
    before = store.load(trial_id)
    with monkeypatch.context() as patch:
        patch.setattr(upgrades, "UPGRADES", (to_version_2, cut))
        with pytest.raises(KeyboardInterrupt):
            Store.existing(place)
        assert layout(store) == (1, 0)
        patch.setattr(upgrades, "UPGRADES", (to_version_2,))
        loaded = Store.existing(place).load(trial_id)
    assert layout(store) == (2, 2)
    assert loaded == replace(before, notes=(Finding("of-version-2"),))
    with raises(StoreVersionError, "store-of-newer", version=2, newest=1):
        Store.existing(place)


def check_upgrades_at_once(store: Store, place: Path | str) -> None:
    """Several processes may open one store of version 1, and it is upgraded once."""
    words = [sys.executable, "-c", CODE, str(place)]
    started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1] for process in started] == [""] * 4
    assert layout(store) == (2, 2)
