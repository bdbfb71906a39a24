"""Trials made of numbers, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace

from pgpaces._engine import Histogram
from pgpaces.analysis.time_distribution import Distribution, distribution_of
from pgpaces.core.record import Interval, Tally
from pgpaces.core.times import Times
from pgpaces.core.units import duration_text
from pgpaces.spec import setup
from pgpaces.spec.result import Trial

SECOND_NS = 1_000_000_000


def times(values_ms: Iterable[float]) -> Times:
    return _times(tuple(values_ms))


# Trials of tests have the same seconds again and again.
@lru_cache(maxsize=2000)
def _times(values_ms: tuple[float, ...]) -> Times:
    histogram = Histogram()
    values = [round(float(v) * 1e6) for v in values_ms]
    for value in values:
        histogram.record(value)
    return Times(
        len(values),
        sum(values),
        float(sum(v * v for v in values)),
        max(values, default=0),
        histogram.encode() if values else b"",
    )


# What the record of every trial has.
PLAN = {"clients": 1, "policy": "run", "model": "open", "warmup_ns": 0}
LEAST: dict[str, tuple[type[setup.Facts], dict[str, Any]]] = {
    "workload": (setup.WorkloadFacts, {"name": "w", "scripts": []}),
    "server": (setup.ServerFacts, {"version": "18"}),
    "host": (setup.HostFacts, {}),
}
_DURATIONS = {"limit_ns": "latency_limit", "duration_ns": "duration", "warmup_ns": "warmup"}
_DURATIONS |= {"grace_ns": "grace", "start_every_ns": "start_every"}
_SETUP = ("threads", "poll", "variables", "generators", "imported")
_LOAD = ("model", "rate", "think_ns", "think", "arrivals", "shape", "clients")


def spread(times: Times, due: int) -> Distribution:
    """The distribution of what succeeded of all `due`, as if transactions were independent."""
    return distribution_of(times, due, np.zeros(0), sums_ns=np.zeros(0))[0]


def _load(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a load by the names that plans have for it."""
    model, rate, clients = plan.get("model", "open"), plan.get("rate"), plan.get("clients", 1)
    more = {name: plan[name] for name in ("arrivals", "shape") if name in plan}
    rate = 1.0 if rate is None and more.get("shape", "constant") != "constant" else rate
    each = None if rate is None else f"{rate}/s"
    if model == "paced":
        return {"users": clients, "pace": each, **more}
    if model == "open":
        return {"clients": clients, "rate": each, **more}
    pause = duration_text(plan.get("think_ns") or 0)
    return {"clients": clients, "think_time": pause, "think": plan.get("think", "fixed")}


def _component(values: Mapping[str, Any]) -> dict[str, Any]:
    load = {"model": "open"} | {n: values[n] for n in ("model", "rate", "think_ns") if n in values}
    kept = {n: value for n, value in values.items() if n in setup.ComponentFacts.__struct_fields__}
    return {"load": load, "clients": 1, **kept}


def _families(spec: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """A spec with the plan's limits of scripts and settings in place of its own."""
    for name, option in (("limits", "latency_limit"), ("settings", "set")):
        if name in plan:
            spec = {n: value for n, value in spec.items() if not n.startswith(f"{option}.")}
            for own, value in dict(plan.pop(name)).items():
                spec[f"{option}.{own}"] = duration_text(value) if name == "limits" else value
    return spec


def planned(of: Trial, **plan: Any) -> Trial:
    """A trial with other values of its plan, in its spec and its setup."""
    spec, found = dict(of.spec), {name: plan.pop(name) for name in _SETUP if name in plan}
    if plan.keys() & set(_LOAD):
        load = of.plan.load
        now = {"model": load.model, "rate": load.rate, "think_ns": load.think_ns}
        now |= {"clients": of.setup.clients, "shape": str(load.shape), "arrivals": load.arrivals}
        now |= {name: plan.pop(name) for name in _LOAD if name in plan}
        for name in ("clients", "users", "rate", "pace", "think_time", "think", "shape"):
            spec.pop(name, None)
        spec |= _load(now)
        found["clients"] = now["clients"]
    limits = {n: plan.get(n, getattr(of.plan, n)) for n in ("limit_ns", "limits")}
    spec = _families(spec, plan)
    if (components := plan.pop("components", None)) is not None:
        others = {e["of"]: e.get("workload", e["of"]) for e in components if e.get("of")}
        found["background"] = {of_: {"name": n, "scripts": []} for of_, n in others.items()}
        found["components"] = [_component(e if e.get("of") else limits | e) for e in components]
    for name, option in _DURATIONS.items():
        if name in plan:
            ns = plan.pop(name)
            spec[option] = None if ns is None else duration_text(ns)
    spec |= plan.pop("spec", {}) | plan
    spec = {n: each for n, each in spec.items() if each is not None or n in ("rate", "pace")}
    if "shape" in spec and not spec.keys() & {"duration", "transactions"}:
        spec["duration"] = duration_text(of.measured_ns or SECOND_NS)
    return replace(of, spec=spec, setup=like(of.setup, **found))


def known(**parts: Any) -> dict[str, Any]:
    """The parts of a trial's setup as its record has them, of what is given of each."""
    found = dict(parts)
    for name, (kind, least) in LEAST.items():
        if isinstance(given := parts.get(name), Mapping):
            found[name] = setup.read(kind, {**least, **given}, name)
    return found


def changed(of: Trial, **parts: Any) -> Trial:
    """A trial with another plan, workload, server or host, or other values."""
    plan, parts = parts.pop("plan", {}), known(**parts)
    found = {name: parts.pop(name) for name in LEAST if name in parts}
    return planned(replace(of, setup=of.setup.but(**found), **parts), **plan)


def like(part: setup.Facts, **given: Any) -> Any:
    """A part of a record with other values, as they are stored."""
    return setup.read(type(part), {**to_builtins(part), **given}, "part")


def trial(tallies: list[Tally], **changes: Any) -> Trial:
    values: dict[str, Any] = {
        "id": "T",
        "state": "finished",
        "started_at": datetime.now(UTC),
        "plan": {"limit_ns": 500_000_000},
        "workload": {"scripts": [{"name": "a", "weight": 1, "commands": []}]},
        "server": {},
        "host": {},
        "version": "0",
        "measured_ns": 10 * SECOND_NS,
        "intervals": (Interval(0, tallies=tuple(tallies)),),
    } | changes
    parts = known(**{name: values.pop(name) for name in LEAST})
    plan, spec = values.pop("plan"), {"workload": "w", "protocol": "simple", "seed": 1}
    made = Trial(spec=spec, setup=setup.Setup(clients=1, **parts), **values)
    return planned(made, **(PLAN | plan))


def second(number: int, latencies_ms: Sequence[float], script: int = 0, **more: Any) -> Interval:
    """A second in which all that was due succeeded, and more that did not."""
    values = {"due": len(latencies_ms), "on_time": len(latencies_ms)} | more
    measured = times(latencies_ms)
    tally = Tally(number, script, latency=measured, service=measured, **values)
    ended_ns = (number + 1) * SECOND_NS
    return Interval(number, tallies=(tally,), ended_ns=ended_ns, in_flight_ns=measured.sum_ns)


def series(latencies_ms: Sequence[Sequence[float]], first: int = 0, **changes: Any) -> Trial:
    """A trial of these seconds, of which those below 0 are its warm-up."""
    intervals = tuple(second(n, values) for n, values in enumerate(latencies_ms, first))
    length = {"measured_ns": (first + len(latencies_ms)) * SECOND_NS}
    return trial([], intervals=intervals, **(length | changes))


def judged_trial(seconds: int = 20, **changes: Any) -> Trial:
    """A trial that can be summarized."""
    found = series([[1.0, 2.0, 3.0 + s] for s in range(seconds)], **changes)
    workload, plan = found.workload.but(name="w"), {"rate": 3.0, "warmup_ns": 0}
    return changed(found, workload=workload, server={}, plan=plan)
