"""What an experiment will take, said before it is run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.preview import Span, between, preview, trial_span
from pgpaces.answers.preview import as_json, lines
from pgpaces.show.number_text import clock
from pgpaces.spec.design import Design, Experiment
from pgpaces.spec.load import Load, TrialPlan

SECOND_NS = 1_000_000_000


def span(seconds: int | None, *, writes: bool = False) -> Span | None:
    duration = None if seconds is None else seconds * SECOND_NS
    count = 10 if seconds is None else None
    plan = TrialPlan(
        Load("open", 1.0), clients=1, duration_ns=duration, transactions=count, warmup_ns=0
    )
    return trial_span(plan, writes=writes)


@given(st.lists(st.integers(1, 3600), min_size=1, max_size=20), st.booleans())
def test_trials_of_a_machine_take_at_least_their_loads(seconds, writes):
    found = preview({"": [span(n, writes=writes) for n in seconds]}).seconds
    assert found is not None
    assert sum(seconds) < found.low < found.value < found.high


def test_machines_work_at_the_same_time():
    found = preview({"a": [span(3599)] * 3, "b": [span(3599)]})
    alone = preview({"a": [span(3599)] * 3})
    assert found.seconds == alone.seconds
    assert (found.trials, dict(found.machines)) == (4, {"a": 3, "b": 1})


def test_a_load_that_ends_by_count_has_no_known_length():
    few, many = (preview({"": [span(None), span(60)] * n}) for n in (1, 2))
    assert few.seconds is between(few, many).seconds is None
    assert any("unknown" in line for line in lines(Experiment("e", "w", Design()), few))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (99.4, "99 s"), (120, "2 min"), (5900, "98 min"), (11_100, "3 h 5 min"),
     (7200, "2 h"), (187_200, "2 d 4 h"), (172_800, "2 d")],
)  # fmt: skip
def test_a_duration_is_said_as_people_say_it(seconds, text):
    assert clock(seconds) == text


def test_words_and_json_say_the_same():
    design = Design({"clients": ("1", "2")}, trials=3)
    experiment = Experiment("pi", "reporting", design)
    found = preview({"": [span(60)] * 6})
    text = "\n".join(lines(experiment, found))
    assert "2 cells, 3 trials of each: 6 in all" in text
    assert "clients: 1, 2" in text
    plain = as_json(experiment, found)
    assert (plain["trials_to_run"], plain["factors"]) == (6, {"clients": ["1", "2"]})
    assert plain["cells"] == [{"clients": "1"}, {"clients": "2"}]


def test_what_may_take_more_or_less_is_said_as_both():
    few, many = (preview({"a": [span(60)] * n}) for n in (10, 30))
    assert few.seconds is not None
    assert many.seconds is not None
    found = between(few, many)
    assert found.seconds is not None
    assert (found.seconds.low, found.seconds.high) == (few.seconds.low, many.seconds.high)
    assert few.seconds.value < found.seconds.value < many.seconds.value
    experiment = Experiment("e", "w", Design())
    assert "1 cell, 10 to 30 trials" in next(lines(experiment, found, ["until certain"]))
    plain = as_json(experiment, found)
    assert (plain["trials_to_run_least"], plain["trials_to_run"]) == (10, 30)
