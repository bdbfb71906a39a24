"""How many queries a transaction sends, and so a trial."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.analysis.summary import summarize, volume_of
from pgpaces.core.record import Interval, Tally
from pgpaces.spec.result import Trial
from pgpaces.spec.workload import WorkloadScript, commands_in
from pgpaces.trial.record import queries_of
from tests.unit.sure import sure
from tests.unit.trials import SECOND_NS, series


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("SELECT 1;", 1),
        ("\\set a 1\nBEGIN;\nSELECT :a; SELECT ';';\nEND;\n", 4),
        ("\\startpipeline\nSELECT 1;\nSELECT 2;\n\\endpipeline\n", 2),
        ("\\if :scale > 1\nSELECT 1;\n\\endif\n", None),
        ("SELECT 1\\; SELECT 2\\; SELECT 3;", None),
        ("\\sleep 1 ms", 0),
    ],
)
def test_queries_are_counted_where_their_number_is_sure(text, queries):
    script = WorkloadScript("s", 1, text)
    assert queries_of(script, commands_in("s", text)) == queries


def test_an_author_knows_better():
    assert queries_of(WorkloadScript("s", 1, "def s(): ...", queries=3), []) == 3
    assert queries_of(WorkloadScript("s", 1, "pg_restore d"), []) is None


def sending(queries: int | None, **changes: Any) -> Trial:
    script = {"name": "a", "weight": 1, "commands": [], "queries": queries}
    return series([[1.0] * 10] * 4, workload={"scripts": [script]}, **changes)


def test_so_many_a_second_are_so_many_a_minute_and_a_day():
    one = sending(3)
    found = sure(volume_of(one, summarize(one)))
    assert (found.seconds, found.queries) == (4, 120)
    assert (found.per_s.value, found.per_minute.value) == (30, 1800)
    assert found.per_day.value == 30 * 86_400


def test_what_is_served_behind_the_end_is_in_no_number_of_queries():
    """Else so many in so many seconds would be other than so many a minute."""
    late = Interval(4, tallies=(Tally(3, 0, due=20, late=20),), ended_ns=5 * SECOND_NS)
    whole = sending(3)
    one = replace(whole, intervals=(*whole.intervals, late))
    found = volume_of(one, summarize(one))
    assert summarize(one).counts.late == 20
    assert found is not None
    assert found.queries == pytest.approx(found.per_minute.value * found.seconds / 60)


def test_a_script_that_does_not_say_leaves_it_unknown():
    silent = sending(None)
    assert volume_of(silent, summarize(silent)) is None


def test_so_many_in_so_many_seconds_are_of_the_seconds_that_the_rate_counts():
    """A trial that ends within a second, as one that is interrupted."""
    last = Interval(
        4, tallies=(Tally(4, 0, due=7, on_time=7),), ended_ns=4 * SECOND_NS + 700_000_000
    )
    whole = sending(1)
    one = replace(
        whole, intervals=(*whole.intervals, last), measured_ns=4 * SECOND_NS + 700_000_000
    )
    found = sure(volume_of(one, summarize(one)))
    assert found.seconds == 4
    assert found.queries == pytest.approx(found.per_minute.value * found.seconds / 60)
