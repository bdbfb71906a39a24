"""Comparisons and trends in words: each with its interval and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from pgpaces.analysis import unpaired
from pgpaces.analysis.compare import METRICS, ComparisonGoal, Pair, Verdict, judge, next_pairs
from pgpaces.analysis.differences import Between
from pgpaces.analysis.trend import check, trend
from pgpaces.answers import trend as trend_words
from pgpaces.answers.compare import words as verdicts
from pgpaces.show.section import Sentence
from pgpaces.spec.result import Estimate
from tests.unit.comparisons import MISSED, STEADY, runs, shares, verdict, with_noise
from tests.unit.drifting import pair, side

FINITE = [
    Pair(n, side(1, p99=10, mean=5), side(1, p99=math.inf, mean=5 + x))
    for n, x in enumerate(STEADY)
]
SAID: list[tuple[Verdict, Sequence[str]]] = [
    (verdict([0.05 + x for x in STEADY]), ["B is better than A", "5.1% higher", "(5.0 to 5.2%)"]),
    (verdict([-0.05 + x for x in STEADY]), ["B is worse than A", "4.9% lower than that of A"]),
    (verdict([1.5 + x for x in STEADY]), ["4.48 times as high as that of A"]),
    (verdict(STEADY), ["equivalent to A within 2%", "0.11% lower to 0.11% higher"]),
    (
        verdict([60 * x for x in STEADY]),
        [
            "inconclusive: its throughput comes out",
            "smallest detectable difference",
            "is 9.5%",
            "pairs would decide",
        ],
    ),
    (verdict([0.1]), ["(–)", "1 pair cannot", "It takes 8 pairs"]),
    (verdict([]), ["No pairs", "It takes 8 pairs"]),
    (with_noise(STEADY, STEADY), ["Noise floor, A with itself"]),
    (with_noise(STEADY, [30 * x for x in STEADY]), ["may hide in that", "larger delta"]),
    (
        with_noise([0.041 + x for x in STEADY], [0.04 + x for x in STEADY]),
        ["tells equal things apart", "Find what disturbs"],
    ),
    (judge(shares([50] * 8, [30, 31, 29, 30] * 2), MISSED), ["2.0 points lower", "points)"]),
    (
        judge(FINITE, ComparisonGoal("p99", same=0)),
        ["In 8 of them", "is no number", "share missed"],
    ),
    (
        judge(FINITE, ComparisonGoal("mean", ("rate",), same=0)),
        ["mean latency", "Secondary metric, throughput: inconclusive"],
    ),
    (
        unpaired.unpaired([side(100)] * 3, [side(103)] * 3, ComparisonGoal(), mixed=False),
        ["may be the machine's", "ran before all of the other", "Run pairs of both"],
    ),
    (
        unpaired.unpaired(
            [side(99), side(101)], [side(199), side(201)], ComparisonGoal(), mixed=True
        ),
        ["Trials that are no pairs", "times as high"],
    ),
    (
        check([side(80)], [side(100 + n) for n in range(6)], ComparisonGoal()),
        ["Held against 6 earlier runs"],
    ),
    (check([side(99)], [side(100 + n) for n in range(6)], ComparisonGoal()), ["Run it again"]),
    (check([side(99)], [], ComparisonGoal()), ["No earlier runs", "It takes 4 earlier runs"]),
]


def text(said: Sequence[Sentence]) -> str:
    return " ".join(each.text for each in said)


@pytest.mark.parametrize(("found", "parts"), SAID, ids=[parts[0] for _, parts in SAID])
def test_a_verdict_is_told_with_its_interval_and_what_to_do(
    found: Verdict, parts: Sequence[str]
) -> None:
    said = verdicts.comparison(found)
    told = text(said)
    for part in parts:
        assert part in told
    assert said[0].weight == "main"
    assert "no difference" not in told.lower()
    assert "e-" not in told.split("p =")[0], "no more digits than anybody believes"
    if found.outcome == "inconclusive":
        assert said[-1].text != said[0].text, "the last one says what to do"


def test_every_outcome_and_every_reason_has_words() -> None:
    assert {found.outcome for found, _ in SAID} == {"better", "worse", "equivalent", "inconclusive"}
    assert {found.why for found, _ in SAID} == {
        *("", "few", "unbounded", "noise", "biased", "wide", "apart")
    }
    assert {found.basis for found, _ in SAID} | {"blocks"} == set(verdicts.BASIS)


def test_a_look_says_which_p_it_was_held_against() -> None:
    found = next_pairs([pair(n, 0.2 + n / 99) for n in range(1, 9)], ComparisonGoal(same=0))
    assert isinstance(found, Verdict)
    assert "held against 0.0005 at this look" in text(verdicts.comparison(found))


def test_a_and_b_are_called_by_their_names() -> None:
    told = text(verdicts.comparison(SAID[0][0], "work_mem 4MB", "work_mem 64MB"))
    assert told.startswith("work_mem 64MB is better than work_mem 4MB: ")


def test_where_no_number_of_pairs_would_decide_it_says_what_would() -> None:
    found = replace(verdict([60 * x for x in STEADY]), needed=None)
    assert "longer trials or a larger delta" in text(verdicts.comparison(found))


def test_intervals_across_the_unit_and_far_beyond_it_are_told_in_one_measure_each() -> None:
    rate = METRICS["rate"]
    assert verdicts.difference(rate, 0.4) == "0.4 times as high"
    wide = replace(SAID[0][0], estimate=Estimate(2.5, 0.9, 4, 8))
    told = text(verdicts.comparison(wide))
    assert "10.0% lower to 4 times as high" in told


def test_what_differs_beside_what_is_compared_is_listed() -> None:
    found = [Between(f"setting s{n}", ("1",), ()) for n in range(11)]
    said = verdicts.refused(found, "work_mem")
    assert "differ in more than work_mem" in said[0].text
    assert said[1].text == "setting s0: 1 of A, - of B."
    assert said[-1].text == "And 3 more."
    assert verdicts.refused([], "work_mem") == ()


def test_a_trend_is_told_newest_change_first() -> None:
    logs = np.random.default_rng(3).normal(0, 0.01, 30)
    logs[10:20] += 0.3
    said = trend_words.sentences(trend(runs(logs)), METRICS["rate"])
    assert said[0].text.startswith("Since r20 the throughput is 25.5% lower than up to r19 (")
    assert said[0].text.endswith(": worse.")
    assert said[1].text.endswith(": better.")
    assert trend_words.sentences(trend(runs(logs)), METRICS["mean"])[0].text.endswith(": better.")
    still = text(trend_words.sentences(trend(runs(logs[:10])), METRICS["rate"]))
    assert "No change of level was found" in still
    few = trend_words.sentences(trend([*runs(logs[:3]), *runs([math.inf])]), METRICS["rate"])
    assert "a trend requires 8" in few[0].text
    assert "Left out" in few[1].text
