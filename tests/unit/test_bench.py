"""The gates of the bench and the page that it writes; nothing is measured here."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import figures  # noqa: E402
from figures import Figure, Note  # noqa: E402


def figure(ours, theirs=(), **more):
    return Figure("Section", "name", "us", ours, theirs, **more)


@pytest.mark.parametrize(
    ("now", "ok"),
    [({"a": 109.0}, [True]), ({"a": 111.0}, [False]), ({"a": 89.0}, [True]),
     ({"new": 1.0}, [False, False])],
)  # fmt: skip
def test_the_gate_is_red_for_a_tenth_more_and_for_what_has_no_measurement_or_baseline(now, ok):
    found = [figure((1.0, 9.0, 2.0), gate=True), figure((3.0,)), Note("Section", "text")]
    assert figures.baseline(found) == {"Section: name": 2.0}, "nothing with a clock in it"
    assert [verdict.ok for verdict in figures.verdicts(now, {"a": 100.0})] == ok
