"""Experiments whose trials are chosen as they go: digests to the next trial, without a server."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.capacity.curve import CapacityGoal
from pgpaces.analysis.capacity.search import CapacitySearch, CellSearch, trial_point
from pgpaces.analysis.digest import Bucket, Digest
from pgpaces.analysis.sequential import AGAIN, SATURATING, Pairing, Tell, role
from pgpaces.analysis.validity import Validity
from pgpaces.core.errors import StoreError
from pgpaces.core.findings import Finding, finding
from pgpaces.spec.design import ROLE, Ask, Cell, Design, Experiment
from pgpaces.spec.result import Counts, Estimate, Place
from pgpaces.trial import document, strategies
from tests.errors import raises
from tests.unit.experiments import made
from tests.unit.trials import changed

BASE = made(Ask(Cell(()), 1), 12)
SPEC = CapacitySearch(CapacityGoal(0.01, 10.0, 0.1, 1e6), each=1.0)
PAIRING = Pairing({"variant": "old"}, {"variant": "new"}, compare.ComparisonGoal("throughput"))
Found = Callable[[Ask], Digest | None]


def digest(ask, due, missed, rate=100.0, invalid=""):
    """A trial that found this."""
    place = Place("E", ask.cell.key, dict(ask.cell.levels), ask.block, ask.attempt)
    text = ask.options.get("duration") or "60s"
    seconds = float(text.removesuffix("s"))
    reasons = (finding("generator-lost", why=invalid),) if invalid else ()
    trial = changed(
        BASE.trial,
        id=f"{ask.cell.key}-{ask.block}-{ask.attempt}",
        place=place,
        measured_ns=int(seconds * 1e9),
        plan={"seed": ask.block},
    )
    counts = Counts(due, due - missed, missed, 0, 0, 0)
    summary = replace(
        BASE.summary,
        counts=counts,
        cut_s=0,
        throughput=Estimate(rate, 0.9 * rate, 1.1 * rate, 5),
        validity=Validity("invalid" if invalid else "valid", reasons),
    )
    return replace(BASE, trial=trial, summary=summary, series=())


def run(strategy, found, most=200, told=()):
    """An experiment to its end, from its first trial or after those of `told`."""
    told = list(told)
    while (ask := strategy.ask(told)) is not None:
        assert len(told) < most, "it never ends"
        known = found(ask)
        told.append(
            Tell(ask.cell, ask.block, None, "it broke", ask.attempt)
            if known is None
            else Tell.of(known)
        )
    return told


def holds(at, saturated=400.0):
    """A server that holds everything up to a rate and nothing beyond."""

    def found(ask):
        levels = dict(ask.cell.levels)
        if levels[ROLE] == SATURATING:
            return digest(ask, 4000, 0, saturated)
        load = float(levels["rate"].removesuffix("/s"))
        seconds = float((ask.options["duration"] or "").removesuffix("s"))
        due = round(load * seconds)
        return digest(ask, due, due if load > at else 0, load)

    return found


def answer(told, cell, spec=SPEC):
    [search] = spec.over((cell,)).of_cells(told)
    return search


def attempt(of, number, state):
    """The same trial as another attempt, which ended so."""
    assert of.digest is not None
    assert of.digest.trial.place is not None
    place = replace(of.digest.trial.place, attempt=number)
    trial = replace(of.digest.trial, place=place, state=state)
    return Tell.of(replace(of.digest, trial=trial))


def test_a_search_finds_where_a_server_breaks_and_soaks_below_it():
    cell = Cell((("set.work_mem", "4MB"),))
    told = run(strategy := SPEC.over((cell,)), holds(173.0))
    assert strategy.given_up(told) == ""
    found = answer(told, cell)
    assert found.ended
    assert found.capacity.passes <= 173.0 < found.capacity.fails
    assert found.capacity.soak.verdict == "pass"
    assert (role(told[0].cell), role(told[-1].cell)) == (SATURATING, "soak")
    assert [t.block for t in told] == list(range(1, len(told) + 1)), "arrivals of its own"


@pytest.mark.parametrize(
    ("saturated", "each", "begins"),
    [(800.0, 1.0, (1, "270/s")), (800.0, None, (0, "10/s")), (None, 1.0, (1, "10/s"))],
    ids=["it says where the search begins", "there is none", "it failed"],
)
def test_a_saturating_trial_says_where_the_search_begins_and_is_no_bound(saturated, each, begins):
    def found(ask):
        if role(ask.cell) == SATURATING and saturated is None:
            return None
        return holds(173.0, saturated or 0.0)(ask)

    told = run(replace(SPEC, each=each, cells=(Cell(()),)), found)
    assert dict(told[begins[0]].cell.levels)["rate"] == begins[1]
    assert answer(told, Cell(())).capacity.passes is not None


def test_pairs_are_run_until_a_look_decides_and_both_meet_the_same_arrivals():
    told = run(PAIRING, pair_of(1.2))
    verdict = PAIRING.standing(told)
    assert (verdict.outcome, verdict.pairs, len(told)) == ("better", 8, 32)
    assert verdict.noise is not None
    assert [PAIRING.left(told[:n]) for n in range(33)] == list(range(32, -1, -1))
    for first, second in zip(told[::2], told[1::2], strict=True):
        assert first.block == second.block
        assert first.cell != second.cell
    real = [levels for t in told[::2] if ROLE not in (levels := dict(t.cell.levels))]
    assert {levels["variant"] for levels in real} == {"old", "new"}
    again = [t for t in told if role(t.cell) == AGAIN]
    assert len(again) == 8
    assert all(("variant", "old") in t.cell.levels for t in again)


@pytest.mark.parametrize(("levels", "clients"), [((), "3"), ((("clients", "2"),), "2")])
def test_a_saturating_trial_has_as_many_clients_as_the_load_has(levels, clients):
    ask = CellSearch(replace(SPEC, clients=3), Cell(levels)).ask()
    assert ask.options["clients"] == clients


def test_cells_are_searched_in_turn_and_each_has_an_answer_of_its_own():
    cells = tuple(Cell((("variant", name),)) for name in ("slow", "fast"))
    limits = {"slow": 60.0, "fast": 220.0}

    def found(ask):
        return holds(limits[dict(ask.cell.levels)["variant"]])(ask)

    told = run(SPEC.over(cells), found)
    for cell in cells:
        capacity = answer(told, cell).capacity
        assert capacity.passes <= limits[dict(cell.levels)["variant"]]
    # Up to where the first one ends, none is more than a trial ahead.
    ahead = 0
    for each in told[:20]:
        ahead += 1 if ("variant", "slow") in each.cell.levels else -1
        assert abs(ahead) <= 1


def test_who_goes_on_with_an_interrupted_search_asks_for_the_same_trial():
    strategy = SPEC.over((Cell(()),))
    told = run(strategy, holds(173.0))
    for n in range(len(told)):
        again = [Tell.of(t.digest) for t in told[:n] if t.digest is not None]
        ask = strategy.ask(again)
        assert ask.cell == told[n].cell
    broken_off = told[3].digest
    cut = replace(broken_off, trial=replace(broken_off.trial, state="interrupted"))
    ask = strategy.ask([*told[:3], Tell.of(cut)])
    assert ask.cell == told[3].cell
    assert ask.block == told[3].block + 1


def test_a_search_that_was_interrupted_at_its_beginning_again_and_again_goes_on():
    """What was cut short, before anything was due, measured nothing and is no reason to give up."""
    strategy = SPEC.over((Cell(()),))
    told = []
    for _ in range(4):
        ask = strategy.ask(told)
        assert (role(ask.cell), strategy.given_up(told)) == (SATURATING, "")
        cut = digest(ask, 0, 0, rate=0.0)
        told.append(Tell.of(replace(cut, trial=replace(cut.trial, state="interrupted"))))


def nothing(ask):
    """A trial all of whose transactions failed."""
    bad = digest(ask, 100, 0, rate=0.0)
    failed = replace(bad.summary, counts=Counts(100, 0, 0, 0, 100, 0))
    return replace(bad, summary=failed)


@pytest.mark.parametrize("resumes", [1, 2])
def test_a_search_that_was_given_up_as_nothing_succeeded_begins_again_when_it_is_resumed(resumes):
    strategy, cells = SPEC.over((Cell(()),)), (Cell(()),)
    told = []
    for _ in range(resumes):
        told = SPEC.over(cells).resumed(told)
        begun = len(told)
        while (ask := strategy.ask(told)) is not None:
            told.append(Tell.of(nothing(ask)))
        assert len(told) == begun + 2
        assert strategy.given_up(told).startswith("every transaction failed")
    given_up, told = len(told), SPEC.over(cells).resumed(told)
    while (ask := strategy.ask(told)) is not None:
        told.append(Tell.of(holds(173.0)(ask)))
    again = run(strategy, holds(173.0))
    assert [t.cell for t in told[given_up:]] == [t.cell for t in again]
    assert [t.block for t in told] == list(range(1, len(told) + 1))
    assert strategy.given_up(told) == ""
    stored = [Tell.of(t.digest) for t in told if t.digest is not None]
    for found in (stored, told):
        assert answer(found, Cell(())).capacity.passes == answer(again, Cell(())).capacity.passes


def test_a_search_that_is_resumed_keeps_the_results_of_cells_that_have_some():
    cells = tuple(Cell((("variant", name),)) for name in ("a", "b"))

    def found(ask):
        return nothing(ask) if ("variant", "b") in ask.cell.levels else holds(173.0)(ask)

    told = run(SPEC.over(cells), found)
    kept = [t for t in SPEC.over(cells).resumed(told) if not t.again]
    assert kept == [t for t in told if ("variant", "a") in t.cell.levels]
    assert PAIRING.over(cells).resumed(told) == told


def test_attempts_that_failed_change_nothing_of_a_search():
    cell = Cell(())
    told = run(SPEC.over((cell,)), holds(173.0))
    stored = [
        attempt(one, n, state) for one in told for n, state in ((1, "failed"), (2, "finished"))
    ]
    assert answer(stored, cell).capacity == answer(told, cell).capacity
    assert answer(stored, cell).ended


def test_trials_that_cannot_be_run_end_a_search_without_an_answer():
    strategy = replace(SPEC, each=None, cells=(Cell(()),))
    told = run(strategy, lambda _: None, most=30)
    assert strategy.given_up(told) == "it broke"
    assert strategy.given_up(told[:1]) == ""
    found = answer(told, Cell(())).capacity
    assert (found.passes, found.fails) == (None, None)
    assert "invalid-trials" in [each.name for each in found.findings]
    assert "it broke" in found.invalid


def test_who_leaves_out_what_never_settled_would_leave_out_what_did_not_hold():
    ask = SPEC.first(Cell(()))
    settling, other = (Finding(name) for name in ("never-settled", "too-hot"))
    found = digest(ask, 600, 300)
    for findings, valid in (((settling,), True), ((settling, other), False)):
        summary = replace(found.summary, validity=Validity("invalid", findings))
        assert trial_point(Tell.of(replace(found, summary=summary)), "rate").valid is valid
    running = replace(found, trial=replace(found.trial, state="running"))
    assert trial_point(Tell.of(running), "rate") is None, "it is no point yet"


def test_a_quick_search_has_short_trials_and_no_soak():
    goal = CapacityGoal(0.01, 10.0, 0.1, 1e6, quick=True, soak_s=0.0)
    asked = []

    def found(ask):
        asked.append((role(ask.cell), ask.options["duration"]))
        return holds(173.0)(ask)

    run(CapacitySearch(goal, 1.0, cells=(Cell(()),)), found)
    assert set(asked) == {(SATURATING, "10s"), ("short", "5s"), ("long", "5s")}


@pytest.mark.parametrize("after", [0, 1, 9])
def test_a_search_whose_server_went_away_is_given_up_and_says_why(after):
    cells = tuple(Cell((("variant", name),)) for name in ("a", "b"))

    def found(ask):
        gone = ("variant", "b") in ask.cell.levels and ask.block > after
        return None if gone else holds(173.0)(ask)

    strategy = SPEC.over(cells)
    told = run(strategy, found)
    assert strategy.given_up(told) == "it broke"
    assert strategy.given_up(told[:2]) == ""
    alone = SPEC.over(cells[1:])
    said = "it broke"
    assert alone.given_up(run(alone, found)) == said


def test_a_load_that_cannot_be_offered_is_an_end_and_no_reason_to_give_up():
    def found(ask):
        load = dict(ask.cell.levels).get("rate", "0/s")
        return None if float(load.removesuffix("/s")) > 150 else holds(1000.0)(ask)

    strategy = SPEC.over((Cell(()),))
    told = run(strategy, found)
    assert any(t.digest is None for t in told)
    assert strategy.given_up(told) == ""
    assert answer(told, Cell(())).capacity.passes is not None


def test_a_quick_search_ends_where_the_server_has_no_more_connections():
    spec = CapacitySearch(CapacityGoal(0.01, 45.0, 0.1, 1e6, quick=True, soak_s=0.0))
    few = "the server has 96 free connections"
    searches, told = spec.over((Cell(()),)), list[Tell]()
    while (ask := searches.ask(told)) is not None:
        possible = float(dict(ask.cell.levels)["rate"].removesuffix("/s")) <= 96
        known = Tell.of(holds(1000.0)(ask)) if possible else None
        told.append(known or Tell(ask.cell, ask.block, None, few, ask.attempt, too_much=True))
    assert searches.given_up(told) == ""
    found = answer(told, Cell(()), spec).capacity
    assert few in found.invalid
    assert found.passes is not None
    assert found.fails is None


def test_a_search_counts_what_missed_also_where_the_warm_up_is_cut_for_it():
    def bucket(start_s, missed):
        counts = Counts(10, 10 - missed, missed, 0, 0, 0)
        return Bucket(start_s, 1, counts, 1.0, 1.0, 1.0, 1.0, 1.0, 0.1)

    found = digest(SPEC.first(Cell(())), 200, 0)
    series = tuple(bucket(n, 10 if n < 5 else 0) for n in range(20))
    cut = replace(found, series=series, summary=replace(found.summary, cut_s=5))
    point = trial_point(Tell.of(cut), "rate")
    assert (point.missed, point.due) == (50, 200)
    assert point.windows == ((50, 100), (0, 100))
    assert point.seconds == 20.0


def pair_of(speed, noise=0.01, seed=1):
    """Of B so many times as fast as A; trials differ by noise."""
    rng = random.Random(seed)

    def found(ask):
        times = speed if ("variant", "new") in ask.cell.levels else 1.0
        return digest(ask, 6000, round(600 / times), 100.0 * times * rng.gauss(1.0, noise))

    return found


@pytest.mark.parametrize("how", ["invalid", "failed"])
def test_a_pair_of_which_one_was_not_valid_is_run_again_as_a_whole(how):
    normal = pair_of(1.2)
    wrong = {3}

    def found(ask):
        if ask.block in wrong:
            wrong.discard(ask.block)
            return None if how == "failed" else digest(ask, 6000, 0, invalid="steal")
        return normal(ask)

    told = run(PAIRING, found)
    third = [t for t in told if t.block == 3]
    assert [t.attempt for t in third] == [1, 1, 2, 2]
    assert len({t.cell for t in third[:2]}) == len({t.cell for t in third[2:]}) == 2
    assert PAIRING.standing(told).outcome == "better"


@settings(max_examples=30, deadline=None)
@given(failed=st.sets(st.integers(0, 31)))
def test_an_attempt_that_failed_changes_nothing_of_a_pair(failed):
    told = run(PAIRING, pair_of(1.2))
    stored = [
        each
        for n, one in enumerate(told)
        for each in (
            [attempt(one, 1, "failed"), attempt(one, 2, "finished")] if n in failed else [one]
        )
    ]
    assert PAIRING.standing(stored) == PAIRING.standing(told)
    for n in range(len(stored)):
        ask, rest = PAIRING.ask(stored[: n + 1]), stored[n + 1 :]
        found = stored[n].digest
        if found.trial.state == "finished" and rest:
            assert (ask.cell, ask.block) == (rest[0].cell, rest[0].block)


def test_a_pair_that_was_interrupted_is_run_again_as_a_whole():
    told = run(PAIRING, pair_of(1.2))
    broken_off = [*told[:5], attempt(told[5], 1, "interrupted")]
    begun = PAIRING.ask(broken_off)
    assert (begun.cell, begun.block, begun.attempt) == (told[4].cell, told[4].block, 2)
    rest = [attempt(each, 2, "finished") for each in told[4:6]]
    other = PAIRING.ask([*broken_off, rest[0]])
    assert (other.cell, other.block, other.attempt) == (told[5].cell, told[5].block, 2)
    whole = [*broken_off, *rest, *told[6:]]
    assert PAIRING.standing(whole) == PAIRING.standing(told)


def test_a_pair_that_is_never_valid_ends_the_comparison_and_says_why():
    def found(ask):
        return digest(ask, 6000, 0, invalid="the board was throttled")

    told = run(PAIRING, found)
    assert len(told) == 6
    assert "pair 1 was invalid 3 times" in PAIRING.given_up(told)
    assert "throttled" in PAIRING.given_up(told)
    assert PAIRING.standing(told).outcome == "unknown"


@pytest.mark.parametrize("begun", [0, 1, 2])
@pytest.mark.parametrize("resumes", [1, 2])
def test_a_comparison_that_a_pair_ended_begins_this_pair_again_when_it_is_resumed(resumes, begun):
    """Also after a resumed one was interrupted between two trials, `begun` of them run."""

    def found(ask):
        throttled = ask.block == 3
        return digest(ask, 6000, 0, invalid="throttled") if throttled else pair_of(1.2)(ask)

    def stored(told):
        return [Tell.of(t.digest) for t in told if t.digest is not None]

    told = []
    for count in range(1, resumes + 1):
        told = run(PAIRING, found, told=PAIRING.over(()).resumed(stored(told)))
        assert len(told) == 4 + 6 * count
        assert PAIRING.given_up(told).startswith("pair 3 was invalid 3 times: generator-lost: ")
    resumed = PAIRING.over(()).resumed(stored(told))
    for _ in range(begun):
        ask = PAIRING.ask(resumed)
        assert ask is not None
        resumed.append(Tell.of(found(ask)))
    resumed = PAIRING.over(()).resumed(stored(resumed))
    told = run(PAIRING, normal := pair_of(1.2), told=resumed)
    attempts = [(t.cell.key, t.attempt) for t in told if t.block == 3]
    assert len(set(attempts)) == len(attempts) == 2 + 6 * resumes + begun
    assert (PAIRING.given_up(told), PAIRING.standing(told).outcome) == ("", "better")
    assert PAIRING.standing(stored(told)) == PAIRING.standing(told)
    assert PAIRING.over(()).resumed(whole := run(PAIRING, normal)) == whole


@settings(max_examples=30, deadline=None)
@given(count=st.integers(0, 31), speed=st.sampled_from([1.0, 1.2, 2.0]))
def test_between_two_looks_nothing_is_concluded(count, speed):
    told = run(PAIRING, pair_of(speed), most=100)[:count]
    asked = replace(PAIRING, goal=replace(PAIRING.goal, secondary=("missed",)))
    verdict = asked.standing(told)
    assert verdict.outcome == "unknown"
    assert verdict.why in ("few", "look")
    assert {each.outcome for each in verdict.secondary} <= {"unknown"}


@pytest.mark.parametrize("goal", [SPEC, replace(SPEC, each=None), PAIRING])
def test_a_goal_is_read_as_it_was_written(goal):
    experiment = Experiment("e", "reporting", Design())
    assert document.goal(document.write(experiment, "", "", goal=goal)) == goal


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        {"kind": "magic"},
        {"kind": "capacity", "goal": 3},
        {"kind": "comparison", "a": {}, "b": {}, "goal": {"pairs": 1}},
    ],
)
def test_a_damaged_goal_is_called_that(wrong):
    with raises(StoreError, "experiment-damaged"):
        document.goal({"goal": wrong})


def test_machines_search_their_own_cells_and_pairs_are_of_all_machines():
    design = Design({"target": ("a", "b", "c")})
    found = strategies.strategies(SPEC, design, {"a": "one", "b": "one", "c": "two"})
    assert {name: len(s.samples()) for name, s in found.items()} == {"one": 2, "two": 1}
    assert list(strategies.strategies(PAIRING, design, {"a": "one"})) == [""]
