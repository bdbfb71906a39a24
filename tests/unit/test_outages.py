"""What an answer says of connections that were lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgpaces.answers.summary import summarize
from pgpaces.questions.run import section
from pgpaces.questions.trials import outages
from pgpaces.record import Interval, Tally
from tests.unit.trials import trial

MS = 1_000_000
WHOLE = Interval(0, tallies=(Tally(0, 0, due=1, on_time=1),))


@pytest.mark.parametrize(
    ("intervals", "said"),
    [
        (
            (
                replace(WHOLE, disconnects=8, down=8, some_down_ns=900 * MS, all_down_ns=900 * MS),
                Interval(1, down=8, some_down_ns=1000 * MS, all_down_ns=1000 * MS),
                Interval(2, outages=8, outage_ns_max=2100 * MS, some_down_ns=250 * MS,
                         all_down_ns=100 * MS),
            ),
            "8 lost, longest outage 2.1 s, no client connected for 2.0 s,"
            " all back after 2.1 s",
        ),
        (
            (replace(WHOLE, disconnects=1, outages=1, outage_ns_max=12 * MS,
                     some_down_ns=12 * MS),),
            "1 lost, longest outage 12 ms, all back after 12 ms",
        ),
        (
            (replace(WHOLE, disconnects=3, down=2, outage_ns_max=4000 * MS,
                     some_down_ns=1000 * MS),),
            "3 lost, longest outage 4.0 s, clients not back at the end: 2",
        ),
    ],
    ids=["all", "one", "not back"],
)  # fmt: skip
def test_an_outage_is_said_in_a_line(intervals: tuple[Interval, ...], said: str) -> None:
    found = summarize(trial([], intervals=intervals))
    assert outages(found) == said


def test_without_a_loss_nothing_is_said() -> None:
    found = trial([], intervals=(WHOLE,), plan=PLAN, workload=WORKLOAD, server={"version": "18"})
    assert "connections" not in dict(section(found, summarize(found)).facts)


PLAN = {
    "limit_ns": None, "policy": "run", "model": "open", "load_text": "open", "warmup_ns": 0,
    "clients": 1, "protocol": "simple", "seed": 1,
}  # fmt: skip
WORKLOAD = {
    "name": "w", "scale": 1, "scripts": [{"name": "a", "weight": 1, "commands": []}],
}  # fmt: skip
