"""pgpaces.run and pgpaces.sweep: what their values ask for. No server is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pgpaces
from pgpaces.core.errors import PlanError
from pgpaces.spec import levels
from pgpaces.spec.target_plan import PoolPlan
from pgpaces.trial import trial as pipeline
from pgpaces.trial.request import Request


class AskedError(Exception):
    """Instead of running anything."""

    def __init__(self, request: Request) -> None:
        self.request = request


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a call of pgpaces.run asks for."""

    def run(request: Request, _: object) -> None:
        raise AskedError(request)

    monkeypatch.setattr(pipeline, "run", run)

    def call(*words: Any, **more: Any) -> Request:
        with pytest.raises(AskedError) as found:
            pgpaces.run(*words, **more)
        return found.value.request

    return call


def test_a_layout(asked: Any) -> None:
    found = asked("reporting", standbys=2, pool="pgbouncer", pool_mode="transaction", pool_size=4)
    assert found.target.standbys == 2
    assert found.pool == PoolPlan("pgbouncer", "transaction", 4)
    assert (found.node, found.nodes, found.background) == (None, (), ())


def test_a_pool_without_more_is_one_by_session(asked: Any) -> None:
    assert asked("reporting", pool="pgpool").pool == PoolPlan("pgpool", "session", None)


def test_where_the_load_goes_at_once_or_by_script(asked: Any) -> None:
    assert asked("reporting", standbys=1, node="any").node == "any"
    assert asked("reporting", node={"by_fk1": "standby1"}).nodes == (("by_fk1", "standby1"),)


def test_workloads_at_the_same_time(asked: Any) -> None:
    beside = {
        "reporting": {"node": "standby1", "rate": 2, "latency_limit": 0.5, "define": {"hot": 3}},
        "reader": {
            "workload": "select-only",
            "clients": 4,
            "latency_limit": {"select-only": "9ms"},
        },
        "tpcb-like": {},
    }
    found = dict(asked("simple-update", standbys=1, duration=7, background=beside).background)
    assert list(found) == ["reporting", "reader", "tpcb-like"]
    reporting, reader = found["reporting"], found["reader"]
    assert (reporting.node, reporting.trial.load.rate) == ("standby1", 2.0)
    assert reporting.trial.limit_ns == 500_000_000
    assert reporting.trial.variables == (("hot", "3"),)
    assert reporting.trial.duration_ns == 7_000_000_000
    assert (reader.workload.name, reader.trial.clients) == ("select-only", 4)
    assert reader.trial.limits == (("select-only", 9_000_000),)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pool_mode": "session"}, "needs --pool"),
        ({"pool_size": 2}, "needs --pool"),
        ({"pool": "pgpool", "pool_mode": "transaction"}, "pgpool has no pool mode"),
        ({"background": {"reporting": {"rate": [1, 2]}}}, "a run has one level of each"),
        ({"background": {"reporting": {"duration": 1}}}, "duration is of the whole trial"),
        ({"background": {"a b": {"rate": 1}}}, r"not background\.NAME\.LEVEL"),
        ({"background": {"nosuch": {"rate": 1}}}, "nosuch"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(pgpaces.core.errors.PgpacesError, match=said):
        pgpaces.run("reporting", **given)


def test_levels_of_pythons_values() -> None:
    found = levels.of_values(
        {
            "clients": [1, 2],
            "duration": 5,
            "latency_limit": "5ms",
            "latency_limit.by_fk1": 1.5,
            "set": {"jit": [True, False], "work_mem": "4MB"},
            "rate": None,
            "background": {"r": {"rate": [0.5, 2], "think_time": 0.25, "define": {"n": 1}}},
        }
    )
    # All digits: what a script gets is what was asked for.
    exact = levels.of_values({"define": {"share": 0.12345678, "n": 16777217.0}})
    assert exact == {"define.share": ("0.12345678",), "define.n": ("16777217.0",)}
    assert found == {
        "clients": ("1", "2"),
        "duration": ("5s",),
        "latency_limit": ("5ms",),
        "latency_limit.by_fk1": ("1.5s",),
        "set.jit": ("true", "false"),
        "set.work_mem": ("4MB",),
        "background.r.rate": ("0.5", "2"),
        "background.r.think_time": ("0.25s",),
        "background.r.define.n": ("1",),
    }


def test_a_workload_beside_another_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(PlanError, match=r"background\.reporting"):
        pgpaces.run("simple-update", background={"reporting": "1/s"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (None, {}, "nothing to run was named"),
        ("reporting", {"target": "host=pi4", "profile": "pi-4gb"}, "profile is for managed"),
        ("reporting", {"target": "host=pi4", "tls": False}, "tls is for managed servers"),
        ("reporting", {"target": "host=pi4", "server_settings": {"a": 1}}, "--server-set is"),
        ("reporting", {"target": "host=pi4", "standbys": 1}, "standbys is for managed servers"),
        ("reporting", {"target": "host=pi4", "pool": "pgpool"}, "pool is for managed servers"),
        ("reporting", {"own": "mine"}, "--own needs --target"),
        ("reporting", {"profile": "pi-4g"}, "there is no profile 'pi-4g'"),
        ("reporting", {"host_file": "/nowhere/host.toml"}, "cannot be read"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(
    name: str | None, given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=said):
        pgpaces.run(name, store=tmp_path / "results.db", **given)
    assert not (tmp_path / "results.db").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"name": 5},
        {"files": 5},
        {"tasks": print},
        {"tasks": 5},
        {"scripts": 5},
        {"from_database": 5},
        {"missed": 5},
        {"store": 5},
        {"host_file": 5},
        {"on_store_error": "xx"},
        {"background": "cron"},
        {"target": 5},
        {"variables": 5},
        {"protocol": 5},
        {"limit_ns": "x"},
        {"rate": [1]},
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused_by_its_keyword(given: dict[str, Any]) -> None:
    [(name, value)] = given.items()
    with pytest.raises(PlanError) as found:
        pgpaces.run(**{"name": "reporting", **given})
    shown = repr(value) if isinstance(value, str | int) else f"a {type(value).__name__}"
    assert found.value.message.startswith(f"{name} is {shown}, expected ")
    assert not found.value.message.endswith("expected ")


def test_a_name_of_a_stored_run_is_a_text() -> None:
    with pytest.raises(PlanError, match="name is 5, expected str"):
        pgpaces.open_run(5)  # type: ignore[arg-type]


def test_one_file_and_one_script_are_named_alone_or_as_a_path(asked: Any, tmp_path: Path) -> None:
    file = tmp_path / "bench.sql"
    file.write_text("SELECT 1")
    for one in (file, str(file), [file]):
        assert [each.name for each in asked(files=one).workload.scripts] == [str(file)]
    assert asked("reporting", scripts="by_fk1") == asked("reporting", scripts=["by_fk1"])
    assert asked(Path("reporting")).workload.name == "reporting"


@pytest.mark.parametrize("tasks", [print, []])
def test_tasks_are_a_list_of_functions(tasks: Any) -> None:
    with pytest.raises(PlanError) as found:
        pgpaces.run(tasks=tasks)
    assert "tasks" in f"{found.value} {found.value.hint}"
