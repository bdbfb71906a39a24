"""The command that comes next: what ran, with the options that would decide."""

import shlex

import pytest
from msgspec.structs import replace

from pgpaces.analysis.compare import ComparisonGoal, Pair, compare_pairs
from pgpaces.answers.compare import decisive
from pgpaces.answers.sweep.page import gather
from pgpaces.answers.sweep.screen import section as top
from pgpaces.answers.trials import longer
from pgpaces.spec.design import Design
from tests.unit import documented
from tests.unit.comparisons import side
from tests.unit.experiments import experiment, made
from tests.unit.reports import ABOUT


@pytest.mark.parametrize(
    ("basis", "names", "next_"),
    [
        (
            "pairs",
            ("a=1", "a=2, b='x'"),
            """compare a=1 'a=2, b='"'"'x'"'"'' --like 0000000K --pairs""",
        ),
        ("blocks", (), "sweep --like 0000000K --trials"),
        ("trials", (), "sweep --like 0000000K --trials"),
    ],
)
def test_an_unknown_comparison_ends_with_as_many_pairs_as_would_decide(basis, names, next_):
    verdict = replace(judged(8), basis=basis)
    [step] = decisive("0" * 25 + "K", verdict, names)
    assert step.command == f"pgpaces {next_} {verdict.needed}"
    assert documented.parsed(shlex.split(step.command)[1:])
    assert not list(decisive("0" * 25 + "K", replace(verdict, needed=1813), names))
    assert not list(decisive("", verdict, names))


@pytest.mark.parametrize(
    ("needed_s", "length"), [(42.0, ("50s", 2)), (300.0, ("300s", 2)), (2000.0, ("300s", 7))]
)
def test_trials_are_long_enough_together_and_none_is_longer_than_five_minutes(needed_s, length):
    words = shlex.split(longer("0" * 26, needed_s).command)
    assert words[-4:] == ["-T", length[0], "--trials", str(length[1])]


def judged(count):
    """Pairs that differ by a third more or less than nothing, so that it takes more of them."""
    rates = [(100, 125 if n % 2 else 90) for n in range(count)]
    sides = [(side(a, due=100), side(b, due=100)) for a, b in rates]
    pairs = [Pair(n, a, b) for n, (a, b) in enumerate(sides)]
    return compare_pairs(pairs, ComparisonGoal(delta=0.02))


def test_an_undecided_sweep_ends_with_trials_that_are_long_enough():
    plan = Design({"clients": ("1", "4")}, trials=1)
    digests = [made(slot, 3) for slot in plan.asks()]
    about = replace(ABOUT, id="0" * 26)
    first, *_ = top(page(digests, about, plan)).next
    assert first.command.startswith("pgpaces sweep --like 00000000 -T ")
    varied = Design({"duration": ("5s", "9s")}, trials=1)
    digests = [made(slot, 3) for slot in varied.asks()]
    steps = top(page(digests, about, varied)).next
    assert [step for step in steps if step.command.startswith("pgpaces sweep")] == []


def page(digests, about, plan):
    return gather(digests, about, experiment(design=plan))
