"""Component loads: which scripts go to which server, with what share. No server is asked."""

import os
import signal
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.core.errors import ConnectionsError, PlanError, ServerError
from pgpaces.database import identity
from pgpaces.database.access import Access
from pgpaces.database.identity import Room
from pgpaces.spec.load import Load
from pgpaces.spec.target import PoolPlan, TargetPlan
from pgpaces.trial import prepare, target_server
from pgpaces.trial.prepare import Budget, component_loads
from pgpaces.trial.request import backgrounds, check, clients_at
from pgpaces.trial.target_server import Site, restarting
from tests.errors import raises, sentence
from tests.unit.components import NAMES, work

NODES = ("primary", "standby1", "standby2", "standby3", "pool")


@st.composite
def works(draw):
    """A workload with weights, nodes and clients enough, and the nodes that there are."""
    count = draw(st.integers(0, 3))
    nodes = ("primary", *(f"standby{n}" for n in range(1, count + 1)))
    places = st.sampled_from([*nodes, "any", *(["standbys"] if count else [])])
    weights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3).filter(any))
    own = {f"node.{n}": draw(places) for n in NAMES[: len(weights)] if draw(st.booleans())}
    own |= {"node": draw(places)} if draw(st.booleans()) else {}
    load = draw(
        st.sampled_from([Load("open", 37.5), Load("closed"), Load("paced", 2.0)])
        | st.floats(0.001, 1e6).map(lambda rate: Load("open", rate))
    )
    clients = draw(st.integers(4, 200))
    trial = {"load": load, "clients": clients, "seed": draw(st.integers(0, 2**64 - 1))}
    return work(weights, spec=own, trial=trial), nodes


@given(works())
def test_rates_and_clients_of_the_lanes_add_up_to_the_whole(case):
    given_work, nodes = case
    found = component_loads([given_work], nodes, 90)
    plan = given_work.request.trial
    assert sum(component.clients for component in found) == plan.clients
    assert min(component.clients for component in found) >= 1
    if plan.load.model == "open":
        assert sum(component.plan.load.rate or 0 for component in found) == pytest.approx(
            plan.load.rate
        )
    else:
        assert {component.plan.load for component in found} == {plan.load}


@given(works())
def test_what_a_script_gets_on_all_nodes_together_is_its_weight(case):
    given_work, nodes = case
    found = component_loads([given_work], nodes, 90)
    plan = given_work.request.trial
    scripts = given_work.request.scripts
    total = sum(script.weight for script in scripts)
    units = set()
    for script in scripts:
        weights = [{each.name: each.weight for each in c.scripts} for c in found]
        there = [c for c, own in zip(found, weights, strict=True) if script.name in own]
        parts = [own[script.name] for own in weights if script.name in own]
        assert there or not script.weight
        assert len(set(parts)) <= 1, "each of its nodes gets as much of it"
        if script.weight:
            units.add(Fraction(sum(parts), script.weight))
        if plan.load.rate is not None and plan.load.model == "open":
            rates = [
                (component.plan.load.rate or 0) * part / sum(s.weight for s in component.scripts)
                for component, part in zip(there, parts, strict=True)
            ]
            assert sum(rates) == pytest.approx(plan.load.rate * script.weight / total)
    assert len(units) == 1


@given(works(), works())
def test_components_have_seeds_and_labels_of_their_own(one, other):
    (own, nodes), (beside, more) = one, other
    both = max(nodes, more, key=len)
    found = component_loads([own, replace(beside, name="beside")], both, 90)
    labels = [label for component in found for label in component.labels]
    assert len(set(labels)) == len(labels)
    if own.request.trial.seed == beside.request.trial.seed:
        assert len({component.plan.seed for component in found}) == len(found)
    mine = [component for component in found if not component.work.name]
    assert len({component.plan.seed for component in mine}) == len(mine)
    assert mine[0].plan.seed == own.request.trial.seed, "a trial with one component is as before"
    assert all(0 <= component.plan.seed < 2**64 for component in found)


def test_scripts_are_named_by_their_node_where_it_is_one_of_several_and_by_their_workload():
    found = component_loads(
        [work((1, 1), spec={"node.read": "any"}, trial={"clients": 9})], NODES[:3], 90
    )
    assert [(component.node, component.labels) for component in found] == [
        ("primary", ("read on primary", "write")),
        ("standby1", ("read on standby1",)),
        ("standby2", ("read on standby2",)),
    ]
    other = replace(work((1, 2)), name="reporting")
    own, beside = component_loads([work((1,)), other], ("primary",), 90)
    assert (own.labels, beside.labels) == (("read",), ("reporting/read", "reporting/write"))
    assert (own.facts().of, beside.facts().of) == ("", "reporting")


def test_a_limit_of_a_script_goes_where_the_script_goes():
    plan = {"clients": 4, "limit_ns": 500, "limits": (("read", 100), ("write", 900))}
    one = work((1, 1), spec={"node.write": "standby1"}, trial=plan)
    primary, standby = found = component_loads([one], NODES[:2], 90)
    assert primary.engine_plan().limits == [(0, 100)]
    assert standby.engine_plan().limits == [(0, 900)]
    assert [c.facts().limits for c in found] == [(("read", 100),), (("write", 900),)]
    one = work((1,), spec={"node": "any"}, trial={"clients": 4, "limits": (("read", 100),)})
    assert [c.facts().limits for c in component_loads([one], NODES[:2], 90)] == [
        (("read on primary", 100),),
        (("read on standby1", 100),),
    ]


STANDBYS = TargetPlan(standbys=2)
BESIDE = {"background.r.workload": "reporting"}


@pytest.mark.parametrize(
    ("changes", "beside", "said"),
    [
        ({"spec": {"node": "standby1"}}, {}, "unknown-node {'node': 'standby1',"),
        ({"spec": {"node": "standbys"}}, {}, "unknown-node {'node': 'standbys',"),
        ({"spec": {"node": "pool"}}, {}, "unknown-node {'node': 'pool',"),
        ({"spec": {"node.read": "nowhere"}}, {}, "unknown-node {'node': 'nowhere',"),
        ({"spec": {"node.other": "primary"}}, {}, "node-of-other-script {'script': 'other',"),
        ({"spec": {"node": "standby3"}, "target": STANDBYS}, {},
         "unknown-node {'node': 'standby3',"),
        ({"spec": {"node": "any"}, "trial": {"clients": 2}, "target": STANDBYS}, {},
         "too-few-clients {'clients': 2, 'servers': 3}"),
        ({"target": TargetPlan(dsn="host=board"), "pool": PoolPlan("pgbouncer")}, {},
         "managed-only {'option': 'pool'}"),
        ({"target": TargetPlan(tls=True), "pool": PoolPlan("pgbouncer")}, {}, "pool-without-tls"),
        ({}, BESIDE | {"background.r.node": "standby1"},
         "background r unknown-node {'node': 'standby1',"),
        ({}, {**BESIDE, "background.r.rate": "fast"}, "background r: --rate"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_is_started(changes, beside, said):
    request = work(**changes).request
    with pytest.raises(PlanError) as caught:
        check(replace(request, background=backgrounds(request, beside)))
    error = caught.value
    assert said in f"{error.about} {error.name} {error.values} {error.message}"


def test_fewer_clients_than_servers_are_refused_where_only_the_server_knows_how_many():
    open_load = work(spec={"node": "any"}, trial={"load": Load("open", 0.1)})
    with raises(PlanError, "too-few-clients", clients=1, servers=3):
        component_loads([open_load], NODES[:3], most=1)


def test_a_workload_beside_another_runs_as_long_as_that():
    request = work(trial={"duration_ns": 7, "warmup_ns": 3, "settings": (("jit", "off"),)}).request
    ((name, other),) = backgrounds(request, {**BESIDE, "background.r.rate": "2/s"})
    assert (name, other.workload.name, other.trial.load.rate) == ("r", "reporting", 2.0)
    assert (other.trial.duration_ns, other.trial.warmup) == (7, 3)
    assert other.trial.settings == request.trial.settings


@pytest.mark.parametrize(
    ("asked", "nodes", "where"),
    [
        ({}, ("primary",), ["primary"]),
        ({}, ("primary", "pool"), ["pool"]),
        ({"spec": {"node": "primary"}}, ("primary", "pool"), ["primary"]),
        ({"spec": {"node": "any"}}, ("primary",), ["primary"]),
        ({"spec": {"node": "any"}}, NODES, ["primary", "standby1", "standby2", "standby3"]),
        ({"spec": {"node": "standbys"}}, NODES, ["standby1", "standby2", "standby3"]),
        ({"spec": {"node": "standby2"}}, NODES, ["standby2"]),
        ({"spec": {"node": "standby1", "node.read": "primary"}}, NODES, ["primary"]),
    ],
)
def test_where_a_load_goes(asked, nodes, where):
    found = component_loads([work(**asked, trial={"clients": 8})], nodes, 90)
    assert [component.node for component in found] == where


def test_a_script_without_weight_needs_no_client():
    idle = work((1, 0), spec={"node.write": "standby1"}, trial={"clients": 1})
    check(replace(idle.request, target=TargetPlan(standbys=1)))
    (component,) = component_loads([idle], NODES[:2], 90)
    assert (component.node, component.labels, component.clients) == ("primary", ("read",), 1)


@given(works())
def test_clients_that_are_counted_beforehand_are_those_of_the_lanes(given_):
    of, nodes = given_
    found = {component.node: component.clients for component in component_loads([of], nodes, 90)}
    assert clients_at(of.request, nodes) == found


@pytest.mark.parametrize(
    ("clients", "asked", "about", "free"),
    [
        # 50 for each of three; two are of sensors, and on the primary two more lock the data.
        (150, {"spec": {"node": "any"}}, "", None),
        (97, {"spec": {"node": "primary"}}, "", None),
        (98, {"spec": {"node": "primary"}}, "", 97),
        (100, {"spec": {"node": "standby1"}}, "standby1: ", 99),
    ],
)
def test_a_server_needs_connections_for_the_clients_that_come_to_it(
    monkeypatch, clients, asked, about, free
):
    monkeypatch.setattr(identity, "room", lambda access, guest: Room(101, 0, 101))
    request = work(trial={"clients": clients}, target=STANDBYS, **asked).request
    access = Access({}, Path("psql"))
    where = Site(access, managed=True, nodes={"standby1": access, "standby2": access})
    said = sentence("too-few-connections", free=free, needed=clients)
    with pytest.raises(ConnectionsError, match=f"^{about}{said}") if free else nullcontext():
        Budget(where, request)


@pytest.mark.parametrize("restart", [None, "true"])
def test_what_a_killed_run_left_changed_is_put_back_before_a_trial_of_a_database_as_it_stands(
    restart, monkeypatch
):
    def put_back(journal):
        assert (journal.terms.restart is not None) == (restart is not None)
        raise ServerError("put back")

    request = work(target=TargetPlan(dsn="host=board", restart=restart)).request
    assert request.as_is
    monkeypatch.setattr(prepare.changes.Journal, "put_back_leftovers", put_back)
    where = Site(Access({}, Path("psql")), managed=False)
    with (
        pytest.raises(ServerError, match="put back"),
        prepare.prepared(where, request, print, check=lambda: None),
    ):
        pass


@pytest.fixture
def answering(monkeypatch):
    """Access to a server that answers."""
    monkeypatch.setattr(target_server, "connect", lambda _: nullcontext())
    return Access({}, Path("psql"))


def test_a_restart_ends_with_its_command_though_the_server_keeps_its_output_open(
    answering, tmp_path
):
    """As a server does that `pg_ctl restart` starts without -l."""
    pid, ended = tmp_path / "pid", tmp_path / "ended"
    restarting(f"(sleep 10; touch '{ended}') & echo $! >'{pid}'", answering)()
    assert not ended.exists()
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_restart_that_fails_is_reported_also_in_words_that_are_not_utf8(answering):
    with raises(ServerError, "restart-failed", code=3, output="gesch\ufffdtzt"):
        restarting("printf 'gesch\\374tzt\\n' >&2; exit 3", answering)()
