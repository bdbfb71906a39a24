"""Wait events by tenths: what is packed is read again, seconds are means, memory is bounded."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgpaces.analysis import waits
from pgpaces.analysis.waits import Event, WaitTally, event_name, tenths_of, top_events
from pgpaces.core.findings import finding
from pgpaces.monitor import waits as sampling
from pgpaces.monitor.waits import SLOW_S, Pair, Sampler
from pgpaces.spec.result import WaitEvent, Waits

LOCK: Event = ("load", "Lock", "tuple")
CPU: Event = ("load", "CPU", "")
OTHER: Event = ("others", "IO", "DataFileRead")
EVENT = st.tuples(
    st.sampled_from(["load", "others"]), st.sampled_from(["Lock", "IO", "CPU"]),
    st.sampled_from(["", "a", "b", "c"]),
)  # fmt: skip
LOOK = st.dictionaries(EVENT, st.integers(1, 2000), max_size=6)


@settings(deadline=None)  # the first one imports numpy
@given(st.dictionaries(st.integers(-200, 4000), LOOK, max_size=60))
def test_what_is_packed_is_read_again_tenth_by_tenth(looks):
    tally = WaitTally()
    for tenth, sessions in sorted(looks.items()):
        tally.add(tenth, sessions)
    packed = tally.waits()
    tenths, rows = tenths_of(packed)
    found: dict[int, dict[Event, int]] = {tenth: {} for tenth in tenths.tolist()}
    for tenth, place, count in rows.tolist():
        each = packed.events[place]
        found[tenth][each.who, each.kind, each.event] = count
    assert found == looks
    measured = {tenth: sessions for tenth, sessions in looks.items() if tenth >= 0}
    assert packed.looks == len(measured)
    assert sum(e.sessions for e in packed.events) == sum(
        count for sessions in measured.values() for count in sessions.values()
    )


def unpacked(packed):
    return tuple(each.tolist() for each in tenths_of(packed))


def test_a_tenth_without_sessions_is_told_from_one_without_a_look():
    tally = WaitTally()
    tally.add(0, {})
    assert unpacked(tally.waits()) == ([0], []), "counting goes on"
    for sessions in (1, 7):  # a second look at a tenth is left out
        tally.add(3, {CPU: sessions})
    assert unpacked(tally.waits()) == ([0, 3], [[3, 0, 1]])
    assert unpacked(Waits()) == ([], [])


def test_an_hour_of_a_busy_server_takes_less_than_2_megabytes():
    draw, tally = random.Random(1), WaitTally()
    events: list[Event] = [("load", "Lock", f"e{n}") for n in range(40)]
    for tenth in range(36_000):
        tally.add(tenth, {event: draw.randint(1, 64) for event in draw.sample(events, 12)})
    assert len(tally.waits().tenths) < 2_000_000


def test_a_second_is_the_mean_of_its_looks_with_zeros_where_nobody_was():
    tally = WaitTally()
    for tenth in range(10):
        tally.add(tenth, {CPU: 2} if tenth % 2 else {})
    tally.add(10, {OTHER: 3})
    drained = tally.drain()
    assert {s.second for s in drained} == {0}, "the other second still lasts"
    drained += tally.drain(ended=True)
    found = {(s.second, s.name): s.value for s in drained}
    assert found == {
        (0, "CPU"): 1.0, (0, "others IO:DataFileRead"): 0.0,
        (1, "CPU"): 0.0, (1, "others IO:DataFileRead"): 3.0,
    }  # fmt: skip
    assert {(s.source, s.unit) for s in drained} == {("waits", "sessions")}


def test_of_many_events_the_rest_is_one_sample():
    tally = WaitTally()
    tally.add(0, {("load", "LWLock", f"e{n}"): n + 1 for n in range(waits.SAMPLED_MAX + 2)})
    found = {s.name: s.value for s in tally.drain(ended=True)}
    assert len(found) == waits.SAMPLED_MAX + 1
    assert found["other"] == 1 + 2


@pytest.mark.parametrize(
    "tenths",
    [b"x", zlib.compress(b"12345"), zlib.compress(bytes(12)), zlib.compress(bytes(24))[:-4]],
)
def test_bytes_that_are_none_are_refused(tenths):
    with pytest.raises(ValueError, match="wait event"):
        tenths_of(Waits(1, (), tenths))


def test_the_top_events_have_their_mean_and_share():
    events = (
        WaitEvent("load", "CPU", "", 10), WaitEvent("load", "Lock", "tuple", 30),
        WaitEvent("others", "IO", "x", 99), WaitEvent("load", "IO", "y", 0),
    )  # fmt: skip
    assert top_events(Waits(20, events)) == [("Lock:tuple", 1.5, 0.75), ("CPU", 0.5, 0.25)]
    assert top_events(Waits(20, events), "others") == [("IO:x", 4.95, 1.0)]
    assert top_events(Waits()) == []
    assert event_name(*OTHER) == "others IO:DataFileRead"


class Faked:
    """A server that takes so long, by a clock of its own."""

    def __init__(self, sessions: Mapping[Event, int], pairs: list[Pair] | None = None) -> None:
        self.sessions, self.pairs = sessions, pairs or []
        self.now_s, self.took_s, self.asked = 0.0, 0.001, 0

    def sample(self) -> Mapping[Event, int]:
        self.now_s += self.took_s
        return self.sessions

    def blocked(self) -> list[Pair]:
        self.asked += 1
        return self.pairs


def looked(faked: Faked, monkeypatch: pytest.MonkeyPatch, times: int) -> Sampler:
    monkeypatch.setattr(sampling.time, "monotonic", lambda: faked.now_s)
    sampler, lock = Sampler(faked), threading.Lock()
    for _ in range(times):
        begun = faked.now_s
        sampler.take(0.0, lock)
        faked.now_s = begun + sampler.period_s
    return sampler


def test_a_slow_server_is_asked_half_as_often_and_it_is_said(monkeypatch):
    faked = Faked({CPU: 1})
    faked.took_s = 2 * SLOW_S
    assert looked(faked, monkeypatch, 5).slowed is None, "a few slow looks may be chance"
    sampler = looked(faked, monkeypatch, 6)
    assert sampler.period_s == pytest.approx(0.2)
    assert sampler.slowed == finding("wait-sampling-slowed", slow_s=SLOW_S, period_s=0.2)
    assert looked(faked, monkeypatch, 500).period_s == pytest.approx(1.6), "and no further"


def test_a_quick_server_is_asked_as_often_as_at_first(monkeypatch):
    sampler = looked(Faked({CPU: 1}), monkeypatch, 50)
    assert (sampler.period_s, sampler.slowed) == (0.1, None)
    assert sampler.tally.waits().looks == 50


def test_blockers_are_asked_for_once_a_second_and_only_where_somebody_waits_for_a_lock(monkeypatch):
    pair = ("load", "Lock:tuple", "ExclusiveLock", "psql", "idle in transaction", "UPDATE\n t")
    quiet = Faked({CPU: 1}, [pair])
    looked(quiet, monkeypatch, 30)
    assert quiet.asked == 0
    waiting = Faked({LOCK: 1}, [pair])
    [found] = looked(waiting, monkeypatch, 30).blocked()
    assert waiting.asked == found.samples == 3
    assert (found.first_s, found.last_s, found.statement) == (0, 2, "UPDATE t")


def test_of_statements_without_end_only_so_many_are_kept(monkeypatch):
    pairs = [("load", "Lock:tuple", "", f"a{n % 3}", "active", f"UPDATE {n}") for n in range(900)]
    found = looked(Faked({LOCK: 1}, pairs), monkeypatch, 1).blocked()
    assert len(found) == 103
    assert sum(one.samples for one in found) == 900
    assert sum(one.statement == "(others)" for one in found) == 3


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("ALTER ROLE app\n PASSWORD 's3cret'", "ALTER ROLE app ..."),
        ("select dblink_exec('postgres://u:s3cret@h/d', 'x')", "select dblink_exec('..."),
        (
            "ALTER SUBSCRIPTION s CONNECTION 'sslpassword=s3cret'",
            "ALTER SUBSCRIPTION s CONNECTION '...",
        ),
    ],
)
def test_a_password_in_a_statement_of_who_blocks_is_not_kept(statement, kept, monkeypatch):
    pair = ("load", "Lock:tuple", "", "psql", "idle in transaction", statement)
    [found] = looked(Faked({LOCK: 1}, [pair]), monkeypatch, 1).blocked()
    assert found.statement == kept
