"""Two of the figures, and loads whose rate changes, from outside in real time: the schedule, the
sockets and the clock are real, the server's service times exact. Tolerances are wide: the machine
may be busy.
"""

from collections import Counter

import pytest
from tests.engine_load import SECOND_NS, Load
from tests.needs import lacking

from pgpaces.core.times import Times, merge, value_at_rank

MS = 1_000_000


def distributions(load: Load) -> dict[str, Times]:
    """Latencies and service times of a load that is run to its end."""
    parts: dict[str, list[Times]] = {"latency": [], "service": []}
    while (interval := load.run.next_interval()) is not None:
        load.outcome.add(interval)
        for tally in interval.tallies:
            for name, found in (("latency", tally.latency), ("service", tally.service)):
                values = (found.count, found.sum_ns, found.square_sum, found.max_ns)
                parts[name].append(Times(*values, found.histogram))
    return {name: merge(times) for name, times in parts.items()}


def at(times: Times, share: float) -> float:
    value = value_at_rank(times, round(share * times.count))
    assert value is not None
    return value / MS


def test_tenes_stall_at_1_to_100_is_seen_whole(fake_server, start_load):
    server = fake_server("--stall", "1..2")
    load = start_load(
        server.dsn(), "SELECT fake_sleep(1);",
        clients=110, load="open", rate=100.0, transactions=None, duration_ns=2 * SECOND_NS,
    )  # fmt: skip
    found = distributions(load)["latency"]
    assert found.count == load.outcome.due == 200
    assert found.mean_ns is not None
    # Half wait for 500 ms in the mean. 60 ms: what a busy machine may add, besides a longer stall.
    longer = found.max_ns / MS - 1000
    assert -60 <= longer < 1000
    more = max(0.0, longer) + 60
    for measured, expected in [
        (found.mean_ns / MS, 250), (at(found, 0.25), 1), (at(found, 0.75), 500),
        (at(found, 0.99), 980),
    ]:  # fmt: skip
        assert expected - 60 <= measured <= expected + more


@pytest.mark.slow
def test_constant_service_waits_as_theory_says(fake_server, start_load):
    seconds = 95
    load = start_load(
        fake_server().dsn(), "SELECT fake_sleep(20);",
        clients=1, load="open", rate=40.0, arrivals="poisson", limit_ns=100 * MS,
        transactions=None, duration_ns=90 * SECOND_NS, warmup_ns=5 * SECOND_NS,
    )  # fmt: skip
    found = distributions(load)
    latency, service = found["latency"], found["service"]
    assert latency.mean_ns is not None
    assert service.mean_ns is not None
    # A busy machine adds to the 20 ms, and at a utilization of 0.8 each percent of that adds five
    # to the mean. So theory gets the service times that were: Pollaczek and Khinchine's mean wait
    # is rate E(S^2) / 2 (1 - utilization). At 20 ms: 60 ms in all, 15.46% over 100 ms.
    rate = service.count / (seconds * SECOND_NS)
    utilization = rate * service.mean_ns
    if utilization > 0.88:
        lacking("a machine with less to do", f"utilization {utilization:.2f}")
    waits = rate * service.square_sum / service.count / (2 * (1 - utilization))
    expected = waits + service.mean_ns
    # Four standard errors of 3,800 transactions that wait for each other are about half the mean.
    assert expected / 2 < latency.mean_ns < expected * 1.5
    assert 0.05 < load.outcome.late / load.outcome.due < 0.35


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
    fake_server, start_load, threads
):
    load = start_load(
        fake_server().dsn(), "SELECT 1;",
        clients=3, threads=threads, load="open", rate=40.0, shape=RAMP, transactions=None,
        duration_ns=3 * SECOND_NS,
    )  # fmt: skip
    # 40/s x t^2 / 3 s before t: 13.3, 53.3 and 120; the first transaction is due at 0.
    assert due_by_second(load) == {0: 14, 1: 40, 2: 66}
    assert load.outcome.on_time == 120


def test_each_user_of_a_paced_load_has_the_shape(fake_server, start_load):
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


def test_each_script_is_late_by_its_own_limit(fake_server, start_load):
    load = start_load(
        fake_server().dsn(), [("a", 1, "SELECT 1;"), ("b", 1, "SELECT 2;")],
        clients=2, load="open", rate=100.0, transactions=None, duration_ns=SECOND_NS,
        limits=[(1, 1)],
    )  # fmt: skip
    found = load.finish()
    assert found.per_script[1] > 20
    assert (found.on_time, found.late) == (found.per_script[0], found.per_script[1])
