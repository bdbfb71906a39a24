"""The accumulator of a trial: intervals in, one after the other; counts and times out.

It does not keep intervals. Of each due second and script it keeps a row of integers, and of blocks
of seconds merged histograms: a day of two scripts takes some tens of MB. Blocks allow the warm-up
to be cut afterwards. Knows no statistics.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from pgpaces.analysis.arrays import Numbers, np
from pgpaces.core.errors import StoreError
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times, merge
from pgpaces.spec.result import CLASSES, Counts, Trial

KINDS = ("latency", "lag", "service")
_TALLY = ("due", *CLASSES, "retried", "retries", "count", *KINDS)
_STATEMENT = ("failed", "retries", "count", "sum_ns")
_INTERVAL = ("idle", "dispatch_ns", "dispatch_ns_max", "ended_ns", "in_flight_ns", "answered")
# The most blocks: whenever there would be more, the seconds in a block are doubled. So a cut is
# exact to 4 s in ten minutes, and always to a hundredth of the trial.
_BLOCKS_MAX = 200
# Distributions of a block that are kept apart before they are merged; none of earlier blocks.
_LOOSE_MAX = 16


class SecondSums(Struct, frozen=True):
    """Integers by second: `rows` from second `first` on, with the columns `names`.

    The default columns are those of one script, or of several together: due, the five outcomes,
    retried, retries, count (of transactions with times), and the sums of latency, lag, and service
    in ns.
    """

    first: int
    rows: Numbers
    names: tuple[str, ...] = _TALLY

    def column(self, name: str) -> Numbers:
        column: Numbers = self.rows[:, self.names.index(name)]
        return column

    def between(self, start: int, end: int) -> SecondSums:
        """The seconds from `start` up to, but not including, `end`, zero where there is no row."""
        window = np.zeros((max(0, end - start), len(self.names)), dtype=np.int64)
        low, high = max(start, self.first), min(end, self.end)
        if low < high:
            window[low - start : high - start] = self.rows[low - self.first : high - self.first]
        return SecondSums(start, window, self.names)

    @property
    def end(self) -> int:
        """The second after the last."""
        return self.first + len(self.rows)

    @property
    def counts(self) -> Counts:
        return Counts(*(int(self.column(name).sum()) for name in ("due", *CLASSES)))


def together(ledgers: Mapping[int, SecondSums], scripts: Iterable[int] | None = None) -> SecondSums:
    """The seconds of these scripts, or of all."""
    every = (ledgers.get(n) for n in (ledgers if scripts is None else scripts))
    nonempty = [part for part in every if part is not None and len(part.rows)]
    start = min((part.first for part in nonempty), default=0)
    end = max((part.end for part in nonempty), default=0)
    rows = np.zeros((end - start, len(_TALLY)), dtype=np.int64)
    for part in nonempty:
        rows += part.between(start, end).rows
    return SecondSums(start, rows)


class _Rows:
    """Sums that grow: a row for each second between the first and the last that were added."""

    def __init__(self, *names: str) -> None:
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

    def drop(self, end: int) -> None:
        del self._cells[max(0, end - self.first) * len(self.names) :]

    def seconds(self) -> SecondSums:
        cells = np.array(self._cells, dtype=np.int64)
        return SecondSums(self.first, cells.reshape(-1, len(self.names)), self.names)


class _Blocks:
    def __init__(self) -> None:
        self._parts: dict[int, list[Times]] = {}

    def add(self, block: int, times: Times) -> None:
        if times.count:
            if block not in self._parts and self._parts:
                self._merge(next(reversed(self._parts)))
            parts = self._parts.setdefault(block, [])
            parts.append(times)
            if len(parts) >= _LOOSE_MAX:
                self._merge(block)

    def _merge(self, block: int) -> None:
        self._parts[block][:] = [merge(self._parts[block])]

    def fold(self) -> None:
        before, self._parts = self._parts, {}
        for block, parts in before.items():
            self.add(block // 2, merge(parts))

    def drop(self, end: int) -> None:
        self._parts = {block: parts for block, parts in self._parts.items() if block < end}

    def since(self, block: int, end: int | None = None) -> Times:
        chosen = (b for b in self._parts if b >= block and (end is None or b < end))
        return merge(part for b in chosen for part in self._parts[b])

    def at(self, block: int) -> Sequence[Times]:
        return self._parts.get(block, ())


class Outages(Struct, frozen=True):
    """Lost connections over the whole trial, its warm-up included.

    count: losses after which a client got a connection again. longest_s: the longest outage, also
    of clients without a connection at the end. some_down_s, all_down_s: the total time in which at
    least one client, or all of them, had no connection. down: clients without one at the end.
    """

    count: int = 0
    longest_s: float = 0.0
    some_down_s: float = 0.0
    all_down_s: float = 0.0
    down: int = 0

    def then(self, interval: Interval) -> Outages:
        return Outages(
            self.count + interval.outages,
            max(self.longest_s, interval.outage_ns_max / 1e9),
            self.some_down_s + interval.some_down_ns / 1e9,
            self.all_down_s + interval.all_down_ns / 1e9,
            interval.down,
        )


class Accumulator:
    """The sums of a trial's intervals that `summarize` needs. Add intervals in order.

    block_s: seconds in a block. counts_only: it adds up what was due, without distributions.
    """

    def __init__(self, *, counts_only: bool = False) -> None:
        self._counts_only = counts_only
        # By script; by script and SQLSTATE; by script and kind; by script and command.
        self._scripts: dict[int, _Rows] = defaultdict(partial(_Rows, *_TALLY))
        self._succeeded: dict[int, _Rows] = defaultdict(partial(_Rows, "count"))
        self._failures: dict[tuple[int, str], _Rows] = defaultdict(partial(_Rows, "count"))
        self._times: dict[tuple[int, str], _Blocks] = defaultdict(_Blocks)
        self._statements: dict[tuple[int, int], tuple[_Rows, _Blocks]] = {}
        self._dispatch = _Blocks()
        self._cpu_ns: list[_Rows] = []
        self._intervals = _Rows(*_INTERVAL)
        self.block_s = 1
        self.messages: dict[str, str] = {}
        self.connects = self.disconnects = self.in_flight_ns = self.aborted = 0
        self.ended_ns = self.pending_ns = self.waited_ns = 0
        self.service_ns_max = self.latency_ns_max = 0
        self.outages = Outages()

    @classmethod
    def of(cls, intervals: Iterable[Interval], *, counts_only: bool = False) -> Accumulator:
        accumulator = cls(counts_only=counts_only)
        for interval in intervals:
            accumulator.add(interval)
        return accumulator

    def add(self, interval: Interval) -> None:
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
        second, dispatch, answered = interval.second, interval.dispatch, 0
        whole = second >= 0 and not self._counts_only
        for tally in interval.tallies:
            self._add_tally(tally)
            answered += tally.on_time + tally.late + sum(tally.failed.values())
            if whole:
                self._succeeded[tally.script].add(second, (tally.on_time + tally.late,))
        if not whole:
            return
        lags = (dispatch.count, dispatch.sum_ns, dispatch.max_ns)
        others = (interval.ended_ns, interval.in_flight_ns, answered)
        self._intervals.add(second, (*lags, *others))
        self._dispatch.add(0, dispatch)
        self._cpu_ns += [_Rows("cpu_ns") for _ in interval.cpu_ns[len(self._cpu_ns) :]]
        for rows, cpu_ns in zip(self._cpu_ns, interval.cpu_ns, strict=False):
            rows.add(second, (cpu_ns,))
        for each in interval.statements:
            key, times = (each.script, each.command), each.times
            rows, blocks = self._statements.setdefault(key, (_Rows(*_STATEMENT), _Blocks()))
            rows.add(second, (each.failed, each.retries, times.count, times.sum_ns))
            blocks.add(self._block(second), times)

    def _add_tally(self, tally: Tally) -> None:
        times = (tally.latency, tally.lag, tally.service)
        self.service_ns_max = max(self.service_ns_max, tally.service.max_ns)
        self.latency_ns_max = max(self.latency_ns_max, tally.latency.max_ns)
        failed = sum(tally.failed.values())
        outcomes = (tally.on_time, tally.late, tally.skipped, failed, tally.unfinished)
        sums = (tally.latency.count, *(t.sum_ns for t in times))
        row = (tally.due, *outcomes, tally.retried, tally.retries, *sums)
        self._scripts[tally.script].add(tally.due_second, row)
        for state, count in tally.failed.items():
            self._failures[tally.script, state].add(tally.due_second, (count,))
        if tally.due_second >= 0 and not self._counts_only:
            block = self._block(tally.due_second)
            for kind, part in zip(KINDS, times, strict=True):
                self._times[tally.script, kind].add(block, part)

    def _block(self, second: int) -> int:
        """The block of a second. Makes blocks larger where there would be too many."""
        while second // self.block_s >= _BLOCKS_MAX:
            self.block_s *= 2
            for blocks in (*self._times.values(), *(b for _, b in self._statements.values())):
                blocks.fold()
        return second // self.block_s

    def drop(self, end: int) -> None:
        """Forgets what fell due from second `end` on, at which a block begins."""
        for rows in (*self._scripts.values(), *self._failures.values()):
            rows.drop(end)
        for blocks in self._times.values():
            blocks.drop(-(-end // self.block_s))

    def whole(self, second: int) -> int:
        """The first second from `second` on at which a block begins, and a cut can be."""
        return -(-second // self.block_s) * self.block_s

    def ledgers(self, trial: Trial) -> dict[int, SecondSums]:
        """The seconds of each script. Raises StoreError where outcomes do not add up to due.

        Transactions that an interrupted trial left pending are unfinished; those that a running
        trial has not ended yet are left out.
        """
        ledgers = {script: rows.seconds() for script, rows in self._scripts.items()}
        for script, seconds in ledgers.items():
            counts = {name: seconds.column(name) for name in ("due", *CLASSES)}
            pending = counts["due"] - sum(counts[name] for name in CLASSES)
            for at in (pending < 0 if trial.state != "finished" else pending != 0).nonzero()[0]:
                where = {"run": trial.id, "script": script, "second": seconds.first + at}
                raise StoreError("outcomes-missing", count=pending[at], **where)
            if trial.state == "running":
                counts["due"] -= pending
            else:
                counts["unfinished"] += pending
        return ledgers

    def parts(self, kind: str, block: int, scripts: Iterable[int]) -> list[Times]:
        """Distributions that together are the times of these scripts' transactions due in a block.

        Blocks count from second 0.
        """
        every = (self._times.get((script, kind)) for script in scripts)
        return [part for blocks in every if blocks is not None for part in blocks.at(block)]

    def times(self, kind: str, script: int, since: int) -> Times:
        """The distribution of the times of a script's transactions due from `since` on."""
        return self._times.get((script, kind), _Blocks()).since(since // self.block_s)

    def failures(self, since: int, scripts: Container[int]) -> dict[str, int]:
        """Failed transactions of these scripts due from second `since` on, by SQLSTATE."""
        counts: Counter[str] = Counter()
        for (script, state), rows in self._failures.items():
            if script in scripts:
                counts[state] += int(rows.seconds().rows[max(0, since - rows.first) :].sum())
        return {state: count for state, count in counts.items() if count}

    def statements(
        self, since: int, same: Mapping[tuple[int, int], int], until: int | None = None
    ) -> Iterable[tuple[int, int, SecondSums, Times]]:
        """Script, command, seconds and times of each command, by executions ended from `since` on.

        until: the second before which they ended, at which a block begins. The columns of the
        seconds are failed, retries, count, and sum_ns. same: for a command, the command of its
        script under which it is counted.
        """
        last = None if until is None else -(-until // self.block_s)
        groups: dict[tuple[int, int], list[tuple[SecondSums, _Blocks]]] = {}
        for (script, command), (rows, blocks) in sorted(self._statements.items()):
            key = (script, same.get((script, command), command))
            groups.setdefault(key, []).append((rows.seconds(), blocks))
        for (script, command), parts in groups.items():
            times = merge(blocks.since(since // self.block_s, last) for _, blocks in parts)
            first = max(since, min(seconds.first for seconds, _ in parts))
            end = max(seconds.end for seconds, _ in parts) if until is None else max(first, until)
            sums = np.sum([seconds.between(first, end).rows for seconds, _ in parts], axis=0)
            yield script, command, SecondSums(first, sums, _STATEMENT), times

    def dispatch(self) -> tuple[Times, SecondSums]:
        """Lags of transactions whose client was idle when due.

        The columns by second: idle, dispatch_ns, and dispatch_ns_max.
        """
        return self._dispatch.since(0), self._intervals.seconds()

    @property
    def sent_count(self) -> int:
        """Transactions that were due in the measured part and were sent."""
        kinds = (blocks for (_, kind), blocks in self._times.items() if kind == "lag")
        return sum(blocks.since(0).count for blocks in kinds)

    def cpu_shares(self, seconds: float) -> list[float]:
        """Each thread's share of a CPU in the first `seconds`; after them threads mostly wait."""
        end, first = math.ceil(seconds), self._intervals.first
        ended_ns = self._intervals.seconds().column("ended_ns")[: max(0, end - first)]
        at = ended_ns.nonzero()[0]
        covered_ns = int((ended_ns[at] - (at + first) * 1_000_000_000).sum())
        return [
            int(rows.seconds().rows[: max(0, end - rows.first)].sum()) / covered_ns
            for rows in (self._cpu_ns if covered_ns > 0 else ())
        ]

    def silences(self) -> list[tuple[float, float]]:
        """Start and end (s) of each time in which transactions were in flight and none ended.

        In the measured part and after it.
        """
        seconds = self._intervals.seconds()
        silent = (seconds.column("in_flight_ns") > 0) & (seconds.column("answered") == 0)
        silences: list[tuple[float, float]] = []
        for second in (seconds.first + silent.nonzero()[0]).tolist():
            start = silences.pop()[0] if silences and silences[-1][1] == second else second
            # The last second may be a partial one.
            last = second == seconds.end - 1
            silences.append((start, self.ended_ns / 1e9 if last else second + 1))
        return silences

    def succeeded(self, start: int, end: int, scripts: Iterable[int]) -> Numbers:
        """Successes of these scripts by the second of their end, from `start` to before `end`."""
        counts = np.zeros(max(0, end - start), dtype=np.int64)
        for rows in filter(None, map(self._succeeded.get, scripts)):
            counts += rows.seconds().between(start, end).column("count")
        return counts


def own_scripts(trial: Trial) -> range:
    """The numbers of a trial's own scripts; those of background workloads follow them."""
    background = sum(len(each.scripts) for each in trial.setup.components if each.of)
    return range(len(trial.workload.scripts) - background)


def background_scripts(trial: Trial) -> dict[str, list[int]]:
    """The numbers of the scripts of each background workload, by its name."""
    numbers: dict[str, list[int]] = defaultdict(list)
    first = 0
    for component in trial.setup.components:
        if component.of:
            numbers[component.of] += range(first, first + len(component.scripts))
        first += len(component.scripts)
    return numbers


def by_functions(trial: Trial) -> bool:
    """Whether users in Python make all of the load: then its threads are processes."""
    scripts = trial.workload.scripts
    return bool(scripts) and all(script.kind == "users" for script in scripts)
