"""The Python API: what its values ask for, and the answers of stored runs. No server is started."""

import gc
import re
from pathlib import Path

import pytest

import pgpaces
from pgpaces.analysis.compare import Verdict
from pgpaces.core.errors import PgpacesError, PlanError
from pgpaces.show import draw
from pgpaces.spec import spec
from pgpaces.spec.load import family, trial_plan
from pgpaces.spec.target import PoolPlan
from pgpaces.trial import trial as pipeline
from tests.errors import raises, sentence
from tests.unit.answered import unpacked
from tests.unit.stored import Kept, keep, opened


class AskedError(Exception):
    def __init__(self, request):
        self.request = request


@pytest.fixture
def asked(monkeypatch):
    def run(request, _):
        raise AskedError(request)

    monkeypatch.setattr(pipeline, "run", run)

    def call(*words, **more):
        with pytest.raises(AskedError) as found:
            pgpaces.run(*words, **more)
        return found.value.request

    return call


def test_a_layout_and_where_the_load_goes(asked):
    found = asked("reporting", standbys=2, pool="pgbouncer", pool_mode="transaction", pool_size=4)
    assert found.target.standbys == 2
    assert found.pool == PoolPlan("pgbouncer", "transaction", 4)
    assert (family(found.spec, "node"), found.background) == ({}, ())
    assert asked("reporting", pool="pgpool").pool == PoolPlan("pgpool", "session", None)
    assert asked("reporting", standbys=1, node="any").spec["node"] == "any"
    assert asked("reporting", node={"by_fk1": "standby1"}).spec["node.by_fk1"] == "standby1"


def test_workloads_at_the_same_time(asked):
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
    assert (reporting.spec["node"], reporting.trial.load.rate) == ("standby1", 2.0)
    assert reporting.trial.limit_ns == 500_000_000
    assert reporting.trial.variables == (("hot", "3"),)
    assert reporting.trial.duration_ns == 7_000_000_000
    assert (reader.workload.name, reader.trial.clients) == ("select-only", 4)
    assert reader.trial.limits == (("select-only", 9_000_000),)


def test_limits_of_scripts_are_stored_as_they_are_asked(asked):
    found = asked("select-only", clients=1, limits=(("select-only", 1_234_567),))
    assert trial_plan(found.spec).limits == found.trial.limits == (("select-only", 1_234_567),)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (None, {}, sentence("nothing-to-run-in-python")),
        ("reporting", {"target": "host=pi4", "profile": "pi-4gb"}, "managed-only --profile"),
        ("reporting", {"target": "host=pi4", "tls": False}, "managed-only --tls"),
        ("reporting", {"target": "host=pi4", "server_set": {"a": 1}}, "only --server-set"),
        ("reporting", {"target": "host=pi4", "standbys": 1}, "managed-only --standbys"),
        ("reporting", {"target": "host=pi4", "pool": "pgpool"}, "managed-only --pool"),
        ("reporting", {"own": "mine"}, "own-without-target"),
        ("reporting", {"variables": {}}, "unknown-keyword"),
        ("reporting", {"profile": "pi-4g"}, sentence("unknown-profile", profile="pi-4g")),
        ("reporting", {"host_file": "/nowhere/host.toml"}, "cannot read '/nowhere/host.toml'"),
        ("reporting", {"pool_mode": "session"}, "--pool-mode .* --pool pgbouncer"),
        ("reporting", {"pool_size": 2}, "--pool-size .* --pool pgbouncer"),
        ("reporting", {"pool": "pgpool", "pool_mode": "transaction"}, "pgpool .* 'transaction'"),
        ("garden", {"background": {"reporting": {"rate": [1, 2]}}}, "several-levels background"),
        ("garden", {"background": {"reporting": {"duration": 1}}}, r"\.duration .* duration "),
        ("garden", {"background": {"a b": {"rate": 1}}}, r"'background\.a b\.rate'"),
        ("garden", {"background": {"nosuch": {"rate": 1}}}, "nosuch"),
        ("garden", {"background": {"reporting": "1/s"}}, r"background\.reporting"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(name, given, said, tmp_path):
    with pytest.raises(PgpacesError) as caught:
        pgpaces.run(name, store=tmp_path / "results.db", **given)
    assert re.search(said, f"{caught.value.name} {caught.value.message}")
    assert not (tmp_path / "results.db").exists()


def test_levels_of_pythons_values():
    found = spec.of_values(
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
    exact = spec.of_values({"define": {"share": 0.12345678, "n": 16777217.0}})
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


OF_ANOTHER_TYPE = [
    *((name, 5) for name in (
        "name", "files", "tasks", "scripts", "from_database", "missed", "store", "host_file",
        "target", "protocol",
    )),
    ("tasks", print), ("on_store_error", "xx"), ("background", "cron"), ("limit_ns", "x"),
    ("rate", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), OF_ANOTHER_TYPE, ids=str)
def test_a_value_of_another_type_is_refused_by_its_keyword(name, value):
    shown = repr(value) if isinstance(value, str | int) else type(value).__name__
    with raises(PlanError, "wrong-type", keyword=name, value=shown) as found:
        pgpaces.run(**{"name": "reporting", name: value})
    assert found.value.values["expected"]


def test_one_file_and_one_script_are_named_alone_or_as_a_path(asked, tmp_path):
    file = tmp_path / "bench.sql"
    file.write_text("SELECT 1")
    for one in (file, str(file), [file]):
        assert [each.name for each in asked(files=one).workload.scripts] == [str(file)]
    assert asked("reporting", scripts="by_fk1") == asked("reporting", scripts=["by_fk1"])
    assert asked(Path("reporting")).workload.name == "reporting"
    with raises(PlanError, "wrong-type", keyword="name", value="5", expected="str"):
        pgpaces.open_run(5)


@pytest.mark.parametrize("tasks", [print, []])
def test_tasks_are_a_list_of_functions(tasks):
    with pytest.raises(PlanError) as found:
        pgpaces.run(tasks=tasks)
    assert "tasks" in f"{found.value} {found.value.hint}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs of two settings, a day apart, among each other."""
    path = tmp_path_factory.mktemp("python")
    store = opened(path)
    for day in range(16):
        name = ("small", "large")[day % 2]
        server = {"settings": {"work_mem": name}}
        run = Kept(f"R{day:02}", 10 - 2 * (day % 2) + day % 3 / 100, at=day, server=server)
        keep(store, run)
        store.tag(name, run.id)
    for clients in (1, 2, 3):
        keep(store, Kept(f"C{clients}", rate=10 * clients, at=30, plan={"clients": clients}))
    return path / "results.db"


def compared(place):
    return pgpaces.compare(
        "small", "large", metric="mean", also=["p95"], factors=["set.work_mem"], store=place
    )


def test_a_comparison_is_a_verdict_with_its_words_and_trials(place):
    found = compared(place)
    assert isinstance(found.value, Verdict)
    assert found.value.outcome == "better"
    assert found.sentences[0].startswith("better: large vs. small")
    assert str(found).splitlines() == list(found.sentences)
    assert repr(found).startswith("<comparison: BETTER large vs. small")
    assert len(found.trials) == 16


def test_what_the_commands_refuse_is_refused(place):
    with raises(PlanError, "differ-in-unnamed"):
        pgpaces.compare("small", "large", store=place)
    with raises(PlanError, "levels-of-stored-trials", levels=["clients"]):
        pgpaces.compare("small", "large", store=place, clients=1)
    with raises(PlanError, "runs-differ"):
        pgpaces.trend("small", "large", store=place)
    assert pgpaces.compare("small", "large", anyway=True, store=place).value.outcome


def test_an_answer_keeps_no_connection_to_the_store(place):
    def descriptors():
        files = (each.resolve() for each in Path("/proc/self/fd").iterdir())
        return sum(str(file).startswith(str(place)) for file in files)

    gc.collect()
    before = descriptors()
    small = ("small", "large")
    answers = [
        pgpaces.open_run("R00", store=place),
        compared(place),
        pgpaces.check("R01", baseline="small", anyway=True, store=place),
        pgpaces.trend(*small, anyway=True, store=place),
        pgpaces.why("R00", store=place),
    ]
    assert descriptors() == before
    assert all(answer.page.digests for answer in answers)
    assert descriptors() == before


def test_a_chart_is_asked_for_by_its_name(place):
    found = compared(place)
    plots = [plot.name for plot in found.figures]
    assert plots == ["comparison-effect"]
    assert found.plot().name == "comparison-effect"
    assert found.plot("comparison-effect").spec["layer"]
    with raises(PlanError, "unknown-chart", chart="p95", charts=", ".join(plots)):
        found.plot("p95")


def test_a_notebook_shows_words_tables_and_charts(place):
    shown = compared(place)._repr_html_()
    assert "<strong>better: large vs. small" in shown
    assert "mean latency, ms" in shown
    if draw.available():
        assert shown.count("<svg") == 1, "the chart that shows it"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    return unpacked(tmp_path_factory.mktemp("frozen"))


def test_a_run_and_an_experiment_are_answers_with_all_that_answers_have(frozen, tmp_path):
    run, sweep = pgpaces.open_run("single", store=frozen), pgpaces.open_sweep("swept", store=frozen)
    for found in (run, sweep):
        assert isinstance(found, pgpaces.Answer)
        assert found.verdict == "FAIL"
        assert repr(found).startswith(("<run: FAIL ", "<sweep: SWEEP "))
        assert len(found.frame()) == len(list(found.frame().rows())) > 1
        assert found.plot().spec["config"]
        assert found.report(tmp_path / "r.md").stat().st_size > 500
        card = found._repr_html_()
        assert ("FAIL" if found is run else "0 pass, 6 fail") in card
        assert card.count("<svg") == draw.available()
    assert run.trials == (run.id,)
    assert run.plot().name == "latency"
    assert set(sweep.trials) == {digest.trial.id for digest in sweep.page.digests}
    assert sweep.plot().name == "missed"
    assert sweep.value == sweep.page.rows
    assert run.value is run.summary
