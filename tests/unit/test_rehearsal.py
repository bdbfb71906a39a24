"""What a migration did to requests: whom a late one is blamed on, and the verdict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis.rehearsal import (
    Evidence,
    Look,
    Wait,
    by_commands,
    conflicts,
    judge,
    shown_mode,
)
from pgpaces.core.findings import catalog
from pgpaces.core.record import Interval, Missed, Tally
from pgpaces.core.times import times_of
from pgpaces.core.units import SECOND_NS
from pgpaces.spec.migration import VERDICTS, Outage, Pass, Phase, Rehearsal, StatementRun

MS = 1_000_000
PID, PERIOD = 7, 20 * MS
MOVERS = frozenset({PID})
LOAD = {"orders": frozenset({"AccessShareLock", "RowExclusiveLock"})}
STRONG, WEAK = ("orders", "AccessExclusiveLock"), ("orders", "ShareUpdateExclusiveLock")
BEGAN, ENDED = 5 * SECOND_NS, 6 * SECOND_NS


def run(lock=STRONG, began=BEGAN, lasted=5 * MS, **more):
    locks = () if lock is None else (lock,)
    ended = began + lasted
    return StatementRun(
        text="ALTER TABLE orders ADD COLUMN x int",
        began_ns=began,
        tried_ns=began,
        done_ns=ended,
        released_ns=ended,
        locks=locks,
        **more,
    )


def late(due, lasted=300 * MS, pid=11, sent=None, outcome="late", sqlstate="00000"):
    return Missed(due, due if sent is None else sent, due + lasted, 0, pid, outcome, sqlstate)


def waiting(at, *pids, blocker=PID, statement=0, relation="orders", mode="RowExclusiveLock"):
    waits = tuple(Wait(pid, (blocker,), mode, relation) for pid in pids)
    return Look(at, statement, waits, MOVERS)


def second(number, *missed, due=100, took=2 * MS):
    bad = [each for each in missed if each.outcome != "late"]
    tally = Tally(
        number,
        0,
        due=due,
        on_time=due - len(missed),
        late=len(missed) - len(bad),
        failed={each.sqlstate: 1 for each in bad},
        latency=times_of([took] * due),
    )
    return Interval(second=number, tallies=(tally,), missed=tuple(missed))


def seen(*missed, runs=(), looks=(), after=(), **more):
    intervals = [second(n) for n in range(5)]
    intervals += [second(5, *missed), *(after or [second(n) for n in range(6, 12)])]
    values = {
        "form": "asked", "behind": "alone", "statements": runs or (run(),), "looks": looks,
        "intervals": intervals, "locks": LOAD, "tables": frozenset(LOAD),
        "others": frozenset({"other"}),
        "scripts": ("read",), "limits_ns": (100 * MS,),
        "allowed": 0.05, "clients": 4, "known": True, "period_ns": PERIOD, "began_ns": BEGAN,
        "ended_ns": ENDED,
    }  # fmt: skip
    return judge(Evidence(**{**values, **more}))


def names(found):
    return [each.name for each in found.findings]


def test_a_short_lock_is_safe_however_strong_it_is():
    found = seen()
    assert (found.verdict, names(found)) == ("safe", [])
    assert found.statements[0].held_ns == 5 * MS
    assert found.before == Phase(500, 0, 2 * MS)


@pytest.mark.parametrize(
    ("lock", "lasted", "verdict"),
    [(STRONG, 99 * MS, "safe"), (STRONG, 100 * MS, "blocks"), (WEAK, 9000 * MS, "safe"),
     (("other", "AccessExclusiveLock"), 9000 * MS, "safe")],
)  # fmt: skip
def test_a_lock_that_conflicts_with_the_load_blocks_from_the_limit_on(lock, lasted, verdict):
    # No request came by: that is luck.
    found = seen(runs=(run(lock, lasted=lasted),))
    assert found.verdict == verdict
    unused = ["tables-without-load"] if lock[0] == "other" else []
    assert names(found) == (["lock-held"] if verdict == "blocks" else unused)


@pytest.mark.parametrize(
    ("limits", "verdict"), [((100 * MS, 0), "blocks"), ((2 * SECOND_NS, 0), "safe")]
)
def test_the_smallest_limit_decides_and_a_script_without_one_does_not(limits, verdict):
    found = seen(runs=(run(lasted=800 * MS),), scripts=("read", "write"), limits_ns=limits)
    assert found.verdict == verdict


def test_a_lock_is_held_from_the_try_that_got_it():
    tried = run(lasted=9000 * MS, tries=3)
    found = seen(runs=(replace(tried, tried_ns=BEGAN + 4000 * MS),))
    assert found.statements[0].held_ns == 5000 * MS


def test_a_transaction_that_is_over_does_not_hide_the_lock_of_the_next():
    runs = (run(), run(None, BEGAN + 10 * MS), run(began=BEGAN + 20 * MS, lasted=1500 * MS))
    found = seen(runs=runs)
    assert [each.held_ns for each in found.statements] == [5 * MS, 0, 1500 * MS]


def test_a_wait_for_a_strong_lock_blocks_who_queues_behind_it():
    mine = Wait(PID, (99,), "AccessExclusiveLock", "orders", BEGAN, ("app (idle in transaction)",))
    looks = [
        Look(at, 0, (mine, Wait(11, (PID,), "RowExclusiveLock", "orders")), MOVERS)
        for at in range(BEGAN + 10 * MS, BEGAN + 3000 * MS, PERIOD)
    ]
    found = seen(late(BEGAN + 100 * MS, 2900 * MS), looks=looks, runs=(run(lasted=3005 * MS),))
    [statement] = found.statements
    assert found.verdict == "blocks"
    assert {"requests-blocked", "lock-awaited"} <= {*names(found)}
    assert statement.waited_ns == pytest.approx(3000 * MS, abs=2 * PERIOD)
    assert statement.held_ns < 50 * MS
    assert statement.holders == ("app (idle in transaction)",)
    assert (statement.late, statement.worst_ns) == (1, 2900 * MS)


def test_waiting_for_a_weak_lock_is_the_migrations_own_affair():
    mine = Wait(PID, (99,), "ShareLock", "", BEGAN)
    looks = [Look(at, 0, (mine,), MOVERS) for at in range(BEGAN, BEGAN + 4000 * MS, PERIOD)]
    assert seen(looks=looks, runs=(run(WEAK, lasted=4000 * MS),)).verdict == "safe"


def test_only_a_session_that_waited_for_the_migration_blames_it():
    at = BEGAN + 50 * MS
    missed = (late(BEGAN + 10 * MS), late(BEGAN + 10 * MS, pid=12), late(BEGAN + 10 * MS, pid=13))
    looks = [Look(at, 0, (
        Wait(11, (PID,), "RowExclusiveLock", "orders"),
        Wait(12, (11,), "ShareLock", ""),  # through another
        Wait(13, (55,), "RowExclusiveLock", "events"),
    ), MOVERS)]  # fmt: skip
    found = seen(*missed, looks=looks, runs=(run(lasted=80 * MS),))
    assert found.causes == {"migration": 2, "resources": 1}
    assert found.statements[0].queue == {"read": 2}


def test_who_waits_for_a_client_is_blamed_if_half_of_the_clients_are_blocked():
    missed = late(BEGAN + 10 * MS, 400 * MS, pid=40, sent=BEGAN + 350 * MS)
    looks = [waiting(at, 11, 12) for at in range(BEGAN, BEGAN + 300 * MS, PERIOD)]
    assert seen(missed, looks=looks).causes == {"migration": 1}
    few = [waiting(at, 11) for at in range(BEGAN, BEGAN + 300 * MS, PERIOD)]
    assert "migration" not in seen(missed, looks=few).causes


def test_a_waiter_whose_blockers_were_not_looked_up_waits_for_whom_its_neighbors_wait():
    look = Look(BEGAN + 50 * MS, 0, (
        Wait(11, (PID,), "RowExclusiveLock", "orders"), Wait(12, (), "RowExclusiveLock", "orders")
    ), MOVERS)  # fmt: skip
    assert seen(late(BEGAN, pid=12), looks=[look]).causes == {"migration": 1}


def test_rows_that_stay_locked_block_without_a_lock_of_a_table():
    found = seen(
        late(BEGAN + 10 * MS),
        runs=(run(("orders", "RowExclusiveLock"), lasted=400 * MS),),
        looks=[waiting(BEGAN + 60 * MS, 11, relation="", mode="ShareLock")],
    )
    assert found.verdict == "blocks"
    assert names(found) == ["requests-blocked", "rows-held"]


def test_a_new_sqlstate_fails_and_one_from_before_does_not():
    new = late(BEGAN + 200 * MS, outcome="failed", sqlstate="42703")
    found = seen(new)
    assert (found.verdict, found.failed) == ("fails", {"42703": 1})
    assert names(found) == ["requests-failed"]
    old = late(SECOND_NS, 2 * MS, outcome="failed", sqlstate="42703")
    assert seen(old, new).verdict == "safe"


def test_a_statement_that_fails_fails():
    found = seen(runs=(run(sqlstate="23505", error="duplicate"),))
    assert (found.verdict, names(found)) == ("fails", ["migration-failed"])


def test_a_script_that_takes_twice_as_long_afterward_slows():
    found = seen(after=[second(n, took=13 * MS) for n in range(6, 12)])
    assert (found.verdict, names(found)) == ("slows", ["slower-median"])


def test_a_script_that_misses_more_afterward_slows():
    after = [second(n, *(late(n * SECOND_NS + k * MS) for k in range(9))) for n in range(6, 12)]
    found = seen(after=after)
    assert (found.verdict, names(found)) == ("slows", ["slower-missed"])
    assert found.causes == {"after": 54}


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"interrupted": True}, "rehearsal-stopped"),
        ({"intervals": [second(1, due=19)]}, "few-requests-rehearsed"),
        ({"locks": {}}, "load-locks-unknown"),
        ({"allowed": 0.0, "intervals": [second(1, late(SECOND_NS))]}, "late-before"),
        (
            {"intervals": [replace(second(1), dispatch=times_of([60 * MS] * 9))]},
            "generator-late-rehearsal",
        ),
    ],
)
def test_a_rehearsal_that_says_nothing_is_unknown(more, name):
    found = seen(**more)
    assert (found.verdict, catalog()[name].severity) == ("unknown", "invalid")
    assert names(found) == [name]


def test_an_outage_fails_from_the_limit_on_and_ends_when_the_p95_is_back():
    outage = Outage(began_ns=BEGAN, length_ns=1500 * MS, acknowledged=9, lost=2)
    slow = [second(n, took=50 * MS) for n in (6, 7)]
    found = seen(outage=outage, after=[*slow, *(second(n) for n in range(8, 12))])
    assert (found.verdict, names(found)) == ("fails", ["outage"])
    assert found.outage == replace(outage, back_ns=3 * SECOND_NS)
    assert seen(outage=replace(outage, length_ns=99 * MS)).verdict == "safe"


def test_samples_tell_how_long_an_unknown_program_held_a_lock():
    def held(first, last):
        spans = range(BEGAN + first * MS, BEGAN + last * MS, PERIOD)
        return [Look(at, 0, (), MOVERS, frozenset({STRONG})) for at in spans]

    looks = [*held(0, 80), *held(900, 1200)]
    found = seen(looks=looks, runs=(run(None, lasted=2000 * MS),), known=False)
    assert found.statements[0].held_ns == pytest.approx(300 * MS, abs=PERIOD)
    assert names(found) == ["lock-held", "commands-not-traced"]


def test_samples_of_a_program_are_those_of_the_command_that_it_executed():
    command = run(("orders", "ShareLock"), lasted=40 * MS)
    whole = run(None, lasted=900 * MS)
    spans = range(BEGAN + 10 * MS, BEGAN + 500 * MS, PERIOD)
    holds = [Look(at, 0, (), MOVERS, frozenset({("orders", "ShareLock")})) for at in spans]
    looks, runs = by_commands([*holds, Look(BEGAN + 600 * MS, 0, (), MOVERS)], [command, whole])
    assert [look.statement for look in looks[:2]] == [0, 0]
    assert {look.statement for look in looks[3:]} == {1}
    assert runs == [replace(command, released_ns=spans[-1]), whole]
    found = seen(looks=looks, runs=runs, known=False)
    first, last = found.statements
    assert first.held_ns == pytest.approx(490 * MS, abs=PERIOD)
    assert (last.held_ns, names(found)) == (0, ["lock-held"])


@pytest.mark.parametrize(
    ("waited", "blocks"), [(90 * MS, False), (100 * MS, True)], ids=["short", "long"]
)
def test_rows_of_a_statement_that_commits_meanwhile_block_as_long_as_somebody_waits(waited, blocks):
    wait = Wait(11, (PID,), "ShareLock", "", BEGAN + 60 * MS - waited)
    found = seen(
        runs=(run(None, lasted=5 * SECOND_NS),), looks=[Look(BEGAN + 60 * MS, 0, (wait,), MOVERS)]
    )
    assert names(found) == ["rows-held"] * blocks


def test_a_standby_that_misses_more_from_the_migration_on_is_blocked():
    found = seen(*(late(BEGAN + n * MS) for n in range(9)), nodes=("standby1",))
    assert (found.verdict, names(found)) == ("blocks", ["standby-late"])
    assert seen(late(BEGAN), nodes=("standby1",)).verdict == "safe"


@pytest.mark.parametrize(
    ("held", "pressure", "doubt"),
    [(250, 0.6, True), (250, 0.4, False), (250, None, False), (350, 0.6, False), (50, 0.6, False)],
)
def test_a_short_block_on_a_busy_machine_is_in_doubt(held, pressure, doubt):
    assert seen(runs=(run(lasted=held * MS),), pressure=pressure).in_doubt is doubt


MODES = {
    "AccessShareLock": "ACCESS SHARE", "RowShareLock": "ROW SHARE",
    "RowExclusiveLock": "ROW EXCLUSIVE", "ShareUpdateExclusiveLock": "SHARE UPDATE EXCLUSIVE",
    "ShareLock": "SHARE", "ShareRowExclusiveLock": "SHARE ROW EXCLUSIVE",
    "ExclusiveLock": "EXCLUSIVE", "AccessExclusiveLock": "ACCESS EXCLUSIVE",
}  # fmt: skip


@given(st.sampled_from([*MODES]), st.sampled_from([*MODES]))
def test_modes_conflict_in_both_directions(one, other):
    assert conflicts(one, [other]) is conflicts(other, [one])


def test_modes_are_written_as_in_the_documentation_of_postgresql():
    assert {mode: shown_mode(mode) for mode in MODES} == MODES
    assert not conflicts("ShareLock", ["ShareLock"])
    assert conflicts("ShareLock", ["RowExclusiveLock"])


def a_pass(verdict, form="asked", behind="alone", schema="s"):
    return Pass(
        form=form, behind=behind, verdict=verdict, statements=(), before=Phase(), during=Phase(),
        schema=schema,
    )  # fmt: skip


@given(st.permutations(VERDICTS))
def test_the_verdict_is_the_worst_of_the_passes_as_asked(verdicts):
    passes = (a_pass(verdicts[0]), a_pass(verdicts[1], behind="open"), a_pass("fails", "safer"))
    found = Rehearsal(id="1", name="m.sql", sha256="", open_s=3, passes=passes)
    assert found.verdict == min(verdicts[:2], key=VERDICTS.index)
    assert found.decisive in passes[:2]


@pytest.mark.parametrize(
    ("safer", "proved"),
    [
        ([("safe", "alone", "s"), ("safe", "open", "s")], True),
        ([("safe", "alone", "other"), ("safe", "open", "other")], False),
        ([("safe", "alone", "s"), ("blocks", "open", "s")], False),
        ([("safe", "alone", "s")], False),
        ([], False),
    ],
)
def test_a_safer_form_is_safe_both_ways_and_makes_the_same_schema(safer, proved):
    passes = [a_pass("blocks"), *(a_pass(v, "safer", b, s) for v, b, s in safer)]
    found = Rehearsal(id="1", name="m.sql", sha256="", open_s=3, passes=tuple(passes))
    assert found.proved is proved
