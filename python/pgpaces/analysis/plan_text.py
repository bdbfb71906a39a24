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
    try:
        top = plan_of(plan)
        return "\n".join((*_node(top["Plan"], ""), *_values(top, "")))
    except (ValueError, TypeError, KeyError):
        return plan


def plan_of(text: str) -> dict[str, Any]:
    """The plan that EXPLAIN returned as JSON; empty if the text is not one."""
    try:
        (top,) = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, TypeError):
        return {}
    return top if isinstance(top, dict) and isinstance(top.get("Plan"), dict) else {}


def plan_nodes(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes, without recursion: plans may be deep."""
    stack = [plan["Plan"]] if plan else []
    while stack:
        node = stack.pop()
        yield node
        stack += node.get("Plans") or []


def _node(node: Mapping[str, Any], indent: str) -> Iterator[str]:
    alias = node.get("Alias", node.get("Relation Name"))
    name = node_name(node)
    parts = [name if alias == node.get("Relation Name") else f"{name} {alias}"]
    if "Total Cost" in node:
        low, high, rows, width = (node.get(key, 0) for key in _ESTIMATED)
        parts.append(f"(cost={low:.2f}..{high:.2f} rows={rows} width={width})")
    if "Actual Total Time" in node:
        low, high, rows, loops = (node.get(key, 0) for key in _MEASURED)
        parts.append(f"(actual time={low:.3f}..{high:.3f} rows={rows:g} loops={loops})")
    yield indent + ("->  " if indent else "") + "  ".join(parts)
    inner = indent + ("      " if indent else "  ")
    yield from _values(node, inner)
    for child in node.get("Plans", ()):
        yield from _node(child, inner)


def node_name(node: Mapping[str, Any]) -> str:
    kind = node["Node Type"]
    name = kind
    if kind == "Aggregate":
        name = f"{_AGGREGATES.get(node.get('Strategy', ''), '')}Aggregate"
    elif kind == "ModifyTable":
        name = node.get("Operation", kind)
    elif kind in ("Hash Join", "Merge Join", "Nested Loop") and node.get("Join Type") not in (
        None,
        "Inner",
    ):
        name = f"{kind.removesuffix(' Join')} {node['Join Type']} Join"
    mode = node.get("Partial Mode", "Simple")
    name = name if mode == "Simple" else f"{mode} {name}"
    name = f"Parallel {name}" if node.get("Parallel Aware") else name
    index = f" using {node['Index Name']}" if "Index Name" in node else ""
    relation = f" on {node['Relation Name']}" if "Relation Name" in node else ""
    return f"{name}{index}{relation}"


def _values(node: Mapping[str, Any], indent: str) -> Iterator[str]:
    """The other values of a node, a line each; those of one kind that are numbers in one line."""
    numbers: list[str] = []
    for key, value in node.items():
        if key in _ABOVE or not value:
            continue
        if key.endswith(" Blocks"):
            numbers.append(f"{key.removesuffix(' Blocks').lower()}={value}")
        elif isinstance(value, list):
            texts = (_pairs(each) if isinstance(each, dict) else str(each) for each in value)
            yield f"{indent}{key}: {', '.join(texts)}"
        else:
            yield f"{indent}{key}: {_pairs(value) if isinstance(value, dict) else value}"
    if numbers:
        yield f"{indent}Blocks: {' '.join(numbers)}"


def _pairs(values: Mapping[str, Any]) -> str:
    return "(" + " ".join(f"{key}={value}" for key, value in values.items()
                          if value or key == "Worker Number") + ")"  # fmt: skip
