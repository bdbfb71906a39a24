"""Connections that were lost: what an answer says of them, and which trials are run again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.analysis.summary import summarize
from pgpaces.answers.trials import outages
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, Tally
from pgpaces.load import engine
from pgpaces.spec.design import Design, Experiment, Factor
from pgpaces.spec.result import Place
from pgpaces.store.store import Store
from pgpaces.trial import sweep
from pgpaces.trial.recorder import brief
from tests.unit.trials import trial

MS = 1_000_000
WHOLE = Interval(0, tallies=(Tally(0, 0, due=1, on_time=1),))


@pytest.mark.parametrize(
    ("intervals", "said"),
    [
        (
            (
                replace(WHOLE, disconnects=8, down=8, some_down_ns=900 * MS, all_down_ns=900 * MS),
                Interval(1, down=8, some_down_ns=1000 * MS, all_down_ns=1000 * MS),
                Interval(2, outages=8, outage_ns_max=2100 * MS, some_down_ns=250 * MS,
                         all_down_ns=100 * MS),
            ),
            "8 lost, longest outage 2.1 s, no client connected for 2.0 s,"
            " all back after 2.1 s",
        ),
        (
            (replace(WHOLE, disconnects=3, down=2, outage_ns_max=4000 * MS,
                     some_down_ns=1000 * MS),),
            "3 lost, longest outage 4.0 s, clients not back at the end: 2",
        ),
    ],
    ids=["all", "not back"],
)  # fmt: skip
def test_an_outage_is_said_in_a_line(intervals, said):
    found = summarize(trial([], intervals=intervals))
    assert outages(found) == said


def test_the_line_of_an_outage_says_why_a_client_cannot_log_in_again():
    lost = replace(WHOLE, disconnects=3, down=2, some_down_ns=1000 * MS)
    opened = engine._note("script a: b leaves a transaction block open; it is rolled back")
    assert opened == finding("transaction-left-open", script="a: b")
    refused = engine._note("a client cannot log in again: role is not permitted to log in")
    assert refused.name == "client-locked-out"
    line = outages(summarize(trial([], intervals=(lost,))), [opened, refused])
    assert line.endswith("not back at the end: 2 (role is not permitted to log in)")


def test_a_trial_in_an_outage_is_run_again_when_the_experiment_is_resumed(tmp_path):
    place = tmp_path / "results.db"
    design = Design((Factor("clients", ("1", "2", "4", "8")),), {"duration": "3s"})
    order = sweep.Order(Experiment("e", "select-only", design), place)
    planned = sweep.plan(order)
    well, away, failed = (
        WHOLE,
        replace(WHOLE, disconnects=1, down=1, all_down_ns=1000 * MS),
        replace(WHOLE, tallies=(Tally(0, 0, due=1, failed={"42P01": 1}),)),
    )
    ends = {"1": [well], "2": [away], "4": [away, well], "8": [failed]}
    store = Store.open(place)
    sweep._begin(store, planned)
    for slot in planned.slots:
        levels = dict(slot.cell.levels)
        for n, interval in enumerate(ends[levels["clients"]]):
            run: dict[str, Any] = {"id": f"{slot.cell.key}{n}", "state": "finished"}
            one = trial(
                [], intervals=(interval,), **run, place=Place(planned.id, slot.cell.key, levels, 1)
            )
            store.begin(one)
            store.add(one.id, interval)
            store.finish(one, brief(summarize(one)))
    store.finish_experiment(planned.id, "finished")
    resumed = sweep.plan(replace(order, resume=planned.id))
    assert [dict(slot.cell.levels)["clients"] for slot in resumed.slots] == ["2"]
