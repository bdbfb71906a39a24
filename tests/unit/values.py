"""Values of every kind that a store keeps, for property tests."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.series import Sample
from pgpaces.core.times import Times
from pgpaces.spec.result import (
    Blocked,
    Executed,
    Explained,
    Finding,
    Grown,
    Moved,
    Observed,
    Place,
    Trial,
    WaitEvent,
    Waits,
)
from pgpaces.spec.setup import (
    HostFacts,
    ScriptCommand,
    ScriptFacts,
    ServerFacts,
    Setup,
    WorkloadFacts,
)
from tests.unit.sensors import collect
from tests.unit.trials import times

NAME = st.text(max_size=12)  # NUL too
ANY_TEXT = st.text(st.characters(), max_size=12)  # and halves of surrogate pairs
BIG = st.integers(0, 2**63 - 1)
COUNT = st.integers(0, 2**31 - 1)
MOMENT = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=UTC) + timedelta(0)
)
NUMBER = st.floats(allow_nan=False)
TIMES = st.lists(st.floats(0, 1e5), max_size=3).map(times)
BIG_TIMES = st.builds(
    lambda found, total, squares: Times(
        found.count, total, squares, found.max_ns, found.histogram
    ),
    TIMES, BIG, st.floats(0, 1e300),
)  # fmt: skip
TALLY = st.builds(
    Tally, due_second=st.integers(-20, 20), script=st.just(0), due=BIG, on_time=BIG, late=BIG,
    skipped=BIG, failed=st.dictionaries(ANY_TEXT, COUNT, max_size=2), unfinished=BIG,
    latency=BIG_TIMES, lag=TIMES, service=TIMES, retried=BIG, retries=BIG,
)  # fmt: skip
STATEMENT = st.builds(
    StatementTally, script=st.just(0), command=st.integers(0, 2), failed=BIG, times=TIMES,
    retries=BIG,
)  # fmt: skip
INTERVAL = st.builds(
    Interval, second=st.integers(-30, 30),
    tallies=st.lists(TALLY, max_size=2, unique_by=lambda t: t.due_second).map(
        lambda found: tuple(sorted(found, key=lambda t: t.due_second))
    ),
    statements=st.lists(STATEMENT, max_size=2, unique_by=lambda s: s.command).map(
        lambda found: tuple(sorted(found, key=lambda s: s.command))
    ),
    messages=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=2).map(tuple),
    cpu_ns=st.lists(BIG, max_size=2).map(tuple), dispatch=BIG_TIMES, in_flight_ns=BIG,
    pending_ns=BIG, waited_ns=BIG, ended_ns=BIG, connects=COUNT, disconnects=COUNT,
    connect_ns=BIG, aborted=st.lists(COUNT, max_size=2).map(tuple), outages=COUNT,
    outage_ns_max=BIG, down=COUNT, some_down_ns=BIG, all_down_ns=BIG,
)  # fmt: skip
EXPLAINED = st.builds(
    Explained, COUNT, COUNT, ANY_TEXT, ANY_TEXT, COUNT, COUNT, BIG, ANY_TEXT, st.booleans()
)
FINDING = st.builds(
    Finding,
    ANY_TEXT,
    st.dictionaries(ANY_TEXT, ANY_TEXT | NUMBER | st.lists(ANY_TEXT, max_size=2), max_size=3),
    ANY_TEXT,
)
SAMPLE = st.builds(
    Sample, st.integers(-30, 30), ANY_TEXT, ANY_TEXT, st.floats(allow_nan=False), ANY_TEXT
)
OBSERVED = st.builds(
    Observed, ANY_TEXT,
    st.lists(st.builds(Moved, ANY_TEXT, ANY_TEXT, NUMBER, ANY_TEXT), max_size=2).map(tuple),
    st.lists(
        st.builds(Executed, ANY_TEXT, st.booleans(), BIG, NUMBER, BIG, BIG, BIG, st.none() | BIG),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(Grown, ANY_TEXT, st.sampled_from(["table", "index"]), BIG, BIG, st.none() | BIG,
                  st.none() | BIG),
        max_size=2,
    ).map(tuple),
    st.lists(
        st.builds(Blocked, *[ANY_TEXT] * 6, COUNT, st.integers(-9, 9), st.integers(-9, 9)),
        max_size=2,
    ).map(tuple),
    st.builds(
        Waits, COUNT,
        st.lists(
            st.builds(WaitEvent, st.sampled_from(["load", "others"]), ANY_TEXT, ANY_TEXT, COUNT),
            max_size=2,
        ).map(tuple),
        st.binary(max_size=20),
    ),
)  # fmt: skip
CELL = st.text("0123456789abcdef", min_size=12, max_size=12)
EXPERIMENT_ID = st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=26, max_size=26)
PLACE = st.builds(
    Place, EXPERIMENT_ID, CELL, st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=2),
    st.integers(1, 1000), st.integers(1, 2),
)  # fmt: skip


TEXTS = st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=1)
SPEC = st.fixed_dictionaries(
    {"clients": st.just(1), "rate": st.none() | st.just("3/s"), "seed": BIG},
    optional={"set.a": ANY_TEXT, "latency_limit": st.just("5ms"), "of a later version": NUMBER},
)
SCRIPT = ScriptFacts(
    name="one", weight=1, commands=tuple(ScriptCommand(n, "SELECT 1", True) for n in range(3))
)
WORKLOAD = st.builds(WorkloadFacts, name=ANY_TEXT, scripts=st.just((SCRIPT,)))
SERVER = st.builds(ServerFacts, version=ANY_TEXT, settings=TEXTS)
HOST = st.builds(HostFacts, hostname=st.none() | ANY_TEXT)
SETUP = st.builds(
    Setup, clients=st.just(1), workload=WORKLOAD, server=SERVER, host=HOST, variables=st.just(())
)
TRIAL = st.builds(
    Trial, id=st.just(""), state=st.sampled_from(["finished", "interrupted", "failed"]),
    started_at=MOMENT, ended_at=st.none() | MOMENT, spec=SPEC, setup=SETUP,
    version=st.text("0123456789.", max_size=40),
    measured_ns=st.none() | st.integers(0, 10**15),  # of more seconds no table could be made
    error=st.none() | ANY_TEXT, notes=st.lists(FINDING, max_size=2).map(tuple),
    findings=st.lists(FINDING, max_size=2).map(tuple), place=st.none() | PLACE,
    explained=st.lists(EXPLAINED, max_size=2).map(tuple),
    intervals=st.lists(INTERVAL, max_size=3, unique_by=lambda i: i.second).map(
        lambda found: tuple(sorted(found, key=lambda i: i.second))
    ),
    samples=st.lists(SAMPLE, max_size=3, unique_by=lambda s: (s.second, s.source, s.name)).map(
        collect
    ),
    observed=st.lists(OBSERVED, max_size=2, unique_by=lambda o: o.node).map(
        lambda found: tuple(sorted(found, key=lambda o: o.node))
    ),
)  # fmt: skip
