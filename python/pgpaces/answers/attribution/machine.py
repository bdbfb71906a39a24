"""Signs of causes in machines and on the way to them: quota, CPUs, generator, network. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgpaces.answers.attribution.material import Material
from pgpaces.answers.attribution.sign import Sign, alike

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

# A look that hung so much of a second, while transactions were under way.
_FROZEN_MIN = 0.3
# It explains lives that are so many times as long as it.
_FROZEN_TIMES = 3.0
# From here on, to here, a machine's CPUs are taken for used up, %.
_CPU_FROM, _CPU_TO = 85.0, 95.0
_STEAL_WHOLE = 20.0
# Of a quota, by the kernel's default.
_PERIOD_S = 0.1
_SLOWER = 0.9
# The generator is late itself from so much on, and from such a share of the limit.
_DISPATCH_MIN_S, _DISPATCH_OF_LIMIT = 0.0002, 0.05
# Clients that are busy so much of the time with transactions of usual length are too few: from
# here on somewhat, to here entirely.
_UTILIZATION_FROM, _UTILIZATION_TO = 0.8, 0.95


def signs(material: Material) -> Iterator[Sign]:
    """All that sensors of machines, and the generator, tell."""
    yield from _failed(material)
    yield from _quota(material)
    yield from _frozen(material)
    yield from _steal(material)
    yield from _slowed(material)
    yield from _cpu(material)
    yield from _away(material)
    yield from _connections(material)


def _failed(material: Material) -> Iterator[Sign]:
    """An outcome, so nothing has to be guessed: those that failed missed for that."""
    import numpy as np

    if not material.failed.any():
        return
    with np.errstate(invalid="ignore", divide="ignore"):
        late = np.where(material.missed > 0, material.failed / material.missed, 0.0)
    states = sorted(material.summary.failures.items(), key=lambda pair: -pair[1])
    messages = material.summary.messages
    said = [
        f"{count:,} failed with {state}" + (f": {messages[state]}" if state in messages else "")
        for state, count in states[:3]
    ]
    yield Sign("failed", late, np.zeros(material.seconds), "whole", tuple(said), carried=False)


def _quota(material: Material) -> Iterator[Sign]:
    import numpy as np

    share = material.track("host", "cgroup_throttled_share")
    if share is not None:
        mean = material.of_missed(share)
        said = (f"the quota ran out in {mean:.0f} % of its periods while they were late",)
        # A transaction sees every period that it lives in, and the one in which it begins.
        periods = 1 + material.latency_s / _PERIOD_S
        met = 1 - np.clip(1 - material.lived(share / 100), 0.0, 1.0) ** periods
        yield alike("quota", met, "whole", said)


def _throttled(material: Material) -> Numbers:
    """Seconds about which a quota held back much, so that a look that hangs says nothing else.

    With those beside them: the kernel counts a period behind its end, and the counter is read once
    a second, so that of a quota that ran out in one second the next one tells.
    """
    import numpy as np

    share = material.track("host", "cgroup_throttled_share")
    if share is None:
        return np.zeros(material.clock, dtype=bool)
    held = np.pad(np.nan_to_num(share) >= 30, 1)
    near: Numbers = held[:-2] | held[1:-1] | held[2:]
    return near


def _frozen(material: Material) -> Iterator[Sign]:
    """Nobody was answered: the look of the sensor hung while transactions were under way."""
    import numpy as np

    if material.sessions is None:
        return
    frozen = np.where(_throttled(material), 0.0, material.sessions.frozen)
    events = (frozen >= _FROZEN_MIN).astype(float)
    said = f"for {frozen.sum():.1f} s in all the server answered no session, not even the sensor"
    if _longest_dispatch_s(material)[events > 0].max(initial=0.0) >= _FROZEN_MIN:
        said += "; the generator stood still too, so it was this machine, or pgpaces alone"
    stood_s = material.summed(frozen * events)
    # A short one in a long life is not why it was long; and what piled up takes its time to go.
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(stood_s > 0, _FROZEN_TIMES * stood_s / material.latency_s, 0.0)
    met = np.clip(np.nan_to_num(part), 0.0, 1.0)
    yield alike("freeze", met, "whole", (said,) if events.any() else ())


def _longest_dispatch_s(material: Material) -> Numbers:
    """How long at most what had a client waited for us, in a second and the next.

    Who stood still sends at once what fell due meanwhile, and counts it when it is back. Of all
    that it sends this may be one transaction for each client: their mean says nothing.
    """
    import numpy as np

    longest = np.zeros(material.clock + 1)
    for each in material.trial.intervals:
        if 0 <= each.second <= material.clock:
            longest[each.second] = each.dispatch.max_ns / 1e9
    at_most: Numbers = np.maximum(longest[:-1], longest[1:])
    return at_most


def _steal(material: Material) -> Iterator[Sign]:
    steal = material.track("host", "cpu_steal")
    if steal is not None:
        said = (f"{material.of_missed(steal):.1f} % of the CPUs' time stolen meanwhile",)
        values = (steal / _STEAL_WHOLE).clip(0.0, 1.0)
        yield alike("steal", material.lived(values), "beside", said)


def _slowed(material: Material) -> Iterator[Sign]:
    """The board's own bits, and a clock below where it began."""
    import numpy as np

    bits, clock = (material.track("host", name) for name in ("pi_throttled", "cpu_frequency"))
    if bits is None and clock is None:
        return
    low, said = np.zeros(material.clock), []
    if bits is not None:
        low = np.fmax(low, np.nan_to_num(bits) > 0)
        said.append(f"the board slowed itself down in {low.sum():.0f} s")
    if clock is not None and np.isfinite(clock).any():
        start = float(np.nanmax(clock[: max(5, len(clock) // 10)]))
        low = np.fmax(low, np.where(np.isfinite(clock), clock < _SLOWER * start, False))
        said.append(f"{material.of_missed(clock):.0f} MHz meanwhile, {start:.0f} at the start")
    yield alike("slowed", material.lived(low), "beside", said)


def _cpu(material: Material) -> Iterator[Sign]:
    """No CPU left on the server's machine, while what was in flight wanted one."""
    import numpy as np

    busy = material.track("host", "cpu_busy")
    if busy is None:
        return
    full = np.clip((busy - _CPU_FROM) / (_CPU_TO - _CPU_FROM), 0.0, 1.0)
    if material.sessions is not None and material.in_flight.any():
        # Who waits for a CPU to begin with does not look active yet: by a socket of this machine
        # there is no other way to be under way, else as many again at most.
        wanted, away = material.of_flight(material.sessions.of("cpu")), material.outside()
        begin = np.zeros(material.clock) if away is None else np.nan_to_num(away)
        # Those of them that queue for a lock are not counted to it: they want none.
        begin = begin * (1 - material.queueing)
        begin = begin if _by_socket(material) else np.minimum(begin, wanted)
        full = full * np.clip(wanted + begin, 0.0, 1.0)
    said = (f"the server's machine was {material.of_missed(busy):.0f} % busy meanwhile",)
    yield alike("cpu", material.lived(full), "time", said)


def _away(material: Material) -> Iterator[Sign]:
    """Time in flight that no session of the server had: the generator's, else the network's."""
    import numpy as np

    away = material.outside()
    # By its own check alone: what is below that is no fault of the generator.
    if material.summary.generator.late or material.summary.generator.limited:
        late = _dispatch_late(material) * _late_part(material)
        yield _generator(material, np.fmin(late, 0.0 if away is None else np.nan_to_num(away)))
    if away is not None and not _by_socket(material):
        away = np.where(np.isfinite(away), material.inherited(np.nan_to_num(away)), np.nan)
        part = material.of_missed(away)
        text = f"{100 * part:.0f} % of the time in flight no session of the server was at work"
        yield alike("network", material.lived(away), "time", (text,))


def _by_socket(material: Material) -> bool:
    """Whether there is no network between generator and server."""
    target = material.trial.server.target
    return str(target.get("host", "")).startswith("/")


def _dispatch_late(material: Material) -> Numbers:
    """1 in seconds in which the generator was late on average, as the last that told."""
    import numpy as np

    dispatch = material.dispatch_s
    if np.isnan(dispatch).all():
        return np.ones(material.clock)
    least = max(_DISPATCH_MIN_S, _DISPATCH_OF_LIMIT * material.limit_s)
    # Where all clients are busy nobody is late by himself.
    return _held(np.nan_to_num(dispatch) >= least, np.isnan(dispatch)).astype(float)


def _late_part(material: Material) -> Numbers:
    """The part of latency that the generator may have taken, by second of the clock, 0 to 1.

    As late as it sends it reads answers too: once for each query, and once to begin.
    """
    import numpy as np

    scripts = material.trial.workload.scripts
    trips = 1 + max((script.queries or 1 for script in scripts), default=1)
    latency_s = np.append(material.latency_s, np.zeros(material.clock))[: material.clock]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.nan_to_num(material.dispatch_s) * trips / latency_s
    found: Numbers = np.clip(np.where(latency_s > 0, part, 0.0), 0.0, 1.0)
    return found


def _generator(material: Material, outside: Numbers) -> Sign:
    """What was sent late although its client was free. outside: what else was its time."""
    import numpy as np

    punctual = np.clip(material.lived(outside) + _waited(material), 0.0, 1.0)
    # Who would have been late anyway is not late for that.
    late = np.fmin(material.of_late(material.dispatched), material.of_late(material.waited))
    own = np.fmax(punctual, late)
    mean_ms = 1e3 * material.of_missed(np.nan_to_num(material.dispatch_s))
    said = (
        f"transactions whose client was free were sent {mean_ms:.2g} ms late on average",
        f"its busiest thread took {100 * material.summary.generator.cpu:.0f} % of a CPU",
    )
    # Whole: each was sent late although its client was free, and by its own check that is much.
    return Sign("generator", own, punctual, "whole", said)


def _waited(material: Material) -> Numbers:
    """The part of latency that transactions waited although their client was free."""
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        part = material.lived(np.nan_to_num(material.dispatch_s)) / material.latency_s
    return np.clip(np.nan_to_num(part), 0.0, 1.0)


def _held(values: Numbers, unknown: Numbers) -> Numbers:
    """Values, where they are not known as they were last."""
    import numpy as np

    places = np.where(unknown, 0, np.arange(len(values)))
    found: Numbers = values[np.maximum.accumulate(places)]
    return found


def _connections(material: Material) -> Iterator[Sign]:
    """Waiting for a client, where all were busy: missed although the transaction was short enough.

    What makes transactions longer than usual stands before it, as it keeps the clients busy. Where
    usual ones alone keep them busy, it does not.
    """
    import numpy as np

    clients = _clients(material)
    if not clients or not material.limit_s:
        return
    # Who was not sent when he was due, and had no free client, waited for one.
    punctual = np.clip(material.lag - _waited(material), 0.0, 1.0)
    late = np.where(punctual > 0, material.of_late(material.waited), 0.0)
    weights = material.missed * (late > 0)
    said = []
    if weights.any():
        mean_ms = 1e3 * float((_service_s(material) * weights).sum() / weights.sum())
        said.append(f"all {clients} clients were busy, each with transactions of {mean_ms:.3g} ms")
    alone = late * overload(material)
    yield Sign("connections", late, punctual, "time", tuple(said), carried=False, alone=alone)


def overload(material: Material) -> float:
    """How sure it is that usual transactions alone keep all clients busy, 0 to 1.

    By the utilization law: arrivals a second times the service time, over clients. As usual: the
    median of the seconds in which most were on time; where there are none, the mean of all.
    """
    import numpy as np

    clients = _clients(material)
    if not clients:
        return 0.0
    due, service_s = material.missed + material.on_time, _service_s(material)
    good = (material.on_time > material.missed) & (service_s > 0)
    mean_s = float((due * service_s).sum() / max(1.0, due.sum()))
    usual_s = float(np.median(service_s[good])) if good.any() else mean_s
    busy = float(due.mean()) * usual_s / clients
    sure = (busy - _UTILIZATION_FROM) / (_UTILIZATION_TO - _UTILIZATION_FROM)
    return min(1.0, max(0.0, sure))


def _clients(material: Material) -> int:
    """The clients of an open load; 0 of another, in which none can be too few."""
    if material.trial.plan.model != "open":
        return 0
    clients = sum(component.clients for component in material.trial.plan.components)
    return clients or material.trial.plan.clients


def _service_s(material: Material) -> Numbers:
    """Mean times of transactions without what they waited to be sent, by second of due time."""
    found: Numbers = material.latency_s * (1 - material.lag)
    return found
