"""A store with damaged rows: a StoreError with a sentence, or a trial that can be; no traceback."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis.summary import as_json, summarize
from pgpaces.cli.main import cli
from pgpaces.core.errors import StoreError
from pgpaces.core.record import Tally
from pgpaces.store.store import Store
from tests.unit.full_second import INTERVAL, TIMES, histogram, trial
from tests.unit.trials import like

SCRIPT = {"name": "one", "weight": 1, "commands": [[n, "SELECT 1", True] for n in range(3)]}
COLUMNS = {
    "trial": ("state", "started_at", "heartbeat", "plan", "workload", "server", "host",
              "measured_ns", "notes", "summary"),
    "interval": ("second", "cpu_ns", "in_flight_ns", "ended_ns", "connects", "messages",
                 "aborted", "dispatch_count", "dispatch_histogram"),
    "tally": ("second", "due_second", "script", "due", "on_time", "late", "failed",
              "latency_count", "latency_sum_ns", "latency_square_sum", "lag_max_ns",
              "service_histogram"),
    "statement": ("second", "script", "command", "failed", "times_count", "times_histogram"),
}  # fmt: skip
PLACES = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with one trial of one second."""
    store = Store.open(tmp_path_factory.mktemp("whole") / "results.db")
    begun = trial()
    begun = replace(begun, workload=like(begun.workload, scripts=[SCRIPT, SCRIPT]))
    store.begin(begun)
    tally = Tally(4, 0, 3, on_time=3, latency=TIMES, lag=TIMES, service=TIMES)
    store.add(begun.id, replace(INTERVAL, tallies=(tally,)))
    with sqlite3.connect(store.path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store.path


@pytest.fixture
def stored(whole: Path, tmp_path: Path) -> Store:
    return Store.open(Path(shutil.copy(whole, tmp_path / "results.db")))


def damage(store: Store, table: str, column: str, value: Any) -> None:
    with sqlite3.connect(store.path) as other:
        other.execute("PRAGMA synchronous = OFF")
        other.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))


def read(store: Store) -> str:
    """Reads all there is as the commands do; what is wrong with it."""
    try:
        for row in store.trials():
            if row.damage:
                return f"damaged: {row.damage}"
            json.dumps(as_json(summarize(store.load(row.id))))
    except StoreError as error:
        return str(error)
    return ""


def test_a_store_that_is_whole_is_read(stored: Store) -> None:
    assert read(stored) == ""


DAMAGES: dict[str, tuple[str, str, Any, str]] = {
    "a second far away": ("tally", "due_second", 1_066_394_331, "its seconds are from"),
    "no JSON": ("trial", "plan", "{", "damaged"),
    "JSON of something else": ("trial", "plan", "[1]", "damaged"),
    "JSON without end": ("trial", "notes", "[" * 100_000, "damaged"),
    "no name": ("trial", "workload", "{}", "damaged"),
    "no scripts": ("trial", "workload", '{"name": "x"}', "missing required field `scripts`"),
    "a date that is none": ("trial", "started_at", "yesterday", "damaged"),
    "an unknown state": ("trial", "state", "won", "its state is 'won'"),
    "a negative count": ("tally", "due", -1, "second 4: due is -1, and cannot be negative"),
    "a text for a count": ("tally", "late", "many", "late is 'many', expected int"),
    "a script that is not there": ("tally", "script", 7, "script 7 does not exist"),
    "no histogram": ("tally", "lag_histogram", "x", "lag histogram is 'x', expected bytes"),
    "another count": ("tally", "lag_count", 9, "counts 9 times, and its histogram 3"),
    "half a histogram": ("interval", "dispatch_histogram", TIMES.histogram[:-1], "and says"),
    "another histogram": ("interval", "dispatch_histogram", histogram(1), "its histogram 1"),
    "a histogram of 4 GB": (
        "interval", "dispatch_histogram", TIMES.histogram[:4] + b"\xff" * 4, "too few",
    ),
    "infinite squares": ("tally", "lag_square_sum", float("inf"), "squares are inf"),
    "messages that are no pairs": ("interval", "messages", "[false]", "expected tuple"),
    "a message without a text": ("interval", "messages", '[["a"]]', "expected a pair"),
    "failures that are a list": ("tally", "failed", "[]", "failed is (), expected dict"),
    "a missing interval": ("interval", "second", 5, "has counts and no interval"),
    "a command that is not there": ("statement", "command", 3, "command 3 does not exist"),
    "a summary that is none": ("trial", "summary", "[]", "damaged"),
    "a share of two": ("trial", "summary", '{"missed_share": [1, 2]}', "expected three numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(stored: Store, name: str) -> None:
    table, column, value, words = DAMAGES[name]
    damage(stored, table, column, value)
    assert words in read(stored)


@pytest.mark.parametrize(
    "command", ["runs", "show last", "export last", "export last --format json"]
)
def test_the_commands_say_it_in_a_sentence(stored: Store, command: str) -> None:
    damage(stored, "trial", "plan", "{")
    done = CliRunner().invoke(cli, [*command.split(), "--store", str(stored.path)])
    assert done.exception is None or isinstance(done.exception, StoreError)
    assert "damaged" in (str(done.exception) + done.output)


ANYTHING = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=20).filter(lambda text: "\0" not in text),
    st.binary(max_size=60),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=6,
    ).map(json.dumps),
    st.integers(0, len(TIMES.histogram)).map(lambda end: TIMES.histogram[:end]),
)


@settings(max_examples=200, deadline=None)
@given(place=st.sampled_from(PLACES), value=ANYTHING)
def test_whatever_stands_in_a_row_there_is_no_traceback(
    whole: Path, place: tuple[str, str], value: Any
) -> None:
    path = Path(shutil.copy(whole, whole.with_name("damaged.db")))
    store = Store.open(path)
    damage(store, *place, value)
    read(store)
    store.close()
    for left in path.parent.glob("damaged.db*"):
        left.unlink(missing_ok=True)
