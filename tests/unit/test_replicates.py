"""A board that stands apart from its kind is pointed out; boards that only waver are not."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from pgpaces.analysis import replicates
from pgpaces.analysis.digest import Digest
from pgpaces.spec.design import Ask, Cell
from pgpaces.spec.result import Estimate
from tests.unit.experiments import made, moved

KINDS = {"a": "pi4", "b": "pi4", "c": "pi4"}
BASE = {
    (clients, block): made(Ask(Cell((("clients", clients),)), block), 5)
    for clients in ("1", "2", "4")
    for block in (1, 2)
}


def board(name: str, factor: float, seed: int) -> list[Digest]:
    draw = np.random.default_rng(seed)
    found = []
    for base in BASE.values():
        service = base.summary.service
        assert service.mean is not None
        value = 20 * factor * float(np.exp(draw.normal(0, 0.01)))
        mean = Estimate(value, value, value, 10)
        summary = replace(base.summary, service=replace(service, mean=mean))
        found.append(moved(replace(base, summary=summary), target=name))
    return found


def test_a_slow_board_stands_apart():
    found = replicates.compare([*board("a", 1, 1), *board("b", 1, 2), *board("c", 1.3, 3)], KINDS)
    assert {each.name for each in found if each.apart} == {"c"}, "it makes none of the others fast"
    (slow,) = [each for each in found if each.name == "c"]
    assert slow.ratio.low < 1.3 < slow.ratio.high
    assert slow.ratio.n == len(BASE)


def test_two_pairs_and_boards_of_different_kinds_say_nothing():
    pair = [*board("a", 1, 1), *board("b", 2, 2)]
    assert replicates.compare(pair, {"a": "pi4", "b": "pi5"}) == ()
    few = [board(name, factor, 1)[:2] for name, factor in (("a", 1.0), ("b", 2.0))]
    assert replicates.compare([each for part in few for each in part], KINDS) == ()
