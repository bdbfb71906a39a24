"""Designs: which cells there are, and in which order their trials run."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.core.errors import PlanError
from pgpaces.spec.design import Cell, Design, Factor, Slot, by_machine, missing

NAMES = ("clients", "scale", "set.work_mem", "target")
LEVELS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def designs(draw: st.DrawFn) -> Design:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    factors = tuple(Factor(name, draw(LEVELS)) for name in names)
    exclude = []
    if factors and draw(st.booleans()):
        factor = draw(st.sampled_from(factors))
        if len(factor.levels) > 1:
            exclude.append({factor.name: draw(st.sampled_from(factor.levels))})
    extra = []
    if draw(st.booleans()):
        name = draw(st.sampled_from(NAMES))
        extra.append({name: draw(st.sampled_from("xyz"))})
    return Design(
        factors=factors,
        exclude=tuple(exclude),
        extra=tuple(extra),
        trials=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@given(designs())
def test_every_block_holds_every_cell_once(design: Design) -> None:
    slots, cells = design.slots(), {cell.key for cell in design.cells()}
    for block in range(1, design.trials + 1):
        found = Counter(slot.cell.key for slot in slots if slot.block == block)
        assert found == dict.fromkeys(cells, 1)


@given(designs())
def test_blocks_come_one_after_the_other(design: Design) -> None:
    blocks = [slot.block for slot in design.slots()]
    assert blocks == sorted(blocks)


@given(designs())
def test_the_grid_is_the_product_of_levels_without_what_is_excluded(design: Design) -> None:
    grid = Design(factors=design.factors, exclude=design.exclude)
    sizes = {factor.name: len(factor.levels) for factor in design.factors}
    for part in design.exclude:
        for name in part:
            sizes[name] -= 1
    assert len(grid.cells()) == math.prod(sizes.values())
    for cell in grid.cells():
        assert not any(cell.matches(part) for part in design.exclude)


@given(designs())
def test_an_explicit_cell_is_there_whatever_is_excluded(design: Design) -> None:
    for part in design.extra:
        assert any(cell.matches(part) for cell in design.cells())


@given(designs())
def test_the_order_depends_on_the_seed_and_not_on_how_levels_were_written(design: Design) -> None:
    turned = Design(
        factors=tuple(Factor(f.name, f.levels[::-1]) for f in design.factors[::-1]),
        exclude=design.exclude,
        extra=design.extra,
        trials=design.trials,
        seed=design.seed,
    )
    order = [(slot.block, slot.cell.key) for slot in design.slots()]
    assert order == [(slot.block, slot.cell.key) for slot in turned.slots()]


@given(designs(), st.data())
def test_what_was_interrupted_and_gone_on_with_is_the_same_set_of_trials(
    design: Design, data: st.DataObject
) -> None:
    """However often it stops, and wherever: every trial is run once, in the same order."""
    slots, done = design.slots(), list[Slot]()
    while left := missing(slots, [(slot.block, slot.cell.key) for slot in done]):
        done += left[: data.draw(st.integers(1, len(left)))]
    assert tuple(done) == slots


@given(designs())
def test_machines_share_the_trials_and_keep_their_order(design: Design) -> None:
    slots = design.slots()
    parts = by_machine(slots, {"a": "pi4", "b": "pi4", "c": "cloud"})
    every = [slots.index(slot) for part in parts.values() for slot in part]
    assert sorted(every) == list(range(len(slots)))
    for part in parts.values():
        places = [slots.index(slot) for slot in part]
        assert places == sorted(places)


def test_a_block_is_shuffled_without_favour() -> None:
    """Each of 4 cells comes first in a quarter of 4,000 blocks, give or take 5 sigma."""
    design = Design(factors=(Factor("clients", ("1", "2", "4", "8")),), trials=4000)
    first = Counter(slot.cell.key for n, slot in enumerate(design.slots()) if n % 4 == 0)
    assert len(first) == 4
    assert all(abs(count - 1000) < 5 * math.sqrt(4000 * 0.25 * 0.75) for count in first.values())


def test_another_cell_does_not_shuffle_the_others_anew() -> None:
    few = Design(factors=(Factor("clients", ("1", "2", "4")),), trials=3)
    many = Design(factors=(Factor("clients", ("1", "2", "3", "4")),), trials=3)
    of_few = [(slot.block, slot.cell.key) for slot in few.slots()]
    assert [s for s in ((s.block, s.cell.key) for s in many.slots()) if s in of_few] == of_few


def test_the_load_of_a_block_is_the_same_for_all_its_cells() -> None:
    design = Design(seed=7, trials=3)
    assert [design.load_seed(block) for block in (1, 2, 3)] == [7, 8, 9]


def test_a_design_without_factors_has_one_cell() -> None:
    assert Design().cells() == (Cell(()),)
    assert str(Cell(())) == "the one cell"
    assert str(Cell((("set.search_path", ""), ("clients", "2")))) == "set.search_path='', clients=2"


def test_an_explicit_cell_takes_all_levels_of_what_it_does_not_name() -> None:
    design = Design(
        factors=(Factor("clients", ("1", "2")), Factor("scale", ("1", "9"))),
        extra=({"clients": "64"},),
    )
    assert [dict(cell.levels) for cell in design.cells()[4:]] == [
        {"clients": "64", "scale": "1"},
        {"clients": "64", "scale": "9"},
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"factors": (("clients", ()),)}, "no levels"),
        ({"factors": (("clients", ("1", "1")),)}, "level 1 twice"),
        ({"factors": (("clients", ("1",)),), "fixed": {"clients": "2"}}, "given twice"),
        ({"factors": (("clients", ("1",)),), "exclude": ({"scale": "2"},)}, "is no factor"),
        ({"factors": (("clients", ("1",)),), "exclude": ({"clients": "2"},)}, "does not have"),
        ({"trials": 0}, "0 trials"),
        ({"seed": -1}, "out of range"),
    ],
)
def test_what_cannot_be_is_said(values: dict[str, object], said: str) -> None:
    def make() -> Design:
        factors = tuple(Factor(*found) for found in values.get("factors", ()))  # type: ignore[attr-defined]
        return Design(**{**values, "factors": factors})  # type: ignore[arg-type]

    with pytest.raises(PlanError, match=said):
        make()


def test_a_grid_that_nobody_could_wait_for_is_refused_before_it_is_built() -> None:
    factors = tuple(Factor(f"define.{n}", tuple(map(str, range(100)))) for n in range(6))
    with pytest.raises(PlanError, match="1000000000000 cells"):
        Design(factors=factors)


def test_where_everything_is_excluded_there_is_no_experiment() -> None:
    design = Design(factors=(Factor("clients", ("1",)),), exclude=({"clients": "1"},))
    with pytest.raises(PlanError, match="every cell is excluded"):
        design.cells()
