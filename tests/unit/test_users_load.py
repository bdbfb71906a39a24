"""Users in processes of their own: all adds up, whatever becomes of them. Without a server."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from typing import Any

import pytest

from pgpaces.core.errors import RunError, WorkloadError
from pgpaces.core.record import Interval
from pgpaces.load.engine import EnginePlan
from pgpaces.load.python_users.load import UsersLoad, by_value, from_value
from pgpaces.load.python_users.order import CODES, UserConnection
from pgpaces.load.python_users.order import SharedCounter as Shared
from pgpaces.load.python_users.process import PipeWriter
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.result import Counts
from pgpaces.spec.users import of_file, of_functions, of_text
from tests.errors import raises, sentence
from tests.intervals import due, failures, said, total
from tests.processes import alive, started
from tests.waiting import until

MS = 1_000_000
HEAD = "import os, time\nfrom pathlib import Path\nfrom pgpaces import task, user\nimport asyncio\n"
ACT = "@task\ndef act(): pass\n"
LOADS = {
    "open": Load("open", rate=400.0),
    "paced": Load("paced", rate=200.0),
    "closed": Load("closed", think_ns=2 * MS),
}
Make = Callable[..., UsersLoad]
# A grace period for loads in which everything is to end, however busy the machine is.
PATIENT = 30_000 * MS


@pytest.fixture
def make(tmp_path):
    made: list[UsersLoad] = []

    def of(
        text: str, load: Load = LOADS["closed"], way: UserConnection | None = None, **asked: Any
    ) -> Any:
        path = tmp_path / "users.py"
        path.write_text(HEAD + text)
        users = of_file(path, path)
        number, clients = asked.pop("threads", 1), asked.pop("clients", 3)
        asked = {"transactions": 20, "duration_ns": None, "grace_ns": 200 * MS} | asked
        if asked["duration_ns"]:
            asked |= {"transactions": None, "warmup_ns": asked.get("warmup_ns", 0)}
        tasks = [(each.name, each.weight) for each in users.tasks]
        plan = EnginePlan.of(
            TrialPlan(load, **asked), clients, number, scripts=[n for n, _ in tasks]
        )
        made.append(UsersLoad(plan, users, tasks, way=way or UserConnection("postgresql:///none")))
        return made[-1]

    yield of
    for load in made:
        load.abort()


def run(load: UsersLoad) -> list[Interval]:
    load.begin()
    return list(load)


def children(load: UsersLoad) -> list[int]:
    return [process.child.pid for process in load._processes]


def is_whole(found: Counts) -> bool:
    ended = found.on_time + found.late + found.skipped + found.failed + found.unfinished
    return found.due == ended


def with_async(text: str, *, kind: str) -> str:
    return text.replace("def act", "async def act") if kind == "coroutines" else text


@pytest.mark.parametrize(
    ("load", "threads", "kind"),
    [("open", 1, "functions"), ("open", 3, "coroutines"), ("paced", 1, "coroutines"),
     ("paced", 3, "functions"), ("closed", 1, "functions"), ("closed", 3, "coroutines")],
)  # fmt: skip
def test_a_load_by_count_does_that_many_actions_of_each_user(make, load, threads, kind):
    made = make(with_async(ACT, kind=kind), LOADS[load], threads=threads, transactions=10)
    found = run(made)
    assert total(found) == Counts(due=30, on_time=30)
    assert made.end_ns == found[-1].ended_ns
    assert sum(len(set(interval.cpu_ns)) for interval in found) > 0
    assert len(found[-1].cpu_ns) == threads


@pytest.mark.parametrize(("load", "kind"), [("open", "functions"), ("paced", "coroutines")])
def test_what_falls_due_is_the_same_whatever_the_number_of_processes(make, load, kind):
    text = with_async("@task(weight=2)\ndef look(): pass\n" + ACT, kind=kind)
    text = text.replace("def look", "async def look") if kind == "coroutines" else text
    asked = {"duration_ns": 300 * MS, "warmup_ns": 100 * MS, "grace_ns": PATIENT}
    found = [run(make(text, LOADS[load], threads=n, **asked)) for n in (1, 3)]
    assert due(found[0]) == due(found[1])
    assert {second for second, _ in due(found[0])} == {-1, 0}
    assert {script for _, script in due(found[0])} == {0, 1}
    assert all(total(each).on_time == total(each).due > 50 for each in found)


def test_the_number_that_processes_share_is_given_to_one_of_them_each():
    shared = Shared()
    other = Shared(os.dup(shared.file))
    taken: list[int] = []
    threads = [
        threading.Thread(target=lambda c=c: taken.extend(c.take() for _ in range(500)))
        for c in (shared, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Locks of a file are a process's: the two take turns only by each one's own lock.
    assert shared.count == other.count <= 1000
    assert len(taken) == 1000


@pytest.mark.parametrize(
    ("kind", "load"),
    [
        pytest.param("functions", Load("closed"), marks=pytest.mark.slow),
        ("coroutines", Load("paced", rate=100.0, arrivals="even")),
    ],
)
def test_users_begin_one_after_another(make, kind, load):
    text = with_async(ACT, kind=kind)
    found = run(make(text, load, threads=2, start_every_ns=600 * MS, transactions=1))
    assert due(found) == {(0, 0): 2, (1, 0): 1}


@pytest.mark.parametrize(("load", "kind"), [("open", "threads"), ("paced", "coroutines")])
def test_what_is_left_over_at_the_end_is_unfinished_and_nothing_more_is_begun(make, load, kind):
    act = "time.sleep(0.003)" if kind == "threads" else "await asyncio.sleep(0.003)"
    text = with_async(f"@task\ndef act(): {act}\n", kind=kind)
    made = make(text, Load(load, rate=20_000.0), duration_ns=500 * MS, grace_ns=1, threads=2)
    found = total(run(made))
    assert found.unfinished > 0
    assert is_whole(found)


def test_a_stop_before_the_beginning_is_one_at_the_beginning(make):
    made = make(ACT, LOADS["open"], duration_ns=3600 * 10**9)
    made.stop()
    assert is_whole(total(run(made)))
    assert made.end_ns < 60 * 10**9


def test_what_is_later_than_the_limit_when_a_user_is_free_is_skipped(make):
    text = "@task\ndef act(loop):\n    time.sleep(0.2 if loop == 1 else 0)\n"
    load = Load("paced", rate=100.0, arrivals="even")
    asked = {"policy": "skip", "limit_ns": 20 * MS, "duration_ns": 300 * MS, "clients": 1}
    asked["grace_ns"] = PATIENT
    found = total(run(make(text, load, **asked)))
    assert is_whole(found)
    assert found.due == 30
    assert found.late >= 1
    assert found.skipped >= 15
    assert found.unfinished == found.failed == 0


def test_a_task_with_a_limit_of_its_own_is_late_by_that(make):
    text = "@task\ndef slow(): time.sleep(0.002)\n@task\ndef fast(): pass\n"
    found = run(make(text, limits=(("slow", MS),)))
    late = Counter({t.script: t.late for i in found for t in i.tallies if t.late})
    assert set(late) == {0}
    assert total(found).late == sum(t.due for i in found for t in i.tallies if t.script == 0)


def test_actions_know_their_number_and_each_user_has_random_numbers_of_its_own(make):
    text = (
        "@task\ndef act(number, loop, rng, dsn, town):\n"
        "    print(number, loop, rng.random(), dsn, town)\n"
    )
    way = UserConnection("postgresql:///d", {"town": "Ulm"})
    found = [said(run(make(text, way=way, transactions=2, threads=n))) for n in (1, 2)]
    assert sorted(found[0]) == sorted(found[1])
    words = [line.split() for line in sorted(found[0])]
    assert [(w[0], w[1]) for w in words] == [(str(n), str(k)) for n in range(3) for k in (1, 2)]
    assert len({w[2] for w in words}) == 6
    assert {(w[3], w[4]) for w in words} == {("postgresql:///d", "Ulm")}


@pytest.mark.parametrize("kind", ["functions", "coroutines"])
def test_each_user_sets_up_once_and_tears_down_once(make, tmp_path, kind):
    text = (
        "@user\ndef own(number, folder):\n"
        "    (Path(folder) / f'up {number}').touch(exist_ok=False)\n"
        "    yield number\n"
        "    (Path(folder) / f'down {number}').touch(exist_ok=False)\n"
        "@task\ndef act(mine, number):\n    assert mine == number\n"
    )
    if kind == "coroutines":
        text = text.replace("def ", "async def ")
    load = make(text, way=UserConnection("postgresql:///d", {"folder": str(tmp_path)}), threads=2)
    assert sorted(p.name for p in tmp_path.glob("up *")) == ["up 0", "up 1", "up 2"]
    assert total(run(load)).on_time == 60
    assert sorted(p.name for p in tmp_path.glob("down *")) == ["down 0", "down 1", "down 2"]


@pytest.mark.parametrize(
    ("kind", "own", "message"),
    [
        ("functions", "raise OSError('no way')\n    yield", "OSError: no way"),
        ("coroutines", "raise OSError('no way')\n    yield", "OSError: no way"),
        ("functions", "if False: yield", ""),
        ("coroutines", "if False: yield", ""),
        ("functions", "import no_such_driver\n    yield", "ModuleNotFoundError: No"),
        ("functions", "raise OSError(dsn)\n    yield", r"OSError: postgres.*\*\*\*"),
        ("functions", "if number: time.sleep(3600)\n    1 / 0\n    yield", "ZeroDivisionError"),
        ("functions", "raise SystemExit('no')\n    yield", "SystemExit: no"),
        ("coroutines", "raise SystemExit('no')\n    yield", "SystemExit: no"),
    ],
)
def test_a_set_up_that_fails_refuses_the_load_and_leaves_nothing(make, kind, own, message):
    text = f"@user\ndef own(dsn, number):\n    {own}\n@task\ndef act(mine): pass\n"
    if kind == "coroutines":
        text = text.replace("def ", "async def ")
    before = threading.active_count()
    way = UserConnection("postgresql:///d?password=s3cr%20t", secrets=("s3cr t",))
    name = "set-up-failed" if message else "set-up-yields-nothing"
    with pytest.raises(WorkloadError, match=sentence(name, user="[012]", why=f".*{message}")):
        make(text, way=way, threads=2 if "number" in own else 1)
    until(lambda: threading.active_count() <= before, "threads ended")


def test_what_is_lost_is_made_again_and_the_action_is_a_failure(make):
    text = (
        "class Thing:\n    closed = False\n"
        "@user\ndef own(number):\n    print('up', number)\n    yield Thing()\n"
        "@task\ndef act(thing, loop):\n"
        "    assert not thing.closed\n"
        "    thing.closed = loop % 5 == 0\n"
        "    if thing.closed: raise ConnectionError('gone')\n"
    )
    found = run(make(text, clients=1))
    assert total(found) == Counts(due=20, on_time=16, failed=4)
    assert failures(found) == {"ConnectionError": 4}
    assert said(found) == ["up 0"] * 5


def test_modules_beside_the_file_are_found_also_when_functions_run(make, tmp_path):
    (tmp_path / "beside_the_users.py").write_text("TOWN = 'Ulm'\n")
    text = "@task\ndef act():\n    import beside_the_users\n    print(beside_the_users.TOWN)\n"
    assert said(run(make(text, transactions=1, clients=1))) == ["Ulm"]


FAILS = """
class Broken(Exception):
    def __str__(self): raise ValueError
    @property
    def sqlstate(self): raise ValueError

def state(**of):
    error = ValueError("of a driver")
    error.__dict__.update(of)
    return error

ERRORS = [
    ValueError("why"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), Broken(),
    UnicodeError("\\udcff"), state(sqlstate="40001"), state(orig=state(pgcode="23505")),
    state(sqlstate="no"), state(sqlstate=None), state(sqlstate="~0000"),
]

@task
def act(loop):
    if loop <= len(ERRORS):
        raise ERRORS[loop - 1]
"""
CLASSES = {
    **dict.fromkeys(("SystemExit", "KeyboardInterrupt", "CancelledError", "Broken"), 3),
    **{"UnicodeError": 3, "40001": 3, "23505": 3, "ValueError": 12},
}


@pytest.mark.parametrize("kind", ["functions", "coroutines"])
def test_a_task_that_raises_is_a_failed_action_by_sqlstate_or_class(make, kind):
    found = run(make(with_async(FAILS, kind=kind)))
    assert total(found) == Counts(due=60, on_time=27, failed=33)
    assert failures(found) == CLASSES
    assert {code for interval in found for code, _ in interval.messages} == set(CLASSES)


def test_classes_of_the_same_name_in_several_processes_are_one(make):
    text = (
        "@task\ndef act(number, loop):\n"
        "    raise (ValueError, KeyError, OSError)[(number + loop) % 3]('why')\n"
    )
    found = run(make(text, transactions=3, threads=3))
    assert failures(found) == {"ValueError": 3, "KeyError": 3, "OSError": 3}


def test_more_classes_than_there_are_codes_are_counted_as_one(make):
    text = (
        "@task\ndef act(loop, number):\n    raise type(f'Own{number}_{loop}', (Exception,), {})\n"
    )
    found = failures(run(make(text, transactions=CODES + 10, clients=2, threads=2)))
    assert found.total() == 2 * (CODES + 10)
    assert found["Own0_1"] == found["Own1_1"] == 1
    assert found["Exception"] == 2 * 11


def test_messages_say_where_and_hide_the_secret(make):
    text = "@task\ndef act(dsn):\n    print(dsn)\n    raise ValueError(f'{dsn} s3cr t')\n"
    way = UserConnection("postgresql:///d?password=s3cr%20t", secrets=("s3cr t",))
    found = run(make(text, way=way, transactions=1))
    [(_, message)] = {m for interval in found for m in interval.messages}
    assert message.startswith("ValueError: postgresql:///d?password=*** *** (")
    assert message.endswith("users.py:8)")
    assert set(said(found)) == {"postgresql:///d?password=***"}


def test_prints_arrive_as_whole_lines_from_the_first_to_the_last(make):
    text = (
        "import logging\nlogging.basicConfig(format='%(message)s')\nprint('read')\n"
        "@user\ndef own():\n    print('up')\n    yield 1\n"
        "@task\ndef act(mine, loop):\n"
        "    print('one', end=' ')\n    print('line\\nand another \\udcff')\n"
        "    logging.warning('logged')\n"
        "    if loop == 2: print('the end', end='')\n"
    )
    found = said(run(make(text, clients=1, transactions=2)))
    lines = ["one line", "and another \\udcff", "logged"]
    assert found == ["read", "up", *lines, *lines, "the end"]
    # A line without an end arrives in parts.
    text = "@task\ndef act(): print('.' * 3000, end='')\n"
    found = said(run(make(text, clients=1, transactions=3)))
    assert [len(line) for line in found] == [6000, 3000]


@pytest.mark.parametrize(
    ("kind", "load", "text"),
    [
        ("functions", "open", "threading.Event().wait()"),
        ("functions", "closed", "while True: pass"),
        ("coroutines", "closed", "await asyncio.Event().wait()"),
        pytest.param("coroutines", "open", "while True: pass", marks=pytest.mark.slow),
    ],
)
def test_a_task_that_hangs_is_unfinished_when_the_grace_period_is_over(make, load, kind, text):
    act = f"import threading\n@task\ndef act(number, loop):\n    if loop == 3:\n        {text}\n"
    # So long that all have come so far, also where others take the CPUs.
    asked = {"duration_ns": 1000 * MS, "threads": 2}
    made = make(with_async(act, kind=kind), LOADS[load], **asked)
    found = run(made)
    assert is_whole(total(found))
    assert total(found).unfinished >= 3
    assert not any(alive(pid) for pid in children(made))


def test_a_task_that_holds_the_interpreter_ends_its_process_which_says_where(make):
    text = "@task\ndef act(loop):\n    if loop == 3: -1 in iter(range(10**15))\n"
    made = make(text, LOADS["paced"], duration_ns=1000 * MS, grace_ns=1, clients=1)
    made.begin()
    found: list[Interval] = []
    with raises(RunError, "users-stuck") as caught:
        found.extend(iter_into(made, found))
    where = caught.value.values["stack"].splitlines()
    assert len(where) == 1
    assert where[0].endswith('users.py", line 7 in act')
    assert is_whole(total(found))


def iter_into(load: UsersLoad, found: list[Interval]) -> Iterator[Interval]:
    """Keeps what comes before an error."""
    for interval in load:
        found.append(interval)
    yield from ()


@pytest.mark.parametrize("load", ["open", "closed"])
def test_a_process_that_is_killed_ends_the_load_with_an_error_and_all_adds_up(make, load):
    text = (
        "@task\ndef act(number, loop):\n    if (number, loop) == (0, 9): os.kill(os.getpid(), 9)\n"
    )
    made = make(text, LOADS[load], duration_ns=3_600_000 * MS, threads=3)
    made.begin()
    found: list[Interval] = []
    with raises(RunError, "users-killed", signal=9):
        list(iter_into(made, found))
    assert is_whole(total(found))
    assert total(found).on_time > 0
    assert not any(alive(pid) for pid in children(made))


def test_a_process_that_ends_itself_says_its_last_words(make):
    text = "@task\ndef act():\n    os.write(2, b'out of luck s3cr3t\\n')\n    os._exit(7)\n"
    made = make(text, way=UserConnection("postgresql:///d", secrets=("s3cr3t",)), clients=1)
    with raises(RunError, "users-ended", code=7, output=":\nout of luck ***"):
        run(made)


def test_programs_that_tasks_have_started_end_with_them(make, tmp_path):
    text = f"@task\ndef act(): os.system('echo $$ > {tmp_path}/pid; exec sleep 3600')\n"
    made = make(text, duration_ns=3_600_000 * MS, clients=1)
    made.begin()
    pid = started(tmp_path / "pid")
    made.abort()
    assert total(list(made)).unfinished == 1
    until(lambda: not alive(pid), "the program ended")


@pytest.mark.parametrize(
    ("load", "kind"), [("open", "functions"), ("paced", "coroutines"), ("closed", "functions")]
)
def test_it_is_stopped_from_another_thread_and_nothing_new_falls_due(make, load, kind):
    asked = {"duration_ns": 3_600_000 * MS, "grace_ns": PATIENT, "threads": 2}
    made = make(with_async(ACT, kind=kind), LOADS[load], **asked)
    made.begin()
    threading.Timer(0.5, made.stop).start()
    found = list(made)
    assert is_whole(total(found))
    assert total(found).on_time == total(found).due > 0
    assert made.end_ns < 3_600_000 * MS


@pytest.mark.parametrize("kind", ["functions", "coroutines"])
def test_it_is_aborted_and_what_goes_on_is_unfinished(make, kind):
    wait = "await asyncio.Event().wait()" if kind == "coroutines" else "time.sleep(3600)"
    text = f"@task\ndef act(number): {wait}\n"
    load = Load("closed")
    made = make(with_async(text, kind=kind), load, duration_ns=3_600_000 * MS, threads=2)
    made.begin()
    threading.Timer(0.5, made.abort).start()
    found = list(made)
    assert total(found).due == total(found).unfinished == 3
    assert not any(alive(pid) for pid in children(made))


@pytest.mark.parametrize("load", ["open", "paced"])
def test_what_would_have_been_due_behind_an_abort_does_not_count(make, load):
    made = make(ACT, LOADS[load], duration_ns=3_600_000 * MS, threads=2)
    made.begin()
    threading.Timer(0.05, made.abort).start()
    found = list(made)
    assert is_whole(total(found))
    assert all(interval.pending_ns >= 0 <= interval.waited_ns for interval in found)


@pytest.mark.parametrize("end", ["stop", "abort"])
def test_one_that_is_ended_in_its_warm_up_does_not_go_on_with_it(make, end):
    made = make(ACT, LOADS["open"], duration_ns=3_600_000 * MS, warmup_ns=3_600_000 * MS)
    made.begin()
    threading.Timer(0.05, getattr(made, end)).start()
    assert is_whole(total(list(made)))
    assert made.end_ns < 0


def test_one_that_is_aborted_before_it_begins_leaves_nothing(make):
    made = make(ACT, LOADS["open"], threads=2, duration_ns=1000 * MS)
    made.abort()
    assert not any(alive(pid) for pid in children(made))
    assert total(run(made)) == Counts()


def test_one_that_is_stopped_while_it_begins_has_begun_before(make, monkeypatch):
    made = make(ACT, duration_ns=3_600_000 * MS)
    say = made._say

    def stopped(kind: str, *words: object) -> None:
        if kind == "begin":  # as another thread may do
            made.stop()
        say(kind, *words)

    monkeypatch.setattr(made, "_say", stopped)
    assert is_whole(total(run(made)))


def test_one_that_nobody_keeps_leaves_nothing(tmp_path):
    plan = EnginePlan.of(TrialPlan(Load("closed")), 1, 1, scripts=["<lambda>"])
    load = UsersLoad(
        plan, of_functions([lambda: None]), [("<lambda>", 1)], way=UserConnection("postgresql:///d")
    )
    [pid] = children(load)
    del load
    until(lambda: not alive(pid), "its process ended")


KILLED = """
import sys
from multiprocessing import Pipe
from pathlib import Path
from pgpaces.load.engine import EnginePlan
from pgpaces.load.python_users.load import UsersLoad
from pgpaces.load.python_users.order import UserConnection
from pgpaces.load.python_users.process import PipeWriter
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.users import of_file
users = of_file(Path(sys.argv[1]), Path(sys.argv[1]))
plan = EnginePlan.of(TrialPlan(Load("closed"), grace_ns=1), 2, 2, scripts=["act"])
load = UsersLoad(plan, users, [("act", 1)], way=UserConnection("postgresql:///d"))
print(*(process.child.pid for process in load._processes), flush=True)
load.begin()
list(load)
"""


@pytest.mark.parametrize(
    "act", ["time.sleep(3600)", pytest.param("-1 in iter(range(10**15))", marks=pytest.mark.slow)]
)
def test_when_we_are_killed_no_process_of_users_is_left(tmp_path, act):
    path = tmp_path / "users.py"
    path.write_text(f"{HEAD}@task\ndef act(): {act}\n")
    words = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)), "processes of users ended")


def test_when_we_are_killed_no_program_of_users_is_left(tmp_path):
    path, noted = tmp_path / "users.py", tmp_path / "pids"
    path.write_text(
        f"import subprocess\n{HEAD}@task\ndef act():\n"
        "    with subprocess.Popen(['sleep', '300']) as program:\n"
        f"        with open({str(noted)!r}, 'a') as file:\n"
        "            file.write(f'{program.pid}\\n')\n"
    )
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as we:
        until(lambda: noted.exists() and noted.read_text().count("\n") == 2, "programs started")
        os.kill(we.pid, signal.SIGKILL)
    pids = [int(word) for word in noted.read_text().split()]
    until(lambda: not any(map(alive, pids)), "programs of users ended")


NOTEBOOK = """
from pgpaces import task, user
from pgpaces.load.engine import EnginePlan
from pgpaces.load.python_users.load import UsersLoad
from pgpaces.load.python_users.order import UserConnection
from pgpaces.load.python_users.process import PipeWriter
from pgpaces.spec.load import Load, TrialPlan
from pgpaces.spec.result import counts
from pgpaces.spec.users import of_functions

GREETING = "hello"

class Basket:
    def fill(self): return GREETING

@user
def own():
    yield Basket()

def greet(basket): return basket.fill()

@task(weight=2)
def look(basket, number, loop):
    if loop == 1: print(greet(basket), number)

def of(text): return lambda basket: text.upper()

users = of_functions([own, look, of("x")])
names = [(each.name, each.weight) for each in users.tasks]
plan = TrialPlan(Load("closed"), duration_ns=None, transactions=5)
plan = EnginePlan.of(plan, 4, 2, scripts=[name for name, _ in names])
load = UsersLoad(plan, users, names, way=UserConnection("postgresql:///d"))
load.begin()
found = list(load)
print(names, counts(t for i in found for t in i.tallies).on_time)
print(sorted({text.split()[0] for i in found for _, text in i.lines}))
"""


def test_functions_of_a_program_that_was_typed_in_are_sent_by_value(tmp_path):
    given: dict[str, Any] = {"input": NOTEBOOK, "text": True, "cwd": tmp_path}
    done = subprocess.run([sys.executable, "-"], check=True, capture_output=True, **given)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[('look', 2), ('<lambda>', 1)] 20", "['hello']"]


def test_a_file_of_users_travels_with_the_modules_that_it_imports(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "shop_things").mkdir(parents=True)
    (here / "shop_things/__init__.py").write_text("")
    (here / "shop_things/words.py").write_text("GREETING = 'hello'\n")
    (here / "unrelated.py").write_text("raise SystemExit\n")
    (here / "users.py").write_text(
        "from pgpaces import task\nfrom shop_things.words import GREETING\n"
        "@task\ndef greet(connection): return GREETING\n"
    )
    data = by_value(of_file(here / "users.py", here / "users.py"))
    shutil.rmtree(here)
    for name in [each for each in sys.modules if each.startswith("shop_things")]:
        del sys.modules[name]
    arrived = from_value(data, there)
    assert sorted(path.name for path in there.rglob("*.py")) == ["__init__.py", "words.py"]
    assert arrived.path is not None
    [greet] = of_text(arrived.text, arrived.path, there).tasks
    assert greet.function(None) == "hello"
    alone = from_value(by_value(of_functions([lambda connection: 7])), tmp_path / "none")
    assert alone.tasks[0].function(None) == 7
    assert not (tmp_path / "none").exists(), "functions need no file"


def test_what_cannot_be_sent_to_another_process_is_a_sentence():
    lock = threading.Lock()

    def act() -> None:
        lock.acquire()

    plan = EnginePlan.of(TrialPlan(Load("closed")), 1, 1, scripts=["act"])
    with pytest.raises(WorkloadError, match=sentence("tasks-not-sent", why=".*lock")):
        UsersLoad(plan, of_functions([act]), [("act", 1)], way=UserConnection("postgresql:///d"))


def test_where_all_users_are_busy_a_probe_tells_how_late_the_process_is(make):
    text = "@task\ndef act(): time.sleep(0.1)\n"
    found = run(make(text, Load("closed"), transactions=3, clients=1))
    assert sum(interval.dispatch.count for interval in found) >= 10


def test_integrals_of_what_is_in_flight_agree_with_the_times_of_actions(make):
    text = "@task\ndef act(): time.sleep(0.001)\n"
    found = run(make(text, LOADS["open"], threads=2, duration_ns=300 * MS, grace_ns=PATIENT))
    tallies = [tally for interval in found for tally in interval.tallies]
    latency_ns = sum(t.latency.sum_ns for t in tallies)
    service_ns = sum(t.service.sum_ns for t in tallies)
    assert sum(i.pending_ns for i in found) == latency_ns == sum(i.waited_ns for i in found)
    assert sum(i.in_flight_ns for i in found) == service_ns


def test_who_does_not_listen_for_a_while_keeps_nobody_and_hears_all_of_it_later():
    ours, theirs = Pipe()
    teller = PipeWriter(theirs)
    for number in range(50):  # more than a socket takes
        teller.send(number, b"." * 100_000)
    assert [ours.recv()[0] for _ in range(50)] == list(range(50))
    teller.end()


@pytest.mark.parametrize(
    "text",
    [
        "async def query(): pass\n@task\nasync def act(): query()\n",
        "async def query(): pass\n@task\ndef act(): query()\n",
    ],
    ids=["coroutines", "functions"],
)
def test_a_task_that_does_not_wait_for_what_it_begins_makes_the_trial_invalid(make, text):
    made = make(text)
    assert total(run(made)).on_time == 60, "it looks well"
    [found] = [each for each in made.findings if each.severity == "invalid"]
    assert found.name == "task-not-awaited"
    assert "coroutine 'query' was never awaited" in found.values["task"]
