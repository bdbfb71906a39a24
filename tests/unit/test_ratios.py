"""A machine against the others of its kind, over pairs of trials of one block."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis import cells
from pgpaces.analysis.across import effect_of_pairs
from pgpaces.analysis.digest import Digest
from pgpaces.spec.design import Ask, Cell
from pgpaces.spec.result import Estimate
from tests.unit.experiments import made, moved
from tests.unit.seeds import seeds
from tests.unit.sure import sure

BASE = made(Ask(Cell(()), 1), 5)


@pytest.mark.parametrize("tries", seeds(2000, 4000))
@pytest.mark.parametrize("pairs", [2, 3, 5, 8])
def test_the_interval_holds_the_truth_as_often_as_it_says(pairs, tries):
    draw, held = np.random.default_rng(pairs), 0
    for _ in range(tries):
        found = sure(effect_of_pairs(list(draw.normal(math.log(0.9), 0.1, pairs)))).ratio()
        held += found.low <= 0.9 <= found.high
    assert 0.94 <= held / tries <= 0.96


KINDS = {"a": "pi4", "b": "pi4", "c": "pi4"}
MODELS = {
    (clients, block): made(Ask(Cell((("clients", clients),)), block), 5)
    for clients in ("1", "2", "4")
    for block in (1, 2)
}


def board(name: str, factor: float, seed: int) -> list[Digest]:
    draw = np.random.default_rng(seed)
    found = []
    for base in MODELS.values():
        service = base.summary.service
        assert service.mean is not None
        value = 20 * factor * float(np.exp(draw.normal(0, 0.01)))
        mean = Estimate(value, value, value, 10)
        summary = replace(base.summary, service=replace(service, mean=mean))
        found.append(moved(replace(base, summary=summary), target=name))
    return found


def test_a_slow_board_stands_apart():
    found = cells.machine_ratios([*board("a", 1, 1), *board("b", 1, 2), *board("c", 1.3, 3)], KINDS)
    assert {each.name for each in found if each.apart} == {"c"}, "it makes none of the others fast"
    (slow,) = [each for each in found if each.name == "c"]
    assert slow.ratio.low < 1.3 < slow.ratio.high
    assert slow.ratio.n == len(MODELS)


def test_two_pairs_and_boards_of_different_kinds_say_nothing():
    pair = [*board("a", 1, 1), *board("b", 2, 2)]
    assert cells.machine_ratios(pair, {"a": "pi4", "b": "pi5"}) == ()
    few = [board(name, factor, 1)[:2] for name, factor in (("a", 1.0), ("b", 2.0))]
    assert cells.machine_ratios([each for part in few for each in part], KINDS) == ()
