"""One load from several generators, with generators that are scripted: sums, losses, clocks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import platform
import threading
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.record import Interval, Offset, StatementTally, Tally, merged
from pgpaces.database.access import typed
from pgpaces.load import engine
from pgpaces.load.cluster import load as cluster_load
from pgpaces.load.cluster import protocol
from pgpaces.load.cluster.agent import AgentHost, MachineReading, machine_findings, machine_reading
from pgpaces.load.cluster.load import DealtLoad
from pgpaces.load.cluster.protocol import ClockOffset, LoadOrder, Ready, Report
from pgpaces.load.cluster.workers import Worker, Workers
from pgpaces.monitor.linux import Item
from pgpaces.spec.design import Ask, Cell, Design, Experiment
from pgpaces.spec.load import GeneratorsPlan, generators_of
from pgpaces.spec.target import Target, TargetPlan
from pgpaces.trial.prepare import keywords_for_generator
from pgpaces.trial.request import check_generators
from pgpaces.trial.sweep import PlannedSweep
from pgpaces.trial.trial import workers_for
from tests.engine_load import PLAN
from tests.errors import raises, sentence
from tests.unit.trials import times

SECOND_NS = 1_000_000_000
HOST = AgentHost("pi", 1, 4, "1", "x", "3.11")
OPEN = replace(PLAN, load="open", arrivals="poisson", transactions=None)


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)), min_size=1, max_size=20),
)
def test_the_offset_of_a_clock_is_never_wrong_by_more_than_its_uncertainty(offset, delays):
    exchanges, now = [], 10**16
    for there, back in delays:
        exchanges.append((now, now + there + offset, now + there + back))
        now += there + back + 1
    estimate = protocol.offset_of(exchanges)
    assert abs(estimate.offset_ns - offset) <= estimate.uncertainty_ns
    assert estimate.uncertainty_ns == (min(there + back for there, back in delays) + 1) // 2


def test_a_clock_drifts_where_two_estimates_exclude_each_other():
    before = ClockOffset(0, 400)
    assert protocol.drift_ns(before, ClockOffset(900, 500)) == 0
    assert protocol.drift_ns(before, ClockOffset(-1000, 500)) == 100


def test_what_generators_count_of_one_script_is_one_tally():
    a = Tally(3, 0, due=2, on_time=1, failed={"40001": 1}, latency=times([1.0]))
    b = Tally(3, 0, due=3, on_time=1, failed={"40001": 1, "40P01": 1}, latency=times([2.0]))
    c = Tally(4, 0, due=1, unfinished=1)
    parts = [
        (Offset(0, 0), Interval(3, (a,), (StatementTally(0, 1, failed=1),), cpu_ns=(5,))),
        (Offset(0, 1), Interval(3, (b, c), (StatementTally(0, 1, failed=2),), cpu_ns=(6, 7))),
    ]
    whole = merged(parts, 3, everyone=True)
    first, second = whole.tallies
    assert (first.due, first.on_time, first.failed) == (5, 2, {"40001": 2, "40P01": 1})
    assert (first.latency.count, second) == (2, c)
    assert [each.failed for each in whole.statements] == [3]
    assert whole.cpu_ns == (5, 6, 7)


def test_a_second_travels_as_it_is():
    tally = Tally(1, 0, due=3, on_time=2, failed={"40001": 1}, latency=times([1.0, 2.0]))
    interval = Interval(-3, (tally,), messages=(("40001", "x"),), cpu_ns=(1, 2), aborted=(0,))
    assert protocol.unpack(protocol.pack(interval)) == interval


def schedule(plan):
    """Four seconds of what falls due, by script."""
    return list(islice(engine.due_seconds(plan, [2, 1], lambda: 4 * SECOND_NS), 4))


class Answer:
    """What a call of an agent promises: a value, an error, or nothing for ever."""

    def __init__(self, value):
        self.value = value

    def result(self, _timeout=None):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def release(self):
        pass

    def __await__(self):
        if self.value is None:
            yield from asyncio.Event().wait().__await__()
        return self.result()


class Scripted:
    """An agent that performs all on time, until it has told `until` seconds; then it is lost."""

    def __init__(self, order, until, how):
        self.order, self.until, self.how = order, until, how
        seconds = [performed(second) for second in schedule(order.plan)]
        owed = sums(seconds, "due") - sums(seconds, "on_time")
        rest = tuple(Tally(*key, unfinished=count) for key, count in owed.items())
        seconds[-1] = replace(seconds[-1], tallies=(*seconds[-1].tallies, *rest))
        self.seconds = [protocol.pack(second) for second in seconds]
        self.heard: list[str] = []
        self.moments: list[int] = []
        self.questions = 0
        self.asked = threading.Event()

    def ready(self):
        return Answer(Ready(1, self.order.plan.clients, "epoll"))

    def clock(self):
        return Answer(1)

    def report(self, _turn, first, words):
        self.asked.set()
        self.heard += (name for name, _ in words)
        self.moments += (at_ns for name, at_ns in words if name == "begin")
        if self.how == "deaf" and words:
            return Answer(OSError("no route"))
        if not self.moments:
            return Answer(Report(0, (), 4 * SECOND_NS))
        self.questions += 1
        if self.how == "cut" and self.questions % 3:
            return Answer(None)
        if first < self.until or self.until >= len(self.seconds):
            ended = self.until >= len(self.seconds)
            return Answer(
                Report(first, tuple(self.seconds[first : self.until]), 4 * SECOND_NS, ended)
            )
        if self.how == "deserted":
            return Answer(Report(first, (), SECOND_NS // 2, deserted=True))
        if self.how == "gone":
            raise RuntimeError("Worker holding Actor was lost")
        return Answer(None if self.how == "silent" else OSError("no route"))

    def __getattr__(self, word):
        self.heard.append(word)
        return lambda: Answer(True)


def performed(second):
    """All is on time, but one transaction of each script is still in flight at the end."""
    tallies = tuple(replace(tally, on_time=max(0, tally.due - 1)) for tally in second.tallies)
    return replace(second, tallies=tallies, dispatch=times([0.1]))


class Places:
    """Workers without Dask: agents are here, and a thread answers."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.agents: list[Scripted] = []
        self.lost: set[str] = set()
        self.slow = ""
        self.endings: Sequence[tuple[int, str]] = ()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def submit(self, _worker, order):
        until, how = self.endings[len(self.agents)]
        self.agents.append(Scripted(order, until, how))
        return Answer(self.agents[-1])

    def agent(self, worker, promise):
        if worker.name == self.slow:
            others = [agent for agent in self.agents if agent is not promise.value]
            assert all(agent.asked.wait(60) for agent in others), "a lease would end"
        return promise.result()

    def run(self, call):
        def begin():
            result = call()
            if inspect.iscoroutine(result):
                self.loop.create_task(result)

        self.loop.call_soon_threadsafe(begin)

    def wait(self, call, most_s):
        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(most_s)


class Parts(Struct):
    load: DealtLoad
    agents: list[Scripted]


@pytest.fixture(scope="module")
def quick():
    patch = pytest.MonkeyPatch()
    patch.setattr(cluster_load, "_EVERY_S", 0.001)
    patch.setattr(cluster_load, "_AGAIN_S", 0.01)
    patch.setattr(cluster_load, "LOST_S", 0.05)
    yield
    patch.undo()


def dealt_load(plan, shares, endings, slow=""):
    places, orders, first = Places(), [], 0
    places.endings, places.slow = endings, slow
    for number, clients in enumerate(shares):
        own = replace(plan, clients=clients, part=(first, sum(shares)))
        order = LoadOrder(own, (("a", 2, b""), ("b", 1, b"")), {})
        orders.append((Worker(f"pi{number}", "", HOST), order))
        first += clients
    return Parts(DealtLoad(places, orders), places.agents)


def sums(intervals, name):
    counts = Counter()
    for interval in intervals:
        for tally in interval.tallies:
            counts[tally.due_second, tally.script] += getattr(tally, name)
    return +counts


ENDINGS = st.tuples(
    st.integers(0, 4), st.sampled_from(["gone", "silent", "unreachable", "deserted"])
)


@pytest.mark.usefixtures("quick")
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**63),
    rate=st.floats(1, 200),
    parts=st.lists(st.tuples(st.integers(1, 4), ENDINGS), min_size=1, max_size=4),
)
def test_whatever_is_lost_the_load_is_that_of_one_generator_and_adds_up(seed, rate, parts):
    shares, endings = [share for share, _ in parts], [ending for _, ending in parts]
    plan = replace(OPEN, seed=seed, rate=rate, duration_ns=4 * SECOND_NS, clients=sum(shares))
    made = dealt_load(plan, shares, endings)
    lost = [until < 4 for until, _ in endings]
    with pytest.raises(RunError) if all(lost) else contextlib.nullcontext():
        seconds = []
        for interval in made.load:
            seconds.append(interval)
    # Where all are lost, the load ends with the last second that arrived.
    end = made.load.end_ns // SECOND_NS
    due = sums(seconds, "due")
    assert due == sums(schedule(plan)[:end], "due")
    unfinished = Counter()
    for agent, (until, _) in zip(made.agents, endings, strict=True):
        seconds_due = schedule(agent.order.plan)
        unfinished += sums(seconds_due[until:end], "due")
        arrived = [performed(second) for second in seconds_due[:until]]
        unfinished += sums(arrived, "due") - sums(arrived, "on_time")
    assert sums(seconds, "unfinished") == unfinished
    assert sums(seconds, "on_time") + unfinished == due
    named = [f for f in made.load.findings if f.severity == "invalid"]
    assert all(lost) or len(named) == sum(lost)


FOUR_S = replace(OPEN, rate=50.0, duration_ns=4 * SECOND_NS)
SILENT = sentence("generator-silent", silent_s=0.05)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("endings", "lost"),
    [
        ([(4, ""), (1, "silent"), (4, "")], SILENT),
        # It did not hear when to begin, or ended its load as nobody asked.
        ([(4, ""), (4, "deaf"), (4, "")], SILENT),
        ([(4, ""), (2, "deserted"), (4, "")], sentence("generator-deserted", lease_s=8.6)),
    ],
)
def test_a_lost_generator_is_named_and_the_others_go_on(endings, lost):
    made = dealt_load(FOUR_S, [1, 1, 1], endings)
    assert len(list(made.load)) == 4
    [found] = [each for each in made.load.findings if each.severity == "invalid"]
    assert (found.name, found.about) == ("generator-lost", "pi1")
    assert found.values["why"] == lost
    shares = [each.about for each in made.load.findings if each.name == "generator-share"]
    assert shares == ["pi0", "pi2"]


@pytest.mark.usefixtures("quick")
def test_a_question_without_an_answer_is_asked_again_until_one_comes():
    made = dealt_load(FOUR_S, [1, 1], [(4, "cut"), (4, "")])
    made.load.stop()
    assert len(list(made.load)) == 4
    assert [f for f in made.load.findings if f.severity == "invalid"] == []
    assert made.agents[0].questions >= 3
    assert "stop" in made.agents[0].heard


@pytest.mark.usefixtures("quick")
def test_where_all_are_lost_each_is_named():
    made = dealt_load(FOUR_S, [1, 1], [(1, "gone"), (2, "silent")])
    lost = [f"pi0: {sentence('generator-left')}", f"pi1: {SILENT}"]
    with raises(RunError, "no-generator-left", lost=lost):
        list(made.load)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("limit_ns", "limits", "severity"),
    [
        (None, [], []),
        (SECOND_NS, [], []),
        (SECOND_NS, [(1, 10_000_000)], ["invalid"]),
        (None, [(0, 10_000_000)], ["invalid"]),
        (10_000_000, [], ["invalid"]),
    ],
)
def test_a_clock_is_held_against_the_least_limit(limit_ns, limits, severity):
    made = dealt_load(replace(FOUR_S, limit_ns=limit_ns, limits=limits), [1], [(4, "")])
    list(made.load)
    read = ClockOffset(0, 4_000_000)
    assert [each.severity for each in made.load._clock("pi0", read, read)] == severity


@pytest.mark.usefixtures("quick")
def test_the_generator_that_was_the_limit_is_named():
    made = dealt_load(replace(FOUR_S, limit_ns=SECOND_NS), [1, 1], [(4, ""), (4, "")])
    busy = [protocol.unpack(second) for second in made.agents[1].seconds]
    made.agents[1].seconds = [protocol.pack(replace(s, cpu_ns=(1, 950_000_000))) for s in busy]
    list(made.load)
    shares = [each for each in made.load.findings if each.name == "generator-share"]
    assert {each.about: each.values["busy"] for each in shares} == {"pi0": False, "pi1": True}
    assert shares[1].values["cpu_percent"] == pytest.approx(95)


@pytest.mark.usefixtures("quick")
def test_stop_and_abort_reach_every_generator():
    made = dealt_load(FOUR_S, [1, 1], [(4, ""), (4, "")])
    made.load.stop()
    made.load.abort()
    list(made.load)
    for agent in made.agents:
        assert [word for word in agent.heard if word in ("stop", "abort")][:2] == ["stop", "abort"]


@pytest.mark.usefixtures("quick")
def test_generators_that_are_connected_keep_their_lease_while_another_connects():
    made = dealt_load(FOUR_S, [1, 1, 1], [(4, "")] * 3, slow="pi0")
    assert len(list(made.load)) == 4


@pytest.mark.parametrize(
    ("steal", "quota", "expected"),
    [
        (0.0, 0, {}),
        (0.5, 0, {}),
        (7.0, 0, {"generator-cpu-steal": 7.0}),
        (0.0, 40, {"generator-cpu-quota": 40.0}),
    ],
)
def test_what_the_machine_of_a_generator_keeps_from_it_is_named(steal, quota, expected):
    def at(second):
        ticks = {
            "cpu_user": 20 * second,
            "cpu_idle": (80 - steal) * second,
            "cpu_steal": steal * second,
        }
        counts = {"cgroup_periods": 10 * second, "cgroup_throttled": quota / 10 * second}
        items = [Item(name, value, "%", "ticks") for name, value in ticks.items()]
        items += [Item(name, value, "periods", "event") for name, value in counts.items()]
        return MachineReading(second, items)

    found = {each.name: each.values["percent"] for each in machine_findings(at(10.0), at(70.0))}
    assert found == pytest.approx(expected)


def test_a_machine_can_be_read_twice_and_is_no_reason_to_be_invalid():
    first, second = machine_reading(), machine_reading()
    assert {item.name for item in first.items} >= {"cpu_user", "cpu_idle"}
    assert {each.severity for each in machine_findings(first, second)} <= {"caution"}


@pytest.mark.parametrize(
    "text", ["0", "x", "1001", "ssh:", "ssh:a b", "ssh:-oProxyCommand=x", "a,b", "ssh:a,me@a"]
)
def test_what_is_no_generator_is_refused(text):
    with raises(PlanError, "host-twice" if "me@a" in text else "not-generators"):
        generators_of({"generators": text})


ELSEWHERE = GeneratorsPlan(None, (), "tcp://10.0.0.1:8786")
INSECURE = replace(ELSEWHERE, insecure=True)
SSH, TLS = GeneratorsPlan(2, ("a", "b")), GeneratorsPlan(None, (), "tls://10.0.0.1:1")


@pytest.mark.parametrize(
    ("plan", "dsn", "name"),
    [
        (SSH, None, "managed-server-out-of-reach"),
        (TLS, None, "managed-server-out-of-reach"),
        (ELSEWHERE, "host=pi", "cluster-without-tls"),
        (INSECURE, "postgresql://me:secret@pi/db", "password-without-tls"),
        (None, None, ""),
        (GeneratorsPlan(2), None, ""),
        (GeneratorsPlan(None, (), "tcp://127.0.0.1:8786"), None, ""),
        (TLS, "host=pi password=secret", ""),
        (SSH, "host=pi password=secret", ""),
        (INSECURE, "host=pi", ""),
    ],
)
def test_generators_elsewhere_need_a_server_that_they_reach_and_no_open_secret(plan, dsn, name):
    refused = raises(PlanError, name) if name else contextlib.nullcontext()
    with refused as raised:
        check_generators(plan, TargetPlan(dsn))
    assert "secret@" not in str(raised and raised.value)


def test_a_secret_of_the_environment_does_not_travel():
    assert typed("host=pi password=secret") == {"password": "secret"}
    assert typed("postgresql://me:secret@pi/db") == {"password": "secret"}
    assert typed("service=bench user=me") == {"service": "bench"}
    assert typed("host=pi user=me") == typed("bench") == {}
    assert "secret" not in repr(LoadOrder(OPEN, (), {"password": "secret"}))


@pytest.mark.parametrize(
    ("here", "dsn", "password", "service"),
    [
        (True, "host=pi", "from-passfile", None),
        (False, "host=pi", None, None),
        (False, "host=pi password=typed", "typed", None),
        (False, "service=bench", None, "bench"),
    ],
)
def test_elsewhere_only_what_was_typed_is_sent(here, dsn, password, service):
    keywords = keywords_for(TargetPlan(dsn), here=here)
    assert keywords.get("password") == password
    assert keywords.get("service") == service
    assert ("passfile" in keywords) == here
    # As in an experiment, whose targets are resolved once.
    resolved = TargetPlan("", typed=tuple(typed(dsn).items()))
    assert keywords_for(resolved, here=here) == keywords


def test_an_experiment_keeps_what_was_typed_of_its_targets():
    targets = (Target("db", "host=pi user=me password=secret dbname=d"),)
    levels = {"generators": ("ssh:a,b",), "target": ("db",)}
    experiment = Experiment("e", "reporting", Design(levels), targets=targets)
    target = PlannedSweep.of(experiment).request(Ask(Cell(()), 1)).target
    assert dict(target.typed) == {"password": "secret"}
    assert "secret" not in repr(target)


def keywords_for(target, *, here):
    """What a generator connects with, where the password file here has a password."""
    resolved = {"host": "pi", "passfile": "/home/me/.pgpass", "dbname": "d", "service": "mine"}
    connection = engine.Connection(resolved, "from-passfile", (), None)
    work = SimpleNamespace(request=SimpleNamespace(target=target))
    component = SimpleNamespace(work=work, node="primary")
    return keywords_for_generator(component, connection, here=here)


OWN = platform.node()


@pytest.mark.parametrize(
    ("scheduler", "worker", "hostname", "here"),
    [
        ("tcp://127.0.0.1:8786", "tcp://127.0.0.1:41", OWN, True),
        ("tcp://10.0.0.1:8786", "tcp://127.0.0.1:41", OWN, False),
        ("tcp://127.0.0.1:8786", "tcp://10.0.0.2:41", OWN, False),
        ("tcp://127.0.0.1:8786", "tcp://127.0.0.1:41", "load-worker-1", False),
    ],
)
def test_a_cluster_behind_a_tunnel_is_elsewhere(scheduler, worker, hostname, here):
    plan = GeneratorsPlan(None, (), "tcp://localhost:8786")
    workers = object.__new__(Workers)
    workers.client = SimpleNamespace(scheduler_info=lambda: {"address": scheduler})
    workers.workers = [Worker("w", worker, replace(HOST, hostname=hostname))]
    workers.here = workers._is_here()
    clusters = SimpleNamespace(workers=lambda _plan, _say: workers)
    context = SimpleNamespace(clusters=clusters, listener=SimpleNamespace(say=None))
    assert workers.here == here
    target = TargetPlan("host=pi password=secret")
    with contextlib.nullcontext() if here else pytest.raises(PlanError, match="can run code"):
        workers_for(plan, context, target)
    with contextlib.nullcontext() if here else pytest.raises(PlanError, match="encryption"):
        workers_for(replace(plan, insecure=True), context, target)
