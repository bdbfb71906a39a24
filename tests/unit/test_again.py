"""The command that comes next: what ran, with the options that would decide."""

import shlex

import pytest
from msgspec.structs import replace

from pgpaces.analysis import compare
from pgpaces.analysis.compare import ComparisonGoal, Pair, Side
from pgpaces.answers.again import again, decisive, longer
from pgpaces.answers.sweep.page import gather
from pgpaces.answers.sweep.report import top
from pgpaces.spec.design import Design, Factor
from tests.unit import documented
from tests.unit.experiments import experiment, made
from tests.unit.reports import ABOUT


@pytest.mark.parametrize(
    ("command", "options", "next_"),
    [
        ("pgpaces sweep w -T 5s --trials 2", {"duration": "60s"}, "w --trials 2 -T 60s"),
        ("pgpaces sweep w --duration=5s", {"duration": "60s"}, "w -T 60s"),
        ("pgpaces sweep w --duration 5s -c 2", {"duration": "60s"}, "w -c 2 -T 60s"),
        ("pgpaces sweep w -T5s", {"duration": "60s"}, "w -T 60s"),
        ("pgpaces sweep w --quick -L 1s", {"quick": ""}, "w -L 1s"),
        ("pgpaces sweep 'a b' --trials 3", {"trials": "8"}, "'a b' --trials 8"),
    ],
)
def test_an_option_replaces_the_one_that_was_there_however_it_is_spelled(command, options, next_):
    assert again(command, **options) == f"pgpaces sweep {next_}"


@pytest.mark.parametrize(
    ("command", "basis", "next_"),
    [
        ("pgpaces compare a=1 a=2 --run w --pairs 8", "pairs", "compare a=1 a=2 --run w --pairs"),
        ("pgpaces sweep w --trials 8", "blocks", "sweep w --trials"),
        ("pgpaces sweep w --quick", "blocks", "sweep w --trials"),
        ("pgpaces capacity w -L 50ms", "blocks", None),
        ("", "pairs", None),
    ],
)
def test_an_undecided_comparison_ends_with_as_many_pairs_as_would_decide(command, basis, next_):
    verdict = replace(judged(8), basis=basis)
    expected = [f"pgpaces {next_} {verdict.needed}"] if next_ else []
    assert list(decisive(command, verdict)) == expected
    assert all(documented.parsed(shlex.split(each)[1:]) for each in expected)
    assert list(decisive(command, replace(verdict, needed=1813))) == []


@pytest.mark.parametrize(
    ("needed_s", "length"), [(42.0, ("50s", 2)), (300.0, ("300s", 2)), (2000.0, ("300s", 7))]
)
def test_trials_are_long_enough_together_and_none_is_longer_than_five_minutes(needed_s, length):
    words = shlex.split(longer("pgpaces sweep w --quick", needed_s))
    assert words[-4:] == ["-T", length[0], "--trials", str(length[1])]
    assert "--quick" not in words


def judged(count):
    """Pairs that differ by a third more or less than nothing, so that it takes more of them."""
    rates = [(100, 125 if n % 2 else 90) for n in range(count)]
    sides = [(Side({"throughput": a}, 0, 100), Side({"throughput": b}, 0, 100)) for a, b in rates]
    pairs = [Pair(n, a, b) for n, (a, b) in enumerate(sides)]
    return compare.judge(pairs, ComparisonGoal(delta=0.02))


def test_an_undecided_sweep_ends_with_trials_that_are_long_enough():
    plan = Design((Factor("clients", ("1", "4")),), trials=1)
    digests = [made(slot, 3) for slot in plan.slots()]
    about = replace(ABOUT, rerun="pgpaces sweep reporting --quick", id="0" * 26)
    first, *_ = top(page(digests, about, plan)).next
    assert first.startswith("pgpaces sweep reporting -T ")
    assert "--quick" not in first
    varied = Design((Factor("duration", ("5s", "9s")),), trials=1)
    digests = [made(slot, 3) for slot in varied.slots()]
    steps = top(page(digests, about, varied)).next
    assert [step for step in steps if step.startswith("pgpaces sweep")] == []


def page(digests, about, plan):
    return gather(digests, about, experiment(design=plan))
