"""A made-up version 2 of the store, for tests of upgrades in both databases."""

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from pgpaces.core.errors import StoreVersionError
from pgpaces.core.findings import Finding
from pgpaces.store import upgrades
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


def to_version_2(connection: sa.Connection) -> None:
    for statement in STATEMENTS:
        connection.exec_driver_sql(statement)


def cut(connection: sa.Connection) -> None:
    """What follows an upgrade that is interrupted."""
    raise KeyboardInterrupt


def layout(engine: sa.Engine) -> tuple[int, set[str]]:
    """The version of a store, and what of `to_version_2` is in it."""
    with engine.connect() as connection:
        version = connection.exec_driver_sql("SELECT version FROM pgpaces").scalar_one()
        inspector = sa.inspect(connection)
        columns = {f"trial.{column['name']}" for column in inspector.get_columns("trial")}
        return version, (columns | {*inspector.get_table_names()}) & {"trial.remark", "remark"}


def check_upgrade(place: Path | str, trial_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted upgrade of a store with a trial changes nothing; the next one is whole."""
    store = Store.existing(place)
    before, engine = store.load(trial_id), store._backend.engine
    with monkeypatch.context() as patch:
        patch.setattr(upgrades, "UPGRADES", (to_version_2, cut))
        with pytest.raises(KeyboardInterrupt):
            Store.existing(place)
        assert layout(engine) == (1, set())
        patch.setattr(upgrades, "UPGRADES", (to_version_2,))
        loaded = Store.existing(place).load(trial_id)
    assert layout(engine) == (2, {"remark", "trial.remark"})
    assert loaded == replace(before, notes=(Finding("of-version-2"),))
    with raises(StoreVersionError, "store-of-newer", version=2, newest=1):
        Store.existing(place)


def check_upgrades_at_once(store: Store, place: Path | str) -> None:
    """Several processes may open one store of version 1, and it is upgraded once."""
    words = [sys.executable, "-c", CODE, str(place)]
    started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[1] for process in started] == [""] * 4
    assert layout(store._backend.engine) == (2, {"remark", "trial.remark"})
