"""The verdict on a migration, and which requests it delayed or blocked. Pure.

A request is blamed on a statement if a sample saw the migration among those that its session waited
for, directly or through others. A migration blocks if a request is blamed on it, or if it held, or
waited for, a lock that conflicts with the load's for at least the latency limit: a request that
arrives when that begins waits until it ends, whether one happened to arrive or not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import comb

from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core import times
from pgpaces.core.findings import Finding, finding
from pgpaces.core.messages import message
from pgpaces.core.record import Interval, Missed, Tally
from pgpaces.core.texts import redacted
from pgpaces.core.units import SECOND_NS
from pgpaces.spec.migration import (
    Behind,
    Form,
    MissedRequest,
    Outage,
    Pass,
    Phase,
    StatementRun,
    Verdict,
)

# Which modes conflict (PostgreSQL's documentation, "Explicit Locking").
_WEAKEST_FIRST = (
    "AccessShareLock", "RowShareLock", "RowExclusiveLock", "ShareUpdateExclusiveLock", "ShareLock",
    "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock",
)  # fmt: skip
_CONFLICTS = {
    "AccessShareLock": _WEAKEST_FIRST[7:],
    "RowShareLock": _WEAKEST_FIRST[6:],
    "RowExclusiveLock": _WEAKEST_FIRST[4:],
    "ShareUpdateExclusiveLock": _WEAKEST_FIRST[3:],
    "ShareLock": (*_WEAKEST_FIRST[2:4], *_WEAKEST_FIRST[5:]),
    "ShareRowExclusiveLock": _WEAKEST_FIRST[2:],
    "ExclusiveLock": _WEAKEST_FIRST[1:],
    "AccessExclusiveLock": _WEAKEST_FIRST,
}
# The level of the test of each script, with Holm's correction over the scripts.
_LEVEL = 0.01
_SLOWER, _OF_LIMIT = 2.0, 0.1
_COUNTED_MIN = 20
# Who blocks for less than so many limits, while somebody waited for a CPU for this share of the
# time, may do so because the machine is busy.
_SHORT, _BUSY = 3, 0.5
# A sample may be later than the one before by so many periods: the machine is busy.
_LATE = 5
# Missed requests that are kept for the chart.
_KEPT_MAX = 1000
# Relations and the modes in which a load locks them.
Locks = Mapping[str, frozenset[str]]


class Wait(Struct, frozen=True):
    """A session that waits for a lock. blockers: process ids; empty if they were not looked up.

    since_ns: when it began; None before PostgreSQL 14. who: the holders in words, for reports.
    """

    pid: int
    blockers: tuple[int, ...]
    mode: str
    relation: str
    since_ns: int | None = None
    who: tuple[str, ...] = ()


class Look(Struct, frozen=True):
    """A sample. Times in ns from the start of the measured part. statement: that of the migration.

    movers: the migration's sessions. held: relations and modes that they hold.
    """

    at_ns: int
    statement: int | None
    waits: tuple[Wait, ...] = ()
    movers: frozenset[int] = frozenset()
    held: frozenset[tuple[str, str]] = frozenset()


class Evidence(Struct, frozen=True, kw_only=True):
    """All that a rehearsal saw. began_ns, ended_ns: of the migration.

    scripts: names. nodes: the standby of each script; empty for the primary. limits_ns: of each
    script. allowed: the share that may miss. period_ns: between samples. known: the locks of
    statements are; else samples show how long each was held. locks: of the load. tables: those
    among them that are no indexes; others: tables that it does not use. pressure: the share of the
    migration's time in which somebody waited for a CPU of this machine; None: unknown. wal_bytes:
    see Pass. interrupted: it did not come to its end.
    """

    form: Form
    behind: Behind
    statements: Sequence[StatementRun]
    looks: Sequence[Look]
    intervals: Sequence[Interval]
    locks: Locks
    tables: frozenset[str]
    others: frozenset[str]
    scripts: Sequence[str]
    nodes: Sequence[str] = ()
    limits_ns: Sequence[int]
    allowed: float
    clients: int
    period_ns: int
    known: bool
    began_ns: int
    ended_ns: int
    pressure: float | None = None
    wal_bytes: int | None = None
    outage: Outage | None = None
    interrupted: bool = False

    @property
    def limit_ns(self) -> int:
        """The smallest limit of a script."""
        return min((ns for ns in self.limits_ns if ns), default=0)


def by_commands(
    looks: Sequence[Look], runs: Sequence[StatementRun]
) -> tuple[list[Look], list[StatementRun]]:
    """The samples of a program by the command that it executed then; the program itself is last.

    A command's locks are held until the last sample in a row that shows one of them.
    """
    *commands, whole = runs
    ended: list[StatementRun] = []
    for run in commands:
        released_ns = run.done_ns
        for look in looks:
            if look.at_ns > run.done_ns and not look.held & {*run.locks}:
                break
            released_ns = max(released_ns, look.at_ns)
        ended.append(replace(run, released_ns=released_ns))

    def number(look: Look) -> int:
        spans = ((run.began_ns, run.done_ns) for run in commands)
        return next((n for n, (a, b) in enumerate(spans) if a <= look.at_ns <= b), len(commands))

    placed = [look if look.statement is None else replace(look, statement=number(look))
              for look in looks]  # fmt: skip
    return placed, [*ended, whole]


def conflicts(mode: str, others: Iterable[str]) -> bool:
    return any(other in _CONFLICTS.get(mode, ()) for other in others)


def judge(seen: Evidence) -> Pass:
    """The pass, with its verdict."""
    missed = list(chain.from_iterable(each.missed for each in seen.intervals))
    samples = _Samples.of(seen)
    runs = [_stopped(seen, number, run) for number, run in enumerate(seen.statements)]
    causes: Counter[str] = Counter()
    requests: list[MissedRequest] = []
    late: dict[int, list[int]] = {}
    for each in missed:
        if each.due_ns < seen.began_ns and each.done_ns < seen.began_ns:
            continue
        took_ns, cause = each.done_ns - each.due_ns, each.sqlstate
        if each.outcome != "failed":
            number = samples.blamed(each)
            if number is not None:
                late.setdefault(number, []).append(took_ns)
            cause = "migration" if number is not None else _cause(seen, runs, each)
            causes[cause] += 1
        requests.append(MissedRequest(each.due_ns // 1_000_000, took_ns // 1_000_000, cause))
    owners = {each.pid: seen.scripts[each.script] for each in missed if each.pid}
    for number, run in enumerate(runs):
        took = late.get(number, [])
        queue = max(samples.queues(number), key=len, default=frozenset[int]())
        named = Counter(owners.get(pid, "") for pid in queue)
        runs[number] = replace(
            run, late=len(took), worst_ns=max(took, default=0), queue=dict(named.most_common())
        )
    before, during = _phases(seen)
    known = {each.sqlstate for each in missed if each.done_ns < seen.began_ns}
    failed = Counter(
        each.sqlstate
        for each in missed
        if each.outcome == "failed" and each.sqlstate not in known and each.done_ns >= seen.began_ns
    )
    found = [*_reasons(seen, runs, failed=failed, before=before, samples=samples)]
    return Pass(
        form=seen.form,
        behind=seen.behind,
        verdict=_verdict(found),
        statements=tuple(runs),
        before=before,
        during=during,
        failed=dict(failed),
        causes=dict(causes),
        clients=seen.clients,
        wal_bytes=seen.wal_bytes,
        requests=tuple(requests[:: 1 + len(requests) // _KEPT_MAX]),
        outage=None if seen.outage is None else replace(seen.outage, back_ns=_back_ns(seen)),
        in_doubt=_verdict(found) == "blocks" and _in_doubt(seen, runs),
        findings=tuple(found),
    )


def _in_doubt(seen: Evidence, runs: Sequence[StatementRun]) -> bool:
    """Whether a busy machine may be why it blocks for less than three latency limits."""
    each_ns = (max(run.held_ns, run.waited_ns, run.worst_ns) for run in runs)
    longest_ns = max(each_ns, default=0)
    return (seen.pressure or 0.0) > _BUSY and longest_ns < _SHORT * seen.limit_ns


def _cause(seen: Evidence, runs: Sequence[StatementRun], each: Missed) -> str:
    """Of a late request that no sample blames on the migration."""
    if each.due_ns >= seen.ended_ns:
        return "after"
    meanwhile = (r.began_ns <= each.done_ns and each.due_ns <= r.released_ns for r in runs)
    return "resources" if any(meanwhile) else "unexplained"


# The verdict that a finding leads to, the worst first.
VERDICTS: Mapping[str, Verdict] = {
    "rehearsal-stopped": "unknown",
    "late-before": "unknown",
    "generator-late-rehearsal": "unknown",
    "few-requests-rehearsed": "unknown",
    "load-locks-unknown": "unknown",
    "migration-failed": "fails",
    "requests-failed": "fails",
    "outage": "fails",
    "requests-blocked": "blocks",
    "lock-held": "blocks",
    "lock-awaited": "blocks",
    "rows-held": "blocks",
    "standby-late": "blocks",
    "slower-median": "slows",
    "slower-missed": "slows",
}


def _verdict(found: Sequence[Finding]) -> Verdict:
    names = {each.name for each in found}
    return next((verdict for name, verdict in VERDICTS.items() if name in names), "safe")


def _reasons(
    seen: Evidence,
    runs: Sequence[StatementRun],
    *,
    failed: Mapping[str, int],
    before: Phase,
    samples: _Samples,
) -> Iterable[Finding]:
    yield from _invalid(seen, before)
    for number, run in enumerate(runs, 1):
        if run.error is not None:
            values = {"sqlstate": run.sqlstate or "", "error": run.error}
            yield finding("migration-failed", number=number, **values)
    if failed:
        state = max(failed, key=lambda each: failed[each])
        said = dict(chain.from_iterable(each.messages for each in seen.intervals))
        values = {"error": redacted(said.get(state, "")), "sqlstate": state}
        due = _phases(seen)[1].due
        yield finding("requests-failed", count=sum(failed.values()), due=due, **values)
    if seen.outage is not None and seen.outage.length_ns >= seen.limit_ns:
        yield finding("outage", outage_s=seen.outage.length_ns / 1e9)
    for number, run in enumerate(runs):
        queued_ns = samples.queued_ns(number, run)
        yield from _harm(run, seen.limit_ns, number=number + 1, queued_ns=queued_ns)
    yield from _on_standbys(seen)
    yield from _slower(seen)
    taken = dict.fromkeys(
        relation for run in runs for relation, mode in run.locks if mode == _WEAKEST_FIRST[-1]
    )
    if unused := [name for name in taken if name in seen.others]:
        yield finding("tables-without-load", tables=unused)
    if not seen.known and len(runs) == 1:
        yield finding("commands-not-traced")


def _invalid(seen: Evidence, before: Phase) -> Iterable[Finding]:
    """Why the rehearsal says nothing."""
    if seen.interrupted:
        yield finding("rehearsal-stopped", why=message("rehearsal-was-stopped"))
    if before.due < _COUNTED_MIN:
        yield finding("few-requests-rehearsed", due=before.due, least=_COUNTED_MIN)
    elif before.missed > seen.allowed * before.due:
        yield finding("late-before", missed=before.missed, due=before.due)
    if not seen.locks and seen.outage is None:
        yield finding("load-locks-unknown")
    lag = times.merge(each.dispatch for each in seen.intervals)
    lag_ms = times.quantiles_ms(lag, [0.99], lag.count)[0] if lag.count else None
    if lag_ms is not None and lag_ms * 1e6 > seen.limit_ns / 2:
        yield finding("generator-late-rehearsal", lag_ms=lag_ms)


def _harm(run: StatementRun, limit_ns: int, *, number: int, queued_ns: int) -> Iterable[Finding]:
    own = {"number": number, "relation": run.relation, "mode": shown_mode(run.mode)}
    if run.late:
        yield finding("requests-blocked", number=number, late=run.late, worst_s=run.worst_ns / 1e9)
    if run.held_ns >= limit_ns:
        yield finding("lock-held", held_s=run.held_ns / 1e9, **own)
    if run.waited_ns >= limit_ns:
        holders = list(run.holders)
        yield finding("lock-awaited", waited_s=run.waited_ns / 1e9, holders=holders, **own)
    if queued_ns >= limit_ns and not (run.held_ns or run.waited_ns):
        yield finding("rows-held", number=number, held_s=queued_ns / 1e9)


def shown_mode(mode: str) -> str:
    """A lock mode as PostgreSQL's documentation writes it: ACCESS EXCLUSIVE."""
    words = "".join(f" {each}" if each.isupper() else each for each in mode.removesuffix("Lock"))
    return words.strip().upper()


def _behind(look: Look) -> frozenset[int]:
    """The sessions that wait for the migration, directly or through others.

    One whose blockers were not looked up waits for whom those wait that want the same relation.
    """
    blockers = {wait.pid: set(wait.blockers) for wait in look.waits}
    for wait in look.waits:
        if not wait.blockers and wait.relation:
            alike = (w for w in look.waits if w.relation == wait.relation)
            blockers[wait.pid] = set(chain.from_iterable(w.blockers for w in alike))
    found = set(look.movers)
    while more := {each for each, own in blockers.items() if own & found} - found:
        found |= more
    return frozenset(found - look.movers)


class _Samples(Struct, frozen=True):
    """The samples, and which sessions waited for the migration in each; owners: whom they blame."""

    seen: Evidence
    at_ns: list[int]
    behind: list[frozenset[int]]
    owners: list[int | None]

    @classmethod
    def of(cls, seen: Evidence) -> _Samples:
        behind = [_behind(look) for look in seen.looks]
        pairs = zip(seen.looks, behind, strict=True)
        owners = [_owner(seen, look, pids) if pids else None for look, pids in pairs]
        return cls(seen, [look.at_ns for look in seen.looks], behind, owners)

    def queues(self, number: int) -> list[frozenset[int]]:
        """The sessions behind a statement, by sample."""
        pairs = zip(self.owners, self.behind, strict=True)
        return [pids for owner, pids in pairs if owner == number]

    def queued_ns(self, number: int, run: StatementRun) -> int:
        """How long rows were locked for which a sample saw somebody wait.

        That is the length of the transaction; of a statement that commits meanwhile, the longest
        wait.
        """
        if run.locks:
            return run.released_ns - run.began_ns if any(self.queues(number)) else 0
        pairs = zip(self.seen.looks, self.behind, self.owners, strict=True)
        waits = (
            look.at_ns - (look.at_ns if wait.since_ns is None else wait.since_ns)
            for look, pids, owner in pairs
            if owner == number
            for wait in look.waits
            if wait.pid in pids
        )
        return max(waits, default=0)

    def blamed(self, each: Missed) -> int | None:
        """The number of the statement that delayed a request; None if none did.

        One that waited for a client is blamed on the migration if that blocked half of the clients.
        """
        seen, looks = self.seen, self.seen.looks
        limit_ns = seen.limits_ns[each.script] or seen.limit_ns
        waited = each.sent_ns - each.due_ns > limit_ns / 2
        first = bisect_left(self.at_ns, each.due_ns - seen.period_ns)
        last = bisect_right(self.at_ns, each.done_ns)
        for look, pids in zip(looks[first:last], self.behind[first:last], strict=True):
            own = each.pid in pids and look.at_ns >= each.sent_ns - seen.period_ns
            crowd = waited and look.at_ns <= each.sent_ns and 2 * len(pids) >= seen.clients
            if own or crowd:
                return _owner(seen, look, frozenset({each.pid}) if own else pids)
        return None


def _owner(seen: Evidence, look: Look, pids: frozenset[int]) -> int:
    """The statement that these waits are blamed on.

    It is the first of the open transaction that locked what they wait for, else the one that runs,
    else the last that had begun.
    """
    begun = [n for n, run in enumerate(seen.statements) if run.began_ns <= look.at_ns]
    wanted = [(wait.relation, wait.mode) for wait in look.waits if wait.pid in pids]
    for number in begun:
        run = seen.statements[number]
        if run.released_ns >= look.at_ns and any(
            name == relation and conflicts(mode, [own])
            for name, mode in wanted
            for relation, own in run.locks
        ):
            return number
    if look.statement is not None:
        return look.statement
    return begun[-1] if begun else 0


def _stopped(seen: Evidence, number: int, run: StatementRun) -> StatementRun:
    """The statement with the lock that stopped the load for the longest time.

    Its session has the lock from when it no longer waits for it to the end of its transaction.
    """
    looks = [look for look in seen.looks if look.statement == number]
    own = [(look, wait) for look in looks for wait in look.waits if wait.pid in look.movers]
    stops = [(look, w) for look, w in own if conflicts(w.mode, seen.locks.get(w.relation, ()))]
    waited_ns, got_first_ns = 0, run.tried_ns
    for first, last in _episodes([look.at_ns for look, _ in stops], _LATE * seen.period_ns):
        since = next(w.since_ns for look, w in stops if look.at_ns == first)
        begin_ns = first - seen.period_ns // 2 if since is None else since
        end_ns = min(last + seen.period_ns // 2, run.done_ns)
        waited_ns = max(waited_ns, end_ns - max(begin_ns, run.began_ns))
        if end_ns > run.tried_ns:
            got_first_ns = max(got_first_ns, end_ns)
    earlier = {
        lock
        for each in seen.statements[:number]
        if each.released_ns > run.began_ns
        for lock in each.locks
    }
    held = {*run.locks, *chain.from_iterable(look.held for look in looks)} - earlier
    strong = [lock for lock in held if conflicts(lock[1], seen.locks.get(lock[0], ()))]

    def got_ns(lock: tuple[str, str]) -> int:
        """When it had the lock: when it no longer waited, or later, if samples show that."""
        held = (look.at_ns for look in looks if lock in look.held and look.at_ns >= run.tried_ns)
        at_ns = next(held, got_first_ns)
        late = at_ns - got_first_ns > 2 * seen.period_ns
        return at_ns - seen.period_ns if late else got_first_ns

    # That of a table rather than of its index, the strongest.
    def longest(lock: tuple[str, str]) -> tuple[int, bool, int]:
        return got_ns(lock), lock[0] not in seen.tables, -_WEAKEST_FIRST.index(lock[1])

    relation, mode, held_ns = "", "", 0
    if strong and seen.known:
        relation, mode = lock = min(strong, key=longest)
        held_ns = max(0, run.released_ns - got_ns(lock))
    elif strong:
        # A program may keep it for longer than its command takes.
        later = [look for look in seen.looks if look.at_ns >= run.began_ns]
        held_ns, relation, mode = max((_longest(seen, later, lock), *lock) for lock in strong)
    elif stops:
        relation, mode = stops[0][1].relation, stops[0][1].mode
    holders = dict.fromkeys(chain.from_iterable(wait.who for _, wait in own))
    return replace(
        run,
        relation=relation,
        mode=mode,
        held_ns=held_ns,
        waited_ns=waited_ns,
        holders=tuple(holders),
    )


def _longest(seen: Evidence, looks: Sequence[Look], lock: tuple[str, str]) -> int:
    """For how long at most samples in a row saw a lock."""
    at_ns = [look.at_ns for look in looks if lock in look.held]
    spans = _episodes(at_ns, _LATE * seen.period_ns)
    return max((last - first + seen.period_ns for first, last in spans), default=0)


def _episodes(at_ns: Sequence[int], gap_ns: int) -> list[tuple[int, int]]:
    """The first and last of each run of times with no larger gap between neighbors."""
    found: list[tuple[int, int]] = []
    for at in at_ns:
        if found and at - found[-1][1] <= gap_ns:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def _phases(seen: Evidence) -> tuple[Phase, Phase]:
    """The requests before the migration, by whole seconds, and from its beginning on."""
    begin_s = seen.began_ns // SECOND_NS
    parts: dict[bool, list[Tally]] = {True: [], False: []}
    for tally in chain.from_iterable(each.tallies for each in seen.intervals):
        if tally.due_second >= 0:
            parts[tally.due_second < begin_s].append(tally)
    before, during = (_phase(parts[key]) for key in (True, False))
    return before, during


def _phase(tallies: Sequence[Tally]) -> Phase:
    return Phase(
        sum(each.due for each in tallies),
        sum(map(_missed, tallies)),
        max((each.latency.max_ns for each in tallies), default=0),
    )


def _missed(tally: Tally) -> int:
    return tally.late + tally.skipped + tally.unfinished + sum(tally.failed.values())


def _back_ns(seen: Evidence) -> int | None:
    """From the beginning of the outage to the second whose p95 is no longer than those before it.

    A second is that in which requests were due.
    """
    assert seen.outage is not None
    begin_s = seen.began_ns // SECOND_NS
    by_second: dict[int, list[Tally]] = {}
    for tally in chain.from_iterable(each.tallies for each in seen.intervals):
        by_second.setdefault(tally.due_second, []).append(tally)
    p95 = {second: _p95(own) for second, own in by_second.items() if second >= 0}
    usual = [value for second, value in p95.items() if second < begin_s and value is not None]
    ends_s = (seen.outage.began_ns + seen.outage.length_ns) // SECOND_NS
    for second in sorted(s for s in p95 if s >= ends_s):
        value = p95[second]
        if usual and value is not None and value <= max(usual):
            return max(0, second * SECOND_NS - seen.outage.began_ns)
    return None


def _p95(tallies: Sequence[Tally]) -> float | None:
    """Of everything that was due, ms; None if it did not succeed."""
    due = sum(each.due for each in tallies)
    every = times.merge(each.latency for each in tallies)
    return times.quantiles_ms(every, [0.95], due)[0] if due else None


def _on_standbys(seen: Evidence) -> Iterable[Finding]:
    """Standbys whose requests missed more from the migration on, by Fisher's exact test.

    Samples do not see their locks: a standby takes those that it replays.
    """
    begin_s = seen.began_ns // SECOND_NS
    tallies = [t for each in seen.intervals for t in each.tallies if t.due_second >= 0]
    for node in sorted({*seen.nodes} - {""}):
        own = [t for t in tallies if seen.nodes[t.script] == node]
        first = _phase([t for t in own if t.due_second < begin_s])
        last = _phase([t for t in own if t.due_second >= begin_s])
        if min(first.due, last.due) >= _COUNTED_MIN and _fisher(first, last) <= _LEVEL:
            yield finding("standby-late", node, **_missed_of(first, last))


def _missed_of(first: Phase, last: Phase) -> dict[str, int]:
    return {"missed": last.missed, "due": last.due, "was": first.missed, "was_due": first.due}


def _slower(seen: Evidence) -> Iterable[Finding]:
    """A finding for each script that misses more after the migration, or takes twice as long.

    Fisher's exact test of the missed (The Design of Experiments, 1935), with Holm's correction over
    the scripts; the medians with intervals of order statistics that are apart.
    """
    begin_s, end_s = seen.began_ns // SECOND_NS, seen.ended_ns // SECOND_NS + 1
    tallies = [t for each in seen.intervals for t in each.tallies if t.due_second >= 0]
    # Failures lead to another verdict.
    tallies = [replace(each, failed={}) for each in tallies]
    tests: list[tuple[float, int]] = []
    counts: dict[int, tuple[Phase, Phase]] = {}
    for script in range(len(seen.scripts)):
        own = [t for t in tallies if t.script == script]
        parts = (
            [t for t in own if t.due_second < begin_s],
            [t for t in own if t.due_second > end_s],
        )
        first, last = (_phase(part) for part in parts)
        counts[script] = (first, last)
        if min(first.due, last.due) < _COUNTED_MIN:
            continue
        tests.append((_fisher(first, last), script))
        medians = [_median(part) for part in parts]
        if None not in medians:
            (was, _, high), (now, low, _) = medians  # type: ignore[misc]
            slower_ms = seen.limit_ns / 1e6 * _OF_LIMIT
            if now > _SLOWER * was and low > high and now - was > slower_ms:
                values = {"before_ms": was, "after_ms": now}
                yield finding("slower-median", seen.scripts[script], **values)
                return
    for rank, (p, script) in enumerate(sorted(tests)):
        if p > _LEVEL / (len(tests) - rank):
            return
        first, last = counts[script]
        yield finding("slower-missed", seen.scripts[script], **_missed_of(first, last))
        return


def _fisher(first: Phase, last: Phase) -> float:
    """P(at least as many of the last missed | as many of both did), hypergeometric."""
    a, n, b, m = first.missed, first.due, last.missed, last.due
    total = comb(n + m, a + b)
    return sum(comb(m, k) * comb(n, a + b - k) for k in range(b, min(m, a + b) + 1)) / total


def _median(tallies: Sequence[Tally]) -> tuple[float, float, float] | None:
    """The median of what succeeded, and its 99% interval of order statistics, ms."""
    every = times.merge(each.latency for each in tallies)
    n = every.count
    if n < _COUNTED_MIN:
        return None
    half = 2.576 * n**0.5 / 2
    ranks = (max(1, round(n / 2)), max(1, int(n / 2 - half)), min(n, int(n / 2 + half) + 1))
    middle, low, high = (value or 0 for value in times.values_at_ranks(every, ranks))
    return middle / 1e6, low / 1e6, high / 1e6
