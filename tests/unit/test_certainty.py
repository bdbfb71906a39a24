"""`sweep --trials auto`: which trials a cell gets, and how often its verdict is wrong."""

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis import across
from pgpaces.analysis.cells import row
from pgpaces.analysis.goal import verdict
from pgpaces.analysis.sequential import Certainty, Tell
from pgpaces.analysis.stats import INDEPENDENT, Clusters
from pgpaces.analysis.stopping import LOOKS_OF_CELL, LookSchedule
from pgpaces.core.findings import Finding
from pgpaces.spec.design import Cell
from tests.unit.test_chosen import digest, run

CELLS = tuple(Cell((("users", str(n)),)) for n in (1, 2, 4))
STRATEGY = Certainty(0.05, 1, CELLS)


def found(missed):
    """Trials of 3,000 requests; missed: of each cell, by its number of users."""

    def of(ask):
        known = digest(ask, 3000, missed[dict(ask.cell.levels)["users"]])
        return replace(known, summary=replace(known.summary, clusters=INDEPENDENT))

    return of


def blocks(tells):
    return {cell: [t.block for t in tells if t.cell == cell] for cell in CELLS}


def test_only_cells_whose_verdict_is_unknown_get_more_trials():
    tells = run(STRATEGY, found({"1": 0, "2": 150, "4": 1000}))
    assert blocks(tells) == dict(zip(CELLS, ([1], [*range(1, 17)], [1]), strict=True))
    assert [t.block for t in tells] == sorted(t.block for t in tells), "whole blocks"
    assert not STRATEGY.left(tells)
    assert not STRATEGY.given_up(tells)


def test_the_interval_is_that_of_its_look_and_decides():
    digests = [t.digest for t in run(STRATEGY, found({"1": 0, "2": 0, "4": 0}))]
    one = [each for each in digests if each.trial.place.levels["users"] == "1"]
    decided = row(CELLS[0], one, looks=LOOKS_OF_CELL).estimate("missed")
    assert verdict(decided, 0.05) == "pass"
    at_95 = row(CELLS[0], one, looks=LookSchedule((1,), ((0.05, 0.05),))).estimate("missed")
    assert decided.high > at_95.high, "wider than one of 95%"


def test_an_interrupted_trial_is_run_again_and_a_failed_one_when_resumed():
    first, told = STRATEGY.ask([]), run(STRATEGY, found({"1": 150, "2": 0, "4": 0}), told=[])
    cut = [Tell.of(digest(first, 300, 0)), Tell(first.cell, 1, None, again=True, attempt=2)]
    again = STRATEGY.over([first.cell]).ask(cut)
    assert (again.block, again.attempt) == (1, 3)
    failed = [Tell(first.cell, n, None, "no such table") for n in (1, 2)]
    assert (
        STRATEGY.given_up(failed) == f"pgpaces could not run trials of {first.cell}: no such table"
    )
    assert STRATEGY.resumed(failed) == []
    gap = [tell for tell in told if tell.block != 2]
    assert [STRATEGY.ask(gap).block, STRATEGY.left(gap)] == [2, 1]
    own = STRATEGY.over(CELLS[:1])
    assert own.ask(told) is None, "it has the results of other machines, too"


def test_an_outage_is_made_up_for_when_the_experiment_is_resumed():
    lost = digest(STRATEGY.ask([]), 300, 0, invalid="killed")
    validity = replace(lost.summary.validity, findings=(Finding("no-connection"),))
    lost = replace(lost, summary=replace(lost.summary, validity=validity))
    assert STRATEGY.resumed([Tell.of(lost)]) == []


def test_few_misses_do_not_make_intervals_wider_with_more_trials():
    highs = [
        across.share_at_look([(0, 300)] * look, [INDEPENDENT] * look, at).high
        for look, at in zip(LOOKS_OF_CELL.at, LOOKS_OF_CELL.errors, strict=True)
    ]
    assert highs == sorted(highs, reverse=True)


def test_a_cell_whose_first_trials_are_invalid_is_given_up():
    tells = run(STRATEGY, lambda ask: digest(ask, 300, 15, invalid="killed"))
    assert blocks(tells) == {cell: [1, 2] for cell in CELLS}


@pytest.mark.parametrize(("effect", "apart", "first"), [(1, 0, 0), (8, 0, 0), (1, 0.01, 1)])
def test_all_looks_together_are_wrong_in_at_most_5_percent(effect, apart, first):
    """With clusters within trials; and from the second look on, as one trial does not show by how
    much trials differ, with trials whose shares differ by a fifth.
    """
    rng, wrong, runs = np.random.default_rng(3), 0, 1000
    for _ in range(runs):
        shares = np.clip(rng.normal(0.05, apart, LOOKS_OF_CELL.at[-1]), 0.001, 1)
        missed = (effect * rng.binomial(int(3000 / effect), shares)).astype(int).tolist()
        within = Clusters(effect, 30) if effect > 1 else INDEPENDENT
        wrong += any(
            verdict(across.share_at_look(trials, [within] * look, at), 0.05) != "unknown"
            for look, at in [*zip(LOOKS_OF_CELL.at, LOOKS_OF_CELL.errors, strict=True)][first:]
            for trials in [[(m, 3000) for m in missed[:look]]]
        )
    assert wrong <= 0.05 * runs + 14, "5%, and two standard errors more"
