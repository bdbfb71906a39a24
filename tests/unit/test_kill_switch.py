"""When a kill switch stops a load: samples in, verdict out; and a server that does not answer."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgpaces.analysis.kill_switch import (
    FLOOR_MS,
    SILENCE_S,
    WINDOW,
    Before,
    KillSwitchSample,
    verdict,
)
from pgpaces.core import sessions
from pgpaces.core.errors import ServerError
from pgpaces.monitor.postgres import Watch, watch

BEFORE = Before(probe_ms=10.0, age_ms=100.0)
USUAL = KillSwitchSample(10.0, 100.0)


AGED, SLOW = KillSwitchSample(10.0, 410.0), KillSwitchSample(9e9, 9e9)
FEW, NOTHING = WINDOW // 2, Before(0.01, 0.0)
# A factor, what was before, what was seen, and what the verdict says.
VERDICTS: dict[str, tuple[float, Before, list[KillSwitchSample], str]] = {
    "as quick as before": (3, BEFORE, [USUAL] * 100, ""),
    "statements": (4, BEFORE, [AGED] * WINDOW, "other sessions' statements took 4.1 x as long"),
    "of a larger factor": (4.2, BEFORE, [AGED] * WINDOW, ""),
    "a query": (4, BEFORE, [KillSwitchSample(50.0)] * WINDOW, "a small query of another session"),
    "a few": (2, BEFORE, [SLOW] * FEW, ""),
    "a minority": (2, BEFORE, [USUAL] * 9 + [SLOW] * FEW, ""),
    "most of the last": (2, BEFORE, [USUAL] * 9 + [SLOW] * (FEW + 1), "took"),
    "most": (2, BEFORE, [SLOW] * (FEW + 1), "took"),
    "long ago": (2, BEFORE, [SLOW] * 9 + [USUAL] * WINDOW, ""),
    "below the floor": (2, NOTHING, [KillSwitchSample(*[2 * FLOOR_MS] * 2)] * WINDOW, ""),
    "above it": (2, NOTHING, [KillSwitchSample(0.01, 2.1 * FLOOR_MS)] * WINDOW, "took 10.5 ms"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_most_of_the_last_samples_stop_a_load_that_makes_others_wait(name):
    factor, before, seen, said = VERDICTS[name]
    found = verdict(factor, before, seen)
    assert (found is not None) == bool(said)
    assert said in (found or "")


def test_what_is_usual_before_the_load_is_a_median():
    seen = [KillSwitchSample(1, 0), KillSwitchSample(900, 70), KillSwitchSample(2, 50)]
    assert Before.of(seen) == Before(2, 50)


@pytest.mark.parametrize("version", [90_600, 100_000])
def test_a_server_is_asked_only_for_what_its_version_has(version, monkeypatch):
    queries: set[str] = set()

    def execute(query: bytes, _: object) -> Any:
        queries.add(query.decode())
        return SimpleNamespace(fetchone=lambda: (1.0,))

    session = SimpleNamespace(
        info=SimpleNamespace(server_version=version), execute=execute, closed=False,
        close=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr(sessions, "connect", lambda *_, **more: session)
    monkeypatch.setattr(Watch, "measure_before", lambda monitor: monitor._take())
    with watch({}, "load", 3.0) as monitor:
        assert not monitor.blind
    assert len(queries) == 2
    for since_10 in ("backend_type", "pg_read_all_stats"):
        assert any(since_10 in query for query in queries) is (version >= 100_000)


def test_silence_counts_as_slower():
    assert verdict(1e9, BEFORE, [], silent_s=SILENCE_S - 0.1) is None
    assert verdict(1e9, BEFORE, [], silent_s=SILENCE_S) == (
        "the server has not answered a small query for 5 s"
    )


TIMES = st.floats(0, 1e6)
SAMPLES = st.lists(st.builds(KillSwitchSample, TIMES, TIMES), max_size=12)


@given(SAMPLES, st.floats(1.01, 100), st.floats(1, 10))
def test_a_larger_factor_never_stops_what_a_smaller_one_lets_go_on(seen, factor, more):
    if verdict(factor, BEFORE, seen) is None:
        assert verdict(factor * more, BEFORE, seen) is None


@given(SAMPLES, st.floats(1.01, 100), st.floats(1, 10))
def test_a_server_that_is_slower_still_never_lets_go_on(seen, factor, more):
    if verdict(factor, BEFORE, seen) is not None:
        slower = [KillSwitchSample(s.probe_ms * more, s.age_ms * more) for s in seen]
        assert verdict(factor, BEFORE, slower) is not None


class Server:
    """Answers, refuses or hangs, as it is told; and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sample = USUAL
        self.refuses = False
        self.answers = threading.Event()
        self.answers.set()
        self.failing = threading.Semaphore(0)

    def look(self) -> KillSwitchSample:
        if self.refuses or not self.answers.is_set():
            self.failing.release()
        self.answers.wait()
        if self.refuses:
            raise ServerError("no")
        return self.sample

    def clock(self) -> float:
        return self.now


@pytest.fixture
def server():
    return Server()


def watch_of(server: Server) -> Watch:
    watch = Watch(server.look, 3, server.clock)
    watch.measure_before(period_s=0)
    watch.begin(period_s=0.001)
    return watch


def until_reason(watch: Watch) -> str:
    deadline = time.monotonic() + 60
    while (reason := watch.reason()) is None:
        assert time.monotonic() < deadline
    return reason


def test_a_watch_tells_of_a_slow_server(server):
    watch = watch_of(server)
    assert watch.before == Before(10.0, 100.0)
    assert watch.reason() is None
    server.sample = KillSwitchSample(10.0, 1000.0)
    assert until_reason(watch) == "other sessions' statements took 10.0 x as long as before"
    assert watch.close()


@pytest.mark.parametrize("how", ["hangs", "refuses"])
def test_a_watch_that_gets_no_answer_says_so_and_waits_for_none(server, how):
    watch = watch_of(server)
    if how == "hangs":
        server.answers.clear()
    else:
        server.refuses = True
    assert server.failing.acquire(timeout=60)
    assert watch.reason() is None
    server.now = 60.0
    assert watch.reason() == "the server has not answered a small query for 59 s"
    server.answers.set()
    assert watch.close()
