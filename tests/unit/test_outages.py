"""Connections that were lost: what an answer says of them, and which trials are run again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgpaces.analysis.summary import summarize
from pgpaces.answers.run import values as values_of
from pgpaces.core.record import Interval, Tally
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.result import Place
from pgpaces.store.store import Store
from pgpaces.trial import sweep
from pgpaces.trial.record import brief
from tests.unit.trials import trial

MS = 1_000_000
WHOLE = Interval(0, tallies=(Tally(0, 0, due=1, on_time=1),))


@pytest.mark.parametrize(
    ("intervals", "name", "values"),
    [
        (
            (
                replace(WHOLE, disconnects=8, down=8, some_down_ns=900 * MS, all_down_ns=900 * MS),
                Interval(1, down=8, some_down_ns=1000 * MS, all_down_ns=1000 * MS),
                Interval(2, outages=8, outage_ns_max=2100 * MS, some_down_ns=250 * MS,
                         all_down_ns=100 * MS),
            ),
            "outage-over",
            {"lost": 8, "longest_s": 2.1, "all_down_s": 2.0, "back_s": 2.15},
        ),
        (
            (replace(WHOLE, disconnects=3, down=2, outage_ns_max=4000 * MS,
                     some_down_ns=1000 * MS),),
            "outage-lasting",
            {"lost": 3, "longest_s": 4.0, "all_down_s": 0.0, "down": 2},
        ),
    ],
    ids=["all", "not back"],
)  # fmt: skip
def test_an_outage_is_told(intervals, name, values):
    lost = trial([], intervals=intervals)
    found = dict(values_of(lost, summarize(lost)))["connections"]
    assert (found.name, found.values) == (name, pytest.approx(values))


def test_a_trial_in_an_outage_is_run_again_when_the_experiment_is_resumed(tmp_path):
    place = tmp_path / "results.db"
    design = Design({"clients": ("1", "2", "4", "8"), "duration": ("3s",)})
    experiment = Experiment("e", "select-only", design)
    planned = sweep.plan(experiment, place)
    well, away, failed = (
        WHOLE,
        replace(WHOLE, disconnects=1, down=1, all_down_ns=1000 * MS),
        replace(WHOLE, tallies=(Tally(0, 0, due=1, failed={"42P01": 1}),)),
    )
    ends = {"1": [well], "2": [away], "4": [away, well], "8": [failed]}
    store = Store.open(place)
    sweep._begin(store, planned)
    for slot in planned.asks:
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
    resumed = sweep.plan(experiment, place, resume=planned.id)
    assert [dict(slot.cell.levels)["clients"] for slot in resumed.asks] == ["2"]
