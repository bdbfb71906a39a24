"""The accumulator of a trial: intervals in, one after the other; counts and times out.

An interval is taken in and let go: what stays for each due second and script is a row of integers,
and histograms stay merged for blocks of seconds. A day of two scripts is some tens of MB. Blocks
let the warm-up be cut afterwards. Knows no statistics.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.errors import StoreError
from pgpaces.record import Interval, StatementTally, Tally
from pgpaces.result import Counts, State, Trial
from pgpaces.times import Times, merge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

KINDS = ("latency", "lag", "service")
_OUTCOMES = ("on_time", "late", "skipped", "failed", "unfinished")
_TALLY = ("due", *_OUTCOMES, "retried", "retries", "count", *KINDS)
_STATEMENT = ("failed", "retries", "count", "times")
_INTERVAL = ("ended_ns", "idle", "dispatch_ns", "in_flight_ns", "answered")
# Seconds in a block, doubled whenever there would be more blocks than this: so a cut is exact to
# 4 s in ten minutes, which is less than MSER-5's own step, and always to a hundredth of the trial.
_BLOCK_S = 1
_BLOCKS_MAX = 200
# So many distributions lie beside each other before they are merged.
_LOOSE_MAX = 16


class _Rows:
    """Integers by second: a row for each second between the first and the last that were added."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.first = 0
        self._cells = array("q")

    def add(self, second: int, values: Iterable[int]) -> None:
        width = len(self.names)
        if not self._cells:
            self.first = second
        if second < self.first:
            self._cells = array("q", bytes(8 * width * (self.first - second))) + self._cells
            self.first = second
        start = (second - self.first) * width
        if len(self._cells) < start + width:
            self._cells.frombytes(bytes(8 * (start + width - len(self._cells))))
        for place, value in enumerate(values, start):
            self._cells[place] += value

    def table(self) -> Numbers:
        """A copy, one row a second, columns as in `names`."""
        import numpy as np

        return np.array(self._cells, dtype=np.int64).reshape(-1, len(self.names))


class _Blocks:
    """Distributions by block of seconds."""

    def __init__(self) -> None:
        self._parts: dict[int, list[Times]] = {}

    def add(self, block: int, times: Times) -> None:
        if times.count:
            parts = self._parts.setdefault(block, [])
            parts.append(times)
            if len(parts) >= _LOOSE_MAX:
                parts[:] = [merge(parts)]

    def fold(self) -> None:
        """Two blocks become one."""
        before, self._parts = self._parts, {}
        for block, parts in before.items():
            self.add(block // 2, merge(parts))

    def since(self, block: int) -> Times:
        return merge(part for b, parts in self._parts.items() if b >= block for part in parts)

    def at(self, block: int) -> Sequence[Times]:
        return self._parts.get(block, ())


def _added(parts: Sequence[_Rows], since: int) -> Numbers:
    """The rows of all of them from second `since` on, second by second."""
    import numpy as np

    first = max(since, min(rows.first for rows in parts))
    tables = [
        (max(0, rows.first - first), rows.table()[max(0, first - rows.first) :]) for rows in parts
    ]
    length = max(at + len(table) for at, table in tables)
    found = np.zeros((length, len(parts[0].names)), dtype=np.int64)
    for at, table in tables:
        found[at : at + len(table)] += table
    return found


class ScriptSeconds(Struct, frozen=True):
    """The seconds of one script, or of several added up: `rows` from second `first` on.

    Columns: due, the five outcomes, retried, retries, count (of those with times), and the sums of
    latency, lag and service in ns.
    """

    first: int
    rows: Numbers

    def column(self, name: str) -> Numbers:
        """A number for each second."""
        column: Numbers = self.rows[:, _TALLY.index(name)]
        return column

    def between(self, start: int, end: int) -> ScriptSeconds:
        """The seconds from `start` until before `end` and no others, empty where none is known."""
        import numpy as np

        rows = np.zeros((max(0, end - start), len(_TALLY)), dtype=np.int64)
        low, high = max(start, self.first), min(end, self.end)
        if low < high:
            rows[low - start : high - start] = self.rows[low - self.first : high - self.first]
        return ScriptSeconds(start, rows)

    @property
    def end(self) -> int:
        """The second behind the last."""
        return self.first + len(self.rows)

    @property
    def counts(self) -> Counts:
        """The sums."""
        return Counts(*(int(self.column(name).sum()) for name in ("due", *_OUTCOMES)))


class Outages(Struct, frozen=True):
    """What became of connections that were lost, over the whole trial, its warm-up included.

    count: clients that got theirs back. longest_s: of these, and of those that were not back at
    the end. some_down_s, all_down_s: for how long in all one client at least was without a
    connection, and all of them were. down: clients without one at the end.
    """

    count: int = 0
    longest_s: float = 0.0
    some_down_s: float = 0.0
    all_down_s: float = 0.0
    down: int = 0

    def then(self, interval: Interval) -> Outages:
        """With what another second, later than all before it, says."""
        return Outages(
            self.count + interval.outages,
            max(self.longest_s, interval.outage_ns_max / 1e9),
            self.some_down_s + interval.some_down_ns / 1e9,
            self.all_down_s + interval.all_down_ns / 1e9,
            interval.down,
        )


class Accumulator:
    """What summarize needs of a trial's intervals, and no more. Feed it in order."""

    def __init__(self) -> None:
        self._scripts: dict[int, _Rows] = {}
        self._times: dict[tuple[int, str], _Blocks] = {}
        self._failures: dict[tuple[int, str], _Rows] = {}
        self._succeeded: dict[int, _Rows] = {}
        self._statements: dict[tuple[int, int], tuple[_Rows, _Blocks]] = {}
        self._dispatch = _Blocks()
        self._cpu_ns: dict[int, array[int]] = {}
        self._intervals = _Rows(_INTERVAL)
        self._block_s = _BLOCK_S
        self.messages: dict[str, str] = {}
        self.connects = self.disconnects = self.in_flight_ns = self.aborted = 0
        self.ended_ns = self.pending_ns = self.waited_ns = 0
        self.service_ns_max = self.latency_ns_max = 0
        self.outages = Outages()

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Accumulator:
        """The accumulator of these intervals."""
        accumulator = cls()
        for interval in intervals:
            accumulator.add(interval)
        return accumulator

    def add(self, interval: Interval) -> None:
        """Takes in what became known in one second."""
        self.connects += interval.connects
        self.disconnects += interval.disconnects
        self.in_flight_ns += interval.in_flight_ns
        self.aborted += len(interval.aborted)
        self.ended_ns = interval.ended_ns
        self.pending_ns += interval.pending_ns
        self.waited_ns += interval.waited_ns
        self.outages = self.outages.then(interval)
        for state, text in interval.messages:
            self.messages.setdefault(state, text)
        for tally in interval.tallies:
            self._add_tally(tally)
        if interval.second < 0:
            return
        for tally in interval.tallies:
            rows = self._succeeded.setdefault(tally.script, _Rows(("succeeded",)))
            rows.add(interval.second, (tally.on_time + tally.late,))
        dispatch = interval.dispatch
        answered = sum(t.on_time + t.late + sum(t.failed.values()) for t in interval.tallies)
        spent = (interval.in_flight_ns, answered)
        row = (interval.ended_ns, dispatch.count, dispatch.sum_ns, *spent)
        self._intervals.add(interval.second, row)
        self._cpu_ns[interval.second] = array("q", interval.cpu_ns)
        self._dispatch.add(0, dispatch)
        for statement in interval.statements:
            self._add_statement(interval.second, statement)

    def _add_tally(self, tally: Tally) -> None:
        failed = sum(tally.failed.values())
        times = (tally.latency, tally.lag, tally.service)
        self.service_ns_max = max(self.service_ns_max, tally.service.max_ns)
        self.latency_ns_max = max(self.latency_ns_max, tally.latency.max_ns)
        known = (tally.due, tally.on_time, tally.late, tally.skipped, failed, tally.unfinished)
        sums = (tally.latency.count, *(t.sum_ns for t in times))
        rows = self._scripts.setdefault(tally.script, _Rows(_TALLY))
        rows.add(tally.due_second, (*known, tally.retried, tally.retries, *sums))
        for state, count in tally.failed.items():
            rows = self._failures.setdefault((tally.script, state), _Rows(("count",)))
            rows.add(tally.due_second, (count,))
        if tally.due_second >= 0:
            block = self._block(tally.due_second)
            for kind, found in zip(KINDS, times, strict=True):
                self._times.setdefault((tally.script, kind), _Blocks()).add(block, found)

    def _add_statement(self, second: int, tally: StatementTally) -> None:
        key = (tally.script, tally.command)
        rows, blocks = self._statements.setdefault(key, (_Rows(_STATEMENT), _Blocks()))
        rows.add(second, (tally.failed, tally.retries, tally.times.count, tally.times.sum_ns))
        blocks.add(self._block(second), tally.times)

    def _block(self, second: int) -> int:
        """The block of a second; makes blocks larger where there would be too many."""
        while second // self._block_s >= _BLOCKS_MAX:
            self._block_s *= 2
            for blocks in (*self._times.values(), *(b for _, b in self._statements.values())):
                blocks.fold()
        return second // self._block_s

    def whole(self, second: int) -> int:
        """The first second from `second` on with which a block begins: where a cut can be."""
        return -(-second // self._block_s) * self._block_s

    def ledgers(self, trial: Trial) -> dict[int, ScriptSeconds]:
        """The seconds of each script, once they add up. Raises StoreError where they do not.

        What an interrupted trial left pending is unfinished; what a running one has not ended yet
        is left out.
        """
        return {
            script: ScriptSeconds(rows.first, _settled(rows, script, trial.id, trial.state))
            for script, rows in self._scripts.items()
        }

    @property
    def block_s(self) -> int:
        """The seconds of a block."""
        return self._block_s

    def parts(self, kind: str, block: int, scripts: Iterable[int]) -> list[Times]:
        """Distributions that together are the times of these scripts of those due in a block."""
        found = (self._times.get((script, kind)) for script in scripts)
        return [part for blocks in found if blocks is not None for part in blocks.at(block)]

    def times_of(self, kind: str, block: int, scripts: Iterable[int]) -> Times:
        """The distribution of the times of these scripts of those due in a block, from 0."""
        return merge(self.parts(kind, block, scripts))

    def times(self, kind: str, script: int, since: int) -> Times:
        """The distribution of a script's times of those due from second `since` on."""
        blocks = self._times.get((script, kind))
        return Times() if blocks is None else blocks.since(since // self._block_s)

    def failures(self, since: int, scripts: Container[int]) -> dict[str, int]:
        """How many of these scripts due from second `since` on failed, by SQLSTATE."""
        found: dict[str, int] = {}
        for (script, state), rows in self._failures.items():
            if script in scripts and (
                count := int(rows.table()[max(0, since - rows.first) :].sum())
            ):
                found[state] = found.get(state, 0) + count
        return found

    def statements(
        self, since: int, same: Mapping[tuple[int, int], int]
    ) -> Iterable[tuple[int, int, Numbers, Times]]:
        """Script, command, seconds and times of each command, of those that ended from `since` on.

        The columns of the seconds are failed, retries, count, sum in ns. same: the command that
        stands for another one of its script too.
        """
        groups: dict[tuple[int, int], list[tuple[_Rows, _Blocks]]] = {}
        for (script, command), each in sorted(self._statements.items()):
            groups.setdefault((script, same.get((script, command), command)), []).append(each)
        for (script, command), parts in groups.items():
            times = merge(blocks.since(since // self._block_s) for _, blocks in parts)
            yield script, command, _added([rows for rows, _ in parts], since), times

    def dispatch(self) -> tuple[Times, Numbers, Numbers]:
        """Lag of those whose client was idle when they were due: all, and counts and sums in ns."""
        table = self._intervals.table()
        return self._dispatch.since(0), table[:, 1], table[:, 2]

    def cpu_shares(self, seconds: float) -> list[float]:
        """Each thread's share of a CPU in so many seconds; what comes behind is mostly waiting."""
        within = {s: cpu for s, cpu in self._cpu_ns.items() if s < seconds}
        ended, first = self._intervals.table()[:, 0], self._intervals.first
        covered_ns = sum(int(ended[s - first]) - s * 1_000_000_000 for s in within)
        threads = max(map(len, within.values()), default=0)
        spent = [sum(cpu[t] for cpu in within.values() if t < len(cpu)) for t in range(threads)]
        return [ns / covered_ns for ns in spent] if covered_ns > 0 else []

    def silences(self) -> list[tuple[float, float]]:
        """Stretches of seconds in which something was in flight and nothing ended: from, to, in s.

        Of the measured part and of what came behind it.
        """
        table, first = self._intervals.table(), self._intervals.first
        found: list[tuple[float, float]] = []
        for second, (_, _, _, in_flight_ns, answered) in enumerate(table.tolist(), first):
            if answered or not in_flight_ns:
                continue
            start = found.pop()[0] if found and found[-1][1] == second else second
            # The last one may be no whole second.
            last = second == first + len(table) - 1
            found.append((start, self.ended_ns / 1e9 if last else second + 1))
        return found

    def succeeded(self, start: int, end: int, scripts: Iterable[int]) -> Numbers:
        """How many of these scripts succeeded a second, from `start` until before `end`.

        Whenever they were due.
        """
        import numpy as np

        found = np.zeros(max(0, end - start), dtype=np.int64)
        for rows in filter(None, map(self._succeeded.get, scripts)):
            table, first = rows.table()[:, 0], rows.first
            low, high = max(start, first), min(end, first + len(table))
            if low < high:
                found[low - start : high - start] += table[low - first : high - first]
        return found


def own_scripts(trial: Trial) -> range:
    """The numbers of a trial's own scripts; those of workloads beside it come behind them."""
    components = trial.plan.components
    beside = sum(len(component.scripts) for component in components if component.of)
    return range(len(trial.workload.scripts) - beside)


def by_functions(trial: Trial) -> bool:
    """Whether all of its load are users in Python: then what others call threads are processes."""
    scripts = trial.workload.scripts
    return bool(scripts) and all(script.kind == "users" for script in scripts)


def together(ledgers: Iterable[ScriptSeconds]) -> ScriptSeconds:
    """The sum of several ledgers."""
    import numpy as np

    found = [ledger for ledger in ledgers if len(ledger.rows)]
    if not found:
        return ScriptSeconds(0, np.zeros((0, len(_TALLY)), dtype=np.int64))
    start, end = min(ledger.first for ledger in found), max(ledger.end for ledger in found)
    rows = np.zeros((end - start, len(_TALLY)), dtype=np.int64)
    for ledger in found:
        rows += ledger.between(start, end).rows
    return ScriptSeconds(start, rows)


def _settled(rows: _Rows, script: int, trial_id: str, state: State) -> Numbers:
    """The table of a script in which due is the sum of the outcomes, in every second."""
    table = rows.table()
    due, outcomes = _TALLY.index("due"), [_TALLY.index(name) for name in _OUTCOMES]
    pending = table[:, due] - table[:, outcomes].sum(axis=1)
    for at in (pending < 0 if state != "finished" else pending != 0).nonzero()[0]:
        raise StoreError(
            f"run {trial_id} is damaged: {pending[at]} of script {script} due in second"
            f" {rows.first + at} have no outcome",
            "this is a bug in pgpaces or a damaged store: please report it",
        )
    if state == "running":
        table[:, due] -= pending
    else:
        table[:, _TALLY.index("unfinished")] += pending
    return table
