"""What a trial measured at all: something that succeeded, a server that answered.

And what a late generator means for it, beside what its own figures say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import validity
from pgpaces.analysis.capacity.curve import CapacityGoal
from pgpaces.analysis.capacity.search import CapacitySearch
from pgpaces.analysis.digest import Digest
from pgpaces.analysis.sequential import Tell
from pgpaces.analysis.summary import Summary, summarize, volume_of
from pgpaces.answers.run import headline, section
from pgpaces.answers.sweep import screen
from pgpaces.answers.sweep.page import gather
from pgpaces.answers.sweep.report import report as report_of
from pgpaces.core.findings import Finding, finding
from pgpaces.core.record import Interval, Tally
from pgpaces.core.series import Sample
from pgpaces.spec.design import Cell
from pgpaces.spec.result import Counts, Trial
from tests.unit.experiments import WORKERS, design, experiment, made
from tests.unit.reports import ABOUT
from tests.unit.sensors import collect
from tests.unit.trials import SECOND_NS, times, trial

MS = 1_000_000
MISSING = ("42P01", 'relation "nosuch" does not exist')
PLAN = {"limit_ns": 500 * MS, "policy": "run", "model": "open", "clients": 2}


def interval(second: int, tally: Tally | None = None, **more: Any) -> Interval:
    found = () if tally is None else (tally,)
    values = {"tallies": found, "ended_ns": (second + 1) * SECOND_NS} | more
    return Interval(second, **values)


def answered(
    second: int,
    latencies_ms: list[float],
    lag_ms: float = 0.0,
    service_ms: float | None = None,
    idle: int = 40,
    **more: Any,
) -> Interval:
    """A second in which these were answered within 500 ms or after it; more: of its tally.

    service_ms: of each; None: all but the lag. idle: how many found a client.
    """
    late = sum(ms > 500 for ms in latencies_ms)
    counts = {"on_time": len(latencies_ms) - late, "late": late} | more
    counts["due"] = sum(v if isinstance(v, int) else sum(v.values()) for v in counts.values())
    service = times(service_ms or max(1.0, ms - lag_ms) for ms in latencies_ms)
    tally = Tally(second, 0, latency=times(latencies_ms), service=service, **counts)
    dispatch = times([lag_ms] * idle)
    return interval(second, tally, dispatch=dispatch, in_flight_ns=service.sum_ns)


def of(*intervals: Interval, **changes: Any) -> Trial:
    made = {"intervals": intervals, "plan": PLAN, "measured_ns": len(intervals) * SECOND_NS}
    return trial([], **(made | changes))


def found(run: Trial) -> list[Finding]:
    """What is worth more than knowing."""
    return [each for each in summarize(run).validity.findings if each.severity != "nothing"]


LATE_A_LITTLE, LATE = 6.0, 22.0


def alike(ms: list[float], lag_ms: float, **more: Any) -> list[Interval]:
    """Ten such seconds."""
    return [answered(n, ms, lag_ms, **more) for n in range(10)]


NEAR = [510.0] * 4 + [100.0] * 36
# Seconds, what is made of the lateness, and how many of the missed it explains.
WEIGHED: dict[str, tuple[list[Interval], str, int, int]] = {
    "hardly late, and most missed by far":
        (alike([700.0] * 66 + [501.0] + [100.0] * 20, 5.1), "warning", 10, 670),
    "service alone took longer than the limit":
        (alike([720.0] * 5 + [100.0] * 5, LATE), "warning", 0, 50),
    "unfinished on a frozen server":
        ([answered(0, [10.0] * 5, LATE), answered(1, [], LATE, unfinished=998)], "warning", 0, 998),
    "all on time in spite of it, with no CPU used": (alike([100.0] * 40, LATE), "warning", 0, 0),
    "failures": (alike([10.0] * 5, LATE, failed={"40001": 5}), "warning", 0, 50),
    "missed by less than it was late": (alike(NEAR, LATE), "invalid", 40, 40),
    "within what may be missed either way":
        (alike([510.0] + [100.0] * 39, LATE), "warning", 10, 10),
    "beyond what may be missed either way":
        (alike([900.0] * 20 + [510.0] * 4 + [100.0] * 16, LATE), "warning", 40, 240),
    "skipped by far more than there was time for":
        (alike([100.0] * 10, LATE_A_LITTLE, skipped=30), "warning", 13, 300),
    "a queue for two clients that it held up":
        (alike([3000.0] * 40, LATE, service_ms=30.0, idle=4), "invalid", 400, 400),
    "a queue for two clients that the server holds up anyhow":
        (alike([3000.0] * 40, LATE, service_ms=160.0, idle=4), "warning", 12, 400),
    "a queue that it did not hold up":
        (alike([3000.0] * 40, 5.1, service_ms=300.0, idle=4), "warning", 0, 400),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHED)
def test_lateness_is_weighed_against_what_it_explains(name):
    run, severity, explained, missed = WEIGHED[name]
    expected = "generator-late-decides" if severity == "invalid" else "generator-late"
    [late] = [each for each in found(of(*run)) if each.name == expected]
    checked = summarize(of(*run)).generator
    assert (round(checked.explained), checked.missed) == (explained, missed)
    assert (late.values["explains"], late.values["missed"]) == (checked.explained, missed)
    assert checked.limited == (severity == "invalid") == (late.severity == "invalid")


@pytest.mark.parametrize(
    ("missed_max", "limited"), [(None, True), (0.05, True), (0.2, False), (0.12, False)]
)
def test_what_may_be_missed_is_what_the_experiment_allows(missed_max, limited):
    plan = PLAN | {"missed": missed_max}
    assert summarize(of(*alike(NEAR, LATE), plan=plan)).generator.limited is limited


def test_without_a_limit_a_late_generator_decides_nothing():
    plan = {"limit_ns": None, "policy": "run", "model": "open"}
    run = of(*alike([100.0] * 9, LATE, failed={"40001": 1}), plan=plan)
    assert [each.name for each in found(run)] == ["generator-late"]
    assert summarize(run).validity.state == "valid"


@given(
    near=st.integers(0, 40),
    far=st.integers(0, 40),
    lost=st.integers(0, 40),
    lag_ms=st.floats(5.1, 90.0),
)
def test_what_it_explains_is_no_more_than_what_was_near(near, far, lost, lag_ms):
    """Near: late by less than twice the lag. A verdict that the rest alone gives is not voided."""
    ms = [100.0] * 60 + [500 + lag_ms] * near + [900.0] * far
    run = of(answered(0, ms, lag_ms, idle=len(ms), failed={"40001": lost}))
    checked = summarize(run).generator
    assert checked.excused == near
    assert checked.missed == near + far + lost
    due = 60 + checked.missed
    if (far + lost) / due > 0.2 or checked.missed / due <= 0.05:
        assert not checked.limited


def summary(counts: Counts) -> Summary:
    names = ("on_time", "late", "skipped", "unfinished")
    values = {name: getattr(counts, name) for name in names}
    failed = {MISSING[0]: counts.failed} if counts.failed else {}
    tally = Tally(0, 0, due=counts.due, failed=failed, **values)
    return summarize(of(interval(0, tally, messages=(("40001", "later"), MISSING))))


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (Counts(1302, failed=1302), "all-failed"),
        (Counts(818, unfinished=818), "no-answer"),
        (Counts(9, skipped=5, unfinished=4), "no-answer"),
        (Counts(9, skipped=9), "all-skipped"),
        (Counts(9, failed=1, skipped=8), "none-succeeded"),
        (Counts(), "nothing-due"),
        (Counts(9, failed=8, late=1), ""),
        (Counts(9, on_time=1, unfinished=8), ""),
    ],
)  # fmt: skip
def test_a_run_of_which_nothing_succeeded_is_no_measurement(counts, said):
    checked = summary(counts)
    reason = validity.no_measurement(checked)
    assert (reason is not None) == (checked.validity.state == "invalid") == bool(said)
    shown = headline(of(plan=PLAN), checked)
    told = reason is not None and (shown.word, shown.text) == ("FAIL", reason.sentence)
    assert told == bool(said)
    facts = [name for name, _ in section(of(plan=PLAN), checked).facts]
    assert ("latency" in facts) != bool(said)
    if reason:
        assert reason.name == said
        assert checked.validity.reasons == (str(reason),)
        assert checked.validity.warnings == ()


@pytest.mark.parametrize(
    ("late", "limited", "command"),
    [
        (0, True, "pgpaces capacity --like T"),
        (12, True, "pgpaces why T"),
        (4, True, "pgpaces run --like T -T 40s"),
        (0, False, "pgpaces sweep --like T --clients 2,4,8"),
        (40, True, "pgpaces show T"),
    ],
)
def test_the_next_command_follows_from_the_verdict(late, limited, command):
    intervals = [answered(n, [10.0] * 40) for n in range(9)]
    intervals += [answered(9, [10.0] * (40 - late) + [600.0] * late)]
    if late == 40:
        intervals = [answered(0, [], failed={"22012": 40})]
    run = of(*intervals, plan=PLAN if limited else PLAN | {"limit_ns": None, "model": "closed"})
    assert section(run, summarize(run)).next[0].command == command


def test_no_queries_a_day_are_told_where_nothing_was_on_time():
    script = {"name": "a", "weight": 1, "commands": [], "queries": 3}
    late, mixed = (
        of(*(answered(n, ms) for n in range(4)), workload={"scripts": [script]})
        for ms in ([700.0] * 10, [700.0] * 9 + [10.0])
    )
    assert volume_of(late, summarize(late)) is None
    assert volume_of(mixed, summarize(mixed)) is not None


def test_a_script_that_never_succeeds_is_told_beside_those_that_do():
    scripts = [{"name": name, "weight": 1, "commands": []} for name in ("good", "bad")]
    run = of(
        interval(0, Tally(0, 0, due=9, on_time=9)),
        interval(1, Tally(1, 1, due=9, failed={MISSING[0]: 9}), messages=(MISSING,)),
        workload={"scripts": scripts},
    )
    [failed] = found(run)
    assert (failed.name, failed.about) == ("script-failed", "bad")
    assert MISSING[1] in failed.values["why"]


def test_a_background_workload_that_never_succeeds_makes_its_trial_invalid():
    scripts = [{"name": name, "weight": 1, "commands": []} for name in ("own", "other")]
    components = [
        {"of": of_, "scripts": [name], "clients": 1, "model": "open", "limit_ns": None}
        for of_, name in (("", "own"), ("reporting", "other"))
    ]
    run = of(
        interval(0, Tally(0, 0, due=9, on_time=9)),
        interval(1, Tally(1, 1, due=9, failed={MISSING[0]: 9}), messages=(MISSING,)),
        workload={"scripts": scripts},
        plan=PLAN | {"components": components},
    )
    assert validity.no_measurement(summarize(run)) is None
    [failed] = found(run)
    assert (failed.name, failed.about) == ("background-failed", "reporting")
    assert failed.severity == "invalid"


def test_of_several_trials_one_that_measured_something_is_enough():
    counted = (Counts(9, failed=9), Counts(9, on_time=9))
    none, some = (Digest(of(), summary(counts)) for counts in counted)
    assert validity.no_trial([]) is None
    assert validity.no_trial([none, some]) is None
    assert validity.no_trial([none]) == validity.no_measurement(none.summary)
    cut = replace(none, trial=replace(none.trial, state="interrupted"))
    assert validity.no_trial([cut]) is None
    assert validity.no_trial([none, none]) == validity.no_trial([none])


def failing(digest: Digest) -> Digest:
    """The same trial if nothing of it had succeeded."""
    none = summary(Counts(9, failed=9))
    changed = {name: getattr(none, name) for name in ("counts", "failures", "messages", "validity")}
    return replace(digest, summary=replace(digest.summary, **changed))


def levels(digest: Digest) -> Mapping[str, str]:
    assert digest.trial.place is not None
    return digest.trial.place.levels


@pytest.mark.parametrize("workers", [("0",), ("0", "2")])
def test_cells_of_which_nothing_succeeded_failed_with_their_first_error(workers):
    plan = design(levels={"clients": ("1", "8"), WORKERS: workers}, trials=1)
    digests = [made(slot, 20) for slot in plan.asks()]
    bad = [failing(d) if levels(d).get(WORKERS, "0") == "0" else d for d in digests]
    page = gather(bad, ABOUT, experiment(design=plan))
    answers = report_of(page).top.sentences
    error = "every transaction failed (9): 42P01: relation"
    assert any(error in answer for answer in answers)
    assert (report_of(page).top.headline.word == "FAIL") == (len(workers) == 1)


def test_an_experiment_fails_if_no_transaction_of_a_cell_succeeded():
    plan = design(levels={"clients": ("1", "2", "8")}, trials=2)
    good = [made(slot, 20) for slot in plan.asks()]
    of_8 = [failing(d) if levels(d)["clients"] == "8" else d for d in good]
    once = next(n for n, (before, now) in enumerate(zip(good, of_8, strict=True)) if before != now)

    def why(digests: list[Digest], **changes: Any) -> str:
        page = replace(gather(digests, ABOUT, experiment(design=plan)), **changes)
        return (screen.unmeasured(page) or ("",))[0]

    error = "every transaction failed (9): 42P01"
    assert why(of_8).startswith(f"no measurement in 1 of 3 cells (clients=8): {error}")
    assert why([failing(d) for d in good]).startswith("every transaction failed (9)")
    assert why([*good[:once], of_8[once], *good[once + 1 :]]) == "", "its other trial measured"
    assert why(of_8, searched=True) == "", "a search goes on to other loads"


@pytest.mark.parametrize(
    ("states", "messages", "said"),
    [
        ((), {"40001": "later"}, ""),
        (("42P01",), {"40001": "later", "42P01": "no\n  such"}, "42P01: no such"),
        (("40001", "42P01"), {"42P01": "none", "40001": "later"}, "42P01: none"),
        (("exit 1",), {}, "exit 1"),
        (("ValueError",), {"ValueError": "ValueError: no luck"}, "ValueError: no luck"),
        (("failed",), {}, ""),
    ],
)
def test_the_first_error_is_the_one_that_was_seen_first(states, messages, said):
    assert validity.first_error(states, messages) == said


def test_a_search_ends_where_its_first_trials_measured_nothing():
    plan = design(levels={"clients": ("1",)}, trials=3)
    good = [made(slot, 20) for slot in plan.asks()]
    cell = Cell(())

    def told(*digests: Digest) -> list[Tell]:
        levels = (("rate", "50/s"), ("role", "short"))
        return [Tell(Cell(levels), n, d, "", 1) for n, d in enumerate(digests, 1)]

    search = CapacitySearch(CapacityGoal(0.05, 50, 1, 1000), cells=(cell,))
    bad = [failing(digest) for digest in good]
    assert search.ask(told(bad[0])) is not None
    assert search.ask(told(*bad[:2])) is None
    assert search.given_up(told(*bad[:2])).startswith("every transaction failed (9)")
    assert search.ask(told(good[0], *bad)) is not None
    assert not search.given_up(told(good[0], *bad))


def silent(first: int, last: int, **more: Any) -> list[Interval]:
    """Seconds in which all four clients wait."""
    return [interval(n, in_flight_ns=4 * SECOND_NS, **more) for n in range(first, last)]


def alive(*seconds: int) -> tuple[Sample, ...]:
    return tuple(Sample(n, "sessions", "connected", 5.0) for n in seconds)


GOOD = [answered(n, [10.0] * 20) for n in range(10)]
LOST = replace(interval(10, Tally(9, 0, due=600, unfinished=600)), in_flight_ns=4 * SECOND_NS)


@pytest.mark.parametrize(
    ("intervals", "samples", "expected"),
    [
        pytest.param(
            [*GOOD, LOST, *silent(11, 25)], alive(*range(10)),
            finding("server-gone-silent", silent_s=15.0, unfinished=600), id="a black hole",
        ),
        pytest.param(
            [*GOOD, LOST, *silent(11, 25)], (),
            finding("server-gone-silent", silent_s=15.0, unfinished=600),
            id="a black hole that no sensor looked into",
        ),
        pytest.param(
            [*GOOD, LOST, *silent(11, 25)], alive(*range(25)),
            finding("unanswered", count=600, waited_s=16.0, usual_s=0.01),
            id="a lock until the end",
        ),
        pytest.param([*GOOD, LOST, *silent(11, 13)], (), None, id="3 s are none"),
        pytest.param(
            [*GOOD, interval(10, Tally(9, 0, due=9, unfinished=9)),
             *[interval(n) for n in range(11, 25)]],
            (), finding("unanswered", count=9, waited_s=16.0, usual_s=0.01),
            id="nothing in flight: no client, which is an outage of another kind",
        ),
        pytest.param(
            [*silent(0, 29), answered(29, [30_000.0]), *silent(30, 64),
             interval(64, Tally(30, 0, due=1, unfinished=1), in_flight_ns=SECOND_NS)],
            (), None, id="statements of 30 s",
        ),
        pytest.param(
            [*GOOD, *silent(10, 18), answered(18, [8000.0] * 80), *GOOD[:1]],
            alive(*range(10), 17, 18, 19),
            finding("server-silent", silent_s=8.0, start_s=10.0), id="frozen and thawed",
        ),
        pytest.param(
            [*GOOD, *silent(10, 18), answered(18, [8000.0] * 80)], alive(*range(19)), None,
            id="a lock that was given up",
        ),
        pytest.param(
            [*GOOD, *silent(10, 18), answered(18, [8000.0] * 80)], (), None,
            id="late answers that no sensor looked at",
        ),
    ],
)  # fmt: skip
def test_a_server_that_answers_nobody_is_an_outage(intervals, samples, expected):
    told = silences(of(*intervals, samples=collect(samples)))
    assert [*map(str, told)] == ([str(expected)] if expected else [])


def silences(run: Trial) -> list[Finding]:
    names = {"server-gone-silent", "server-silent", "unanswered"}
    return [each for each in found(run) if each.name in names]


def stuck(count: int, due_s: int, behind: list[Interval]) -> list[Interval]:
    """Before seconds of which all is answered, one in which something was due that never is."""
    lost = interval(due_s, Tally(due_s, 0, due=count, unfinished=count), in_flight_ns=SECOND_NS)
    return [*[answered(n, [10.0] * 20) for n in range(due_s)], lost, *behind]


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        pytest.param(
            stuck(1, 10, [answered(n, [10.0] * 20) for n in range(11, 40)]),
            {"count": 1, "waited_s": 30.0, "usual_s": 0.01},
            id="one of several clients",
        ),
        pytest.param(
            stuck(3, 30, [answered(n, [10.0] * 20) for n in range(31, 40)]),
            {"count": 3, "waited_s": 10.0, "usual_s": 0.01},
            id="three at one moment",
        ),
        pytest.param(
            stuck(1, 36, [answered(n, [10.0] * 20) for n in range(37, 40)]), None, id="for 4 s",
        ),
        pytest.param(
            stuck(1, 10, [answered(n, [11_000.0] * 20) for n in range(11, 40)]), None,
            id="others take as long",
        ),
    ],
)  # fmt: skip
def test_a_client_that_gets_no_answer_while_others_do_is_told(intervals, expected):
    told = silences(of(*intervals))
    assert [each.name for each in told] == (["unanswered"] if expected else [])
    for each in told:
        assert each.values == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("node", "expected"),
    [("primary", "unanswered"), ("standby1", "server-gone-silent")],
)
def test_whether_a_standby_answers_is_not_asked_of_its_primary(node, expected):
    components = [{"of": "", "node": node, "scripts": ["a"], "clients": 4, "model": "open"}]
    more = tuple(Sample(n, "standby1/sessions", "connected", 5.0) for n in range(9))
    run = of(
        *GOOD, LOST, *silent(11, 25),
        samples=collect([*alive(*range(25)), *more]), plan=PLAN | {"components": components},
    )  # fmt: skip
    assert [each.name for each in silences(run)] == [expected]


def test_one_that_never_answered_is_told_once():
    run = of(*silent(0, 9), interval(9, Tally(0, 0, due=9, unfinished=9), in_flight_ns=SECOND_NS))
    assert [each.name for each in found(run)] == ["no-answer"]


def ended_by_errors(aborted: int, clients: int = 4, due: int = 6, **changes: Any) -> Trial:
    """A run of 4 s that a failed statement ended for some of its clients."""
    plan = {**PLAN, "clients": clients, "duration_ns": 4 * SECOND_NS}
    plan |= {"continue_on_error": False, "exit_on_abort": False}
    tally = Tally(0, 0, due=due, on_time=2, failed={"22012": due - 2}) if due else None
    run = of(interval(0, tally, ended_ns=0), plan=plan, measured_ns=0, **changes)
    error = "client 3 aborted: ERROR:  division by zero"
    return replace(run, findings=tuple(validity.given_up(aborted, clients, error=error)))


def test_clients_that_all_gave_up_are_why_a_run_is_not_valid():
    every, some = (ended_by_errors(aborted) for aborted in (4, 3))
    error = "client 3 aborted: ERROR: division by zero"
    assert found(every) == [finding("all-clients-gave-up", clients=4, error=error)]
    assert section(every, summarize(every)).next[0].command == "pgpaces show T"
    assert finding("clients-gave-up", aborted=3, clients=4, error=error) in found(some)
    assert not list(validity.given_up(0, 4, error=""))


def test_clients_that_all_gave_up_in_the_warm_up_are_no_lack_of_time():
    run = ended_by_errors(1, clients=1, due=0)
    answer, failure = section(run, summarize(run)), validity.no_measurement(summarize(run))
    assert failure is not None
    assert failure.name == "all-clients-gave-up"
    assert answer.headline is not None
    assert (answer.headline.word, answer.headline.text) == ("FAIL", failure.sentence)
    assert (answer.findings, answer.next[0].command) == ((), "pgpaces show T")


def test_an_error_that_ended_a_run_is_shown_before_more_is_asked():
    run = ended_by_errors(1, state="failed", error="client 1 gave up: a statement failed")
    assert section(run, summarize(run)).next[0].command == "pgpaces show T"
