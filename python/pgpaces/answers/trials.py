"""A trial in a few words, for several questions: clients, servers, limits, validity.

Texts are unescaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pgpaces.analysis.summary import Summary
from pgpaces.analysis.validity import Validity
from pgpaces.analysis.volume import Volume
from pgpaces.core.findings import Finding
from pgpaces.core.units import duration_text, measured_text
from pgpaces.show.numbers import in_words, plural, rate, seconds
from pgpaces.spec.design import Cell, level_text
from pgpaces.spec.facts import ComponentFacts, PlanFacts, Prepared, ServerFacts
from pgpaces.spec.result import Estimate

_MILLION = 1_000_000


def limits(plan: PlanFacts | ComponentFacts) -> str:
    """The latency limits as a text, the one of all scripts first."""
    general = [duration_text(plan.limit_ns)] if plan.limit_ns else []
    own = ", ".join(f"{name} {duration_text(ns)}" for name, ns in plan.limits if ns)
    return " ".join([*general, *([f"({own})" if general else own] if own else [])])


def outages(summary: Summary, notes: Iterable[Finding] = ()) -> str:
    outages = summary.outages
    parts = [f"{summary.disconnects} lost"]
    if outages.longest_s:
        parts.append(f"longest outage {seconds(outages.longest_s)}")
    if outages.all_down_s:
        parts.append(f"no client connected for {seconds(outages.all_down_s)}")
    if outages.down:
        refusals = [each.values.get("error") for each in notes if each.name == "client-locked-out"]
        why = f" ({refusals[0]})" if refusals else ""
        parts.append(f"clients not back at the end: {outages.down}{why}")
    elif outages.some_down_s:
        parts.append(f"all back after {seconds(outages.some_down_s)}")
    return ", ".join(parts)


def queries_text(queries: Volume) -> str:
    """`90,000 in 1086s: 4,972 a minute (4,950 to 4,990), 7.16 million a day (7.13 to 7.19)`."""

    def shown(number: Estimate) -> str:
        unit, size = (" million", _MILLION) if number.value >= _MILLION else ("", 1)
        return in_words(number, lambda value: rate(value / size), unit)

    return (
        f"{queries.queries:,} in {measured_text(queries.seconds * 1e9)}:"
        f" {shown(queries.per_minute)} a minute, {shown(queries.per_day)} a day"
    )


def copied(prepared: Prepared | None) -> Iterator[str]:
    """How long the trial's own copy of the database took; nothing where there was none."""
    if prepared and prepared.cloned_from and prepared.clone_seconds:
        size = prepared.size_bytes / 2**20
        yield (
            f"{size:.0f} MiB copied in {seconds(prepared.clone_seconds)},"
            f" settled in {seconds(prepared.settle_seconds)}"
        )


def judgment(validity: Validity) -> Iterator[str]:
    yield "valid" if validity.state == "valid" else f"invalid: {'; '.join(validity.reasons)}"
    for text in validity.warnings:
        yield f"warning: {text}"


def clients(plan: PlanFacts) -> str:
    background = [component for component in plan.components if component.of]
    text = f"{plural(plan.own_clients, 'client')}{at_nodes(plan.own)}"
    if every_ns := plan.start_every_ns:
        text += f", one every {duration_text(every_ns)}"
    count = sum(component.clients for component in background)
    return f"{text} and {count} in the background{at_nodes(background)}" if background else text


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


def above(plan: PlanFacts, script: str | None = None) -> str:
    """The text for a quantile that falls among unsuccessful transactions, of all scripts or one."""
    components = (each for each in plan.components if script in each.scripts)
    load: PlanFacts | ComponentFacts = next(components, plan)
    own: dict[str | None, int] = {**dict(load.limits)}
    if script is None and load.limit_ns:
        limit_ns: int | None = min(load.limit_ns, *own.values()) if own else load.limit_ns
    else:
        limit_ns = own.get(script, load.limit_ns)
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
