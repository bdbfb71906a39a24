"""When the guard stops a load: samples in, verdict out; and a server that does not answer."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.stopping import (
    BASELINE,
    MORE_MS,
    SILENCE_S,
    STREAK,
    GuardSample,
    reason_to_stop,
)
from pgpaces.core.errors import ServerError
from pgpaces.core.findings import Finding, finding
from pgpaces.monitor.guard import Guard

BEFORE = GuardSample(10.0, 100.0, 7, 2.0)
ALONE = GuardSample(10.0)
USUAL = GuardSample(10.0, 100.0, 7, 2.0)
SLOW = GuardSample(9e9, 9e9, 7, 9e9)
AT_MOST = GuardSample(20.0 + MORE_MS, 200.0 + MORE_MS, 7, 32.0)
REFUSED = GuardSample(refused="sorry, too many clients already")
LOGIN_REFUSED = finding("guard-login-refused", error=REFUSED.refused)
# What was before, what was seen, and what the verdict says.
VERDICTS = {
    "as quick as before": (BEFORE, [USUAL] * 100, None),
    "twice and a little": (BEFORE, [AT_MOST] * STREAK, None),
    "statements": (BEFORE, [GuardSample(10.0, 205.1, 7)] * STREAK,
                   finding("guard-statements-slow", now_ms=205.1, before_ms=100.0)),
    "a query": (BEFORE, [GuardSample(25.1, 100.0, 7)] * STREAK,
                finding("guard-queries-slow", now_ms=25.1, before_ms=10.0)),
    "a replica": (BEFORE, [GuardSample(10.0, 0, 7, 32.25)] * STREAK,
                  finding("guard-replica-behind", more_s=30.25)),
    "too few samples": (BEFORE, [SLOW] * (STREAK - 1), None),
    "once in a while": (BEFORE, [SLOW, USUAL, SLOW] * 9, None),
    "long ago": (BEFORE, [SLOW] * 9 + [USUAL], None),
    "nobody else": (ALONE, [SLOW] * 9, None),
    "a refused login": (BEFORE, [REFUSED], LOGIN_REFUSED),
    "a refused login, and nobody else": (ALONE, [REFUSED], LOGIN_REFUSED),
}  # fmt: skip


@pytest.mark.parametrize("name", VERDICTS)
def test_a_load_stops_that_harms_others(name):
    before, seen, expected = VERDICTS[name]
    assert reason_to_stop(before, seen) == expected


def test_what_is_usual_before_the_load_is_what_was_seen_once_and_a_median_query():
    seen = [GuardSample(1, 0, 1), GuardSample(900, 70, 2, 3), GuardSample(2, 50, 0)]
    assert GuardSample.before(seen) == GuardSample(2, 70, 2, 3)


@pytest.mark.parametrize("busy", [0.1, 0.3, 0.6, 0.9])
def test_an_application_that_is_as_busy_as_before_is_no_alarm(busy):
    """Statements of 50 ms, caught at any moment of theirs, in 200 loads of two minutes."""
    draw, alarms = np.random.default_rng(5), 0
    for _ in range(200):
        ages = draw.uniform(0, 50, BASELINE + 120) * (draw.uniform(size=BASELINE + 120) < busy)
        samples = [GuardSample(1.0, float(age), 4) for age in ages]
        before, seen = GuardSample.before(samples[:BASELINE]), samples[BASELINE:]
        alarms += any(reason_to_stop(before, seen[n : n + STREAK]) for n in range(120))
    assert alarms <= 4


def test_silence_counts_for_those_who_were_there():
    assert reason_to_stop(BEFORE, [], silent_s=SILENCE_S - 0.1) is None
    assert reason_to_stop(ALONE, [], silent_s=SILENCE_S) is None
    assert reason_to_stop(BEFORE, [], silent_s=SILENCE_S) == finding(
        "guard-unanswered", silent_s=5.0
    )


TIMES = st.floats(0, 1e6)
SAMPLES = st.lists(st.builds(GuardSample, TIMES, TIMES, st.just(7), TIMES), max_size=12)


@given(SAMPLES, st.floats(1, 10))
def test_a_server_that_is_slower_still_never_lets_go_on(seen, more):
    if reason_to_stop(BEFORE, seen) is not None:
        slower = [GuardSample(s.probe_ms * more, s.age_ms * more, 7, s.lag_s * more) for s in seen]
        assert reason_to_stop(BEFORE, slower) is not None


class Server:
    """Answers, refuses or hangs, as it is told; and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sample = USUAL
        self.refuses = False
        self.looks = 0
        self.answers = threading.Event()
        self.answers.set()
        self.failing = threading.Semaphore(0)

    def look(self) -> GuardSample:
        self.looks += 1
        if self.refuses or not self.answers.is_set():
            self.failing.release()
        self.answers.wait()
        if self.refuses:
            raise ServerError("no")
        return self.sample

    def clock(self) -> float:
        return self.now


def guard_of(server: Server) -> Guard:
    guard = Guard(server.look, server.look, server.clock)
    guard.measure_before(period_s=0)
    guard.begin(period_s=0.001)
    return guard


def until_reason(guard: Guard) -> Finding:
    deadline = time.monotonic() + 60
    while (reason := guard.reason()) is None:
        assert time.monotonic() < deadline
    return reason


def test_a_guard_tells_of_a_slow_server():
    guard = guard_of(server := Server())
    assert guard.before == BEFORE
    assert guard.reason() is None
    server.sample = GuardSample(10.0, 1000.0, 7)
    slow = finding("guard-statements-slow", now_ms=1000.0, before_ms=100.0)
    assert until_reason(guard) == slow
    assert guard.close()


def test_a_server_without_others_is_not_looked_at_for_long():
    server = Server()
    server.sample = ALONE
    guard = Guard(server.look, server.look, server.clock)
    guard.measure_before(period_s=60)
    assert server.looks == 1


@pytest.mark.parametrize("how", ["hangs", "refuses"])
def test_a_guard_that_gets_no_answer_says_so_and_waits_for_none(how):
    guard = guard_of(server := Server())
    if how == "hangs":
        server.answers.clear()
    else:
        server.refuses = True
    assert server.failing.acquire(timeout=60)
    assert guard.reason() is None
    server.now = 60.0
    assert guard.reason() == finding("guard-unanswered", silent_s=59.0)
    server.answers.set()
    assert guard.close()
