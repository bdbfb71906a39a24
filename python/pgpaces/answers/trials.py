"""Trials and cells in a few words, as numbers in rows, and the command that runs them again.

Texts are unescaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from pgpaces.analysis.parts import statement_names
from pgpaces.analysis.summary import BackgroundSummary, ScriptSummary, Summary
from pgpaces.analysis.time_distribution import Distribution
from pgpaces.core.findings import Finding
from pgpaces.core.messages import message
from pgpaces.core.metrics import TIMES, header
from pgpaces.core.units import duration_words
from pgpaces.show.number_text import metric_cell, plural
from pgpaces.show.section import Next, Number, TableCell
from pgpaces.spec.design import ROLE, Cell, Factor, level_text
from pgpaces.spec.load import TrialPlan
from pgpaces.spec.result import CLASSES, Estimate, Trial
from pgpaces.spec.setup import ComponentFacts, ServerFacts

# Trials are not made longer than this; more of them decide as well.
_TRIAL_MAX_S = 300
_TRIALS_MIN = 2
Of = Mapping[str, str | None]


def limits_of(plan: TrialPlan | ComponentFacts) -> tuple[str, ...]:
    """The latency limits; that of all scripts first, then those of single scripts."""
    whole = (duration_words(plan.limit_ns),) if plan.limit_ns else ()
    return (*whole, *(f"{name} {duration_words(ns)}" for name, ns in plan.limits if ns))


def explains_nothing(finding: Finding) -> bool:
    """Whether the finding is about missed requests but may explain none of them."""
    return finding.values.get("explains") == 0


def layout(server: ServerFacts) -> str:
    count, pool = server.standbys, server.pool
    parts = [plural(count, "standby")] if count else []
    if pool:
        mode = f" in {pool.mode} mode" if pool.pooler == "pgbouncer" else ""
        parts.append(f"{pool.pooler} {pool.version}{mode} with {plural(pool.size, 'connection')}")
    return f" with {' and '.join(parts)}" if parts else ""


def above(trial: Trial, script: str | None = None) -> str:
    """The text for a quantile that falls among unsuccessful transactions, of all scripts or one."""
    general, own = trial.plan.limit_ns, dict(trial.plan.limits)
    limit_ns = general and min(general, *own.values(), general)
    if script is not None:
        limit_ns = trial.limit_ns(script)
    return f"> {limit_ns / 1e6:g}" if limit_ns else "∞"


def factor_name(name: str) -> str:
    """A factor as pages show it: settings and variables without their prefix."""
    family, _, rest = name.partition(".")
    return rest if family in ("set", "server_set", "define") and rest else name.replace("_", " ")


def cell_name(cell: Cell) -> str:
    """Its levels, without the role of a trial in a search."""
    return levels_text(pair for pair in cell.levels if pair[0] != ROLE) or message("the-load")


def levels_text(pairs: Iterable[tuple[str, str]], joint: str = ", ") -> str:
    return joint.join(f"{factor_name(name)}={level_text(level)}" for name, level in pairs)


def levels_listed(present: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(map(level_text, own))}" for name, own in present.items())


def level_cells(
    factors: Iterable[Factor], own: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """The level of each factor, of a cell with these levels; empty if it has none."""
    texts = {name: level_text(level) for name, level in own}
    yield from ((factor_name(each.name), texts.get(each.name, "")) for each in factors)


def metric_cells(
    names: Iterable[str], read: Callable[[str], Estimate | None], above: str = "∞"
) -> Iterator[tuple[str, TableCell]]:
    """The cells of these metrics with their intervals; `above` stands for infinity."""
    yield from ((header(name), metric_cell(name, read(name), above)) for name in names)


def longer(experiment: str, needed_s: float) -> Next:
    """A sweep like an experiment (its id), with trials that are together long enough to decide."""
    trials = max(_TRIALS_MIN, math.ceil(needed_s / _TRIAL_MAX_S))
    each = math.ceil(max(needed_s / trials, min(needed_s, _TRIAL_MAX_S)) / 10) * 10
    command = f"pgpaces sweep --like {experiment[-8:]} -T {each}s --trials {trials}"
    return Next(command, "next-longer")


def length(seconds: float) -> tuple[int, str]:
    """Seconds as a round duration, rounded up: 90 s, 20 min."""
    if (tens := math.ceil(seconds / 10) * 10) <= 120:
        return tens, "s"
    minutes, hours = math.ceil(seconds / 60), math.ceil(seconds / 3600)
    return (minutes, "min") if minutes <= 120 else (hours, "h")


def known(of: Of, numbers: Mapping[str, Estimate | None]) -> Iterator[Number]:
    """Those of the numbers that have a value."""
    yield from (Number(of, name, each) for name, each in numbers.items() if each is not None)


def of_times(of: Of, distribution: Distribution) -> Iterator[Number]:
    """A distribution of times in milliseconds."""
    yield from known(of, {name: distribution.estimate(name) for name in TIMES})
    for name, value in (("sd", distribution.sd), ("max", distribution.max)):
        if value is not None:
            yield Number(of, name, Estimate.alone(value, distribution.count))


def of_summary(summary: Summary, of: Of | None = None) -> Iterator[Number]:
    """Those of a trial, of its scripts, statements, and background workloads.

    of: the trial's own keys. Times are latencies unless the key `time` says lag or service.
    """
    own = dict(of or {})
    yield from _of_part(own, summary)
    yield from of_times(own | {"time": "lag"}, summary.lag)
    yield from of_times(own | {"time": "service"}, summary.service)
    for script in summary.scripts:
        yield from _of_part(own | {"script": script.name}, script)
    names = statement_names((each.script, each.line) for each in summary.statements)
    for each, name in zip(summary.statements, names, strict=True):
        yield from of_times(own | {"statement": name}, each.times)
    for other in summary.background:
        yield from _of_part(own | {"background": other.name}, other)


def _of_part(of: Of, part: Summary | ScriptSummary | BackgroundSummary) -> Iterator[Number]:
    counts, due = part.counts, part.counts.due
    yield Number(of, "due", Estimate.alone(float(due), due))
    for name in CLASSES if due else ():
        yield Number(of, name, Estimate.alone(getattr(counts, name) / due, due))
    speed = None if isinstance(part, ScriptSummary) else part.throughput
    yield from known(of, {"missed": part.missed, "throughput": speed})
    yield from of_times(of, part.latency)
