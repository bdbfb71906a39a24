"""A budget of time over the cells of a design: what is run, when it ends, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from scipy.stats import kendalltau

from pgpaces.answers import crossing, stats, time_budget
from pgpaces.answers.cells import Row, row
from pgpaces.answers.digest import Digest
from pgpaces.answers.sequential import Ask, Tell
from pgpaces.answers.time_budget import Budgeted, TimeBudget
from pgpaces.answers.validity import Validity
from pgpaces.design import Cell, Design, Factor, Slot
from pgpaces.errors import PlanError
from pgpaces.experiment import strategies
from pgpaces.questions.sweep import words
from pgpaces.result import Counts, Estimate, Finding, Place
from tests.unit import board
from tests.unit.experiments import START, WORKERS, made

BASE = made(Slot(1, Cell(())), 12)
MISSED_MAX = 0.05
GRID = Design(
    factors=(
        Factor("clients", tuple(map(str, board.CLIENTS))),
        Factor(WORKERS, tuple(map(str, board.WORKERS))),
    )
)
Windows = Sequence[tuple[int, int]]
# What a trial of so many seconds found by windows, missed and due, and how long it took.
Server = Callable[[Ask, float], tuple[Windows, float]]


def seconds_of(ask: Ask) -> float:
    return float((ask.options["duration"] or "").removesuffix("s"))


def digest(ask: Ask, windows: Windows, start_s: float, took_s: float, invalid: str = "") -> Digest:
    """A trial that found this and ran from then on for so long."""
    missed, due = (sum(each) for each in zip(*windows, strict=True))
    phi = stats.dispersion(windows)
    reasons = (Finding("generator", "invalid", invalid),) if invalid else ()
    place = Place("E", ask.cell.key, dict(ask.cell.levels), ask.block, ask.attempt)
    trial = replace(
        BASE.trial,
        id=f"{ask.cell.key}-{ask.block}-{ask.attempt}",
        started_at=START + timedelta(seconds=start_s),
        ended_at=START + timedelta(seconds=start_s + took_s),
        measured_ns=int(seconds_of(ask) * 1e9),
        place=place,
    )
    summary = replace(
        BASE.summary,
        counts=Counts(due, due - missed, missed, 0, 0, 0),
        missed=stats.proportion(missed, due, phi),
        phi=phi,
        seconds=seconds_of(ask),
        validity=Validity("invalid" if invalid else "valid", reasons),
    )
    return replace(BASE, trial=trial, summary=summary, series=())


def run(
    goal: TimeBudget, cells: Sequence[Cell], server: Server, pause_s: float = 0.5
) -> list[Tell]:
    """An experiment from its first trial to its end."""
    told: list[Tell] = []
    now = 0.0
    while (ask := Budgeted(goal, cells).ask(told)) is not None:
        assert len(told) < 1000, "it never ends"
        windows, took_s = server(ask, now)
        told.append(Tell.of(digest(ask, windows, now, took_s)))
        now += took_s + pause_s
    return told


def shares(every: dict[str, float], rate: float = 10.0, seed: int = 1) -> Server:
    """A server that misses this share of each cell, by the level of its only factor."""
    draw = np.random.default_rng(seed)

    def found(ask: Ask, _: float) -> tuple[Windows, float]:
        (level,) = dict(ask.cell.levels).values()
        due = max(1, int(rate * seconds_of(ask)))
        return [(int(draw.binomial(due, every[level])), due)], 1.1 * seconds_of(ask) + 0.5

    return found


def cells(*names: str) -> tuple[Cell, ...]:
    return tuple(Cell((("variant", name),)) for name in names)


def trials_of(told: Sequence[Tell], cell: Cell) -> list[Tell]:
    return [t for t in told if t.cell.key == cell.key]


@settings(max_examples=40, deadline=None)
@given(
    budget_s=st.floats(60, 4000),
    count=st.integers(1, 6),
    seed=st.integers(0, 1000),
    slower=st.floats(0.8, 2.0),
)
def test_a_budget_is_never_overrun_by_more_than_a_trial(
    budget_s: float, count: int, seed: int, slower: float
) -> None:
    every = cells(*map(str, range(count)))
    draw = np.random.default_rng(seed)
    normal = shares({str(n): float(draw.choice([0.0, 0.04, 0.3])) for n in range(count)}, seed=seed)

    def server(ask: Ask, now: float) -> tuple[Windows, float]:
        windows, took_s = normal(ask, now)
        return windows, took_s * slower

    goal = TimeBudget(budget_s, MISSED_MAX, seed)
    told = run(goal, every, server)
    longest = max(Budgeted(goal, every).spent_s([each]) for each in told)
    assert Budgeted(goal, every).spent_s(told) <= budget_s + longest
    if slower * Budgeted(goal, every).takes_s * (count + 1) <= budget_s:
        assert {t.cell for t in told} == set(every)
    for cell in every:
        assert [t.block for t in trials_of(told, cell)] == [
            n + 1 for n in range(len(trials_of(told, cell)))
        ]


def test_the_first_pass_is_the_first_block_of_the_design() -> None:
    goal = TimeBudget(1800, MISSED_MAX, GRID.seed)
    every = GRID.cells()
    first = [slot.cell for slot in replace(GRID, trials=1).slots()]
    assert [w.cell for w in Budgeted(goal, every).samples()] == first
    told = run(goal, every, lambda w, _: ([(1, 40)], 1.1 * seconds_of(w) + 0.5))
    assert [t.cell for t in told[: len(first)]] == first
    assert {seconds_of(w) for w in Budgeted(goal, every).samples()} == {35.0}
    assert Budgeted(goal, every).takes_s * len(every) <= 0.4 * 1800


def test_what_is_left_goes_where_it_decides() -> None:
    every = cells("holds", "breaks", "near")
    server = shares({"holds": 0.0, "breaks": 0.9, "near": 0.055}, rate=20.0)
    told = run(TimeBudget(600, MISSED_MAX), every, server)
    counts = {str(c): len(trials_of(told, c)) for c in every}
    assert counts["variant=holds"] == counts["variant=breaks"] == 1
    assert counts["variant=near"] > 1


def test_where_nothing_is_open_it_ends_before_its_time() -> None:
    every = cells("holds", "breaks")
    goal = TimeBudget(600, MISSED_MAX)
    told = run(goal, every, shares({"holds": 0.0, "breaks": 0.9}, rate=100.0))
    assert len(told) == 2
    assert Budgeted(goal, every).spent_s(told) < 300
    assert Budgeted(goal, every).left(told) == 0
    assert Budgeted(goal, every).given_up(told) == ""


def test_cells_that_miss_alike_share_what_is_left() -> None:
    every = cells("a", "b", "c")
    server = shares({"a": 0.5, "b": 0.5, "c": 0.5})
    counts = [
        len(trials_of(run(TimeBudget(900, MISSED_MAX), every, server), cell)) for cell in every
    ]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("pause_s", [0.5, 20.0])
def test_pauses_between_trials_are_of_the_budget(pause_s: float) -> None:
    every = cells("a", "b", "c")
    told = run(TimeBudget(900, MISSED_MAX), every, shares(dict.fromkeys("abc", 0.5)), pause_s)
    digests = [t.digest for t in told if t.digest is not None]
    assert 700 < time_budget.took_s(digests) <= 900


def test_a_night_between_two_trials_is_not() -> None:
    every, goal = cells("a", "b", "c"), TimeBudget(900, MISSED_MAX)
    told = run(goal, every, shares(dict.fromkeys("abc", 0.5)))
    night = timedelta(hours=9)

    def later(each: Tell) -> Tell:
        assert each.digest is not None
        assert each.digest.trial.ended_at is not None
        trial = each.digest.trial
        start, end = trial.started_at + night, trial.ended_at + night
        moved = replace(each.digest, trial=replace(trial, started_at=start, ended_at=end))
        return replace(each, digest=moved)

    half = len(told) // 2
    broken = [*told[:half], *map(later, told[half:])]
    more = Budgeted(goal, every).spent_s(broken) - Budgeted(goal, every).spent_s(told)
    assert 0 < more <= 60


def test_machines_that_work_at_the_same_time_take_as_long_as_one() -> None:
    ask = [Ask(cell, 1, {"duration": "60s"}) for cell in cells("a", "b", "c")]
    starts = (0.0, 5.0, 70.0)
    ran = [digest(w, [(0, 9)], at, 60.0) for w, at in zip(ask, starts, strict=True)]
    assert time_budget.took_s(ran) == pytest.approx(130)
    assert time_budget.took_s(ran[:1]) == pytest.approx(60)


def test_who_goes_on_with_an_interrupted_experiment_asks_for_the_same_trial() -> None:
    every, goal = cells("a", "b", "c"), TimeBudget(600, MISSED_MAX)
    told = run(goal, every, shares({"a": 0.04, "b": 0.06, "c": 0.3}))
    assert len(told) > 4
    for n in range(len(told)):
        ask = Budgeted(goal, every).ask(told[:n])
        assert ask is not None
        assert (ask.cell, ask.block) == (told[n].cell, told[n].block)
    for n in (1, len(told) - 1):
        last = told[n].digest
        assert last is not None
        ended = last.trial.started_at + timedelta(seconds=1)
        cut = replace(last, trial=replace(last.trial, state="interrupted", ended_at=ended))
        following = run_again(goal, every, [*told[:n], Tell.of(cut)])
        again = [w for w in following if (w.cell, w.block) == (told[n].cell, told[n].block)]
        assert [w.attempt for w in again] == [2]


def run_again(goal: TimeBudget, every: Sequence[Cell], told: list[Tell]) -> list[Ask]:
    """What is asked for from here on, of a server that misses half."""
    found = []
    now = 10_000.0
    while (ask := Budgeted(goal, every).ask(told)) is not None:
        found.append(ask)
        told.append(Tell.of(digest(ask, [(50, 100)], now, 70.0)))
        now += 70
    return found


def test_a_cell_that_cannot_be_run_is_tried_three_times_and_named() -> None:
    every, goal = cells("a", "broken", "c"), TimeBudget(1200, MISSED_MAX)
    normal = shares({"a": 0.04, "c": 0.06})
    told: list[Tell] = []
    while (ask := Budgeted(goal, every).ask(told)) is not None:
        assert Budgeted(goal, every).given_up(told) == ""
        if ask.cell == every[1]:
            told.append(Tell(ask.cell, ask.block, None, "no such index"))
        else:
            windows, took_s = normal(ask, 0.0)
            told.append(Tell.of(digest(ask, windows, 100.0 * len(told), took_s)))
    assert [t.block for t in trials_of(told, every[1])] == [1, 2, 3]
    given_up = Budgeted(goal, every).given_up(told)
    assert given_up == "1 of 3 cells have no trial that ended: no such index"
    assert Budgeted(goal, every).spent_s(told) <= 1200


def test_a_trial_that_is_not_valid_is_run_again_in_another_block() -> None:
    every, goal = cells("a", "b"), TimeBudget(600, MISSED_MAX)
    first = Budgeted(goal, every).ask([])
    assert first is not None
    bad = Tell.of(digest(first, [(0, 900)], 0.0, 100.0, invalid="steal"))
    second = Budgeted(goal, every).ask([bad])
    assert second is not None
    assert second.cell != first.cell
    good = Tell.of(digest(second, [(0, 900)], 100.0, 100.0))
    third = Budgeted(goal, every).ask([bad, good])
    assert third is not None
    assert (third.cell, third.block, third.attempt) == (first.cell, 2, 1)


def test_attempts_that_failed_are_one_trial_and_take_their_time() -> None:
    every, goal = cells("a", "b", "c"), TimeBudget(1200, MISSED_MAX)
    told = run(goal, every, shares({"a": 0.04, "b": 0.06, "c": 0.3}))[:3]
    last = told[-1].digest
    assert last is not None
    assert last.trial.place is not None
    place = replace(last.trial.place, attempt=2)
    failed = Tell.of(replace(last, trial=replace(last.trial, state="failed")))
    again = Tell.of(replace(last, trial=replace(last.trial, place=place)))
    once, twice = (Budgeted(goal, every).ask([*told[:-1], *t]) for t in ([again], [failed, again]))
    assert once == twice
    took = Budgeted(goal, every).spent_s([*told[:-1], failed, again])
    assert took > Budgeted(goal, every).spent_s(told)
    hopeless = [*told[:-1], *[failed] * 4]
    ask = Budgeted(goal, every).ask(hopeless)
    assert ask is not None
    assert ask.why == "it has no valid trial"


@pytest.mark.parametrize(
    ("goal", "said", "enough"),
    [
        (
            TimeBudget(60, MISSED_MAX),
            "5 s, the shortest possible, of each of 18 cells takes 117 s",
            117,
        ),
        (TimeBudget(600, MISSED_MAX, trial_s=60), "60 s of each of 18 cells takes 1206 s", 1206),
        (TimeBudget(200, MISSED_MAX, warmup_s=10), "of each of 18 cells takes 288 s", 288),
    ],
)
def test_a_budget_without_room_for_a_first_pass_is_refused(
    goal: TimeBudget, said: str, enough: float
) -> None:
    every = GRID.cells()
    with pytest.raises(PlanError, match=said):
        strategies.strategies(goal, every, {})
    assert Budgeted(replace(goal, budget_s=enough), every).takes_s * len(every) == enough


def test_every_machine_has_the_whole_budget() -> None:
    every = [Cell((("target", name),)) for name in ("a", "b", "c")]
    found = strategies.strategies(TimeBudget(60, MISSED_MAX), every, {"a": "one", "b": "two"})
    takes = {
        name: sum(seconds_of(w) for w in s.samples()) / len(s.samples())
        for name, s in found.items()
    }
    assert takes == {"one": 20.0, "two": 20.0, "": 20.0}


def test_what_became_of_a_budget_is_a_sentence() -> None:
    rows = [
        Row(cell, tuple(made(Slot(n, cell), 12) for n in range(1, count + 1)))
        for count, cell in enumerate(cells("a", "b"), 1)
    ]
    said = words.spent(rows, 1800.0, 1752.0).text
    assert said == (
        "It took 29 min of the time budget of 30 min: 3 trials, 1 to 2 of each cell, more where"
        " that decides (variant = b). As each trial was chosen from the results of earlier ones,"
        " verdicts near the threshold are wrong more often than their intervals imply."
    )
    said = words.spent(rows[:1], 1800.0, 20.0).text
    assert said == "It took 20 s of the time budget of 30 min: 1 trial, 1 of each cell."


# ---- the first article in half an hour ----


class Answered(Struct, frozen=True):
    """What half an hour said, against trials of an hour. pairs: that those tell apart.

    tau: Kendall's, over them; every: over all pairs. unknown, wrong: verdicts of the 18 cells.
    """

    tau: float
    every: float
    pairs: int
    unknown: int
    wrong: int
    trials: int
    minutes: float


def long_runs(seed: int) -> dict[str, Estimate]:
    """An hour of each cell."""
    found = {}
    for cell in GRID.cells():
        clients, workers = (int(level) for _, level in cell.levels)
        windows = board.run(clients, workers, 3630, (seed, 0)).windows(30, 3630)
        missed, due = (sum(each) for each in zip(*windows, strict=True))
        estimate = stats.proportion(missed, due, stats.dispersion(windows))
        assert estimate is not None
        found[cell.key] = estimate
    return found


def on_the_board(seed: int) -> Server:
    def found(ask: Ask, _: float) -> tuple[Windows, float]:
        clients, workers = (int(level) for _, level in ask.cell.levels)
        seconds = seconds_of(ask)
        warmup = min(30.0, seconds / 10)
        ran = board.run(clients, workers, seconds + warmup, (seed, ask.block))
        return ran.windows(warmup, seconds + warmup), max(seconds + warmup, ran.over_s) + 1.0

    return found


def answered(seed: int, budget_s: float = 1800.0) -> Answered:
    """The experiment on the board, and what it is worth."""
    truth, every = long_runs(1_000_000 + seed), GRID.cells()
    told = run(TimeBudget(budget_s, MISSED_MAX, GRID.seed), every, on_the_board(seed))
    digests = [t.digest for t in told if t.digest is not None]
    rows = [
        row(c, [d for d in digests if d.trial.place and d.trial.place.cell == c.key]) for c in every
    ]
    seen = {each.cell.key: each.missed.value for each in rows if each.missed is not None}
    apart = [
        (a.key, b.key)
        for a, b in combinations(every, 2)
        if truth[a.key].high < truth[b.key].low or truth[b.key].high < truth[a.key].low
    ]
    signs = [
        np.sign(seen[a] - seen[b]) * np.sign(truth[a].value - truth[b].value) for a, b in apart
    ]
    verdicts = [(crossing.verdict(r, MISSED_MAX), truth[r.cell.key].value) for r in rows]
    return Answered(
        tau=float(np.mean(signs)),
        every=kendalltau([seen[k] for k in truth], [p.value for p in truth.values()]).statistic,
        pairs=len(apart),
        unknown=sum(said == "unknown" for said, _ in verdicts),
        wrong=sum(
            (said == "meets") != (p <= MISSED_MAX) for said, p in verdicts if said != "unknown"
        ),
        trials=len(told),
        minutes=time_budget.took_s(digests) / 60,
    )


def test_the_board_misses_what_the_article_says() -> None:
    """Of one client with workers 3%, without any half; it breaks down beyond 5 to 6 a second."""
    truth = {key: each.value for key, each in long_runs(1).items()}

    def missed(clients: int, workers: int) -> float:
        return truth[Cell((("clients", str(clients)), (WORKERS, str(workers)))).key]

    assert all(0.3 < missed(clients, 0) < 0.65 for clients in (1, 2, 4, 5))
    assert missed(1, 2) < 0.05
    assert missed(1, 4) < 0.05
    assert all(missed(4, workers) < 0.75 * missed(4, 0) for workers in (2, 4))
    assert all(missed(8, workers) > 0.8 for workers in board.WORKERS)


def test_the_first_article_is_answered_in_half_an_hour() -> None:
    found = [answered(seed) for seed in range(8)]
    assert max(each.minutes for each in found) <= 30
    assert min(each.minutes for each in found) > 28
    assert fmean(each.tau for each in found) >= 0.95
    assert min(each.tau for each in found) >= 0.9
    assert all(each.pairs >= 130 for each in found)
    assert sum(each.wrong for each in found) <= 2
