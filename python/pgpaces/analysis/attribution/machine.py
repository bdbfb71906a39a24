"""Signs of causes in machines and between them: quota, CPUs, generator, network. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pgpaces.analysis import goal
from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.attribution.material import Material
from pgpaces.analysis.attribution.sign import Sign, carry, uniform
from pgpaces.analysis.generator import BACKLOG_TIMES, STILL_S, standstills
from pgpaces.core.findings import finding
from pgpaces.core.locality import by_socket, is_local

# Between these a machine's CPUs go from not used up to entirely used up, %.
_CPU_FROM, _CPU_TO = 85.0, 95.0
_STEAL_WHOLE = 20.0
# The period of a CPU quota, the kernel's default.
_PERIOD_S = 0.1
_SLOWER = 0.9
# The least seconds without an answer to the load, but to the sensor, that are evidence.
_SILENT_MIN_S = 2
# The least mean lag with which the generator is late itself, and its least share of the limit.
_DISPATCH_MIN_S, _DISPATCH_OF_LIMIT = 0.0002, 0.05
# Utilization of clients by transactions of usual length: between these, clients go from enough
# to entirely too few.
_UTILIZATION_FROM, _UTILIZATION_TO = 0.8, 0.95


def signs(material: Material) -> Iterator[Sign]:
    yield from _failed(material)
    yield from _quota(material)
    yield from _frozen(material)
    yield from _steal(material)
    yield from _slowed(material)
    yield from _cpu(material)
    yield from _away(material)
    yield from _connections(material)


def _failed(material: Material) -> Iterator[Sign]:
    """An outcome, so it needs no inference: failed transactions missed because they failed."""
    if not material.failed.any():
        return
    late = quotient(material.failed, material.missed, 0.0)
    states = sorted(material.failures.items(), key=lambda pair: -pair[1])
    messages = material.summary.messages
    evidence = [
        finding("failed-with", count=count, state=state, message=messages[state])
        if state in messages
        else finding("failed-with-state", count=count, state=state)
        for state, count in states[:3]
    ]
    yield Sign("failed", late, np.zeros(material.seconds), "whole", tuple(evidence), carried=False)


def _quota(material: Material) -> Iterator[Sign]:
    share = material.track("host", "cgroup_throttled_share")
    if share is not None:
        evidence = [finding("quota-used-up", periods_percent=material.mean_of_missed(share))]
        # A transaction sees every period of its life, and the one in which it begins.
        periods = 1 + material.latency_s / _PERIOD_S
        sign = 1 - np.clip(1 - material.life_mean(share / 100), 0.0, 1.0) ** periods
        yield uniform("quota", sign, "whole", evidence=evidence)


def _throttled(material: Material) -> Numbers:
    """Whether a quota throttled much in a second or next to it, so that a freeze proves nothing.

    Next to it: the kernel counts a period after its end, and the counter is read once a second, so
    a quota that ran out in one second may show in the next.
    """
    share = material.track("host", "cgroup_throttled_share")
    if share is None:
        return np.zeros(material.clock, dtype=bool)
    high = np.pad(np.nan_to_num(share) >= 30, 1)
    return np.asarray(high[:-2] | high[1:-1] | high[2:])


def _frozen(material: Material) -> Iterator[Sign]:
    """The server answered no session: samples hung, or no client was connected, in an outage."""
    sessions, down = material.sessions, np.zeros(material.clock)
    # The part of each second of the clock in which no client was connected, 0 to 1.
    for each in material.trial.intervals:
        if 0 <= each.second < material.clock:
            down[each.second] = min(1.0, each.all_down_ns / 1e9)
    if sessions is None and not down.any():
        return
    # Of a time in which the generator stood still itself, the sensor says nothing of the server.
    unknown = _throttled(material) | (_still(material) > 0)
    frozen = np.zeros(material.clock)
    if sessions is not None:
        # It hangs to the end if no sample arrived, and no transaction in flight ended, any more.
        quiet = (sessions.samples == 0) & (material.in_flight > 0) & (material.ended == 0)
        frozen = np.fmax(sessions.frozen, np.asarray(np.cumprod(quiet[::-1])[::-1].astype(float)))
    frozen = np.where(unknown | (frozen < STILL_S), 0.0, frozen)
    evidence = []
    if down.any():
        evidence.append(finding("no-client-connected", seconds=float(down.sum())))
    if frozen.any():
        evidence.append(finding("no-session-answered", seconds=float(frozen.sum())))
    stopped = _stopped(material, np.fmax(frozen, down))
    yield uniform("freeze", stopped, "whole", evidence=evidence)


def _stopped(material: Material, stops: Numbers) -> Numbers:
    """The sign of a stop. stops: the part of each second of the clock.

    A short one does not explain a long life; but a backlog takes time to drain.
    """
    stopped_s = material.life_sum(stops)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(stopped_s > 0, BACKLOG_TIMES * stopped_s / material.latency_s, 0.0)
    return np.asarray(np.clip(np.nan_to_num(part), 0.0, 1.0))


def _still(material: Material) -> Numbers:
    """The part of each second of the clock in which the generator stood still, 0 to 1.

    A time in which the server's sensor hung counts where the generator's lag, or one of the sensor
    of its machine (users of a closed load have no lag), is at least half as long.
    """
    longest_s, still = np.zeros(material.clock), np.zeros(material.clock)
    for each in material.trial.intervals:
        if 0 <= each.second < material.clock:
            longest_s[each.second] = each.dispatch.max_ns / 1e9
    stops = standstills(longest_s, goal.limits_ns(material.trial))
    # 1 in seconds of the clock without a reading of the generator's machine between others.
    own = material.track("generator", "cpu_busy")
    own = material.track("host", "cpu_busy") if own is None else own
    unread = np.zeros(material.clock)
    if own is not None and (read_at := np.flatnonzero(np.isfinite(own))).size:
        unread[read_at[0] : read_at[-1]] = 1.0
        unread[read_at] = 0.0
    for start, end, hung in _hangs(material):
        meeting = [stop for stop in stops if stop[0] < end and start < stop[1]]
        lag_s = max((length_s for *_, length_s in meeting), default=0.0)
        if max(lag_s, unread[start:end].sum()) >= hung.sum() / 2:
            still[start:end] = hung
            stops = [stop for stop in stops if stop not in meeting]
    for start, end, length_s in stops:
        still[start:end] = np.fmax(still[start:end], min(1.0, length_s / (end - start)))
    return still


def _hangs(material: Material) -> Iterator[tuple[int, int, Numbers]]:
    """Start, end and the parts of the seconds of each time in which the server's sensor hung."""
    if material.sessions is None:
        return
    frozen = material.sessions.frozen
    at = np.flatnonzero(frozen)
    for part in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1):
        if len(part):
            start, end = int(part[0]), int(part[-1]) + 1
            yield start, end, frozen[start:end]


def _steal(material: Material) -> Iterator[Sign]:
    steal = material.track("host", "cpu_steal")
    if steal is not None:
        evidence = [finding("cpu-stolen", steal_percent=material.mean_of_missed(steal))]
        values = (steal / _STEAL_WHOLE).clip(0.0, 1.0)
        yield uniform("steal", material.life_mean(values), "beside", evidence=evidence)


def _slowed(material: Material) -> Iterator[Sign]:
    """The board's throttling bits, and a clock frequency below that of the start."""
    bits, clock = (material.track("host", name) for name in ("pi_throttled", "cpu_frequency"))
    if bits is None and clock is None:
        return
    low, evidence = np.zeros(material.clock), []
    if bits is not None:
        low = np.fmax(low, np.nan_to_num(bits) > 0)
        evidence.append(finding("machine-throttled", seconds=float(low.sum())))
    if clock is not None and np.isfinite(clock).any():
        start = float(np.nanmax(clock[: max(5, len(clock) // 10)]))
        low = np.fmax(low, np.where(np.isfinite(clock), clock < _SLOWER * start, False))
        evidence.append(finding("clock-lower", late=material.mean_of_missed(clock), start=start))
    yield uniform("slowed", material.life_mean(low), "beside", evidence=evidence)


def _cpu(material: Material) -> Iterator[Sign]:
    """No CPU left on the server's machine, while transactions in flight needed one."""
    busy = material.track("host", "cpu_busy")
    if busy is None:
        return
    full = np.clip((busy - _CPU_FROM) / (_CPU_TO - _CPU_FROM), 0.0, 1.0)
    if material.sessions is not None and material.in_flight.any():
        # A session that waits for a CPU to begin is not active yet. Over a Unix socket all time
        # outside of sessions is that; else at most as many again as those on a CPU.
        on_cpu, away = material.flight_share(material.sessions.of("cpu")), material.outside()
        begin = np.zeros(material.clock) if away is None else np.nan_to_num(away)
        # Transactions that queue for a lock need no CPU.
        begin = begin * (1 - material.queueing)
        begin = begin if _by_socket(material) else np.minimum(begin, on_cpu)
        full = full * np.clip(on_cpu + begin, 0.0, 1.0)
    evidence = [finding("cpu-busy", busy_percent=material.mean_of_missed(busy))]
    yield uniform("cpu", material.life_mean(full), "time", evidence=evidence)


def _away(material: Material) -> Iterator[Sign]:
    """Time in flight outside of the server's sessions: the generator's, else the network's."""
    away = material.outside()
    late = _dispatch_late(material) * _late_part(material)
    yield from _generator(material, np.fmin(late, 0.0 if away is None else np.nan_to_num(away)))
    if away is not None and not _by_socket(material):
        away = np.where(np.isfinite(away), material.inherited(np.nan_to_num(away)), np.nan)
        part = material.mean_of_missed(away)
        evidence = [finding("no-session-active", share_percent=100 * part)]
        if (silent_s := _silent_s(material)) >= _SILENT_MIN_S:
            evidence.append(finding("no-answers", seconds=silent_s))
        sign = uniform("network", material.life_mean(away), "time", evidence=evidence)
        local = is_local(material.trial.server.target)
        yield replace(sign, advice="loopback" if local else "")


def _silent_s(material: Material) -> int:
    """The seconds in which clients waited, none got an answer, and the sensor got some."""
    sampled = material.sessions.samples > 0 if material.sessions else False
    return int(((material.in_flight >= 1) & (material.ended == 0) & sampled).sum())


def _by_socket(material: Material) -> bool:
    """Whether there is no network between generator and server; a tunnel may be one."""
    server = material.trial.server
    named = server.target.get("host") or server.target.get("hostaddr")
    return server.ours or not named or by_socket(server.target)


def _dispatch_late(material: Material) -> Numbers:
    """1 in seconds in which the generator was late on average; the last known value, or all 1."""
    dispatch = material.dispatch_s
    if np.isnan(dispatch).all():
        return np.ones(material.clock)
    least = max(_DISPATCH_MIN_S, _DISPATCH_OF_LIMIT * material.limit_s)
    # Unknown where all clients are busy: as in the last second in which it is known.
    known_at = np.where(np.isnan(dispatch), 0, np.arange(len(dispatch)))
    late = np.nan_to_num(dispatch) >= least
    return np.asarray(late[np.maximum.accumulate(known_at)]).astype(float)


def _late_part(material: Material) -> Numbers:
    """The part of latency that the generator may have taken, by second of the clock, 0 to 1.

    It reads results as late as it sends: once for each query, and once to begin.
    """
    scripts = material.trial.workload.scripts
    trips = 1 + max((script.queries or 1 for script in scripts), default=1)
    latency_s = np.append(material.latency_s, np.zeros(material.clock))[: material.clock]
    part = quotient(np.nan_to_num(material.dispatch_s) * trips, latency_s, 0.0)
    return np.clip(part, 0.0, 1.0)


def _generator(material: Material, outside: Numbers) -> Iterator[Sign]:
    """Transactions sent late although a client was free. outside: more time of the generator.

    No more of them than the self-check says that its lag can explain, and none that failed.
    """
    generator, still = material.summary.generator, _still(material)
    if not (generator.explained or still.any()):
        return
    punctual = np.clip(material.life_mean(outside) + _waited(material), 0.0, 1.0)
    # Transactions that would have been late anyway do not count.
    late = np.fmin(
        material.share_of_missed(material.dispatched), material.share_of_missed(material.waited)
    )
    stopped, waiting = _stopped(material, still), inherited(material)
    able = 1 - quotient(material.failed, material.missed, 0.0)
    own, stopped_late = (
        np.fmin(carry(uniform("generator", values, "whole"), waiting).late, able)
        for values in (np.fmax(punctual, late), stopped)
    )
    lost = float((own * material.missed)[material.since :].sum())
    own = own * min(1.0, generator.explained / lost) if lost else own
    mean_ms = 1e3 * material.mean_of_missed(np.nan_to_num(material.dispatch_s))
    evidence = [finding("generator-cpu", cpu_percent=100 * generator.cpu)]
    if mean_ms:
        evidence.insert(0, finding("sent-late", lag_ms=mean_ms))
    if still.any():
        evidence.insert(0, finding("generator-paused", seconds=float(still.sum())))
    # Whole: each was sent late although a client was free, and the self-check calls that much.
    yield Sign(
        "generator",
        np.fmax(own, stopped_late),
        np.fmax(punctual, stopped),
        "whole",
        tuple(evidence),
        carried=False,
        advice="standstill" if still.any() else "",
    )


def _waited(material: Material) -> Numbers:
    """The part of latency that transactions waited although their client was free."""
    with np.errstate(invalid="ignore", divide="ignore"):
        part = material.life_mean(np.nan_to_num(material.dispatch_s)) / material.latency_s
    return np.clip(np.nan_to_num(part), 0.0, 1.0)


def _connections(material: Material) -> Iterator[Sign]:
    """Waiting for a client, where all were busy: missed although the transaction was short enough.

    Causes that make transactions longer than usual have priority, as they keep the clients busy;
    not where usual transactions alone keep them busy.
    """
    clients = material.open_clients
    if not clients or not material.limit_s:
        return
    # A transaction that was not sent when it was due, without a free client, waited for one.
    punctual = np.clip(material.lag - _waited(material), 0.0, 1.0)
    # Those that were never sent did too, unless clients were kept busy by unusual transactions.
    waited, usual = material.waited, overload(material)
    late = np.where(punctual > 0, material.share_of_missed(waited + usual * material.unsent), 0.0)
    weights = material.missed * ((late > 0) & (material.succeeded > 0))
    evidence = []
    if weights.any():
        mean_ms = 1e3 * float((_service_s(material) * weights).sum() / weights.sum())
        evidence.append(finding("clients-busy", clients=clients, service_ms=mean_ms))
    whole = late * usual
    yield Sign("connections", late, punctual, "time", tuple(evidence), carried=False, alone=whole)


def inherited(material: Material) -> Numbers:
    """The part of latency, by second, in which transactions waited for those that saw a sign.

    Where clients are always busy, they wait not only for these.
    """
    return np.asarray(material.lag * (1 - overload(material)))


def overload(material: Material) -> float:
    """The confidence that usual transactions alone keep all clients busy, 0 to 1.

    By the utilization law: arrivals a second times the usual service time, over clients. Usual: the
    median of the seconds in which most were on time; where there are none, the mean of those that
    succeeded.
    """
    clients = material.open_clients
    if not clients:
        return 0.0
    due, service_s = material.missed + material.on_time, _service_s(material)
    good = (material.on_time > material.missed) & (service_s > 0)
    served = due * (material.succeeded > 0)
    mean_s = float((served * service_s).sum() / max(1.0, served.sum()))
    usual_s = float(np.median(service_s[good])) if good.any() else mean_s
    busy = float(due.mean()) * usual_s / clients
    confidence = (busy - _UTILIZATION_FROM) / (_UTILIZATION_TO - _UTILIZATION_FROM)
    return min(1.0, max(0.0, confidence))


def _service_s(material: Material) -> Numbers:
    """Mean latencies without the wait to be sent, by second of due time."""
    return (1 - material.lag) * material.latency_s
