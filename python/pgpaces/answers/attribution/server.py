"""Signs of causes inside the server: locks, disks, checkpoints, plans, others' work. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pgpaces.answers.attribution.material import Material
from pgpaces.answers.attribution.sessions import Kind
from pgpaces.answers.attribution.sign import Proof, Sign, alike
from pgpaces.result import Blocked, Explained

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

_SHOWN = 3
# A scan that throws so many rows away, for each that it keeps, wants an index.
_WASTED_MIN, _WASTED_TIMES = 10_000, 100
# Rows and blocks of a transaction that are so many times those of ones on time are others.
_MORE_TIMES = 3.0
_ROWS_MIN = 1_000
# Transactions that read such a part of what a scan throws away were done by it.
_OF_WASTE = 0.1
# Checkpoints that follow each other so fast are a storm.
_STORM_EVERY_S = 30.0
# One of so many seconds, in which so many times more sessions wait for the disk, and so many at
# least, is what they wait for, and not only beside it.
_SLOWER_MIN_S, _SLOWER_TIMES, _SLOWER_LEAST = 3, 2.0, 0.5


def signs(material: Material) -> Iterator[Sign]:
    """All that sensors of the server tell."""
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


def _waited(material: Material, key: str, kinds: Sequence[Kind], proof: Proof = "time") -> Sign:
    """A share of the time in flight, by what sessions waited for."""
    sessions = material.sessions
    if sessions is None:
        raise ValueError(key)
    values = material.lived(material.of_flight(sessions.of(*kinds)))
    names = [name for kind in kinds for name in sessions.events.get(kind, ())][:_SHOWN]
    said = (f"sessions of the load waited for {', '.join(names)}",) if names else ()
    return alike(key, values, proof, said)


def _locks(material: Material) -> Iterator[Sign]:
    """Waiting for a lock: of somebody else, or of each other."""
    import numpy as np

    every = _waited(material, "lock", ("lock",))
    pairs = [one for each in material.trial.observed for one in each.blocked]
    theirs = [_blocker(one) for one in pairs if one.waiting == "load" != one.blocking]
    own = [_blocker(one) for one in pairs if one.waiting == one.blocking == "load"]
    held = material.touched(material.held) > 0
    said = (*every.said, *theirs[:_SHOWN])
    yield alike("lock", np.where(held, every.late, 0.0), "time", said)
    queued = material.lived(material.queueing)
    yield alike("contention", queued, "time", (*every.said, *own[:_SHOWN]))


def _blocker(one: Blocked) -> str:
    who = "another transaction of the load" if one.blocking == "load" else one.blocking
    did = f", which was {one.state or 'hidden'}"
    text = f": {one.statement}" if one.statement else ""
    when = f"seen {one.seen} times from second {one.first_s} to {one.last_s}"
    return f"{one.event} {one.mode} of {who or 'a session without a name'}{did}{text} ({when})"


def _cache(material: Material) -> Iterator[Sign]:
    """Reading data files, where transactions that missed had more to read than others."""
    import numpy as np

    read = material.per_transaction("database", "blocks_read")
    if read is None:
        return
    usual = _usual(material, read)
    if usual is None:
        return
    more = material.lived(read) >= _MORE_TIMES * max(usual, 1.0)
    sign = _waited(material, "cache", ("read",), "beside")
    late = material.of_missed(read)
    said = f"{late:.3g} blocks read a transaction; {usual:.3g} where they were on time"
    yield alike("cache", np.where(more, sign.late, 0.0), "beside", (said, *sign.said))


def _usual(material: Material, values: Numbers) -> float | None:
    """The middle of what those on time saw; None where that is not known."""
    import numpy as np

    lived = material.lived(values)
    known = np.isfinite(lived) & (material.on_time > 0)
    if not known.any():
        return None
    order = np.argsort(lived[known])
    weights = np.cumsum(material.on_time[known][order])
    at = int(np.searchsorted(weights, weights[-1] / 2))
    return float(lived[known][order][at])


def _others(material: Material) -> Sign:
    """Sessions that are none of the load, at work."""
    import numpy as np

    sessions = material.sessions
    others = np.zeros(material.clock) if sessions is None else sessions.others
    mean = material.of_missed(others)
    said = (f"{mean:.2g} sessions of others at work while they were late",) if mean else ()
    return alike("others", material.lived(np.clip(others, 0.0, 1.0)), "beside", said)


def _checkpoints(material: Material) -> Iterator[Sign]:
    import numpy as np

    names = ("checkpoints", "written", "write_time", "sync_time")
    tracks = [material.track("checkpoints", name) for name in names]
    known = [np.where(np.isfinite(t), t, 0.0) for t in tracks if t is not None]
    if not known:
        return
    busy = np.any(np.stack(known) > 0, axis=0).astype(float)
    # Counted when it ends, so it was under way in the second before too.
    busy = np.maximum(busy, np.append(busy[1:], 0.0))
    done = 0.0 if tracks[0] is None else float(np.nansum(tracks[0]))
    asked = material.track("checkpoints", "requested")
    said = f"{done:.0f} checkpoints in {material.clock} s"
    if asked is not None:
        said += f", {np.nansum(asked):.0f} of them requested, by the size of WAL or by somebody"
    written = material.track("checkpoints", "written")
    if written is not None:
        said += f"; {np.nansum(written):,.0f} blocks written by them"
    sign = material.touched(busy)
    waits = np.zeros(material.clock)
    if material.sessions is not None:
        waits = np.nan_to_num(material.sessions.of("wal", "read", "file", "latch"))
    storm = done >= 3 and material.clock / done <= _STORM_EVERY_S
    if material.sessions is not None and (storm or _slower(waits, busy)):
        # What sessions wait for meanwhile is their doing.
        waited = np.nan_to_num(material.lived(material.of_flight(waits)))
        yield alike("checkpoint", np.minimum(sign, waited), "time", (said,))
    else:
        yield alike("checkpoint", sign, "beside", (said,))


def _slower(waits: Numbers, busy: Numbers) -> bool:
    """Whether many more sessions wait for the disk in the seconds of checkpoints than in others."""
    import numpy as np

    during, else_ = waits[busy > 0], waits[busy == 0]
    if len(during) < _SLOWER_MIN_S or not len(else_):
        return False
    return bool(np.median(during) >= max(_SLOWER_LEAST, _SLOWER_TIMES * np.median(else_)))


def _autovacuum(material: Material) -> Iterator[Sign]:
    import numpy as np

    tracks = [material.track("io", f"autovacuum_{name}") for name in ("read", "written")]
    known = [np.where(np.isfinite(t), t, 0.0) for t in tracks if t is not None]
    if known:
        busy = np.any(np.stack(known) > 0, axis=0).astype(float)
        said = f"autovacuum read or wrote in {busy.sum():.0f} of {material.clock} s"
        yield alike("autovacuum", material.touched(busy), "beside", (said,))


class _Waste(Struct, frozen=True):
    """A scan that reads a whole relation for next to nothing. part: of its statement's time."""

    relation: str
    filter: str
    removed: int
    kept: int
    part: float


def _plans(material: Material) -> Iterator[Sign]:
    """Whole tables read for a few rows: by plans, else by rows read for each transaction."""
    import numpy as np

    wastes = [(one, waste) for one in material.trial.explained for waste in _wastes(one)]
    rows = material.per_transaction("tuples", "returned")
    if wastes:
        found = np.nan_to_num(material.lived(_part_of_time(material, wastes)))
        if rows is not None:
            # Plans are of the end: where few rows were read, it was done in another way.
            least = _OF_WASTE * min(waste.removed for _, waste in wastes)
            found = np.where(material.lived(rows) >= least, found, 0.0)
        said = [_wasted(material, one, waste) for one, waste in wastes[:_SHOWN]]
        yield alike("plan", found, "time", said)
    elif rows is not None:
        yield from _more_rows(material, rows)


def _more_rows(material: Material, rows: Numbers) -> Iterator[Sign]:
    """Many more rows read than by those on time, as far as no others were there to read them."""
    import numpy as np

    usual, late = _usual(material, rows), material.of_missed(rows)
    if usual is None or late < max(_ROWS_MIN, _MORE_TIMES * usual):
        return
    found = (material.lived(rows) >= max(_ROWS_MIN, _MORE_TIMES * usual)).astype(float)
    if material.sessions is not None:
        # As many of them as there are sessions of the load at work.
        every = material.sessions.active + material.sessions.others
        with np.errstate(invalid="ignore", divide="ignore"):
            own = np.where(every > 0, material.sessions.active / every, 1.0)
        found = found * np.nan_to_num(material.lived(own))
    said = f"{late:,.0f} rows read a transaction; {usual:,.0f} where they were on time"
    scans = [text for one in material.trial.explained for text in _scans(material, one, late)]
    # Where its own statement has such a plan, these rows are the transactions' own work.
    yield alike("plan", found, "time" if scans else "beside", (*scans[:_SHOWN], said))


def _scans(material: Material, one: Explained, rows: float) -> Iterator[str]:
    """Sequential scans that the server plans, of so many rows, for hardly any."""
    try:
        top = json.loads(one.plan)[0]["Plan"]
    except (ValueError, LookupError, TypeError):
        return
    for node in _nodes(top):
        few = float(node.get("Plan Rows", math.inf)) * _WASTED_TIMES <= rows
        if few and node.get("Node Type") == "Seq Scan" and "Filter" in node:
            relation, text = node.get("Relation Name", ""), node["Filter"]
            yield f"{_place(material, one)} reads all of {relation} to keep few rows: {text}"


def _place(material: Material, one: Explained) -> str:
    """The script and line of a statement."""
    script = material.trial.workload.scripts[one.script]
    return f"{script.name}:{script.commands[one.command].line}"


def _wasted(material: Material, one: Explained, waste: _Waste) -> str:
    return (
        f"{_place(material, one)} reads all of {waste.relation} and throws {waste.removed:,} rows"
        f" away to keep {waste.kept:,}: {waste.filter}"
    )


def _part_of_time(material: Material, wastes: Sequence[tuple[Explained, _Waste]]) -> Numbers:
    """The part of the statements' time that went into such scans, about, by second of the clock.

    NaN where no statement ended.
    """
    import numpy as np

    parts: dict[tuple[int, int], float] = {}
    for one, waste in wastes:
        key = (one.script, one.command)
        parts[key] = min(1.0, parts.get(key, 0.0) + waste.part)
    spent, every = np.zeros(material.clock), np.zeros(material.clock)
    for interval in material.trial.intervals:
        if 0 <= interval.second < material.clock:
            for each in interval.statements:
                part = parts.get((each.script, each.command), 0.0)
                spent[interval.second] += part * each.times.sum_ns
                every[interval.second] += each.times.sum_ns
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(every > 0, spent / every, np.nan))


def _wastes(one: Explained) -> Iterator[_Waste]:
    """Sequential scans of an executed plan that keep hardly anything."""
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
        kept = int(float(node.get("Actual Rows", 0)) * loops)
        scan = str(node.get("Node Type", "")) == "Seq Scan"
        if scan and removed >= max(_WASTED_MIN, _WASTED_TIMES * kept):
            took = float(node.get("Actual Total Time", 0.0)) * loops
            part = min(1.0, took / total) if total else 0.0
            relation, text = str(node.get("Relation Name", "")), str(node.get("Filter", ""))
            yield _Waste(relation, text, removed, kept, part)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes, without recursion: plans may be deep."""
    left = [plan]
    while left:
        node = left.pop()
        yield node
        left += node.get("Plans") or []
