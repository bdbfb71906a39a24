"""Designs: which cells there are, and in which order their trials run."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.core.errors import PlanError
from pgpaces.spec.design import Cell, Design, Experiment
from tests.errors import raises

NAMES = ("clients", "scale", "set.work_mem", "target")
LEVELS = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def designs(draw):
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    levels = {name: draw(LEVELS) for name in names}
    exclude = []
    if levels and draw(st.booleans()):
        name = draw(st.sampled_from(names))
        if len(levels[name]) > 1:
            exclude.append({name: draw(st.sampled_from(levels[name]))})
    extra = []
    if draw(st.booleans()):
        name = draw(st.sampled_from(NAMES))
        extra.append({name: draw(st.sampled_from("xyz"))})
    return Design(
        levels=levels,
        exclude=tuple(exclude),
        extra=tuple(extra),
        trials=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )


@given(designs())
def test_every_block_holds_every_cell_once_and_they_come_one_after_the_other(design):
    slots, cells = design.asks(), {cell.key for cell in design.cells()}
    for block in range(1, design.trials + 1):
        found = Counter(slot.cell.key for slot in slots if slot.block == block)
        assert found == dict.fromkeys(cells, 1)
    blocks = [slot.block for slot in slots]
    assert blocks == sorted(blocks)


def test_a_design_without_factors_has_one_cell():
    assert Design().cells() == (Cell(()),)
    assert str(Cell(())) == "the one cell"
    assert str(Cell((("set.search_path", ""), ("clients", "2")))) == "set.search_path='', clients=2"


def test_an_explicit_cell_takes_all_levels_of_what_it_does_not_name():
    levels = {"clients": ("1", "2"), "scale": ("1", "9")}
    cells = Design(levels, extra=({"clients": "64"},)).cells()[4:]
    assert [dict(cell.levels) for cell in cells] == [
        {"clients": "64", "scale": "1"},
        {"clients": "64", "scale": "9"},
    ]


def test_an_excluded_part_may_name_a_level_that_all_cells_share():
    levels = {"clients": ("1", "2"), "scale": ("1",)}
    for scale, left in (("1", ["2"]), ("", ["1", "2"])):
        part = {"clients": "1"} | ({"scale": scale} if scale else {})
        kept = Design(levels, exclude=(part,) if scale else ()).cells()
        assert [dict(cell.levels)["clients"] for cell in kept] == left


def test_a_level_that_all_cells_come_to_share_is_not_excluded():
    design = Design(
        {"clients": ("1", "2"), "scale": ("1", "2")}, exclude=({"clients": "1", "scale": "2"},)
    )
    made = Experiment(workload="reporting", design=design)
    narrow = made.with_levels({"clients": ("1",)}).design
    assert [dict(cell.levels) for cell in narrow.cells()] == [{"scale": "1"}]
    quick = replace(made, quick={"clients": "1", "scale": "2", "duration": "1s"}).quickly().design
    assert [dict(cell.levels) for cell in quick.cells()] == [{}]


ONE = {"clients": ("1",)}


@pytest.mark.parametrize(
    ("given", "name", "values"),
    [
        ({"levels": {"clients": ()}}, "no-levels", {"factor": "clients"}),
        ({"levels": {"clients": ("1", "1")}}, "level-twice", {"level": "1"}),
        ({"levels": ONE, "exclude": ({"x": "2"},)}, "exclude-unknown-factor", {"factor": "x"}),
        ({"levels": ONE, "exclude": ({"clients": "2"},)}, "exclude-unknown-level", {"level": "2"}),
        ({"levels": ONE, "exclude": ({"clients": "1"},)}, "all-cells-excluded", {}),
        ({"trials": 0}, "out-of-range", {"what": "trials", "value": 0}),
        ({"seed": -1}, "out-of-range", {"what": "seed", "value": -1}),
        # Nobody could wait for it: it is refused before it is built.
        ({"levels": {f"define.{n}": tuple(map(str, range(100))) for n in range(6)}},
         "too-many-cells", {"count": 10**12}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(given, name, values):
    with raises(PlanError, name, **values):
        Design(**given).cells()
