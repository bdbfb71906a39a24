"""Loads whose rate changes, and scripts with limits of their own, in real time: through the
binding, with threads, sockets and the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.engine_load import SECOND_NS, Load, StartLoad
from tests.fake_server import FakeServer

from pgpaces.core.errors import PlanError

RAMP = [(0, 0.0, 2.0)]


def due_by_second(load: Load) -> Counter[int]:
    """What fell due in each second of a load that is run to its end."""
    found: Counter[int] = Counter()
    while (interval := load.run.next_interval()) is not None:
        load.outcome.add(interval)
        for tally in interval.tallies:
            found[tally.due_second] += tally.due
    return found


@pytest.mark.parametrize("threads", [1, 3])
def test_as_much_falls_due_as_the_area_below_the_shape_says_with_any_number_of_threads(
    fake_server: Callable[..., FakeServer], start_load: StartLoad, threads: int
) -> None:
    load = start_load(
        fake_server().dsn(), "SELECT 1;",
        clients=3, threads=threads, load="open", rate=40.0, shape=RAMP, transactions=None,
        duration_ns=3 * SECOND_NS,
    )  # fmt: skip
    # 40/s x t^2 / 3 s before t: 13.3, 53.3 and 120; the first transaction is due at 0.
    assert due_by_second(load) == {0: 14, 1: 40, 2: 66}
    assert load.outcome.on_time == 120


def test_each_user_of_a_paced_load_has_the_shape(
    fake_server: Callable[..., FakeServer], start_load: StartLoad
) -> None:
    steps = [(0, 1.0, 1.0), (SECOND_NS, 3.0, 3.0)]
    load = start_load(
        fake_server().dsn(), "SELECT 1;",
        clients=5, load="paced", rate=10.0, shape=steps, transactions=None,
        duration_ns=2 * SECOND_NS,
    )  # fmt: skip
    found = due_by_second(load)
    # Each user begins within its first gap: one more or less for each.
    assert found[0] == pytest.approx(50, abs=5)
    assert found[1] == pytest.approx(150, abs=5)


def test_each_script_is_late_by_its_own_limit(
    fake_server: Callable[..., FakeServer], start_load: StartLoad
) -> None:
    load = start_load(
        fake_server().dsn(), [("a", 1, "SELECT 1;"), ("b", 1, "SELECT 2;")],
        clients=2, load="open", rate=100.0, transactions=None, duration_ns=SECOND_NS,
        limits=[(1, 1)],
    )  # fmt: skip
    found = load.finish()
    assert found.per_script[1] > 20
    assert (found.on_time, found.late) == (found.per_script[0], found.per_script[1])


def test_what_cannot_be_is_refused_by_the_engine_too(
    fake_server: Callable[..., FakeServer], start_load: StartLoad
) -> None:
    dsn = fake_server().dsn()
    with pytest.raises(PlanError, match="closed load"):
        start_load(dsn, "SELECT 1;", shape=RAMP)
    with pytest.raises(PlanError, match="does not run"):
        start_load(dsn, "SELECT 1;", limits=[(1, 1)])
    with pytest.raises(PlanError, match="every script"):
        start_load(dsn, "SELECT 1;", load="open", policy="skip")
