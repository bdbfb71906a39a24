"""A trial in a few words: its clients, its servers, its limits, whether it is valid.

What several questions say of a trial. Texts are as others wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgpaces.answers.summary import Summary
from pgpaces.answers.validity import Validity
from pgpaces.design import Cell
from pgpaces.facts import ComponentFacts, PlanFacts, Prepared, ServerFacts
from pgpaces.report.numbers import seconds
from pgpaces.units import duration_text


def limits(plan: PlanFacts | ComponentFacts) -> str:
    """The latency limits, that of all scripts first."""
    general = [duration_text(plan.limit_ns)] if plan.limit_ns else []
    own = ", ".join(f"{name} {duration_text(ns)}" for name, ns in plan.limits if ns)
    return " ".join([*general, *([f"({own})" if general else own] if own else [])])


def outages(summary: Summary) -> str:
    """What became of the connections that were lost."""
    found = summary.outages
    parts = [f"{summary.disconnects} lost"]
    if found.longest_s:
        parts.append(f"longest outage {seconds(found.longest_s)}")
    if found.all_down_s:
        parts.append(f"no client connected for {seconds(found.all_down_s)}")
    if found.down:
        parts.append(f"clients not back at the end: {found.down}")
    elif found.some_down_s:
        parts.append(f"all back after {seconds(found.some_down_s)}")
    return ", ".join(parts)


def copied(prepared: Prepared | None) -> Iterator[str]:
    """What the copy that a trial got for itself took; nothing where there was none."""
    if prepared and prepared.cloned_from and prepared.clone_seconds:
        size = prepared.size_bytes / 2**20
        yield (
            f"{size:.0f} MiB copied in {seconds(prepared.clone_seconds)},"
            f" settled in {seconds(prepared.settle_seconds)}"
        )


def judgement(validity: Validity) -> Iterator[str]:
    """Whether the trial is valid, why not, and what to know before one believes it, as lines."""
    yield "valid" if validity.state == "valid" else f"not valid: {'; '.join(validity.reasons)}"
    for text in validity.warnings:
        yield f"warning: {text}"


def at_nodes(plan: PlanFacts) -> str:
    """Where the clients are, as words in brackets; nothing where all are at the primary."""
    return _where(plan.components)


def clients(plan: PlanFacts) -> str:
    """How many clients a trial has, and those beside them; where, unless all are at the primary."""
    beside = [component for component in plan.components if component.of]
    text = f"{plan.own_clients} clients{_where(plan.own)}"
    if every_ns := plan.start_every_ns:
        text += f", one every {duration_text(every_ns)}"
    count = sum(component.clients for component in beside)
    return f"{text} and {count} beside them{_where(beside)}" if beside else text


def _where(components: Sequence[ComponentFacts]) -> str:
    if {component.node for component in components} <= {"primary"}:
        return ""
    each = ", ".join(f"{component.clients} at {component.node}" for component in components)
    return f" ({each})"


def layout(server: ServerFacts) -> str:
    """What belongs to the server, as words after its version."""
    count, pool = server.standbys, server.pool
    parts = [f"{count} standby{'s' * (count > 1)}"] if count else []
    if pool:
        mode = f" in {pool.mode} mode" if pool.pooler == "pgbouncer" else ""
        size = f"{pool.size} connection{'s' * (pool.size > 1)}"
        parts.append(f"{pool.pooler} {pool.version}{mode} with {size}")
    return f" with {' and '.join(parts)}" if parts else ""


def above(plan: PlanFacts, script: str | None = None) -> str:
    """How a quantile is shown that falls among what did not succeed: of all scripts or of one."""
    components = (each for each in plan.components if script in each.scripts)
    load: PlanFacts | ComponentFacts = next(components, plan)
    own: dict[str | None, int] = {**dict(load.limits)}
    if script is None and load.limit_ns:
        limit_ns: int | None = min(load.limit_ns, *own.values()) if own else load.limit_ns
    else:
        limit_ns = own.get(script, load.limit_ns)
    return f"> {limit_ns / 1e6:g}" if limit_ns else "none"


def factor_name(name: str) -> str:
    """A factor as the page calls it: settings and variables without their family."""
    family, _, rest = name.partition(".")
    return rest if family in ("set", "define") and rest else name.replace("_", " ")


def cell_name(cell: Cell) -> str:
    """A cell in a sentence."""
    pairs = cell.levels
    return ", ".join(f"{factor_name(name)} = {level}" for name, level in pairs) or "the one cell"
