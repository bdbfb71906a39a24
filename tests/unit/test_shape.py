"""Shapes of loads: what people write, and the segments that the engine gets."""

from __future__ import annotations

import contextlib
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.core.errors import PlanError
from pgpaces.core.units import SECOND_NS
from pgpaces.spec import shape
from pgpaces.spec.shape import Segment, parse

MINUTE_NS = 60 * SECOND_NS
TEXTS = st.one_of(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=9).map(
        lambda found: "steps:" + ":".join(f"{m:.4f}" for m in found)
    ),
    st.tuples(st.floats(0, 100), st.floats(0.01, 100)).map("ramp:{0[0]:.4f}:{0[1]:.4f}".format),
    st.tuples(st.floats(0, 100), st.integers(1, 900)).map("burst:{0[0]:.4f}:{0[1]}ms:1s".format),
    st.just("day"),
)


def mean(segments: tuple[Segment, ...], duration_ns: int) -> float:
    """The mean multiplier: the sum of the trapezoids over the length."""
    ends = [*(start for start, _, _ in segments[1:]), duration_ns]
    parts = ((end - s[0]) * (s[1] + s[2]) / 2 for s, end in zip(segments, ends, strict=True))
    return math.fsum(parts) / duration_ns


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("constant", ()),
        ("steps:0.5:1:2", ((0, 0.5, 0.5), (20 * SECOND_NS, 1, 1), (40 * SECOND_NS, 2, 2))),
        ("ramp:0.5:2", ((0, 0.5, 2.0),)),
        (
            "burst:4:5s:40s",
            ((0, 1, 1), (35 * SECOND_NS, 4, 4), (40 * SECOND_NS, 1, 1)),
        ),
        (" ramp:0:.5 ", ((0, 0.0, 0.5),)),
    ],
)
def test_a_text_becomes_segments(text: str, segments: tuple[Segment, ...]) -> None:
    assert parse(text).segments(MINUTE_NS) == segments
    assert str(parse(text)) == text.strip()


def test_a_day_goes_from_night_to_night_and_has_the_rate_in_the_mean() -> None:
    day = parse("day").segments(96 * SECOND_NS)
    assert (day[0][1], day[48][1], day[-1][2]) == pytest.approx((0.2, 1.8, 0.2))
    assert mean(day, 96 * SECOND_NS) == pytest.approx(1)
    for start, low, _ in day:
        assert low == pytest.approx(1 - 0.8 * math.cos(2 * math.pi * start / 96e9))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("steps:0.5:1:3", 1.5), ("ramp:0.5:2", 1.25), ("burst:4:10s:1min", 1.5), ("day", 1)],
)
def test_the_mean_of_a_shape_is_the_one_that_it_says(text: str, expected: float) -> None:
    assert mean(parse(text).segments(60 * MINUTE_NS), 60 * MINUTE_NS) == pytest.approx(expected)


@given(TEXTS, st.integers(SECOND_NS, 300 * SECOND_NS))
def test_segments_lie_in_the_trial_in_order_and_below_the_peak(text: str, length_ns: int) -> None:
    found = parse(text)
    segments = found.segments(length_ns)
    starts = [start for start, _, _ in segments]
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] < length_ns
    ends = list(itertools.chain.from_iterable((low, high) for _, low, high in segments))
    assert min(ends) >= 0
    assert max(ends) == pytest.approx(found.peak)


@pytest.mark.parametrize(
    "text",
    [
        "", "steps", "steps:1", "steps:1:x", "steps:0:0", "steps:1:-1", "steps:1:nan", "ramp:1",
        "ramp:1:2:3", "ramp:0:0", "burst:4", "burst:4:10s", "burst:4:1min:1min", "burst:4:0s:1min",
        "burst:x:1s:1min", "day:2", "constant:1", "week", "steps:1:1001",
    ],
)  # fmt: skip
def test_what_is_no_shape_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert text in caught.value.message


@given(st.text(max_size=20))
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(PlanError):
        assert parse(text).peak > 0


def test_bursts_that_do_not_fit_a_trial_are_refused() -> None:
    with pytest.raises(PlanError, match="after the end"):
        parse("burst:4:10s:1min").segments(50 * SECOND_NS)
    with pytest.raises(PlanError, match="more than 10000"):
        parse("burst:4:1ms:2ms").segments(MINUTE_NS)
    assert len(parse("burst:4:10s:1min").segments(51 * SECOND_NS)) == 2


def test_the_constant_shape_is_the_default_of_a_load() -> None:
    assert parse("constant") == shape.CONSTANT
    assert shape.CONSTANT.peak == 1
