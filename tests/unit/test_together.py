"""Several loads as one, with loads that are scripted: sums, numbers, ends and failures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.core.errors import RunError
from pgpaces.core.findings import finding
from pgpaces.core.record import Interval, StatementTally, Tally
from pgpaces.load.composite import Together
from pgpaces.spec.result import counts
from tests.unit.trials import times

SUMS = (
    "in_flight_ns", "pending_ns", "waited_ns", "connects", "disconnects", "connect_ns", "outages",
    "down",
)  # fmt: skip


@dataclass
class Scripted:
    """A load that gives these seconds, goes on until it is stopped if asked, and may fail."""

    seconds: Sequence[Interval] = ()
    scripts: int = 1
    threads: int = 1
    clients: int = 1
    connect_ns: int = 1
    notice_ns: int = 10_000_000
    poll: str = "epoll"
    end_ns: int = 0
    endless: bool = False
    fails: str | None = None
    heard: list[str] = field(default_factory=list)

    def begin(self, ahead_ns: int) -> None:
        self.heard.append("begin" if ahead_ns >= 0 else "begin in the past")

    def __iter__(self) -> Iterator[Interval]:
        for interval in self.seconds:
            if "abort" in self.heard:
                yield one_second(interval.second)  # what an aborted load leaves unfinished
                return
            yield interval
        number = len(self.seconds)
        while self.endless and not {"stop", "abort"} & set(self.heard):
            yield Interval(number)
            number += 1
        if self.fails:
            raise RunError(self.fails)

    def stop(self) -> None:
        self.heard.append("stop")

    def abort(self) -> None:
        self.heard.append("abort")


def one_second(number: int, script: int = 0, due: int = 1, **more: Any) -> Interval:
    tally = Tally(number, script, due=due, on_time=due, latency=times([1.0] * due))
    return Interval(number, tallies=(tally,), **more)


@st.composite
def a_load(draw: st.DrawFn) -> Scripted:
    """A load of some seconds, with every number within its own scripts and threads."""
    scripts, threads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    small = st.integers(0, 10**9)

    def second(number: int) -> Interval:
        tallies = tuple(
            Tally(number, script, due=(due := draw(st.integers(0, 9))), on_time=due)
            for script in draw(st.sets(st.integers(0, scripts - 1)))
        )
        return Interval(
            number,
            tallies=tallies,
            statements=(StatementTally(draw(st.integers(0, scripts - 1)), 1),),
            cpu_ns=tuple(draw(small) for _ in range(threads)),
            dispatch=times(draw(st.lists(st.floats(0.001, 10), max_size=2))),
            aborted=tuple(draw(st.sets(st.integers(0, threads - 1)))),
            ended_ns=draw(small),
            outage_ns_max=draw(small),
            some_down_ns=draw(small),
            all_down_ns=draw(small),
            **{name: draw(small) for name in SUMS},
        )

    length = draw(st.integers(0, 4))
    return Scripted(
        [second(n) for n in range(length)], scripts, threads, draw(st.integers(1, 9)), end_ns=length
    )


@given(st.lists(a_load(), min_size=1, max_size=3), st.lists(a_load(), max_size=2))
def test_what_all_count_is_counted_once(own, others):
    loads = [*own, *others]
    whole = Together(own, others)
    found = list(whole)
    given_seconds = [each for load in loads for each in load.seconds]
    assert len(found) == max(len(load.seconds) for load in loads)
    every = [tally for interval in found for tally in interval.tallies]
    assert counts(every) == counts([t for each in given_seconds for t in each.tallies])
    for name in SUMS:
        assert sum(getattr(i, name) for i in found) == sum(getattr(i, name) for i in given_seconds)
    assert sum(sum(i.cpu_ns) for i in found) == sum(sum(i.cpu_ns) for i in given_seconds)
    assert sum(i.dispatch.count for i in found) == sum(i.dispatch.count for i in given_seconds)
    assert (whole.scripts, whole.threads, whole.clients) == tuple(
        sum(getattr(load, name) for load in loads) for name in ("scripts", "threads", "clients")
    )
    assert whole.end_ns == max(load.end_ns for load in own)


@given(st.lists(a_load(), min_size=2, max_size=3))
def test_numbers_of_each_begin_where_those_before_it_end(loads):
    found = list(Together(loads))
    script = thread = 0
    for load in loads:
        scripts, threads = (
            range(script, script + load.scripts),
            range(thread, thread + load.threads),
        )
        for number, second in enumerate(load.seconds):
            got = found[number]
            shifted = [replace(t, script=t.script + script) for t in second.tallies]
            assert [t for t in got.tallies if t.script in scripts] == shifted
            assert [s.script - script for s in got.statements if s.script in scripts] == [
                s.script for s in second.statements
            ]
            assert [t - thread for t in got.aborted if t in threads] == list(second.aborted)
            assert got.cpu_ns[thread : thread + load.threads] == second.cpu_ns
        script, thread = scripts.stop, threads.stop


@given(a_load())
def test_a_load_alone_is_given_through_unchanged(load):
    assert list(Together([load])) == list(load.seconds)


def test_all_clients_are_down_only_while_those_of_every_load_are():
    down = Interval(0, some_down_ns=9, all_down_ns=9, down=2)
    for other, downs in ((Interval(0), (9, 0, 2)), (replace(down, all_down_ns=4), (9, 4, 4))):
        (both,) = Together([Scripted([down]), Scripted([other])])
        assert (both.some_down_ns, both.all_down_ns, both.down) == downs
    lost = Scripted([Interval(n, some_down_ns=9, all_down_ns=9) for n in range(2)])
    both, alone = Together([Scripted([Interval(0)]), lost])
    assert (both.all_down_ns, alone.all_down_ns, alone.some_down_ns) == (0, 0, 9), "others ended"


def test_the_same_note_of_several_is_said_once():
    cut, other = finding("background-cut", ran_s=1.0), finding("background-cut", ran_s=2.0)
    noted = Interval(0, notes=(cut,))
    (both,) = Together([Scripted([noted]), Scripted([replace(noted, notes=(other, cut))])])
    assert both.notes == (cut, other)


def test_loads_beside_the_trials_own_are_stopped_in_the_second_in_which_those_end():
    seconds = [one_second(n, ended_ns=(n + 1) * 10**9) for n in range(3)]
    own, other = Scripted(seconds, end_ns=2 * 10**9), Scripted(endless=True)
    heard = [list(other.heard) for _ in Together([own], [other])]
    assert heard == [[], ["stop"], ["stop"]], "the own one still serves what was due"
    assert own.heard == []
    assert other.heard == ["stop"]


def test_loads_of_the_trial_itself_are_waited_for_and_others_where_nobody_knows_the_end():
    short, long = Scripted([one_second(0)]), Scripted([one_second(n) for n in range(5)])
    found = list(Together([short, long]))
    assert (len(found), short.heard, long.heard) == (5, [], [])
    own, other = Scripted([one_second(0)], end_ns=2**62), Scripted(endless=True)
    list(Together([own], [other]))
    assert other.heard == ["stop"]
    own, other = Scripted([one_second(n) for n in range(4)]), Scripted([one_second(0)])
    assert sum(t.due for i in Together([own], [other]) for t in i.tallies) == 5
    assert own.heard == [], "one that ends early does not end the others"


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_ends_all_and_is_raised_behind_their_last_second(failing):
    loads = [Scripted([one_second(n) for n in range(9)]) for _ in range(2)]
    loads[failing] = Scripted([one_second(0)], fails="the server is gone")
    seconds = iter(Together(loads[:1], loads[1:]))
    # The other one gives what it has, and its end, before the error is heard.
    assert [sum(t.due for t in next(seconds).tallies) for _ in range(2)] == [2, 1]
    if failing == 1:
        assert sum(t.due for t in next(seconds).tallies) == 1
    with pytest.raises(RunError, match="the server is gone"):
        next(seconds)
    assert "abort" in loads[1 - failing].heard
    loads = [Scripted([one_second(0)] * n, fails=f"number {n}") for n in (2, 1)]
    with pytest.raises(RunError, match="number 1"):
        list(Together(loads))


def test_all_begin_at_one_moment_that_is_to_come_and_hear_of_the_end():
    loads = [Scripted(poll="io_uring"), Scripted(), Scripted()]
    whole = Together(loads[:1], loads[1:])
    whole.begin()
    whole.stop()
    whole.abort()
    assert [load.heard for load in loads] == [["begin", "stop", "abort"]] * 3
    assert whole.poll == "io_uring, epoll"
