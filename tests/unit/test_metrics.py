"""Metrics of a load: what is exported of a trial, in which form, and what a wrong option says."""

import http.client
import io
import json
import os
import platform
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from prometheus_client.parser import text_string_to_metric_families

from pgpaces.cli import progress
from pgpaces.cli.main import cli
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.messages import message
from pgpaces.spec.result import Place, Trial
from pgpaces.store.store import Store
from pgpaces.web import companion
from pgpaces.web.companion import Companion, Outputs
from pgpaces.web.exporters import Port, Sender
from pgpaces.web.listening import listen
from pgpaces.web.live import ProcessLoad
from pgpaces.web.metrics import INSTRUMENTS, LADDER_NS, Feed, Totals, metrics_data
from tests.errors import raises, sentence
from tests.otlp import Receiver
from tests.unit.calling import refused
from tests.unit.reports import NASTY
from tests.unit.stored import SCRIPTS, opened
from tests.unit.trials import second, series, times, trial

ROOT = Path(__file__).parents[2]
LIMIT_NS = 15_000_000
MS = 1_000_000


def head(state: str = "running", **changes: Any) -> Trial:
    """A trial of a script with a limit of 15 ms, which is between two steps of the ladder."""
    plan = {"limit_ns": LIMIT_NS, "rate": 10.0}
    return trial([], **{"plan": plan, "intervals": (), "state": state, **changes})


def totals(state: str = "running", **changes: Any) -> Totals:
    """Two seconds of 10 transactions, of which 3 are late, 1 failed and 1 is skipped."""
    sums = Totals(head(state, **changes), "nightly")
    late = {"on_time": 5, "late": 3, "due": 10, "skipped": 1, "failed": {"40001": 1}}
    cpu_ns, dispatch = (250 * MS, 500 * MS), times([0.5] * 2)
    more: Any = {"cpu_ns": cpu_ns, "dispatch": dispatch, "pending_ns": 2_000 * MS}
    for number in (-1, 0, 1):
        interval = second(number, [1.0] * 4 + [14.999] + [15.2, 16.0, 400.0], **late)
        sums.add(replace(interval, **more))
    return sums


def metrics(*trials: Totals) -> dict[str, list[Any]]:
    """The data points that are exported, by the name of their metric."""
    [resource] = metrics_data(trials or (totals(),)).resource_metrics
    [scope] = resource.scope_metrics
    return {each.name.removeprefix("pgpaces."): [*each.data.data_points] for each in scope.metrics}


def point(name: str, *trials: Totals, **labels: str) -> Any:
    """The only data point with these labels."""
    [found] = [p for p in metrics(*trials)[name] if labels.items() <= dict(p.attributes).items()]
    return found


def value(name: str, *trials: Totals, **labels: str) -> float:
    return point(name, *trials, **labels).value


def at_most(histogram: Any, seconds: float) -> int:
    """How many times of a histogram are not above one of its bounds."""
    place = list(histogram.explicit_bounds).index(seconds)
    return sum(histogram.bucket_counts[: place + 1])


def test_late_is_what_lies_above_the_bucket_of_the_limit_exactly():
    latency = point("latency", phase="measured")
    assert latency.count - at_most(latency, LIMIT_NS / 1e9) == 6
    assert all(count >= 0 for count in latency.bucket_counts)
    assert latency.bucket_counts[-1] == 0
    assert sum(latency.bucket_counts) == latency.count == 16
    assert latency.sum == pytest.approx(2 * (4 * 1.0 + 14.999 + 15.2 + 16.0 + 400.0) / 1e3)


def test_sums_and_buckets_never_decrease_and_count_from_the_start_of_the_trial():
    sums, before = totals(), metrics(totals())
    # 15.001 ms is late, but 3 significant digits cannot tell it from the limit.
    sums.add(second(2, [14.0, 15.001], on_time=1, late=1, due=2))
    after = metrics(sums)
    for name in ("due", "transactions", "retries", "errors", "generator_cpu"):
        for one, other in zip(before[name], after[name], strict=True):
            assert one.attributes == other.attributes
            assert one.value <= other.value
    for name in ("latency", "lag", "dispatch_lag"):
        for one, other in zip(before[name], after[name], strict=True):
            buckets = zip(one.bucket_counts, other.bucket_counts, strict=True)
            assert all(a <= b for a, b in buckets)
    points = [each for name in after for each in after[name]]
    assert {each.start_time_unix_nano for each in points} == {sums.started_ns}
    latency = point("latency", sums, phase="measured")
    assert latency.count - at_most(latency, LIMIT_NS / 1e9) == 7


def test_a_trial_has_labels_of_its_experiment_and_none_that_is_empty():
    assert list(metrics()) == list(INSTRUMENTS)
    labels = point("trial_info").attributes
    assert labels["experiment"] == "nightly"
    assert "cell" not in labels
    placed = totals(place=Place("01E", "clients=4", {"clients": "4"}, 2))
    labels = point("trial_info", placed).attributes
    assert (labels["cell"], labels["block"], labels["experiment_id"]) == ("clients=4", "2", "01E")
    names = set(metrics(totals("finished")))
    assert "due" in names, "counters stay"
    assert not names & {"trial_info", "in_flight", "backlog"}
    unlimited = totals(plan={"limit_ns": None, "policy": "run", "model": "open"})
    bounds = point("latency", unlimited, phase="measured").explicit_bounds
    assert bounds == [ns / 1e9 for ns in LADDER_NS]
    assert "latency_limit" not in metrics(unlimited)


def test_a_background_workload_is_told_apart_and_has_its_own_limit():
    component = {"clients": 1, "scripts": ("report",), "workload": "reporting", "of": "night"}
    plan = {"limit_ns": LIMIT_NS, "policy": "run", "model": "open", "limits": [["a", 5 * MS]]}
    plan["components"] = [{"clients": 1, "scripts": ["a"]}, {**component, "limit_ns": 9 * MS}]
    scripts = [{"name": n, "weight": 1, "commands": []} for n in ("a", "report")]
    both = Totals(head(plan=plan, workload={"name": "w", "scripts": scripts}))
    both.add(second(0, [1.0], 0))
    both.add(second(1, [1.0], 1))
    assert value("due", both, workload="w", script="a") == 1
    assert value("due", both, workload="reporting", background="night") == 1
    assert value("latency_limit", both, script="a") == 0.005
    assert value("latency_limit", both, script="report") == 0.009


@pytest.fixture
def port():
    opened_port = Port(listen("127.0.0.1", 0))
    opened_port.start()
    opened_port.data = metrics_data([totals()])
    yield opened_port
    opened_port.close()


LABELS = ("outcome", "le", "sqlstate", "thread")


def got(port: Port, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*port.socket.getsockname()[:2], timeout=60)
    connection.request("GET", path, headers={"Host": "localhost", **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


# As docs/how-to/metrics.md and the dashboard of Grafana name them.
KINDS = {
    "counter": "due_total transactions_total retries_total errors_total"
    " generator_cpu_seconds_total",
    "gauge": "trial_info latency_limit_seconds in_flight backlog",
    "histogram": "latency_seconds lag_seconds dispatch_lag_seconds",
}
EXPORTED = {f"pgpaces_{name}": kind for kind, names in KINDS.items() for name in names.split()}


def test_prometheus_reads_what_is_exported(port):
    status, text = got(port)
    assert dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)) == EXPORTED
    samples = {
        (s.name.removeprefix("pgpaces_"), *(s.labels.get(k) for k in ("phase", *LABELS))): s.value
        for each in text_string_to_metric_families(text)
        for s in each.samples
    }
    assert status == 200
    expected = {
        ("due_total", "measured"): 20, ("due_total", "warmup"): 10,
        ("transactions_total", "measured", "on_time"): 10,
        ("transactions_total", "measured", "late"): 6,
        ("transactions_total", "measured", "skipped"): 2,
        ("transactions_total", "measured", "failed"): 2,
        ("transactions_total", "measured", "unfinished"): 0,
        ("errors_total", "measured", None, None, "40001"): 2,
        ("latency_seconds_bucket", "measured", None, "0.015"): 10,
        ("latency_seconds_bucket", "measured", None, "+Inf"): 16,
        ("latency_seconds_count", "measured"): 16,
        ("generator_cpu_seconds_total", None, None, None, None, "1"): 1.5,
        ("latency_limit_seconds",): 0.015, ("backlog",): 2.0,
        ("dispatch_lag_seconds_count",): 6, ("dispatch_lag_seconds_sum",): 0.003,
        ("dispatch_lag_seconds_bucket", None, None, "0.0005"): 6,
    }  # fmt: skip
    assert {key: samples[*key, *[None] * (6 - len(key))] for key in expected} == expected
    open_metrics = got(port, Accept="application/openmetrics-text; version=1.0.0")[1]
    assert open_metrics.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/", {}, 404), ("/metrics", {"Host": "evil.com"}, 421), ("/metrics?x=1", {}, 200)],
)
def test_only_metrics_are_answered_and_only_to_this_machine(port, path, headers, status):
    assert got(port, path, **headers)[0] == status


def test_scrapes_at_the_same_time_get_the_same_numbers(port, monkeypatch):
    receive = PrometheusMetricReader._receive_metrics

    def slowly(*args: Any, **options: Any) -> None:
        receive(*args, **options)
        threading.Event().wait(0.02)

    monkeypatch.setattr(PrometheusMetricReader, "_receive_metrics", slowly)
    with ThreadPoolExecutor(4) as threads:
        answers = set(threads.map(lambda _: got(port), range(8)))
    assert answers == {got(port)}


def test_texts_of_others_do_not_forge_a_metric(port):
    named = totals(workload={"name": f'x"}} 1\nforged 1 {NASTY}\ud800', "scripts": SCRIPTS})
    port.data = metrics_data([named])
    status, text = got(port)
    assert status == 200
    assert "\nforged" not in text
    assert "\x1b" not in text


def test_an_open_connection_gets_the_last_numbers_while_the_port_is_free_again():
    port = Port(listen("127.0.0.1", 0))
    port.start()
    address = port.socket.getsockname()[:2]
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", "/metrics")
    assert connection.getresponse().read() == b""
    port.data = metrics_data([totals()])
    closing = threading.Thread(target=port.close)
    closing.start()
    while not port.final:
        closing.join(0.01)
    listen(*address).socket.close()  # the next load has the port
    assert closing.is_alive()
    connection.request("GET", "/metrics")
    assert b"pgpaces_due_total" in connection.getresponse().read()
    closing.join(60)
    assert not closing.is_alive()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.server.shutdown()


def test_a_receiver_of_otlp_gets_the_same_numbers(receiver):
    warnings: list[str] = []
    sender = Sender(f"{receiver.url}/v1/metrics/", warnings.append)
    sender.start()
    sender.put(metrics_data([totals("failed", error="the server went away")]))
    sender.close()
    assert warnings == []
    [latency] = [p for a, p in receiver.points("pgpaces.latency") if a["phase"] == "measured"]
    assert sum(latency.bucket_counts) == latency.count == 16
    assert at_most(latency, 0.015) == 10


@pytest.mark.parametrize("status", [401, 500])
def test_a_receiver_that_refuses_is_one_warning(status):
    receiver, warnings = Receiver(status), list[str]()
    sender = Sender(receiver.url, warnings.append)
    sender.start()
    for count in (1, 2):
        sender.put(metrics_data([totals()]))
        while len(receiver.metrics) < count:
            threading.Event().wait(0.01)
    sender.close()
    assert warnings == [message("receiver-refuses", receiver=receiver.url, status=status)]
    receiver.server.shutdown()


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path)
    yield store
    store.close()


def stored(store: Store, id_: str, host: str | None = None, pid: int | None = None) -> Trial:
    """A trial of this process, or of another, that runs and has a second of 10."""
    machine = {"hostname": host or platform.node(), "pid": pid or os.getpid()}
    begun = series([[5.0] * 10], id=id_, host=machine)
    begun = replace(begun, state="running")
    store.begin(begun)
    store.add(id_, begun.intervals[0])
    return begun


def test_the_feed_has_new_trials_of_its_load_to_their_end(store, monkeypatch):
    stored(store, "01A000000000000000000000RN")  # long ago
    feed = Feed(str(store.path), ProcessLoad(os.getpid()))
    running = stored(store, "7ZZZZZZZZZ0000000000000000")
    stored(store, "7ZZZZZZZZZ0000000000000001", host="elsewhere")
    stored(store, "7ZZZZZZZZZ0000000000000002", pid=1)
    assert feed.read()
    with monkeypatch.context() as patch:
        # What it has read once it does not read again: a list of runs has whole plans.
        for name in ("trials", "experiments"):
            patch.delattr(Store, name)
        heads, head = [], Store.head
        patch.setattr(Store, "head", lambda store, id_: heads.append(id_) or head(store, id_))
        assert not feed.read()
        assert heads == [running.id]
    store.add(running.id, second(1, [5.0]))
    store.finish(replace(running, state="finished"), {})
    assert feed.read()
    [scope] = feed.metrics().resource_metrics[0].scope_metrics
    [due] = [each for each in scope.metrics if each.name == "pgpaces.due"]
    counted = [(p.attributes["run"], p.value) for p in due.data.data_points]
    assert counted == [(running.id, 11)]
    feed.close()


def test_a_companion_runs_no_code_of_the_current_folder(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("msgspec", "opentelemetry", "prometheus_client"):
        Path(f"{name}.py").write_text(f"open('{name} ran', 'w').close()\n")
    followed_by = Companion(str(store.path), Outputs(prometheus=("127.0.0.1", 0)), lambda _: None)
    followed_by.close()
    assert followed_by._process.wait(60) == 0
    assert not list(tmp_path.glob("* ran"))


def test_what_to_export_and_where():
    assert progress.outputs_of(False, ("prometheus",)).prometheus == ("127.0.0.1", 8433)
    both = progress.outputs_of(True, ("prometheus=0.0.0.0:9000", "otlp=https://otel:4318"))
    assert both == Outputs(True, ("0.0.0.0", 9000), "https://otel:4318")


@pytest.mark.parametrize(
    ("values", "name"),
    [(("prometeus",), "not-a-choice"), (("prometheus=x",), "not-a-port"),
     (("prometheus=",), "not-a-port"), (("prometheus=1:99999",), "not-a-port"),
     (("otlp",), "not-an-otlp-url"), (("otlp=localhost:4318",), "not-an-otlp-url"),
     (("otlp=http://h:x",), "not-an-otlp-url"), (("otlp=http://u:p@h",), "password-in-url"),
     (("prometheus", "prometheus=0"), "given-twice")],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence_with_a_way_out(values, name):
    with raises(PlanError, name) as error:
        progress.outputs_of(False, values)
    assert error.value.hint
    assert ":p@" not in f"{error.value.message} {error.value.hint}"


def test_a_port_in_use_is_said_before_the_load_begins(tmp_path):
    taken = listen("127.0.0.1", 0)
    port = taken.socket.getsockname()[1]
    line = ["run", "--store", str(tmp_path / "s.db"), "--metrics", f"prometheus={port}"]
    error = refused(CliRunner().invoke(cli, [*line, "tpcb-like", "-T", "1s"]))
    taken.socket.close()
    assert isinstance(error, RunError)
    why = "Address already in use"
    assert error.message == sentence("cannot-listen", host="127.0.0.1", port=port, why=why)
    assert error.values["option"] == "--metrics prometheus="
    assert not (tmp_path / "s.db").exists()


def test_a_missing_extra_is_said_with_the_command(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.prometheus", None)
    monkeypatch.setattr(companion.signal, "signal", lambda *_: None)
    line = b'{"place": null, "pid": 1, "token": "", "outputs": {"prometheus": ["127.0.0.1", 0]}}'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line + b"\n")))
    companion.main()
    started = json.loads(capsys.readouterr().out)
    values = {"module": "opentelemetry.exporter.prometheus", "extra": "metrics", "what": "metrics"}
    assert (started["error"], started["values"]) == ("extra-missing", values)


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_an_open_port_beyond_this_machine_is_warned_of(monkeypatch, capsys, host, warned):
    started = SimpleNamespace(live="", prometheus="http://h:1/metrics", close=lambda: None)
    monkeypatch.setattr(companion, "Companion", lambda *_: started)
    params = {"live": False, "metrics": (f"prometheus={host}:1",), "dry_run": False}
    with progress.followed({**params, "store_path": None}, print):
        pass
    warning = f"{message('metrics-readable', url='http://h:1/metrics')}\n"
    assert capsys.readouterr().err == f"metrics: http://h:1/metrics\n{warning if warned else ''}"


def test_the_dashboard_queries_metrics_and_labels_that_are_exported():
    path = ROOT / "packaging/grafana/pgpaces.json"
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    queries = [t["expr"] for panel in dashboard["panels"] for t in panel.get("targets", ())]
    queries += [each["query"] for each in dashboard["templating"]["list"] if each["name"] != "data"]
    named = {name for query in queries for name in re.findall(r"\bpgpaces_\w+", query)}
    assert len(queries) > 10
    assert {name.removesuffix("_bucket") for name in named} <= set(EXPORTED)
    assert len(named) >= 8
    exported = {label for points in metrics().values() for p in points for label in p.attributes}
    labels = set(re.findall(r"(\w+)(?:=~?|!~?)\"", " ".join(queries)))
    assert labels <= exported | {"background"}
