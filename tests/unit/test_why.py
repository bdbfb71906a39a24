"""Why late: a cause is named by its sign, nothing is named without one, words are careful."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.analysis import goal
from pgpaces.analysis.arrays import Numbers
from pgpaces.analysis.attribution.causes import (
    SHARE_MIN,
    attribute,
    chance,
    coinciding_share,
    lift_of,
)
from pgpaces.analysis.attribution.timeline import Timeline, gaps
from pgpaces.analysis.summary import Summary, summarize
from pgpaces.core import causes
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.spec.result import Trial
from tests.unit.sensors import collect, samples_of
from tests.unit.sure import sure
from tests.unit.trials import like

from .late_stories import BAD, CPU, SECONDS, STORIES, Story, always, by, planned, scan, waiting
from .seeds import seeds
from .trials import SECOND_NS, changed, times, trial

# By these causes alone a trial can be late from its start to its end and be told why.
ALWAYS = [
    "lock", "contention", "quota", "disk", "standby", "latch", "plan", "connections", "network",
    "generator", "cpu", "failed",
]  # fmt: skip


@pytest.mark.parametrize("key", STORIES)
def test_each_cause_is_named_first_where_it_comes_and_goes(key):
    found = attribute(*STORIES[key].told())
    assert found.cause is not None, found.causes
    assert found.cause.key == key
    assert found.cause.share.value >= 0.8
    assert found.cause.evidence
    assert found.unexplained <= 0.2


@pytest.mark.parametrize("key", ALWAYS)
def test_a_cause_that_takes_their_time_is_named_also_where_it_never_ends(key):
    story = STORIES[key]
    if key == "lock":
        [pair] = story.blocked
        story = replace(story, blocked=(replace(pair, first_s=0, last_s=SECONDS),))
    assert first(always(story).told()) == key


def first(told: tuple[Trial, Summary]) -> str:
    """The cause that is named first; nothing if none is."""
    found = attribute(*told).cause
    return found.key if found else ""


def named(told: tuple[Trial, Summary]) -> list[str]:
    return [card.key for card in attribute(*told).causes if card.named]


def seen_again(trial: Trial, **changes: Any) -> tuple[Trial, Summary]:
    """A trial with other values, and its summary."""
    made = changed(trial, **changes)
    return made, summarize(made)


CLIENTS, QUOTA = STORIES["connections"], STORIES["quota"]
SYNC = waiting("IO", "WalSync")
# A limit at what a transaction usually takes: their time is the disk's, late or not.
USUAL = Story(
    bad_seconds=frozenset(range(SECONDS)), late=15, bad_ms=60.0, good_ms=40.0, flying=1.0,
    sessions={("load", "IO", "WalSync"): 1}, usual={("load", "IO", "WalSync"): 1},
)  # fmt: skip
# Short transactions that keep all clients busy with them are not why others wait.
BUSY = Story(
    due=400, late=400, good_ms=19.0, bad_ms=500.0, lag=0.96, sessions=SYNC, usual=SYNC
)  # fmt: skip
# A step in the middle: an interval says little of it, the server's own plan says enough.
STEP = Story(
    bad_seconds=frozenset(range(9, SECONDS)), late=39, bad={("tuples", "returned"): 4e6},
    sessions={CPU: 8, ("others", "CPU", ""): 1},
)  # fmt: skip
# Of 10 ms as of 400 ms most is on the way: it is forty times as long.
LONG_WAY = Story(sessions={}, usual={}, good_ms=10.0)
# What happened, and what is named, in this order.
TOLD: dict[str, tuple[Story, list[str]]] = {
    "no sign": (Story(sessions={CPU: 2}, flying=2.0), []),
    "once, and once beside": (replace(STORIES["autovacuum"], bad_seconds=frozenset((7,))), []),
    "what most saw that were on time": (USUAL, []),
    "what most saw that were late": (replace(USUAL, late=25), ["disk"]),
    "the backlog of a lock": (replace(STORIES["lock"], lag=0.9), ["lock"]),
    "a row whose holder waits for the disk": (
        Story(sessions={("load", "Lock", "tuple"): 7, ("load", "IO", "WalSync"): 1}), ["disk"]
    ),
    "a quota in which looks hang": (
        replace(QUOTA, hung=frozenset((*range(82, 89), *range(95, 102)))), ["quota"]
    ),
    "skipped": (replace(CLIENTS, skipped=True, late=30), ["connections"]),
    # Sleeps of 30 to 49 ms and a limit of 50: sent at once, each would have been on time.
    "too few clients, 0.9 s": (replace(CLIENTS, bad_ms=900.0, lag=0.965), ["connections"]),
    "too few clients, 1.4 s": (replace(CLIENTS, bad_ms=1400.0, lag=0.965), ["connections"]),
    "always too few clients": (
        always(replace(CLIENTS, bad_ms=900.0, lag=0.965)), ["connections"]
    ),
    "always too few clients, 1.4 s": (
        always(replace(CLIENTS, bad_ms=1400.0, lag=0.965)), ["connections"]
    ),
    "always busy clients": (always(BUSY), ["connections", "disk"]),
    "late anyway": (replace(CLIENTS, bad_ms=900.0, lag=0.9), []),
    "busy clients": (BUSY, ["connections", "disk"]),
    # A sample that hung for half a second, in lives of four.
    "a short stop, 40/s": (
        always(replace(CLIENTS, bad_ms=4000.0, lag=0.99, hung=frozenset(range(40, 46)))),
        ["connections"],
    ),
    "a short stop, 400/s": (
        always(
            replace(
                CLIENTS, due=400, late=400, bad_ms=4000.0, lag=0.99, hung=frozenset(range(40, 46))
            )
        ),
        ["connections"],
    ),
    "autovacuum beside all the time": (
        always(replace(CLIENTS, bad={("io", "autovacuum_read"): 1e7})), ["connections"]
    ),
    "rows that others may read, beside a CPU that is used up": (
        replace(
            STORIES["cpu"], bad_seconds=frozenset(range(9, SECONDS)),
            bad={("host", "cpu_busy"): 99.0, ("tuples", "returned"): 4e6},
        ),
        ["cpu"],
    ),
    "a step without a plan": (STEP, []),
    "a step with one": (replace(STEP, explained=(planned(),)), ["plan"]),
    "a longer way": (LONG_WAY, ["network"]),
    "a server that works": (replace(LONG_WAY, sessions={CPU: 4}, flying=8.0), []),
    "a scan that keeps what it reads": (
        Story(explained=(scan(removed=500_000, kept=400_000),), sessions={CPU: 2}, flying=2.0), []
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_has_a_sign_is_named_and_nothing_else(name):
    story, causes = TOLD[name]
    assert named(story.told()) == causes
    found = attribute(*story.told())
    assert first(story.told()) == (causes[0] if causes else "")
    assert found.unexplained <= 0.2 or not causes or name.startswith("a short stop")
    assert found.unexplained == 1.0 or name != "no sign"


def test_a_scan_that_is_only_planned_is_named_with_its_place():
    found = attribute(*replace(STEP, explained=(planned(),)).told())
    [scan] = found.cause.evidence
    assert (scan.name, scan.values["filter"]) == ("scan-expected", "(id = 1)")


def test_every_sign_has_a_story_and_without_sensors_none_is_seen():
    assert set(STORIES) == set(causes.catalog().causes)
    found = attribute(*seen_again(Story().told()[0], samples=(), observed=()))
    assert len(found.unread) == 3


@pytest.mark.parametrize("key", ["steal", "autovacuum", "others"])
def test_what_is_only_beside_is_not_named_where_it_never_ends(key):
    found = attribute(*always(STORIES[key]).told())
    assert key not in [card.key for card in found.causes if card.named]


def test_nothing_is_said_of_few():
    story = Story(bad_seconds=frozenset((5,)), late=9, sessions=waiting("Lock", "tuple"))
    assert attribute(*story.told()).outcome == "too-few-missed"
    held = Story(bad_seconds=frozenset())
    assert attribute(*held.told()).outcome == "nothing-missed"
    assert attribute(*held.told()).causes == ()


def test_a_trial_that_ended_in_its_warm_up_missed_nothing():
    early = Interval(-8, tallies=(Tally(-8, 0, due=4, late=4),))
    shown = trial([], intervals=(early,), state="interrupted", measured_ns=0)
    assert attribute(shown, summarize(shown)).outcome == "nothing-missed"


@pytest.mark.parametrize("sampled", [False, True])
def test_a_server_that_stands_still_until_the_end_is_named_as_one_that_goes_on(sampled):
    """A lock, by contrast, leaves the sensor its answers."""
    hung = frozenset() if sampled else frozenset(range(100, 10 * SECONDS))
    last = frozenset(range(10, SECONDS))
    made, _ = Story(bad_seconds=last, usual={}, sessions={}, hung=hung).told()
    intervals = (*made.intervals[:10], *(unfinished(each) for each in made.intervals[10:]))
    found = attribute(*seen_again(made, intervals=intervals))
    assert (found.cause is not None and found.cause.key == "freeze") is not sampled


@pytest.mark.parametrize("waited_ms", [0.05, 1400.0])
def test_a_stop_of_the_generator_is_not_one_of_the_server(waited_ms):
    """It is back in second 10, and sent only one of 40 late itself: the others waited for that."""
    made, _ = STORIES["freeze"].told()
    intervals = [
        replace(each, dispatch=times([0.05] * 39 + [waited_ms])) if each.second == 10 else each
        for each in made.intervals
    ]
    found = attribute(*seen_again(made, intervals=tuple(intervals)))
    still = waited_ms > 1000
    assert sure(found.cause).key == ("generator" if still else "freeze")
    assert [card.key for card in found.causes if card.key in ("generator", "freeze")] == [
        found.cause.key
    ]
    assert (found.cause.evidence[0].name == "generator-paused") == still


@pytest.mark.parametrize(("busy", "key"), [(20.0, "freeze"), (float("nan"), "generator")])
def test_a_stop_in_which_the_generators_machine_was_not_read_either_is_the_generators(busy, key):
    """Also of users who wait for it, who are never sent late."""
    host = ("host", "cpu_busy")
    story = replace(STORIES["freeze"], bad={host: busy}, good={host: 20.0})
    found = attribute(*replace(story, plan={"model": "closed"}).told())
    assert found.cause is not None
    assert found.cause.key == key
    assert found.cause.share.value >= 0.8


@pytest.mark.parametrize(
    ("story", "most"),
    [
        (replace(STORIES["failed"], dispatch_ms=3.0), 0),
        (replace(STORIES["generator"], dispatch_ms=40.0, bad_ms=90.0), 160),
        (Story(dispatch_ms=3.0, bad_ms=53.0), 160),
        (Story(dispatch_ms=3.0, bad_ms=60.0), 0),
    ],
)
def test_the_share_of_a_late_generator_is_at_most_what_its_check_says(story, most):
    made, summary = story.told()
    assert summary.generator.late
    assert summary.generator.explained == pytest.approx(most, abs=10)
    found = attribute(made, summary)
    shares = [card.share.value for card in found.causes if card.key == "generator"]
    assert sum(shares) * found.missed <= summary.generator.explained + 1e-6
    assert most or not shares


def test_of_a_quota_that_ran_out_the_next_second_may_tell():
    """A look hangs as the quota begins; its counter moves with the second behind."""
    trial, summary = replace(STORIES["quota"], hung=frozenset(range(85, 95)), bad_ms=2500.0).told()
    late = [
        replace(s, second=s.second + 1) if s.name == "cgroup_throttled_share" else s
        for s in samples_of(trial.samples)
    ]
    found = attribute(replace(trial, samples=collect(late)), summary)
    assert "freeze" not in [card.key for card in found.causes]
    assert sure(found.cause).key == "quota"


@pytest.mark.parametrize("key", ["connections", "lock"])
@pytest.mark.parametrize("first", [0, 4])
def test_what_was_never_sent_waited_for_a_client_but_what_hangs_in_the_server_did_not(key, first):
    """Of all that is unfinished no client has sent more than one each; a lock keeps these."""
    story = replace(STORIES[key], bad_seconds=frozenset(range(first, SECONDS)))
    if key == "lock":
        story = replace(story, blocked=(replace(story.blocked[0], first_s=first, last_s=SECONDS),))
    else:
        story = replace(story, due=400, late=400, good_ms=19.0, bad_ms=500.0, lag=0.96)
    whole, _ = story.told()
    since = first if key == "lock" else first + 4
    ended = whole.intervals[:since]
    intervals = (*ended, *(unfinished(each) for each in whole.intervals[since:]))
    answer = attribute(*seen_again(whole, intervals=intervals))
    assert [card.key for card in answer.causes if card.named] == [key]
    assert answer.unexplained < 0.2
    blind = attribute(*seen_again(whole, intervals=intervals, observed=()))
    named = [card.key for card in blind.causes if card.named]
    assert named == ([key] if key == "connections" else [])


@pytest.mark.parametrize("monitored", [True, False])
def test_an_outage_for_good_is_no_lack_of_clients(*, monitored):
    whole, _ = Story(
        bad_seconds=frozenset(range(10, SECONDS)), hung=frozenset(range(100, 10 * SECONDS))
    ).told()
    intervals = tuple(
        replace(unfinished(each), all_down_ns=SECOND_NS) if each.second >= 10 else each
        for each in whole.intervals
    )
    answer = attribute(
        *seen_again(whole, intervals=intervals, observed=whole.observed if monitored else ())
    )
    assert [card.key for card in answer.causes if card.named] == ["freeze"]
    assert answer.causes[0].evidence[0] == finding("no-client-connected", seconds=10.0)
    assert len(answer.causes[0].evidence) == 1 + monitored
    assert answer.unexplained == 0.0


def unfinished(interval: Interval) -> Interval:
    """A second of which nothing ended."""
    [tally] = interval.tallies
    none = replace(tally, late=0, latency=times([]), lag=times([]), service=times([]))
    return replace(interval, tallies=(replace(none, unfinished=tally.late, due=tally.late),))


@pytest.mark.parametrize("host", ["/run/postgresql", "db.example"])
@pytest.mark.parametrize("flying", [60.0, 63.0, 66.0, 70.0])
def test_what_nine_of_ten_sessions_wait_for_stands_before_what_one_in_sixty_does(host, flying):
    """However full the machine is, and however many are just between two statements."""
    sessions = {("load", "Lock", "tuple"): 54, ("load", "IO", "WalSync"): 5, CPU: 1}
    story = Story(
        due=600, late=600, good_ms=1.0,
        sessions=sessions, flying=flying, blocked=by("load", "active"),  # type: ignore[arg-type]
        bad={("host", "cpu_busy"): 99.0}, good={("host", "cpu_busy"): 70.0},
    )  # fmt: skip
    for one in (story, always(story)):
        trial, summary = one.told()
        found = attribute(changed(trial, server={"target": {"host": host}}), summary)
        assert sure(found.cause).key == "contention"


@pytest.mark.parametrize("command", ["\\sleep 390 ms", "\\set a 1"])
def test_the_pause_of_a_script_is_not_the_way_to_the_server(command):
    whole, _ = Story(sessions={}, usual={}, good_ms=10.0).told()
    intervals = tuple(
        replace(each, statements=(StatementTally(0, 0, times=times([10.0] * 40)),))
        for each in whole.intervals
    )
    commands = [[1, "SELECT 1", True], [2, command, False]]
    scripts = [{"name": "a", "weight": 1, "commands": commands, "text": ""}]
    workload = {"name": "scripts", "scale": 1, "scripts": scripts}
    causes = attribute(*seen_again(whole, intervals=intervals, workload=workload)).causes
    assert ("network" in [card.key for card in causes]) == (command == "\\set a 1")


@pytest.mark.parametrize(("long_ms", "late_ms"), [(100.0, 6.0), (400.0, 30.0)])
def test_a_generator_that_is_a_little_late_does_not_explain_a_long_way(long_ms, late_ms):
    """That is not their time, and sent at once they would have missed too."""
    story = Story(
        sessions={}, usual={}, bad_ms=long_ms, good_ms=10.0, dispatch_ms=late_ms,
        lag=late_ms / long_ms,
    )  # fmt: skip
    trial, summary = story.told()
    limited = replace(summary.generator, limited=True)
    assert first((trial, replace(summary, generator=limited))) == "network"


def test_waits_that_a_checkpoint_brings_are_the_checkpoint():
    """One in a short trial, whose backlog is there for some seconds more."""
    story = Story(
        bad_seconds=frozenset(range(8, 13)), sessions=waiting("IO", "WalSync"), lag=0.9,
        usual={("load", "IO", "WalSync"): 1},
    )  # fmt: skip
    trial, summary = story.told()
    sample = samples_of(trial.samples)[0]
    more = tuple(
        replace(sample, second=second, source="checkpoints", name="written", value=value)
        for second in range(SECONDS)
        for value in [400.0 if 8 <= second <= 11 else 0.0]
    )
    assert (
        first((replace(trial, samples=(*trial.samples, *collect(more))), summary)) == "checkpoint"
    )


def test_a_scan_is_held_against_the_statements_of_its_seconds_not_of_the_whole_trial():
    """What took most of the time before the index was dropped says nothing of the time after."""
    trial, _ = STORIES["plan"].told()
    other = StatementTally(0, 1, times=times([20_000.0]))
    commands = [[1, "SELECT 1", True], [2, "SELECT 2", True]]
    script = like(trial.workload.scripts[0], commands=commands)
    intervals = tuple(
        each if each.second in BAD else replace(each, statements=(*each.statements, other))
        for each in trial.intervals
    )
    workload = trial.workload.but(scripts=(script,))
    trial = changed(trial, intervals=intervals, workload=workload)
    assert first(seen_again(trial)) == "plan"


def test_causes_stand_in_the_order_of_their_shares():
    """A quota that ran out, and a scan that the same transactions spent their time in."""
    story = replace(
        STORIES["quota"],
        bad={**STORIES["quota"].bad, ("tuples", "returned"): 40 * 500_000.0},
        explained=(scan(),),
    )
    found = attribute(*story.told())
    assert [card.key for card in found.causes[:2]] == ["quota", "plan"]
    assert attribute(*story.told()) == found


def test_there_is_no_network_behind_a_socket():
    """What is under way and in no session waits for a CPU, where none is left."""
    story = Story(
        sessions={CPU: 1}, bad={("host", "cpu_busy"): 99.0}, good={("host", "cpu_busy"): 20.0}
    )
    trial, summary = always(story).told()
    by_socket = changed(trial, server={"target": {"host": "/run/postgresql"}})
    found = attribute(by_socket, summary)
    assert sure(found.cause).key == "cpu"
    assert "network" not in [card.key for card in found.causes]


@pytest.mark.parametrize(
    ("key", "is_limit"),
    [("cpu", True), ("disk", True), ("connections", True), ("quota", True), ("failed", False),
     ("freeze", False), ("generator", False), ("lock", False)],
)  # fmt: skip
def test_what_a_server_runs_out_of_is_its_limit(key, is_limit):
    found = attribute(*STORIES[key].told()).limit
    assert (found is not None) is is_limit
    assert found is None or (found.key == key and found.evidence)


def seen(missed: list[float], on_time: list[float], sign: list[float]) -> dict[str, Numbers]:
    values = np.array(sign)
    return {
        "missed": np.array(missed), "on_time": np.array(on_time), "late": values,
        "punctual": values,
    }  # fmt: skip


def test_share_and_lift_are_ratios_of_what_saw_the_sign():
    of = seen([9, 1, 0, 0] * 5, [1, 9, 10, 20] * 5, [1, 0, 1, 0] * 5)
    assert coinciding_share(of["missed"], of["late"]).value == pytest.approx(0.9)
    found = sure(lift_of(**of))
    assert found.value == pytest.approx(0.9 / (11 / 40))
    assert found.low < found.value < found.high


def test_a_sign_that_nobody_on_time_saw_has_a_finite_lift():
    found = sure(lift_of(**seen([5, 0, 5, 0], [0, 5, 0, 5], [1, 0, 1, 0])))
    assert found.value == pytest.approx(1 / (0.5 / 2))
    assert lift_of(**seen([5, 5], [0, 0], [1, 1])) is None
    assert lift_of(**seen([5, 0], [0, 5], [0, 1])) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.5, 4.0))
def test_the_interval_of_the_lift_covers_the_truth(seed, truth):
    """One case: far from it is rare. How often is for the simulation below."""
    found = lift_of(**_simulated(seed, truth))
    assert found is None or found.low / 4 < truth < found.high * 4


def _simulated(seed: int, truth: float, seconds: int = 60) -> dict[str, Numbers]:
    """Seconds in which the sign is there by chance, and makes it so many times likelier to miss."""
    draw = np.random.default_rng(seed)
    sign = (draw.random(seconds) < 0.3).astype(float)
    due = draw.poisson(50, seconds)
    missed = draw.binomial(due, np.where(sign > 0, 0.08, 0.08 / truth))
    counts = {"missed": missed.astype(float), "on_time": (due - missed).astype(float)}
    return counts | {"late": sign, "punctual": sign}


def test_intervals_of_the_lift_cover_as_often_as_they_say():
    hits = tried = 0
    for seed in range(400):
        of = _simulated(seed, 2.0)
        found = lift_of(**of)
        if found is None:
            continue
        # The truth of shares, not of risks: from the rates that were drawn.
        late = 0.3 * 0.08 / (0.3 * 0.08 + 0.7 * 0.04)
        on_time = 0.3 * 0.92 / (0.3 * 0.92 + 0.7 * 0.96)
        tried += 1
        hits += found.low <= late / on_time <= found.high
    assert tried == 400
    assert hits / tried >= 0.92


def test_one_second_gives_a_lift_no_interval():
    one = np.array([10.0])
    found = sure(lift_of(one, one, late=0.08 * one, punctual=0.05 * one))
    assert found.value == pytest.approx(1.6)
    assert not found.estimable


def test_chance_is_the_share_of_shifts_that_do_as_well():
    missed = np.zeros(20)
    missed[4:7] = 10.0
    assert chance(missed, missed) == pytest.approx(1 / 20)
    assert chance(missed, np.ones(20)) == 1.0


@pytest.mark.parametrize("count", seeds(50, 100))
def test_clean_trials_are_hardly_ever_blamed_on_anything(count):
    """Sensors that do what they like, beside transactions that are late when they like."""
    draw = random.Random(1)
    named = 0
    for _ in range(count):
        rare = {
            ("io", "autovacuum_read"): 1e6, ("host", "cpu_steal"): 6.0,
            ("checkpoints", "checkpoints"): 1.0, ("host", "cpu_busy"): 80.0,
        }  # fmt: skip
        mix = {CPU: 1} if draw.random() < 0.5 else {CPU: 1, ("load", "IO", "WalSync"): 1}
        story = Story(
            bad_seconds=frozenset(draw.sample(range(SECONDS), draw.randint(2, SECONDS))),
            late=draw.randint(5, 30),
            bad_ms=draw.uniform(55, 90),
            flying=draw.uniform(0.3, 2.0),
            sessions=mix,
            usual=mix,
        )
        trial, summary = story.told()
        kept = [s for s in samples_of(trial.samples) if s.source != "io"]
        more = tuple(
            replace(kept[0], second=second, source=source, name=name, value=value)
            for (source, name), value in rare.items()
            for second in range(SECONDS)
            if draw.random() < 0.2
        )
        found = attribute(replace(trial, samples=collect([*kept, *more])), summary)
        named += found.outcome == "cause"
    assert named <= count // 20


@settings(max_examples=40, deadline=None)
@given(
    key=st.sampled_from(list(STORIES)),
    bad=st.frozensets(st.integers(0, SECONDS - 1)),
    late=st.integers(0, 40),
    lag=st.floats(0, 1),
)
def test_shares_are_shares_whatever_happens(key, bad, late, lag):
    story = replace(STORIES[key], bad_seconds=bad, late=late, lag=lag)
    found = attribute(*story.told())
    assert 0 <= found.unexplained <= 1 + 1e-9
    for card in found.causes:
        assert 0 <= card.share.low <= card.share.value <= card.share.high <= 1 + 1e-9
        assert 0 <= card.on_time <= 1 + 1e-9
        assert not card.named or card.share.value >= SHARE_MIN
    assert (found.cause is None) == (found.outcome != "cause")


@pytest.mark.parametrize(
    ("tenths", "found"),
    [
        ([0, 1, 2, 3, 4], []),
        ([0, 1, 2, 12, 13], [(3, 12)]),
        ([0, 1, 2, 6, 7], []),
        ([0, 2, 4, 8, 16, 32, 48, 64], []),
        ([0, 16, 32, 90, 106], [(33, 90)]),
    ],
)
def test_a_look_that_hangs_is_no_look_that_is_seldom(tenths, found):
    assert list(gaps(tenths)) == found


def test_what_an_interrupted_trial_left_pending_is_missed_as_in_its_summary():
    """The server froze, and pgpaces was killed: half of what was due has no outcome."""
    made, _ = STORIES["cpu"].told()
    *first, last = made.intervals
    tallies = tuple(replace(each, on_time=0, late=0, due=30) for each in last.tallies)
    killed = replace(made, state="interrupted", intervals=(*first, replace(last, tallies=tallies)))
    summary = summarize(killed)
    found = attribute(killed, summary)
    assert summary.counts.unfinished == 30
    assert (found.missed, found.due) == (summary.counts.missed, summary.counts.due)


@pytest.mark.parametrize(
    ("limits", "each", "limit_s"),
    [
        ((), [50_000_000, 50_000_000], 0.05),
        ((("a", 0),), [0, 50_000_000], 0.05),
        ((("a", 0), ("b", 200_000_000)), [0, 200_000_000], 0.2),
        ((("a", 0), ("b", 0)), [0, 0], 0.0),
    ],
)
def test_a_limit_of_0_of_a_script_is_none_as_where_misses_are_counted(limits, each, limit_s):
    made, _ = STORIES["connections"].told()
    commands = [[1, "SELECT 1", True]]
    scripts = [{"name": n, "weight": 1, "commands": commands, "text": ""} for n in "ab"]
    own = {"scripts": ["a", "b"], "limit_ns": 50_000_000, "limits": limits}
    plan = {"limit_ns": 50_000_000, "components": [own]}
    made = changed(made, plan=plan, workload=like(made.workload, scripts=scripts))
    assert goal.limits_ns(made) == each
    assert Timeline(made, summarize(made)).limit_s == limit_s


def test_clients_of_background_workloads_serve_none_of_its_own():
    """Four clients are too few; sixty of another workload beside them change nothing of that."""
    story = STORIES["connections"]
    alone = attribute(*replace(story, plan={"clients": 8}).told()).cause
    other = {"clients": 60, "scripts": ["b"], "of": "other"}
    components = [{"clients": 8, "scripts": ["a"]}, other]
    made, _ = replace(story, plan={"clients": 68, "components": components}).told()
    commands = [[1, "SELECT 1", True]]
    scripts = [{"name": n, "weight": 1, "commands": commands, "text": ""} for n in "ab"]
    found = attribute(*seen_again(made, workload=like(made.workload, scripts=scripts))).cause
    assert alone is not None
    assert found is not None
    assert (found.key, found.evidence) == (alone.key, alone.evidence)


@pytest.mark.parametrize("key", ["disk", "failed", "connections"])
def test_beside_a_bulk_load_what_it_made_late_is_explained(key):
    """The load itself is one execution, of whose lateness there is nothing to tell."""
    story = STORIES[key]
    alone = attribute(*story.told())
    limit_ns = 50_000_000
    beside = {"clients": 8, "scripts": ["a"], "of": "queries", "limit_ns": limit_ns}
    components = [{"clients": 1, "scripts": ["psql"]}, {**beside, "model": "open"}]
    plan = {"clients": 9, "components": components, "model": "closed", "rate": None}
    made, _ = replace(story, plan=plan).told()
    moved = tuple(
        replace(
            each,
            tallies=tuple(replace(tally, script=1) for tally in each.tallies),
            statements=tuple(replace(tally, script=1) for tally in each.statements),
        )
        for each in made.intervals
    )
    command = {"name": "psql", "weight": 1, "commands": [], "text": "", "kind": "command"}
    query = {"name": "a", "weight": 1, "commands": [[1, "SELECT 1", True]], "text": ""}
    workload = like(made.workload, scripts=[command, query])
    found = attribute(*seen_again(made, intervals=moved, workload=workload))
    assert (found.due, found.missed) == (alone.due, alone.missed)
    assert found.cause is not None
    assert alone.cause is not None
    assert (found.cause.key, found.cause.evidence) == (key, alone.cause.evidence)


@pytest.mark.parametrize(
    ("server", "far"),
    [
        ({"target": {"host": "db"}}, True),
        ({"target": {"host": "127.0.0.1"}}, True),  # a tunnel may begin there
        ({"target": {"host": "127.0.0.1"}, "ours": True}, False),
        ({"target": {"host": "/run/postgresql"}}, False),
        ({"target": {"host": "@pg"}}, False),
        ({"target": {"port": "5432"}}, False),  # libpq's own socket
    ],
)
def test_only_what_may_have_a_network_is_said_to_have_one(server, far):
    made, summary = STORIES["network"].told()
    found = attribute(changed(made, server=server), summary)
    assert ("network" in [card.key for card in found.causes]) is far
