"""`pgpaces forecast`: of which trials it is, how far it goes, and every refusal in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from pgpaces.answers.forecast import Usl
from pgpaces.cli.forecast import forecast
from pgpaces.design import Design, Factor
from pgpaces.questions import forecast as forecasting
from pgpaces.questions.sweep.lookup import gathered, page_of
from pgpaces.result import Place
from pgpaces.series import Sample
from pgpaces.store.store import Store
from tests.unit.calling import refused, said
from tests.unit.stored import Kept, begun, keep, opened

LAW = Usl(50, 0.05, 0.004)
LOADS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 18)
WORK_MEM = "set.work_mem"


def fill(store: Store, name: str, loads: Sequence[int], trials: int = 3, **more: Any) -> None:
    """An experiment over clients that follows the law, give or take a transaction a second."""
    memories = more.pop("memories", ("4MB",))
    factors = [Factor("clients", tuple(map(str, loads)))]
    factors += [Factor(WORK_MEM, memories)] if len(memories) > 1 else []
    design = Design(tuple(factors), trials=trials)
    experiment = begun(store, design, name)
    for number, slot in enumerate(design.slots()):
        levels = dict(slot.cell.levels)
        load, memory = int(levels["clients"]), levels.get(WORK_MEM, "4MB")
        rate = round(LAW.at(load) * (1 if memory == "4MB" else 1.5)) + slot.block - 2
        keep(
            store,
            Kept(
                f"{name[:3].upper()}{number:03}",
                1000 * load / rate,
                rate,
                at=number / 1e4,
                place=Place(experiment, slot.cell.key, levels, slot.block),
                plan={"clients": load, "settings": {"work_mem": memory}, **more},
                samples=(Sample(1, "host", "cpu_busy", rate / 5, "%"),),
            ),
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forecast")
    store = opened(path)
    fill(store, "few", (1, 2, 4))
    fill(store, "once", LOADS, trials=1)
    fill(store, "open", LOADS, model="open")
    fill(store, "two", LOADS, memories=("4MB", "64MB"))
    fill(store, "growth", LOADS)
    return path / "results.db"


def called(store: Path, *words: str) -> Result:
    return CliRunner().invoke(forecast, [*words, "--verbose", "--store", str(store)])


def test_the_peak_is_told_with_its_interval_and_the_error_of_the_hold_out(place: Path) -> None:
    text = said(called(place, "growth"))
    assert text.startswith("FORECAST Throughput peaks at 15.")
    assert "a fit without the last two loads is wrong by" in text
    assert "27 clients, 1.5 times the highest measured load" in text
    assert "there is no forecast beyond" in text


def test_bounds_come_from_what_the_machine_did(place: Path) -> None:
    """A transaction takes 1/500 of the CPU."""
    assert "at most 500/s, where the CPU is exhausted" in said(called(place, "growth"))


def test_a_load_is_read_off_and_nothing_beyond_what_can_be_said(place: Path) -> None:
    assert "27 clients, beyond the measured loads:" in said(called(place, "growth", "--to", "27"))
    assert "At 5 clients, within the measured loads:" in said(called(place, "growth", "--to", "5"))
    error = refused(called(place, "growth", "--to", "28"))
    assert "at most 18 measured" in error.message
    assert error.hint is not None
    assert "up to 27" in error.hint


def test_each_line_has_a_forecast_of_its_own(place: Path) -> None:
    found = json.loads(called(place, "two", "--json").stdout)
    assert [line["levels"] for line in found["value"]] == [
        [[WORK_MEM, "4MB"]],
        [[WORK_MEM, "64MB"]],
    ]
    peaks = [line["found"]["peak_rate"]["value"] for line in found["value"]]
    assert peaks[1] == pytest.approx(1.5 * peaks[0], rel=0.03)
    text = said(called(place, "two"))
    assert "work_mem = 4MB: Throughput peaks" in text
    assert "work_mem = 64MB: Throughput peaks" in text


def test_a_line_is_chosen_by_its_levels(place: Path) -> None:
    found = json.loads(called(place, "two", "--where", f"{WORK_MEM}=64MB", "--json").stdout)
    assert len(found["value"]) == 1
    assert "4MB, 64MB" in str(refused(called(place, "two", "--where", f"{WORK_MEM}=1MB")).hint)
    assert "is not FACTOR=LEVEL" in refused(called(place, "two", "--where", "64MB")).message


@pytest.mark.parametrize(
    ("name", "expected"),
    [("few", "No forecast from 3 loads: 6 are"), ("once", "only 1 of 3 trials. Run the sweep")],
)
def test_a_refusal_is_an_answer_beside_the_bounds(place: Path, name: str, expected: str) -> None:
    text = said(called(place, name))
    assert expected in text
    assert "With any model: at most" in text


def test_too_few_loads_of_a_time_budget_end_with_a_sweep_that_there_is(place: Path) -> None:
    page = gathered(Store.existing(place), ("few",))
    every = forecasting.forecasts(page, "", None)
    for command, begins in (
        ("pgpaces sweep w --time-budget 9min", "pgpaces sweep w --trials 3"),
        ("pgpaces capacity w -L 9ms", "pgpaces report "),
    ):
        about = replace(page.about, rerun=command)
        assert forecasting._next_step(every, replace(page, about=about)).startswith(begins)


def test_under_a_rate_there_is_nothing_to_carry_further(place: Path) -> None:
    assert "throughput equals the rate up to the capacity" in refused(called(place, "open")).message


def test_runs_that_differ_in_no_load_have_no_forecast(tmp_path: Path) -> None:
    store = opened(tmp_path)
    keep(store, Kept("A"))
    error = refused(called(tmp_path / "results.db", "A"))
    assert "no trials with several numbers of clients" in error.message


def test_a_report_has_a_forecast_where_it_allows_one(place: Path) -> None:
    store = Store.open(place)
    assert [section.key for section in page_of(store, ("growth",)).sections] == ["forecast"]
    assert not gathered(store, ("growth",)).sections
    for name in ("few", "once", "open"):
        assert not page_of(store, (name,)).sections, name
    assert len(page_of(store, ("two",)).sections[0].value) == 2


def test_too_many_lines_are_to_be_chosen_from(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "_LINES_MAX", 1)
    assert "2 lines are too many" in refused(called(place, "two")).message


def test_the_page_of_a_forecast_begins_with_it(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.md"
    said(called(place, "growth", "--to", "20", "-o", str(path)))
    text = path.read_text()
    assert text.startswith("# With more clients")
    assert text.index("At 20 clients") < text.index("## All cells")
