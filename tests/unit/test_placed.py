"""Runs that belong to no experiment are laid out by what differs between them."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from pgpaces.analysis import crossing, grouping
from pgpaces.analysis.digest import Digest
from pgpaces.answers.sweep.page import About, gather
from pgpaces.spec.design import Cell, Slot
from tests.unit.experiments import WORKERS, made


def loose(clients: str, workers: str = "0", block: int = 1) -> Digest:
    found = made(Slot(block, Cell((("clients", clients), (WORKERS, workers)))), 30)
    trial = replace(found.trial, place=None, id=f"{clients}{workers}{block}")
    return replace(found, trial=trial)


def test_what_differs_is_a_factor_and_what_goes_along_with_it_is_none() -> None:
    factors, found = grouping.place([loose("4"), loose("1"), loose("4", block=2)], "")
    assert [(factor.name, factor.levels) for factor in factors] == [("clients", ("1", "4"))]
    places = [each.trial.place for each in found if each.trial.place]
    assert [(place.levels["clients"], place.block) for place in places] == [
        ("4", 1),
        ("1", 1),
        ("4", 2),
    ]


def test_factors_that_can_be_told_apart_both_count() -> None:
    factors, _ = grouping.place([loose("1"), loose("4"), loose("1", "2"), loose("4", "2")], "")
    assert [factor.name for factor in factors] == ["clients", WORKERS]


def test_of_what_a_run_lacks_it_is_said_and_an_empty_setting_is_not_taken_for_it() -> None:
    bare = {"": {}, "empty": {"search_path": ""}, "a": {"search_path": "a"}}
    runs = []
    for name, settings in bare.items():
        run = loose("4")
        plan = run.trial.plan.but(settings=settings)
        runs.append(replace(run, trial=replace(run.trial, id=f"4{name}", plan=plan)))
    page = gather(runs, About(datetime.now(UTC), "0"))
    assert [factor.levels for factor in page.factors] == [("not set", "", "a")]
    assert [crossing.shown_level(row, "set.search_path") for row in page.rows] == [
        "not set", "''", "a",
    ]  # fmt: skip


def test_a_run_alone_is_one_cell() -> None:
    page = gather([loose("2")], About(datetime.now(UTC), "0"))
    assert page.factors == ()
    assert len(page.rows) == 1
    assert page.answer[0].text.startswith(("It meets the limit: missed 0.0%", "Whether it meets"))


def test_a_report_of_runs_is_a_report_like_any_other() -> None:
    page = gather([loose("1"), loose("2"), loose("8")], About(datetime.now(UTC), "0"))
    assert page.main is not None
    assert page.main.name == "clients"
    assert page.answer[0].text.startswith("It meets the limit up to")
    assert page.title == "reporting"
