"""What each cause of lateness would show: a trial in, a share for each second out. Pure.

A signal is the share of their life in which transactions due in a second saw a cause, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from pgpaces.analysis import goal
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.attribution.timeline import Kind, Timeline, smooth, weighted_mean
from pgpaces.analysis.generator import BACKLOG_TIMES, STILL_S, standstills
from pgpaces.analysis.plan_text import plan_nodes, plan_of
from pgpaces.core.findings import Finding, finding
from pgpaces.core.locality import by_socket, is_local
from pgpaces.spec.result import Explained

_SHOWN = 3
# The percentages of steal, and of a machine's busy CPUs, from which on they count entirely.
_STEAL_WHOLE, _BUSY_FROM, _BUSY_TO = 20.0, 85.0, 95.0
# A machine is slowed if its clock frequency is below this share of the first one.
_SLOWED_BELOW = 0.9
# Missed transactions read so many times as many blocks, or rows, as others.
_MORE_TIMES = 3.0
# Checkpoints that are no longer apart cause the waits for the disk.
_STORM_EVERY_S = 30.0
# The least rows removed by a scan, in all and for each row that it returns, that call for an index.
_WASTED_MIN, _WASTED_TIMES = 10_000, 100
# The period of a CPU quota, the kernel's default.
_PERIOD_S = 0.1
# The least seconds without an answer to the load, but to the monitor, that are evidence.
_SILENT_MIN_S = 2
# The least mean lag with which the generator is late itself, and its least share of the limit.
_DISPATCH_MIN_S, _DISPATCH_OF_LIMIT = 0.0002, 0.05
# Utilization of clients by transactions of usual length: between these, clients go from enough
# to entirely too few.
_UTILIZATION_FROM, _UTILIZATION_TO = 0.8, 0.95
# A difference of shares up to this is an error of rounding.
_ROUNDING = 1e-9
_ROWS_MIN = 1_000
# Transactions that read this part of the rows a scan removes have executed it.
_OF_WASTE = 0.1
# Sessions wait for a checkpoint that lasts these seconds at least, with this many times as many
# of them waiting for the disk, and at least this many. Else it only runs at the same time.
_SLOWER_MIN_S, _SLOWER_TIMES, _SLOWER_LEAST = 3, 2.0, 0.5


class Signal(Struct, frozen=True):
    """What a cause would show, by second of due time, 0 to 1; NaN where it is unknown.

    late: for transactions that missed. punctual: for those on time; None if it is the same.
    evidence: observations. alone: a part that causes of proof "time" do not reduce. beside: that
    it went on at the same time is all that is known, whatever the cause's proof is. advice: the
    form of the cause whose advice applies.
    """

    late: Numbers
    evidence: tuple[Finding, ...] = ()
    punctual: Numbers | None = None
    alone: Numbers | None = None
    beside: bool = False
    advice: str = ""

    @property
    def on_time(self) -> Numbers:
        return self.late if self.punctual is None else self.punctual


Measure = Callable[[Timeline], Signal | None]


def failed_signal(timeline: Timeline) -> Signal | None:
    """An outcome, so it needs no inference: failed transactions missed because they failed."""
    if not timeline.failed.any():
        return None
    messages = timeline.summary.messages
    states = sorted(timeline.failures.items(), key=lambda pair: -pair[1])
    evidence = tuple(
        finding("failed-with", count=count, state=state, message=messages[state])
        if state in messages
        else finding("failed-with-state", count=count, state=state)
        for state, count in states[:_SHOWN]
    )
    late = quotient(timeline.failed, timeline.missed, 0.0)
    return Signal(late, evidence, punctual=np.zeros(timeline.seconds))


def quota_signal(timeline: Timeline) -> Signal | None:
    share = timeline.track("host", "cgroup_throttled_share")
    if share is None:
        return None
    # A transaction sees every period of its life, and the one in which it begins.
    periods = 1 + timeline.latency_s / _PERIOD_S
    late = 1 - np.clip(1 - timeline.life_mean(share / 100), 0.0, 1.0) ** periods
    percent = timeline.mean_of_missed(share)
    return Signal(late, (finding("quota-used-up", periods_percent=percent),))


def freeze_signal(timeline: Timeline) -> Signal | None:
    """The server answered no session: samples hung, or no client was connected, in an outage."""
    sessions = timeline.sessions
    down = timeline.by_clock(lambda each: min(1.0, each.all_down_ns / 1e9))
    if sessions is None and not down.any():
        return None
    # Of a time in which the generator stood still itself, the monitor says nothing of the server.
    unknown = _generator_still(timeline) > 0
    share = timeline.track("host", "cgroup_throttled_share")
    if share is not None:
        # Nor does it if a quota throttled much. The kernel counts a period after its end, and the
        # counter is read once a second, so this may show in the seconds before and after.
        high = np.pad(np.nan_to_num(share) >= 30, 1)
        unknown |= high[:-2] | high[1:-1] | high[2:]
    frozen = np.zeros(timeline.clock)
    if sessions is not None:
        # It hangs to the end if no sample arrived, and no transaction in flight ended, any more.
        quiet = (sessions.samples == 0) & (timeline.in_flight > 0) & (timeline.ended == 0)
        frozen = np.fmax(sessions.frozen, np.asarray(np.cumprod(quiet[::-1])[::-1].astype(float)))
    frozen = np.where(unknown | (frozen < STILL_S), 0.0, frozen)
    seen = {"no-client-connected": down, "no-session-answered": frozen}
    evidence = (finding(name, seconds=float(s.sum())) for name, s in seen.items() if s.any())
    return Signal(_stopped(timeline, np.fmax(frozen, down)), tuple(evidence))


def _stopped(timeline: Timeline, stops: Numbers) -> Numbers:
    """The signal of a stop. stops: the part of each second of the clock.

    A short one does not explain a long life; but a backlog takes time to drain.
    """
    stopped_s = timeline.life_sum(stops)
    part = quotient(BACKLOG_TIMES * stopped_s, timeline.latency_s, 1.0)
    return np.asarray(np.clip(part, 0.0, 1.0) * (stopped_s > 0))


def _generator_still(timeline: Timeline) -> Numbers:
    """The part of each second of the clock in which the generator stood still, 0 to 1.

    A time in which the server's monitor hung counts where the generator's lag, or one of the
    monitor of its machine (users of a closed load have no lag), is at least half as long.
    """
    still = np.zeros(timeline.clock)
    longest_s = timeline.by_clock(lambda each: each.dispatch.max_ns / 1e9)
    stops = standstills(longest_s, goal.limits_ns(timeline.trial))
    # 1 in seconds of the clock without a reading of the generator's machine between others.
    own = timeline.track("generator", "cpu_busy")
    own = timeline.track("host", "cpu_busy") if own is None else own
    unread = np.zeros(timeline.clock)
    if own is not None and (read_at := np.flatnonzero(np.isfinite(own))).size:
        unread[read_at[0] : read_at[-1]] = 1.0
        unread[read_at] = 0.0
    frozen = timeline.sessions.frozen if timeline.sessions else still
    at = np.flatnonzero(frozen)
    for hung in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if at.size else ():
        start, end = int(hung[0]), int(hung[-1]) + 1
        meeting = [stop for stop in stops if stop[0] < end and start < stop[1]]
        lag_s = max((length_s for *_, length_s in meeting), default=0.0)
        if max(lag_s, unread[start:end].sum()) >= frozen[start:end].sum() / 2:
            still[start:end] = frozen[start:end]
            stops = [stop for stop in stops if stop not in meeting]
    for start, end, length_s in stops:
        still[start:end] = np.fmax(still[start:end], min(1.0, length_s / (end - start)))
    return still


def steal_signal(timeline: Timeline) -> Signal | None:
    stolen = timeline.track("host", "cpu_steal")
    if stolen is None:
        return None
    evidence = finding("cpu-stolen", steal_percent=timeline.mean_of_missed(stolen))
    return Signal(timeline.life_mean((stolen / _STEAL_WHOLE).clip(0.0, 1.0)), (evidence,))


def slowed_signal(timeline: Timeline) -> Signal | None:
    bits, clock = (timeline.track("host", name) for name in ("pi_throttled", "cpu_frequency"))
    if bits is None and clock is None:
        return None
    low, evidence = np.zeros(timeline.clock), []
    if bits is not None:
        low = np.fmax(low, np.nan_to_num(bits) > 0)
        evidence.append(finding("machine-throttled", seconds=float(low.sum())))
    if clock is not None and np.isfinite(clock).any():
        start = float(np.nanmax(clock[: max(5, len(clock) // 10)]))
        low = np.fmax(low, np.where(np.isfinite(clock), clock < _SLOWED_BELOW * start, False))
        evidence.append(finding("clock-lower", late=timeline.mean_of_missed(clock), start=start))
    return Signal(timeline.life_mean(low), tuple(evidence))


def cpu_signal(timeline: Timeline) -> Signal | None:
    """No CPU left on the server's machine, while transactions in flight needed one."""
    busy = timeline.track("host", "cpu_busy")
    if busy is None:
        return None
    full = np.clip((busy - _BUSY_FROM) / (_BUSY_TO - _BUSY_FROM), 0.0, 1.0)
    if timeline.sessions is not None and timeline.in_flight.any():
        # A session that waits for a CPU to begin is not active yet. Over a Unix socket all time
        # outside of sessions is that; else at most as many again as those on a CPU.
        on_cpu, away = timeline.flight_share(timeline.sessions.of("cpu")), timeline.outside()
        begin = np.zeros(timeline.clock) if away is None else np.nan_to_num(away)
        # Transactions that queue for a lock need no CPU.
        begin = begin * (1 - timeline.queueing)
        begin = begin if _no_network(timeline) else np.minimum(begin, on_cpu)
        full = full * np.clip(on_cpu + begin, 0.0, 1.0)
    evidence = finding("cpu-busy", busy_percent=timeline.mean_of_missed(busy))
    return Signal(timeline.life_mean(full), (evidence,))


def _no_network(timeline: Timeline) -> bool:
    """Whether there is no network between generator and server; a tunnel may be one."""
    server = timeline.trial.server
    named = server.target.get("host") or server.target.get("hostaddr")
    return server.ours or not named or by_socket(server.target)


def network_signal(timeline: Timeline) -> Signal | None:
    """Time in flight outside of the server's sessions."""
    away = timeline.outside()
    if away is None or _no_network(timeline):
        return None
    away = np.where(np.isfinite(away), timeline.with_queue(np.nan_to_num(away)), np.nan)
    evidence = [finding("no-session-active", share_percent=100 * timeline.mean_of_missed(away))]
    # Seconds in which clients waited, none got an answer, and the monitor got some.
    sampled = timeline.sessions.samples > 0 if timeline.sessions else False
    silent_s = int(((timeline.in_flight >= 1) & (timeline.ended == 0) & sampled).sum())
    if silent_s >= _SILENT_MIN_S:
        evidence.append(finding("no-answers", seconds=silent_s))
    advice = "loopback" if is_local(timeline.trial.server.target) else ""
    return Signal(timeline.life_mean(away), tuple(evidence), advice=advice)


def generator_signal(timeline: Timeline) -> Signal | None:
    """Transactions sent late although a client was free, and time outside of sessions while late.

    No more of them than the self-check says that its lag can explain, and none that failed.
    """
    check, still = timeline.summary.generator, _generator_still(timeline)
    if not (check.explained or still.any()):
        return None
    away = timeline.outside()
    reading = 0.0 if away is None else np.nan_to_num(away)
    outside = np.fmin(_late_itself(timeline), reading)
    punctual = np.clip(timeline.life_mean(outside) + _waited(timeline), 0.0, 1.0)
    # Transactions that would have been late anyway do not count. Those due in a second end in it
    # or in the next one.
    sent = timeline.dispatched + np.append(timeline.dispatched[1:], 0.0)
    late = np.fmin(
        timeline.share_of_missed(sent[: timeline.seconds]),
        timeline.share_of_missed(timeline.waited),
    )
    stopped, waiting = _stopped(timeline, still), behind_others(timeline)
    able = 1 - quotient(timeline.failed, timeline.missed, 0.0)
    own, stopped_late = (
        np.fmin(carried(values, waiting), able) for values in (np.fmax(punctual, late), stopped)
    )
    lost = float((own * timeline.missed)[timeline.since :].sum())
    own = own * min(1.0, check.explained / lost) if lost else own
    evidence = []
    if still.any():
        evidence.append(finding("generator-paused", seconds=float(still.sum())))
    if mean_ms := 1e3 * timeline.mean_of_missed(np.nan_to_num(timeline.dispatch_s)):
        evidence.append(finding("sent-late", lag_ms=mean_ms))
    evidence.append(finding("generator-cpu", cpu_percent=100 * check.cpu))
    return Signal(
        np.fmax(own, stopped_late),
        tuple(evidence),
        punctual=np.fmax(punctual, stopped),
        advice="standstill" if still.any() else "",
    )


def _late_itself(timeline: Timeline) -> Numbers:
    """The part of latency that a late generator may have taken, by second of the clock, 0 to 1.

    It reads results as late as it sends: once for each query, and once to begin. 0 in seconds in
    which it was not late on average.
    """
    dispatch_s = timeline.dispatch_s
    late = np.ones(timeline.clock)
    if not np.isnan(dispatch_s).all():
        least_s = max(_DISPATCH_MIN_S, _DISPATCH_OF_LIMIT * timeline.limit_s)
        # Unknown where all clients are busy: as in the last second in which it is known.
        known_at = np.where(np.isnan(dispatch_s), 0, np.arange(timeline.clock))
        itself = np.nan_to_num(dispatch_s) >= least_s
        late = itself[np.maximum.accumulate(known_at)].astype(float)
    scripts = timeline.trial.workload.scripts
    trips = 1 + max((script.queries or 1 for script in scripts), default=1)
    latency_s = np.append(timeline.latency_s, np.zeros(timeline.clock))[: timeline.clock]
    part = quotient(np.nan_to_num(dispatch_s) * trips, latency_s, 0.0)
    return np.asarray(late * np.clip(part, 0.0, 1.0))


def _waited(timeline: Timeline) -> Numbers:
    """The part of latency that transactions waited although their client was free."""
    lag_s = timeline.life_mean(np.nan_to_num(timeline.dispatch_s))
    return np.clip(quotient(lag_s, timeline.latency_s, 0.0), 0.0, 1.0)


def connections_signal(timeline: Timeline) -> Signal | None:
    """Waiting for a client, where all were busy: missed although the transaction was short enough.

    Causes that make transactions longer than usual have priority, as they keep the clients busy;
    not where usual transactions alone keep them busy.
    """
    clients = timeline.open_clients
    if not clients or not timeline.limit_s:
        return None
    # A transaction that was not sent when it was due, without a free client, waited for one.
    punctual = np.clip(timeline.lag - _waited(timeline), 0.0, 1.0)
    # Those that were never sent did too, unless clients were kept busy by unusual transactions.
    usual = _overload(timeline)
    waited = timeline.share_of_missed(timeline.waited + usual * timeline.unsent)
    late = np.where(punctual > _ROUNDING, waited, 0.0)
    weights = timeline.missed * ((late > 0) & (timeline.succeeded > 0))
    service_ms = 1e3 * weighted_mean(_service_s(timeline), weights)
    evidence = finding("clients-busy", clients=clients, service_ms=service_ms)
    seen = (evidence,) if weights.any() else ()
    return Signal(late, seen, punctual=punctual, alone=late * usual)


def behind_others(timeline: Timeline) -> Numbers:
    """The part of latency, by second, in which transactions waited for those that saw a cause.

    Where clients are always busy, they wait not only for these.
    """
    return np.asarray(timeline.lag * (1 - _overload(timeline)))


def carried(late: Numbers, lag: Numbers) -> Numbers:
    """A signal, passed on to transactions that waited for a client: by as much as they waited.

    lag: the part of latency, by second, spent waiting for clients busy with earlier transactions.
    """
    late = late.copy()
    for at in range(1, len(late)):
        passed_on = late[at - 1] * lag[at]
        if np.isfinite(passed_on):
            late[at] = np.fmax(late[at], passed_on)
    return late


def _overload(timeline: Timeline) -> float:
    """The confidence that usual transactions alone keep all clients busy, 0 to 1.

    By the utilization law: arrivals a second times the usual service time, over clients. Usual: the
    median of the seconds in which most were on time; where there are none, the mean of those that
    succeeded.
    """
    clients = timeline.open_clients
    if not clients:
        return 0.0
    due, service_s = timeline.missed + timeline.on_time, _service_s(timeline)
    good = (timeline.on_time > timeline.missed) & (service_s > 0)
    served = due * (timeline.succeeded > 0)
    mean_s = float((served * service_s).sum() / max(1.0, served.sum()))
    usual_s = float(np.median(service_s[good])) if good.any() else mean_s
    busy = float(due.mean()) * usual_s / clients
    confidence = (busy - _UTILIZATION_FROM) / (_UTILIZATION_TO - _UTILIZATION_FROM)
    return min(1.0, max(0.0, confidence))


def _service_s(timeline: Timeline) -> Numbers:
    """Mean latencies without the wait to be sent, by second of due time."""
    return (1 - timeline.lag) * timeline.latency_s


def waiting_signal(*kinds: Kind) -> Measure:
    """A share of the time in flight, by what sessions of the load waited for."""

    def signal(timeline: Timeline) -> Signal | None:
        sessions = timeline.sessions
        if sessions is None:
            return None
        names = [name for kind in kinds for name in sessions.events.get(kind, ())][:_SHOWN]
        evidence = (finding("waited-for", events=names),) if names else ()
        share = timeline.flight_share(sessions.of(*kinds))
        return Signal(timeline.life_mean(share), evidence)

    return signal


_for_locks, _for_reads = waiting_signal("lock"), waiting_signal("read")


def lock_signal(timeline: Timeline) -> Signal | None:
    """Waiting for a lock of another session."""
    waits = _for_locks(timeline)
    if waits is None:
        return None
    held = timeline.life_max(timeline.locked_by_others) > 0
    holders = _holders(timeline, within_load=False)
    return Signal(np.where(held, waits.late, 0.0), (*waits.evidence, *holders))


def contention_signal(timeline: Timeline) -> Signal | None:
    """Waiting for locks of each other."""
    waits = _for_locks(timeline)
    if waits is None:
        return None
    evidence = (*waits.evidence, *_holders(timeline, within_load=True))
    return Signal(timeline.life_mean(timeline.queueing), evidence)


def _holders(timeline: Timeline, *, within_load: bool) -> list[Finding]:
    pairs = (one for each in timeline.trial.observed for one in each.blocked)
    found = []
    for one in pairs:
        if one.waiting == "load" and (one.blocking == "load") == within_load:
            values = {"holder": one.blocking or None, "state": one.state or None}
            values |= {name: getattr(one, name) for name in ("event", "mode", "first_s", "last_s")}
            if one.statement:
                found.append(finding("blocked", statement=one.statement, **values))
            else:
                found.append(finding("blocked-by", **values))
    return found[:_SHOWN]


def cache_signal(timeline: Timeline) -> Signal | None:
    """Reading data files, where missed transactions had more to read than others."""
    waits, read = _for_reads(timeline), _per_transaction(timeline, "database", "blocks_read")
    if waits is None or read is None or (usual := _usual(timeline, read)) is None:
        return None
    more = timeline.life_mean(read) >= _MORE_TIMES * max(usual, 1.0)
    evidence = finding("blocks-read", late=timeline.mean_of_missed(read), on_time=usual)
    return Signal(np.where(more, waits.late, 0.0), (evidence, *waits.evidence))


def _per_transaction(timeline: Timeline, source: str, name: str) -> Numbers | None:
    """A counter's rate for each transaction that the server ended, by second of the clock."""
    counted, commits = timeline.track(source, name), timeline.track("transactions", "commits")
    if counted is None or commits is None:
        return None
    # Sessions report their counters about once a second, so neighbors are taken together.
    return quotient(smooth(counted), smooth(commits))


def _usual(timeline: Timeline, values: Numbers) -> float | None:
    """The median of what transactions on time saw; None where that is unknown."""
    means = timeline.life_mean(values)
    usable = np.isfinite(means) & (timeline.on_time > 0)
    if not usable.any():
        return None
    order = np.argsort(means[usable])
    weights = np.cumsum(timeline.on_time[usable][order])
    at = int(np.searchsorted(weights, weights[-1] / 2))
    return float(means[usable][order][at])


def others_signal(timeline: Timeline) -> Signal | None:
    if timeline.sessions is None:
        return None
    active = timeline.sessions.others
    mean = timeline.mean_of_missed(active)
    evidence = (finding("others-active", sessions=mean),) if mean else ()
    return Signal(timeline.life_mean(np.clip(active, 0.0, 1.0)), evidence)


def _active(tracks: Iterable[Numbers | None]) -> Numbers | None:
    """1 in seconds of the clock in which one of these counters moved; None if none was read."""
    present = [np.nan_to_num(track) > 0 for track in tracks if track is not None]
    return np.any(np.stack(present), axis=0).astype(float) if present else None


def checkpoint_signal(timeline: Timeline) -> Signal | None:
    names = ("checkpoints", "written", "requested", "write_time", "sync_time")
    tracks = {name: timeline.track("checkpoints", name) for name in names}
    busy = _active(track for name, track in tracks.items() if name != "requested")
    if busy is None:
        return None
    # Counted when it ends, so it was under way in the second before too.
    busy = np.maximum(busy, np.append(busy[1:], 0.0))
    done, blocks, requested = (
        None if track is None else float(np.nansum(track)) for track in [*tracks.values()][:3]
    )
    done = done or 0.0
    counts = {"count": done, "seconds": timeline.clock, "requested": requested, "blocks": blocks}
    evidence = (finding("checkpoints-counted", **counts),)
    late = timeline.life_max(busy)
    if timeline.sessions is not None:
        waits = np.nan_to_num(timeline.sessions.of("wal", "read", "file", "latch"))
        during, outside = waits[busy > 0], waits[busy == 0]
        slower = len(during) >= _SLOWER_MIN_S and len(outside) > 0
        if slower:
            least = max(_SLOWER_LEAST, _SLOWER_TIMES * float(np.median(outside)))
            slower = bool(np.median(during) >= least)
        if slower or (done >= 3 and timeline.clock / done <= _STORM_EVERY_S):
            # Checkpoints cause the waits for the disk of that time.
            waited = np.nan_to_num(timeline.life_mean(timeline.flight_share(waits)))
            return Signal(np.minimum(late, waited), evidence)
    return Signal(late, evidence, beside=True)


def autovacuum_signal(timeline: Timeline) -> Signal | None:
    busy = _active(timeline.track("io", f"autovacuum_{name}") for name in ("read", "written"))
    if busy is None:
        return None
    active = finding("autovacuum-active", active=float(busy.sum()), seconds=timeline.clock)
    return Signal(timeline.life_max(busy), (active,))


def plan_signal(timeline: Timeline) -> Signal | None:
    """Whole tables read for a few rows: by plans, else by rows read for each transaction."""
    scans = [
        (one, part, scan)
        for one in timeline.trial.explained
        for part, scan in _scans(timeline, one)
        if scan.values["removed"] >= max(_WASTED_MIN, _WASTED_TIMES * scan.values["returned"])
    ]
    rows = _per_transaction(timeline, "tuples", "returned")
    if scans:
        return _time_of(timeline, scans, rows)
    if rows is None or (usual := _usual(timeline, rows)) is None:
        return None
    read, least = timeline.mean_of_missed(rows), max(_ROWS_MIN, _MORE_TIMES * usual)
    if read < least:
        return None
    late = (timeline.life_mean(rows) >= least).astype(float)
    if timeline.sessions is not None:
        # The load reads in proportion to its active sessions.
        active = timeline.sessions.active
        own = quotient(active, active + timeline.sessions.others, 1.0)
        late = late * np.nan_to_num(timeline.life_mean(own))
    # Where a statement of the load has such a plan, these rows are the transactions' own work.
    expected = [
        finding("scan-expected", place=_place(timeline, one), relation=relation, filter=removed_by)
        for one in timeline.trial.explained
        for node, relation, removed_by in _sequential(plan_of(one.plan))
        if removed_by and float(node.get("Plan Rows", np.inf)) * _WASTED_TIMES <= read
    ]
    seen = (*expected[:_SHOWN], finding("rows-read", late=read, on_time=usual))
    return Signal(late, seen, beside=not expected)


def _time_of(
    timeline: Timeline, scans: Sequence[tuple[Explained, float, Finding]], rows: Numbers | None
) -> Signal:
    """The approximate part of the statements' time that such scans took."""
    parts: dict[tuple[int, int], float] = {}
    for one, part, _ in scans:
        key = (one.script, one.command)
        parts[key] = min(1.0, parts.get(key, 0.0) + part)
    spent = timeline.by_clock(
        lambda interval: sum(
            parts.get((each.script, each.command), 0.0) * each.times.sum_ns
            for each in interval.statements
        )
    )
    late = np.nan_to_num(timeline.life_mean(quotient(spent, timeline.statements_ns)))
    evidence = [scan for *_, scan in scans]
    if rows is not None:
        # Plans were recorded at the end: where few rows were read, the plan was another one.
        least = _OF_WASTE * min(scan.values["removed"] for scan in evidence)
        late = np.where(timeline.life_mean(rows) >= least, late, 0.0)
    return Signal(late, tuple(evidence[:_SHOWN]))


def _place(timeline: Timeline, one: Explained) -> str:
    script = timeline.trial.workload.scripts[one.script]
    return f"{script.name}:{script.commands[one.command].line}"


def _sequential(plan: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """The sequential scans of a plan: node, relation, and filter."""
    for node in plan_nodes(plan):
        if node.get("Node Type") == "Seq Scan":
            yield node, str(node.get("Relation Name", "")), str(node.get("Filter", ""))


def _scans(timeline: Timeline, one: Explained) -> Iterator[tuple[float, Finding]]:
    """Sequential scans of an executed plan, each with its part of the statement's time."""
    top = plan_of(one.plan) if one.analyzed else {}
    try:
        total = float(top.get("Execution Time") or top["Plan"]["Actual Total Time"])
    except (LookupError, TypeError, ValueError):
        return
    for node, relation, removed_by in _sequential(top):
        removed, returned, time = (
            float(node.get(name, 0)) * float(node.get("Actual Loops", 1))
            for name in ("Rows Removed by Filter", "Actual Rows", "Actual Total Time")
        )
        counts = {"removed": int(removed), "returned": int(returned), "filter": removed_by}
        place = _place(timeline, one)
        scan = finding("scan-removes", place=place, relation=relation, **counts)
        yield min(1.0, time / total) if total else 0.0, scan
