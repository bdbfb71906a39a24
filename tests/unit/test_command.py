"""Commands as a load: what becomes of each execution, and that none outlives us."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgpaces.core.errors import RunError
from pgpaces.database.programs import CommandOrder, Execution, Runner
from pgpaces.load import command
from pgpaces.load.command import SECOND_NS, Books, CommandLoad
from pgpaces.load.composite import Together
from pgpaces.spec.result import Counts, counts
from tests.engine_load import PLAN
from tests.errors import raises
from tests.intervals import failures, messages, total
from tests.needs import needs
from tests.processes import alive, started
from tests.waiting import until

FAST_S = 0.2


def of_shell(text, folder, **more):
    words = ("/bin/sh", "-c", text)
    return CommandOrder(
        name="it", words=words, folder=folder, **{"variables": dict(os.environ)} | more
    )


@pytest.fixture
def runner():
    made = Runner()
    yield made
    made.close()


@pytest.fixture
def many_files():
    """More open files than select can name, as a process with thousands of clients has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(Path(os.devnull).open())
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def load(runner, tmp_path):
    def make(text, order=None, **asked):
        given_ = of_shell(text, tmp_path, ending=((signal.SIGTERM, FAST_S),), **(order or {}))
        return CommandLoad(given_, replace(PLAN, **asked), runner)

    return make


def run(load):
    load.begin(0)
    return list(load)


@pytest.mark.usefixtures("many_files")
def test_a_program_runs_beside_thousands_of_open_files(tmp_path):
    runner = Runner()
    try:
        load = CommandLoad(of_shell("true", tmp_path), replace(PLAN, transactions=1), runner)
        assert total(run(load)).on_time == 1
    finally:
        runner.close()


def test_every_execution_that_succeeds_is_on_time_and_follows_the_one_before(load):
    made, heard = load("true", transactions=5), threading.Event()
    made.then = heard.set
    found = run(made)
    assert heard.wait(60)
    assert total(found) == Counts(due=5, on_time=5)
    ends = [(each.due_ns, each.sent_ns, each.done_ns) for each in made.ended]
    assert all(due <= sent <= done for due, sent, done in ends)
    dues, dones = [due for due, _, _ in ends], [done for _, _, done in ends]
    assert dues[1:] == dones[:-1]
    assert made.end_ns == found[-1].ended_ns
    in_flight = sum(interval.in_flight_ns for interval in found)
    assert in_flight == sum(done - sent for _, sent, done in ends)


@pytest.mark.parametrize(
    ("text", "order", "asked", "said"),
    [
        ("echo out; echo one >&2; printf two >&2; exit 3", {}, {}, {"exit 3": "one\ntwo"}),
        ("echo out; exit 1", {}, {}, {"exit 1": "out"}),
        ("kill -9 $$", {}, {}, {"signal 9": ""}),
        ("sleep 60", {"timeout_s": FAST_S}, {}, {"timeout": ""}),
        ("trap '' TERM; sleep 60; sleep 60", {"timeout_s": FAST_S}, {}, {"timeout": ""}),
        ("exit 0", {"succeeds": (3,)}, {}, {"exit 0": ""}),
        ("echo pass s3cr3t >&2; exit 1", {"secret": "s3cr3t"}, {}, {"exit 1": "pass ***"}),
        # Of two executions each has its own words.
        ("test -e was && exit 4; touch was; echo first >&2", {}, {"transactions": 2},
         {"exit 4": ""}),
        ("true", {}, {"limit_ns": 1}, {}),
        ("exit 3", {"succeeds": (0, 3)}, {}, {}),
    ],
)  # fmt: skip
def test_one_that_fails_is_counted_by_how_it_ended_with_what_it_said(
    load, text, order, asked, said
):
    found = run(load(text, order, **asked))
    late, due = int("limit_ns" in asked), asked.get("transactions", 1)
    assert total(found) == Counts(due, due - late - len(said), late=late, failed=len(said))
    assert failures(found) == dict.fromkeys(said, 1)
    assert messages(found) == said


def test_a_program_that_is_not_there_is_a_failed_execution(runner, tmp_path):
    order = CommandOrder(name="it", words=(str(tmp_path / "absent"),), folder=tmp_path)
    assert failures(run(CommandLoad(order, PLAN, runner))) == {"exit 127": 1}


def test_much_output_is_read_to_its_end_and_only_its_end_is_kept(load):
    text = "yes | head -c 30000000 >&2; head -c 100000 /dev/zero; echo the end >&2; exit 1"
    [said] = messages(run(load(text))).values()
    assert said.endswith("y\nthe end")
    assert len(said) < 6000


def test_so_long_as_something_falls_due_it_is_run_again(load):
    made = load("sleep 0.1", transactions=None, duration_ns=SECOND_NS)
    found = run(made)
    assert total(found).on_time == total(found).due == len(made.ended) > 1
    # What has begun is finished, and the trial is as long as that took.
    assert made.end_ns >= SECOND_NS


@needs("Linux")
def test_the_supervisor_has_none_of_our_variables_of_libpq(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "s3cr3t")
    monkeypatch.setenv("OTHER", "kept")
    runner = Runner()
    variables = Path(f"/proc/{runner.process.pid}/environ")
    found = variables.read_bytes()
    runner.close()
    assert b"s3cr3t" not in found
    assert b"OTHER=kept" in found


def test_a_reader_who_is_late_counts_each_execution_in_its_second(load):
    made = load("sleep 0.3", transactions=None, duration_ns=2 * SECOND_NS)
    made.begin(0)
    time.sleep(2.2)
    found = list(made)
    assert all(tally.due_second <= i.second for i in found for tally in i.tallies)
    assert max(i.in_flight_ns for i in found) <= SECOND_NS


def test_a_warm_up_is_before_second_0(load):
    made = load("sleep 0.1", transactions=None, duration_ns=1, warmup_ns=SECOND_NS)
    found = run(made)
    assert found[0].second == -1
    assert {tally.due_second for i in found for tally in i.tallies} <= {-1, 0}


@pytest.mark.parametrize("how", ["stop", "abort"])
@pytest.mark.parametrize(
    "text",
    [
        "echo $$ > pid; exec sleep 60",
        # One that exits with 0 did not succeed, and one that ignores it is ended by force.
        "trap 'exit 0' TERM; echo $$ > pid; while :; do sleep 0.05; done",
        "trap '' TERM; echo $$ > pid; while :; do sleep 1; done",
    ],
)
def test_one_that_is_stopped_is_unfinished(load, tmp_path, text, how):
    made = load(text, transactions=3)
    stopper = threading.Thread(target=lambda: (started(tmp_path / "pid"), getattr(made, how)()))
    stopper.start()
    assert total(run(made)) == Counts(due=1, unfinished=1)
    stopper.join()
    assert not alive(started(tmp_path / "pid"))
    assert (made.ended, made.cut) == ([], 1)


def test_one_that_is_stopped_after_a_failure_has_no_other_execution(load, monkeypatch):
    made = load("exit 3", transactions=5)

    def sleep(seconds):
        if seconds:  # the pause after a failure
            made.stop()

    clocks = {name: getattr(time, name) for name in ("monotonic_ns", "thread_time_ns")}
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep, **clocks))
    assert total(run(made)) == Counts(due=1, failed=1)


def test_stopped_before_it_began_nothing_runs(load, tmp_path):
    made = load("touch ran")
    made.stop()
    found = run(made)
    assert total(found).on_time == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "detached", ["sleep 60 &", pytest.param("setsid sleep 60 &", marks=needs("Linux"))]
)
def test_what_it_leaves_in_the_background_ends_with_it(load, tmp_path, detached):
    found = run(load(f"{detached} echo $! > pid"))
    assert total(found) == Counts(due=1, on_time=1)
    pid = started(tmp_path / "pid")
    until(lambda: not alive(pid), "what was left has ended")


def test_beside_others_it_ends_with_them_and_the_cut_one_is_not_counted(load, tmp_path):
    own = load("until test -e pid; do sleep 0.05; done")
    other_runner = Runner()
    order = of_shell("echo $$ > pid; exec sleep 60", tmp_path, variables={})
    plan = replace(PLAN, transactions=None)
    other = CommandLoad(order, plan, other_runner, accompanies=True)
    found = run(Together([own], [other]))
    other_runner.close()
    assert total(found) == Counts(due=1, on_time=1)
    [cut] = [note for interval in found for note in interval.notes]
    assert cut.name == "background-cut"
    assert not alive(started(tmp_path / "pid"))


@needs("Linux")
def test_when_its_supervisor_is_killed_the_load_says_so_and_the_command_ends(tmp_path):
    runner = Runner()
    order = of_shell("echo $$ > pid; exec sleep 60", tmp_path, variables={})
    made = CommandLoad(order, PLAN, runner)
    made.begin(0)
    pid = started(tmp_path / "pid")
    os.kill(runner.process.pid, signal.SIGKILL)
    found = []
    with raises(RunError, "supervisor-ended"):
        found += list(made)
    until(lambda: not alive(pid), "the command has ended")
    runner.close()


@needs("Linux")
def test_a_signal_to_its_supervisor_does_not_shorten_a_load(load, runner, tmp_path):
    made = load("touch began; until test -e go; do sleep 0.01; done", transactions=2)
    made.begin(0)
    until((tmp_path / "began").exists, "the command runs")
    os.kill(runner.process.pid, signal.SIGTERM)
    (tmp_path / "go").touch()
    assert total(list(made)) == Counts(due=2, on_time=2)


def test_errors_keep_their_columns_and_the_beginning_of_their_lines(runner, tmp_path):
    text = f"echo 'psql:a.sql:1: ERROR: {'x' * 500}' >&2; echo '     ^' >&2; exit 1"
    execution = runner.run(of_shell(text, tmp_path), 0)
    beginning, caret = execution.output.splitlines()
    assert (beginning[:21], caret) == ("psql:a.sql:1: ERROR: ", "     ^")


PROGRAM = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pgpaces.load.command import CommandLoad
from tests.engine_load import PLAN
from pgpaces.database.programs import CommandOrder, Runner
text = "trap '' TERM; (setsid sleep 60 & echo $! > child); echo $$ > pid; while :; do sleep 1; done"
words, variables = ("/bin/sh", "-c", text), {"PATH": "/usr/bin:/bin"}
order = CommandOrder(name="it", words=words, folder=Path(sys.argv[1]), variables=variables)
scratch = Path(sys.argv[1]) / "scratch"
scratch.mkdir()
load = CommandLoad(order, PLAN, Runner([scratch]))
load.begin()
list(load)
"""


def test_killed_we_leave_no_process_and_no_folder_behind(tmp_path):
    ours = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)])
    pids = [started(tmp_path / name) for name in ("child", "pid")]
    ours.kill()
    ours.wait()
    for pid in pids:
        until(lambda pid=pid: not alive(pid), f"process {pid} has ended")
    until(lambda: not (tmp_path / "scratch").exists(), "the folder is gone")


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3 * SECOND_NS),  # how long it took
        st.sampled_from(["", "exit 1", "timeout", "cut"]),
        st.integers(0, 2),  # seconds that pass before anybody looks
    ),
    max_size=12,
)


@given(STEPS, st.booleans(), st.integers(1, 2 * SECOND_NS) | st.none(), st.booleans())
def test_outcomes_add_up_to_what_was_due_whatever_happens(steps, accompanies, limit, open_end):
    books = Books(limit, accompanies=accompanies)
    now, found, flown = 0, [], 0
    for took, end, pause in steps:
        books.due(now)
        for _ in range(pause):
            second = len(found)
            found.append(books.close(second, (second + 1) * SECOND_NS, 0, last=False))
        execution = Execution(now, now, now + took, "" if end == "cut" else end)
        books.done(execution, 0, end == "cut")
        now, flown = now + took, flown + took * (end != "cut" or not accompanies)
    if open_end:
        books.due(now)
        books.cut()
    found.append(books.close(len(found), max(now, len(found) * SECOND_NS), 0, last=True))
    sums = total(found)
    assert sums.pending == 0
    cuts = sum(end == "cut" for _, end, _ in steps) + open_end
    assert sums.unfinished == (0 if accompanies else cuts)
    assert sums.due == len(steps) + open_end - (cuts if accompanies else 0)
    seconds = {}
    for tally in (tally for interval in found for tally in interval.tallies):
        left = counts([tally])
        seconds[tally.due_second] = seconds.get(tally.due_second, 0) + left.pending
    assert set(seconds.values()) <= {0}
    assert all(interval.in_flight_ns >= 0 for interval in found)
    in_flight = sum(interval.in_flight_ns for interval in found)
    # What is ended with the rest and not counted is in no sum of service times: Little's law.
    assert in_flight == flown if accompanies else in_flight >= flown
