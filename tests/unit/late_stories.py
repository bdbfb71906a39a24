"""Trials whose transactions were late for a cause that is known, made of values alone."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pgpaces.analysis.summary import Summary, summarize
from pgpaces.analysis.waits import PER_SECOND, Event, WaitTally
from pgpaces.core.record import Interval, StatementTally
from pgpaces.core.record import Tally as Outcomes
from pgpaces.core.series import Sample
from pgpaces.spec.result import Blocked, Explained, Moved, Observed, Trial
from tests.unit.sensors import collect

from .trials import SECOND_NS, times, trial

LIMIT_MS = 50.0
SECONDS = 20
CPU: Event = ("load", "CPU", "")
BAD = frozenset(range(8, 12))


class Story(Struct, frozen=True):
    """What a trial is made of: a second is bad or good, and what sensors read follows from that.

    late: transactions of a bad second that were late, of all that were due. bad_ms, good_ms:
    latencies; lag: the part of it that bad ones waited to be sent. sessions: what is seen in a look
    at a bad second; usual: in one look of five at a good one. flying: in a bad second. hung: tenths
    in which nobody could look. dispatch_ms: of a bad second. bad, good: samples by source and name.
    """

    bad_seconds: frozenset[int] = BAD
    due: int = 40
    late: int = 40
    bad_ms: float = 400.0
    good_ms: float = 5.0
    lag: float = 0.0
    flying: float = 8.0
    sessions: Mapping[Event, int] = field(default_factory=lambda: {CPU: 8})
    usual: Mapping[Event, int] = field(default_factory=lambda: {CPU: 1})
    hung: frozenset[int] = frozenset()
    dispatch_ms: float = 0.05
    bad: Mapping[tuple[str, str], float] = field(default_factory=dict)
    good: Mapping[tuple[str, str], float] = field(default_factory=dict)
    failed: bool = False
    skipped: bool = False
    blocked: tuple[Blocked, ...] = ()
    explained: tuple[Explained, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)

    def told(self) -> tuple[Trial, Summary]:
        """The trial and its summary."""
        made = trial(
            [],
            intervals=tuple(self._interval(second) for second in range(SECONDS)),
            samples=collect(self._samples()),
            observed=(self._observed(),),
            explained=self.explained,
            server={"target": {"host": "db.example"}},
            measured_ns=SECONDS * SECOND_NS,
            plan={
                "limit_ns": int(LIMIT_MS * 1e6),
                "rate": float(self.due),
                "clients": 8,
                "threads": 1,
                "duration_ns": SECONDS * SECOND_NS,
                **self.plan,
            },
            workload={
                "name": "tpcb-like",
                "scale": 1,
                "scripts": [
                    {"name": "a", "weight": 1, "commands": [[1, "SELECT 1", True]], "text": ""}
                ],
            },
        )
        return made, summarize(made)

    def _interval(self, second: int) -> Interval:
        bad = second in self.bad_seconds
        missed = self.late if bad else 0
        ok = [self.good_ms] * (self.due - missed)
        slow = [] if self.failed or self.skipped else [self.bad_ms] * missed
        # Some were served that had waited nearly as long.
        ok = [0.9 * LIMIT_MS if bad and self.skipped else ms for ms in ok]
        every = ok + slow
        outcome = {"failed": {"40001": missed}} if self.failed else {"late": missed}
        outcome = {"skipped": missed} if self.skipped else outcome
        tally = Outcomes(
            second,
            0,
            due=self.due,
            on_time=len(ok),
            latency=times(every),
            lag=times([self.lag * ms if ms > self.good_ms else 0.0 for ms in every]),
            service=times([(1 - self.lag) * ms if ms > self.good_ms else ms for ms in every]),
            **(outcome if missed else {}),  # type: ignore[arg-type]
        )
        flying = self.flying if bad else self.due * self.good_ms / 1e3
        return Interval(
            second,
            tallies=(tally,),
            ended_ns=(second + 1) * SECOND_NS,
            in_flight_ns=int(flying * SECOND_NS),
            dispatch=times([self.dispatch_ms if bad else 0.05] * self.due),
            cpu_ns=(SECOND_NS // 20,),
            statements=(StatementTally(0, 0, times=times(every)),),
        )

    def _samples(self) -> Iterable[Sample]:
        usual = {("transactions", "commits"): float(self.due), ("tuples", "returned"): 80.0}
        for second in range(SECONDS):
            values = {**usual, **self.good}
            if second in self.bad_seconds:
                values |= self.bad
            for (source, name), value in values.items():
                yield Sample(second, source, name, value)

    def _observed(self) -> Observed:
        tally = WaitTally()
        for tenth in range(SECONDS * PER_SECOND):
            if tenth in self.hung:
                continue
            bad = tenth // PER_SECOND in self.bad_seconds
            tally.add(tenth, self.sessions if bad else self.usual if tenth % 5 == 0 else {})
        moved = (Moved("checkpoints", "checkpoints", 0.0),)
        return Observed(waits=tally.waits(), moved=moved, blocked=self.blocked)


def scan(removed: int = 500_000, kept: int = 1) -> Explained:
    """A plan that reads a whole table for next to nothing."""
    node = {
        "Node Type": "Seq Scan", "Relation Name": "accounts", "Filter": "(aid = 1)",
        "Rows Removed by Filter": removed, "Actual Rows": kept, "Actual Loops": 1,
        "Actual Total Time": 30.0,
    }  # fmt: skip
    plan = json.dumps([{"Plan": node, "Execution Time": 30.5}])
    return Explained(0, 0, "shape", "Seq Scan", 0, 0, 0, plan)


def planned() -> Explained:
    """A plan that was not executed: the server would read a whole table for one row."""
    node = {
        "Node Type": "Seq Scan", "Relation Name": "items", "Filter": "(id = 1)", "Plan Rows": 1,
        "Total Cost": 9000.0,
    }  # fmt: skip
    return Explained(0, 0, "shape", "Seq Scan", 0, 0, 0, json.dumps([{"Plan": node}]), False)


def waiting(kind: str, event: str) -> Mapping[Event, int]:
    """Eight sessions of the load that all wait for the same."""
    return {("load", kind, event): 8}


def by(blocking: str, state: str = "idle in transaction") -> tuple[Blocked, ...]:
    """The load waited for somebody in the bad seconds."""
    pair = Blocked("load", "Lock:transactionid", "ShareLock", blocking, state, "UPDATE t", 4, 8, 11)
    return (pair,)


# A cause, by what it is called, as it would look.
STORIES: Mapping[str, Story] = {
    "lock": Story(sessions=waiting("Lock", "transactionid"), blocked=by("nightly job")),
    "contention": Story(sessions=waiting("Lock", "tuple"), blocked=by("load", "active")),
    "quota": Story(
        bad={("host", "cgroup_throttled_share"): 80.0},
        good={("host", "cgroup_throttled_share"): 0.0},
    ),
    "freeze": Story(
        bad_seconds=frozenset((8, 9)), hung=frozenset(range(80, 95)), bad_ms=1500.0,
        sessions={CPU: 4},
    ),
    "disk": Story(sessions=waiting("IO", "WalSync")),
    "standby": Story(sessions=waiting("IPC", "SyncRep")),
    "latch": Story(sessions=waiting("LWLock", "ProcArray")),
    "checkpoint": Story(
        sessions=waiting("IO", "WalSync"),
        bad={("checkpoints", "checkpoints"): 1.0, ("checkpoints", "requested"): 1.0},
        good={("checkpoints", "checkpoints"): 0.0, ("checkpoints", "requested"): 0.0},
    ),
    "plan": Story(bad={("tuples", "returned"): 40 * 500_000.0}, explained=(scan(),)),
    "connections": Story(
        lag=0.95, bad_ms=200.0, flying=8.0, sessions={("load", "Timeout", "PgSleep"): 8}
    ),
    "network": Story(sessions={}),
    "generator": Story(dispatch_ms=380.0, lag=0.95, flying=0.8, sessions={}),
    "cpu": Story(bad={("host", "cpu_busy"): 99.0}, good={("host", "cpu_busy"): 20.0}),
    "steal": Story(
        sessions={CPU: 2}, bad={("host", "cpu_steal"): 40.0}, good={("host", "cpu_steal"): 0.0}
    ),
    "autovacuum": Story(
        sessions={CPU: 2}, flying=2.0,
        bad={("io", "autovacuum_read"): 1e7}, good={("io", "autovacuum_read"): 0.0},
    ),
    "others": Story(sessions={CPU: 2, ("others", "CPU", ""): 3}, flying=2.0),
    "failed": Story(failed=True, late=20, sessions={CPU: 1}, flying=0.2),
}  # fmt: skip


def always(story: Story) -> Story:
    """The same from the start to the end: nobody was on time but a few."""
    return replace(story, bad_seconds=frozenset(range(SECONDS)), late=story.due - 2)
