"""How many connections a load takes of a server that others use, and when it is refused."""

import resource
from pathlib import Path

import pytest

from pgpaces.core.errors import ConnectionsError, RunError
from pgpaces.core.messages import message
from pgpaces.database import identity
from pgpaces.database.access import Access
from pgpaces.database.identity import Room
from pgpaces.load import engine
from pgpaces.spec.load import Load
from pgpaces.spec.target import TargetPlan
from pgpaces.trial.prepare import UNSEEN, Budget, component_loads, threads_for
from pgpaces.trial.target_server import Site
from tests.errors import raises
from tests.unit.components import work

GUEST = TargetPlan(dsn="")
OPEN = {"load": Load("open", 1000.0)}
# Of 60 free ones two are of sensors, two of the guard, and three stay free.
ROOM = Room(100, 37, 60)


@pytest.fixture
def budget(monkeypatch):
    """The budget of a load: its trial, the room of the server, and whether others use it."""

    def budget(trial, room, *, guest=True, **more):
        monkeypatch.setattr(identity, "room", lambda access, guest: room)
        where = Site(Access({"host": "db1"}, Path("psql")), managed=not guest)
        request = work(trial=trial, target=GUEST if guest else TargetPlan(), **more).request
        return Budget(where, request)

    return budget


@pytest.mark.parametrize(
    ("room", "guest", "clients"),
    [
        (ROOM, True, 26),
        (Room(100, 91, 9), True, 1),
        (None, True, UNSEEN),
        (ROOM, False, 56),
        (None, False, 90),
    ],
)
def test_a_load_without_clients_takes_half_of_what_is_free(budget, room, guest, clients):
    assert budget(OPEN, room, guest=guest).clients() == clients


@pytest.mark.parametrize(("clients", "fits"), [(53, True), (54, False)])
def test_clients_that_were_asked_for_leave_three_connections_free(budget, clients, fits):
    if fits:
        budget({"clients": clients}, ROOM)
    else:
        values = {"sessions": 37, "most": 100, "free": 53, "needed": 54, "reserved": 3}
        with raises(ConnectionsError, "too-few-connections-left", **values):
            budget({"clients": clients}, ROOM)


def test_a_full_server_is_refused_before_the_load(budget):
    with raises(ConnectionsError, "too-few-connections-left", sessions=95, most=100, free=0):
        budget(OPEN, Room(100, 95, 5))


def test_the_guard_takes_no_connection_where_there_is_none(budget):
    assert budget({"guard": False, "clients": 55}, ROOM) is not None
    with pytest.raises(ConnectionsError):
        budget({"guard": False, "clients": 56}, ROOM)


@pytest.mark.parametrize(
    ("room", "name", "values"),
    [
        (ROOM, "target", {"others": 37, "free": 60, "most": 100}),
        (Room(9, 1, 8), "target", {"others": 1, "free": 8, "most": 9}),
        (None, "target-without-count", {}),
    ],
)
def test_a_line_says_what_the_load_meets(budget, room, name, values):
    found = budget({"clients": 1, "guard": False, "load": Load("closed")}, room)
    found.clients()
    assert found.line("shop", 4) == message(name, dbname="shop", host="db1", clients=4, **values)


def test_loads_without_clients_share_what_they_may_take():
    found = component_loads([work(trial=OPEN), work(trial=OPEN, name="other")], ("primary",), 40)
    assert [component.clients for component in found] == [20, 20]


@pytest.mark.parametrize(
    ("clients", "cpus", "local", "threads"),
    [
        (1, 2, True, 1),
        (64, 2, True, 1),
        (64, 2, False, 1),
        (64, 16, True, 4),
        (64, 4, False, 3),
        (1000, 16, True, 8),
        (1000, 16, False, 15),
        (8, 64, False, 1),
        (64, 1, False, 1),
    ],
)
def test_threads_depend_on_clients_and_on_whose_the_cpus_are(clients, cpus, local, threads):
    assert threads_for(clients, cpus, each=16, local=local) == threads


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [(64, 4096, 4096), (4096, 4096, None), (64, resource.RLIM_INFINITY, resource.RLIM_INFINITY)],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(monkeypatch, soft, hard, raised):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    engine._raise_open_files(1000)
    assert limits == ([] if raised is None else [(raised, raised)])


def test_clients_for_whom_there_are_no_files_are_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 1024))
    with raises(RunError, "too-few-open-files", clients=1000, own=50, limit=1024):
        engine._raise_open_files(1000)
