"""Plans of a load's statements, by EXPLAIN, in a transaction that is rolled back.

Knows nothing of scripts and loads: its input is the SQL of one execution of each, in order.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Any, Literal

from psycopg.pq import ExecStatus

from pgpaces.analysis.plan_text import node_name
from pgpaces.core import sessions
from pgpaces.core.findings import Notes, finding
from pgpaces.core.texts import encoded
from pgpaces.spec.result import Explained

# A statement: its script, its command in that, and its SQL with every variable replaced.
Statement = tuple[int, int, str]
Kind = Literal["plan", "transaction", "copy", "other"]

STATEMENT_TIMEOUT_S = 30
# A hanging server accepts connections without an answer; it must not delay the end of a run.
_CONNECT_TIMEOUT_S = 5
_SHAPE_LENGTH = 12
_SUMMARY_MAX = 400
_PLANNED = frozenset(
    ("select", "insert", "update", "delete", "merge", "values", "with", "table")
)  # fmt: skip
_TRANSACTION = frozenset(
    ("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release")
)  # fmt: skip
# Before a statement: white space, comments, parentheses.
_BEFORE = re.compile(r"(?:[\s(;]+|--[^\n]*(?:\n|$))+")
# Properties of a plan that do not depend on parameters, costs and times.
_SHAPE = (
    "Node Type",
    "Strategy",
    "Partial Mode",
    "Parallel Aware",
    "Operation",
    "Join Type",
    "Schema",
    "Relation Name",
    "Index Name",
    "Scan Direction",
    "Function Name",
    "CTE Name",
    "Parent Relationship",
    "Command",
)


def explain(
    keywords: Mapping[str, str],
    dbname: str,
    statements: Sequence[Statement],
    *,
    analyze: bool,
    notes: Notes | None = None,
) -> list[Explained]:
    """The plans of the statements; with `analyze` executed once and rolled back.

    keywords: libpq's, with the options of the load. Statements without a plan or with an error are
    omitted and reported. Sequences advance, and tables keep dead rows: use a disposable database
    if that matters. Raises ServerError without a session.
    """
    keywords = {"connect_timeout": str(_CONNECT_TIMEOUT_S), **keywords, "dbname": dbname}
    with (
        sessions.errors("plans-unavailable"),
        sessions.connect(
            keywords, "pgpaces plans", autocommit=False, prepare_threshold=None, as_the_load=True
        ) as session,
    ):
        session.execute(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'".encode())
        block = sessions.scalar(session, "SELECT current_setting('block_size')::int")
        notes = Notes() if notes is None else notes
        plans = [
            read(text, (script, command), block, analyze=analyze)
            for script, command, sql in statements
            if (text := _plan(session, sql, analyze=analyze, notes=notes)) is not None
        ]
        session.rollback()
        return plans


def _plan(session: sessions.Session, sql: str, *, analyze: bool, notes: Notes) -> str | None:
    """The plan as JSON; None for a statement without one or with an error; psycopg.Error."""
    kind = kind_of(sql)
    if kind == "transaction" or (kind != "plan" and not analyze):
        return None
    # A statement may be as long as the protocol takes.
    statement = shorten(sql[:_SUMMARY_MAX], 60, placeholder="...")
    how = "ANALYZE, BUFFERS, FORMAT JSON" if analyze else "FORMAT JSON"
    encoding, result, why = sessions.encoding_of(session), None, "COPY"
    session.execute("SAVEPOINT statement")
    if kind != "copy":
        # One statement: the server rejects several at once.
        text = f"EXPLAIN ({how}) {sql}" if kind == "plan" else sql
        result = session.pgconn.exec_params(encoded(text), None)
        why = result.get_error_message(encoding).strip().partition("\n")[0]
    if result is None or result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        session.execute("ROLLBACK TO statement")
        notes.add(finding("statement-without-plan", statement=statement, why=why))
        return None
    session.execute("RELEASE statement")
    value = result.get_value(0, 0) if kind == "plan" and result.ntuples else None
    plan = "" if value is None else value.decode(encoding, "replace")
    if kind == "plan" and not has_plan(plan):
        notes.add(finding("statement-replaced-by-rules", statement=statement))
        return None
    return plan or None


def kind_of(sql: str) -> Kind:
    """The kind of a statement: it has a plan, begins or ends a transaction, copies, or neither."""
    rest = sql
    while rest:
        if match := _BEFORE.match(rest):
            rest = rest[match.end() :]
        elif rest.startswith("/*"):
            rest = _after_comment(rest)
        else:
            break
    words = re.findall(r"[a-z]+", rest[:80].lower())[:2]
    first = words[0] if words else ""
    if first in _PLANNED:
        return "plan"
    if first in _TRANSACTION or words in (["prepare", "transaction"], ["set", "transaction"]):
        return "transaction"
    return "copy" if first == "copy" else "other"


def _after_comment(text: str) -> str:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return text[mark.end() :]
    return ""


def has_plan(text: str) -> bool:
    """Whether EXPLAIN (FORMAT JSON) printed a plan first; of what rules replace it need not."""
    parts = json.loads(text or "[]")
    return bool(parts) and isinstance(parts[0], dict) and "Plan" in parts[0]


def read(text: str, place: tuple[int, int], block_bytes: int, *, analyze: bool) -> Explained:
    """A plan's summary. text: of EXPLAIN (FORMAT JSON). place: script and command."""
    root = json.loads(text)[0]["Plan"]
    nodes = list(_nodes(root))
    return Explained(
        script=place[0],
        command=place[1],
        shape=shape(root),
        summary=summary(root),
        workers_planned=sum(node.get("Workers Planned", 0) for node in nodes),
        workers_launched=sum(node.get("Workers Launched", 0) for node in nodes),
        spilled_bytes=_spilled(root, nodes, block_bytes),
        plan=text,
        analyzed=analyze,
    )


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _spilled(root: Mapping[str, Any], nodes: list[Mapping[str, Any]], block_bytes: int) -> int:
    """Bytes of temporary files. Blocks of a node count those below it, so the root's are all.

    These include the space of sorts and hashes, unless the server counts no blocks: so the larger
    of both is returned.
    """
    blocks = root.get("Temp Written Blocks", 0) * block_bytes
    sorts = sum(n.get("Sort Space Used", 0) for n in nodes if n.get("Sort Space Type") == "Disk")
    hashes = sum(node.get("Disk Usage", 0) for node in nodes)
    return int(max(blocks, (sorts + hashes) * 1024))


def shape(root: Mapping[str, Any]) -> str:
    """A hash of nodes, joins, relations and indexes, without costs, times and parameters."""

    def outline(node: Mapping[str, Any]) -> list[Any]:
        own = [node.get(key) for key in _SHAPE]
        return [*own, [outline(child) for child in node.get("Plans", ())]]

    return hashlib.sha256(json.dumps(outline(root)).encode()).hexdigest()[:_SHAPE_LENGTH]


def summary(root: Mapping[str, Any]) -> str:
    """The nodes that rows pass, in one line, from the table read first to the result.

    It follows the outer side of joins; the first nodes of inner sides are in parentheses.
    """
    words: list[str] = []
    node: Mapping[str, Any] | None = root
    while node is not None:
        outer, inner = _sides(node)
        others = [node_name(_leaf(child)) for child in inner]
        words.append(node_name(node) + (f" ({', '.join(others)})" if others else ""))
        node = outer
    text = " > ".join(reversed(words))
    return text if len(text) <= _SUMMARY_MAX else f"{text[: _SUMMARY_MAX - 3]}..."


def _sides(
    node: Mapping[str, Any],
) -> tuple[Mapping[str, Any] | None, list[Mapping[str, Any]]]:
    children = [
        child
        for child in node.get("Plans", ())
        if child.get("Parent Relationship") not in ("InitPlan", "SubPlan")
    ]
    return (children[0], children[1:]) if children else (None, [])


def _leaf(node: Mapping[str, Any]) -> Mapping[str, Any]:
    outer, _ = _sides(node)
    # Below a bitmap heap scan are only the index scans of its bitmap.
    return node if outer is None or "Relation Name" in node else _leaf(outer)
