"""Plans of PostgreSQL as text: the name of a node, and the tree as EXPLAIN prints it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

# Keys of a node that its first line shows, and those that every node has and the tree shows.
_NAMED = ("Node Type", "Join Type", "Operation", "Index Name", "Schema", "Relation Name", "Alias")
_ESTIMATED = ("Startup Cost", "Total Cost", "Plan Rows", "Plan Width")
_MEASURED = ("Actual Startup Time", "Actual Total Time", "Actual Rows", "Actual Loops")
_IMPLIED = ("Plan", "Plans", "Parent Relationship", "Parallel Aware", "Strategy", "Partial Mode")
_AGGREGATES = {"Hashed": "Hash", "Sorted": "Group", "Mixed": "Mixed "}
_ABOVE = {*_NAMED, *_ESTIMATED, *_MEASURED, *_IMPLIED}


def as_text(plan: str) -> str:
    """A plan in JSON, as EXPLAIN prints it, as an indented tree; another text as it is.

    Each node has its name, estimates and measurements in a line, then its other values, without
    zeros.
    """
    top = plan_of(plan)
    if not top.get("Plan"):
        return plan
    lines: list[str] = []
    for node, depth in plan_nodes(top):
        alias, name = node.get("Alias", node.get("Relation Name")), node_name(node)
        parts = [name if alias == node.get("Relation Name") else f"{name} {alias}"]
        if "Total Cost" in node:
            low, high, rows, width = (node.get(key, 0) for key in _ESTIMATED)
            parts.append(f"(cost={low:.2f}..{high:.2f} rows={rows} width={width})")
        if "Actual Total Time" in node:
            low, high, rows, loops = (node.get(key, 0) for key in _MEASURED)
            parts.append(f"(actual time={low:.3f}..{high:.3f} rows={rows:g} loops={loops})")
        lines.append(" " * (6 * depth - 4) + "->  " * bool(depth) + "  ".join(parts))
        lines += _values(node, " " * (6 * depth + 2))
    return "\n".join([*lines, *_values(top, "")])


def _values(node: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The other values of a node that are numbers, texts, or lists of texts, a line each."""
    for key, value in ((key, value) for key, value in node.items() if key not in _ABOVE and value):
        if isinstance(value, list) and isinstance(value[0], str):
            yield f"{indent}{key}: {', '.join(value)}"
        elif not isinstance(value, (list, dict)):
            yield f"{indent}{key}: {value}"


def plan_of(text: str) -> dict[str, Any]:
    """The plan that EXPLAIN returned as JSON; empty if the text is not one."""
    try:
        (top,) = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, TypeError):
        return {}
    return top if isinstance(top, dict) and isinstance(top.get("Plan"), dict) else {}


def plan_nodes(plan: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """All nodes as EXPLAIN prints them, with their depth; no recursion: plans may be deep."""
    stack = [(plan["Plan"], 0)] if plan else []
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(child, depth + 1) for child in reversed(node.get("Plans") or [])]


def node_name(node: Mapping[str, Any]) -> str:
    kind, join = node.get("Node Type", ""), node.get("Join Type") or "Inner"
    if kind == "Aggregate":
        kind = f"{_AGGREGATES.get(node.get('Strategy', ''), '')}Aggregate"
    elif kind == "ModifyTable":
        kind = node.get("Operation", kind)
    elif kind in ("Hash Join", "Merge Join", "Nested Loop") and join != "Inner":
        kind = f"{kind.removesuffix(' Join')} {join} Join"
    mode = node.get("Partial Mode", "Simple").replace("Simple", "")
    parallel = "Parallel" if node.get("Parallel Aware") else ""
    index = f"using {node['Index Name']}" if "Index Name" in node else ""
    relation = f"on {node['Relation Name']}" if "Relation Name" in node else ""
    return " ".join(filter(None, (parallel, mode, kind, index, relation)))
