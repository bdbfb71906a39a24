"""Whole experiments made of numbers, for tests of what is said and drawn of them.

A server of two workers and exponential service in virtual time, so that what comes out looks like
what a real one does: it holds few clients and breaks with many.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
from msgspec.structs import replace

from pgpaces.analysis.digest import Digest, digest
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.core.series import Sample
from pgpaces.spec.design import Ask, Cell, Design, Experiment
from pgpaces.spec.result import Explained, Place
from tests.unit.sensors import collect
from tests.unit.trials import SECOND_NS, times
from tests.unit.trials import trial as measured

START = datetime(2026, 11, 1, 8, 0, tzinfo=UTC)
WORKERS = "set.max_parallel_workers_per_gather"
LIMIT_MS = 500.0
SQL = "SELECT fk1, count(*) AS cnt FROM pgbench_view GROUP BY fk1"
SCRIPTS = [
    {"name": "by_fk1", "weight": 1, "commands": [[1, SQL, True]]},
    {"name": "one_fk1", "weight": 1, "commands": [[2, f"{SQL} HAVING fk1 = :fk1", True]]},
]


def design(**changes: Any) -> Design:
    values: dict[str, Any] = {
        "levels": {
            "clients": ("1", "2", "4", "5", "6", "8"),
            WORKERS: ("0", "2", "4"),
            **{"rate_per_client": ("4/s",), "policy": ("skip",), "latency_limit": ("500ms",)},
        },
        "trials": 2,
    }
    return Design(**(values | changes))


def experiment(**changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "name": "pi-reporting",
        "workload": "reporting",
        "design": design(),
        "question": "From how many clients on does it break, and does the setting move the break?",
    }
    return Experiment(**(values | changes))


def waits(rate: float, service_ms: float, seconds: int, seed: int) -> list[tuple[float, float]]:
    """Due times in ms and latencies of a queue with two workers; inf where it was skipped."""
    draw = np.random.default_rng(seed)
    due = np.cumsum(draw.exponential(1000 / rate, max(8, int(rate * seconds * 1.3))))
    work = draw.gamma(4, service_ms / 4, len(due))
    free = [0.0, 0.0]
    found = []
    for at, length in zip(due[due < seconds * 1000], work, strict=False):
        start = max(at, min(free))
        if start - at > LIMIT_MS:
            found.append((float(at), float("inf")))
            continue
        free[free.index(min(free))] = start + length
        found.append((float(at), float(start + length - at)))
    return found


def _interval(second: int, answered: list[tuple[float, float]], service_ms: float) -> Interval:
    tallies, statements = [], []
    for script in range(len(SCRIPTS)):
        own = [ms for n, (_, ms) in enumerate(answered) if n % len(SCRIPTS) == script]
        kept = [ms for ms in own if ms < float("inf")]
        late = sum(ms > LIMIT_MS for ms in kept)
        service = [min(ms, service_ms * (1 + script)) for ms in kept]
        lag = [max(0.001, ms - s) for ms, s in zip(kept, service, strict=True)]
        tallies.append(
            Tally(
                second,
                script,
                due=len(own),
                on_time=len(kept) - late,
                late=late,
                skipped=len(own) - len(kept),
                latency=times(kept),
                lag=times(lag),
                service=times(service),
            )
        )
        statements.append(StatementTally(script, 0, times=times(service)))
    in_flight = sum(tally.service.sum_ns for tally in tallies)
    return Interval(
        second,
        tallies=tuple(tallies),
        statements=tuple(statements),
        ended_ns=(second + 1) * SECOND_NS,
        in_flight_ns=in_flight,
    )


def _plan(clients: str, workers: str, seconds: int, seed: int) -> dict[str, Any]:
    return {
        "clients": int(clients),
        "threads": 1,
        "rate": 4.0 * int(clients),
        "policy": "skip",
        "limit_ns": int(LIMIT_MS * 1e6),
        "duration_ns": seconds * SECOND_NS,
        "warmup_ns": SECOND_NS,
        "seed": seed,
        "settings": {"max_parallel_workers_per_gather": workers},
    }


def explained(workers: int, script: int = 0) -> Explained:
    node = "Gather" if workers else "HashAggregate"
    return Explained(
        script,
        0,
        shape=f"{node}-{script}",
        summary=f"{node} > Seq Scan on pgbench_reporting",
        workers_planned=workers,
        workers_launched=min(workers, 2),
        spilled_bytes=3 * 2**20 if workers == 4 else 0,
        plan=f'[{{"Plan": {{"Node Type": "{node}", "Workers Planned": {workers}}}}}]',
    )


def samples(seconds: int, seed: int) -> tuple[Sample, ...]:
    draw = np.random.default_rng(seed)
    busy = np.clip(60 + 15 * np.sin(np.arange(seconds) / 9) + draw.normal(0, 4, seconds), 0, 100)
    return (
        *(Sample(n, "host", "CPU busy", float(v), "%") for n, v in enumerate(busy)),
        *(
            Sample(n, "checkpoints", "buffers written", float(draw.poisson(n % 30)), "1/s")
            for n in range(seconds)
        ),
    )


def made(ask: Ask, seconds: int = 60, invalid: bool = False, **place: Any) -> Digest:
    """A finished trial of a cell of `design`."""
    return _made(ask.cell, ask.block, seconds, invalid, **place)


# Test after test asks for the same trials.
@cache
def _made(cell: Cell, block: int, seconds: int, invalid: bool, **place: Any) -> Digest:
    levels = dict(cell.levels)
    clients, workers = levels.get("clients", "4"), levels.get(WORKERS, "0")
    service_ms = {"0": 85.0, "2": 62.0, "4": 70.0}.get(workers, 85.0)
    seed = int(cell.key[:6], 16) + block
    found = waits(4.0 * int(clients), service_ms, seconds, seed)
    seconds_of: list[list[tuple[float, float]]] = [[] for _ in range(seconds)]
    for at, ms in found:
        seconds_of[int(at // 1000)].append((at, ms))
    intervals = tuple(_interval(n, own, service_ms) for n, own in enumerate(seconds_of))
    started = START + timedelta(minutes=block * 60 + seed % 50)
    said = finding("pi-throttled", flags=["under-voltage"], at_s=2, seconds=3, of_s=seconds)
    trial = measured(
        [],
        id=f"01J{block:02}{cell.key.upper()}",
        state="finished",
        started_at=started,
        ended_at=started + timedelta(seconds=seconds),
        plan=_plan(clients, workers, seconds, block),
        workload={"name": "reporting", "scale": 1, "hash": "ad98", "scripts": SCRIPTS},
        server={
            "version": "18.6",
            "version_text": "PostgreSQL 18.6 on aarch64",
            "settings": {"shared_buffers": "128MB", "max_parallel_workers_per_gather": workers},
            "target": {"host": "pi4", "port": "5432"},
        },
        host={"hostname": "pi4", "cpus": 4, "cpu": "Cortex-A72", "memory_bytes": 4 * 2**30},
        version="0.1.0",
        intervals=intervals,
        measured_ns=seconds * SECOND_NS,
        findings=(said,) if invalid else (),
        place=Place("E", cell.key, levels, block, **place),
        samples=collect(samples(seconds, seed)),
        explained=(explained(int(workers)), explained(0, 1)) if workers.isdigit() else (),
    )
    return digest(trial)


def swept(plan: Design | None = None, seconds: int = 60) -> list[Digest]:
    """Every trial of an experiment."""
    return [made(slot, seconds) for slot in (plan or design()).asks()]


def moved(found: Digest, **levels: str) -> Digest:
    """The same trial in another cell."""
    place = found.trial.place
    assert place is not None
    all_levels = {**place.levels, **levels}
    key = Cell(tuple(all_levels.items())).key
    where = replace(place, levels=all_levels, cell=key)
    return replace(found, trial=replace(found.trial, place=where))
