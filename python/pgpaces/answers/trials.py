"""A trial in a few words, for several questions: clients, servers, limits, validity.

Texts are unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pgpaces.analysis.costs import Volume
from pgpaces.analysis.summary import Summary
from pgpaces.core.findings import Finding
from pgpaces.core.messages import Message, said
from pgpaces.core.units import duration_text
from pgpaces.show.numbers import plural
from pgpaces.show.screen import bounds
from pgpaces.spec.design import Cell, level_text
from pgpaces.spec.load import TrialPlan
from pgpaces.spec.result import Trial
from pgpaces.spec.setup import ComponentFacts, ServerFacts


def limits(plan: TrialPlan | ComponentFacts) -> str:
    """The latency limits as a text, the one of all scripts first."""
    general = [duration_text(plan.limit_ns)] if plan.limit_ns else []
    own = ", ".join(f"{name} {duration_text(ns)}" for name, ns in plan.limits if ns)
    return " ".join([*general, *([f"({own})" if general else own] if own else [])])


def outages(summary: Summary, notes: Iterable[Finding] = ()) -> Message:
    """The connections that were lost, and for how long."""
    outages = summary.outages
    values = {
        "lost": summary.disconnects,
        "longest_s": outages.longest_s,
        "all_down_s": outages.all_down_s,
    }
    if not outages.down:
        return said("outage-over", back_s=outages.some_down_s, **values)
    errors = [each.values.get("error") for each in notes if each.name == "client-locked-out"]
    if errors:
        return said("outage-locked-out", down=outages.down, error=errors[0], **values)
    return said("outage-lasting", down=outages.down, **values)


def queries(volume: Volume) -> Message:
    """The queries of a trial, per minute and per day."""
    minute, day = volume.per_minute, volume.per_day
    return said(
        "run-queries",
        queries=volume.queries,
        measured_s=volume.seconds,
        per_minute=minute.value,
        per_minute_ci=bounds(minute),
        per_day=day.value,
        per_day_ci=bounds(day),
    )


def at_nodes(components: Sequence[ComponentFacts]) -> str:
    """The clients of each node, in parentheses; empty where all are at the primary."""
    if {component.node for component in components} <= {"primary"}:
        return ""
    each = ", ".join(f"{component.clients} at {component.node}" for component in components)
    return f" ({each})"


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
    return f"> {limit_ns / 1e6:g}" if limit_ns else "none"


def factor_name(name: str) -> str:
    """A factor as pages show it: settings and variables without their prefix."""
    family, _, rest = name.partition(".")
    return rest if family in ("set", "server_set", "define") and rest else name.replace("_", " ")


def cell_name(cell: Cell) -> str:
    return levels_text(cell.levels) or "the one cell"


def levels_text(pairs: Iterable[tuple[str, str]], joint: str = ", ") -> str:
    return joint.join(f"{factor_name(name)} = {level_text(level)}" for name, level in pairs)


def levels_listed(present: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{name}: {', '.join(map(level_text, own))}" for name, own in present.items())


def levels_alone(pairs: Iterable[tuple[str, str]]) -> str:
    """Levels whose factors are named elsewhere."""
    return ", ".join(level_text(level) for _, level in pairs)
