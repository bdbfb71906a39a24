"""A load of the engine alone, and what became of it."""

from collections import Counter
from dataclasses import dataclass, field

from pgpaces import _engine
from pgpaces.core.texts import encoded
from pgpaces.load.engine import EnginePlan

SECOND_NS = 1_000_000_000
PLAN = EnginePlan(
    clients=2, threads=1, protocol="simple", describe=True, load="closed", rate=1.0,
    arrivals="even", shape=[], think="none", think_ns=0, policy="run", limit_ns=None, limits=[],
    duration_ns=None, transactions=1, start_every_ns=0, warmup_ns=0, grace_ns=5 * SECOND_NS,
    seed=1, variables=[],
    on_connect=[], backlog="serve", max_tries=1, continue_on_error=True, exit_on_abort=True,
    keep_going=True,
    recover=True, connect_each=False, time_commands=False, verbose=False, notices=False,
    debug=False, poll="auto", log=None,
)  # fmt: skip


@dataclass
class Outcome:
    """A trial that is over, summed up; its identity has been checked."""

    due: int = 0
    on_time: int = 0
    late: int = 0
    skipped: int = 0
    unfinished: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    connects: int = 0
    disconnects: int = 0
    connect_ns: int = 0
    aborted: int = 0
    retried: int = 0
    retries: int = 0
    per_script: Counter[int] = field(default_factory=Counter)
    outages: int = 0
    outage_ns_max: int = 0
    down: int = 0
    some_down_ns: int = 0
    all_down_ns: int = 0

    @property
    def done(self) -> int:
        return self.on_time + self.late

    def add(self, interval: _engine.Interval) -> None:
        assert min(interval.pending_ns, interval.waited_ns) >= 0, "nothing is due before its time"
        for tally in interval.tallies:
            for name in ("due", "on_time", "late", "skipped", "unfinished", "retried", "retries"):
                setattr(self, name, getattr(self, name) + getattr(tally, name))
            self.failed.update(dict(tally.failed))
            self.per_script[tally.script] += tally.due
        self.messages.update(dict(interval.messages))
        self.notes += interval.notes
        self.connects += interval.connects
        self.disconnects += interval.disconnects
        self.lines += interval.lines
        self.connect_ns += interval.connect_ns
        self.aborted += len(interval.aborted)
        self.outages += interval.outages
        self.outage_ns_max = max(self.outage_ns_max, interval.outage_ns_max)
        self.down = interval.down
        self.some_down_ns += interval.some_down_ns
        self.all_down_ns += interval.all_down_ns


class Load:
    """A trial that is going on. `finish` waits for its end."""

    def __init__(self, dsn: str, scripts: list[tuple[str, int, str]], plan: EnginePlan) -> None:
        route = _engine.find_route(_engine.resolve(dsn, {}))
        self.outcome = Outcome()
        texts = [(name, weight, encoded(text)) for name, weight, text in scripts]
        self.run = _engine.Run(plan, texts, route)
        self.run.begin(0)

    def next(self) -> bool:
        """Wait for the next second; False when there is none."""
        interval = self.run.next_interval()
        if interval is not None:
            self.outcome.add(interval)
        return interval is not None

    def finish(self) -> Outcome:
        """Wait for the end; everything that was due has ended in exactly one class."""
        while self.next():
            pass
        o = self.outcome
        assert o.due == o.on_time + o.late + o.skipped + sum(o.failed.values()) + o.unfinished, o
        return o
