"""One table of options: what is typed, what Python passes and what a cell has ask for the same."""

import shlex
from pathlib import Path
from typing import Any

import pytest

import pgpaces
from pgpaces.cli import specs
from pgpaces.cli.main import cli
from pgpaces.cli.sweep import sweep
from pgpaces.core.errors import PlanError
from pgpaces.spec import options
from pgpaces.trial import trial as pipeline
from pgpaces.trial.request import Request
from tests.unit.asked import asked

# An option as it is typed, and as Python has it; each with what it needs beside it.
SAME: dict[str, tuple[str, dict[str, Any]]] = {
    "rate": ("--rate 10", {"rate": 10}),
    "rate_per_client": ("--rate-per-client 2/s -c 4", {"rate_per_client": "2/s", "clients": 4}),
    "clients": ("-c 3", {"clients": 3}),
    "users": ("--users 3 --pace 2", {"users": 3, "pace": 2}),
    "think_time": ("-c 2 --think-time 250ms", {"clients": 2, "think_time": 0.25}),
    "think": ("--think-time 1s --think fixed", {"think_time": 1, "think": "fixed"}),
    "start_every": ("-c 4 --think-time 1s --start-every 2s",
                    {"clients": 4, "think_time": 1, "start_every": 2}),
    "arrivals": ("--rate 5 --arrivals even", {"rate": 5, "arrivals": "even"}),
    "shape": ("--rate 5 --shape day", {"rate": 5, "shape": "day"}),
    "latency_limit": ("-L 500ms -L by_fk1=1s", {"latency_limit": {"": 0.5, "by_fk1": "1s"}}),
    "policy": ("--policy skip --rate 5 -L 1s",
               {"policy": "skip", "rate": 5, "latency_limit": "1s"}),
    "duration": ("-T 90s", {"duration": 90}),
    "transactions": ("-t 7 -c 1", {"transactions": 7, "clients": 1}),
    "warmup": ("--warmup 0", {"warmup": 0}),
    "grace": ("--grace 9s", {"grace": 9}),
    "protocol": ("-M prepared", {"protocol": "prepared"}),
    "describe": ("--describe", {"describe": True}),
    "threads": ("-j 2", {"threads": 2}),
    "generators": ("--generators 4 -c 8", {"generators": 4, "clients": 8}),
    "cluster": ("--cluster tls://localhost:8786", {"cluster": "tls://localhost:8786"}),
    "insecure_cluster": ("--cluster tcp://localhost:8786 --insecure-cluster",
                         {"cluster": "tcp://localhost:8786", "insecure_cluster": True}),
    "poll": ("--poll epoll", {"poll": "epoll"}),
    "seed": ("--seed 7", {"seed": 7}),
    "define": ("-D hot=3 -D cold=x", {"define": {"hot": 3, "cold": "x"}}),
    "set": ("--set work_mem=4MB", {"set": {"work_mem": "4MB"}}),
    "on_connect": ("--on-connect 'SELECT 1'", {"on_connect": ["SELECT 1"]}),
    "connect_each": ("--connect-each", {"connect_each": True}),
    "max_tries": ("--max-tries 3", {"max_tries": 3}),
    "on_error": ("--on-error stop", {"on_error": "stop"}),
    "verbose_errors": ("--verbose-errors", {"verbose_errors": True}),
    "target": ("--target host=pi4", {"target": "host=pi4"}),
    "server": ("--server 15", {"server": "15"}),
    "data_dir": ("--data-dir /mnt/ssd", {"data_dir": Path("/mnt/ssd")}),
    "server_set": ("--server-set jit=off", {"server_set": {"jit": "off"}}),
    "observe_command": ("--target host=pi4 --observe-command x",
                        {"target": "host=pi4", "observe_command": "x"}),
    "profile": ("--profile pi-4gb", {"profile": "pi-4gb"}),
    "tls": ("--tls off", {"tls": False}),
    "own": ("--target host=pi4 --own mine", {"target": "host=pi4", "own": "mine"}),
    "fresh": ("--fresh", {"fresh": True}),
    "standbys": ("--standbys 2", {"standbys": 2}),
    "pool": ("--pool pgbouncer", {"pool": "pgbouncer"}),
    "pool_mode": ("--pool pgbouncer --pool-mode transaction",
                  {"pool": "pgbouncer", "pool_mode": "transaction"}),
    "pool_size": ("--pool pgbouncer --pool-size 3", {"pool": "pgbouncer", "pool_size": 3}),
    "node": ("--standbys 1 --node any --node by_fk1=standby1",
             {"standbys": 1, "node": ["any", "by_fk1=standby1"]}),
    "background": ("--background 'select-only rate=2'",
                   {"background": {"select-only": {"rate": 2}}}),
    "target_node": ("--target host=pi4 --target-node standby1=host=pi5",
                    {"target": "host=pi4", "target_node": {"standby1": "host=pi5"}}),
    "guard": ("--target host=pi4 --no-guard", {"target": "host=pi4", "guard": False}),
    "keep_going": ("--keep-going", {"keep_going": True}),
    "scale": ("-s 4", {"scale": 4}),
    "data_seed": ("--data-seed 5", {"data_seed": 5}),
    "pace": ("--users 2 --pace 1/min", {"users": 2, "pace": "1/min"}),
}  # fmt: skip


class ReachedError(Exception):
    """A run would begin here."""


@pytest.fixture
def reached(monkeypatch):
    found: list[Request] = []

    def run(request: Request, *_: object) -> None:
        found.append(request)
        raise ReachedError

    monkeypatch.setattr(pipeline, "run", run)
    return found


@pytest.mark.parametrize("name", SAME)
def test_what_is_typed_and_what_python_passes_ask_for_the_same(name, reached):
    words, keywords = SAME[name]
    with pytest.raises(ReachedError):
        cli.main(["run", "reporting", *shlex.split(words)], standalone_mode=False)
    with pytest.raises(ReachedError):
        pgpaces.run("reporting", **keywords)
    typed, passed = (each.spec for each in reached)
    assert typed == passed


def test_every_option_of_a_run_is_tried_both_ways():
    assert SAME.keys() == {option.name for option in options.OPTIONS if option.run}
    assert len(options.BY_NAME) == len(options.OPTIONS)


# Written otherwise as a level: several texts, or a name before the DSN.
OTHERWISE = ("latency_limit", "node", "target", "guard")


@pytest.mark.parametrize("name", sorted(options.FACTORS.keys() & SAME.keys() - set(OTHERWISE)))
def test_a_level_asks_for_what_the_option_of_a_run_asks_for(name, tmp_path):
    words, _ = SAME[name]
    flag = " on" if options.BY_NAME[name].flag else ""
    requests = [
        asked([command, "reporting", *shlex.split(words + more)], tmp_path)["same"]
        for command, more in (("run", ""), ("sweep", flag))
    ]
    # An experiment has its own seeds and goal, and puts settings into its cells.
    others = ("seed", "missed", "costs", "set.", "server_set.")
    typed, level = (
        {k: v for k, v in each.items() if not k.startswith(others)} for each in requests
    )
    # Only a run stops when its verdict is certain.
    if typed.get("duration") == "auto":
        typed["duration"] = "1min"
    assert typed == level


@pytest.mark.parametrize(
    ("keyword", "hint"), [("latency_limi", "latency_limit"), ("nonsense", None)]
)
def test_a_keyword_that_is_none_is_refused_with_the_nearest(keyword, hint):
    with pytest.raises(PlanError, match=f"no option '{keyword}'") as found:
        pgpaces.run("reporting", **{keyword: 1})
    assert found.value.hint == (f"did you mean {hint}?" if hint else None)


# As experiments that are stored have them.
ORDER = (
    "clients users rate rate_per_client pace think_time think start_every arrivals shape"
    " latency_limit policy duration transactions warmup grace protocol describe threads poll"
    " connect_each max_tries on_error keep_going guard scale data_seed variant scripts server"
    " data_dir tls target node standbys pool pool_mode pool_size profile"
)


def test_factors_stand_in_the_order_of_stored_designs_however_they_are_typed():
    """An experiment is resumed only with the design that it was begun with."""
    assert [name for name in options.FACTORS if name in ORDER.split()] == ORDER.split()
    words = ["reporting", "--scale", "1,2", "--rate", "5,10", "--server", "15,18", "-c", "1,2"]
    given = sweep.make_context("sweep", words).params
    found = specs.experiment(given | {"what": "reporting"})
    assert found is not None
    assert list(found.design.levels) == ["clients", "rate", "scale", "server"]
