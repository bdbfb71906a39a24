"""What a level makes of another one, and a board of its kind, over pairs of trials of one block."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis import ratios
from pgpaces.analysis.cells import rows
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.effect import mean_ratio
from pgpaces.spec.design import Ask, Cell, Factor
from pgpaces.spec.result import Estimate
from tests.unit.experiments import made, moved
from tests.unit.seeds import seeds
from tests.unit.sure import sure

BASE = made(Ask(Cell(()), 1), 5)
TLS, CLIENTS = Factor("tls", ("off", "on")), Factor("clients", ("1", "2", "4"))


def trial(levels: dict[str, str], block: int, rate: float, latency_ms: float = 10.0) -> Digest:
    cell = Cell(tuple(levels.items()))
    digest = made(Ask(cell, block), 5)
    mean = Estimate(latency_ms, latency_ms, latency_ms, 10)
    latency = replace(BASE.summary.latency, mean=mean)
    summary = replace(BASE.summary, throughput=Estimate(rate, rate, rate, 10), latency=latency)
    return replace(digest, summary=summary)


def compared(
    digests: list[Digest], factors: tuple[Factor, ...] = (TLS,)
) -> tuple[ratios.LevelRatio, ...]:
    cells = {}
    for digest in digests:
        assert digest.trial.place is not None
        cells[digest.trial.place.cell] = Cell(tuple(digest.trial.place.levels.items()))
    return ratios.level_ratios(rows(cells.values(), digests), factors)


def test_what_disturbs_a_whole_block_cancels_out():
    noise = {1: 100.0, 2: 31.0, 3: 250.0}
    digests = [trial({"tls": "off"}, block, rate, 10) for block, rate in noise.items()]
    digests += [trial({"tls": "on"}, block, 0.9 * rate, 11) for block, rate in noise.items()]
    (found,) = compared(digests)
    assert (found.factor, found.base, found.level, found.at) == ("tls", "off", "on", ())
    assert found.throughput is not None
    assert found.mean is not None
    assert found.throughput.value == pytest.approx(0.9)
    assert found.throughput.high - found.throughput.low < 1e-9
    assert found.mean.value == pytest.approx(1.1)
    assert found.throughput.n == 3


def test_trials_of_different_blocks_are_no_pair():
    assert compared([trial({"tls": "off"}, 1, 10), trial({"tls": "on"}, 2, 20)]) == ()


def test_one_pair_has_no_interval():
    (found,) = compared([trial({"tls": "off"}, 1, 10), trial({"tls": "on"}, 1, 20)])
    assert found.throughput == Estimate.alone(2.0, 1)


def test_a_trial_that_is_not_valid_is_in_no_pair():
    good = [trial({"tls": level}, block, 10) for level in ("off", "on") for block in (1, 2)]
    bad = trial({"tls": "on"}, 3, 1)
    validity = replace(bad.summary.validity, state="invalid")
    bad = replace(bad, summary=replace(bad.summary, validity=validity))
    assert bad.summary.validity.state != "valid"
    (found,) = compared([*good, trial({"tls": "off"}, 3, 10), bad])
    assert sure(found.throughput).n == 2


def test_levels_are_compared_where_all_else_is_the_same():
    digests = [
        trial(
            {"tls": level, "clients": clients}, block, float(clients) * (2 if level == "on" else 1)
        )
        for level in TLS.levels
        for clients in CLIENTS.levels
        for block in (1, 2)
    ]
    found = compared(digests, (TLS, CLIENTS))
    assert [(each.factor, each.at) for each in found] == [
        ("tls", (("clients", clients),)) for clients in CLIENTS.levels
    ], "a load with three levels is a chart's"
    assert all(each.throughput and each.throughput.value == pytest.approx(2) for each in found)


def test_versions_are_names_although_they_look_like_numbers():
    server = Factor("server", ("11", "15", "18"))
    digests = [trial({"server": level}, 1, float(level)) for level in server.levels]
    assert [each.level for each in compared(digests, (server,))] == ["15", "18"]


def test_many_pairs_of_many_cells_are_taken_together():
    sizes = Factor("scripts", tuple(f"s{n}" for n in range(30)))
    digests = [
        trial({"tls": level, "scripts": script}, 1, 10)
        for level in TLS.levels
        for script in sizes.levels
    ]
    found = [each for each in compared(digests, (TLS, sizes)) if each.factor == "tls"]
    assert [each.at for each in found] == [()]
    assert found[0].throughput is not None
    assert found[0].throughput.n == 30


@pytest.mark.parametrize("tries", seeds(2000, 4000))
@pytest.mark.parametrize("pairs", [2, 3, 5, 8])
def test_the_interval_holds_the_truth_as_often_as_it_says(pairs, tries):
    draw, held = np.random.default_rng(pairs), 0
    for _ in range(tries):
        found = mean_ratio(list(draw.normal(math.log(0.9), 0.1, pairs)))
        assert found is not None
        held += found.low <= 0.9 <= found.high
    assert 0.94 <= held / tries <= 0.96


def test_of_nothing_there_is_no_ratio():
    assert mean_ratio([]) is None


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
    found = ratios.machine_ratios(
        [*board("a", 1, 1), *board("b", 1, 2), *board("c", 1.3, 3)], KINDS
    )
    assert {each.name for each in found if each.apart} == {"c"}, "it makes none of the others fast"
    (slow,) = [each for each in found if each.name == "c"]
    assert slow.ratio.low < 1.3 < slow.ratio.high
    assert slow.ratio.n == len(MODELS)


def test_two_pairs_and_boards_of_different_kinds_say_nothing():
    pair = [*board("a", 1, 1), *board("b", 2, 2)]
    assert ratios.machine_ratios(pair, {"a": "pi4", "b": "pi5"}) == ()
    few = [board(name, factor, 1)[:2] for name, factor in (("a", 1.0), ("b", 2.0))]
    assert ratios.machine_ratios([each for part in few for each in part], KINDS) == ()
