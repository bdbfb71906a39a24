"""Signs of causes inside the server: locks, disks, checkpoints, plans, other sessions. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from pgpaces.analysis.arrays import Numbers, np, quotient
from pgpaces.analysis.attribution.material import Material
from pgpaces.analysis.attribution.sessions import Kind
from pgpaces.analysis.attribution.sign import Proof, Sign, uniform
from pgpaces.core.findings import Finding, finding
from pgpaces.spec.result import Blocked, Explained

_SHOWN = 3
# The least rows removed by a scan, in all and for each row it returns, that call for an index.
_WASTED_MIN, _WASTED_TIMES = 10_000, 100
# Rows or blocks of a missed transaction over those of one on time, from which on they are "more".
_MORE_TIMES = 3.0
_ROWS_MIN = 1_000
# Transactions that read this part of the rows a scan removes have executed it.
_OF_WASTE = 0.1
# Checkpoints at shorter intervals are a storm.
_STORM_EVERY_S = 30.0
# Sessions wait for a checkpoint that lasts these seconds at least, with this many times as many
# of them waiting for the disk, and at least this many. Else it only runs at the same time.
_SLOWER_MIN_S, _SLOWER_TIMES, _SLOWER_LEAST = 3, 2.0, 0.5


def signs(material: Material) -> Iterator[Sign]:
    if material.sessions is not None:
        yield from _locks(material)
        yield _waited(material, "standby", ("standby",))
        yield _waited(material, "disk", ("wal", "read", "file"))
        yield _waited(material, "latch", ("latch",))
        yield from _cache(material)
        yield _others(material)
    yield from _checkpoints(material)
    yield from _autovacuum(material)
    yield from _plans(material)


def _waited(material: Material, key: str, kinds: Sequence[Kind], *, proof: Proof = "time") -> Sign:
    """A share of the time in flight, by what sessions waited for."""
    sessions = material.sessions
    if sessions is None:
        raise ValueError(key)
    values = material.life_mean(material.flight_share(sessions.of(*kinds)))
    names = [name for kind in kinds for name in sessions.events.get(kind, ())][:_SHOWN]
    evidence = [finding("waited-for", events=names)] if names else []
    return uniform(key, values, proof, evidence=evidence)


def _locks(material: Material) -> Iterator[Sign]:
    """Waiting for a lock: of another session, or of each other."""
    waits = _waited(material, "lock", ("lock",))
    pairs = [one for each in material.trial.observed for one in each.blocked]
    theirs = [_blocker(one) for one in pairs if one.waiting == "load" != one.blocking]
    own = [_blocker(one) for one in pairs if one.waiting == one.blocking == "load"]
    by_others = material.life_max(material.locked_by_others) > 0
    evidence = (*waits.evidence, *theirs[:_SHOWN])
    yield uniform("lock", np.where(by_others, waits.late, 0.0), "time", evidence=evidence)
    queued = material.life_mean(material.queueing)
    yield uniform("contention", queued, "time", evidence=(*waits.evidence, *own[:_SHOWN]))


def _blocker(one: Blocked) -> Finding:
    values: dict[str, Any] = {"holder": one.blocking or None, "state": one.state or None}
    values |= {name: getattr(one, name) for name in ("event", "mode", "first_s", "last_s")}
    if one.statement:
        return finding("blocked", statement=one.statement, **values)
    return finding("blocked-by", **values)


def _cache(material: Material) -> Iterator[Sign]:
    """Reading data files, where missed transactions had more to read than others."""
    read = material.per_transaction("database", "blocks_read")
    if read is None:
        return
    usual = _usual(material, read)
    if usual is None:
        return
    more = material.life_mean(read) >= _MORE_TIMES * max(usual, 1.0)
    sign = _waited(material, "cache", ("read",), proof="beside")
    late = material.mean_of_missed(read)
    evidence = finding("blocks-read", late=late, on_time=usual)
    yield uniform(
        "cache", np.where(more, sign.late, 0.0), "beside", evidence=(evidence, *sign.evidence)
    )


def _usual(material: Material, values: Numbers) -> float | None:
    """The median of what transactions on time saw; None where that is unknown."""
    means = material.life_mean(values)
    usable = np.isfinite(means) & (material.on_time > 0)
    if not usable.any():
        return None
    order = np.argsort(means[usable])
    weights = np.cumsum(material.on_time[usable][order])
    at = int(np.searchsorted(weights, weights[-1] / 2))
    return float(means[usable][order][at])


def _others(material: Material) -> Sign:
    sessions = material.sessions
    others = np.zeros(material.clock) if sessions is None else sessions.others
    mean = material.mean_of_missed(others)
    evidence = [finding("others-active", sessions=mean)] if mean else []
    return uniform(
        "others", material.life_mean(np.clip(others, 0.0, 1.0)), "beside", evidence=evidence
    )


def _checkpoints(material: Material) -> Iterator[Sign]:
    names = ("checkpoints", "written", "write_time", "sync_time")
    tracks = [material.track("checkpoints", name) for name in names]
    present = [np.nan_to_num(track) for track in tracks if track is not None]
    if not present:
        return
    busy = np.any(np.stack(present) > 0, axis=0).astype(float)
    # Counted when it ends, so it was under way in the second before too.
    busy = np.maximum(busy, np.append(busy[1:], 0.0))
    done = 0.0 if tracks[0] is None else float(np.nansum(tracks[0]))
    requested, written = material.track("checkpoints", "requested"), tracks[1]
    values = {
        name: None if track is None else float(np.nansum(track))
        for name, track in (("requested", requested), ("blocks", written))
    }
    counted = [finding("checkpoints-counted", count=done, seconds=material.clock, **values)]
    sign = material.life_max(busy)
    waits = np.zeros(material.clock)
    if material.sessions is not None:
        waits = np.nan_to_num(material.sessions.of("wal", "read", "file", "latch"))
    storm = done >= 3 and material.clock / done <= _STORM_EVERY_S
    if material.sessions is not None and (storm or _slower(waits, busy)):
        # Checkpoints cause the waits for the disk of that time.
        waited = np.nan_to_num(material.life_mean(material.flight_share(waits)))
        yield uniform("checkpoint", np.minimum(sign, waited), "time", evidence=counted)
    else:
        yield uniform("checkpoint", sign, "beside", evidence=counted)


def _slower(waits: Numbers, busy: Numbers) -> bool:
    """Whether many more sessions wait for the disk in the seconds of checkpoints than in others."""
    during, outside = waits[busy > 0], waits[busy == 0]
    if len(during) < _SLOWER_MIN_S or not len(outside):
        return False
    return bool(np.median(during) >= max(_SLOWER_LEAST, _SLOWER_TIMES * np.median(outside)))


def _autovacuum(material: Material) -> Iterator[Sign]:
    tracks = [material.track("io", f"autovacuum_{name}") for name in ("read", "written")]
    present = [np.nan_to_num(track) for track in tracks if track is not None]
    if present:
        busy = np.any(np.stack(present) > 0, axis=0).astype(float)
        active = finding("autovacuum-active", active=float(busy.sum()), seconds=material.clock)
        yield uniform("autovacuum", material.life_max(busy), "beside", evidence=[active])


class _Scan(Struct, frozen=True):
    """A scan that reads a whole relation for few rows. part: of its statement's time.

    removed, returned: rows.
    """

    relation: str
    filter: str
    removed: int
    returned: int
    part: float


def _plans(material: Material) -> Iterator[Sign]:
    """Whole tables read for a few rows: by plans, else by rows read for each transaction."""
    scans = [(one, scan) for one in material.trial.explained for scan in _wasteful(one)]
    rows = material.per_transaction("tuples", "returned")
    if scans:
        sign = np.nan_to_num(material.life_mean(_part_of_time(material, scans)))
        if rows is not None:
            # Plans were recorded at the end: where few rows were read, the plan was another one.
            least = _OF_WASTE * min(scan.removed for _, scan in scans)
            sign = np.where(material.life_mean(rows) >= least, sign, 0.0)
        evidence = [
            finding(
                "scan-removes",
                place=_place(material, one),
                relation=scan.relation,
                removed=scan.removed,
                returned=scan.returned,
                filter=scan.filter,
            )
            for one, scan in scans[:_SHOWN]
        ]
        yield uniform("plan", sign, "time", evidence=evidence)
    elif rows is not None:
        yield from _more_rows(material, rows)


def _more_rows(material: Material, rows: Numbers) -> Iterator[Sign]:
    """Many more rows read than by transactions on time, unless other sessions read them."""
    usual, late = _usual(material, rows), material.mean_of_missed(rows)
    if usual is None or late < max(_ROWS_MIN, _MORE_TIMES * usual):
        return
    sign = (material.life_mean(rows) >= max(_ROWS_MIN, _MORE_TIMES * usual)).astype(float)
    if material.sessions is not None:
        # The load reads in proportion to its active sessions.
        active = material.sessions.active
        own = quotient(active, active + material.sessions.others, 1.0)
        sign = sign * np.nan_to_num(material.life_mean(own))
    evidence = finding("rows-read", late=late, on_time=usual)
    scans = [text for one in material.trial.explained for text in _scans(material, one, late)]
    # Where a statement of the load has such a plan, these rows are the transactions' own work.
    yield uniform("plan", sign, "time" if scans else "beside", evidence=(*scans[:_SHOWN], evidence))


def _scans(material: Material, one: Explained, rows: float) -> Iterator[Finding]:
    """Sequential scans in an estimated plan that read this many rows to return few."""
    try:
        top = json.loads(one.plan)[0]["Plan"]
    except (ValueError, LookupError, TypeError):
        return
    for node in _nodes(top):
        few = float(node.get("Plan Rows", math.inf)) * _WASTED_TIMES <= rows
        if few and node.get("Node Type") == "Seq Scan" and "Filter" in node:
            relation, text = node.get("Relation Name", ""), node["Filter"]
            place = _place(material, one)
            yield finding("scan-expected", place=place, relation=relation, filter=text)


def _place(material: Material, one: Explained) -> str:
    script = material.trial.workload.scripts[one.script]
    return f"{script.name}:{script.commands[one.command].line}"


def _part_of_time(material: Material, scans: Sequence[tuple[Explained, _Scan]]) -> Numbers:
    """The approximate part of the statements' time that such scans took, by second of the clock.

    NaN where no statement ended.
    """
    parts: dict[tuple[int, int], float] = {}
    for one, scan in scans:
        key = (one.script, one.command)
        parts[key] = min(1.0, parts.get(key, 0.0) + scan.part)
    spent, total = np.zeros(material.clock), np.zeros(material.clock)
    for interval in material.trial.intervals:
        if 0 <= interval.second < material.clock:
            for each in interval.statements:
                part = parts.get((each.script, each.command), 0.0)
                spent[interval.second] += part * each.times.sum_ns
                total[interval.second] += each.times.sum_ns
    return quotient(spent, total)


def _wasteful(one: Explained) -> Iterator[_Scan]:
    """Sequential scans of an executed plan that return few of the rows they read."""
    if not one.analyzed:
        return
    try:
        top = json.loads(one.plan)[0]
        total = float(top.get("Execution Time") or top["Plan"]["Actual Total Time"])
    except (ValueError, LookupError, TypeError):
        return
    for node in _nodes(top["Plan"]):
        loops = float(node.get("Actual Loops", 1))
        removed = int(float(node.get("Rows Removed by Filter", 0)) * loops)
        returned = int(float(node.get("Actual Rows", 0)) * loops)
        sequential = node.get("Node Type") == "Seq Scan"
        if sequential and removed >= max(_WASTED_MIN, _WASTED_TIMES * returned):
            time = float(node.get("Actual Total Time", 0.0)) * loops
            part = min(1.0, time / total) if total else 0.0
            relation, text = str(node.get("Relation Name", "")), str(node.get("Filter", ""))
            yield _Scan(relation, text, removed, returned, part)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes, without recursion: plans may be deep."""
    stack = [plan]
    while stack:
        node = stack.pop()
        yield node
        stack += node.get("Plans") or []
