"""How much a page of an experiment weighs: what one sends to one's boss opens at once."""

from __future__ import annotations

import pytest

from pgpaces.answers.sweep.lookup import page_of
from pgpaces.answers.sweep.report import report
from pgpaces.core.series import Sample
from pgpaces.show import html
from pgpaces.spec.design import Design, Factor
from pgpaces.spec.result import Place
from tests.unit.stored import Kept, begun, keep, opened

FACTORS = (Factor("clients", ("1", "2", "4")), Factor("set.work_mem", ("4MB", "64MB")))
SECONDS, DUE = 60, 20
SENSORS = (("cpu_busy", 7), ("cpu_iowait", 3), ("disk_sda_busy", 5))


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_a_page_of_eighteen_trials_of_a_minute_is_small_enough_to_send(tmp_path):
    store, design = opened(tmp_path), Design({f.name: f.levels for f in FACTORS}, trials=3)
    experiment = begun(store, design, "grid")
    slots = design.asks()
    assert len(slots) == 18
    for number, slot in enumerate(slots):
        # No second is like another one, so that nothing on the page is short by repetition.
        latencies = tuple(
            tuple(2.0 + (7 * second + 3 * each + 11 * number) % 40 for each in range(DUE))
            for second in range(SECONDS)
        )
        samples = tuple(
            Sample(second, "host", name, (second * step + number) % 100, "%")
            for second in range(SECONDS)
            for name, step in SENSORS
        )
        plan = {
            "limit_ns": 30_000_000,
            "model": "open",
            "rate": DUE,
            "duration_ns": SECONDS * 10**9,
        }
        place = Place(experiment, slot.cell.key, dict(slot.cell.levels), slot.block)
        run = Kept(
            f"01C{number:023d}", place=place, plan=plan, samples=samples, latencies_ms=latencies
        )
        keep(store, run)
    page = html.html(report(page_of(store, (experiment,))))
    assert page.count("<svg") == 1
    assert len(page.encode()) <= 100_000
