"""The shipped workloads on a real server: their data, and the plans that they are meant to have."""

from __future__ import annotations

from pathlib import Path

import pytest

import pgpaces

pytestmark = pytest.mark.postgres

LOG, NEWEST = "ux_sensor_log_reading_date_sensor_id", "ux_sensor_log_sensor_id_reading_date"
# For each statement the way to its rows.
WAYS = {
    "sensor/triggers": ("using sensor_pkey on sensor", "using sensor_pkey on sensor", LOG),
    "sensor/log": (f"Index Scan using {NEWEST}", "Insert on sensor_log", f"Scan using {NEWEST}"),
}


@pytest.mark.parametrize("name", WAYS)
def test_each_statement_finds_its_rows_by_the_index_that_is_there_for_it(
    pgpaces_home: Path, tmp_path: Path, name: str
) -> None:
    found = pgpaces.run(name, duration=1, warmup=0, clients=2, store=tmp_path / "r.db")
    assert found.counts.failed == 0
    plans = [each.summary for each in found.trial.explained]
    assert len(plans) == len(WAYS[name])
    for plan, way in zip(plans, WAYS[name], strict=True):
        assert way in plan
        assert "Seq Scan" not in plan
