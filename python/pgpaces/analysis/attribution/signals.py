"""What each cause of lateness would show: a trial in, a share for each second out. Pure.

A signal is the share of their life in which transactions due in a second saw a cause, 0 to 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.attribution.timeline import Kind, Timeline, smooth, wait_kind, weighted_mean
from pgpaces.analysis.generator import BACKLOG_TIMES, STILL_S, standstills
from pgpaces.analysis.plan_text import plan_nodes, plan_of
from pgpaces.analysis.waits import event_name
from pgpaces.core.causes import thresholds
from pgpaces.core.findings import Finding, finding
from pgpaces.core.locality import by_socket
from pgpaces.spec.result import Explained

_SHOWN = 3


class Signal(Struct, frozen=True):
    """What a cause would show, by second of due time, 0 to 1; NaN where it is unknown.

    late: for transactions that missed. punctual: for those on time; None if it is the same.
    evidence: observations. alone: a part that causes of proof "time" do not reduce.
    """

    late: Numbers
    evidence: tuple[Finding, ...] = ()
    punctual: Numbers | None = None
    alone: Numbers | None = None

    @property
    def on_time(self) -> Numbers:
        return self.late if self.punctual is None else self.punctual


Measure = Callable[[Timeline], Signal | None]


def failed_signal(timeline: Timeline) -> Signal:
    """An outcome, so it needs no inference: failed transactions missed because they failed."""
    messages = timeline.summary.messages
    states = sorted(timeline.failures.items(), key=lambda pair: -pair[1])[:_SHOWN]
    evidence = tuple(
        finding("failed-with", count=count, state=state, message=messages.get(state))
        for state, count in states
    )
    late = quotient(timeline.failed, timeline.missed, 0.0)
    return Signal(late, evidence, punctual=np.zeros(timeline.seconds))


def quota_signal(timeline: Timeline) -> Signal:
    share = timeline.track("host", "cgroup_throttled_share")
    # A transaction sees every period of its life, and the one in which it begins.
    periods = 1 + timeline.latency_s / thresholds("quota")["period_s"]
    late = 1 - np.clip(1 - timeline.life_mean(share / 100), 0.0, 1.0) ** periods
    percent = timeline.mean_of_missed(share)
    return Signal(late, (finding("quota-used-up", periods_percent=percent),))


def freeze_signal(timeline: Timeline) -> Signal:
    """The server answered no session: samples hung, or no client was connected, in an outage."""
    samples = timeline.track("sessions", "samples")
    # It hangs to the end if no sample arrived, and no transaction in flight ended, any more.
    quiet = (samples == 0) & (timeline.in_flight > 0) & (timeline.ended == 0)
    to_end = np.cumprod(quiet[::-1])[::-1].astype(float)
    frozen = np.fmax(timeline.track("sessions", "frozen"), to_end)
    # Of a time in which the generator stood still itself, the monitor says nothing of the server.
    # Nor does it if a quota throttled much. The kernel counts a period after its end, and the
    # counter is read once a second, so this may show in the seconds before and after.
    throttled_percent = timeline.track("host", "cgroup_throttled_share")
    throttled = _near(throttled_percent >= thresholds("freeze")["throttled_percent"])
    unknown = (_generator_still(timeline) > 0) | throttled
    frozen = np.where(unknown | (frozen < STILL_S), 0.0, frozen)
    down = timeline.by_clock(lambda each: min(1.0, each.all_down_ns / 1e9))
    seen = {"no-client-connected": down, "no-session-answered": frozen}
    evidence = (finding(name, seconds=float(s.sum())) for name, s in seen.items() if s.any())
    return Signal(_stopped(timeline, np.fmax(frozen, down)), tuple(evidence))


def _near(seconds: Numbers) -> Numbers:
    """These seconds of the clock, and those before and after them."""
    near = np.pad(seconds, 1)
    return np.asarray(near[:-2] | near[1:-1] | near[2:])


def _stopped(timeline: Timeline, stops: Numbers) -> Numbers:
    """The signal of a stop. stops: the part of each second of the clock.

    A short one does not explain a long life; but a backlog takes time to drain.
    """
    stopped_s = timeline.life_sum(stops)
    part = quotient(BACKLOG_TIMES * stopped_s, timeline.latency_s, 1.0)
    return np.asarray(np.clip(part, 0.0, 1.0) * (stopped_s > 0))


def _generator_still(timeline: Timeline) -> Numbers:
    """The part of each second of the clock in which the generator stood still, 0 to 1.

    It did where its lag was long. Where the server's monitor hung and nobody read the generator's
    machine either, all of them stood still; users of a closed load have no lag.
    """
    still = np.zeros(timeline.clock)
    longest_s = timeline.by_clock(lambda each: each.dispatch.max_ns / 1e9)
    for start, end, length_s in standstills(timeline.trial, longest_s):
        still[start:end] = np.fmax(still[start:end], min(1.0, length_s / (end - start)))
    own = np.isfinite(timeline.track("generator", "cpu_busy"))
    own = own if own.any() else np.isfinite(timeline.track("host", "cpu_busy"))
    if own.any():
        read_at, unread = np.flatnonzero(own), ~own
        unread[: read_at[0]] = unread[read_at[-1] :] = False
        # A stop that begins or ends within a second leaves a reading in it.
        still = np.fmax(still, np.where(_near(unread), timeline.track("sessions", "frozen"), 0.0))
    return still


def steal_signal(timeline: Timeline) -> Signal:
    stolen = timeline.track("host", "cpu_steal")
    full = np.clip(stolen / thresholds("steal")["full_percent"], 0.0, 1.0)
    evidence = finding("cpu-stolen", steal_percent=timeline.mean_of_missed(stolen))
    return Signal(timeline.life_mean(full), (evidence,))


def cpu_signal(timeline: Timeline) -> Signal:
    """No CPU left on the server's machine, while transactions in flight needed one."""
    busy = timeline.track("host", "cpu_busy")
    limits = thresholds("cpu")
    above, most = busy - limits["part_percent"], limits["full_percent"] - limits["part_percent"]
    full = np.clip(above / most, 0.0, 1.0)
    if timeline.sampled and timeline.in_flight.any():
        # A session that waits for a CPU to begin is not active yet. Over a Unix socket all time
        # outside of sessions is that; else at most as many again as those on a CPU. Transactions
        # that queue for a lock need no CPU.
        on_cpu = timeline.flight_share(timeline.sessions("cpu"))
        begin = np.nan_to_num(timeline.outside()) * (1 - timeline.queueing)
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
    if _no_network(timeline):
        return None
    away = timeline.outside()
    away = np.where(np.isfinite(away), timeline.with_queue(np.nan_to_num(away)), np.nan)
    evidence = finding("no-session-active", share_percent=100 * timeline.mean_of_missed(away))
    return Signal(timeline.life_mean(away), (evidence,))


def generator_signal(timeline: Timeline) -> Signal | None:
    """Transactions sent late although a client was free, and time outside of sessions while late.

    No more of them than the self-check says that its lag can explain.
    """
    check, still = timeline.summary.generator, _generator_still(timeline)
    if not (check.explained or still.any()):
        return None
    # It reads results as late as it sends: once for each query, and once to begin.
    scripts = timeline.trial.workload.scripts
    trips = 1 + max((script.queries or 1 for script in scripts), default=1)
    outside = np.nan_to_num(timeline.life_mean(timeline.outside()))
    waited = timeline.free_lag
    punctual = np.clip(waited + np.fmin(trips * waited, outside), 0.0, 1.0)
    stopped = _stopped(timeline, still)
    own, stopped_late = (carried(each, timeline.behind) for each in (punctual, stopped))
    lost = float((own * timeline.missed)[timeline.since :].sum())
    own = own * min(1.0, check.explained / lost) if lost else own
    evidence = []
    if still.any():
        evidence.append(finding("generator-paused", seconds=float(still.sum())))
    if mean_ms := 1e3 * timeline.mean_of_missed(timeline.dispatch_s):
        evidence.append(finding("sent-late", lag_ms=mean_ms))
    evidence.append(finding("generator-cpu", cpu_percent=100 * check.cpu))
    return Signal(np.fmax(own, stopped_late), tuple(evidence), punctual=np.fmax(punctual, stopped))


def connections_signal(timeline: Timeline) -> Signal | None:
    """Waiting for a client, where all were busy: missed although the transaction was short enough.

    Causes that make transactions longer than usual have priority, as they keep the clients busy;
    not where usual transactions alone keep them busy.
    """
    clients = timeline.open_clients
    if not clients or not timeline.limit_s:
        return None
    # A transaction that was not sent when it was due, without a free client, waited for one.
    punctual = np.clip(timeline.lag - timeline.free_lag, 0.0, 1.0)
    # Those that were never sent did too, unless clients were kept busy by unusual transactions.
    waited = timeline.waited + timeline.overload * timeline.unsent
    late = np.clip(quotient(waited, timeline.missed, 0.0), 0.0, 1.0)
    weights = timeline.missed * ((late > 0) & (timeline.succeeded > 0))
    service_ms = 1e3 * weighted_mean(timeline.service_s, weights)
    evidence = finding("clients-busy", clients=clients, service_ms=service_ms)
    seen = (evidence,) if weights.any() else ()
    return Signal(late, seen, punctual=punctual, alone=late * timeline.overload)


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


def waiting_signal(kind: Kind) -> Measure:
    """A share of the time in flight, by what sessions of the load waited for."""

    def signal(timeline: Timeline) -> Signal:
        share = timeline.flight_share(timeline.sessions(kind))
        return Signal(timeline.life_mean(share), _waited_for(timeline, kind))

    return signal


def _waited_for(timeline: Timeline, kind: Kind) -> tuple[Finding, ...]:
    names = [
        event_name("load", event.kind, event.event)
        for each in timeline.trial.observed
        for event in sorted(each.waits.events, key=lambda event: -event.sessions)
        if event.sessions and wait_kind(event) == kind
    ]
    return (finding("waited-for", events=tuple(names[:_SHOWN])),) if names else ()


def lock_signal(*, within_load: bool) -> Measure:
    """Waiting for locks of each other, or for a lock of another session."""

    def signal(timeline: Timeline) -> Signal:
        names = ("event", "mode", "first_s", "last_s")
        holders = [
            finding(
                "blocked",
                statement=one.statement or None,
                holder=one.blocking or None,
                state=one.state or None,
                **{name: getattr(one, name) for name in names},
            )
            for each in timeline.trial.observed
            for one in each.blocked
            if one.waiting == "load" and (one.blocking == "load") == within_load
        ]
        evidence = (*_waited_for(timeline, "lock"), *holders[:_SHOWN])
        if within_load:
            return Signal(timeline.life_mean(timeline.queueing), evidence)
        held = timeline.life_sum(timeline.locked_by_others) > 0
        waits = timeline.life_mean(timeline.flight_share(timeline.sessions("lock")))
        return Signal(np.where(held, waits, 0.0), evidence)

    return signal


def others_signal(timeline: Timeline) -> Signal:
    active = timeline.track("sessions", "others")
    evidence = finding("others-active", sessions=timeline.mean_of_missed(active))
    return Signal(timeline.life_mean(np.clip(active, 0.0, 1.0)), (evidence,))


def _moved(tracks: Iterable[Numbers]) -> Numbers:
    """1 in seconds of the clock in which one of these counters moved."""
    return np.asarray(np.any([track > 0 for track in tracks], axis=0).astype(float))


def checkpoint_signal(timeline: Timeline) -> Signal | None:
    """Waiting for the disk in a checkpoint, where checkpoints are why sessions wait for it."""
    names = ("checkpoints", "written", "write_time", "sync_time")
    busy = _moved(timeline.track("checkpoints", name) for name in names)
    # Counted when it ends, so it was under way in the second before too.
    busy = np.maximum(busy, np.append(busy[1:], 0.0))
    waits = np.nan_to_num(timeline.sessions("disk", "latch"))
    during, outside = waits[busy > 0], waits[busy == 0]
    done, requested, blocks = (
        float(np.nansum(track)) if np.isfinite(track).any() else None
        for name in ("checkpoints", "requested", "written")
        for track in (timeline.track("checkpoints", name),)
    )
    limits = thresholds("checkpoint")
    slower = done is not None and done >= 3 and timeline.clock / done <= limits["apart_s"]
    if len(during) >= limits["slower_s"] and len(outside):
        usual = float(np.median(outside))
        least = max(limits["waiting_min"], limits["slower_times"] * usual)
        slower = slower or bool(np.median(during) >= least)
    if not slower:
        return None
    counted = {"count": done or 0.0, "seconds": timeline.clock}
    evidence = finding("checkpoints-counted", **counted, requested=requested, blocks=blocks)
    waited = np.nan_to_num(timeline.life_mean(timeline.flight_share(waits)))
    return Signal(np.where(timeline.life_sum(busy) > 0, waited, 0.0), (evidence,))


def autovacuum_signal(timeline: Timeline) -> Signal:
    busy = _moved(timeline.track("io", f"autovacuum_{name}") for name in ("read", "written"))
    active = finding("autovacuum-active", active=float(busy.sum()), seconds=timeline.clock)
    return Signal((timeline.life_sum(busy) > 0).astype(float), (active,))


def plan_signal(timeline: Timeline) -> Signal | None:
    """Time in statements that read whole tables for a few rows, by the part of it in the scans."""
    parts: defaultdict[tuple[int, int], float] = defaultdict(float)
    evidence: list[tuple[float, Finding]] = []
    rows_min = np.inf
    for one in timeline.trial.explained:
        script = timeline.trial.workload.scripts[one.script]
        place = f"{script.name}:{script.commands[one.command].line}"
        for part, removed, shown in _scans(one):
            parts[one.script, one.command] += part
            rows_min = min(rows_min, thresholds("plan")["read_part"] * removed)
            name = "scan-removes" if one.analyzed else "scan-expected"
            evidence.append((part, finding(name, place=place, **shown)))
    if not evidence:
        return None
    worst = [each for _, each in sorted(evidence, key=lambda pair: -pair[0])]
    spent = timeline.by_clock(
        lambda interval: sum(
            min(1.0, parts.get((each.script, each.command), 0.0)) * each.times.sum_ns
            for each in interval.statements
        )
    )
    every = timeline.by_clock(lambda each: sum(one.times.sum_ns for one in each.statements))
    share, rows = quotient(spent, every), timeline.track("tuples", "returned")
    if np.isfinite(rows).any():
        # Plans were recorded at the end: in seconds with few rows read, the plan was another one.
        share = np.where(smooth(rows) >= rows_min, share, 0.0)
    return Signal(np.nan_to_num(timeline.life_mean(share)), tuple(worst[:_SHOWN]))


def _scans(one: Explained) -> Iterator[tuple[float, float, dict[str, Any]]]:
    """Wasteful sequential scans of a plan: part of the statement's time, rows removed, values.

    A plan that was only estimated counts by its costs.
    """
    top, limits = plan_of(one.plan), thresholds("plan")
    for node, _ in plan_nodes(top):
        if node.get("Node Type") != "Seq Scan" or not node.get("Filter"):
            continue
        shown = {"relation": node.get("Relation Name", ""), "filter": node["Filter"]}
        if one.analyzed:
            names = ("Rows Removed by Filter", "Actual Rows", "Actual Total Time")
            removed, returned, time = (
                _number(node, "Actual Loops", 1) * _number(node, name) for name in names
            )
            total = _number(top, "Execution Time") or _number(top["Plan"], "Actual Total Time")
            shown |= {"removed": int(removed), "returned": int(returned)}
        else:
            time, total = _number(node, "Total Cost"), _number(top["Plan"], "Total Cost")
            removed, returned = limits["rows_per_cost"] * time, _number(node, "Plan Rows", np.inf)
        if removed >= max(limits["removed_min"], limits["removed_times"] * returned):
            yield min(1.0, time / total) if total else 0.0, removed, shown


def _number(values: Mapping[str, Any], name: str, other: float = 0.0) -> float:
    value = values.get(name, other)
    return float(value) if isinstance(value, (int, float)) else other


# What each cause of causes.toml shows in a trial.
SIGNALS: Mapping[str, Measure] = {
    "failed": failed_signal,
    "freeze": freeze_signal,
    "quota": quota_signal,
    "generator": generator_signal,
    "lock": lock_signal(within_load=False),
    "contention": lock_signal(within_load=True),
    "standby": waiting_signal("standby"),
    "checkpoint": checkpoint_signal,
    "disk": waiting_signal("disk"),
    "latch": waiting_signal("latch"),
    "plan": plan_signal,
    "network": network_signal,
    "connections": connections_signal,
    "steal": steal_signal,
    "cpu": cpu_signal,
    "autovacuum": autovacuum_signal,
    "others": others_signal,
}
