"""Results as frozen values: trials, counts, estimates, observations of servers.

Knows no source of them. The seconds of a trial are in record.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import astuple

from pgpaces.core.findings import Finding
from pgpaces.core.record import Interval, Tally
from pgpaces.core.series import Series
from pgpaces.spec.load import Count, TrialPlan, trial_plan
from pgpaces.spec.migration import Pass
from pgpaces.spec.setup import HostFacts, ServerFacts, Setup, WorkloadFacts

State = Literal["running", "finished", "interrupted", "failed"]
CLASSES = ("on_time", "late", "skipped", "failed", "unfinished")


class Estimate(Struct, frozen=True):
    """A number with its 95% interval: value, low, high in the same unit; n observations.

    Infinity is above every value: the rank of what did not succeed. An interval from minus to plus
    infinity means that there are too few observations for an interval.
    """

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def alone(cls, value: float, n: int) -> Estimate:
        """A value whose interval cannot be estimated."""
        return cls(value, -math.inf, math.inf, n)

    @property
    def estimable(self) -> bool:
        """Whether there is an interval."""
        return self.low != -math.inf

    def times(self, factor: float) -> Estimate:
        """It in another unit; the factor is more than 0."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.n)


class Counts(Struct, frozen=True):
    """The identity: due = on time + late + skipped + failed + unfinished + pending."""

    due: int = 0
    on_time: int = 0
    late: int = 0
    skipped: int = 0
    failed: int = 0
    unfinished: int = 0

    @property
    def ended(self) -> int:
        """Transactions that have an outcome."""
        return self.on_time + self.late + self.skipped + self.failed + self.unfinished

    @property
    def pending(self) -> int:
        """Due and without an outcome yet; 0 when a trial is over."""
        return self.due - self.ended

    @property
    def missed(self) -> int:
        """late + skipped + failed + unfinished."""
        return self.late + self.skipped + self.failed + self.unfinished


def counts(tallies: Iterable[Tally]) -> Counts:
    sums = dict.fromkeys(("due", *CLASSES), 0)
    for tally in tallies:
        sums["due"] += tally.due
        sums["on_time"] += tally.on_time
        sums["late"] += tally.late
        sums["skipped"] += tally.skipped
        sums["failed"] += sum(tally.failed.values())
        sums["unfinished"] += tally.unfinished
    return Counts(**sums)


class Place(Struct, frozen=True):
    """The place of a trial in an experiment.

    experiment: its id. cell: the cell's key. levels: of each factor, as written. block: from 1.
    attempt: 1, or 2 for the repetition of a failed trial.
    """

    experiment: str
    cell: str
    levels: Mapping[str, str]
    block: Annotated[int, Meta(ge=1)]
    attempt: Annotated[int, Meta(ge=1)] = 1


_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Brief(Struct, frozen=True):
    """The numbers of a trial that lists of runs show. missed_share: with its interval."""

    due: _Finite | None = None
    missed_share: tuple[_Finite, _Finite, _Finite] | None = None
    p99_ms: _Finite | str | None = None


class Explained(Struct, frozen=True):
    """The plan of one statement: one EXPLAIN (ANALYZE), with parameters of its script.

    script, command: numbers in the workload. shape: a hash of nodes, relations and indexes,
    without costs and times, to compare plans. Workers planned and launched, bytes spilled to disk:
    sums over the plan. plan: JSON text from the server. analyzed: it was executed.
    """

    script: Count
    command: Count
    shape: str
    summary: str
    workers_planned: Count
    workers_launched: Count
    spilled_bytes: Count
    plan: str
    analyzed: bool = True


class Moved(Struct, frozen=True):
    """The increase of a server's counter, from the start of the measured part to the load's end."""

    source: str
    name: str
    value: float
    unit: str = ""


class Executed(Struct, frozen=True):
    """The work of one statement on a server during a trial and its warm-up, by pg_stat_statements.

    text: normalized by the server. load: the role of the load executed it. Blocks: found in the
    server's cache, and read.
    """

    text: str
    load: bool
    calls: int
    total_ms: float
    rows: int
    blocks_hit: int
    blocks_read: int
    wal_bytes: int | None = None


class Grown(Struct, frozen=True):
    """A table with its TOAST, or an index: its size before a trial's warm-up and after the trial.

    dead: dead tuples of a table by the server's count.
    """

    name: str
    kind: Literal["table", "index"]
    before_bytes: int
    after_bytes: int
    dead_before: int | None = None
    dead_after: int | None = None


class Blocked(Struct, frozen=True):
    """Sessions that waited for a lock which another session held or requested before them.

    waiting, blocking: "load", or the application's name. mode: of the awaited lock. state: of the
    blocking session. statement: its first characters; empty if it is hidden. samples: the number of
    samples with it, at most one a second, from first_s to last_s.
    """

    waiting: str
    event: str
    mode: str
    blocking: str
    state: str
    statement: str
    samples: int
    first_s: int
    last_s: int


class WaitEvent(Struct, frozen=True):
    """A wait event of active sessions; "CPU" without an event: they did not wait.

    who: the load, or others. sessions: the number with this event, summed over all samples from
    second 0 on.
    """

    who: Literal["load", "others"]
    kind: str
    event: str
    sessions: Count


class Waits(Struct, frozen=True):
    """Wait events in each tenth of a second. looks: the number of samples from second 0 on.

    tenths: the number of sessions by event and tenth; analysis/waits.py reads it.
    """

    looks: Count = 0
    events: tuple[WaitEvent, ...] = ()
    tenths: bytes = b""


class Observed(Struct, frozen=True):
    """Observations of one server during a trial, other than samples. node: "" if it is the only."""

    node: str = ""
    moved: tuple[Moved, ...] = ()
    executed: tuple[Executed, ...] = ()
    grown: tuple[Grown, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    waits: Waits = Waits()


class Trial(Struct, frozen=True, dict=True):
    """One run of one cell: what was asked and resolved, its place and time, and every interval.

    spec: the options by name (spec.py); of another program's, what its log tells. measured_ns:
    length of the measured part. findings: of sensors and the pipeline, without those that follow
    from the numbers. place: in an experiment, if any. samples: of the sensors. explained: plans of
    its statements. observed: other observations of each server. rehearsed: a migration during it.
    """

    id: str
    state: State
    started_at: datetime
    spec: Mapping[str, Any]
    setup: Setup
    version: str
    intervals: tuple[Interval, ...] = ()
    ended_at: datetime | None = None
    measured_ns: Count | None = None
    error: str | None = None
    notes: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    place: Place | None = None
    samples: tuple[Series, ...] = ()
    explained: tuple[Explained, ...] = ()
    observed: tuple[Observed, ...] = ()
    rehearsed: Pass | None = None

    @cached_property
    def plan(self) -> TrialPlan:
        """What the spec asks of the load. Raises PlanError if it cannot be read."""
        return trial_plan(self.spec)

    @property
    def workload(self) -> WorkloadFacts:
        return self.setup.workload

    @property
    def server(self) -> ServerFacts:
        return self.setup.server

    @property
    def host(self) -> HostFacts:
        return self.setup.host

    @property
    def load_text(self) -> str:
        imported = self.setup.imported
        return self.plan.load.text("" if imported is None else imported.program)

    def limit_ns(self, script: str) -> int:
        """The latency limit of a script, by its name in this trial, ns; 0: none."""
        part = next((e for e in self.setup.components if script in e.scripts), self.plan)
        return dict(part.limits).get(script, part.limit_ns) or 0


def plain(value: Any) -> Any:
    """Objects, lists, numbers and texts; None for infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if not isinstance(value, Struct):
        return value
    items = zip(value.__struct_encode_fields__, map(plain, astuple(value)), strict=True)
    members: dict[str, Any] = dict(items)
    return members | {"estimable": value.estimable} if isinstance(value, Estimate) else members


def fields(item: Struct, *names: str) -> dict[str, Any]:
    return {name: plain(getattr(item, name)) for name in names}
