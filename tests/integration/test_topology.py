"""Standbys and poolers of ours, with real ones: who serves what, and that nothing of them remains.

Where the reads went is asked of each server's own counters, while they run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tests.commands import Command, adds_up, ctrl_c, interval_count, started
from tests.errors import raises
from tests.needs import check, needs
from tests.servers import PASSWORD, access_to, quoted
from tests.waiting import until

from pgpaces import _engine
from pgpaces.core.errors import PlanError, ServerError
from pgpaces.core.record import Interval
from pgpaces.database import streaming
from pgpaces.database.access import Access, connect
from pgpaces.database.changes import note_of
from pgpaces.load import engine
from pgpaces.server import managed_server, managed_standbys, packages, pooler
from pgpaces.server.folder import ServerFolder, ServerRecord, Transport
from pgpaces.spec import workload
from pgpaces.spec.result import Trial
from pgpaces.spec.target import PoolPlan, TargetPlan
from pgpaces.store.store import Store
from pgpaces.trial import trial as pipeline
from pgpaces.trial.listener import Listener
from pgpaces.trial.request import backgrounds as background_requests
from pgpaces.trial.request import request_of
from pgpaces.trial.trial import Outcome

pytestmark = pytest.mark.postgres

FAST = ("--scale", "1", "--warmup", "0", "--grace", "2s")
SAFE_ENOUGH = (("fsync", "off"),)
OURS = (*FAST, "--server-set", "fsync=off")
SECOND_NS = 1_000_000_000
GONE_S = 60.0
# What only reads goes to one table, what writes to another, so that counters tell them apart.
FILES = {
    "workload.toml": """\
description = "reads of one table, writes of another"
scale = 1
writes = true
init = ["init.sql"]
[[scripts]]
file = "read.sql"
weight = 3
[[scripts]]
file = "write.sql"
[load]
rate = "60/s"
""",
    "init.sql": """\
CREATE TABLE r AS SELECT g AS id, g AS v FROM generate_series(1, 100) g;
CREATE TABLE w AS SELECT g AS id, 0 AS v FROM generate_series(1, 100) g;
ALTER TABLE r ADD PRIMARY KEY (id);
ALTER TABLE w ADD PRIMARY KEY (id);
ANALYZE;
""",
    "read.sql": "\\set id random(1, 100)\nSELECT sum(v) FROM r WHERE id = :id;\n",
    "write.sql": "\\set id random(1, 100)\nUPDATE w SET v = v + 1 WHERE id = :id;\n",
}
SCANS = "SELECT coalesce(seq_scan + idx_scan, 0) FROM pg_stat_user_tables WHERE relname = '{}'"


@pytest.fixture
def folder(tmp_path):
    """The workload above."""
    path = tmp_path / "readwrite"
    path.mkdir()
    for name, text in FILES.items():
        (path / name).write_text(text)
    return path


def value(dsn: str, query: str) -> Any:
    with closing(psycopg.connect(dsn, autocommit=True)) as session:
        row = session.execute(query.encode()).fetchone()
    return row[0] if row else None


@dataclass
class Watcher(Listener):
    """Asks every managed server at the seconds at which it is told to."""

    at: dict[int, Callable[[Watcher], None]] = field(default_factory=dict)
    seen: list[dict[str, dict[str, int]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    dbname: str = ""

    def say(self, text: str) -> None:
        self.said.append(text)

    def started(self, trial: Trial, connect_ns: int) -> None:
        self.dbname = trial.workload.prepared.dbname
        self.seen.append(self.scans())

    def interval(self, interval: Interval) -> None:
        if (act := self.at.pop(interval.second, None)) is not None:
            act(self)

    def servers(self) -> dict[str, managed_server.Server]:
        """Those that run, by the end of their names."""
        found = {}
        for server in managed_server.running():
            if server.name.startswith(("pg18", "pg15")):
                found[server.name.partition("-")[2] or "primary"] = server
        return found

    def scans(self) -> dict[str, dict[str, int]]:
        """How often each table was read on each server."""
        return {
            name: {t: value(server.dsn(self.dbname), SCANS.format(t)) for t in ("r", "w")}
            for name, server in self.servers().items()
        }

    def look(self) -> None:
        self.seen.append(self.scans())

    def read_since(self, table: str) -> dict[str, int]:
        first, last = self.seen[0], self.seen[-1]
        return {name: last[name][table] - first[name][table] for name in last}


def layout(standbys: int = 0, **more: Any) -> dict[str, Any]:
    """Servers of ours: so many standbys, and what else a request has."""
    return {"target": TargetPlan(standbys=standbys, server_settings=SAFE_ENOUGH), **more}


def run(
    what: Path | str, store: Path, seconds: int = 3, watcher: Watcher | None = None, **changes: Any
) -> tuple[Outcome, Trial]:
    """A short trial, and as the store has it."""
    asked = {"rate": "60/s", "clients": 6, "duration": f"{seconds}s", "warmup": "0s",
             "grace": "2s", "scale": 1, **changes.pop("options", {})}  # fmt: skip
    backgrounds = changes.pop("backgrounds", {})
    found = what if isinstance(what, workload.Workload) else workload.find(str(what))
    request = replace(request_of(asked, found, store=store), **changes)
    request = replace(request, background=background_requests(request, backgrounds))
    outcome = pipeline.run(request, watcher)
    assert outcome.error is None, outcome.error
    return outcome, Store.open(store).load(outcome.trial.id)


@pytest.fixture
def watcher(pgpaces_home):
    """Sees what each table was read before the load and in its third second."""
    return Watcher({2: Watcher.look})


def nothing_is_left(home: Path) -> None:
    """No process of a server or managed pooler lives: each holds the lock of its folder."""
    for path in (home / "servers").glob("pg1[58]*"):
        lock = ServerFolder(path).lock(GONE_S)
        assert lock is not None, f"{path.name} is still there after {GONE_S} s"
        os.close(lock)


def no_standby_data_is_left(home: Path) -> None:
    assert list(home.glob("servers/*standby*/data")) == []


@pytest.mark.parametrize(
    "version", [pytest.param("15", marks=[pytest.mark.slow, needs("PostgreSQL 15")]), "18"]
)
def test_pgpool_lets_both_standbys_read_and_the_primary_write(
    version, folder, pgpaces_home, tmp_path, watcher
):
    check("pgpool")
    target = TargetPlan(server=version, standbys=2, server_settings=SAFE_ENOUGH)
    pooled = {"target": target, "pool": PoolPlan("pgpool")}
    outcome, trial = run(folder, tmp_path / "r.db", 3, watcher, **pooled)
    reads = watcher.read_since("r")
    assert reads["primary"] == 0 < min(reads["standby1"], reads["standby2"])
    writes = watcher.read_since("w")
    assert writes["primary"] > 0
    assert (writes["standby1"], writes["standby2"]) == (0, 0)
    counts = outcome.summary.counts
    assert (counts.failed, counts.unfinished) == (0, 0)
    assert (trial.server.standbys, trial.server.pool.pooler) == (2, "pgpool")
    assert trial.server.nodes.keys() == {"primary", "standby1", "standby2", "pool"}
    assert [component.node for component in trial.setup.components] == ["pool"]
    nothing_is_left(pgpaces_home)
    no_standby_data_is_left(pgpaces_home)


@pytest.mark.parametrize("mode", [pytest.param("session", marks=pytest.mark.slow), "transaction"])
def test_a_setting_is_in_effect_through_pgbouncer(mode, pgpaces_home, tmp_path):
    check("pgbouncer")

    def told(value: str) -> workload.Workload:
        check = f"SELECT 1 / (current_setting('work_mem') = '{value}')::int;\n"
        made = workload.find("select-only")
        return replace(made, scripts=(workload.WorkloadScript("told", 1, check),))

    pool = PoolPlan("pgbouncer", mode, None if mode == "session" else 2)
    settings = {"protocol": "extended", "set.work_mem": "7MB"}
    outcome, trial = run(told("7MB"), tmp_path / "r.db", 1, options=settings, pool=pool)
    counts = outcome.summary.counts
    assert counts.on_time == counts.due > 0, "six clients share two connections by transaction"
    assert outcome.summary.failures == {}
    assert trial.server.settings["work_mem"] == "7MB"
    assert trial.server.applied == {"work_mem": "database"}
    # It is put back.
    outcome, _ = run(told("4MB"), tmp_path / "r.db", 1, pool=pool)
    assert outcome.summary.failures == {}


def test_prepared_statements_in_transaction_mode_work_or_are_refused(pgpaces):
    check("pgbouncer")
    pool = ("--pool", "pgbouncer", "--pool-mode", "transaction", "--pool-size", 2)
    ended = pgpaces("run", "select-only", *OURS, *pool, "-c", 6, "-M", "prepared", "-T", "1s")
    assert ended.code == (0 if pooler.find("pgbouncer").number >= (1, 21) else 2), ended.err
    if ended.code == 0:
        assert pgpaces("show", "last", "--json").json()["counts"]["failed"] == 0


def test_scripts_go_where_they_are_sent(folder, pgpaces_home, tmp_path, watcher):
    nodes = layout(2, options={"node.read": "standbys"})
    outcome, trial = run(folder, tmp_path / "r.db", 3, watcher, **nodes)
    reads = watcher.read_since("r")
    assert reads["primary"] == 0 < min(reads["standby1"], reads["standby2"])
    due = {script.name: script.counts.due for script in outcome.summary.scripts}
    assert due.keys() == {"write", "read on standby1", "read on standby2"}
    assert min(due.values()) > 0
    assert sum(component.load.rate or 0 for component in trial.setup.components) == pytest.approx(
        60
    )
    assert [n.values["queues"] for n in trial.notes if n.name == "several-queues"] == [3]


def test_reporting_runs_on_a_standby_of_its_own_beside_the_application(
    folder, pgpaces_home, tmp_path, watcher
):
    script = tmp_path / "report.sql"
    script.write_text("SELECT sum(v) FROM r;\n")
    options = {"workload": str(script), "node": "standby1", "rate": "20/s"}
    backgrounds = {f"background.report.{name}": value for name, value in options.items()}
    outcome, trial = run(
        folder, tmp_path / "r.db", 3, watcher, **layout(1, backgrounds=backgrounds)
    )
    reads = watcher.read_since("r")
    assert min(reads.values()) > 0, "the application reads at the primary, the report elsewhere"
    (report,) = outcome.summary.background
    assert (report.name, report.counts.missed) == ("report", 0)
    assert report.counts.due == report.counts.on_time
    assert [component.of for component in trial.setup.components] == ["", "report"]
    databases = [
        trial.workload.prepared,
        *(each.prepared for each in trial.setup.background.values()),
    ]
    assert {each.dbname for each in databases} == {watcher.dbname}
    own = [s.counts.due for s in outcome.summary.scripts if not s.name.startswith("report/")]
    assert outcome.summary.counts.due == sum(own)


@pytest.mark.slow
def test_a_standby_refuses_what_writes_and_that_is_counted(folder, pgpaces_home, tmp_path):
    writes = layout(1, options={"node": "standby1", "scripts": "write"})
    outcome, _ = run(folder, tmp_path / "r.db", 1, **writes)
    counts = outcome.summary.counts
    assert counts.failed == counts.due > 0
    assert outcome.summary.failures.keys() == {"25006"}


def killer() -> Watcher:
    """Kills a standby in the second second."""
    return Watcher({1: lambda w: os.kill(w.servers()["standby1"].pid, signal.SIGKILL)})


def test_a_standby_that_dies_takes_its_own_share_alone(folder, pgpaces_home, tmp_path):
    reads = layout(2, options={"node": "any", "scripts": "read"})
    outcome, trial = run(folder, tmp_path / "r.db", 4, killer(), **reads)
    assert trial.state == "finished"
    found = {script.name: script.counts for script in outcome.summary.scripts}
    dead = found.pop("read on standby1")
    assert dead.failed + dead.unfinished > 0
    assert dead.on_time > 0, "it served until then"
    for name, counts in found.items():
        assert counts.on_time == counts.due > 0, name
    assert adds_up({"counts": to_builtins(outcome.summary.counts)})
    assert "standby-lost: standby1: " in not_valid(outcome)
    last = max(interval.ended_ns for interval in trial.intervals)
    assert last <= (4 + 2) * SECOND_NS + SECOND_NS, "within the grace period"
    nothing_is_left(pgpaces_home)
    no_standby_data_is_left(pgpaces_home)


@pytest.mark.slow
def test_a_pooler_that_goes_on_without_a_standby_does_not_hide_that(folder, pgpaces_home, tmp_path):
    check("pgpool")
    reads = layout(2, pool=PoolPlan("pgpool"), options={"scripts": "read"})
    outcome, _ = run(folder, tmp_path / "r.db", 3, killer(), **reads)
    assert "standby-lost: standby1: " in not_valid(outcome)
    nothing_is_left(pgpaces_home)


def not_valid(outcome: Outcome) -> str:
    """Why it is not."""
    assert outcome.summary.validity.state == "invalid"
    return "; ".join(outcome.summary.validity.reasons)


LONG = ("-c", 4, "--think-time", "10ms", "-T", "10min", *OURS)
LAYOUT = ("--standbys", 1, "--node", "any", *LONG)


@pytest.fixture(params=[pytest.param("pgbouncer", marks=pytest.mark.slow), "pgpool"])
def with_pool(request):
    """The options of a standby and a pool."""
    check(request.param)
    pool = ("--pool", request.param)
    return ("select-only", "--standbys", 1, *pool, *LONG)


@pytest.mark.slow
def test_kill_9_leaves_neither_standbys_nor_a_pool_and_the_next_run_works(pgpaces, with_pool):
    process = pgpaces.start("run", *with_pool)
    started(process)
    names = {path.parent.name for path in pgpaces.home.glob("servers/*/lock")}
    assert {"pg18", "pg18-standby1", f"pg18-{with_pool[4]}"} <= names
    process.kill()
    process.communicate()
    nothing_is_left(pgpaces.home)
    ended = pgpaces.well("run", *with_pool, "-T", "1s", "--json")
    assert ended.json()["counts"]["failed"] == 0
    no_standby_data_is_left(pgpaces.home)


def test_ctrl_c_keeps_the_answer_of_all_servers(pgpaces):
    beside = ("--background", "reader workload=select-only scale=1 node=standby1 rate=50/s")
    process = pgpaces.start("run", "select-only", *LAYOUT, *beside)
    started(process)
    until(lambda: interval_count(pgpaces.store) >= 2)
    out, _ = ctrl_c(process)
    assert "background reader on standby1: " in " ".join(out.split())
    shown = pgpaces("show", "last", "--json").json()
    assert (shown["state"], adds_up(shown)) == ("interrupted", True)
    nothing_is_left(pgpaces.home)


def test_ctrl_c_while_a_standby_is_made_leaves_nothing(pgpaces):
    process = pgpaces.start("run", "select-only", *LAYOUT, start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "creating the standby" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: all of its programs hear it
    process.communicate(timeout=60)
    assert process.returncode == 130
    nothing_is_left(pgpaces.home)
    no_standby_data_is_left(pgpaces.home)


@dataclass
class Cluster:
    """A primary and a standby, reached by sockets and by TCP with a password."""

    primary: ServerRecord
    standby: ServerRecord

    def access(self, server: ServerRecord) -> Access:
        return Access(dict(engine.resolve(server.dsn()).keywords), server.bin / "psql")


@pytest.fixture(scope="module", params=["15", pytest.param("18", marks=pytest.mark.slow)])
def cluster(request, pgpaces_home):
    if request.param == "15":
        check("PostgreSQL 15")
    with ExitStack() as stack:
        installation = packages.locate(request.param, lambda _: None)
        spec = managed_server.ServerSpec(
            installation, f"cluster{request.param}", settings=dict(SAFE_ENOUGH), tcp=True
        )
        primary = stack.enter_context(managed_server.start(spec))
        (standby,) = stack.enter_context(
            managed_standbys.standbys(primary, 1, None, say=lambda _: None)
        )
        yield Cluster(primary, standby)


def execute(server: ServerRecord, query: str) -> None:
    with closing(psycopg.connect(server.dsn(), autocommit=True)) as session:
        session.execute(query.encode())


def wait(cluster: Cluster, primary: Access | None = None, standby: Access | None = None) -> None:
    ways = {"standby1": standby or cluster.access(cluster.standby)}
    primary = primary or cluster.access(cluster.primary)
    streaming.wait_for_standbys(primary, ways, lambda _: None, check=lambda: None)


def test_a_standby_has_what_its_primary_wrote_when_it_was_waited_for(cluster):
    for number in range(3):
        execute(cluster.primary, f"CREATE TABLE t{number} AS SELECT 1 AS one")
        wait(cluster)
        assert value(cluster.standby.dsn(), f"SELECT count(*) FROM t{number}") == 1


@pytest.mark.parametrize(
    ("hosts", "wanted", "found"),
    [
        (("primary", "standby"), "prefer-standby", "standby"),
        (("primary", "standby"), "standby", "standby"),
        (("primary", "standby"), "primary", "primary"),
        (("primary", "standby"), "any", "primary"),
        (("primary",), "prefer-standby", "primary"),
    ],
)
def test_of_several_hosts_the_load_goes_to_the_one_that_is_wanted(cluster, hosts, wanted, found):
    servers: list[ServerRecord] = [getattr(cluster, name) for name in hosts]
    words = {
        "host": ",".join(str(each.socket_dir) for each in servers),
        "port": ",".join(str(each.port) for each in servers),
        "user": cluster.primary.superuser,
        "dbname": "postgres",
        "target_session_attrs": wanted,
    }
    route = _engine.find_route(_engine.resolve(quoted(words), {}))
    assert Path(route.address).parent == getattr(cluster, found).socket_dir


def test_settings_to_put_back_on_a_primary_are_not_taken_for_those_of_its_standby(cluster):
    """Both have one system identifier."""
    primary, standby = (cluster.access(each) for each in (cluster.primary, cluster.standby))
    with connect(primary) as admin, connect(standby) as other:
        assert note_of(admin, primary) != note_of(other, standby)


def test_a_standby_whose_replay_is_paused_is_given_up_and_found_again(cluster, monkeypatch):
    monkeypatch.setattr(streaming, "_STUCK_S", 0.2)
    execute(cluster.standby, "SELECT pg_wal_replay_pause()")
    try:
        execute(cluster.primary, "CREATE TABLE paused AS SELECT 1 AS one")
        with raises(ServerError, "standby-stuck", standby="standby1", wait_s=0.2):
            wait(cluster)
    finally:
        execute(cluster.standby, "SELECT pg_wal_replay_resume()")
    monkeypatch.undo()
    wait(cluster)


def test_settings_of_the_whole_server_reach_standbys_and_are_put_back(cluster):
    def shown() -> str:
        return str(value(cluster.standby.dsn(), "SHOW checkpoint_timeout"))

    before = shown()
    ways = {"standby1": cluster.access(cluster.standby)}
    with streaming.on_standbys(ways, {"checkpoint_timeout": "41min"}):
        until(lambda: shown() == "41min", "the setting on the standby")
    until(lambda: shown() == before, "the setting put back")


def test_a_standby_of_somebodys_is_a_node(cluster, pgpaces):
    before = value(cluster.standby.dsn(), "SELECT sum(xact_commit) FROM pg_stat_database")
    node = ("--target-node", f"standby1={cluster.standby.dsn()}", "--node", "standby1")
    words = ("--target", cluster.primary.dsn(), *node, "-c", 2, "-t", 500, "--json")
    ended = pgpaces("run", "select-only", *FAST, *words)
    assert ended.json()["counts"]["on_time"] == 1000
    query = "SELECT sum(xact_commit) FROM pg_stat_database"
    until(lambda: value(cluster.standby.dsn(), query) - before >= 1000, "what it served")
    nodes = pgpaces.trial().server.nodes
    assert nodes["standby1"]["port"] == str(cluster.standby.port)


def test_a_server_that_is_no_standby_of_the_target_is_refused(cluster, pg15):
    for found in (cluster.access(cluster.primary), access_to(pg15)):
        with raises(PlanError, "not-a-standby", server="standby1"):
            wait(cluster, standby=found)
    with raises(PlanError, "standby-of-other-server", standby="standby1"):
        wait(cluster, primary=access_to(pg15))


def test_no_password_of_a_node_is_kept_or_shown(cluster, cage):
    role = PASSWORD.replace("'", "''")
    execute(cluster.primary, f"CREATE ROLE canary SUPERUSER LOGIN PASSWORD '{role}'")
    wait(cluster)

    def dsn(server: ServerRecord) -> str:
        where = {"host": server.host(Transport.TCP), "port": server.port, "dbname": "postgres"}
        return quoted(where | {"user": "canary", "password": PASSWORD, "sslmode": "disable"})

    nodes = ("--target", dsn(cluster.primary), "--target-node", f"standby1={dsn(cluster.standby)}")
    words = ("select-only", *FAST, "-T", "1s", "-c", 2, *nodes, "--node", "any")
    beside = ("--background", "reader workload=select-only scale=1 node=standby1 clients=1")
    ended = cage.well("run", *words, "--json", "--fresh", *beside)
    assert ended.children, "programs were started, and looked at"


def sweep(pgpaces: Command, *words: object) -> dict[str, Trial]:
    grid = ("--node", "any", "-c", 6, "-T", "1s", *FAST, "--yes", *words)
    pgpaces.well("sweep", "select-only", *grid, "-o", pgpaces.store.parent / "page.md")
    nothing_is_left(pgpaces.home)
    placed = [each for each in pgpaces.trials() if each.place and each.state == "finished"]
    return {" ".join(f"{k}={v}" for k, v in t.place.levels.items()): t for t in placed if t.place}


@pytest.mark.slow
def test_the_number_of_standbys_is_a_factor(pgpaces):
    found = sweep(pgpaces, "--standbys", "0,1")
    sizes = {name: len(trial.setup.components) for name, trial in found.items()}
    assert sizes == {"standbys=0": 1, "standbys=1": 2}
    assert all(trial.server.standbys == len(trial.setup.components) - 1 for trial in found.values())
    page = (pgpaces.store.parent / "page.md").read_text()
    assert "server-changed" not in page


@pytest.mark.slow
def test_standbys_and_pools_are_factors_together(pgpaces):
    check("pgbouncer")
    found = sweep(pgpaces, "--standbys", "0,1,2", "--pool", "none,pgbouncer")
    assert len(found) == 6
    for trial in found.values():
        assert trial.place is not None
        assert trial.server.standbys == int(trial.place.levels["standbys"])
        pooled = trial.place.levels["pool"] == "pgbouncer"
        assert bool(trial.server.pool) is pooled
        said = [each for each in trial.findings if each.name == "pool-unused"]
        assert len(said) == pooled, "the load goes past it"


@pytest.mark.slow
@needs("PostgreSQL 15", "openssl")
def test_standbys_are_reached_by_tls(pgpaces):
    words = ("--server", "15", "--tls", "on", "--standbys", 1, "--node", "any", "-c", 4)
    ended = pgpaces("run", "select-only", *FAST, *words, "-T", "1s", "--json")
    assert ended.json()["counts"]["failed"] == 0
