"""Pages and streams of `pgpaces serve`: what they show, and whom they answer."""

from __future__ import annotations

import asyncio
import errno
import html
import json
import logging
import secrets
import socket
import threading
import tracemalloc
import urllib.request
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from pgpaces.cli.progress import address as read_address
from pgpaces.core.errors import PlanError, RunError
from pgpaces.core.series import Collection, Sample
from pgpaces.spec.design import Design
from pgpaces.spec.result import Counts, Place
from pgpaces.store.store import Store
from pgpaces.web import app as application
from pgpaces.web import live, metrics
from pgpaces.web.app import Site, app
from pgpaces.web.listening import listen
from pgpaces.web.security import Guard
from tests.errors import raises, sentence
from tests.unit.reports import NASTY
from tests.unit.stored import Kept, begun, keep, keep_experiment, opened
from tests.unit.trials import changed, planned, second, series, times

RUN, OTHER = "01A000000000000000000000RN", "01B000000000000000000000RN"
TOKEN = "the-token"
absent = sentence("not-in-store", what="{}", name="{}", store="")[:-1].format
Result = TypeVar("Result")


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path)
    keep(store, Kept(RUN, ms=10))
    keep(store, Kept(OTHER, ms=20, at=1))
    yield store
    store.close()


def client(store: Store, token: str | None = None, **guard: Any) -> Any:
    site = Site(str(store.path), guard.pop("load", None), guard.pop("stop", None))
    guarded = Guard(app(site), frozenset(guard.pop("hosts", ())), token,
                    required=guard.pop("required", False))  # fmt: skip
    return TestClient(guarded, base_url="http://127.0.0.1:8432", raise_server_exceptions=False)


OWN = live.ProcessLoad(7, "pi4", since="01B")


def running(
    store: Store, seconds: int, trial_id: str = "01C000000000000000000000RN", pid: int = OWN.pid
) -> str:
    """A trial that runs, with seconds of 10 transactions, one of them late."""
    host = {"hostname": OWN.hostname, "pid": pid}
    trial = series([[5.0] * 9 + [50.0]] * seconds, id=trial_id, host=host)
    trial = planned(replace(trial, state="running"), limit_ns=20_000_000)
    store.begin(trial)
    for interval in trial.intervals:
        store.add(trial.id, interval)
    return trial.id


def grid(store: Store) -> tuple[str, list[str]]:
    """An experiment that has ended, and its trials."""
    id_ = begun(store, Design({"clients": ("1", "2")}), "grid")
    trials = [f"01F00000000000000000000{n}RN" for n in (1, 2)]
    for n, trial in enumerate(trials, 1):
        keep(store, Kept(trial, place=Place(id_, f"c{n}", {"clients": str(n)}, 1)))
    return id_, trials


def test_older_runs_and_experiments_are_on_pages_of_their_own(store, monkeypatch):
    monkeypatch.setattr("pgpaces.web.app._RUNS", 1)
    monkeypatch.setattr("pgpaces.web.app._EXPERIMENTS", 1)
    ids = [keep_experiment(store, name)[0].id for name in ("one", "two")]
    reader, shown = client(store), []
    for path in ("/", "/?runs=1&experiments=0", "/?runs=1&experiments=1"):
        shown.append(reader.get(path).text)
        assert shown[-1].count('name="run"') == 2
    assert (f'href="/experiments/{ids[1]}"' in shown[0], OTHER in shown[0]) == (True, True)
    assert 'href="/?runs=1&amp;experiments=0">Older runs' in shown[0]
    assert 'href="/?runs=0&amp;experiments=1">Older experiments' in shown[0]
    assert "Newer" not in shown[0]
    assert (RUN in shown[1], OTHER in shown[1]) == (True, False)
    assert 'href="/?runs=0&amp;experiments=0">Newer runs' in shown[1]
    assert f'href="/experiments/{ids[0]}"' in shown[2]
    assert "Older" not in shown[2]


def test_a_page_of_an_experiment_leads_to_its_trials(store):
    id_, trials = grid(store)
    assert f'href="/?of={id_}"' in client(store).get(f"/experiments/{id_}").text
    text = client(store).get(f"/?of={id_}").text
    for trial in trials:
        assert f'href="/runs/{trial}"' in text
    assert RUN not in text
    assert f'href="/experiments/{id_}"' in text


def test_a_run_is_the_report_that_the_command_writes_without_inline_scripts(store):
    answer = client(store).get(f"/runs/{RUN}")
    assert answer.status_code == 200
    assert "<h1>" in answer.text
    assert answer.text.count("<script") == 1
    assert '<script type="module" src="/static/page.js"></script>' in answer.text


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/", 200, f'href="/runs/{OTHER}"'),
        (f"/compare?run={RUN}&run={OTHER}", 200, "UNKNOWN</span>"),
        (f"/trend/{RUN}", 200, "a trend needs 8"),
        ("/runs/nope", 404, absent("run", "nope")),
        ("/experiments/nope", 404, absent("experiment", "nope")),
        ("/compare?run=last", 404, sentence("choose-two-runs", count=1)),
        ("/trend/nope", 404, absent("run or experiment", "nope")),
        ("/runs/..%2f..%2fetc%2fpasswd", 404, ""),
        ("/static/..%2fapp.py", 404, ""),
        ("/static/guard.py", 404, ""),
        ("/runs/%00", 404, absent("run", r"\x00")),
        ("/runs/%F0%9F%92%A3", 404, absent("run", "\N{BOMB}")),
        ("/?runs=-1", 200, "Runs"),
        ("/?runs=99999999999999999999", 200, "Runs"),
        ("/?experiments=%D9%A3", 200, "Runs"),
        ("/?of=nope", 404, absent("experiment", "nope")),
    ],
)
def test_what_is_there_is_shown_and_what_is_not_is_said(store, path, status, text):
    answer = client(store).get(path)
    assert answer.status_code == status
    assert text in html.unescape(answer.text)
    assert "Traceback" not in answer.text


def test_names_of_others_do_nothing_in_pages(store):
    trial = series([[1.0]], id="01D000000000000000000000RN")
    nasty = changed(trial, workload=trial.workload.but(name=NASTY), state="running")
    store.begin(nasty)
    for path in ("/", f"/runs/{trial.id}"):
        text = client(store).get(path).text
        assert "<script>alert" not in text
        assert "\x1b" not in text
    assert client(store).get(f"/runs/{NASTY.encode('utf-8', 'replace').hex()}").status_code == 404


def test_what_is_damaged_is_listed_and_does_not_hide_others(store):
    import sqlite3

    assert store.path is not None
    damaged, fine = keep_experiment(store, "one")[0].id, keep_experiment(store, "two")[0].id
    update = "UPDATE experiment SET started_at = 'yesterday' WHERE id = ?"
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE trial SET spec = '{' WHERE id = ?", (RUN,))
        connection.execute(update, (damaged,))
    connection.close()
    text = client(store).get("/").text
    assert f'{damaged[-8:]}</th><td colspan="2">damaged: ' in text
    assert text.count("damaged: ") == 2
    assert f'href="/experiments/{fine}"' in text
    assert f'href="/runs/{OTHER}"' in text


def test_a_store_that_was_deleted_and_made_again_is_read_anew(store, tmp_path):
    reader, third = client(store), "01C000000000000000000000RN"
    assert RUN in reader.get("/").text
    assert events(reader.get(f"/events/runs/{RUN}").text)
    store.close()
    for file in tmp_path.iterdir():
        file.unlink()
    gone = reader.get("/")
    assert gone.status_code == 500
    assert sentence("store-absent", store=store.address) in html.unescape(gone.text)
    again = opened(tmp_path)
    keep(again, Kept(third))
    text = reader.get("/").text
    assert (RUN in text, third in text) == (False, True)
    assert events(reader.get(f"/events/runs/{third}").text)[-1]["state"] == "finished"
    again.close()


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def test_a_reader_who_comes_late_gets_the_whole_trial_and_who_comes_back_the_rest(store):
    whole = events(client(store).get(f"/events/runs/{RUN}").text)
    assert [row[0] for message in whole for row in message["rows"]] == [0, 1, 2]
    assert whole[-1]["state"] == "finished"
    rest = events(client(store).get(f"/events/runs/{RUN}", headers={"Last-Event-ID": "2"}).text)
    assert [row[0] for message in rest for row in message["rows"]] == [2]
    assert rest[-1]["at"] == 3
    for wrong, rows in (("99", []), ("9" * 5000, [0, 1, 2])):
        answer = client(store).get(f"/events/runs/{RUN}", headers={"Last-Event-ID": wrong})
        assert [row[0] for row in events(answer.text)[-1]["rows"]] == rows


def test_sums_of_the_stream_are_those_of_the_store(store):
    trial = store.load(RUN)
    (message,) = events(client(store).get(f"/events/runs/{RUN}").text)
    columns = dict(zip(live.COLUMNS, zip(*message["rows"], strict=True), strict=True))
    tallies = [tally for interval in trial.intervals for tally in interval.tallies]
    assert sum(columns["due"]) == sum(tally.due for tally in tallies) == 120
    assert sum(columns["on_time"]) == sum(tally.on_time for tally in tallies)
    assert sum(columns["throughput"]) == sum(tally.latency.count for tally in tallies)


def test_sums_of_the_measured_part_are_those_of_the_metrics(store):
    id_ = running(store, 0)
    warm = second(-1, [5.0] * 3, due=5, failed={"40001": 1})
    early = second(-1, [50.0], due=0, on_time=0, late=1).tallies
    first = second(0, [5.0] * 8, due=10, failed={"40001": 1}, unfinished=1)
    trial = live.Followed(store.head(id_), 1)
    totals = metrics.Totals(trial.head)
    for interval in (warm, replace(first, tallies=(*early, *first.tallies))):
        store.add(id_, interval)
        totals.add(interval)
    trial.read(store)
    assert trial.since(0).measured == Counts(due=10, on_time=8, failed=1, unfinished=1)
    exported = {(name, labels.get("outcome")): value for name, labels, value in totals.points()
                if labels.get("phase") == "measured"}  # fmt: skip
    assert exported["due", None] == 10
    assert exported["transactions", "late"] == 0
    assert exported["transactions", "failed"] == 1


def test_a_row_has_quantiles_of_what_ended_in_its_second():
    interval = second(7, range(1, 101))
    waits = replace(interval.tallies[0], lag=times([900.0] * 100))
    interval = replace(interval, tallies=(waits,), dispatch=times([0.5]))
    named = dict(zip(live.COLUMNS, live.row(interval), strict=True))
    assert (named["dispatch_lag"], named["lag_p99"]) == pytest.approx((0.5, 900), rel=2e-3)
    assert named["second"] == 7
    assert [named[each] for each in ("p50", "p95", "p99")] == pytest.approx([50, 95, 99], rel=2e-3)
    failing = live.row(second(7, range(1, 101), due=110, failed={"22012": 10}))
    named = dict(zip(live.COLUMNS, failing, strict=True))
    assert named["p50"] == pytest.approx(55, rel=2e-3)
    assert [named["p95"], named["p99"], named["lag_p99"]] == [None] * 3
    empty = dict(zip(live.COLUMNS, live.row(second(0, [])), strict=True))
    assert empty["p95"] is None
    assert empty["due"] == 0


def test_samples_that_come_late_reach_readers_by_second_and_class(store):
    id_ = running(store, 3)
    trial = live.Followed(store.head(id_), 1)
    trial.read(store)
    late = [
        Sample(0, "host", "cpu_busy", 40.0, "%"),
        Sample(0, "host", "disk_sda_busy", 10.0, "%"),
        Sample(0, "host", "disk_sdb_busy", 30.0, "%"),
        Sample(0, "waits", "Lock:tuple", 2.0, "sessions"),
        Sample(0, "waits", "Lock:transactionid", 1.5, "sessions"),
        Sample(1, "waits", "Client:ClientRead", 1.0, "sessions"),
        Sample(1, "standby1/host", "cpu_busy", 99.0, "%"),
        Sample(1, "generator", "cpu_steal", 7.0, "%"),
        Sample(0, "checkpoints", "checkpoints", 0.0),
        Sample(2, "checkpoints", "checkpoints", 1.0),
        Sample(2, "standby1/checkpoints", "checkpoints", 1.0),
    ]
    store.add(id_, second(3, [5.0]), late)
    trial.read(store)
    message = trial.since(3)
    assert [row[0] for row in message.rows] == [3]
    named = {row[0]: dict(zip(live.MACHINE, row, strict=True)) for row in message.machine}
    zero = {"cpu_busy": 40.0, "disk_busy": 30.0, "sessions_lock": 3.5, "generator_steal": None}
    assert zero.items() <= named[0].items()
    one = {"cpu_busy": None, "sessions_other": 1.0, "generator_steal": 7.0}
    assert one.items() <= named[1].items()
    marks = live.checkpoints(Collection(late).series())
    assert marks == [live.Mark(2, "checkpoint")]


def test_the_answer_so_far_is_of_trials_that_have_ended(store):
    row, trials = keep_experiment(store)
    ended = [each.id for each in trials]
    place = Place(row.id, "cell", {"clients": "1"}, 3)
    trial = replace(series([[5.0]] * 3, id="01F" + "0" * 23), state="running", place=place)
    store.begin(trial)
    assert [each.id for each in store.placed(row.id)] == [*ended, trial.id]
    assert store.ended(row.id) == ended


def test_readers_of_an_experiment_share_one_answer_until_a_trial_ends(store, monkeypatch):
    id_, _ = grid(store)
    report, computed = application._report, []

    def counted(site: Site, name: str) -> Any:
        computed.append(name)
        return report(site, name)

    monkeypatch.setattr(application, "_report", counted)
    reader = client(store)
    texts = {reader.get(f"/experiments/{id_}/answer").text for _ in range(3)}
    assert len(texts) == len(computed) == 1
    place = Place(id_, "c1", {"clients": "1"}, 2)
    keep(store, Kept("01F000000000000000000003RN", place=place))
    assert reader.get(f"/experiments/{id_}/answer").status_code == 200
    assert len(computed) == 2


def test_one_report_at_a_time_is_computed(store, monkeypatch):
    from pgpaces.answers import calls as api
    from pgpaces.answers import trend

    alone = []
    id_, _ = grid(store)

    def watched(function: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            alone.append(application._DRAWING.locked())
            return function(*args, **more)

        return call

    for module, name in ((application, "_report"), (api, "compare"), (trend, "trend")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    for path in (f"runs/{RUN}", f"experiments/{id_}", f"experiments/{id_}/answer",
                 f"compare?run={RUN}&run={OTHER}", f"trend/{RUN}"):  # fmt: skip
        assert client(store).get(f"/{path}").status_code == 200
    assert alone == [True] * 5


def run_alone(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """In a thread of its own: a browser test of the same process leaves a loop in the main one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def test_a_trial_that_runs_is_followed_to_its_end(store):
    async def follow() -> list[live.Message]:
        id_ = running(store, 2)
        messages = []
        async for message in live.Follower(store).messages(id_, 0):
            if message is None:
                continue
            messages.append(message)
            if len(message.rows) == 2:
                trial = store.head(id_)
                store.add(id_, second(2, [5.0]))
                store.finish(replace(trial, state="finished"), {})
        return messages

    messages = run_alone(follow())
    assert [row[0] for message in messages for row in message.rows] == [0, 1, 2]
    assert [message.state for message in messages][-1] == "finished"
    assert messages[0].limits_ms == [20.0]


def test_a_lost_store_ends_the_stream_and_no_reader_waits(store):
    async def follow() -> live.Message | None:
        last = None
        async for message in live.Follower(store).messages(running(store, 1), 0):
            last = message
            assert store.path is not None
            store.close()
            store.path.write_bytes(b"no store")
        return last

    last = run_alone(follow())
    assert last is not None
    assert last.state == "lost"


def test_a_lost_store_ends_the_stream_of_an_experiment(store):
    id_ = begun(store, Design({"clients": ("1", "2")}), "grid")
    store.beat_experiment(id_)

    async def follow() -> list[str]:
        texts = []
        async for text in application._watched(store, id_):
            texts.append(text)
            if text.startswith("data: "):
                assert store.path is not None
                store.close()
                store.path.write_bytes(b"no store")
        return texts

    states = [event["state"] for text in run_alone(follow()) for event in events(text)]
    assert states == ["running", "lost"]


def test_a_long_trial_comes_in_parts_and_ends_with_the_last(store, monkeypatch):
    monkeypatch.setattr(live, "_ROWS_MAX", 2)
    parts = events(client(store).get(f"/events/runs/{RUN}").text)
    assert [[row[0] for row in part["rows"]] for part in parts] == [[0, 1], [2]]
    assert [(part["at"], part["state"]) for part in parts] == [(2, "running"), (3, "finished")]


def test_a_server_that_ends_while_somebody_reads_says_nothing(store):
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    port = listen("127.0.0.1", 0)
    server = application.server(Site(str(store.path)), port)
    thread = threading.Thread(target=server.run, args=([port.socket],))
    thread.start()
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(listener)
    with urllib.request.urlopen(f"{port.url}events/runs/{running(store, 1)}", timeout=60) as stream:
        assert stream.readline() == b"retry: 1000\n"
        server.should_exit = True
        thread.join()
    logger.removeHandler(listener)
    assert said == []


def test_a_reader_that_takes_nothing_is_dropped(monkeypatch):
    monkeypatch.setattr("pgpaces.web.listening._BLOCKED_MS", 300)
    with listen("127.0.0.1", 0).socket as port, slow_reader(port) as reader:
        served, _ = port.accept()
        served.settimeout(60)
        with pytest.raises(TimeoutError) as error:
            served.sendall(bytes(50_000_000))
        assert error.value.errno == errno.ETIMEDOUT
        served.close()
        assert reader.fileno() >= 0


def slow_reader(port: socket.socket) -> socket.socket:
    """A connection whose reader has room for little."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(port.getsockname())
    return reader


def test_readers_that_take_nothing_cost_little_memory_and_others_finish(store, monkeypatch):
    rows = [(second, *[12345.678] * (len(live.COLUMNS) - 1)) for second in range(40_000)]
    monkeypatch.setattr(live.Followed, "read", lambda self, _: self.rows.extend(rows))
    opened_port = listen("127.0.0.1", 0)
    opened_port.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server = application.server(Site(str(store.path)), opened_port)
    thread = threading.Thread(target=server.run, args=([opened_port.socket],))
    thread.start()
    request = f"GET /events/runs/{RUN} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    readers = [slow_reader(opened_port.socket) for _ in range(10)]
    tracemalloc.start()
    for reader in readers:
        reader.sendall(request)
        assert b"200 OK" in reader.recv(500)
    lines = urllib.request.urlopen(f"{opened_port.url}events/runs/{RUN}")
    last = [line for line in lines if line.startswith(b"id: ")][-1]
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for reader in readers:
        reader.close()
    server.should_exit = True
    thread.join()
    assert last == b"id: 40000\n"
    assert largest < 25e6


@pytest.mark.parametrize("host", ["evil.com", "localhost.evil.com", "127.0.0.1.evil.com",
                                  "192.168.1.5", "", "0.0.0.0", "a.b:1"])  # fmt: skip
def test_a_name_that_may_be_rebound_is_not_answered(store, host):
    answer = client(store).get("/", headers={"Host": host})
    assert answer.status_code == 421
    assert RUN not in answer.text
    for ours in ("127.0.0.1:8432", "127.9.9.9", "[::1]:8432", "[::1]", "localhost", "LOCALHOST"):
        assert client(store).get("/", headers={"Host": ours}).status_code == 200


def test_every_answer_forbids_inline_scripts_and_others(store):
    static = ("/static/page.js", "/static/page.css")
    for path in ("/", f"/runs/{RUN}", "/runs/nope", *static, f"/events/runs/{RUN}"):
        headers = client(store).get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
        assert headers["cache-control"] == ("max-age=3600" if path in static else "no-store")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_only_reads(store, method):
    assert client(store).request(method, f"/runs/{RUN}").status_code == 405


def test_beyond_loopback_nothing_is_shown_without_the_token(store):
    outside = client(store, TOKEN, hosts=("pi4",), required=True)
    for path in ("/", f"/runs/{RUN}", "/static/page.js", f"/events/runs/{RUN}"):
        assert outside.get(path).status_code == 401
    assert outside.get("/", headers={"Host": "pi4:8432"}).status_code == 401
    assert outside.get("/", headers={"Host": "evil.com"}).status_code == 421
    page = outside.get(f"/?token={TOKEN}")  # a redirect that sets the cookie
    assert page.status_code == 200
    assert "token" not in str(page.url)
    cookie = page.history[0].headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert outside.get(f"/runs/{RUN}").status_code == 200


@pytest.mark.parametrize("other", ['x={"a":1}', "a b", "x=é", "path=/", "a[b]=1", "x", ""])
def test_cookies_of_other_servers_of_the_host_do_not_hide_the_token(store, other):
    reader, own = client(store, TOKEN, required=True), f"pgpaces-8432={TOKEN}"
    for header, status in ((f"{other}; {own}", 200), (f"{own}; {other}", 200), (other, 401)):
        assert reader.get("/", headers={"Cookie": header.encode("latin-1")}).status_code == status


def test_a_machine_answers_to_its_names_in_any_case(store, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Pi4")
    monkeypatch.setattr("socket.getfqdn", lambda: "Pi4.Example.org")
    opened_port = listen("0.0.0.0", 0, TOKEN)
    server = application.server(Site(str(store.path)), opened_port)
    opened_port.socket.close()
    reader = TestClient(server.config.app, base_url="http://127.0.0.1")
    hosts = ("pi4:8432", "PI4", "pi4.local", "pi4.example.org", "evil.local")
    statuses = [reader.get("/", headers={"Host": host}).status_code for host in hosts]
    assert statuses == [401] * 4 + [421]


def test_a_token_is_not_guessed():
    token, reached, statuses = secrets.token_urlsafe(32), [], []

    async def site(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    guard = Guard(site, frozenset(), token, required=True)

    async def request(cookie: str = "", query: str = "") -> None:
        headers = [(b"host", b"127.0.0.1:8432"), (b"cookie", f"pgpaces-8432={cookie}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers,
                 "query_string": query.encode()}  # fmt: skip
        await guard(scope, None, send)  # type: ignore[arg-type]

    async def guess() -> None:
        for n in range(10_000):
            text = secrets.token_urlsafe(32)
            await (request(cookie=text) if n % 2 else request(query=f"token={text}"))
        assert statuses[::2] == [401] * 10_000
        assert reached == []
        await request(cookie=token)
        assert reached == ["/"]

    run_alone(guess())


def test_only_who_started_a_load_stops_it(store):
    stopped: list[str] = []
    stoppable = client(store, TOKEN, load=OWN, stop=lambda: stopped.append("stopped"))
    assert stoppable.get("/").status_code == 200
    assert stoppable.post("/stop").status_code == 403
    assert "Stop the load" not in stoppable.get(f"/runs/{running(store, 1)}").text
    stoppable.get(f"/?token={TOKEN}")
    assert "Stop the load" in stoppable.get("/live").text
    evil = stoppable.post("/stop", headers={"Origin": "http://evil.com"})
    other_port = stoppable.post("/stop", headers={"Origin": "http://127.0.0.1:9"})
    assert (evil.status_code, other_port.status_code) == (403, 403)
    assert stopped == []
    own = stoppable.post("/stop", headers={"Origin": "http://127.0.0.1:8432"})
    assert own.status_code == 202
    assert stopped == ["stopped"]
    assert client(store, TOKEN).post(f"/stop?token={TOKEN}").status_code == 403


def test_the_page_of_a_load_opens_and_stops_its_own_and_no_other(store):
    own = running(store, 1)
    other = running(store, 1, "01D000000000000000000000RN", pid=8)
    row = keep_experiment(store)[0]
    store.beat_experiment(row.id)
    page = client(store, TOKEN, load=OWN, stop=lambda: None)
    page.get(f"/?token={TOKEN}")
    assert page.get("/live").url.path == f"/runs/{own}"
    assert "Stop the load" in page.get(f"/runs/{own}").text
    assert "Stop the load" not in page.get(f"/runs/{other}").text
    store.finish(replace(store.head(own), state="finished"), {})
    assert page.get("/live").url.path == f"/runs/{own}"
    place = Place(row.id, "cell", {"clients": "1"}, 3)
    host = {"hostname": OWN.hostname, "pid": OWN.pid}
    store.begin(replace(series([], id="01F" + "0" * 23, host=host), state="running", place=place,
                        started_at=datetime.now(UTC)))  # fmt: skip
    assert page.get("/live").url.path == f"/experiments/{row.id}"


@pytest.mark.parametrize(
    ("text", "address"),
    [("8432", ("127.0.0.1", 8432)), ("0", ("127.0.0.1", 0)), ("0.0.0.0:80", ("0.0.0.0", 80)),
     ("[::1]:80", ("::1", 80)), ("pi4:80", ("pi4", 80)),
     *((wrong, None) for wrong in ("", "pi4", "pi4:", "1:99999", "-1", "x:y"))],
)  # fmt: skip
def test_where_to_listen(text, address):
    if address is not None:
        assert read_address(text, "--listen") == address
        return
    with raises(PlanError, "not-a-port", option="--listen", value=text):
        read_address(text, "--listen")
    for host in ("a..b", "a" * 64):
        with raises(RunError, "cannot-listen", host=host, port=0) as refused:
            listen(host, 0)
        assert "label" in refused.value.values["why"]
