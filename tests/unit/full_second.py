"""A trial in a store, of one second that has a value for everything."""

from __future__ import annotations

from datetime import UTC, datetime

from pgpaces import _engine
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.times import Times
from pgpaces.spec.result import Trial
from pgpaces.store.store import new_id
from tests.unit.trials import known


def histogram(*times_ns: int) -> bytes:
    made = _engine.Histogram()
    for ns in times_ns:
        made.record(ns)
    return made.encode()


TIMES = Times(3, 2**62, 1.5, 9, histogram(7, 8, 9))
INTERVAL = Interval(
    second=4,
    tallies=(
        Tally(4, 0, 3, 1, 1, 0, {"40001": 1}, 0, TIMES, TIMES, TIMES, retried=1, retries=4),
        Tally(3, 1, due=0, on_time=2),
    ),
    statements=(StatementTally(0, 2, 1, TIMES, retries=4),),
    messages=(("40001", "could not serialize"),),
    cpu_ns=(5, 6),
    dispatch=TIMES,
    in_flight_ns=2**62,
    pending_ns=7,
    waited_ns=6,
    ended_ns=5_000_000_000,
    connects=1,
    disconnects=2,
    connect_ns=8,
    aborted=(0, 1),
    outages=2,
    outage_ns_max=3,
    down=1,
    some_down_ns=4,
    all_down_ns=2,
)


def trial(started_at: datetime | None = None) -> Trial:
    return Trial(
        id=new_id(),
        state="running",
        started_at=started_at or datetime.now(UTC),
        version="0.1.0",
        **known(
            plan={"load_text": "open, 1/s"}, workload={"name": "reporting"}, server={}, host={}
        ),
    )
